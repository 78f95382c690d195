"""How a target is reached: by address and port, never by a URL (CL-13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    DNSLookupError,
    TCPTimedOutError,
)
from twisted.internet.error import TimeoutError as ConnectTimeoutError
from twisted.internet.ssl import optionsForClientTLS

from pair.protocols.eager import eager_endpoint

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint

    from pair.protocols.calls import Target

CONNECT_SECONDS = 3.0

DialReason = Literal["refused", "timeout"]


class DialError(Exception):
    """An address could not be connected to: it refused, is none, cannot be reached, or took too long."""

    def __init__(self, reason: DialReason) -> None:
        super().__init__(reason)
        self.reason = reason


def address_endpoint(reactor: Any, host: str, port: int) -> IStreamClientEndpoint:
    """The endpoint of an address, dialled as it is, or of a name, resolved at each dial.

    Args:
        reactor: makes the connections.
        host: an IPv4 or IPv6 literal, the latter with a zone where it needs one; or a name.
        port: its port.

    Raises:
        UnicodeError: ``host`` is neither.
    """
    if isIPAddress(host) or isIPv6Address(host):
        return eager_endpoint(reactor, host, port)
    return HostnameEndpoint(reactor, host.encode("idna"), port)


def engine_endpoint(reactor: Any, target: Target) -> IStreamClientEndpoint:
    """The endpoint of an engine. TLS is checked against the system's authorities and the target's host.

    Args:
        reactor: makes the connections.
        target: the engine.
    """
    endpoint = address_endpoint(reactor, target.host, target.port)
    if not target.tls:
        return endpoint
    return wrapClientTLS(optionsForClientTLS(target.host), endpoint)


async def dial(
    reactor: Any, host: str, port: int, factory: IProtocolFactory, seconds: float = CONNECT_SECONDS
) -> IProtocol:
    """What ``factory`` built, connected to ``host`` and ``port`` (see :func:`address_endpoint`).

    Raises:
        DialError: There is none within ``seconds``.
    """

    def too_late(_: object, __: float) -> IProtocol:
        raise DialError("timeout")

    try:
        connected = address_endpoint(reactor, host, port).connect(factory)
        return await connected.addTimeout(seconds, reactor, too_late)
    except ConnectingCancelledError:
        raise CancelledError from None  # Else whoever dials in turn would take it for a failure, and go on.
    except (ConnectTimeoutError, TCPTimedOutError):
        raise DialError("timeout") from None
    except (ConnectError, ConnectionClosed, DNSLookupError, OSError, ValueError):
        raise DialError("refused") from None
