"""Tests of ``pair.jobs``."""
