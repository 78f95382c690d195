"""Tests of pair.surfaces."""
