"""Tests of where programs are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.data import EMBEDDED_WEIGHTS
from pair.engines.facts import Found, HostFacts
from pair.engines.kinds.embedded import Embedded
from pair.engines.locate import LLAMA_SERVER, OLLAMA, Program, locate

if TYPE_CHECKING:
    from collections.abc import Mapping

HOME = {"linux": "/home/u", "darwin": "/Users/u", "win32": r"C:\Users\u"}
PYTHON = {"linux": "/env/bin/python", "darwin": "/env/bin/python", "win32": r"C:\env\Scripts\python.exe"}
WINDOWS = {"LOCALAPPDATA": r"C:\Users\u\AppData\Local", "ProgramFiles": r"C:\Program Files"}


def facts(
    platform: str = "linux",
    *,
    programs: Mapping[str, str] | None = None,
    files: tuple[str, ...] = (),
    search_path: tuple[str, ...] = (),
    binary: str | None = None,
    modules: tuple[str, ...] = (),
) -> HostFacts:
    """A host where ``programs`` (path and real path) are all that can be run; None: everything can."""
    return HostFacts(
        platform=platform,
        home=HOME[platform],
        search_path=search_path,
        data_dir=f"{HOME[platform]}/.local/share/pair",
        python=PYTHON[platform],
        modules=frozenset(modules),
        is_executable=lambda path: programs is None or path in programs,
        is_file=lambda path: path in files,
        real_path=lambda path: path if programs is None else programs[path],
        binary=binary,
        environment=WINDOWS if platform == "win32" else {},
    )


class TableTests(SynchronousTestCase):
    """The table of the page, row by row, on a host where every path is a program."""

    def check(self, program: Program, platform: str, path: tuple[str, ...], expected: str) -> None:
        found = locate(program, facts(platform, search_path=path))
        self.assertEqual([f"{each.found_by} {each.path}" for each in found], expected.split("\n"))

    def test_ollama_on_linux(self) -> None:
        """Search path, then the known folders."""
        self.check(
            OLLAMA,
            "linux",
            ("/opt/a", "/opt/b"),
            "path /opt/a/ollama\npath /opt/b/ollama\nknown /usr/local/bin/ollama\nknown /usr/bin/ollama\n"
            "known /opt/ollama/bin/ollama\nknown /snap/bin/ollama\nknown /home/u/.local/bin/ollama\n"
            "known /home/linuxbrew/.linuxbrew/bin/ollama\nknown /home/u/.nix-profile/bin/ollama\n"
            "known /run/current-system/sw/bin/ollama",
        )

    def test_ollama_on_macos(self) -> None:
        """The application comes before the search path."""
        self.check(
            OLLAMA,
            "darwin",
            ("/opt/a",),
            "app /Applications/Ollama.app/Contents/Resources/ollama\n"
            "app /Users/u/Applications/Ollama.app/Contents/Resources/ollama\npath /opt/a/ollama\n"
            "known /opt/homebrew/bin/ollama\nknown /usr/local/bin/ollama\nknown /opt/local/bin/ollama",
        )

    def test_ollama_on_windows(self) -> None:
        """Folders named by variables, and the ending of programs."""
        self.check(
            OLLAMA,
            "win32",
            (r"D:\bin",),
            "known C:\\Users\\u\\AppData\\Local\\Programs\\Ollama\\ollama.exe\n"
            "known C:\\Program Files\\Ollama\\ollama.exe\npath D:\\bin\\ollama.exe\n"
            "known C:\\Users\\u\\scoop\\apps\\ollama\\current\\ollama.exe",
        )

    def test_llama_server(self) -> None:
        """The scripts folder of our own environment comes last; on Windows, the links of WinGet."""
        self.check(
            LLAMA_SERVER,
            "linux",
            ("/opt/a",),
            "path /opt/a/llama-server\nknown /usr/local/bin/llama-server\nknown /usr/bin/llama-server\n"
            "known /home/u/.local/bin/llama-server\nknown /home/linuxbrew/.linuxbrew/bin/llama-server\n"
            "known /env/bin/llama-server",
        )
        self.check(
            LLAMA_SERVER,
            "darwin",
            (),
            "known /usr/local/bin/llama-server\nknown /usr/bin/llama-server\n"
            "known /Users/u/.local/bin/llama-server\nknown /opt/homebrew/bin/llama-server\n"
            "known /env/bin/llama-server",
        )
        self.check(
            LLAMA_SERVER,
            "win32",
            (),
            "known C:\\Users\\u\\AppData\\Local\\Microsoft\\WinGet\\Links\\llama-server.exe",
        )


class OrderTests(SynchronousTestCase):
    def test_a_stopped_ollama_is_found(self) -> None:
        """``/usr/local/bin/ollama`` is found with how it was found (EN-6)."""
        host = facts(programs={"/usr/local/bin/ollama": "/usr/local/bin/ollama"}, search_path=("/usr/bin",))
        self.assertEqual(locate(OLLAMA, host), (Found("/usr/local/bin/ollama", "known"),))

    def test_the_setting_comes_first(self) -> None:
        """``engines.<id>.binary`` beats the table; what cannot be run is no hit, set or not."""
        programs = {"/mine/ollama": "/mine/ollama", "/usr/bin/ollama": "/usr/bin/ollama"}
        host = facts(programs=programs, search_path=("/usr/bin",), binary="/mine/ollama")
        self.assertEqual([each.found_by for each in locate(OLLAMA, host)], ["setting", "path"])
        host = facts(programs=programs, search_path=("/usr/bin",), binary="/gone/ollama")
        self.assertEqual([each.found_by for each in locate(OLLAMA, host)], ["path"])

    def test_one_program_under_two_names_counts_once(self) -> None:
        """Duplicates by real path are dropped; the first stays (EN-6)."""
        real = "/opt/ollama/bin/ollama"
        host = facts(
            programs={"/usr/bin/ollama": real, "/usr/local/bin/ollama": real, real: real}, search_path=("/usr/bin",)
        )
        self.assertEqual(locate(OLLAMA, host), (Found("/usr/bin/ollama", "path"),))

    def test_relative_entries_of_the_search_path_are_passed_over(self) -> None:
        """They would name a program by the folder that we happen to be in."""
        host = facts(programs={"./ollama": "/x", "ollama": "/x", "bin/ollama": "/x"}, search_path=(".", "", "bin"))
        self.assertEqual(locate(OLLAMA, host), ())

    def test_a_variable_that_is_not_set(self) -> None:
        """Its folder is passed over."""
        host = msgspec.structs.replace(facts("win32"), environment={})
        self.assertEqual(
            [each.path for each in locate(OLLAMA, host)], [r"C:\Users\u\scoop\apps\ollama\current\ollama.exe"]
        )

    def test_no_home(self) -> None:
        """The folders in it are passed over."""
        host = msgspec.structs.replace(facts(), home="")
        self.assertNotIn("/.local/bin/ollama", [each.path for each in locate(OLLAMA, host)])

    def test_another_platform(self) -> None:
        """It has no row: only the setting is left."""
        host = msgspec.structs.replace(facts(binary="/usr/pkg/bin/ollama"), platform="netbsd10")
        self.assertEqual(locate(OLLAMA, host), (Found("/usr/pkg/bin/ollama", "setting"),))


class EmbeddedTests(SynchronousTestCase):
    WEIGHTS = f"/home/u/.local/share/pair/models/{EMBEDDED_WEIGHTS.file}"
    SERVER = "/usr/bin/llama-server"

    def found(self, *, server: bool, package: bool, weights: bool) -> list[tuple[str, str, str | None]]:
        host = facts(
            programs={self.SERVER: self.SERVER} if server else {},
            files=(self.WEIGHTS,) if weights else (),
            modules=("xllamacpp",) if package else (),
        )
        found = Embedded().locate(host)
        self.assertEqual({each.model for each in found}, {self.WEIGHTS})
        return [(each.found_by, each.path, each.missing) for each in found]

    def test_a_server_is_preferred_to_the_package(self) -> None:
        """Both with the same weights (EN-106)."""
        child = ("package", "/env/bin/python", None)
        self.assertEqual(self.found(server=True, package=True, weights=True), [("known", self.SERVER, None), child])
        self.assertEqual(self.found(server=True, package=False, weights=True), [("known", self.SERVER, None)])
        self.assertEqual(self.found(server=False, package=True, weights=True), [child])

    def test_weights_missing(self) -> None:
        """It says so, with the one command that mends it and the licence (EN-107)."""
        for server in (True, False):
            for _, _, missing in self.found(server=server, package=True, weights=False):
                self.assertEqual(
                    missing,
                    "The weights of SmolLM2-135M-Instruct (98 MB, Apache-2.0) are missing; "
                    "this fetches them: /env/bin/python -m pair.engines.weights --into ~/.local/share/pair/models",
                )

    def test_package_missing(self) -> None:
        """Without a server of the host the package is the first thing that is missing (EN-107)."""
        for weights in (True, False):
            ((_, _, missing),) = self.found(server=False, package=False, weights=weights)
            assert missing is not None
            self.assertIn("pip install 'personal-ai-router[embedded]'", missing)
