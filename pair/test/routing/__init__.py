"""Tests of ``pair.routing``."""
