"""The event stream as the answer to a request (UI-61 to UI-63, UI-66)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.control.events import EventHub, NoPlaceError
from pair.control.route import EVENTS
from pair.surfaces.feeds import FeedBody
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from pair.control.routes import EventQuery
    from pair.surfaces.site import SurfaceRequest


class EventReply(Struct, frozen=True):
    """An answer that goes on: what ``hub`` tells of ``topics``, after the event ``since`` if that is known."""

    hub: EventHub
    topics: frozenset[str]
    since: str

    def begin(self, request: SurfaceRequest) -> Deferred[None] | bytes:
        """Answer ``request``.

        Returns:
            What fires at the end, when the answer is to be finished; nothing for one that wants the head only.

        Raises:
            Refused: There are as many streams as there may be.
        """
        request.setHeader(b"Content-Type", EVENTS.encode())
        # Else nginx keeps back what is small (UI-61).
        request.setHeader(b"X-Accel-Buffering", b"no")
        if request.method == b"HEAD":
            return b""
        body = FeedBody(request)
        # A client that comes back by itself repeats its query; what it knows by then is in the field.
        since = request.getHeader("last-event-id") or self.since
        try:
            self.hub.subscribe(body, self.topics, since)
        except NoPlaceError:
            message = "There are as many event streams as there may be, or PAIR is about to stop."
            raise Refused(503, "too_many", message, fields=((b"Retry-After", b"5"),)) from None
        return body.ended


def reply(hub: EventHub, asked: EventQuery) -> EventReply:
    """The stream that ``asked`` means; all topics but the measurements where it names none.

    Raises:
        Refused: It names one that is not there.
    """
    known = hub.topics
    if asked.topics is None:
        return EventReply(hub, frozenset(known) - hub.passing, asked.since or "")
    topics = frozenset(asked.topics.split(","))
    if not topics <= set(known):
        raise Refused(400, "bad_request", f"The topics are {', '.join(sorted(known))}.", path="topics")
    return EventReply(hub, topics, asked.since or "")
