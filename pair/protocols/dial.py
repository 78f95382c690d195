"""How a target is reached: the endpoint of an engine, by address and port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.ssl import optionsForClientTLS

from pair.protocols.eager import eager_endpoint

if TYPE_CHECKING:
    from twisted.internet.interfaces import IStreamClientEndpoint

    from pair.protocols.calls import Target


def engine_endpoint(reactor: Any, target: Target) -> IStreamClientEndpoint:
    """The endpoint of an engine.

    An address is dialled as it is; a name is resolved at each dial. TLS is
    checked against the system's authorities and the target's host.

    Args:
        reactor: makes the connections.
        target: the engine.
    """
    endpoint: IStreamClientEndpoint
    if isIPAddress(target.host) or isIPv6Address(target.host):
        endpoint = eager_endpoint(reactor, target.host, target.port)
    else:
        endpoint = HostnameEndpoint(reactor, target.host.encode("idna"), target.port)
    if not target.tls:
        return endpoint
    return wrapClientTLS(optionsForClientTLS(target.host), endpoint)
