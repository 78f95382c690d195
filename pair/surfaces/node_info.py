"""Port 14318: what this node is and how busy it is, for members, and in part for anybody (discovery page, section 13).

Members ask over mutual TLS, strangers in the clear; how much a stranger is told
goes by where it asks from. What is told is handed in, whole, for each answer.
"""

from __future__ import annotations

from ipaddress import ip_interface
from typing import TYPE_CHECKING, Literal, cast

from klein import Klein
from msgspec import Struct

from pair.addresses import bare_ip
from pair.authority import is_loopback
from pair.cluster.limits import Sparing
from pair.records.telemetry import NodeInfo
from pair.surfaces.answers import Reply, render_failures, send
from pair.surfaces.refusals import Refused
from pair.surfaces.site import Room, SurfaceRequest, SurfaceSite
from pair.telemetry.reduce import compact, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from twisted.internet.interfaces import IReactorTime
    from twisted.web.iweb import IRequest

    from pair.addresses import Interface
    from pair.surfaces.callers import Callers
    from pair.surfaces.refusals import Refusal
    from pair.surfaces.rules import Head, Peer

PATH = "/v1/node-info"

STRANGERS = Room(32, 4, str)
"""Connections in the clear, and those of one address (DS-83)."""

AudienceSetting = Literal["subnet", "members"]
"""``telemetry.audience``: which strangers are told all."""

Audience = Literal["full", "identity", "bare"]
"""How much is told: all; who this node is, and where; or no more than its UUID and its cluster (DS-81)."""


def audience(peer: Peer, links: Iterable[Interface], setting: AudienceSetting) -> Audience:
    """How much ``peer`` is told. Pure.

    Args:
        peer: Who asks; over TLS it is a member.
        links: The interfaces of this host.
        setting: Which strangers are told all.
    """
    if peer.tls or is_loopback(peer.address):
        return "full"
    if setting == "members":
        return "bare"
    return "full" if _is_near(peer.address, links) else "identity"


def _is_near(address: str, links: Iterable[Interface]) -> bool:
    """Whether it is in a network to which this host is attached, and not over a link to one other alone."""
    ip, zone = bare_ip(address), address.partition("%")[2]
    return any(
        ip in ip_interface(f"{each.ip}/{each.prefix}").network
        for link in links
        if link.up and not link.point_to_point and zone in ("", link.name)
        for each in link.addresses
        if each.prefix is not None
    )


def told(info: NodeInfo, audience: Audience) -> NodeInfo:
    """What of ``info`` is told; the rest is not known to whoever asks (DS-81). Pure."""
    if audience == "full":
        return info
    if audience == "bare":
        return NodeInfo(v=info.v, host_uuid=info.host_uuid, cluster_uuid=info.cluster_uuid)
    return NodeInfo(
        v=info.v,
        host_uuid=info.host_uuid,
        instance=info.instance,
        version=info.version,
        protocol=info.protocol,
        capabilities=info.capabilities,
        cluster_uuid=info.cluster_uuid,
        services=info.services,
    )


class NodeInfoGuard:
    """Provides :class:`pair.surfaces.rules.Guard`: over TLS there are members alone (DS-82); nobody sends a body.

    Args:
        callers: who is a member.
        heard: told the UUID of each member that asks.
    """

    def __init__(self, callers: Callers, heard: Callable[[str], None]) -> None:
        self._callers = callers
        self._heard = heard

    def check(self, head: Head) -> Refusal | None:
        """See :class:`pair.surfaces.rules.Guard`."""
        if not head.peer.tls:
            return None
        caller = self._callers.check(head.peer)
        if caller.relation != "member" or caller.node is None:
            return self._callers.refuse(head.peer, caller)
        self._heard(caller.node)
        return None

    def body_limit(self, head: Head) -> int:
        """See :class:`pair.surfaces.rules.Guard`."""
        return 0


class NodeInfoSites(Struct, frozen=True):
    """What is served over TLS, and what in the clear."""

    tls: SurfaceSite
    plain: SurfaceSite


def node_info_sites(
    reactor: IReactorTime,
    source: Callable[[], NodeInfo],
    callers: Callers,
    setting: AudienceSetting,
    links: Callable[[], Sequence[Interface]],
    heard: Callable[[str], None],
) -> NodeInfoSites:
    """Node-info behind its guard.

    Args:
        reactor: for time limits.
        source: all that may be told, as of now; it is asked for each answer, and does not wait (DS-83).
        callers: who is a member.
        setting: which strangers are told all.
        links: the interfaces of this host as they were read last.
        heard: told the UUID of each member that asks.
    """
    resource = _app(lambda peer: told(source(), audience(peer, links(), setting))).resource()
    guard, sparing = NodeInfoGuard(callers, heard), Sparing()
    return NodeInfoSites(
        SurfaceSite(resource, guard, reactor, sparing), SurfaceSite(resource, guard, reactor, sparing, STRANGERS)
    )


def _app(info: Callable[[Peer], NodeInfo]) -> Klein:
    app = Klein()

    @app.route(PATH, methods=["GET"])
    def node_info(request: IRequest) -> bytes:
        views = request.args.get(b"view", [])
        if views not in ([], [b"compact"]):
            raise Refused(400, "bad_request", "The only view is compact.")
        answer = info(cast(SurfaceRequest, request).peer)
        return send(request, Reply(encode(compact(answer) if views else answer)))

    render_failures(app)
    return app
