"""Tests of ``pair.protocols``."""
