"""Tests of ``pair.control``."""
