"""Which machines there are, and which of them are alive (discovery page)."""
