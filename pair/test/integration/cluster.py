"""Nodes that pair with one another, and what tests ask them about it.

A node has no engine here unless its test gives it one, and keeps the ports where
others reach it from its first start on, as one at the usual ports would.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from pair.records.cluster import OVER
from pair.test.integration.node import LIMIT, Answer, Node, NodeTestCase, ask, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AGREED = 35.0
"""Seconds in which all members know the same: one round of syncs, and what it takes (CL-83)."""

_BIND = 'node.bind=["127.0.0.1","::1"]'
"""Both, since a node lets one invitation in from one source in 10 s (CL-44), and so these are two."""

_PORTS = ("cluster", "node_info", "workloads", "errors", "inventory")

_ADMIN = "import sys; from pair.admin.main import main; sys.exit(main())"


class Command:
    """A ``pair-admin`` that runs, with ``--json``.

    Args:
        arguments: its own.
        environ: all of its environment.
    """

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ADMIN, *arguments, "--json"],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> Any:
        """The next line of its output."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def end(self) -> tuple[int, Any]:
        """Wait for its end: its exit code, and the rest of its output, or else what it says went wrong."""
        try:
            output, errors = self._process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        return self._process.returncode, json.loads(output or errors)


class ClusterNode(Node):
    """A node among others.

    Attributes:
        ports: where other nodes reach it, by the names of the surfaces, from its first start on.
        uuid: its own, from its first start on.
    """

    def __init__(self, folder: Path, *settings: str, embedded: bool = False) -> None:
        super().__init__(folder, _BIND, *settings, embedded=embedded)
        self.ports = dict.fromkeys(_PORTS, 0)
        self.uuid = ""

    @property
    def port(self) -> int:
        """Where other nodes pair and agree with it."""
        return self.ports["cluster"]

    def launch(self, *options: str) -> None:
        """See :class:`Node`."""
        ports = [argument for name, port in self.ports.items() for argument in ("--set", f"ports.{name}={port}")]
        super().launch(*ports, *options)

    def wait_until_ready(self) -> None:
        """Wait until it serves clients and other nodes."""
        super().wait_until_ready()
        self.ports = wait_for("the ports for other nodes", self._ports)
        self.uuid = self.get("/cluster/identity")["node"]

    # What people do.

    def command(self, *arguments: str, **environ: str) -> Command:
        """Begin to run ``pair-admin``."""
        return Command(arguments, {**self._environ, "PAIR_STATE_DIR": str(self.state), **environ})

    def call(self, path: str, body: object = None, method: str | None = None) -> Answer:
        """What the control API answers, whatever that is."""
        token = (self.state / "control.token").read_text().strip()
        return ask(self.control, f"/api/v1{path}", body, {"Authorization": f"Bearer {token}"}, method)

    def invite(self, other: ClusterNode) -> Any:
        """Invite another node: the invitation, with its code. Where it comes too early (CL-44), it is tried again."""

        def invitation() -> Any:
            for place in other.places:
                answer = self.call("/cluster/invitations", {"address": place})
                if answer.status == 201:
                    return answer.value
                assert answer.value["error"]["code"] in ("too_many", "unreachable"), answer.body
            return None

        return wait_for("the invitation to be taken", invitation)

    def accept(self, invitation: Any, code: str) -> Answer:
        """Type a code, once there is the invitation to type it for."""
        id = invitation["id"]
        wait_for("the invitation", lambda: any(each["id"] == id for each in self.invitations()))
        return self.call(f"/cluster/invitations/{id}/answer", {"accept": True, "code": code})

    def remove(self, other: ClusterNode) -> Any:
        """Put another node out of the cluster."""
        answer = self.call(f"/cluster/members/{other.uuid}", method="DELETE")
        assert answer.status == 200, answer.body
        return answer.value

    def leave(self) -> Any:
        """Leave the cluster."""
        answer = self.call("/cluster/leave", {})
        assert answer.status == 200, answer.body
        return answer.value

    # What is to be seen.

    @property
    def places(self) -> tuple[str, ...]:
        """Where other nodes on this machine reach it."""
        return f"127.0.0.1:{self.port}", f"[::1]:{self.port}"

    def invitations(self) -> Any:
        """Those under way and those that ended, in both directions."""
        return self.get("/cluster/invitations")["invitations"]

    def outcome(self, invitation: Any) -> tuple[str, str | None]:
        """State and reason of an invitation, when it has ended."""

        def ended() -> list[Any]:
            return [each for each in self.invitations() if each["id"] == invitation["id"] and each["state"] in OVER]

        (found,) = wait_for("the end of the invitation", ended)
        return found["state"], found["reason"]

    def cluster(self) -> str | None:
        """The id of its cluster."""
        found = self.get("/cluster")["cluster"]
        return None if found is None else found["id"]

    def members(self) -> set[str]:
        """The UUIDs of those that are members by what it knows, itself among them."""
        return {each["node"] for each in self.get("/cluster")["members"]}

    def serves(self, other: ClusterNode) -> bool:
        """Whether it takes for a member who comes to its port with the other's key."""
        with closing(connection_as(other, self.port)) as connection:
            connection.request("GET", "/")
            answer = Answer(connection.getresponse())
        return answer.status != 403 or answer.value["error"]["code"] != "not_member"

    def _ports(self) -> dict[str, int]:
        """Nothing, as long as one of them is not open."""
        places = {each["name"]: each["address"] for each in self.get("/service")["listeners"]}
        if any(places[name] is None for name in _PORTS):
            return {}
        return {name: int(places[name].rpartition(":")[2]) for name in _PORTS}


class Held:
    """A connection that stays open until the other end closes it.

    Args:
        connection: over which a whole answer, or the head of one, has come.
    """

    def __init__(self, connection: HTTPConnection) -> None:
        assert connection.sock is not None, "the connection ended with the answer"
        self._socket = connection.sock
        self._ended: float | None = None
        self._watcher = Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def open(self) -> bool:
        """Whether it still is."""
        return self._watcher.is_alive()

    def ended(self) -> float:
        """Wait for its end: when that was, as :func:`time.monotonic` has it."""
        self._watcher.join(LIMIT)
        assert self._ended is not None, "the connection is still open"
        return self._ended

    def _watch(self) -> None:
        self._socket.settimeout(LIMIT)
        with suppress(ConnectionError, ssl.SSLEOFError):
            while self._socket.recv(65536):
                pass
        self._ended = time.monotonic()


class ClusterTestCase(NodeTestCase):
    """Makes nodes that can pair."""

    def make_peer(self, *settings: str, embedded: bool = False) -> ClusterNode:
        """A node, not started."""
        node = ClusterNode(Path(self.mktemp()), *settings, embedded=embedded)
        self.addCleanup(node.destroy)
        return node

    def start_peers(self, number: int, *settings: str) -> list[ClusterNode]:
        """So many nodes, started."""
        nodes = [self.make_peer(*settings) for _ in range(number)]
        start(*nodes)
        return nodes

    def pair(self, inviter: ClusterNode, joiner: ClusterNode) -> None:
        """Bring the joiner into the inviter's cluster."""
        invitation = inviter.invite(joiner)
        answer = joiner.accept(invitation, invitation["code"])
        self.assertEqual((answer.status, answer.value.get("state")), (200, "paired"), answer.body)
        self.assertEqual(inviter.outcome(invitation), ("paired", None))

    def wait_until_agreed(self, *nodes: ClusterNode) -> None:
        """Wait until these are the members of one cluster, by what each of them knows."""
        everybody = {each.uuid for each in nodes}
        wait_for("the same list everywhere", lambda: all(each.members() == everybody for each in nodes), AGREED)
        self.assertEqual(len({each.cluster() for each in nodes}), 1)


def start(*nodes: ClusterNode) -> None:
    """Start these nodes at once, and wait until all of them serve."""
    for each in nodes:
        each.launch()
    for each in nodes:
        each.wait_until_ready()


class _Final(HTTPResponse):
    """Passes over the interim responses by which a member says that it is at work."""

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        while status == HTTPStatus.PROCESSING:
            self.fp.readline()
            version, status, reason = super()._read_status()  # type: ignore[misc]
        return version, status, reason


def connection_as(node: ClusterNode, port: int) -> HTTPSConnection:
    """A way to a port of this machine over mutual TLS, with the key and the leaf of a node."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(node.state / "node.crt", node.state / "node.key")
    connection = HTTPSConnection("127.0.0.1", port, timeout=LIMIT, context=context)
    connection.response_class = _Final
    return connection
