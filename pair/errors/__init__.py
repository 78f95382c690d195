"""The error book: what is wrong on this node now (jobs page, section 9)."""
