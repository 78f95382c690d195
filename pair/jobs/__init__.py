"""Jobs: the life of every inference request of this node, and their history (jobs page)."""
