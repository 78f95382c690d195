"""A network that drops, delays, repeats, reorders and changes every message of a pairing (CL-28, CL-47)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.leaf import check_leaf
from pair.privacy import Secret
from pair.protocols.pairing import (
    Admit,
    Answer,
    Ended,
    ForeignReplyError,
    Hold,
    InviterExchange,
    Join,
    JoinerExchange,
    Keep,
    MalformedError,
    OverError,
    Refuse,
    Retract,
    Send,
    Show,
    read_request,
)
from pair.protocols.pairing.actions import LIVE
from pair.test.protocols.couple import CLUSTER, CODE, DESK, EPOCH, OFFERED, RACK, RETURNED, WRONG, Draws, Side

if TYPE_CHECKING:
    from pair.protocols.pairing.keys import Pake

CODES = st.sampled_from((CODE, CODE, CODE, WRONG))
BACK = st.sampled_from((0, 0, 0, 1, 2, 3, 4, 5))
"""How many messages ago something was said; most often it is the newest."""

Message = tuple[bytes, bytes | None]


class Joining(Side):
    """The joiner's side of one prompt, and what its person has done."""

    def __init__(self, hello: bytes, seed: str) -> None:
        super().__init__()
        self.draws = Draws(seed)
        self.exchange = JoinerExchange(RACK, hello, check_leaf, lambda _, __: None, self.draws)
        self.typed: list[str] = []


class Counted:
    """The inviter's run of the PAKE; how often a proof was put to it is counted."""

    def __init__(self, pake: Pake) -> None:
        self.message = pake.message
        self.judged = 0
        self._pake = pake

    def finish(self, message: bytes) -> bytes:
        self.judged += 1
        return self._pake.finish(message)


class Network(RuleBasedStateMachine):
    """One invitation, at worst several prompts of it, and everything that was ever said, to be said again.

    The network may change the bytes of a message, of its MAC, and of a hello.
    People type a right or a wrong code, decline and cancel; stores take their
    time, and fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.here = Side()
        self.inviter = InviterExchange(DESK, "pin", Secret(CODE), check_leaf, lambda _: None, Draws("here"))
        self.prompts: dict[str, Joining] = {}
        self.pake: Counted | None = None
        self.requests: list[Message] = [(self.inviter.hello, None)]
        self.replies: list[Message] = []
        self.admitting = False
        self.changed_hello = False
        self.broken_off = False
        self.hasty = True

    # What the network does.

    @initialize(steps=st.integers(0, 7), code=CODES, hasty=st.sampled_from((False, False, True)))
    def begin(self, steps: int, code: str, hasty: bool) -> None:
        """It begins its work at some point of a pairing that went well so far; people are hasty or not."""
        self.hasty = hasty
        for step in (
            self._carry_newest,
            self._carry_newest,
            lambda: self.type_code(code, 0),
            self._carry_newest,
            lambda: self._store_all(True),
            self._carry_newest,
            lambda: self._store_all(True),
        )[:steps]:
            step()

    @rule(at=BACK)
    def carry_request(self, at: int) -> None:
        """Deliver a request: for the first time, again, or late."""
        self._deliver_request(*self.requests[-1 - at % len(self.requests)])

    @rule(at=BACK)
    @precondition(lambda self: self.replies)
    def carry_reply(self, at: int) -> None:
        """Deliver a reply."""
        self._deliver_reply(*self.replies[-1 - at % len(self.replies)])

    @rule(at=BACK, place=st.integers(0, 2000), bit=st.integers(0, 7), mac=st.booleans())
    def change_request(self, at: int, place: int, bit: int, mac: bool) -> None:
        """Deliver a request with one bit changed."""
        self._deliver_request(*self._change(self.requests[-1 - at % len(self.requests)], place, bit, mac))

    @rule(at=BACK, place=st.integers(0, 2000), bit=st.integers(0, 7), mac=st.booleans())
    @precondition(lambda self: self.replies)
    def change_reply(self, at: int, place: int, bit: int, mac: bool) -> None:
        """Deliver a reply with one bit changed."""
        self._deliver_reply(*self._change(self.replies[-1 - at % len(self.replies)], place, bit, mac))

    # What people, clocks and stores do.

    @rule(code=CODES, which=st.integers(0, 3))
    @precondition(lambda self: self._shown())
    def type_code(self, code: str, which: int) -> None:
        """Into one of the prompts that are shown."""
        shown = self._shown()
        prompt = shown[which % len(shown)]
        with contextlib.suppress(OverError):
            self._done(prompt, prompt.exchange.prove(Secret(code), EPOCH))
            prompt.typed.append(code)

    @rule()
    def end_polls(self) -> None:
        """Twenty seconds pass."""
        for prompt in self.prompts.values():
            self._done(prompt, prompt.exchange.poll_ended())

    @rule(good=st.sampled_from((True, True, True, False)))
    @precondition(lambda self: self.admitting)
    def store_here(self, good: bool) -> None:
        """The inviter's store is done, or fails."""
        self.admitting = False
        if good or not self.hasty:
            self._do_here(self.inviter.admitted(CLUSTER, "home", OFFERED))
        else:
            self.broken_off = True
            self._do_here(self.inviter.end("failed", "store"))

    @rule(good=st.sampled_from((True, True, True, False)))
    def store_there(self, good: bool) -> None:
        """So is the joiner's."""
        for prompt in self._joining():
            if good or not self.hasty:
                self._done(prompt, prompt.exchange.joined(RETURNED))
            else:
                self.broken_off = True
                self._done(prompt, prompt.exchange.end("failed", "store"))

    @rule(state=st.sampled_from(("cancelled", "expired")))
    @precondition(lambda self: self.hasty and self.inviter.state == "waiting")
    def end_here(self, state: Any) -> None:
        """The inviter's person, or its clock, ends it."""
        self.broken_off = True
        self._do_here(self.inviter.end(state))

    @rule()
    @precondition(lambda self: self.hasty and self.inviter.state == "confirming" and not self.admitting)
    def give_up_here(self) -> None:
        """No answer came to the inviter's proof."""
        self.broken_off = True
        self._do_here(self.inviter.end("failed", "no_answer"))

    @rule(state=st.sampled_from(("declined", "expired", "failed")))
    @precondition(lambda self: self.hasty)
    def end_there(self, state: Any) -> None:
        """So does the joiner's; once the code is typed, only ``no_answer`` may."""
        for prompt in self.prompts.values():
            waiting = prompt.exchange.state == "waiting" and state != "failed"
            confirming = prompt.exchange.state == "confirming" and state == "failed" and prompt not in self._joining()
            if waiting or confirming:
                self.broken_off = True
                self._done(prompt, prompt.exchange.end(state, "no_answer" if confirming else None))

    # What is always so.

    @invariant()
    def one_guess(self) -> None:
        """At most one proof is judged, and each prompt makes at most one, from one code (CL-47)."""
        assert self.pake is None or self.pake.judged <= 1
        for prompt in self.prompts.values():
            assert prompt.draws.sizes.count(64) == len(prompt.typed) <= 1

    @invariant()
    def nothing_before_proof(self) -> None:
        """The inviter stores after the right code was typed, the joiner after the inviter stored (CL-45, CL-49)."""
        right = [each for each in self.prompts.values() if each.typed == [CODE]]
        proved = [each for each in self.here.all(Send) if b'"prove"' in each.body]
        assert len(self.here.all(Admit)) <= bool(right)
        assert len(proved) <= len(self.here.all(Admit))
        for prompt in self.prompts.values():
            assert len(prompt.all(Join)) <= (bool(proved) and prompt.typed == [CODE])

    @invariant()
    def one_end(self) -> None:
        """Each side ends once, and says so once."""
        self._ends_once(self.inviter, self.here)
        for prompt in self.prompts.values():
            self._ends_once(prompt.exchange, prompt)

    @invariant()
    def no_half_trust(self) -> None:
        """The inviter is paired only with a joiner that is, and takes back nothing that one has joined (CL-52)."""
        paired = [each for each in self.prompts.values() if each.exchange.state == "paired"]
        assert len(paired) <= 1
        assert (self.inviter.state == "paired") == bool(self.here.all(Keep))
        if self.inviter.state == "paired":
            assert paired
        if paired:
            assert not self.here.all(Retract)
            assert (self.inviter.state, self.inviter.reason) in (
                ("confirming", None),
                ("paired", None),
                ("failed", "no_answer"),
            )

    def teardown(self) -> None:
        """Now the network is kind. If nobody broke it off and the hellos came whole, it ends as the code was."""
        for _ in range(6):
            self._carry_newest()
            for prompt in self._shown():
                self.type_code(CODE, self._shown().index(prompt))
            self._carry_newest()
            self._store_all(good=True)
        if not (self.broken_off or self.changed_hello):
            (prompt,) = self.prompts.values()
            expected = "paired" if prompt.typed == [CODE] else "voided"
            assert (self.inviter.state, prompt.exchange.state) == (expected, expected)

    # How it is done.

    def _carry_newest(self) -> None:
        self._deliver_request(*self.requests[-1])
        if self.replies:
            self._deliver_reply(*self.replies[-1])

    def _store_all(self, good: bool) -> None:
        if self.admitting:
            self.store_here(good=good)
        self.store_there(good=good)

    def _shown(self) -> list[Joining]:
        return [each for each in self.prompts.values() if each.all(Show)]

    def _ends_once(self, exchange: InviterExchange | JoinerExchange, side: Side) -> None:
        told = [(each.state, each.reason) for each in side.all(Ended)]
        assert told == ([] if exchange.state in LIVE else [(exchange.state, exchange.reason)])

    def _change(self, message: Message, place: int, bit: int, mac: bool) -> Message:
        body, seal = message
        if mac and seal:
            return body, _flip(seal, place, bit)
        self.changed_hello |= seal is None
        return _flip(body, place, bit), seal

    def _deliver_request(self, body: bytes, mac: bytes | None) -> None:
        """As the service does: by the invitation's id, or a new prompt."""
        try:
            invite = read_request(body).invite
            if mac is None and invite not in self.prompts:
                prompt = self.prompts[invite] = Joining(body, f"there {len(self.prompts)}")
                self.replies.append((prompt.exchange.reply, None))
                return
        except MalformedError:
            return
        if invite in self.prompts:
            prompt = self.prompts[invite]
            done = prompt.exchange.received(body, mac)
            assert len([each for each in done if isinstance(each, Answer | Refuse | Hold)]) == 1
            self._done(prompt, done)

    def _deliver_reply(self, body: bytes, mac: bytes | None) -> None:
        with contextlib.suppress(ForeignReplyError):
            if mac is None:
                self._do_here(self.inviter.greeted(body))
                if self.inviter.tag and self.pake is None:
                    self.pake = self.inviter._pake = Counted(self.inviter._pake)  # type: ignore[assignment]
            else:
                self._do_here(self.inviter.received(body, mac))

    def _do_here(self, actions: tuple[Any, ...]) -> None:
        self.here.do(actions)
        self.admitting |= any(isinstance(each, Admit) for each in actions)
        self.requests += [(each.body, each.mac) for each in actions if isinstance(each, Send)]

    def _done(self, prompt: Joining, actions: tuple[Any, ...]) -> None:
        prompt.do(actions)
        self.replies += [(each.body, each.mac) for each in actions if isinstance(each, Answer)]

    def _joining(self) -> list[Joining]:
        return [each for each in self.prompts.values() if each.all(Join) and each.exchange.state == "confirming"]


def _flip(data: bytes, place: int, bit: int) -> bytes:
    at = place % len(data)
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


class NetworkTests(SynchronousTestCase):
    def test_any_network(self) -> None:
        """Whatever is done to the messages: both paired, nobody, or the joiner while the inviter heard nothing."""
        run_state_machine_as_test(Network, settings=settings(stateful_step_count=30))
