"""Tests of ``pair.feeds``."""
