"""This node's identity: a UUID, an Ed25519 key, and the self-signed leaf that joins the two (CL-1 to CL-8).

Two files in the state directory hold key and leaf; one row in the store says
which pair it is. The row is written last: files without a row are an identity
that was never finished, a row without its files is one that was lost, and that
is never papered over with a new one. Of clusters it knows only that a node
that is in one keeps its identity.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Protocol, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from msgspec import Struct

from pair.cluster.audit import Entry, write_rows
from pair.cluster.leaf import UNREADABLE, LeafError, check_leaf, leaf_digest, make_leaf
from pair.logs import Logger
from pair.privacy import normalize_error
from pair.statedir import StateError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from twisted.internet.defer import Deferred

    from pair.statedir import StateDirectory

T = TypeVar("T")

KEY_FILE = "node.key"
LEAF_FILE = "node.crt"

_CURE = "restore both files from a backup, or give this node up by removing the state directory"

log = Logger()


class IdentityError(StateError):
    """The stored identity cannot be used (exit 73): which file, what is wrong with it, and the cures (CL-3)."""


class StillMemberError(Exception):
    """The node is in a cluster, where others know it by the identity that it has (CL-96)."""


class Rows(Protocol):
    """What is asked of the store (``pair.store.Store``)."""

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of ``work`` on what is committed."""

    def write(self, work: Callable[[sqlite3.Connection], T]) -> Deferred[T]:
        """Do ``work`` in a transaction of its own; fires when that is on the disk."""


class Identity(Struct, frozen=True):
    """Who a node is. ``leaf`` is its certificate in DER."""

    uuid: str
    key: Ed25519PrivateKey
    leaf: bytes

    @property
    def digest(self) -> str:
        """The leaf's digest, as it is shown and compared."""
        return leaf_digest(self.leaf)


async def load(directory: StateDirectory, rows: Rows, now: float) -> Identity:
    """The identity of this node: the stored one, or at the first start a new one.

    Args:
        directory: Prepared, so that the key's owner and mode are in order (OP-13).
        rows: The open store.
        now: Seconds since the epoch; only a new leaf's dates come from it.

    Raises:
        IdentityError: There is a stored identity, and its files are not whole (CL-3).
    """
    row = rows.read(_row)
    if row is not None:
        return _stored(directory, *row)
    try:
        identity = _read(directory)
    except IdentityError:
        identity = mint(now)
        _write(directory, identity)
        log.info(
            "This node has a new identity: {uuid}, certificate {digest}.", uuid=identity.uuid, digest=identity.digest
        )
    else:
        log.info("The identity in the state directory is taken over: {uuid}.", uuid=identity.uuid)
    await rows.write(lambda connection: _commit(connection, identity, now))
    return identity


async def renew(directory: StateDirectory, rows: Rows, now: float) -> Identity:
    """A new identity in the place of the stored one, which is lost: the cure of a cloned disk (CL-94, CL-96).

    It is good from the next start on. At each moment of this the state
    directory has the old identity, the new one, or such parts as the next
    start makes another new one of.

    Args:
        directory: Held by this process.
        rows: The open store.
        now: Seconds since the epoch.

    Raises:
        StillMemberError: The node is in a cluster; nothing has changed.
        IdentityError: A file could not be written.
    """
    await rows.write(_forget)
    identity = mint(now)
    _write(directory, identity)
    await rows.write(lambda connection: _commit(connection, identity, now))
    log.info("This node has a new identity: {uuid}, certificate {digest}.", uuid=identity.uuid, digest=identity.digest)
    return identity


def mint(now: float) -> Identity:
    """A new identity, which is written nowhere yet (CL-1, CL-5)."""
    name = str(uuid.uuid4())
    key = Ed25519PrivateKey.generate()
    return Identity(name, key, make_leaf(name, key, now))


def _row(connection: sqlite3.Connection) -> tuple[str, str] | None:
    row: tuple[str, str] | None = connection.execute("SELECT uuid, digest FROM identity WHERE uuid != ''").fetchone()
    return row


def _forget(connection: sqlite3.Connection) -> None:
    """Empty the row, so that the files decide. The highest epoch and counter stay: they may only rise."""
    if connection.execute("SELECT 1 FROM membership WHERE state = 'active'").fetchone():
        raise StillMemberError
    connection.execute("UPDATE identity SET uuid = '', digest = ''")


def _commit(connection: sqlite3.Connection, identity: Identity, now: float) -> None:
    connection.execute(
        "INSERT INTO identity (only, uuid, digest) VALUES (1, ?, ?) "
        "ON CONFLICT (only) DO UPDATE SET uuid = excluded.uuid, digest = excluded.digest",
        (identity.uuid, identity.digest),
    )
    write_rows(connection, int(now * 1000), (Entry("identity", identity.uuid, identity.uuid),))


def _stored(directory: StateDirectory, name: str, digest: str) -> Identity:
    identity = _read(directory)
    if (identity.uuid, identity.digest) != (name, digest):
        raise IdentityError(directory.path / LEAF_FILE, f"it is not the certificate of this node ({name})", _CURE)
    return identity


def _read(directory: StateDirectory) -> Identity:
    key_path, leaf_path = directory.path / KEY_FILE, directory.path / LEAF_FILE
    try:
        key = load_pem_private_key(key_path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityError(key_path, f"it cannot be read ({normalize_error(error)})", _CURE) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(key_path, "it is not an Ed25519 key", _CURE)
    try:
        leaf = x509.load_pem_x509_certificate(leaf_path.read_bytes())
        der = leaf.public_bytes(Encoding.DER)
        name = check_leaf(der)
    except LeafError as error:
        raise IdentityError(leaf_path, f"it is not the certificate of a node: {error}", _CURE) from None
    except (OSError, *UNREADABLE) as error:
        raise IdentityError(leaf_path, f"it cannot be read ({normalize_error(error)})", _CURE) from None
    if leaf.public_key() != key.public_key():
        raise IdentityError(key_path, f"it is not the key of the certificate in {LEAF_FILE}", _CURE)
    return Identity(name, key, der)


def _write(directory: StateDirectory, identity: Identity) -> None:
    key = identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    leaf = x509.load_der_x509_certificate(identity.leaf).public_bytes(Encoding.PEM)
    for name, data, mode in ((KEY_FILE, key, 0o600), (LEAF_FILE, leaf, 0o644)):
        try:
            directory.replace(name, data, mode)
        except OSError as error:
            path = directory.path / name
            cure = "make room for it, or make the file system writable"
            raise IdentityError(path, f"it cannot be written ({normalize_error(error)})", cure) from None
