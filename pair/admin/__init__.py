"""``pair-admin``: the command line, a client of the control API and of nothing else. It imports no Twisted."""
