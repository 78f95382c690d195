"""All invitations of this node, in both directions: who may open one, who may answer it, and what is kept of it.

One invitation is driven by :mod:`~pair.cluster.inviting` or
:mod:`~pair.cluster.joining`; here is what concerns several of them: limits,
the order of proofs, the list, the audit. It must not know HTTP, nor how trust
is kept.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed

from pair.addresses import Place, PlaceError, parse_node, parse_place, spread
from pair.cluster.inviting import Inviting
from pair.cluster.joining import Joining
from pair.cluster.limits import PENDING_MAX, Sparing, source_of
from pair.cluster.means import Means
from pair.cluster.promptbook import PromptBook
from pair.cluster.refusing import ALREADY_HERE, NO_CODE, PairingReply, Refusal, refuse
from pair.events import Signal
from pair.logs import Logger
from pair.metrics import Counter
from pair.privacy import Secret
from pair.protocols.pairing import (
    CodeError,
    Hello,
    MalformedError,
    draw_code,
    parse_code,
    read_request,
    show_code,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.cluster.means import PlainCaller, Trust
    from pair.cluster.promptbook import Audit
    from pair.interfaces import IErrorBook
    from pair.protocols.pairing import CodeKind, Party
    from pair.records.cluster import Invitation

ANSWER_SECONDS = 30.0
"""So long a person who typed a code is kept waiting for the end (CL-46)."""

P = TypeVar("P", Joining, Inviting)

log = Logger()


class Invitations(Service):
    """The invitations of this node.

    Attributes:
        changed: Emits an invitation as it is shown, changes and ends (CL-103).
        paired: Emits each that ended so, with all stored: time to sync, and to try both directions (CL-51, CL-60).
        knocked: Emits the UUID of a node that says hello while this node is in a cluster: if it still counts as a
            member here, a sync tells what has become of it (CL-91).
        ended_total: Counts the ends, by ``inviter`` or ``joiner`` and state.
        bad_macs: Counts requests with a bad MAC.
        limited: Counts hellos that were one too many.
        retired: Set once this node has another identity from its next start on: it pairs no more (CL-96).
    """

    name = "invitations"

    def __init__(
        self,
        clock: IReactorTime,
        party: Callable[[], Party],
        trust: Trust,
        caller: PlainCaller,
        addresses: Callable[[str], Sequence[str]],
        own_addresses: Callable[[str], bool],
        errors: IErrorBook,
        audit: Audit,
        port_default: int = 14321,
        entropy: Callable[[int], bytes] = os.urandom,
        below: Callable[[int], int] = secrets.randbelow,
        pairing_enabled: Callable[[], bool] = lambda: True,
        zones: Callable[[], Sequence[str]] = tuple,
        now: Callable[[], int] | None = None,
    ) -> None:
        """A node without invitations.

        Args:
            clock: For all timers.
            party: This node as it is now.
            trust: The cluster, if it is in one.
            caller: Sends requests in the clear.
            addresses: Where a node is known to be, by its UUID: ``host[:port]``, the best first.
            own_addresses: Whether an address is one of this host.
            errors: Where attacks are reported.
            audit: Keeps what ended.
            port_default: Where others listen for invitations if nothing else is said.
            entropy: Gives so many random bytes.
            below: Gives a random number below its argument, for codes.
            pairing_enabled: Whether others may invite this node.
            zones: The names of the interfaces that are up, for link-local addresses without one (CL-58).
            now: Epoch milliseconds; by default as ``clock`` has it.
        """
        self._book = book = PromptBook(clock, party().uuid, errors, audit)
        self.changed = book.changed
        self.paired = book.paired
        self.ended_total = book.ended_total
        self.bad_macs = book.bad_macs
        self.knocked: Signal[str] = Signal()
        self.limited = Counter()
        self.retired = False
        self._clock = clock
        self._means = Means(clock, now or (lambda: int(clock.seconds() * 1000)), party, trust, caller, entropy)
        self._addresses = addresses
        self._is_own_address = own_addresses
        self._port = port_default
        self._below = below
        self._enabled = pairing_enabled
        self._zones = zones
        self._sparing = Sparing()

    def stopService(self) -> Deferred[None]:
        """Forget all invitations (CL-54); fires when nothing of them is being stored any more."""
        super().stopService()
        return self._book.close()

    # For people.

    def all(self) -> tuple[Invitation, ...]:
        """Those under way, and those that ended within the last hour; the newest last."""
        return tuple(sorted((each.record for each in self._book.all if each.shown), key=lambda each: each.created_at))

    def invite(self, target: str, code_kind: CodeKind = "pin") -> Deferred[tuple[Invitation, Secret]]:
        """Invite a node.

        Args:
            target: Its UUID, or its address with or without port.
            code_kind: Of the code.

        Returns:
            A Deferred of the invitation and its code as people are shown it; nobody is told it again (CL-101). It
            fails with a :class:`Refusal`: ``invalid_value``, ``is_self``, ``already_clustered``, ``cluster_full``,
            ``too_many``, ``unreachable``, ``peer_failed``, or what the other node refuses with (CL-43).
        """
        return Deferred.fromCoroutine(self._invite(target, code_kind))

    def accept(self, id: str | None, typed: str) -> Deferred[Invitation]:
        """Answer an invitation with the code that a person typed (CL-46).

        Args:
            id: Which; None: the only one that waits.
            typed: With any spacing and in any case.

        Returns:
            A Deferred of what became of it, at its end or after 30 seconds: a wrong code is ``voided`` with the
            reason ``wrong_code``. It fails with a :class:`Refusal`: ``no_such_invitation``, ``ambiguous``,
            ``invalid_value``, ``invitation_over``, ``already_clustered``, ``pairing_busy``.
        """
        return Deferred.fromCoroutine(self._accept(id, typed))

    def decline(self, id: str) -> Invitation:
        """Decline one that came here.

        Raises:
            Refusal: ``no_such_invitation`` or ``invitation_over``.
        """
        prompt = self._shown(self._book.inbound, id)
        prompt.decline()
        return prompt.record

    def cancel(self, id: str) -> Invitation:
        """Cancel one of this node's.

        Raises:
            Refusal: ``no_such_invitation`` or ``invitation_over``.
        """
        prompt = self._shown(self._book.outbound, id)
        prompt.cancel()
        return prompt.record

    # For other nodes.

    def receive(self, body: bytes, mac: bytes | None, source: str) -> Deferred[PairingReply]:
        """Answer a pairing request.

        Args:
            body: As it came.
            mac: Its ``X-Pair-Mac``, if it has one.
            source: The IP literal that it came from, with its zone where it has one.

        Returns:
            A Deferred of the answer; that to a poll comes after up to 20 seconds. To cancel it says that the client
            has hung up, and then it fails with a ``CancelledError``.
        """
        try:
            request = read_request(body)
        except MalformedError:
            return succeed(refuse(400, "bad_request"))
        prompt = self._book.inbound.get(request.invite)
        if prompt is not None:
            return prompt.received(request, body, mac)
        if not isinstance(request, Hello):
            return succeed(refuse(404, "no_such_invitation"))
        reply = self._greet(request, body, source)
        if reply.status != 200 and self._sparing.worth(source_of(source), self._clock.seconds()):
            log.debug("A hello from {source} is refused with {status}.", source=source, status=reply.status)
        return succeed(reply)

    def _greet(self, hello: Hello, body: bytes, source: str) -> PairingReply:
        """CL-42, in its order. Memory is used last."""
        me, node = self._means.party().uuid, str(hello.node)
        if self.retired or not self._enabled():
            return refuse(403, "pairing_off", me)
        if hello.version is None:
            return refuse(400, "version", me)
        if node == me:
            return refuse(409, "is_self" if self._is_own_address(source) else "identity_clash", me)
        if self._means.trust.view is not None:
            self.knocked.emit(node)
            return refuse(409, "already_clustered", me)
        if hello.invite in self._book.outbound:
            return refuse(409, "invite_conflict")
        wait = self._book.doorkeeper.admit(hello.invite, source_of(source), self._clock.seconds())
        if wait is not None:
            self.limited.inc()
            return refuse(429, "too_many", me, int(wait) + 1)
        try:
            prompt = Joining(self._means, self._book, body, hello, source)
        except MalformedError:
            self._book.doorkeeper.release(hello.invite)
            return refuse(400, "bad_request")
        self._book.inbound[prompt.id] = prompt
        return PairingReply(200, prompt.exchange.reply)

    # What becomes of a wish.

    async def _invite(self, target: str, kind: CodeKind) -> tuple[Invitation, Secret]:
        self._check_retired()
        node = parse_node(target)
        try:
            given = None if node else parse_place(target, self._port)
        except PlaceError:
            raise Refusal("invalid_value") from None
        view = self._means.trust.view
        if node == self._means.party().uuid:
            raise Refusal("is_self")
        if view is not None and node is not None and view.member(node) is not None:
            raise Refusal("already_clustered", message=ALREADY_HERE)
        if view is not None and view.full:
            raise Refusal("cluster_full")
        if sum(each.live for each in self._book.outbound.values()) >= PENDING_MAX:
            raise Refusal("too_many")

        def places(known: str | None) -> tuple[Place, ...]:
            return self._places(given, known)

        code = draw_code(kind, self._below)
        prompt = Inviting(self._means, self._book, kind, code, node, places, self._book.turn)
        self._book.outbound[prompt.id] = prompt
        try:
            await prompt.greet()
        except Refusal as why:
            if view is not None and why.code == "already_clustered" and why.node and view.member(why.node) is not None:
                raise Refusal("already_clustered", message=ALREADY_HERE) from None
            raise
        finally:
            if not prompt.shown:
                prompt.stop()
                self._book.outbound.pop(prompt.id, None)
        return prompt.record, Secret(show_code(kind, code))

    def _places(self, given: Place | None, node: str | None) -> tuple[Place, ...]:
        known = [] if given is None else [given]
        for address in self._addresses(node) if node else ():
            try:
                known.append(parse_place(address, self._port))
            except PlaceError:
                log.debug("The directory has an address for {node} that is none.", node=node)
        return spread(known, self._zones())

    async def _accept(self, id: str | None, typed: str) -> Invitation:
        self._check_retired()
        prompt = self._only_one() if id is None else self._shown(self._book.inbound, id)
        try:
            code = parse_code(prompt.kind, typed)
        except CodeError:
            raise Refusal("invalid_value", message=NO_CODE[prompt.kind]) from None
        if prompt.exchange.state != "waiting":
            raise Refusal("invitation_over", state=prompt.exchange.state)
        if self._means.trust.view is not None:
            prompt.fail("already_clustered")
            raise Refusal("already_clustered")
        if any(each.exchange.state == "confirming" for each in self._book.all):
            raise Refusal("pairing_busy")
        for other in self._book.outbound.values():
            if other.exchange.state == "waiting" and other.shown and other.claimed[0] == prompt.claimed[0]:
                other.cancel()
        prompt.prove(code)
        over = prompt.when_over()
        await over.addTimeout(ANSWER_SECONDS, self._clock, onTimeoutCancel=lambda _, __: None)
        return prompt.record

    def _check_retired(self) -> None:
        if self.retired:
            raise Refusal("restart_needed")

    def _only_one(self) -> Joining:
        waiting = [each for each in self._book.inbound.values() if each.shown and each.exchange.state == "waiting"]
        if len(waiting) > 1:
            raise Refusal("ambiguous")
        if not waiting:
            raise Refusal("no_such_invitation")
        return waiting[0]

    @staticmethod
    def _shown(prompts: Mapping[str, P], id: str) -> P:
        prompt = prompts.get(id)
        if prompt is None or not prompt.shown:
            raise Refusal("no_such_invitation")
        return prompt
