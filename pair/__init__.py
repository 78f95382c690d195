"""PAIR, the Personal AI Router: one local endpoint in front of every machine that can run models.

Start with :mod:`pair.parts`, which joins all parts; ``docs/architecture`` tells the rest.
"""

__version__ = "0.1.0"
