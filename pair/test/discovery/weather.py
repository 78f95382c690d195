"""A made-up network on which nodes find one another, with a clock of its own and packets that get lost.

A packet is lost for each receiver by itself. Nodes answer questions as
:rfc:`6762` has it: after 20 to 120 ms, and no record twice within a second.
Direct checks are TCP, which loses nothing: an answer takes 10 ms, silence 2 s.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from pair.discovery.bursts import Bursts
from pair.discovery.claims import Claim, Claims
from pair.discovery.liveness import SCAN_JITTER, SCAN_SECONDS, Check, Liveness, Lost
from pair.discovery.txt import Record, decode, encode, instance_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pair.discovery.liveness import Action

CHECKS_AT_ONCE = 8
AGAIN_SECONDS = 1.2
"""As in the service of multicast, which is not pure."""

ANSWER_SECONDS = 0.01
SILENCE_SECONDS = 2.0


class Weather:
    """All nodes, and the packets between them.

    Attributes:
        sent: Counts the packets and checks of all nodes, by kind.
        lost: Who dropped whom, and when.
    """

    def __init__(self, nodes: int, loss: float, seed: int = 1) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self.loss = loss
        self.sent: Counter[str] = Counter()
        self.lost: list[tuple[float, str, str]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.hosts = [Host(self, number) for number in range(nodes)]

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), do))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events[0][0] <= end:
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = end

    def cast(self, sender: Host, kind: str) -> Iterable[Host]:
        """One packet: those whom it reaches."""
        self.sent[kind] += 1
        chance, loss = self.chance.random, self.loss
        return [each for each in self.hosts if each is not sender and each.up and chance() >= loss]


class Host:
    """One node: the pure code, and the least around it."""

    def __init__(self, weather: Weather, number: int) -> None:
        self.weather = weather
        self.uuid = f"3f0c8a52-1d7e-4b6f-9a51-{number:012x}"
        self.data = encode(Record(self.uuid, None, (f"10.0.0.{number}",), {"ni": 14318}))
        self.instance = instance_name("spark", self.uuid)
        self.up = False
        self.start()

    def start(self) -> None:
        """Come up, knowing nobody."""
        self.up = True
        self.liveness = Liveness()
        self.claims = Claims()
        self.running = 0
        self.waiting: deque[str] = deque()
        self.said_at = -1.0
        self.asked_at = -1.0
        self.saying = False
        self.bursts = Bursts(self.weather.now)
        self.life = object()
        self._later(self.weather.chance.random(), self.announce)
        self._later(self.weather.chance.random(), self.begin)

    def stop(self) -> None:
        """Go without a word."""
        self.up = False
        self.life = object()

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        """As long as the node has not gone meanwhile."""
        life = self.life
        self.weather.after(seconds, lambda: do() if self.life is life else None)

    def announce(self) -> None:
        self.bursts.sent(self.weather.now)
        self.say("announcement")
        self._later(self.bursts.due - self.weather.now, self.announce)

    def say(self, kind: str) -> None:
        self.said_at = self.weather.now
        for each in self.weather.cast(self, kind):
            each.hear(self)

    def hear(self, other: Host) -> None:
        if other.uuid not in self.claims:
            record = decode(other.data)
            assert record is not None
            self.claims.put(Claim("mdns", record.uuid, other.instance, addresses=record.addresses))
            self.take(self.liveness.keep(record.uuid, True, False, self.weather.now))
        else:
            self.take(self.liveness.heard(other.uuid, self.weather.now))

    def begin(self) -> None:
        self.scan()
        self._later(AGAIN_SECONDS, self.ask)

    def ask(self) -> None:
        for each in self.weather.cast(self, "question"):
            each.asked()

    def scan(self) -> None:
        scan = self.liveness.scan(self.weather.now)
        if scan.ask:
            self.ask()
        self.take(scan.actions)
        self._later(SCAN_SECONDS + self.weather.chance.uniform(-SCAN_JITTER, SCAN_JITTER), self.scan)

    def asked(self) -> None:
        # All questions are the same bytes, and the library answers the same packet once a second.
        if self.weather.now - self.asked_at < 1.0:
            return
        self.asked_at = self.weather.now
        if not self.saying:
            self.saying = True
            soonest = self.said_at + 1.0 - self.weather.now
            self._later(max(self.weather.chance.uniform(0.02, 0.12), soonest), self.reply)

    def reply(self) -> None:
        self.saying = False
        self.say("answer")

    def take(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Check):
                self.waiting.append(action.node)
                self.check()
            elif isinstance(action, Lost):
                self.claims.drop(action.node, "mdns")
                self.weather.lost.append((self.weather.now, self.uuid, action.node))

    def check(self) -> None:
        while self.waiting and self.running < CHECKS_AT_ONCE:
            self.running += 1
            self.weather.sent["check"] += 1
            other = next(each for each in self.weather.hosts if each.uuid == self.waiting[0])
            seconds = ANSWER_SECONDS if other.up else SILENCE_SECONDS
            self._later(seconds, partial(self.checked, self.waiting.popleft(), other.up))

    def checked(self, node: str, answered: bool) -> None:
        self.running -= 1
        self.take(self.liveness.checked(node, "probe_ni" if answered else None, self.weather.now))
        self.check()
