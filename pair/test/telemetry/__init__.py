"""Tests of ``pair.telemetry``."""
