"""What takes a request over a hop between two machines: client, process, mutual TLS, process, engine.

All run on this machine. Both processes of each are measured, together and apart.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from benchmarks._nodes import pair_all, start_nodes, wait_for
from benchmarks._proxies import LEAF, Server, Start, start_nginx

if TYPE_CHECKING:
    from pathlib import Path


def start_pair_hop(engine: int, folder: Path) -> Server:
    """Two nodes of one cluster, of which the one that clients ask has no engine."""
    nodes = start_nodes([None, engine], folder)
    with ExitStack() as stack:
        for each in nodes:
            stack.callback(each.server.stop)
        pair_all(nodes)
        here, there = nodes
        wait_for("the model of the other", lambda: there.uuid in here.owners())
        stack.pop_all()
    return Server("pair", here.server.version, here.process, here.facade, there.process)


def start_nginx_hop(engine: int, folder: Path) -> Server:
    """Two of nginx. Both show the same certificate, and take that alone."""
    folder.mkdir(parents=True)
    _make_leaf(folder)
    there = start_nginx(engine, folder / "there", secure_in=folder)
    here = start_nginx(there.port, folder / "here", secure_out=folder)
    return Server("nginx", here.version, here.process, here.port, there.process)


HOPS: dict[str, Start] = {"pair": start_pair_hop, "nginx": start_nginx_hop}


def _make_leaf(folder: Path) -> None:
    """A certificate with a key of the same kind as those of nodes."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, LEAF)])
    now = datetime.now(UTC)
    leaf = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(LEAF)]), critical=False)
        .sign(key, None)
    )
    (folder / "leaf.pem").write_bytes(leaf.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
