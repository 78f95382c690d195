"""Nodes that pair with one another, each a real process in front of the same engine, and what people do to them."""

from __future__ import annotations

import json
import re
import ssl
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from benchmarks._proxies import start_engine, start_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks._proxies import Server

T = TypeVar("T")

_LIMIT = 60.0
_LOOK_SECONDS = 0.005

_SYNCS = re.compile(r'^pair_cluster_sync_total\{outcome="synced"\} (\S+)$', re.MULTILINE)


class Node:
    """One of them.

    Args:
        server: its process.
        state: its state directory.

    Attributes:
        server: it, as clients see it.
        process: of it.
        facade: the port for its clients, and for other nodes that call in the name of theirs.
        uuid: its own.
        place: where others invite it.
    """

    def __init__(self, server: Server, state: Path) -> None:
        self.server = server
        self.process = server.process
        self.facade = server.port
        self._state = state
        wait_for("the control API", (state / "control.json").exists)
        self._control = urlsplit(json.loads((state / "control.json").read_text())["url"]).netloc
        self._token = (state / "control.token").read_text().strip()
        self.uuid: str = self.ask("/cluster/identity")["node"]
        self.place = wait_for("the port for other nodes", self._place)

    def call(self, path: str, body: object = None, method: str | None = None) -> tuple[int, Any]:
        """Status and JSON of what the control API answers."""
        fields = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        status, answer = self._send(f"/api/v1{path}", fields, body, method)
        return status, json.loads(answer)

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        """The same, where it must be good.

        Raises:
            RuntimeError: It is not.
        """
        status, value = self.call(path, body, method)
        if status >= 300:
            raise RuntimeError(f"{method or ''} {path}: {status} {value}")
        return value

    def invite(self, other: Node) -> Any:
        """An invitation with its code; one that comes too soon after the last is tried again (CL-44)."""

        def invitation() -> Any:
            status, value = self.call("/cluster/invitations", {"address": other.place})
            if status not in (201, 429):
                raise RuntimeError(f"no invitation: {status} {value}")
            return value if status == 201 else None

        return wait_for("the invitation to be taken", invitation, 0.5)

    def invitation(self, id: str) -> Any:
        """An invitation as this node sees it; None where it does not."""
        status, value = self.call(f"/cluster/invitations/{id}")
        return value if status == 200 else None

    def members(self) -> set[str]:
        """The UUIDs of those that are members by what it knows."""
        return {each["node"] for each in self.ask("/cluster")["members"]}

    def online(self) -> set[str]:
        """The UUIDs of the nodes that are there by what it knows, its own among them."""
        return {each["uuid"] for each in self.ask("/nodes")["nodes"] if each["presence"] == "online"}

    def owners(self) -> set[str]:
        """The UUIDs of the nodes that have the engine's model, by what it knows."""
        return {owner for model in self.ask("/models")["models"] for owner in model["owners"]}

    def syncs(self) -> float:
        """How many syncs it began that ended well."""
        found = _SYNCS.search(self._send("/metrics", {})[1].decode())
        return float(found[1]) if found else 0.0

    def connection_to(self, other: Node) -> HTTPSConnection:
        """A connection to the other's facade over mutual TLS, with the key and the leaf of this node."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self._state / "node.crt", self._state / "node.key")
        return HTTPSConnection("127.0.0.1", other.facade, timeout=_LIMIT, context=context)

    def _send(
        self, path: str, fields: dict[str, str], body: object = None, method: str | None = None
    ) -> tuple[int, bytes]:
        with closing(HTTPConnection(self._control, timeout=_LIMIT)) as connection:
            data = None if body is None else json.dumps(body)
            connection.request(method or ("GET" if body is None else "POST"), path, data, fields)
            response = connection.getresponse()
            return response.status, response.read()

    def _place(self) -> str | None:
        (found,) = (each for each in self.ask("/service")["listeners"] if each["name"] == "cluster")
        return None if found["address"] is None else str(found["address"])


def start_nodes(engines: Sequence[int | None], folder: Path, *settings: str) -> list[Node]:
    """A node before each of these engines, or without one; they know nothing of one another.

    Raises:
        Unavailable: One of them does not run. None of them does then.
    """

    def start(place: int) -> Node:
        server = start_pair(engines[place], folder / f"{place}", *settings)
        try:
            return Node(server, folder / f"{place}" / "state")
        except BaseException:
            server.stop()
            raise

    with ThreadPoolExecutor(len(engines)) as pool, ExitStack() as stack:
        starting = [pool.submit(start, place) for place in range(len(engines))]
        for each in starting:
            if each.exception() is None:
                stack.callback(each.result().server.stop)
        nodes = [each.result() for each in starting]
        stack.pop_all()
        return nodes


@contextmanager
def started(number: int, *settings: str) -> Iterator[list[Node]]:
    """So many nodes in front of the same engine, which know nothing of one another; they stop at the end.

    Raises:
        Unavailable: They do not run.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pair-bench-")))
        engine = start_engine(folder / "engine")
        stack.callback(engine.stop)
        nodes = start_nodes([engine.port] * number, folder, *settings)
        for each in nodes:
            stack.callback(each.server.stop)
        yield nodes


def pair_all(nodes: Sequence[Node]) -> None:
    """Bring all of them into one cluster, and wait until each sees all others."""
    for each in nodes[1:]:
        pair_nodes(nodes[0], each)
    wait_until_agreed(nodes)
    wait_for("each other", lambda: all(each.online() >= {other.uuid for other in nodes} for each in nodes), 0.1)


def pair_nodes(inviter: Node, joiner: Node) -> float:
    """Bring the joiner into the inviter's cluster.

    Returns:
        Seconds from the code's entry until both sides say that they are paired.
    """
    invitation = inviter.invite(joiner)
    id = invitation["id"]
    wait_for("the invitation", lambda: joiner.invitation(id))
    began = time.monotonic()
    joined = joiner.ask(f"/cluster/invitations/{id}/answer", {"accept": True, "code": invitation["code"]})
    if joined["state"] != "paired":
        raise RuntimeError(f"not paired: {joined}")
    wait_for("the inviter", lambda: inviter.invitation(id)["state"] == "paired")
    return time.monotonic() - began


def wait_until_agreed(nodes: Sequence[Node]) -> None:
    """Wait until these are the members by what each of them knows."""
    everybody = {each.uuid for each in nodes}
    wait_for("the same members everywhere", lambda: all(each.members() == everybody for each in nodes), 0.1)


def wait_for(what: str, look: Callable[[], T], pause: float = _LOOK_SECONDS) -> T:
    """Look again and again, with so many seconds between, until there is something to see, and return that.

    Raises:
        RuntimeError: There was nothing for a minute.
    """
    until = time.monotonic() + _LIMIT
    while not (found := look()):
        if time.monotonic() > until:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(pause)
    return found
