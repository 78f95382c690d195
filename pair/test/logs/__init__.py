"""Tests of :mod:`pair.logs`."""
