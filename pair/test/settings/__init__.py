"""Tests of :mod:`pair.settings`."""
