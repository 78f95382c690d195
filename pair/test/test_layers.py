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


class LayerTests(SynchronousTestCase):
    def test_only_the_top_imports_the_reactor(self) -> None:
        """Everything below ``tap`` and ``node`` is handed its reactor or clock (AR-3)."""
        found = {path.relative_to(ROOT).as_posix() for path in modules() if imports_reactor(path)}
        self.assertLessEqual(found, {"tap.py", "node.py"})

    def test_files_stay_small(self) -> None:
        """A file over 400 lines holds two things (House style)."""
        long = {path.name: lines for path in modules() if (lines := path.read_text().count("\n")) > 400}
        self.assertEqual(long, {})
