"""The control API at its port: sockets on loopback, and the two files by which clients find and enter it.

``control.json`` says where the API is while it runs (UI-2), ``control.token``
is the key to it (UI-15).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults

from pair import __version__
from pair.control.app import ControlApi, control_resource
from pair.control.auth import ControlGuard
from pair.control.events import EventHub
from pair.control.routes import ROUTES
from pair.control.tokens import TokenFile
from pair.control.topics import PASSING, STILL, topics
from pair.control.views import Listener
from pair.logs import Logger
from pair.protocols.firstbyte import FirstByteFactory
from pair.proxy.listeners import Listeners, PortDenied, PortTaken, open_listeners
from pair.records.errors import Subject
from pair.surfaces.site import CONNECTIONS_MAX, Room, SurfaceSite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.control.revision import Revision
    from pair.control.sources import ControlSources
    from pair.interfaces import IErrorBook
    from pair.proxy.listeners import Listen
    from pair.records.jobs import JobChanged
    from pair.settings import Settings
    from pair.statedir import StateDirectory

ADDRESSES = ("127.0.0.1", "::1")
FILE = "control.json"
TOKEN = "control.token"  # noqa: S105 - the name of a file
METRICS_TOKEN = "metrics.token"  # noqa: S105 - the same
MOVED = "ports:moved:console"

log = Logger()


class ControlFile(Struct, frozen=True, rename="camel"):
    """What ``control.json`` holds."""

    url: str
    pid: int
    version: str
    started_at: int


class ControlService(Service):
    """Serves the control API while it runs.

    Args:
        reactor: for time limits.
        listen: opens a listening port; as :func:`pair.protocols.eager.listen_eager`, with the reactor in place.
        port: the wanted port; 0 lets the kernel choose.
        site: the API.
        tokens: those that must exist before the first request.
        state: where the two files are.
        errors: where a moved port is told.
        sources: for pid and start time.
        hub: tells of changes while this runs.
    """

    name = "control"

    def __init__(
        self,
        reactor: IReactorTime,
        listen: Listen,
        port: int,
        site: SurfaceSite,
        tokens: Sequence[TokenFile],
        state: StateDirectory,
        errors: IErrorBook,
        sources: ControlSources,
        hub: EventHub,
    ) -> None:
        self._factory = FirstByteFactory(reactor, site)
        self._listen = listen
        self._port = port
        self._site = site
        self._tokens = tokens
        self._state = state
        self._errors = errors
        self._sources = sources
        self._hub = hub
        self._listeners: Listeners | None = None

    @property
    def url(self) -> str | None:
        """Where the API is; None while it is not."""
        return None if self._listeners is None else f"http://127.0.0.1:{self._listeners.port}"

    @property
    def ports(self) -> frozenset[int]:
        """The port on which it listens, if it does."""
        return frozenset() if self._listeners is None else frozenset((self._listeners.port,))

    @property
    def listener(self) -> Listener:
        """This port, for UI-31."""
        if self._listeners is None:
            return Listener("console", None, "failed")
        moved = self._port not in (0, self._listeners.port)
        return Listener("console", f"127.0.0.1:{self._listeners.port}", "moved" if moved else "bound")

    def startService(self) -> None:
        """Listen, then say where.

        Raises:
            OSError: A file cannot be written.
            PortTaken, PortDenied: There is no port at all.
        """
        for token in self._tokens:
            token.ensure()
        self._listeners = self._open()
        service = self._sources.service()
        file = ControlFile(str(self.url), service.pid, __version__, service.started_at)
        try:
            self._state.replace(FILE, msgspec.json.encode(file) + b"\n", 0o600)
        except OSError:
            self._listeners.close()
            self._listeners = None
            raise
        self._hub.startService()
        log.info("The control API is at {url}.", url=self.url)
        super().startService()

    def stopService(self) -> Deferred[None]:
        """Take back the file, accept no more; fires when all connections are gone."""
        super().stopService()
        self._state.remove(FILE)
        listeners, self._listeners = self._listeners, None
        if listeners is None:
            return self._site.close()
        # The streams end in good order before their connections are closed.
        ends = self._hub.stopService(), listeners.close(), self._site.close()
        return gatherResults(ends).addCallback(lambda _: None)

    def _open(self) -> Listeners:
        try:
            listeners = open_listeners(self._listen, self._factory, ADDRESSES, self._port)
        except (PortTaken, PortDenied):
            listeners = open_listeners(self._listen, self._factory, ADDRESSES, 0)
            url = f"http://127.0.0.1:{listeners.port}"
            self._errors.raise_entry(MOVED, subject=Subject(port=self._port), wanted=self._port, url=url)
        else:
            self._errors.clear(MOVED)
        return listeners


def build_control(
    reactor: IReactorTime,
    listen: Listen,
    settings: Settings,
    state: StateDirectory,
    errors: IErrorBook,
    sources: ControlSources,
    revision: Revision,
) -> ControlService:
    """The service with everything behind it; nothing is opened yet."""
    token = TokenFile(state, TOKEN, "pair_ct_")
    tokens = [token]
    is_metrics_token = None
    if settings.metrics.auth == "token":
        metrics = TokenFile(state, METRICS_TOKEN, "pair_mt_")
        tokens.append(metrics)
        is_metrics_token = metrics.matches
    guard = ControlGuard(ROUTES, token.matches, is_metrics_token, settings.console.allowed_origins)
    hub = build_hub(reactor, sources, revision, lambda: token.version)
    # All come from this host, and followers of the event stream stay.
    room = Room(of_one=CONNECTIONS_MAX)
    site = SurfaceSite(control_resource(ControlApi(sources, revision, hub)), guard, reactor, room=room)
    return ControlService(reactor, listen, settings.ports.control, site, tokens, state, errors, sources, hub)


def build_hub(
    reactor: IReactorTime, sources: ControlSources, revision: Revision, key: Callable[[], object]
) -> EventHub:
    """What tells of changes of ``sources``; ``key`` is as in :class:`EventHub`."""
    tables, job_changed = topics(sources)
    hub = EventHub(reactor, revision, tables, PASSING, STILL, sources.now, key)

    def follow(change: JobChanged) -> None:
        job_changed(change)
        hub.touch("jobs")

    sources.follow_jobs(follow)
    for topic, signals in sources.changes.items():
        for signal in signals:
            signal.subscribe(partial(_touch, hub, topic))
    return hub


def _touch(hub: EventHub, topic: str, changed: object) -> None:
    hub.touch(topic)
