"""Tests of :mod:`pair.settings.keys`: each key's bounds, the example, and the table in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

import pair
from pair.settings import Settings, SettingsError, SettingsFile, describe, example, load
from pair.settings.keys import ROWS

MIB = 1 << 20
GIB = 1 << 30

BOUNDS: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
    # What is allowed at the edges, and what is just not, as the operations page has it.
    "node.name": (("x", "ä" * 63), ("", "x" * 64, "a\tb", "a\x7f", 5)),
    "node.bind": (
        (["::1"], ["0.0.0.0", "fe80::1%eth0"], ["192.168.1.7"]),
        ([], ["localhost"], ["1.2.3"], "::1", ["::1", "::1"], ["224.0.0.1"], ["::1", "ff02::1"], ["255.255.255.255"]),
    ),
    "node.labels": (([], ["a", "gpu=24.x_y-z"], [f"l{n}" for n in range(16)]), (["A"], [""], ["-a"], ["a" * 64])),
    "node.data_dir": (("/x",), ("",)),
    "node.advertise": (
        ([], ["192.168.1.7"], ["2001:db8::1", "ni=24318"], ["em=65535"]),
        (
            ["host.lan"],
            ["0.0.0.0"],
            ["ni=0"],
            ["xx=1"],
            ["1.2.3.4:80"],
            ["1.2.3.4"] * 2,
            [f"10.0.0.{n}" for n in range(17)],
        ),
    ),
    "proxy.ports.ollama": ((0, 1, 65535), (-1, 65536, "80", 1.5, True)),
    "proxy.ports.lmstudio": ((0, 1, 65535), (-1, 65536)),
    "ports.control": ((0, 1, 65535), (-1, 65536)),
    "ports.node_info": ((0, 1, 65535), (-1, 65536)),
    "ports.errors": ((0, 1, 65535), (-1, 65536)),
    "ports.workloads": ((0, 1, 65535), (-1, 65536)),
    "ports.cluster": ((0, 1, 65535), (-1, 65536)),
    "ports.inventory": ((0, 1, 65535), (-1, 65536)),
    "cluster.pairing": ((True, False), (1, "on")),
    "cluster.gossip_interval": ((5, 30.5, 600), (4.9, 601, "none")),
    "proxy.facades": (([], ["ollama"], ["lmstudio", "ollama"]), (["vllm"], ["ollama", "ollama"], "ollama")),
    "proxy.takeover": (("auto", "never", {"ollama": "never"}), ("no", {"vllm": "never"}, {"ollama": "no"}, True)),
    "proxy.allowed_hosts": ((["pair.lan", "[::1]:80"],), (["http://x"], ["a/b"], [":80"])),
    "proxy.origins": (
        (["https://a.b", "http://*.lan:*", "null", "chrome-extension://*"],),
        (["*"], ["a.b"], ["https://u@a.b"], ["https://a.b/c"], ["https://*"]),
    ),
    "proxy.max_body": ((MIB, "1 MiB", "512MiB"), (MIB - 1, 4 * GIB + 1, "1 MB", "1.5 MiB", "none", -1)),
    "proxy.body_budget": ((64 * MIB, "4 GiB", "100 GiB"), (MIB - 1, "0", "none")),
    "proxy.max_active": ((16, 20000), (15, 20001, 16.5, "none")),
    "proxy.start_deadline": ((1, 600, 1.5), (0.9, 601, "none")),
    "proxy.list_wait": ((0.1, 10), (0, 0.09, 10.1)),
    "proxy.engine_wait_max": ((0, "none", 5, 1e6), (4.9, 0.1, -1, "never")),
    "proxy.first_byte_limit": ((0, "none", 5, 1e6), (4.9, -1)),
    "proxy.stream_idle_max": ((0, "none", 5, 1e6), (4.9, -1)),
    "proxy.client_stall": ((10, 3600), (9, 3601, "none")),
    "proxy.explain": ((True, False), (1, "yes")),
    "facade.ollama.alias": (
        ("env", "off", "127.0.0.1:11500", "localhost:11500", "[::1]:11500"),
        ("on", "11500", "localhost", "127.0.0.1:0", "192.168.1.9:11500", "http://localhost:11500", 11500, True),
    ),
    "routing.policy": (("pressure",), ("random", 1)),
    "routing.freshness": ((2, 10, 120), (1.9, 121, "none")),
    "routing.loaded_only": ((True,), (0,)),
    "routing.rule": (
        ([], [{"model": "llama*", "require": ["gpu"], "forbid": []}]),
        ([{"require": []}], [{"model": "x", "requires": []}], [{"model": "x", "forbid": ["A"]}], {"model": "x"}),
    ),
    "discovery.mdns": ((True, False), (1, "off")),
    "discovery.ipv6": ((True, False), (0,)),
    "discovery.scan_interval": ((2, 5.5, 60), (1.9, 61, "none")),
    "discovery.static_peers": (
        ([], ["spark.lan", "192.168.1.7:24318", "fe80::1%eth0", "[::1]:1"], [f"h{n}" for n in range(64)]),
        ([""], ["http://spark"], ["spark:0"], ["a/b"], ["spark", "spark"], [f"h{n}" for n in range(65)]),
    ),
    "telemetry.audience": (("subnet", "members"), ("all", True)),
    "telemetry.interval": ((0.5, 1, 10), (0.4, 0, 11, "none")),
    "telemetry.gpu": (("auto", "off"), ("on", True)),
    "telemetry.unified": (
        ([], ["GPU-1b2c", "0000:c4:00.0"]),
        ([""], ["a b"], ["x" * 64], ["a", "a"], "a", [5]),
    ),
    "engines.ollama.mode": (("auto", "on", "off"), ("yes", True)),
    "engines.ollama.binary": (("/usr/bin/ollama",), (1,)),
    "engines.ollama.port": ((1, 65535), (0, 65536, 11434, 1234, 14300, 14318, 14323)),
    "engines.ollama.slots": ((1, 64), (0, 65, "none")),
    "engines.ollama.drain_seconds": ((0, 600), (-1, 601, "none")),
    "engines.ollama.restart_wedged": ((True, False), (1,)),
    "embedded": (("auto", "on", "off"), ("yes",)),
    "jobs.history_days": ((1, 365), (0, 366, 1.5)),
    "jobs.history_rows": ((0, 1000000), (-1, 1000001)),
    "log.level": (("debug", "info", "warn", "error"), ("warning", 1)),
    "log.levels": (({}, {"pair.proxy": "debug"}), ({"pair": "loud"}, {"pair": {"proxy": "debug"}}, "debug")),
    "log.file": ((True,), ("yes",)),
    "log.max_bytes": ((MIB, GIB, "1 GiB"), (MIB - 1, GIB + 1)),
    "log.keep": ((1, 100), (0, 101)),
    "log.stdout": (("text", "json", "off"), (True, "none")),
    "metrics.enabled": ((True,), (1,)),
    "metrics.auth": (("none", "token"), ("basic",)),
    "console.allowed_origins": (
        (["https://pair.example"],),
        (["pair.example"], ["https://*.x"], ["null"], ["ftp://x"]),
    ),
    "service.drain": ((0, 3), (-1, 601, "none")),
    "service.stop_deadline": ((10, 900), (4.9, 901, "none")),
    "watchdog.stall": ((0.5, 30), (0.4, 31, "none", 0)),
}

BY_URL = ("kind", "url", "remote", "models", "routes", "credential_file", "credential_env")


def given(key: str, value: object) -> SettingsFile:
    """A file that sets ``key``, as TOML writes it."""
    section, _, name = key.rpartition(".")
    head = f"[{section}]\n" if section else ""
    return SettingsFile("pair.toml", f"{head}{name} = {toml(value)}\n")


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {toml(each)}' for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(each) for each in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in value) + '"'
    return str(value).lower()


class BoundsTests(SynchronousTestCase):
    def test_every_key_is_here(self) -> None:
        """No key is without its bounds in this test (OP-11); those of engines by URL have their own."""
        tested = {key.replace(".ollama.", ".<id>.") if key.startswith("engines.") else key for key in BOUNDS}
        self.assertEqual(tested | {f"engines.<id>.{name}" for name in BY_URL}, set(ROWS))

    def test_allowed(self) -> None:
        """What the operations page allows is taken, to the edge."""
        for key, (allowed, _) in BOUNDS.items():
            for value in allowed:
                load(file=given(key, value))

    def test_not_allowed(self) -> None:
        """What lies just beyond is refused with one problem that names the key (OP-9)."""
        for key, (_, refused) in BOUNDS.items():
            for value in refused:
                try:
                    load(file=given(key, value))
                except SettingsError as error:
                    self.assertEqual([problem.key for problem in error.problems], [key], str(error))
                else:
                    self.fail(f"{key} = {value!r} was taken")

    def test_none_is_zero(self) -> None:
        """The text ``none`` means 0 where it is allowed (OP-10)."""
        self.assertEqual(load(file=given("proxy.engine_wait_max", "none")).settings.proxy.engine_wait_max, 0)

    def test_sizes(self) -> None:
        """Sizes are bytes, or a number with a unit of 1024 (OP-10)."""
        for text, count in (("2048 KiB", 2 * MIB), ("3 MiB", 3 * MIB), ("1GiB", GIB)):
            self.assertEqual(load(file=given("log.max_bytes", text)).settings.log.max_bytes, count)


class ExampleTests(SynchronousTestCase):
    def test_sets_nothing(self) -> None:
        """The example as it is given leaves everything at its default, and locks nothing (OP-8)."""
        loaded = load(file=SettingsFile("example", example()))
        self.assertEqual((loaded.settings, loaded.sources), (Settings(), {}))

    def test_round_trip(self) -> None:
        """With its keys switched on it gives the defaults again, from the file."""
        text = re.sub(r"^#(?=[a-z])", "", example(), flags=re.MULTILINE)
        loaded = load(file=SettingsFile("example", text))
        defaults = Settings()
        self.assertEqual(loaded.settings.engines["ollama"], defaults.engine("ollama"))
        self.assertEqual(loaded.with_stored({}).settings.proxy, defaults.proxy)
        for row in ROWS.values():
            key = row.path.replace("<id>", "ollama")
            self.assertEqual(loaded.value(key), row.default, key)
            self.assertEqual(loaded.source(key).name, "default" if row.default is None else "file")

    def test_every_key_has_a_comment(self) -> None:
        """Each key is there once, under a line that says what it is for (OP-8)."""
        lines = example().splitlines()
        for row in ROWS.values():
            name = row.path.rpartition(".")[2]
            index = next(
                i for i, line in enumerate(lines) if row.key.text in line and re.match(rf"# ?{name} =", lines[i + 1])
            )
            self.assertTrue(lines[index].startswith("# "))


class TableTests(SynchronousTestCase):
    """The settings table of the operations page (OP-11)."""

    def setUp(self) -> None:
        page = Path(pair.__file__).parents[1] / "docs" / "spec" / "operations.md"
        if not page.exists():
            raise SkipTest("the documentation is not beside the package")
        text = page.read_text()
        self.table = text.split("\n## Settings\n")[1].split("\n## ")[0]

    def keys(self, text: str, top: bool = False) -> list[str]:
        """The keys named in ``text``; a name without a section is in that of the one before it."""
        found: list[str] = []
        for name in re.findall(r"`\[*([a-z0-9_.<>]+)\]*`", text):
            if "." not in name and not top:
                section = found[-1] if found[-1] == "routing.rule" else found[-1].rpartition(".")[0]
                name = f"{section}.{name}"
            found.append(name)
        return [key for key in found if not key.startswith("routing.rule.")]

    def test_same_keys(self) -> None:
        """Its keys are those of the structs, and those that it says come with later parts."""
        rows = [line.split("|")[1] for line in self.table.splitlines() if line.startswith("| `")]
        documented = [key for row in rows for key in self.keys(row, top="top level" in row)]
        later = next(line for line in self.table.splitlines() if line.startswith("Keys that come with later parts: "))
        expected = {*ROWS, *self.keys(later.replace("`resume_operations`", ""))} | {"resume_operations"}
        self.assertEqual(set(documented) ^ expected, set())
        self.assertEqual(len(documented), len(set(documented)))

    def test_same_defaults(self) -> None:
        """Where it gives a default for one key as a value, the structs have it."""
        described = {row.key: row.default for row in describe()}
        compared = 0
        for line in self.table.splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if not line.startswith("| `") or "/" in cells[3] or "…" in cells[3]:
                continue
            default = cells[3].strip("`")
            for key in self.keys(cells[1], top="top level" in cells[1]):
                if key in described and re.fullmatch(r'[\d.]+|true|false|none|"[^"]*"|\[.*\]', default):
                    known = described[key] if described[key] != "[]" or default != "none" else "none"
                    self.assertEqual(known, default, key)
                    compared += 1
        self.assertGreater(compared, 20)
