"""GETs to other nodes: of members by their pins, at whichever address is theirs first, and plain ones (DS-37, AR-7).

Addresses are raced until one shows the right identity, and only that one is
asked. It must not know where addresses come from, nor what an answer means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.web.http_headers import Headers

from pair.addresses import Place
from pair.cluster.calls import NOBODY, host_field
from pair.cluster.dialing import PeerUnreachable, verdict
from pair.cluster.leaf import leaf_digest
from pair.cluster.posting import CallError, ask
from pair.events import Signal
from pair.feeds.following import NotReachedError
from pair.protocols.dial import CONNECT_SECONDS, DialError, RaceLostError, dial, race
from pair.protocols.pairing.messages import Silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.interfaces import IProtocol, IProtocolFactory

    from pair.cluster.dialing import PinnedDial
    from pair.cluster.posting import Answer
    from pair.feeds.following import Receiver

REACH_SECONDS = 3.0
"""For all addresses of a node together, until one of them has shown who it is."""

ANSWER_SECONDS = 5.0
"""From the handshake's end to the first byte of an answer, where the caller says nothing else."""

KNOCK_SECONDS = 1.0
"""For one address to accept a connection, or to show who it is (DS-56)."""

REFUSAL_MAX = 128 * 1024
"""Octets of an answer that is no stream: the evidence of a refusal has 64 KiB, and grows in base64."""


class Got(Silent, Struct, frozen=True):
    """An answer, whole, and where it was got. ``leaf`` is the digest of the leaf that was shown there."""

    status: int
    body: bytes
    place: Place
    leaf: str | None = None


class Refused(Silent, Struct, frozen=True):
    """A member has answered 403; ``body`` is what it gives as the reason (CL-17)."""

    node: str
    body: bytes


class FeedStream:
    """Provides :class:`pair.feeds.following.Stream`.

    Attributes:
        place: Where it was got.
    """

    def __init__(self, answer: Answer, place: Place) -> None:
        self.place = place
        self._answer = answer

    def deliver(self, receiver: Receiver) -> None:
        """Give it to ``receiver``."""
        self._answer.deliver(receiver)

    def abort(self) -> None:
        """Close the connection at once."""
        self._answer.abort()


class PeerGetter:
    """Asks other nodes.

    Args:
        reactor: Makes the plain connections, and measures time.
        dial: Reaches members.

    Attributes:
        refused: Emits each refusal of a member, whatever it was asked for.
    """

    def __init__(self, reactor: Any, dial: PinnedDial) -> None:
        self.refused: Signal[Refused] = Signal()
        self._reactor = reactor
        self._dial = dial

    def get(
        self,
        node: str,
        places: Sequence[Place],
        path: str,
        limit_bytes: int,
        seconds: float,
        each_seconds: float = CONNECT_SECONDS,
    ) -> Deferred[Got]:
        """Ask a member.

        Args:
            node: Its UUID.
            places: Where it may be, the likeliest first. One at which the
                connection is lost before the answer begins, or that does not
                begin one, counts as one where it is not (CL-19).
            path: With its query.
            limit_bytes: The longest body of an answer that is taken.
            seconds: For all of it.
            each_seconds: For one place to show who it is, and again to begin its answer.

        Returns:
            The answer, of whatever status. Fails with
            :class:`PeerUnreachable` where nobody began one, or all together
            took too long; with :class:`CallError` where one was begun, and is
            ``broken`` or ``too_large``.
        """

        async def call() -> Got:
            answer, place, leaf = await self._ask(node, places, path, limit_bytes, each_seconds, each_seconds)
            got = Got(answer.response.code, await answer.content(), place, leaf)
            self._note(node, got)
            return got

        def too_late(_: object, __: float) -> Got:
            raise PeerUnreachable("timeout")

        return Deferred.fromCoroutine(call()).addTimeout(seconds, self._reactor, too_late)

    def stream(
        self, node: str, places: Sequence[Place], path: str, seconds: float = REACH_SECONDS + ANSWER_SECONDS
    ) -> Deferred[FeedStream]:
        """Ask a member for something that has no end.

        Args:
            node: Its UUID.
            places: As in :meth:`get`.
            path: With its query.
            seconds: Until the answer has begun.

        Returns:
            The body of an answer with 200, of which nothing is read before it
            is delivered. Fails with :class:`NotReachedError` where there is none.
        """

        async def call() -> FeedStream:
            try:
                answer, place, leaf = await self._ask(node, places, path, REFUSAL_MAX, REACH_SECONDS, ANSWER_SECONDS)
                if answer.response.code == 200:
                    return FeedStream(answer, place)
                got = Got(answer.response.code, await answer.content(), place, leaf)
            except (PeerUnreachable, CallError) as error:
                raise NotReachedError(error.reason) from None
            self._note(node, got)
            raise NotReachedError(f"status {got.status}")

        def too_late(_: object, __: float) -> FeedStream:
            raise NotReachedError("timeout")

        return Deferred.fromCoroutine(call()).addTimeout(seconds, self._reactor, too_late)

    def plain(self, place: Place, path: str, limit_bytes: int, seconds: float) -> Deferred[Got]:
        """Ask whoever is at a place, in the clear. A name is resolved anew.

        Args:
            place: The only one that is asked.
            path: With its query.
            limit_bytes: The longest body of an answer that is taken.
            seconds: For all of it.

        Returns:
            The answer. Fails with :class:`pair.protocols.dial.DialError` where
            there is no connection, else with :class:`CallError`.
        """
        headers = Headers({b"Host": [host_field(place.host, place.port)]})

        async def call() -> Got:
            url = b"http://" + NOBODY + path.encode("ascii")
            answer = await ask(self._reactor, connect, b"GET", url, headers, None, limit_bytes)
            return Got(answer.response.code, await answer.content(), place)

        async def connect(factory: IProtocolFactory) -> IProtocol:
            return await dial(self._reactor, place.host, place.port, factory)

        def too_late(_: object, __: float) -> Got:
            raise CallError("timeout")

        return Deferred.fromCoroutine(call()).addTimeout(seconds, self._reactor, too_late)

    def knock(self, node: str | None, places: Sequence[Place], pinned: bool, seconds: float) -> Deferred[bool]:
        """Whether anybody is at one of these places: ``node`` itself, by its pin, or whoever accepts a connection.

        Args:
            node: Its UUID; not asked for where it is not to be pinned.
            places: The likeliest first.
            pinned: Whether it is to show its pinned leaf.
            seconds: For all of them; one has a second.
        """

        async def call() -> bool:
            try:
                if pinned and node is not None:
                    _, visitor = await self.reach(node, places, _VISITS, KNOCK_SECONDS)
                else:
                    visitor = await race(self._reactor, places, self._visit, lambda each: isinstance(each, DialError))
            except (PeerUnreachable, RaceLostError):
                return False
            cast(Any, visitor).transport.abortConnection()
            return True

        return Deferred.fromCoroutine(call()).addTimeout(seconds, self._reactor, lambda _, __: False)

    async def _ask(
        self, node: str, places: Sequence[Place], path: str, limit_bytes: int, each: float, answer_seconds: float
    ) -> tuple[Answer, Place, str]:
        """An answer that has begun, where, and the digest of the leaf there.

        Raises:
            PeerUnreachable: Nobody began one.
            CallError: It is not whole, or no HTTP.
        """
        url = f"https://{node}{path}".encode("ascii")
        left = list(places)
        silent: list[PeerUnreachable] = []
        met: list[tuple[Place, str]] = []

        async def connect(factory: IProtocolFactory) -> IProtocol:
            place, protocol = await self.reach(node, left, factory, each)
            met.append((place, leaf_digest(cast(Any, protocol).transport.peerLeaf.der)))
            return protocol

        while True:
            try:
                answer = await ask(self._reactor, connect, b"GET", url, Headers(), None, limit_bytes, answer_seconds)
            except CallError as error:
                if error.reason not in ("lost", "timeout"):
                    raise
                silent.append(PeerUnreachable("timeout" if error.reason == "timeout" else "refused", met=True))
                left.remove(met[-1][0])
            except PeerUnreachable as miss:
                raise verdict([*silent, miss]) if miss.reason != "no_pin" else miss from None
            else:
                return answer, *met[-1]

    async def reach(
        self, node: str, places: Sequence[Place], factory: IProtocolFactory, each: float = CONNECT_SECONDS
    ) -> tuple[Place, IProtocol]:
        """The first place that shows the pinned leaf, and a connection with it.

        Args:
            node: Whose leaf.
            places: The likeliest first; each is tried while others are.
            factory: Builds the protocol, when the handshake is done.
            each: Seconds for one of them.

        Raises:
            PeerUnreachable: There is none.
        """

        def too_late(_: object, __: float) -> Any:
            raise PeerUnreachable("timeout")

        def attempt(place: Place) -> Deferred[tuple[Place, IProtocol]]:
            reaching = Deferred.fromCoroutine(self._dial.reach(node, place.host, place.port, factory))
            return reaching.addTimeout(each, self._reactor, too_late).addCallback(lambda protocol: (place, protocol))

        racing = race(self._reactor, places, attempt, _is_miss).addTimeout(REACH_SECONDS, self._reactor, too_late)
        try:
            return await racing
        except RaceLostError as lost:
            raise verdict(each for each in lost.misses if isinstance(each, PeerUnreachable)) from None

    def _visit(self, place: Place) -> Deferred[IProtocol]:
        return Deferred.fromCoroutine(dial(self._reactor, place.host, place.port, _VISITS, KNOCK_SECONDS))

    def _note(self, node: str, got: Got) -> None:
        if got.status == 403:
            self.refused.emit(Refused(node, got.body))


def _is_miss(error: Exception) -> bool:
    """Whether it tells of one address only: without a pin no other is dialled either."""
    return isinstance(error, PeerUnreachable) and error.reason != "no_pin"


class _Visits(Factory):
    noisy = False
    protocol = Protocol


_VISITS = _Visits()
