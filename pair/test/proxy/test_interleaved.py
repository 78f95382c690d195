"""Many clients, engines that do all kinds of things, and everything between each other: nobody gets what is another's.

Each request says a word that is its alone, in its body and in its credential,
and the engine says that word in its answer. What happens, and in which order, is
chosen at random.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import h11
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from twisted.internet.error import ConnectionDone, ConnectionLost

from pair.test.proxy.bench import DONE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, Client, Socket, chunk, head, response, stream
from pair.test.routing.facts import engine, node

if TYPE_CHECKING:
    from pair.records.jobs import Job

_WORD = re.compile(rb"<(\d+)>")
_LENGTH = re.compile(rb"Content-Length: (\d+)")
_PATHS = ("/api/chat", "/v1/chat/completions")
_SIZES = (1, 3, 9, 60, 10_000)

CHUNKED = (b"Transfer-Encoding", b"chunked")


class Script(Struct, frozen=True):
    """What an engine says, what it does then, and in which pieces it may say it.

    ``whole``: the body of the answer, where it is one that a client must get as it is.
    """

    data: bytes
    whole: bytes | None = None
    then: str = "stay"
    at_once: bool = False


def scripts(number: int) -> tuple[Script, ...]:
    """What an engine may say to the request of a number."""
    line = b'{"message":{"content":"<%d>"},"done":false}\n' % number
    whole = b'{"message":{"content":"<%d>"},"done":true}' % number
    event = b'data: {"choices":[{"delta":{"content":"<%d>"}}]}\n\n' % number
    end = b"data: [DONE]\n\n"
    long = line[:-1] + 70_000 * b" " + b"\n"
    lines = stream() + chunk(line) + chunk(line[:7]) + chunk(line[7:])
    said = line + line + DONE
    stale = response(200, b'{"message":{"content":"<%d> again"}}' % number)
    return (
        Script(response(200, whole), whole),
        Script(response(200, whole, (b"X-Word", b"<%d>" % number)), whole),
        Script(lines + chunk(DONE) + LAST_CHUNK, said),
        Script(lines + chunk(DONE) + b"0\r\nT: <%d>\r\nConnection: close\r\n\r\n" % number, said),
        Script(stream(b"text/event-stream") + chunk(event) + chunk(event + end) + LAST_CHUNK, event + event + end),
        Script(lines + chunk(long) + chunk(DONE) + LAST_CHUNK, line + line + long + DONE),
        Script(b"HTTP/1.1 103 Early\r\n\r\n" + response(200, whole), whole),
        Script(response(200, whole, (b"Connection", b"close")), whole),
        Script(response(200), b""),
        Script(head(200) + whole, whole, "close"),
        Script(response(200, whole), whole, "close"),
        Script(lines, None, "close"),
        Script(lines, None, "break"),
        Script(lines + b"5\r\nab", None, "break"),
        Script(lines + b"zz\r\n"),
        Script(response(200, whole)[:-2], None, "close"),
        Script(response(200, whole) + stale, at_once=True),
        Script(lines + LAST_CHUNK + stale, at_once=True),
        Script(b"babble\r\n\r\n"),
        Script(head(200, (b"Content-Length", b"2"), CHUNKED) + whole),
        Script(response(500, b'{"error":"<%d>"}' % number)),
        Script(response(404, b'{"error":"model <%d> not found"}' % number)),
        Script(response(429, b'{"error":"<%d>"}' % number, (b"Retry-After", b"1"))),
        Script(b"", None, "break"),
    )


class Asked(Struct):
    """One request of a client."""

    number: int
    path: str
    minor: int
    size: int


class Said(Struct):
    """One answer that a client has, as far as it came."""

    status: int
    body: bytes
    whole: bool
    raw: bytes = b""


class Person:
    """A client on one connection: what it asked, in order, and what it has yet to send of that."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.asked: list[Asked] = []
        self.unsent = b""

    def said(self) -> list[Said]:
        """The answers that it has, in order; the rest of what came must be the beginning of one."""
        found = []
        data = self.client.received + self.client.socket._queued
        for _ in self.asked:
            if not data:
                break
            reader = h11.Connection(h11.CLIENT)
            reader.send(h11.Request(method="POST", target="/", headers=[("Host", "a")]))
            reader.send(h11.EndOfMessage())
            reader.receive_data(data)
            if self.client.socket.closed and not self.client.socket.aborted:
                reader.receive_data(b"")
            said = Said(0, b"", False)
            while True:
                try:
                    event = reader.next_event()
                except h11.RemoteProtocolError:
                    break
                if isinstance(event, h11.Response):
                    said.status = event.status_code
                elif isinstance(event, h11.Data):
                    said.body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    said.whole = True
                    break
                elif event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                    break
            rest = reader.trailing_data[0] if said.whole else b""
            said.raw = data[: len(data) - len(rest)]
            found.append(said)
            data = rest
        return found


class Talk:
    """One connection to an engine, as the engine sees it."""

    def __init__(self, socket: Socket, mentions: int) -> None:
        self.socket = socket
        self.script: Script | None = None
        self._mentions = mentions
        self._left = b""
        self._read = 0

    def hear(self, kind: int, given: dict[int, list[Script]]) -> bool:
        """Whether there is something to answer; a request that is new gets an answer of a kind."""
        if self.socket.closed or self.socket.aborted or self.socket._closing:
            return False
        if self.script is not None:
            return True
        got = self.socket.got[self._read :]
        end = got.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(got[:end]) if end > 3 else None
        if length is None or len(got) < end + int(length[1]):
            return False
        self._read += len(got)
        # One request, with one word, which is in its body and in its credential, which no member is told (PX-81).
        assert len(got) == end + int(length[1]), got
        words = _WORD.findall(got)
        assert len(words) == self._mentions, got
        assert len(set(words)) == 1, got
        choices = scripts(int(words[0]))
        self.script = choices[kind % len(choices)]
        self._left = self.script.data
        given.setdefault(int(words[0]), []).append(self.script)
        return True

    def say(self, size: int) -> None:
        """Go on with the answer."""
        script = self.script
        assert script is not None
        if self._left:
            size = len(self._left) if script.at_once else size
            data, self._left = self._left[:size], self._left[size:]
            if not self._left and script.then == "stay":
                self.script = None
            self.socket.receive(data)
        elif not self.socket._arrived:  # else the end waits behind what we do not read yet
            self.script = None
            self.socket.lose(ConnectionDone() if script.then == "close" else ConnectionLost())


class Play:
    """A node with what happens to it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.people = [Person(bench.client), *(Person(bench.connect()) for _ in range(3))]
        self.gone: list[Person] = []
        self.talks: dict[Socket, Talk] = {}
        self.given: dict[int, list[Script]] = {}
        self.count = 0
        self.seen: dict[str, int] = {}
        self.told: dict[str, Job] = {}
        bench.jobs.changed.subscribe(self.tell)

    def tell(self, job: Job) -> None:
        before = self.told.get(job.id)
        assert before is None or (before.seq < job.seq and not before.terminal), (before, job)
        self.told[job.id] = job

    def look(self) -> None:
        """Somebody looks at the jobs, who must not see one go back, nor one that counts where it is not (RT-42)."""
        placed = {each.id: each.placed_on for each in self.bench.jobs.active() if each.placed_on is not None}
        assert self.bench.scheduling.book.placed() == placed, (self.bench.scheduling.book.placed(), placed)
        for job in (*self.bench.jobs.active(), *self.bench.jobs.ended()):
            assert self.seen.get(job.id, 0) <= job.seq, job
            self.seen[job.id] = job.seq

    def do(self, what: int, who: int, how: int) -> None:
        person = self.people[who % len(self.people)]
        match what:
            case 0 | 1 | 2:
                self.ask(person, how)
            case 3:
                self.send(person, _SIZES[how % len(_SIZES)])
            case 4:
                (person.client.leaves, person.client.half_closes)[how % 2]()
                self.bench.advance()
                self.replace(person)
            case 5:
                (person.client.stops_reading, person.client.reads_on)[how % 2]()
            case 6:
                jobs = self.bench.jobs.active()
                if jobs:
                    self.bench.plane.cancel(jobs[how % len(jobs)].id)
            case 7:
                self.look()
            case 8:
                self.bench.jobs.tell()
            case 9:
                self.bench.advance((0, 0.1, 2, 4)[how % 4])
            case _:
                self.answer(who, how)
        if person.client.socket.closed:
            self.replace(person)

    def replace(self, person: Person) -> None:
        if person in self.people:
            self.gone.append(person)
            self.people[self.people.index(person)] = Person(self.bench.connect())

    def ask(self, person: Person, how: int) -> None:
        number = self.count
        self.count += 1
        body = msgspec.json.encode(
            {"model": "m", "messages": [{"role": "user", "content": f"<{number}>" + number * "x"}]}
        )
        minor = 0 if how % 11 == 0 else 1
        asked = Asked(number, _PATHS[how % 2], minor, len(body))
        person.asked.append(asked)
        person.unsent += (
            f"POST {asked.path} HTTP/1.{minor}\r\nHost: localhost\r\nAuthorization: Bearer <{number}>\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self.send(person, _SIZES[how % len(_SIZES)] if how % 3 else 10_000)

    def send(self, person: Person, size: int) -> None:
        data, person.unsent = person.unsent[:size], person.unsent[size:]
        if data:
            person.client.sends(data)

    def answer(self, who: int, how: int) -> bool:
        for machines, mentions in ((self.bench.machines, 2), (self.bench.members.machines, 1)):
            for socket in chain.from_iterable(each.connections for each in machines.values()):
                if socket not in self.talks:
                    self.talks[socket] = Talk(socket, mentions)
        talks = [each for each in self.talks.values() if each.hear(how // 7, self.given)]
        if talks:
            talks[who % len(talks)].say(_SIZES[how % len(_SIZES)])
        return bool(talks)

    def finish(self) -> None:
        """All that was begun comes to its end: clients send and take the rest, and engines answer."""
        for each in self.people:
            each.client.reads_on()
            self.send(each, len(each.unsent))
        for _ in range(400):
            if not self.bench.plane.underway:
                break
            if not self.answer(0, 4):
                self.bench.advance(1)
            self.bench.advance()
        self.look()
        self.bench.jobs.tell()

    def check(self) -> None:
        """What must be true in the end, whatever happened."""
        jobs = {each.request_bytes: each for each in self.bench.jobs.ended()}
        assert len(jobs) == len(self.bench.jobs.ended())
        assert self.told == {each.id: each for each in jobs.values()}
        assert sum(self.bench.jobs.totals().values()) == len(jobs)
        served = next(self.bench.admission._numbers) - 1
        assert sum(self.bench.plane.meters.requests.values.values()) == served, served
        for person in (*self.people, *self.gone):
            self.check_person(person, jobs)

    def check_person(self, person: Person, jobs: dict[int, Job]) -> None:
        said = person.said()
        for asked, each in zip(person.asked, said, strict=False):
            words = set(_WORD.findall(each.raw))
            assert words <= {b"%d" % asked.number}, (asked, each)
            job = jobs.get(asked.size)
            # To HTTP/1.0 the end of the connection is the end of an answer, whole or not.
            whole = each.whole and each.status == 200 and asked.minor == 1
            if job is not None and job.state == "completed":
                assert whole or asked.minor == 0 or person in self.gone, (asked, each, job)
                wholes = [script.whole for script in self.given[asked.number]]
                assert not whole or each.body in wholes, (asked, each)
            else:
                assert not whole, (asked, each, job)
        if person not in self.gone:
            for asked in person.asked[len(said) :]:
                assert asked.size not in jobs, (asked, jobs[asked.size])


class InterleavedTests(BenchCase):
    @given(
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 19), st.integers(0, 3), st.integers(0, 999)), max_size=120),
    )
    def test_nobody_gets_what_is_anothers(self, members: int, steps: list[tuple[int, int, int]]) -> None:
        """Whatever happens: answers come whole, once, to whom they are for, and the jobs say so (PX-58, JB-40)."""
        play = Play(self.bench(peers=[node(f"peer{each}", engine("ollama", "m")) for each in range(members)]))
        for what, who, how in steps:
            play.do(what, who, how)
        play.finish()
        play.check()
        # Each example is a case of its own, with nothing left in use.
        self.tearDown()
        self.setUp()
