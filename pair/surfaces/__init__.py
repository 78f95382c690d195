"""What serves the Klein apps: the control API now, the ports for peers by the same means (AR-7, AR-19)."""
