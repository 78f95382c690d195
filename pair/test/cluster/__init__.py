"""Tests of ``pair.cluster``."""
