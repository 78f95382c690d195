"""The wire: bytes to messages and back. Knows nothing of engines, models, jobs or routing."""
