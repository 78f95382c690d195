"""The ports on which members read what this node tells of itself (jobs page, section 2; EN-84).

Each serves one feed: its document, and the stream that a follower reads. What
is in it, and how fast a follower is told, is the feed's business; here is who
may read it, and how a stream is carried over HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from klein import Klein
from twisted.internet.defer import Deferred

from pair.authority import is_loopback, parse_authority
from pair.cluster.limits import Sparing
from pair.feeds.publisher import NoPlaceError
from pair.feeds.wire import read_position
from pair.surfaces.answers import Reply, render_failures, send
from pair.surfaces.callers import MTLS_REQUIRED
from pair.surfaces.refusals import Refusal, Refused
from pair.surfaces.rules import BAD_REQUEST
from pair.surfaces.site import SurfaceRequest, SurfaceSite

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IPushProducer, IReactorTime
    from twisted.web.iweb import IRequest

    from pair.feeds.publisher import Feed
    from pair.feeds.wire import Position
    from pair.surfaces.callers import Callers
    from pair.surfaces.rules import Head

WORKLOADS = "/v1/workloads"
ERRORS = "/v1/errors"
MODELS = "/v1/models"

STREAM = "/stream"
"""Behind the path of a feed's document: the path of its stream."""

NDJSON = b"application/x-ndjson"

_NO_PLACE = Refusal(503, "no_place", "There are as many streams as there may be.", fields=((b"Retry-After", b"5"),))
_READ_ONLY = Refusal(405, "method_not_allowed", "This port is for reading.", fields=((b"Allow", b"GET, HEAD"),))


class FeedGuard:
    """Provides :class:`pair.surfaces.rules.Guard` for a feed's port (JB-12, EN-84).

    Args:
        callers: Who is a member.
        local_path: What programs on this machine may read in the clear; None: nothing.
    """

    def __init__(self, callers: Callers, local_path: str | None) -> None:
        self._callers = callers
        self._local_path = local_path

    def check(self, head: Head) -> Refusal | None:
        """See :class:`pair.surfaces.rules.Guard`."""
        if head.peer.tls:
            objection = self._callers.objection(head.peer)
        else:
            objection = None if head.path == self._local_path and _is_local(head) else MTLS_REQUIRED
        if objection is not None:
            return objection
        return None if head.method in ("GET", "HEAD") else _READ_ONLY

    def body_limit(self, head: Head) -> int:
        """See :class:`pair.surfaces.rules.Guard`."""
        return 0


def _is_local(head: Head) -> bool:
    """Whether a program on this machine asks, and no page in a browser, by whatever name (UI-4, UI-5)."""
    hosts = head.values(b"host")
    authority = parse_authority(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
    named = authority is not None and is_loopback(authority[0])
    # A browser that gets a script or an image sends no Origin, but says from where it was asked to.
    of_page = head.values(b"origin") or any(each != b"none" for each in head.values(b"sec-fetch-site"))
    return named and is_loopback(head.peer.address) and not of_page


class FeedBody:
    """The body of an answer; provides :class:`pair.feeds.outflow.Writer`.

    Args:
        request: What is answered. Its head must be set.

    Attributes:
        ended: Fires when the body is complete; the answer is to be finished
            then. Klein cancels it when the client is gone.
    """

    def __init__(self, request: SurfaceRequest) -> None:
        self.ended: Deferred[None] = Deferred(lambda _: self._lost())
        self._request = request
        self._stream: IPushProducer | None = None

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:
        """See :class:`pair.feeds.outflow.Writer`."""
        self._stream = producer
        self._request.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        """See :class:`pair.feeds.outflow.Writer`."""
        self._request.unregisterProducer()

    def write(self, data: bytes) -> None:
        """See :class:`pair.feeds.outflow.Writer`."""
        self._request.write(data)

    def finish(self) -> None:
        """See :class:`pair.feeds.outflow.Writer`."""
        self.ended.callback(None)

    def abort(self) -> None:
        """See :class:`pair.feeds.outflow.Writer`."""
        self._request.channel.transport.abortConnection()

    def _lost(self) -> None:
        if self._stream is not None:
            self._stream.stopProducing()


class FeedApi:
    """Answers both routes of one feed.

    Args:
        feed: What is told.
        document: Its document.
        callers: Who is a member.
        heard: Told the UUID of each member that asks something.
    """

    def __init__(
        self, feed: Feed[Any], document: Callable[[], bytes], callers: Callers, heard: Callable[[str], None]
    ) -> None:
        self._feed = feed
        self._document = document
        self._callers = callers
        self._heard = heard

    def document(self, request: SurfaceRequest) -> Reply:
        """All records at this instant (JB-11)."""
        if request.peer.tls:
            self._member(request)
        return Reply(self._document())

    def stream(self, request: SurfaceRequest) -> Deferred[None] | None:
        """The feed, from the position on that the query names (JB-8, JB-14).

        Returns:
            What fires at its end; None for a request that wants the head only.
        """
        peer = self._member(request)
        try:
            position = read_position(cast("dict[bytes, list[bytes]]", request.args))
        except ValueError:
            raise Refused.by(BAD_REQUEST) from None
        request.setHeader(b"Content-Type", NDJSON)
        # Whatever ends the stream ends the connection (JB-10).
        request.setHeader(b"Connection", b"close")
        return None if request.method == b"HEAD" else self._serve(request, peer, position)

    def _serve(self, request: SurfaceRequest, peer: str, position: Position | None) -> Deferred[None]:
        body = FeedBody(request)
        try:
            self._feed.serve(peer, body, position)
        except NoPlaceError:
            raise Refused.by(_NO_PLACE) from None
        return body.ended

    def _member(self, request: SurfaceRequest) -> str:
        """The UUID of the member that asks: by its pin, whatever it says itself (JB-28)."""
        node = self._callers.check(request.peer).node
        assert node is not None, "the guard lets only members pass, in this very turn"
        self._heard(node)
        return node


def feed_app(api: FeedApi, path: str) -> Klein:
    """``api`` behind its routes."""
    app = Klein()

    @app.route(path, methods=["GET"])
    def document(request: IRequest) -> bytes:
        return send(request, api.document(cast(SurfaceRequest, request)))

    @app.route(path + STREAM, methods=["GET"])
    def stream(request: IRequest) -> Deferred[None] | None:
        return api.stream(cast(SurfaceRequest, request))

    render_failures(app)
    return app


def feed_site(
    reactor: IReactorTime,
    feed: Feed[Any],
    path: str,
    callers: Callers,
    heard: Callable[[str], None],
    document: Callable[[], bytes] | None = None,
    local: bool = False,
) -> SurfaceSite:
    """What a feed's port serves.

    Args:
        reactor: For time limits.
        feed: What is told there.
        path: Of its document.
        callers: Who is a member.
        heard: Told the UUID of each member that asks something.
        document: The document, where it is another than the feed's own.
        local: Whether programs on this machine may read the document in the clear (EN-84).
    """
    api = FeedApi(feed, document or feed.document, callers, heard)
    guard = FeedGuard(callers, path if local else None)
    return SurfaceSite(feed_app(api, path).resource(), guard, reactor, Sparing())
