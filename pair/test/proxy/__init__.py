"""Tests of ``pair.proxy``."""
