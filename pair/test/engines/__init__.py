"""Tests of ``pair.engines``."""
