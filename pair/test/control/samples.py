"""A node as the control API is shown it, made up, and a client that has the token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from pair.control.app import ControlApi, control_resource
from pair.control.auth import ControlGuard
from pair.control.conditions import CONDITIONS
from pair.control.revision import Revision
from pair.control.routes import ROUTES
from pair.control.sources import ControlSources
from pair.control.views import Listener, ServiceStatus
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.jobs.ledger import JobLedger
from pair.jobs.view import JobView
from pair.proxy.scheduling import SchedulerService
from pair.records.endpoints import Endpoint
from pair.records.engines import EngineAddress, EngineInventory, EngineStatus, LoadedInstance, Model, NodeInventory
from pair.records.errors import Condition
from pair.routing.policies.pressure import PressurePolicy
from pair.supervision.components import Component
from pair.surfaces.site import SurfaceSite
from pair.test.fakes import FakeEngines
from pair.test.surfaces.wire import Answer, Conversation, request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.jobs.history import Place
    from pair.records.jobs import Job

NODE = "3f0c9a52-0000-4000-8000-000000000001"
NOW = 1_764_460_800_000
TOKEN = b"pair_ct_test"

BROKEN = Condition("test:broken:<thing>", "error", "dismiss", "dismiss", "The {thing} is broken.")

SMOLLM = Model(
    "smollm2:360m", "embedded", "lmstudio", digest="sha256:aa", capabilities=("chat",), loaded=(LoadedInstance("0"),)
)
INVENTORY = NodeInventory(
    NODE,
    (
        EngineInventory(
            EngineStatus(
                "embedded", "embedded", "lmstudio", "running", "ok", routable=True, version="0.2", models="known"
            ),
            (SMOLLM, Model("nomic-embed", "embedded", "lmstudio", capabilities=("embedding",))),
        ),
        EngineInventory(
            EngineStatus("ollama", "ollama", "ollama", "stopped", models="stale"),
            (Model("smollm2", "ollama", "ollama", digest="sha256:aa"), Model("smollm2:360m", "ollama", "ollama")),
        ),
    ),
)
ENDPOINTS = (
    Endpoint("lmstudio", "bound", 1234, 1234, ("127.0.0.1", "::1")),
    Endpoint("ollama", "failed", 11434, detail="Port 11434 is held."),
)


class NoHistory:
    """A history in which nothing is."""

    def find(self, origin: str, id: str) -> Job | None:
        return None

    def before(self, place: Place | None, matches: Callable[[Job], bool], number: int) -> list[Job]:
        return []


class FakeFacades:
    """See :class:`pair.control.sources.Facades`.

    Attributes:
        asked: what was to be changed.
        outcome: of each change.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.outcome: Callable[[], Deferred[None]] = lambda: succeed(None)

    def endpoints(self) -> Sequence[Endpoint]:
        return ENDPOINTS

    def change(self, name: str, port: int | None, on: bool | None) -> Deferred[None]:
        self.asked.append((name, port, on))
        return self.outcome()

    def default_port(self, name: str) -> Deferred[None]:
        self.asked.append((name, "default"))
        return self.outcome()


class Node:
    """The sources, and handles to change what they show."""

    def __init__(self) -> None:
        history: Any = NoHistory()
        self.ledger = JobLedger(NODE, "a1b2c3d4e5f60718", lambda: NOW)
        self.errors = ErrorBook(NODE, Registry([BROKEN, *CONDITIONS]), lambda: NOW)
        self.reasons: Sequence[str] = ()
        self.inventory = INVENTORY
        self.metrics: Callable[[], bytes] | None = lambda: b"pair_up 1\n"
        self.revision = Revision("5d0e8c11a2b34f66")
        self.jobs = JobView(self.ledger, history, NODE)
        self.facades = FakeFacades()
        self.clock = Clock()
        self.clock.rightNow = NOW / 1000
        self.scheduling = SchedulerService(
            self.clock,
            self.clock.seconds,
            NODE,
            FakeEngines(NODE, *INVENTORY.engines),
            self.ledger.changed,
            PressurePolicy(),
            (),
            lambda kinds: (),
            False,
            self.errors,
        )
        self.scheduling.startService()

    def service(self) -> ServiceStatus:
        return ServiceStatus(
            node=NODE,
            name="desk",
            version="0.1.0",
            started_at=NOW - 5000,
            pid=42,
            state_dir="/state",
            listeners=(Listener("console", "127.0.0.1:14300", "bound"),),
            components=(Component("store", "up"),),
        )

    @property
    def sources(self) -> ControlSources:
        return ControlSources(
            node=NODE,
            now=lambda: NOW,
            service=self.service,
            readiness=lambda: self.reasons,
            metrics=self.metrics,
            engines=lambda: self.inventory,
            engine_address={"embedded": EngineAddress("127.0.0.1", 1235)}.get,
            facades=self.facades,
            scheduling=self.scheduling,
            jobs=self.jobs,
            errors=self.errors,
        )

    def site(self) -> SurfaceSite:
        guard = ControlGuard(ROUTES, TOKEN.__eq__)
        return SurfaceSite(control_resource(ControlApi(self.sources, self.revision)), guard, Clock())

    def ask(self, method: str, path: str, body: bytes | None = None, **fields: str | None) -> Answer:
        """One request, with the token unless ``fields`` say otherwise."""
        fields = {"authorization": f"Bearer {TOKEN.decode()}", **fields}
        conversation = Conversation(self.site())
        conversation.send(request(method, path, body, **fields))
        return conversation.answer
