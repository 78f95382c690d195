"""What the bytes of an answer say."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.packets import Packet, is_ours, read
from pair.discovery.txt import TYPE
from pair.test.discovery.answers import PTR, SRV, TXT, address, answer, name, record, srv

INSTANCE = f"Büro-3f0c9a52.{TYPE}"
HOST = "pair-3f0c9a52-0000-4000-8000-000000000001.local."


class ReadTests(SynchronousTestCase):
    def test_whole_record(self) -> None:
        """Everything that a node says of itself; addresses in a fixed order, since senders have none."""
        data = answer(
            record(TYPE, PTR, name(INSTANCE)),
            srv(INSTANCE, HOST.upper()),
            record(INSTANCE, TXT, b"\x03v=1"),
            address(HOST, "fe80::1"),
            address(HOST, "192.168.1.10"),
            address(HOST, "192.168.1.9"),
        )
        self.assertTrue(is_ours(data))
        addresses = ("192.168.1.9", "192.168.1.10", "fe80::1")
        self.assertEqual(read(data), Packet({INSTANCE: b"\x03v=1"}, {INSTANCE: HOST}, (), {HOST: addresses}))

    def test_compressed_names(self) -> None:
        """Names that point back are read, as the library writes them."""
        owner = name(INSTANCE)
        pointer = struct.pack("!H", 0xC000 | 12)
        head = struct.pack("!6H", 0, 0x8400, 0, 2, 0, 0)
        txt = owner + struct.pack("!HHIH", TXT, 0x8001, 120, 4) + b"\x03v=1"
        second = pointer + struct.pack("!HHIH", SRV, 0x8001, 120, 6 + len(name(HOST))) + bytes(6) + name(HOST)
        self.assertEqual(read(head + txt + second), Packet({INSTANCE: b"\x03v=1"}, {INSTANCE: HOST}))

    def test_goodbye(self) -> None:
        """TTL 0 on PTR, SRV or TXT, with data or without (DS-61); what it takes back is not said besides."""
        for data in (
            record(TYPE, PTR, name(INSTANCE), 0),
            srv(INSTANCE, HOST, 0),
            record(INSTANCE, SRV, b"", 0),
            record(INSTANCE, TXT, b"\x03v=1", 0),
            record(INSTANCE, TXT, b"", 0),
        ):
            self.assertEqual(read(answer(data)), Packet(gone=(INSTANCE,)))
            self.assertEqual(read(answer(record(INSTANCE, TXT, b"\x03v=1"), data)), Packet(gone=(INSTANCE,)))
        self.assertEqual(read(answer(record(TYPE, PTR, b"", 0))), Packet(), "of whom is not said")

    def test_others(self) -> None:
        """Records of other types, and questions, are none of ours."""
        printer = "Printer._ipp._tcp.local."
        self.assertFalse(is_ours(answer(srv(printer, "printer.local."))))
        self.assertEqual(read(answer(srv(printer, "p.local."), record(printer, TXT, b"", 0))), Packet())
        question = name(TYPE) + struct.pack("!HH", PTR, 1)
        self.assertFalse(is_ours(struct.pack("!6H", 0, 0, 1, 0, 0, 0) + question))
        self.assertFalse(is_ours(answer(record(INSTANCE, TXT, b""), flags=0x8403)), "an error")

    def test_faults(self) -> None:
        """What was read before a fault counts; a record that is wrong in itself is passed over."""
        good = record(INSTANCE, TXT, b"\x03v=1")
        self.assertEqual(read(answer(record(INSTANCE, SRV, b"\0"), good)), Packet({INSTANCE: b"\x03v=1"}))
        self.assertEqual(read(answer(good, good)[:-1]), Packet({INSTANCE: b"\x03v=1"}))
        circle = struct.pack("!H", 0xC000 | 12)
        self.assertEqual(read(answer(circle + good)), Packet())

    def test_costly(self) -> None:
        """What one packet costs is bounded, however it was made: its length, its records, the pointers in a name."""
        own = (srv(INSTANCE, HOST), record(INSTANCE, TXT, b"\x03v=1"))
        padding = record("x.local.", 99, bytes(9000))
        self.assertFalse(is_ours(answer(*own, padding)))
        many = [record(f"{at}-3f0c9a52.{TYPE}", TXT, b"", 0) for at in range(1000)]
        self.assertEqual(len(read(answer(*many)).gone), 128)

        owner = name(TYPE)
        begin = 12 + len(owner) + 10
        chain = [12, *range(begin, begin + 2 * 2000, 2)]
        data = b"".join(struct.pack("!H", 0xC000 | each) for each in chain)
        first = owner + struct.pack("!HHIH", 99, 1, 120, len(data)) + data
        for jumps, read_so in ((15, INSTANCE), (17, None)):
            name_at = struct.pack("!H", 0xC000 | chain[jumps])
            label = name(INSTANCE).partition(owner)[0]
            second = label + name_at + struct.pack("!HHIH", TXT, 0x8001, 120, 4) + b"\x03v=1"
            whole = struct.pack("!6H", 0, 0x8400, 0, 2, 0, 0) + first + second
            self.assertEqual(list(read(whole).texts), [] if read_so is None else [read_so])

    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        """No bytes do harm (DS-11)."""
        is_ours(data)
        read(answer(data, data))
        read(answer(record(INSTANCE, SRV, data), record(INSTANCE, TXT, data)))
        read(data)
