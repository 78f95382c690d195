"""What keeps the parts of a node running: order, restarts, the watchdog, and how the process starts and ends.

Nothing here knows what the parts do.
"""
