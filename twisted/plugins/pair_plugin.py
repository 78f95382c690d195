"""Makes ``twistd pair`` known. It names its module as a string, so that listing plugins imports nothing of PAIR."""

from twisted.application.service import ServiceMaker

pair = ServiceMaker("PAIR", "pair.tap", "The Personal AI Router", "pair")
