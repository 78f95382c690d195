"""A leaf: the self-signed certificate that joins a node's UUID to its key (CL-4 to CL-7).

Pure: bytes in, a verdict out. The dates of a leaf are written and never read,
so that no clock decides who a node is. Who may be trusted is no concern of it.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LEAF_BYTES_MAX = 2048

UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What the parser of certificates raises, some of it late, when a field is first asked for."""

_EARLY = timedelta(hours=24)
_LIFE = timedelta(days=3652)


class LeafError(ValueError):
    """A certificate is no leaf of a node; the text says which rule of CL-6 it breaks and quotes nothing of it."""


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
    except UNREADABLE:
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
