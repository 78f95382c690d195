"""Measured comparisons of PAIR with other proxies (quality page, "Measures").

``python -m benchmarks.NAME [--json] [--quick]`` takes one of them. How each is
measured, and what would make it lie, is in ``README.md`` here.
"""
