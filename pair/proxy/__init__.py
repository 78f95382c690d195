"""The data plane: requests of clients are admitted, tried on engines, and their answers relayed (PX)."""
