"""Tests of :mod:`pair.settings.checks` and of the URLs in :mod:`pair.settings.grammar`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.records.engines import EngineAddress
from pair.settings import SettingsError, engine_address, load

URL = "engines.nas.url=http://127.0.0.1:8080/v1"
KIND = "engines.nas.kind=openai-compatible"


class RelationTests(SynchronousTestCase):
    """What must hold between keys, each of which is allowed by itself."""

    def refused(self, *options: str) -> list[tuple[str, str]]:
        error = self.assertRaises(SettingsError, load, options)
        return [(problem.key, problem.message) for problem in error.problems]

    def test_budget(self) -> None:
        """The budget of bodies is at least one body; equal is enough."""
        load(["proxy.max_body=1 GiB", "proxy.body_budget=1 GiB"])
        self.assertEqual(
            self.refused("proxy.max_body=1 GiB"),
            [("proxy.max_body", "proxy.body_budget must be at least proxy.max_body")],
        )

    def test_stop_deadline(self) -> None:
        """The stop's deadline is at least the drain and seven seconds."""
        load(["service.drain=20", "service.stop_deadline=27"])
        self.assertEqual([key for key, _ in self.refused("service.drain=20")], ["service.drain"])
        self.assertEqual([key for key, _ in self.refused("service.stop_deadline=9")], ["service.stop_deadline"])

    def test_ports_differ(self) -> None:
        """No two ports are the same, but for 0, which the kernel fills."""
        load(["proxy.ports.ollama=0", "proxy.ports.lmstudio=0", "ports.control=0"])
        ((key, message),) = self.refused("proxy.ports.ollama=1234")
        self.assertEqual((key, message), ("proxy.ports.ollama", "port 1234 is that of proxy.ports.lmstudio too"))
        for ours, other in (("ports.control", "proxy.ports.ollama"), ("proxy.ports.ollama", "ports.control")):
            port = {"ports.control": 14300, "proxy.ports.ollama": 11434}[other]
            self.assertEqual(self.refused(f"{ours}={port}"), [(ours, f"port {port} is that of {other} too")])
        twice = self.refused("engines.ollama.port=9000", "engines.llamacpp.port=9000")
        self.assertEqual(twice, [("engines.llamacpp.port", "port 9000 is that of engines.ollama.port too")])

    def test_reserved_port(self) -> None:
        """A port of ours is given to no engine, even where the facade has moved away from it (EN-43)."""
        moved = self.refused("proxy.ports.ollama=9000", "engines.ollama.port=11434")
        self.assertEqual(moved, [("engines.ollama.port", "port 11434 is reserved")])

    def test_known_policies_and_kinds(self) -> None:
        """Policies and kinds that plugins bring can be named."""
        load(["routing.policy=mine"], policies=("pressure", "mine"))
        load(["engines.mine.mode=off"], kinds=("ollama", "mine"))

    def test_wrong_value_told_once(self) -> None:
        """A rule about a key whose value is refused by itself says nothing on top."""
        self.assertEqual(
            [key for key, _ in self.refused("proxy.body_budget=5", "proxy.max_body=1 GiB")], ["proxy.body_budget"]
        )

    def test_engine_by_url(self) -> None:
        """An engine by URL has an id and a kind; what it is runs elsewhere only with ``remote`` (EN-3, EN-4)."""
        settings = load([URL, KIND, "engines.nas.models=['m']", "engines.nas.credential_env=NAS_TOKEN"]).settings
        self.assertEqual(settings.engines["nas"].models, ("m",))
        load(["engines.nas.url=http://10.0.0.7:11434", "engines.nas.kind=ollama", "engines.nas.remote=true"])

    def test_engine_by_url_refused(self) -> None:
        """X07: what an engine by URL must not be (EN-3 to EN-5), above all elsewhere than here."""
        for options, key in (
            ((URL,), "engines.nas.url"),
            ((URL, "engines.nas.kind=llamacpp"), "engines.nas.kind"),
            ((KIND, "engines.nas.url=http://10.0.0.7"), "engines.nas.url"),
            ((KIND, "engines.nas.url=http://localhost.example"), "engines.nas.url"),
            ((URL, KIND, "engines.nas.port=9000"), "engines.nas.port"),
            ((URL, KIND, "engines.nas.binary=/bin/x"), "engines.nas.binary"),
            (
                (URL, KIND, "engines.nas.credential_env=A", "engines.nas.credential_file=/a"),
                "engines.nas.credential_file",
            ),
            (("engines.ollama.url=http://127.0.0.1", "engines.ollama.kind=ollama"), "engines.ollama.url"),
            (("engines.openai-compatible.mode=on",), "engines.openai-compatible"),
            (("engines.Nas.mode=off",), "engines.Nas"),
            (("engines.nas.mode=off",), "engines.nas"),
            (("engines.ollama.kind=ollama",), "engines.ollama.kind"),
            (("engines.ollama.remote=true",), "engines.ollama.remote"),
            (("engines.ollama.credential_file=/a",), "engines.ollama.credential_file"),
        ):
            self.assertEqual([found for found, _ in self.refused(*options)], [key], options)

    def test_engine_misspelt(self) -> None:
        """An engine that does not exist is told with the kind that was meant."""
        ((_, message),) = self.refused("engines.olama.mode=off")
        self.assertIn("did you mean engines.ollama?", message)


class EngineAddressTests(SynchronousTestCase):
    """The URL of an engine (EN-4)."""

    def test_good(self) -> None:
        """Scheme, host, a port that is the scheme's where none is given, and nothing or /v1 behind."""
        for url, address in (
            ("http://127.0.0.1:8080", EngineAddress("127.0.0.1", 8080)),
            ("http://127.0.0.1:8080/", EngineAddress("127.0.0.1", 8080)),
            ("HTTP://LocalHost/v1", EngineAddress("localhost", 80)),
            ("https://nas.lan/v1/", EngineAddress("nas.lan", 443, tls=True)),
            ("https://[::1]:8443", EngineAddress("::1", 8443, tls=True)),
        ):
            self.assertEqual(engine_address(url), address, url)

    def test_bad(self) -> None:
        """All else is refused."""
        for url in (
            "",
            "127.0.0.1:8080",
            "ftp://h",
            "http://",
            "http:///v1",
            "http://u@h",
            "http://u:p@h",
            "http://h?",
            "http://h/v1?x=1",
            "http://h#f",
            "http://h/v2",
            "http://h/v1/models",
            "http://h//v1",
            "http://h:0",
            "http://h:65536",
            "http://h:x",
            "http://[::1",
            "http://h h",
            "http://h\\@x",
            "http://h%2f",
        ):
            self.assertRaises(ValueError, engine_address, url)

    @given(st.text(max_size=40))
    def test_any_text(self, text: str) -> None:
        """Any text is an address or a ValueError whose words are our own."""
        try:
            address = engine_address(f"http://{text}")
        except ValueError as error:
            self.assertTrue(len(text) < 4 or text not in str(error))
        else:
            self.assertTrue(0 < address.port < 65536)
