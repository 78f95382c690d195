"""Tests of ``pair.errors``."""
