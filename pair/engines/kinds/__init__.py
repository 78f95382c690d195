"""One module for each kind of engine: its dialect, its questions, and how to read the answers.

A kind is an object that provides :class:`pair.interfaces.IEngineKind`. Adding
one touches no other file but the tuple of built-in kinds in ``pair.included``.
"""
