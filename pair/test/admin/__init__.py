"""Tests of ``pair.admin``."""
