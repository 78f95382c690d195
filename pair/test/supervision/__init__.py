"""Tests of ``pair.supervision``."""
