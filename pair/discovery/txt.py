"""The record by which a node is found on its network: names, and what its TXT says (discovery page, section 3).

Pure, and a hint only: what is read here was written by anybody. It must not
know who may be trusted, nor which of the addresses are of any use.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from msgspec import Struct

from pair.addresses import bare_ip, parse_node
from pair.privacy import clean_text
from pair.records.nodes import DEFAULT_PORTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TYPE = "_nvpair-node._tcp.local."
TTL_SECONDS = 120

TEXT_MAX = 63
"""Characters of a name or key of others that are kept (DS-14)."""

_LABEL_BYTES = 40
_RECORD_BYTES = 1300
_IPS_BYTES = 250
_IPS_MAX = 6

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_NO_SERVICE = frozenset(("v", "uuid", "cluster-uuid", "ip", "ips"))


class Record(Struct, frozen=True):
    """What a TXT record says.

    ``cluster`` is the cluster's id, None for a node that is in none.
    ``addresses`` are IP literals, the best first; ``services`` are TCP ports.
    """

    uuid: str
    cluster: str | None = None
    addresses: tuple[str, ...] = ()
    services: dict[str, int] = {}


def instance_name(host: str, uuid: str) -> str:
    """The full name of the instance: ``<host label>-<first 8 of uuid>._nvpair-node._tcp.local.``.

    Args:
        host: The node's name, any text.
        uuid: Its UUID.
    """
    plain = "".join("-" if each == "." or unicodedata.category(each) in ("Cc", "Cs") else each for each in host)
    label = plain.encode()[:_LABEL_BYTES].decode(errors="ignore")
    return f"{label or 'node'}-{uuid[:8]}.{TYPE}"


def target_name(uuid: str) -> str:
    """The host name of the SRV record: never the host's own, which the system's responder answers for."""
    return f"pair-{uuid}.local."


def shown_name(instance: str, uuid: str) -> str:
    """The host's name in that of its instance, fit to be shown (DS-14, DS-42)."""
    return clean_text(instance.removesuffix(f".{TYPE}").removesuffix(f"-{uuid[:8]}"), TEXT_MAX)


def encode(record: Record) -> bytes:
    """The data of a TXT record, in the order of section 3.

    Equal records have equal bytes, so that comparing these tells whether there is anything to announce.
    """
    pairs = [("v", "1"), ("uuid", record.uuid)]
    if record.cluster is not None:
        pairs.append(("cluster-uuid", record.cluster))
    if record.addresses:
        pairs.append(("ip", record.addresses[0]))
    several = _joined(record.addresses)
    if "," in several:
        pairs.append(("ips", several))
    known = [key for key in DEFAULT_PORTS if key in record.services]
    others = sorted(record.services.keys() - DEFAULT_PORTS.keys())
    pairs += [(key, str(record.services[key])) for key in known + others]
    strings = [f"{key}={value}".encode() for key, value in pairs]
    return b"".join(bytes((len(each),)) + each for each in strings)


def decode(data: bytes) -> Record | None:
    """What any bytes say as a TXT record; None: nothing, for want of a UUID or because they are too long (DS-12)."""
    if len(data) > _RECORD_BYTES:
        return None
    values: dict[str, str] = {}
    for key, value in _pairs(data):
        values.setdefault(key, value)
    uuid = values.get("uuid", "").lower()
    if not _UUID4.fullmatch(uuid):
        return None
    return Record(uuid, parse_node(values.get("cluster-uuid", "")), _addresses(values), _services(values))


def _joined(addresses: tuple[str, ...]) -> str:
    kept = list(addresses[:_IPS_MAX])
    while len(",".join(kept)) > _IPS_BYTES:
        kept.pop()
    return ",".join(kept)


def _pairs(data: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(data):
        string = data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
        try:
            key, equals, value = string.decode().partition("=")
        except UnicodeDecodeError:
            continue
        key = clean_text(key.lower(), TEXT_MAX)
        if key and equals:
            yield key, value


def _addresses(values: Mapping[str, str]) -> tuple[str, ...]:
    texts = (values.get("ip", ""), *values.get("ips", "").split(","))
    found = []
    for text in texts:
        try:
            found.append(str(bare_ip(text)))
        except ValueError:
            continue
    return tuple(dict.fromkeys(found))


def _services(values: Mapping[str, str]) -> dict[str, int]:
    return {
        key: int(value)
        for key, value in values.items()
        if key not in _NO_SERVICE and _PORT.fullmatch(value) and int(value) <= 65535
    }
