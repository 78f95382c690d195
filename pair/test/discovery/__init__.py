"""Tests of ``pair.discovery``."""
