"""The control API on port 14300: everything that a person or a script can see of this node (console page)."""
