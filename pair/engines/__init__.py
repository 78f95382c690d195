"""Engines: find them, run them, list their models. No request for inference passes through this package.

``kinds`` tells engines apart as data and pure functions; ``locate``, ``ports``
and ``alias`` decide from facts they are handed; the rest runs, probes and
watches.
"""
