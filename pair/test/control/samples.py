"""A node as the control API is shown it, made up, and a client that has the token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from pair.cluster.refusing import Refusal
from pair.control.app import ControlApi, control_resource
from pair.control.auth import ControlGuard
from pair.control.cluster import Left, NodeIdentity, Removed
from pair.control.conditions import CONDITIONS
from pair.control.revision import Revision
from pair.control.routes import ROUTES
from pair.control.sources import ClusterSources, ControlSources
from pair.control.views import Listener, ServiceStatus
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.jobs.ledger import JobLedger
from pair.jobs.view import JobView
from pair.privacy import Secret
from pair.proxy.scheduling import SchedulerService
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


class FakeCluster:
    """See :class:`pair.control.sources.Cluster`.

    Attributes:
        asked: what was to be done.
        fault: raised instead of doing it.
    """

    def __init__(self) -> None:
        self.present = ROSTER
        self.rows = [AuditRow(2, NOW - 1000, "admit", NODE, RACK, HOME.id, {"from": "self"})]
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
        self.cluster = FakeCluster()
        self.invitations = FakeInvitations()
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
            cluster=ClusterSources(self.cluster, self.invitations),
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
