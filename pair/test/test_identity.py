"""Tests of :mod:`pair.cluster.identity`."""

from __future__ import annotations

import errno
import itertools
import sqlite3
import stat
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, execute
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.audit import read_rows
from pair.cluster.identity import Identity, IdentityError, StillMemberError, load, mint, renew
from pair.cluster.leaf import LeafError, check_leaf, leaf_digest, make_leaf, parse_uuid, short_digest
from pair.statedir import StateDirectory
from pair.store import MIGRATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

NOW = 1764460800.0
NAME = "7b1c2f0e-4a5d-4c3b-8e2f-0123456789ab"


class MemoryRows:
    """The tables of the store in memory, written at once."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:")
        for statement in itertools.chain(*MIGRATIONS):
            self._connection.execute(statement)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self._connection)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> Deferred[T]:
        return execute(work, self._connection)


class Killed(Exception):  # noqa: N818 - it stands for the end of the process
    """The process ended here."""


class Fuse:
    """So many steps are made, and before the next one this is raised."""

    def __init__(self, steps: int, end: Exception) -> None:
        self._left = steps
        self._end = end

    def burn(self) -> None:
        if not self._left:
            raise self._end
        self._left -= 1


class FusedDirectory(StateDirectory):
    """A state directory each of whose writes is a step."""

    def __init__(self, path: Path, fuse: Fuse) -> None:
        super().__init__(path)
        self._fuse = fuse

    def replace(self, name: str, data: bytes, mode: int) -> None:
        self._fuse.burn()
        super().replace(name, data, mode)


class FusedRows:
    """Rows each of whose writes is a step."""

    def __init__(self, rows: MemoryRows, fuse: Fuse) -> None:
        self._rows = rows
        self._fuse = fuse

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._rows.read(work)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> Deferred[T]:
        self._fuse.burn()
        return self._rows.write(work)


def certificate(
    key: Any,
    name: str = NAME,
    *,
    names: list[x509.GeneralName] | None = None,
    subject: list[x509.NameAttribute[Any]] | None = None,
    signer: Any = None,
) -> bytes:
    """A leaf that may break any one rule."""
    whose = x509.Name(subject or [x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(whose)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(1990, 1, 1))
        .not_valid_after(datetime(1991, 1, 1))
    )
    if names is None:
        names = [x509.UniformResourceIdentifier(f"urn:uuid:{name}")]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signer = signer or key
    digest = None if isinstance(signer, Ed25519PrivateKey) else SHA256()
    return builder.sign(signer, digest).public_bytes(Encoding.DER)


class LeafTests(SynchronousTestCase):
    """What a leaf is made of (CL-5) and what passes for one (CL-6)."""

    def test_made(self) -> None:
        """Subject, alternative name, usages and dates are those of CL-5."""
        key = Ed25519PrivateKey.generate()
        der = make_leaf(NAME, key, NOW)
        leaf = x509.load_der_x509_certificate(der)
        self.assertEqual(leaf.version, x509.Version.v3)
        self.assertEqual(leaf.subject, leaf.issuer)
        self.assertEqual(leaf.subject.rfc4514_string(), f"CN={NAME}")
        begin = datetime.fromtimestamp(NOW, UTC) - timedelta(hours=24)
        self.assertEqual(leaf.not_valid_before_utc, begin)
        self.assertEqual((leaf.not_valid_after_utc - begin).days // 365, 10)
        get = leaf.extensions.get_extension_for_class
        self.assertEqual(
            list(get(x509.SubjectAlternativeName).value), [x509.UniformResourceIdentifier(f"urn:uuid:{NAME}")]
        )
        constraints, usage = get(x509.BasicConstraints), get(x509.KeyUsage)
        self.assertTrue(constraints.critical)
        self.assertFalse(constraints.value.ca)
        self.assertTrue(usage.critical)
        self.assertTrue(usage.value.digital_signature)
        self.assertFalse(usage.value.key_cert_sign)
        self.assertEqual(
            list(get(x509.ExtendedKeyUsage).value),
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
        )
        self.assertEqual(check_leaf(der), NAME)

    def test_dates_are_not_looked_at(self) -> None:
        """A leaf that ended long ago is a leaf."""
        self.assertEqual(check_leaf(certificate(Ed25519PrivateKey.generate())), NAME)

    def test_refused(self) -> None:
        """Each rule alone refuses."""
        key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        uri = x509.UniformResourceIdentifier
        common = x509.NameAttribute(NameOID.COMMON_NAME, NAME)
        good = certificate(key)
        unused = bytearray(good)
        unused[-65] = 1  # one bit fewer in the signature's bit string
        version1 = str(uuid.uuid1())
        accepted = []
        for what, der in [
            ("trailing bytes", good + b"\0"),
            ("cut", good[:-1]),
            ("nothing", b""),
            ("too long", certificate(key, names=[uri("urn:x:" + "x" * 2048)])),
            ("another kind of key", certificate(ec.generate_private_key(ec.SECP256R1()))),
            ("another's signature", certificate(key, signer=other)),
            ("a changed byte", good[:-5] + bytes([good[-5] ^ 1]) + good[-4:]),
            ("another spelling", bytes(unused)),
            ("no UUID", certificate(key, "box")),
            ("version 1", certificate(key, version1)),
            ("upper case", certificate(key, NAME.upper())),
            ("no alternative name", certificate(key, names=[])),
            ("another URI", certificate(key, names=[uri(f"urn:uuid:{uuid.uuid4()}")])),
            ("two names", certificate(key, names=[uri(f"urn:uuid:{NAME}"), x509.DNSName("box")])),
            ("a DNS name", certificate(key, names=[x509.DNSName(NAME)])),
            ("two attributes", certificate(key, subject=[common, common])),
            ("no common name", certificate(key, subject=[x509.NameAttribute(NameOID.ORGANIZATION_NAME, NAME)])),
        ]:
            try:
                check_leaf(der)
            except LeafError:
                continue
            accepted.append(what)
        self.assertEqual(accepted, [])

    @given(st.integers(1, 255))
    @example(75)
    def test_any_changed_byte(self, change: int) -> None:
        """A leaf with one byte changed is refused, whichever it is, and nothing else is raised."""
        whole = make_leaf(NAME, Ed25519PrivateKey.from_private_bytes(b"k" * 32), NOW)
        for at in range(change % 7, len(whole), 7):
            der = bytearray(whole)
            der[at] ^= change
            self.assertRaises(LeafError, check_leaf, bytes(der))
        self.flushWarnings()  # the parser's own, of serial numbers below 1

    @given(st.binary(max_size=64))
    def test_any_bytes(self, der: bytes) -> None:
        """Bytes of anybody are refused, never an exception of the parser's own."""
        self.assertRaises(LeafError, check_leaf, der)


class FormTests(SynchronousTestCase):
    """UUIDs and digests as people and requests write them."""

    def test_uuids(self) -> None:
        """Any case, hyphens or not, ``urn:uuid:`` or not (CL-4)."""
        for text in (NAME, NAME.upper(), NAME.replace("-", ""), f"urn:uuid:{NAME}", f"URN:UUID:{NAME.upper()}"):
            self.assertEqual(parse_uuid(text), NAME)
        for text in ("", "box", NAME[:-1], f"{{{NAME}}}", f" {NAME}", NAME.replace("-", "", 1), "٣" * 32, NAME + "\n"):
            self.assertRaises(ValueError, parse_uuid, text)

    def test_digests(self) -> None:
        """Long and short form (CL-7)."""
        digest = leaf_digest(b"")
        self.assertEqual(digest, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        self.assertEqual(short_digest(digest), "e3b0 c442 98fc 1c14")


class LoadTests(SynchronousTestCase):
    """The stored identity (CL-1 to CL-3)."""

    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.directory = StateDirectory(self.path)
        self.directory.prepare()
        self.rows = MemoryRows()
        self.key, self.leaf = self.path / "node.key", self.path / "node.crt"

    def load(self) -> Identity:
        return self.successResultOf(Deferred.fromCoroutine(load(self.directory, self.rows, NOW)))

    def refused(self) -> IdentityError:
        failure = self.failureResultOf(Deferred.fromCoroutine(load(self.directory, self.rows, NOW)), IdentityError)
        error = failure.value
        assert isinstance(error, IdentityError)
        self.assertIn("removing the state directory", str(error))
        self.assertIn("backup", str(error))
        return error

    def forget(self) -> None:
        """The row was never written."""
        self.rows = MemoryRows()

    def test_first_start(self) -> None:
        """Key, leaf and row are made, with the modes of CL-2."""
        identity = self.load()
        self.assertEqual(uuid.UUID(identity.uuid).version, 4)
        self.assertEqual(check_leaf(identity.leaf), identity.uuid)
        self.assertEqual(stat.S_IMODE(self.key.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(self.leaf.stat().st_mode), 0o644)
        self.assertTrue(self.key.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----"))
        row = self.rows.read(lambda connection: connection.execute("SELECT uuid, digest FROM identity").fetchall())
        self.assertEqual(row, [(identity.uuid, identity.digest)])

    def test_every_other_start(self) -> None:
        """The same identity, byte for byte."""
        first, second = self.load(), self.load()
        self.assertEqual((first.uuid, first.leaf), (second.uuid, second.leaf))
        self.assertEqual(first.key.public_key(), second.key.public_key())

    def test_adopted(self) -> None:
        """Without a row a valid pair of files is taken over: a crash came before the row, or a backup was restored."""
        first = self.load()
        self.forget()
        self.assertEqual(self.load().leaf, first.leaf)
        self.assertEqual(self.load().leaf, first.leaf)

    def test_unfinished(self) -> None:
        """Without a row anything but a valid pair gives way to a new identity."""
        whole = self.load()
        for break_it in (self.leaf.unlink, self.key.unlink, lambda: self.key.write_bytes(b"x"), self.exchange_key):
            self.forget()
            break_it()
            renewed = self.load()
            self.assertNotEqual(renewed.uuid, whole.uuid)
            self.assertEqual(self.load().leaf, renewed.leaf)

    def exchange_key(self) -> None:
        key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.key.write_bytes(key)

    def test_lost(self) -> None:
        """With a row a missing or unreadable file stops the start, names the file, and changes nothing."""
        self.load()
        for path in (self.key, self.leaf):
            content = path.read_bytes()
            path.write_bytes(content[:40])
            self.assertEqual(self.refused().path, path)
            self.assertEqual(path.read_bytes(), content[:40])
            path.unlink()
            self.assertEqual(self.refused().path, path)
            self.assertFalse(path.exists())
            path.write_bytes(content)
        self.load()

    def test_other_files(self) -> None:
        """With a row, files that do not belong together, or to the row, stop the start."""
        mine = self.load()
        key, leaf = self.key.read_bytes(), self.leaf.read_bytes()
        self.exchange_key()
        self.assertEqual(self.refused().path, self.key)
        self.forget()
        other = self.load()
        self.assertNotEqual(other.uuid, mine.uuid)
        self.key.write_bytes(key)
        self.leaf.write_bytes(leaf)
        error = self.refused()
        self.assertEqual(error.path, self.leaf)
        self.assertIn(other.uuid, error.fault)

    def test_another_kind_of_key(self) -> None:
        """A key that is not Ed25519 is none of ours."""
        self.load()
        foreign = ec.generate_private_key(ec.SECP256R1())
        self.key.write_bytes(foreign.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.assertEqual(self.refused().path, self.key)

    def test_not_writable(self) -> None:
        """Files that cannot be written stop the start, and no row says that they were."""
        self.leaf.mkdir()
        (self.leaf / "x").touch()
        failure = self.failureResultOf(Deferred.fromCoroutine(load(self.directory, self.rows, NOW)), IdentityError)
        self.assertIn("node.crt", str(failure.value))
        self.assertIsNone(self.rows.read(lambda connection: connection.execute("SELECT * FROM identity").fetchone()))

    def test_audited(self) -> None:
        """That an identity was made is in the audit, once (CL-104)."""
        identity = self.load()
        self.load()
        rows = self.rows.read(lambda connection: read_rows(connection, 10))
        self.assertEqual(
            [(each.event, each.subject, each.at) for each in rows], [("identity", identity.uuid, 1764460800000)]
        )

    def renew(self) -> Deferred[Identity]:
        return Deferred.fromCoroutine(renew(self.directory, self.rows, NOW))

    def test_renewed(self) -> None:
        """A new UUID, key and leaf, good from the next start on; epoch and counter go on (CL-96)."""
        old = self.load()
        self.rows.write(lambda connection: connection.execute("UPDATE identity SET epoch = 7, counter = 8"))
        new = self.successResultOf(self.renew())
        self.assertNotEqual((new.uuid, new.leaf), (old.uuid, old.leaf))
        self.assertNotEqual(new.key.public_key(), old.key.public_key())
        self.assertEqual(stat.S_IMODE(self.key.stat().st_mode), 0o600)
        self.assertEqual(self.load().leaf, new.leaf)
        rows = self.rows.read(lambda connection: connection.execute("SELECT * FROM identity").fetchall())
        self.assertEqual(rows, [(1, new.uuid, new.digest, 7, 8)])

    def test_renewed_in_a_cluster(self) -> None:
        """A member keeps its identity, and nothing is touched (CL-96)."""
        old = self.load()
        self.rows.write(lambda connection: connection.execute("INSERT INTO membership VALUES ('x', 'active', 1)"))
        self.failureResultOf(self.renew(), StillMemberError)
        self.assertEqual(self.load().leaf, old.leaf)

    def test_renewal_killed(self) -> None:
        """Killed after any of its steps: the next start has the old identity or a whole new one (CL-3, CL-100)."""
        for steps in range(4):
            old = self.load()
            fuse = Fuse(steps, Killed())
            dying = renew(FusedDirectory(self.path, fuse), FusedRows(self.rows, fuse), NOW)
            self.failureResultOf(Deferred.fromCoroutine(dying), Killed)
            started = self.load()
            self.assertEqual(started.leaf == old.leaf, steps < 2, steps)
            self.assertEqual(self.load().leaf, started.leaf)

    def test_renewal_fails(self) -> None:
        """Where the files cannot be written the old identity is that of the next start."""
        old = self.load()
        full = FusedDirectory(self.path, Fuse(0, OSError(errno.ENOSPC, "full")))
        self.failureResultOf(Deferred.fromCoroutine(renew(full, self.rows, NOW)), IdentityError)
        self.assertEqual(self.load().leaf, old.leaf)

    def test_mint(self) -> None:
        """Two nodes are never the same."""
        self.assertNotEqual(mint(NOW).uuid, mint(NOW).uuid)
