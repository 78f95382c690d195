"""A node as the control API is shown it, made up, and a client that has the token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from pair.choices import Choices
from pair.cluster.refusing import Refusal
from pair.control.app import ControlApi, control_resource
from pair.control.auth import ControlGuard
from pair.control.cluster import Left, NodeIdentity, Removed
from pair.control.conditions import CONDITIONS
from pair.control.nodes import NodeView, node_views
from pair.control.revision import Revision
from pair.control.routes import ROUTES
from pair.control.service import build_hub
from pair.control.sources import ClusterSources, ControlSources
from pair.control.views import Listener, ServiceStatus
from pair.discovery.addresses import ManualError
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.errors.view import NoSuchEntry
from pair.events import Signal
from pair.jobs.ledger import JobLedger, OpenJob
from pair.jobs.service import JobFinished, NoSuchJob, NotOrigin
from pair.jobs.view import JobView
from pair.privacy import Secret
from pair.proxy.scheduling import SchedulerService
from pair.proxy.steering import Steering
from pair.records.cluster import (
    AuditRow,
    ClusterName,
    CodeKind,
    Invitation,
    InvitationPeer,
    Roster,
    RosterFormer,
    RosterMember,
)
from pair.records.endpoints import Endpoint
from pair.records.engines import (
    Drain,
    EngineAddress,
    EngineInventory,
    EngineStatus,
    LoadedInstance,
    Model,
    NodeInventory,
)
from pair.records.errors import Condition, ServiceError, ShownError
from pair.records.jobs import JobChanged
from pair.records.nodes import ManualNode, NodeEntry, NodeHardware, NodeWarning
from pair.records.telemetry import Cpu, Gpu, GpuSample, Memory, Sample, System
from pair.routing.policies.pressure import PressurePolicy
from pair.settings import load
from pair.supervision.components import Component
from pair.surfaces.site import SurfaceSite
from pair.test.fakes import Backwards, FakeEngines
from pair.test.surfaces.wire import Answer, Conversation, request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.jobs.history import Place
    from pair.records.jobs import Job

T = TypeVar("T")

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


RACK = "b7d0f6f0-0000-4000-8000-000000000002"
MAC = "b7d1aaaa-0000-4000-8000-000000000003"
OLD = "c0ffee00-0000-4000-8000-000000000004"

HOME = ClusterName("b7d0f6f0-0000-8000-8000-0000000000aa", "home")
LEAF = "sha256:0123456789abcdef" + "0" * 48
ROSTER = Roster(
    HOME,
    NODE,
    (
        RosterMember(NODE, "desk", LEAF, 1, NOW - 60_000, None),
        RosterMember(RACK, "rack", LEAF, 2, NOW - 50_000, NODE, NOW - 4_000, ("one_way",)),
        RosterMember(MAC, "mac", LEAF, 3, NOW - 40_000, RACK),
    ),
    (RosterFormer(OLD, "old", "removed", RACK, NOW - 30_000),),
)
ALONE = Roster(None, NODE)

INVITED = Invitation(
    "9f0c0000000000000000000000000001",
    "out",
    "waiting",
    None,
    InvitationPeer(RACK, "rack", "192.168.1.20"),
    "K7QX",
    "pin",
    NOW,
    NOW + 300_000,
)
ASKED = replace(
    INVITED, id="a1b20000000000000000000000000002", direction="in", peer=InvitationPeer(MAC, "mac", "192.168.1.30")
)
CODE = "048392"


HARDWARE = NodeHardware(
    System("linux", "6.8.0", "x86_64"),
    Cpu("AMD", 16, 32, 12.5),
    Memory(64 << 30, 16 << 30, 48 << 30),
    (
        Gpu(
            "GPU-1",
            0,
            "nvidia",
            "RTX 4090",
            vram_total_bytes=24 << 30,
            vram_used_bytes=8 << 30,
            utilization_percent=62,
        ),
    ),
)
ENTRIES = (
    NodeEntry(
        NODE, NODE, "desk", "online", "self", me=True, claims=("self",), ip="192.168.1.10", ips=("192.168.1.10",)
    ),
    NodeEntry(
        RACK,
        RACK,
        "rack",
        "online",
        "member",
        claims=("roster", "mdns"),
        last_heard_at=NOW - 400,
        evidence="feed",
        member=True,
        trusted=True,
        cluster_uuid=HOME.id,
        cluster_state="same",
        ip="192.168.1.20",
        ips=("192.168.1.20", "fd00::20"),
        services={"ni": 14318, "cl": 14321},
        hardware=HARDWARE,
        hardware_at=NOW - 400,
        warnings=(NodeWarning("one_way", "It can dial this node, and not the other way round."),),
    ),
    NodeEntry(MAC, MAC, "mac", "offline", "stranger", claims=("mdns",), last_heard_at=NOW - 60_000, ip="192.168.1.30"),
    NodeEntry("manual:shed:14318", None, "shed", "offline", "stranger", claims=("manual",)),
)
SHED = ManualNode("a1b2c3", "shed", 14318, NOW - 1000, result="timeout")
FIXED = ManualNode("static-1", "rack.lan", 14318, NOW - 1000, RACK, NOW - 400, "ok", static=True)
SAMPLES = (
    Sample(NOW - 20_000, 10.0, 16 << 30, (GpuSample("GPU-1", 50.0, 8 << 30),)),
    Sample(NOW - 4_000, 20.0, 16 << 30, (GpuSample("GPU-1", 60.0, 8 << 30),)),
    Sample(NOW - 2_000, 30.0, 16 << 30, (GpuSample("GPU-1", None, 8 << 30),)),
)


class FakeNodes:
    """See :class:`pair.control.sources.Nodes`.

    Attributes:
        entries: those of the directory.
        inventories: what nodes offer.
        given: by hand.
        samples: by node.
        answering: those that are there when they are probed, by key.
        asked: what was to be done.
        fault: raised instead of doing it.
    """

    def __init__(self) -> None:
        self.entries: tuple[NodeEntry, ...] = ENTRIES
        self.answering = {RACK}
        self.inventories = {NODE: INVENTORY, RACK: replace(INVENTORY, node=RACK, drained=True)}
        self.given: list[ManualNode] = [SHED, FIXED]
        self.samples: dict[str, Sequence[Sample]] = {RACK: SAMPLES}
        self.asked: list[tuple[str, object]] = []
        self.fault: Exception | None = None

    def all(self) -> tuple[NodeView, ...]:
        return node_views(self.entries, self.inventories, {RACK: 2}, self.given)

    def get(self, node: str) -> NodeView | None:
        return next((each for each in self.all() if node in (each.key, each.uuid)), None)

    def telemetry(self, node: str, window_ms: int) -> Sequence[Sample]:
        return [each for each in self.samples.get(node, ()) if each.at >= NOW - window_ms]

    def manual(self) -> Sequence[ManualNode]:
        return self.given

    def add(self, address: str) -> Deferred[tuple[ManualNode, bool]]:
        self.asked.append(("add", address))
        if not address:
            return fail(ManualError("bad_address"))
        found = next((each for each in self.given if each.address == address), None)
        if found is None and self.fault is None:
            self.given.append(ManualNode("new", address, 14318, NOW))
        return self._done((found or self.given[-1], found is None))

    def remove(self, id: str) -> Deferred[bool]:
        self.asked.append(("remove", id))
        kept = [each for each in self.given if each.id != id]
        gone = len(kept) < len(self.given)
        if self.fault is None:
            self.given = kept
        return self._done(gone)

    def probe(self, key: str) -> Deferred[bool]:
        self.asked.append(("probe", key))
        self.entries = tuple(
            replace(each, presence="online", last_heard_at=NOW, evidence="probe_ni") if each.key in found else each
            for found in (self.answering & {key},)
            for each in self.entries
        )
        return self._done(True)

    def _done(self, outcome: T) -> Deferred[T]:
        return succeed(outcome) if self.fault is None else fail(self.fault)


class FakeJobCommands:
    """See :class:`pair.control.sources.JobCommands`; jobs of ``view`` that came to this node can be ended.

    Attributes:
        cleared: how often the history was.
        fault: raised instead of doing it.
    """

    def __init__(self, view: JobView) -> None:
        self.open: dict[str, OpenJob] = {}
        self.cleared = 0
        self.fault: Exception | None = None
        self._view = view

    def cancel(self, origin: str, id: str) -> None:
        job = self._view.get(origin, id)
        if job is None:
            raise NoSuchJob
        if origin != NODE:
            raise NotOrigin(origin)
        if job.terminal or id not in self.open:
            raise JobFinished
        self.open.pop(id).cancelled("cancelled")

    def clear(self) -> Deferred[None]:
        self.cleared += 1
        return succeed(None) if self.fault is None else fail(self.fault)


class FakeErrors:
    """See :class:`pair.control.sources.Errors`: a book, and entries of other nodes.

    Attributes:
        others: the entries of other nodes.
        hidden_here: those that were hidden, by node and id.
    """

    def __init__(self, book: ErrorBook) -> None:
        self.others: list[ShownError] = []
        self.hidden_here: set[tuple[str, str]] = set()
        self._book = book
        self.dismiss = book.dismiss

    @property
    def hidden(self) -> int:
        return len(self.hidden_here) + self._book.hidden

    def entries(self) -> Sequence[ServiceError]:
        return [each for each in (*self._book.entries(), *self.others) if (each.node, each.id) not in self.hidden_here]

    def hide(self, node: str, id: str) -> None:
        if not any((each.node, each.id) == (node, id) for each in self.entries()):
            raise NoSuchEntry
        self.hidden_here.add((node, id))


class FakeCluster:
    """See :class:`pair.control.sources.Cluster`.

    Attributes:
        asked: what was to be done.
        fault: raised instead of doing it.
    """

    def __init__(self) -> None:
        self.present = ROSTER
        self.rows = [AuditRow(2, NOW - 1000, "admit", NODE, RACK, HOME.id, {"from": "self", "issuedAt": NOW - 3000})]
        self.asked: list[tuple[object, ...]] = []
        self.fault: Exception | None = None

    def roster(self) -> Roster:
        return self.present

    def remove(self, node: str, with_admitted: bool) -> Deferred[Removed]:
        nodes = (node, MAC) if with_admitted else (node,)
        return self._done(Removed(True, nodes, told=() if with_admitted else (MAC,)), "remove", node, with_admitted)

    def leave(self) -> Deferred[Left]:
        return self._done(Left(True, (RACK,), (MAC,)) if self.present.cluster else Left(False), "leave")

    def audit(self, limit: int) -> Deferred[Sequence[AuditRow]]:
        return self._done(self.rows[:limit], "audit", limit)

    def identity(self) -> NodeIdentity:
        return NodeIdentity(NODE, LEAF)

    def renew(self) -> Deferred[NodeIdentity]:
        return self._done(NodeIdentity(OLD, LEAF, restart=True), "renew")

    def _done(self, outcome: T, *asked: object) -> Deferred[T]:
        self.asked.append(asked)
        return succeed(outcome) if self.fault is None else fail(self.fault)


class FakeInvitations:
    """See :class:`pair.control.sources.Invitations`.

    Attributes:
        found: all of them.
        asked: what was to be done.
        fault: raised instead of doing it.
        after: fields of an invitation once its code was typed.
    """

    def __init__(self) -> None:
        self.found: list[Invitation] = []
        self.asked: list[tuple[object, ...]] = []
        self.fault: Exception | None = None
        self.after: dict[str, object] = {"state": "paired", "ended_at": NOW, "cluster": HOME}

    def all(self) -> Sequence[Invitation]:
        return self.found

    def invite(self, target: str, code_kind: CodeKind) -> Deferred[tuple[Invitation, Secret]]:
        self.asked.append(("invite", target, code_kind))
        if self.fault is not None:
            return fail(self.fault)
        made = replace(INVITED, code_kind=code_kind)
        self.found.append(made)
        return succeed((made, Secret(f"{CODE[:3]} {CODE[3:]}")))

    def accept(self, id: str, typed: str) -> Deferred[Invitation]:
        self.asked.append(("accept", id, typed))
        if self.fault is not None:
            return fail(self.fault)
        return succeed(self.change(id, **self.after))

    def decline(self, id: str) -> Invitation:
        return self._end("decline", id, "declined")

    def cancel(self, id: str) -> Invitation:
        return self._end("cancel", id, "cancelled")

    def change(self, id: str, **fields: Any) -> Invitation:
        """Make one of them other than it was."""
        for number, each in enumerate(self.found):
            if each.id == id:
                self.found[number] = changed = replace(each, **fields)
                return changed
        raise Refusal("no_such_invitation")

    def _end(self, verb: str, id: str, state: str) -> Invitation:
        self.asked.append((verb, id))
        if self.fault is not None:
            raise self.fault
        return self.change(id, state=state, ended_at=NOW)


class NoStore:
    """A store of choices that keeps none; with ``fault`` it does not take any.

    It is also the connection to itself.
    """

    def __init__(self) -> None:
        self.fault: Exception | None = None

    def write(self, work: Callable[[Any], T]) -> Deferred[T]:
        return succeed(work(self)) if self.fault is None else fail(self.fault)

    def execute(self, statement: str, values: object) -> None:
        """Nothing is written."""


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
        self.listeners: tuple[Listener, ...] = ()
        self.inventory = INVENTORY
        self.metrics: Callable[[], bytes] | None = lambda: b"pair_up 1\n"
        self.revision = Revision("5d0e8c11a2b34f66")
        self.jobs = JobView(self.ledger, history, NODE)
        self.job_changes: Signal[JobChanged] = Signal()
        self.ledger.stirred.subscribe(lambda _: self.ledger.tell())
        self.ledger.changed.subscribe(lambda job: self.job_changes.emit(JobChanged(job, None)))
        self.job_commands = FakeJobCommands(self.jobs)
        self.nodes = FakeNodes()
        self.shown_errors = FakeErrors(self.errors)
        self.peers: tuple[NodeInventory, ...] = ()
        self.facades = FakeFacades()
        self.cluster = FakeCluster()
        self.invitations = FakeInvitations()
        self.clock = Clock()
        self.clock.rightNow = NOW / 1000
        self.scheduling = SchedulerService(
            self.clock,
            self.clock.seconds,
            NODE,
            FakeEngines(NODE, *INVENTORY.engines),
            PressurePolicy(),
            (),
            lambda kinds: (),
            False,
            self.errors,
        )
        self.scheduling.startService()
        self.store = NoStore()
        self.steer()
        self.key: object = 1
        self.hub = build_hub(self.clock, self.sources, self.revision, lambda: self.key)
        self.hub.startService()

    def steer(self, *options: str) -> None:
        """People may choose what these options leave open."""
        store: Any = self.store
        choices = Choices(store, load(options), self.clock)
        policies = (PressurePolicy(), Backwards())
        arguments = (self.drain, lambda: {NODE, RACK}, self.errors)
        self.steering = Steering(choices, self.scheduling, policies, *arguments)

    def drain(self, drain: Drain | None) -> None:
        self.inventory = replace(
            self.inventory, drained=drain is not None, drain_reason=None if drain is None else drain.reason
        )
        self.nodes.inventories[NODE] = self.inventory

    def service(self) -> ServiceStatus:
        return ServiceStatus(
            node=NODE,
            name="desk",
            version="0.1.0",
            started_at=NOW - 5000,
            pid=42,
            state_dir="/state",
            listeners=(Listener("console", "127.0.0.1:14300", "bound"), *self.listeners),
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
            errors=self.shown_errors,
            cluster=ClusterSources(self.cluster, self.invitations),
            nodes=self.nodes,
            steering=self.steering,
            job_commands=self.job_commands,
            hide_error=self.shown_errors.hide,
            peers=lambda: self.peers,
            follow_jobs=self.job_changes.subscribe,
            changes={"errors": (self.errors.changed, self.errors.removed), "routing": (self.steering.changed,)},
        )

    def site(self) -> SurfaceSite:
        guard = ControlGuard(ROUTES, TOKEN.__eq__)
        return SurfaceSite(control_resource(ControlApi(self.sources, self.revision, self.hub)), guard, Clock())

    def ask(self, method: str, path: str, body: bytes | None = None, **fields: str | None) -> Answer:
        """One request, with the token unless ``fields`` say otherwise."""
        fields = {"authorization": f"Bearer {TOKEN.decode()}", **fields}
        conversation = Conversation(self.site())
        conversation.send(request(method, path, body, **fields))
        return conversation.answer
