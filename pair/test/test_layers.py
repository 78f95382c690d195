"""What import-linter cannot see: who imports the global reactor, and that every condition is declared."""

from __future__ import annotations

import ast
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import pair

ROOT = Path(pair.__file__).parent


def modules() -> list[Path]:
    """All of the package but its tests."""
    return [path for path in sorted(ROOT.rglob("*.py")) if "test" not in path.relative_to(ROOT).parts]


def imports_reactor(path: Path) -> bool:
    """Whether a module imports ``twisted.internet.reactor``, in whatever place and form."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "twisted.internet":
            if any(each.name == "reactor" for each in node.names):
                return True
        elif isinstance(node, ast.Import) and any(each.name == "twisted.internet.reactor" for each in node.names):
            return True
    return False


_PROXY = ("browser", "headers", "replies", "bodies", "merge", "outcomes", "endings")
_DISCOVERY = ("txt", "addresses", "claims", "entries", "liveness", "watched", "conflicts", "bursts", "blocked")
_MULTICAST = ("packets", "hearing", "sending")
_FEEDS = ("wire", "codec", "table", "reader")
PURE = (
    *("pair.records", "pair.routing", "pair.privacy", "pair.authority", "pair.telemetry.reduce"),
    *(f"pair.proxy.{each}" for each in _PROXY),
    *("pair.protocols.ndjson", *(f"pair.feeds.{each}" for each in _FEEDS)),
    *("pair.errors.bounds", "pair.jobs.bounds", "pair.jobs.codes", "pair.jobs.merging"),
    *("pair.control.changes", "pair.admin.sse"),
    *("pair.addresses", *(f"pair.discovery.{each}" for each in (*_DISCOVERY, *_MULTICAST))),
)
"""Parts that are values in, values out (AR-2, PX-1)."""

IMPURE = frozenset(("twisted", "asyncio", "threading", "socket", "os", "time", "random", "secrets", "logging"))


def place(module: str) -> Path | None:
    """Where a module of ours is; None for one that is not ours, or none."""
    path = ROOT.parent.joinpath(*module.split("."))
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return found if found.exists() and module.partition(".")[0] == "pair" else None


def imported(path: Path) -> set[str]:
    """What a module imports when it is run, and not only for the type checker."""
    found = set()
    statements = [
        each
        for each in ast.parse(path.read_text()).body
        if not (isinstance(each, ast.If) and isinstance(each.test, ast.Name) and each.test.id == "TYPE_CHECKING")
    ]
    for node in (each for statement in statements for each in ast.walk(statement)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def reached(modules: set[str]) -> set[str]:
    """``modules`` with all that they import, and so on."""
    known: set[str] = set()
    while modules:
        known |= modules
        places = [found for each in modules if (found := place(each)) is not None]
        modules = {each for found in places for each in imported(found)} - known
    return known


class LayerTests(SynchronousTestCase):
    def test_pure_parts(self) -> None:
        """They reach no reactor, clock, randomness, file or log, by whatever way (AR-2, PX-1, RT-1)."""
        names = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in modules()}
        pure = {name for name in names if any(name == each or name.startswith(f"{each}.") for each in PURE)}
        self.assertGreater(len(pure), 20)
        self.assertEqual({each for each in reached(pure) if each.partition(".")[0] in IMPURE}, set())

    def test_only_the_top_imports_the_reactor(self) -> None:
        """Everything below ``tap`` is handed its reactor or clock (AR-3)."""
        found = {path.relative_to(ROOT).as_posix() for path in modules() if imports_reactor(path)}
        self.assertEqual(found, {"tap.py"})

    def test_files_stay_small(self) -> None:
        """A file over 400 lines holds two things (House style)."""
        long = {path.name: lines for path in modules() if (lines := path.read_text().count("\n")) > 400}
        self.assertEqual(long, {})
