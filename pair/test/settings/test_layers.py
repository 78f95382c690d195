"""Tests of :mod:`pair.settings.layers`: sources, precedence, and problems told together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.settings import Loaded, Settings, SettingsError, SettingsFile, load

if TYPE_CHECKING:
    from collections.abc import Callable


def in_file(text: str) -> SettingsFile:
    return SettingsFile("pair.toml", text)


def problems(error: SettingsError) -> list[str]:
    return [str(problem) for problem in error.problems]


LAYERS: dict[str, Callable[[int], Loaded]] = {
    # From the lowest to the highest; each gives proxy.max_active as its source does.
    "file": lambda value: load(file=in_file(f"[proxy]\nmax_active = {value}")),
    "environment": lambda value: load(
        environ={"PAIR_SET__PROXY__MAX_ACTIVE": str(value)}, file=in_file("[proxy]\nmax_active = 20")
    ),
    "option": lambda value: load(
        [f"proxy.max_active={value}"],
        {"PAIR_SET__PROXY__MAX_ACTIVE": "30"},
        in_file("[proxy]\nmax_active = 20"),
    ),
}


class PrecedenceTests(SynchronousTestCase):
    def test_default(self) -> None:
        """With nothing given all is at its default, and nothing is locked (OP-7)."""
        loaded = load()
        self.assertEqual(loaded.settings, Settings())
        self.assertEqual((loaded.source("proxy.max_active").name, loaded.lock("proxy.max_active")), ("default", None))

    def test_each_source(self) -> None:
        """Option beats environment beats file; the value keeps its source, which locks it (OP-7)."""
        for name, layered in LAYERS.items():
            loaded = layered(77)
            self.assertEqual(loaded.settings.proxy.max_active, 77, name)
            self.assertEqual(loaded.source("proxy.max_active").name, name)
            self.assertEqual(loaded.lock("proxy.max_active"), loaded.source("proxy.max_active"))

    def test_option_over_file(self) -> None:
        """An option beats the file where the environment says nothing (OP-7)."""
        loaded = load(["proxy.max_active=77"], {}, in_file("[proxy]\nmax_active = 20"))
        self.assertEqual(loaded.settings.proxy.max_active, 77)

    def test_stored_over_default(self) -> None:
        """A stored choice beats the default and locks nothing (OP-7)."""
        loaded = load().with_stored({"proxy.ports.ollama": 9000})
        self.assertEqual(loaded.settings.proxy.ports.ollama, 9000)
        self.assertEqual(
            (loaded.source("proxy.ports.ollama").name, loaded.lock("proxy.ports.ollama")), ("stored", None)
        )

    def test_stored_under_each(self) -> None:
        """A stored choice is without effect where option, environment or file set the key (OP-7)."""
        for layered in LAYERS.values():
            loaded = layered(77)
            self.assertEqual(loaded.with_stored({"proxy.max_active": 99}), loaded)

    def test_stored_engine(self) -> None:
        """A stored choice for an engine leaves what else is set of it, and of other engines."""
        loaded = load(["engines.ollama.slots=3", "engines.lmstudio.slots=4"])
        engines = loaded.with_stored({"engines.ollama.port": 9000}).settings.engines
        self.assertEqual((engines["ollama"].slots, engines["ollama"].port, engines["lmstudio"].slots), (3, 9000, 4))

    def test_stored_by_another_version(self) -> None:
        """A stored choice that is unknown or no longer allowed has no effect and stops nothing."""
        loaded = load()
        self.assertEqual(loaded.with_stored({"no.such": 1, "proxy.max_active": 1, "engines.x": {}}), loaded)

    def test_last_option(self) -> None:
        """Of two options for the same key the last counts."""
        self.assertEqual(load(["jobs.history_days=1", "jobs.history_days=2"]).settings.jobs.history_days, 2)

    def test_keys_are_merged(self) -> None:
        """Each key has its own source: a section in the file does not hide a default or a variable."""
        loaded = load(environ={"PAIR_SET__LOG__KEEP": "3"}, file=in_file('[log]\nstdout = "json"'))
        self.assertEqual(
            (loaded.settings.log.keep, loaded.settings.log.stdout, loaded.settings.log.file), (3, "json", True)
        )

    def test_takeover(self) -> None:
        """The takeover rule is one for all facades, or a table by facade; one that it leaves out has the default."""
        proxy = load(["proxy.takeover=never"]).settings.proxy
        self.assertEqual([proxy.takeover_of(facade) for facade in ("ollama", "lmstudio")], ["never", "never"])
        proxy = load(['proxy.takeover={lmstudio="never"}']).settings.proxy
        self.assertEqual([proxy.takeover_of(facade) for facade in ("ollama", "lmstudio")], ["auto", "never"])

    def test_value_by_key(self) -> None:
        """A value can be asked for by its key, also of an engine that nobody set."""
        loaded = load(["engines.ollama.slots=3"])
        self.assertEqual((loaded.value("engines.ollama.slots"), loaded.value("engines.lmstudio.slots")), (3, None))
        self.assertEqual(loaded.value("proxy.ports.ollama"), 11434)


class TextTests(SynchronousTestCase):
    """Values that come as bare text, from options and the environment."""

    def test_toml(self) -> None:
        """A text is TOML where it can be."""
        settings = load(
            ['node.bind=["127.0.0.1"]', "proxy.explain = true", 'log.levels={"pair.proxy"="debug"}']
        ).settings
        self.assertEqual(settings.node.bind, ("127.0.0.1",))
        self.assertTrue(settings.proxy.explain)
        self.assertEqual(settings.log.levels, {"pair.proxy": "debug"})

    def test_bare(self) -> None:
        """Else it is the text itself; and a key that is a text takes what looks like something else."""
        settings = load(["log.stdout=json", "node.name=42", "proxy.max_body=2 MiB"]).settings
        self.assertEqual((settings.log.stdout, settings.node.name, settings.proxy.max_body), ("json", "42", 2 << 20))
        self.assertEqual(load(["node.name=true"]).settings.node.name, "true")
        self.assertEqual(load(['node.name="quoted"']).settings.node.name, "quoted")
        self.assertEqual(load(["node.name=a=b # c"]).settings.node.name, "a=b # c")

    def test_no_second_key(self) -> None:
        """A text cannot bring another key along."""
        error = self.assertRaises(SettingsError, load, ["proxy.max_active=20\nother=1"])
        self.assertEqual(len(error.problems), 1)

    @given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20))
    def test_any_name(self, name: str) -> None:
        """Any text that is no quoted TOML text is the node's name as it stands, but for spaces around it."""
        name = name.strip()
        if name and name[0] not in "\"'":
            self.assertEqual(load([f"node.name={name}"]).settings.node.name, name)

    def test_absurd(self) -> None:
        """A text that no parser wants is a text."""
        self.assertRaises(SettingsError, load, ["node.labels=" + "[" * 100_000])

    def test_environment_names(self) -> None:
        """Sections are joined by two underscores; other PAIR variables are ignored (OP-5)."""
        environ = {
            "PAIR_SET__PROXY__PORTS__LMSTUDIO": "0",
            "PAIR_SET__EMBEDDED": "off",
            "PAIR_SET__ENGINES__OLLAMA__MODE": "off",
            "PAIR_STATE_DIR": "/x",
            "PAIR_SETTINGS": "x",
        }
        settings = load(environ=environ).settings
        self.assertEqual((settings.proxy.ports.lmstudio, settings.embedded), (0, "off"))
        self.assertEqual(settings.engines["ollama"].mode, "off")

    def test_log_level(self) -> None:
        """PAIR_LOG_LEVEL is short for log.level, empty it is not there; an option beats it."""
        environ = {"PAIR_LOG_LEVEL": "debug"}
        self.assertEqual(load(environ=environ).settings.log.level, "debug")
        self.assertEqual(load(["log.level=warn"], environ).settings.log.level, "warn")
        self.assertEqual(load(environ={"PAIR_LOG_LEVEL": ""}).settings.log.level, "info")


class ProblemTests(SynchronousTestCase):
    """What is wrong is told, all of it, in words that help (OP-9)."""

    def refused(self, *args: object, **kwargs: object) -> list[str]:
        return problems(self.assertRaises(SettingsError, load, *args, **kwargs))

    def test_three_together(self) -> None:
        """Problems of all sources are told together, each with its place, key, value and what is allowed."""
        text = "[proxy]\nmax_active = 5\n"
        self.assertEqual(
            self.refused(["log.level=loud"], {"PAIR_SET__LOG__KEEP": "0"}, in_file(text)),
            [
                "pair.toml: proxy.max_active = 5: it is not allowed; allowed: an integer from 16 to 20000",
                "PAIR_SET__LOG__KEEP: log.keep = 0: it is not allowed; allowed: an integer from 1 to 100",
                '--set: log.level = loud: it is not allowed; allowed: "debug", "info", "warn" or "error"',
            ],
        )

    def test_unknown_key(self) -> None:
        """An unknown key is refused with the nearest known one, from each source (OP-5, OP-9)."""
        self.assertEqual(
            self.refused(["proxy.max_bdy=1"], {"PAIR_SET__LOG__LEVLE": "debug"}, in_file("[logs]\nkeep = 5")),
            [
                "pair.toml: logs: there is no such key; did you mean log?",
                "PAIR_SET__LOG__LEVLE: log.levle: there is no such key; did you mean log.level?",
                "--set: proxy.max_bdy: there is no such key; did you mean proxy.max_body?",
            ],
        )

    def test_unknown_engine_key(self) -> None:
        """An unknown key of an engine is told with that engine's name."""
        (problem,) = self.refused(["engines.ollama.slot=1"])
        self.assertEqual(
            problem, "--set: engines.ollama.slot: there is no such key; did you mean engines.ollama.slots?"
        )

    def test_key_in_another_section(self) -> None:
        """A key that exists in another section is found there."""
        (problem,) = self.refused(["history_days=3"])
        self.assertEqual(problem, "--set: history_days: there is no such key; did you mean jobs.history_days?")

    def test_later_key(self) -> None:
        """A key of a later version is unknown in this one."""
        self.assertIn("there is no such key", self.refused(["resume_operations=true"])[0])

    def test_section_as_key(self) -> None:
        """A section where a value is, or a value where a section is."""
        self.assertEqual(
            self.refused(["proxy=1"], {}, in_file("log = 1\n[proxy.max_active]\nx = 1\n[engines]\nollama = 1")),
            [
                "pair.toml: log: it is a section, with keys of its own",
                'pair.toml: proxy.max_active = {"x":1}: it is not allowed; allowed: an integer from 16 to 20000',
                "pair.toml: engines.ollama: it is a section, with keys of its own",
                "--set: proxy: it is a section, with keys of its own",
            ],
        )

    def test_quoted_path(self) -> None:
        """A quoted name with dots in it is no path."""
        self.assertIn("there is no such key", self.refused(file=in_file('"proxy.max_active" = 20'))[0])

    def test_strange_keys(self) -> None:
        """No text as a key does more than be refused."""
        for key in ("", ".", "engines", "engines.", "engines..mode", "engines.<id>.mode", "a.b.c.d", "log.level.x"):
            self.assertEqual(len(self.refused([f"{key}=1"])), 1, key)

    def test_no_value(self) -> None:
        """An option without a value is told its form."""
        self.assertEqual(self.refused(["log.level"]), ["--set: log.level: it must have the form KEY=VALUE"])

    def test_no_toml(self) -> None:
        """A file that is no TOML is told with the place in it."""
        (problem,) = self.refused(file=in_file("[log]\nlevel == 1"))
        self.assertRegex(problem, r"\Apair\.toml: it is not TOML: .*line 2, column \d")
        self.assertIn("nested too deeply", self.refused(file=in_file("x = " + "[" * 100_000))[0])

    def test_unknown_value_not_shown(self) -> None:
        """The value of an unknown key is not shown: it may be a credential in the wrong place (OP-34)."""
        self.assertNotIn("sekrit", "".join(self.refused(["engines.ollama.token=sekrit"])))

    def test_credentials_not_shown(self) -> None:
        """Neither is what stands where a credential may stand (OP-34)."""
        told = self.refused(
            [
                "engines.nas.url=https://me:sekrit@nas/v1",
                "engines.nas.credential_env=sekrit-0123",
                "engines.nas.credential_file=[1, 'sekrit']",
                'proxy.origins=["https://me:sekrit@nas"]',
            ]
        )
        self.assertEqual((len(told), [line for line in told if "sekrit" in line]), (4, []))

    def test_value_cut_and_cleaned(self) -> None:
        """A value is shown in one short line, whatever is in it."""
        (problem,) = self.refused(file=in_file('[log]\nlevel = "' + "\\u202e\\n" + "x" * 500 + '"'))
        self.assertLess(len(problem), 200)
        self.assertTrue(problem.isprintable())

    def test_not_utf8(self) -> None:
        """A value that is not UTF-8 is refused from each source that has bytes; its key can be shown (OP-9)."""
        for value in ("desk\udc80", '"desk\udcff"', '["a\udc80"]'):
            for key in ("node.name", "node.labels", "node.data_dir", "engines.ollama.binary", "proxy.allowed_hosts"):
                (problem,) = self.refused([f"{key}={value}"])
                self.assertIn(f"--set: {key} = ", problem)
                self.assertIn("it is not UTF-8", problem)
        (problem,) = self.refused(environ={"PAIR_SET__NODE__NAME": "desk\udc80"})
        self.assertIn("PAIR_SET__NODE__NAME: node.name = desk: it is not UTF-8", problem)
        for told in (
            self.refused(["node.na\udc80me=1"]),
            self.refused(environ={"PAIR_SET__NODE__NA\udc80ME": "1"}),
            self.refused(["engines.a\udc80.slots=0"]),
        ):
            "".join(told).encode()

    def test_hostile_engine_id(self) -> None:
        """The id of an engine is shown without what plays tricks with a terminal (OP-9)."""
        hostile = '[engines."a\\u001b[2J\\u202eb"]\n'
        for keys in ("mode = 'off'", "slots = 0", "port = 14300", "url = 'http://127.0.0.1'", "no_such = 1"):
            for problem in self.refused(file=in_file(f"{hostile}{keys}\n")):
                self.assertTrue(problem.isprintable(), problem)
        for problem in self.refused(environ={"PAIR_SET__ENGINES__A\x1b__PORT": "14300"}):
            self.assertTrue(problem.isprintable(), problem)

    def test_values_of_toml(self) -> None:
        """Kinds of value that TOML has and we have not: dates, infinities, huge numbers."""
        for value in ("2026-01-01", "nan", "inf", "1" + "0" * 400, "12:00:00"):
            for key in ("proxy.max_active", "proxy.engine_wait_max", "log.levels", "node.labels"):
                section, _, name = key.partition(".")
                self.assertEqual(len(self.refused(file=in_file(f"[{section}]\n{name} = {value}"))), 1, (key, value))
