"""Who this node is, and whom it trusts (cluster page)."""
