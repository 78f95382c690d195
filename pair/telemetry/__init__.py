"""What this machine is, and how busy: sources, and the service that reads them (discovery page, section 13)."""
