"""Honest doubles of the engines that cannot be had on every machine (EN-109 to EN-111).

``ollama`` and ``lmstudio`` answer as the real ones do, in-process on a clock of
the test's or as programs, and their state changes as the real one's does. What
they say is made of fixed words, the same for the same question, so that an
answer that came through PAIR can be compared with one that did not. ``faults``
has what can be wrong with them.
"""
