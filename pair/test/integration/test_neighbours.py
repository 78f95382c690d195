"""Nodes on several hosts find one another, and know how each of them is (discovery page), with real processes."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import SkipTest

from pair.discovery.packets import read
from pair.discovery.txt import Record, decode
from pair.test.integration.engines import Engine
from pair.test.integration.hosts import SEEN, Capture, HostNode, HostTestCase
from pair.test.integration.node import wait_for

if TYPE_CHECKING:
    from pair.test.integration.network import Host

GONE = 40.0
"""Seconds in which a node that is dead, or cut off, is gone or offline: 30 (discovery page, Measures), and two scans
more for a machine that is busy with other tests."""

LEFT = 15.0
"""Seconds in which one that says goodbye is: 5, and some for a busy machine; without a goodbye it takes longer."""

TOLD = 5.0
"""Seconds in which a change of a node's cluster is on the wire: 2 (DS-9), and some for a busy machine."""

MET = 12.0
"""Seconds in which members see each other without any multicast: 10 (D04), and some for a busy machine."""


class MulticastTests(HostTestCase):
    """Nodes that nobody has told of each other."""

    def test_four(self) -> None:
        """Four nodes see each other within 6 s of their start; all multicast leaves from 5353 with TTL 255 (D01)."""
        self.make_hosts(4)
        nodes = [self.node_on(each) for each in self.hosts]
        with Capture(self.hosts[0]) as capture:
            for each in nodes:
                each.launch()
            for each in nodes:
                each.wait_until_ready()
            wait_for("all nodes", lambda: all(each.sees(*nodes) for each in nodes), SEEN)
        sent = [each for each in capture.packets if each.port == 5353]
        self.assertEqual({each.source for each in sent}, {each.address for each in self.hosts})
        self.assertEqual({(each.source_port, each.ttl) for each in sent}, {(5353, 255)})
        for each in nodes:
            each.stop()

    def test_one_host(self) -> None:
        """Two nodes on one host share port 5353 with each other and with Avahi (D13), and see each other."""
        avahi = shutil.which("avahi-daemon", path="/usr/sbin:/usr/bin:/sbin:/bin")
        if avahi is None:
            raise SkipTest("avahi-daemon is not installed")
        self.make_hosts(2)
        here, there = self.hosts
        self._start_avahi(avahi, here)
        first = self.node_on(here)
        second = self.node_on(here, *self._other_ports())
        second.ports = dict.fromkeys(second.ports, 0)
        far = self.node_on(there)
        for each in (first, second, far):
            each.launch()
        for each in (first, second, far):
            each.wait_until_ready()
        wait_for("each other", lambda: first.sees(second, far) and second.sees(first, far), SEEN)
        wait_for("both from afar", lambda: far.sees(first, second), SEEN)
        for each in (first, second):
            self.assertEqual([id for id in each.errors() if id.startswith("discovery:")], [])

    def test_one_name(self) -> None:
        """D14, D02: two hosts named spark list each other; what both announce of their cluster is as it is stored.

        That is so within 2 s of their pairing, when they start again, and when one leaves.
        """
        self.make_hosts(2)
        first, second = nodes = [self.node_on(each, "node.name=spark") for each in self.hosts]
        with Capture(self.hosts[0]) as capture:
            for each in nodes:
                each.launch()
            for each in nodes:
                each.wait_until_ready()
            wait_for("each other", lambda: first.sees(second) and second.sees(first), SEEN)
            names = [{node["name"] for node in each.nodes().values()} for each in nodes]
            self.assertEqual(names, [{"spark"}] * 2)
            for each in nodes:
                self.assertEqual([id for id in each.errors() if id.startswith("discovery:")], [])
            self.pair(first, second)
            cluster = wait_for("the cluster", first.cluster)
            wait_for("both to say so", lambda: self.announced(capture, *nodes) == [cluster] * 2, TOLD)
            capture.packets.clear()
            for each in nodes:
                each.stop()
            capture.packets.clear()
            for each in nodes:
                each.launch()
            for each in nodes:
                each.wait_until_ready()
            wait_for("both to say so again", lambda: self.announced(capture, *nodes) == [cluster] * 2, TOLD)
            self.assertEqual({each.cluster for each in self.records(capture)}, {cluster})
            second.leave()
            wait_for("one that left to say so", lambda: self.announced(capture, *nodes) == [cluster, None], TOLD)

    def announced(self, capture: Capture, *nodes: HostNode) -> list[str | None]:
        """The cluster that each of these nodes named last."""
        last = {record.uuid: record.cluster for record in self.records(capture)}
        return [last.get(each.uuid, "nothing") for each in nodes]

    def records(self, capture: Capture) -> list[Record]:
        """All that were announced, in order."""
        texts = [text for each in tuple(capture.packets) for text in read(each.payload).texts.values()]
        return [record for record in map(decode, texts) if record is not None]

    def _other_ports(self) -> list[str]:
        surfaces = ("control", "node_info", "errors", "workloads", "cluster", "inventory")
        return ["proxy.ports.ollama=0", "proxy.ports.lmstudio=0", *(f"ports.{each}=0" for each in surfaces)]

    def _start_avahi(self, program: str, host: object) -> None:
        config = Path(self.mktemp())
        config.write_text("[server]\nenable-dbus=no\nallow-interfaces=eth0\n")
        with self.hosts[0].inside():
            process = subprocess.Popen(
                [program, "-f", str(config.absolute()), "--no-drop-root", "--no-rlimits", "--no-chroot"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        lines = process.stderr
        assert lines is not None, "it was asked for"
        wait_for("avahi to run", lambda: "startup complete" in lines.readline())


class UnicastTests(HostTestCase):
    """Members on a network that lets no multicast through."""

    def test_paired(self) -> None:
        """Both are online within 10 s of pairing, and of a restart of either, with their models listed (D04)."""
        self.make_hosts(2)
        self.switch.filter_multicast(*self.hosts)
        first, second = self.members()
        wait_for("each other", lambda: first.sees(second) and second.sees(first), MET)
        everybody = {first.uuid, second.uuid}
        wait_for("the models of both", lambda: listed(first) == listed(second) == everybody, MET)
        for node in (first, second):
            node.stop()
            node.start()
            wait_for("each other again", lambda: first.sees(second) and second.sees(first), MET)
            wait_for("all models again", lambda: listed(first) == listed(second) == everybody, MET)

    def members(self) -> tuple[HostNode, HostNode]:
        """Two nodes, paired, each with an engine."""
        first, second = (self.node_on(each, *self.engine_on(each).settings("double")) for each in self.hosts)
        for each in (first, second):
            each.launch()
        for each in (first, second):
            each.wait_until_ready()
        self.pair(first, second)
        return first, second

    def engine_on(self, host: Host) -> Engine:
        """An engine there, as long as the test."""
        with host.inside():
            engine = Engine("ollama")
        self.addCleanup(engine.kill)
        return engine


def listed(node: HostNode) -> set[str]:
    """The nodes that can serve a model now, by what it knows."""
    return {owner for model in node.get("/models")["models"] for owner in model["owners"]}


class FaultTests(HostTestCase):
    """What becomes of a node that something happens to, in the eyes of a stranger and of a member."""

    def setUp(self) -> None:
        self.victim, self.member, self.stranger = self.start_on_hosts(3)
        self.pair(self.victim, self.member)
        wait_for("the victim's record", lambda: all(self.has_record(each) for each in self.others), MET)
        wait_for("all", lambda: self.member.sees(self.victim, self.stranger) and self.stranger.sees(self.victim), MET)

    def test_frozen(self) -> None:
        """One that is frozen is offline for members, and comes back when it thaws.

        For a stranger it is there: its system accepts connections still, which is all that strangers show (DS-56).
        """
        self.victim.signal(signal.SIGSTOP)
        wait_for("the member to see it offline", lambda: self.member.presence(self.victim) == "offline", GONE)
        self.assertIsNotNone(self.stranger.presence(self.victim))
        self.victim.signal(signal.SIGCONT)
        self.comes_back()

    def test_cut_off(self) -> None:
        """So with one whose cable is pulled."""
        self.switch.cut(self.victim.host)
        self.falls_silent(GONE)
        self.switch.heal(self.victim.host)
        self.comes_back()

    def test_goodbye(self) -> None:
        """One that stops says goodbye, and is gone within 5 s (DS-61)."""
        self.victim.stop()
        self.falls_silent(LEFT)
        self.victim.start()
        self.comes_back()

    def test_renamed(self) -> None:
        """One that is renamed is one entry all the time, with the new name."""
        self.victim.stop()
        self.victim.launch("--set", "node.name=another")
        self.victim.wait_until_ready()
        self.comes_back()
        wait_for(
            "the name", lambda: {each.nodes()[self.victim.uuid]["name"] for each in self.others} == {"another"}, GONE
        )
        self.assertEqual([len(each.nodes()) for each in self.others], [3, 3])

    def test_new_address(self) -> None:
        """One with another address is found there: by strangers from its record, by members on top of that."""
        self.victim.host.readdress(77)
        wait_for("the new address", lambda: all(self.has_address(each, "10.77.0.77") for each in self.others), GONE)
        wait_for("it to be online", lambda: all(each.sees(self.victim) for each in self.others), GONE)
        self.assertEqual([len(each.nodes()) for each in self.others], [3, 3])

    def test_replaced(self) -> None:
        """A stranger's machine that was wiped comes back with a new UUID: the old entry goes, the new one stays."""
        wiped = self.stranger
        self.switch.cut(wiped.host)
        wiped.destroy()
        wait_for("it to be gone", lambda: self.victim.presence(wiped) is None, GONE)
        self.switch.heal(wiped.host)
        fresh = self.node_on(wiped.host)
        fresh.start()
        wait_for("the new one", lambda: self.victim.sees(fresh), SEEN)
        self.assertIsNone(self.victim.presence(wiped))

    @property
    def others(self) -> tuple[HostNode, HostNode]:
        """The member and the stranger."""
        return self.member, self.stranger

    def has_record(self, node: HostNode) -> bool:
        """Whether a node has heard the victim by multicast."""
        return "mdns" in node.nodes().get(self.victim.uuid, {}).get("claims", ())

    def has_address(self, node: HostNode, address: str) -> bool:
        """Whether a node knows the victim by an address."""
        return address in node.nodes().get(self.victim.uuid, {}).get("ips", ())

    def falls_silent(self, limit: float) -> None:
        """The victim is offline for the member and gone for the stranger within ``limit``; both others stay."""
        wait_for("the member to see it offline", lambda: self.member.presence(self.victim) == "offline", limit)
        wait_for("the stranger to drop it", lambda: self.stranger.presence(self.victim) is None, limit)
        self.assertTrue(self.member.sees(self.stranger))

    def comes_back(self) -> None:
        """The victim is online for both."""
        wait_for("the member to see it", lambda: self.member.sees(self.victim), GONE)
        wait_for("the stranger to see it", lambda: self.stranger.sees(self.victim), GONE)


class CloneTests(HostTestCase):
    """One state directory on two hosts."""

    def test_own_clash(self) -> None:
        """Both copies are told that there are two of them (DS-68), and others that one identity is two (DS-67)."""
        self.make_hosts(3)
        original = self.node_on(self.hosts[0])
        witness = self.node_on(self.hosts[2])
        for each in (original, witness):
            each.start()
        folder = Path(self.mktemp())
        shutil.copytree(original.state, folder / "state", ignore=shutil.ignore_patterns("pair.lock", "control.json"))
        copy = self.node_on(self.hosts[1], folder=folder)
        copy.start()
        clash = "discovery:own_identity_clash"
        wait_for("the clash", lambda: all(clash in each.errors() for each in (original, copy)), GONE)
        wait_for("the witness", lambda: f"discovery:identity_clash:{original.uuid}" in witness.errors(), 2 * GONE)


class OneWayTests(HostTestCase):
    """A network that lets things through one way."""

    def test_deaf_member(self) -> None:
        """D17: of two members one hears the other's multicast and not the reverse; both list both as online."""
        self.make_hosts(2)
        deaf, hearing = (self.node_on(each) for each in self.hosts)
        self.switch.filter_multicast(deaf.host)
        for each in (deaf, hearing):
            each.launch()
        for each in (deaf, hearing):
            each.wait_until_ready()
        wait_for("the one that hears", lambda: hearing.sees(deaf), SEEN)
        self.pair(hearing, deaf)
        wait_for("both", lambda: hearing.sees(deaf) and deaf.sees(hearing), MET)
