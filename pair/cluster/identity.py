"""This node's identity: a UUID, an Ed25519 key, and the self-signed leaf that joins the two (CL-1 to CL-8).

Two files in the state directory hold key and leaf; one row in the store says
which pair it is. The row is written last: files without a row are an identity
that was never finished, a row without its files is one that was lost, and that
is never papered over with a new one. It knows nothing of clusters or members.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

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
LEAF_BYTES_MAX = 2048

# What the parser raises, some of it late, when a field is first asked for.
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)

_EARLY = timedelta(hours=24)
_LIFE = timedelta(days=3652)
_CURE = "restore both files from a backup, or give this node up by removing the state directory"

log = Logger()


class IdentityError(StateError):
    """The stored identity cannot be used (exit 73): which file, what is wrong with it, and the cures (CL-3)."""


class LeafError(ValueError):
    """A certificate is no leaf of a node; the text says which rule of CL-6 it breaks and quotes nothing of it."""


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
    await rows.write(lambda connection: _commit(connection, identity))
    return identity


def mint(now: float) -> Identity:
    """A new identity, which is written nowhere yet (CL-1, CL-5)."""
    name = str(uuid.uuid4())
    key = Ed25519PrivateKey.generate()
    return Identity(name, key, make_leaf(name, key, now))


def make_leaf(name: str, key: Ed25519PrivateKey, now: float) -> bytes:
    """The self-signed certificate, in DER, of the node with the UUID ``name`` (CL-5)."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = datetime.fromtimestamp(int(now), UTC) - _EARLY
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _LIFE)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"urn:uuid:{name}")]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .sign(key, None)
        .public_bytes(Encoding.DER)
    )


def check_leaf(der: bytes) -> str:
    """The UUID of the node whose leaf ``der`` is (CL-6). Its dates are not looked at.

    Raises:
        LeafError: It is no leaf.
    """
    if len(der) > LEAF_BYTES_MAX:
        raise LeafError(f"it is longer than {LEAF_BYTES_MAX} bytes")
    try:
        return _check(x509.load_der_x509_certificate(der), der)
    except LeafError:
        raise  # it is a ValueError too
    except _UNREADABLE:
        raise LeafError("it is no readable certificate") from None


def _check(certificate: x509.Certificate, der: bytes) -> str:
    if not isinstance(certificate.public_key(), Ed25519PublicKey):
        raise LeafError("its key is not Ed25519")
    if not der.endswith(b"\x03\x41\x00" + certificate.signature):
        # The parser takes some bit strings in several spellings, and the signature does not cover itself.
        raise LeafError("its signature has another form than that of Ed25519")
    try:
        certificate.verify_directly_issued_by(certificate)
    except (InvalidSignature, ValueError, TypeError):
        raise LeafError("it is not signed by its own key") from None
    subject = list(certificate.subject)
    if len(subject) != 1 or subject[0].oid != NameOID.COMMON_NAME:
        raise LeafError("its subject is not one common name")
    name = str(subject[0].value)
    if not _is_uuid4(name):
        raise LeafError("its common name is not a UUID of version 4")
    try:
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = []
    if names != [x509.UniformResourceIdentifier(f"urn:uuid:{name}")]:
        raise LeafError("its alternative name is not its common name")
    return name


def leaf_digest(der: bytes) -> str:
    """``sha256:`` and the 64 hex digits of a certificate (CL-7)."""
    return f"sha256:{sha256(der).hexdigest()}"


def short_digest(digest: str) -> str:
    """The first 16 hex digits of a digest, in fours, for people to compare (CL-7)."""
    digits = digest.removeprefix("sha256:")
    return " ".join(digits[at : at + 4] for at in range(0, 16, 4))


def parse_uuid(text: str) -> str:
    """The UUID in ``text``, in lower case with hyphens (CL-4).

    Taken are any case, with or without hyphens, with or without ``urn:uuid:``.

    Raises:
        ValueError: It is none.
    """
    bare = text.lower().removeprefix("urn:uuid:")
    parsed = str(uuid.UUID(bare)) if bare.isascii() else ""
    if bare not in (parsed, parsed.replace("-", "")):
        raise ValueError("it is not a UUID")
    return parsed


def _is_uuid4(text: str) -> bool:
    try:
        return parse_uuid(text) == text and uuid.UUID(text).version == 4
    except ValueError:
        return False


def _row(connection: sqlite3.Connection) -> tuple[str, str] | None:
    row: tuple[str, str] | None = connection.execute("SELECT uuid, digest FROM identity").fetchone()
    return row


def _commit(connection: sqlite3.Connection, identity: Identity) -> None:
    connection.execute("INSERT INTO identity (only, uuid, digest) VALUES (1, ?, ?)", (identity.uuid, identity.digest))


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
    except (OSError, *_UNREADABLE) as error:
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
