"""The world that :mod:`pair.test.simulator` puts routing into: machines, faults, clients and what may never happen.

Everything happens on one queue of events, in virtual time, and what is random
comes from one seeded generator (RT-68). Nothing here knows a reactor.
"""
