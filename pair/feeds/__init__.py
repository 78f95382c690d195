"""Feeds: what one node owns, told to each other member directly (jobs page, sections 2 and 3).

Knows nothing of what the records mean, nor of who is a member.
"""
