"""``twistd pair`` is found from a checkout, an editable install and an installed wheel (OP-66)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

import pair

CHECKOUT = Path(pair.__file__).parent.parent

TWISTD = "import sys; from twisted.scripts.twistd import run; sys.exit(run())"


class Environment:
    """A fresh virtual environment, which sees the packages of the one that runs the tests but not its PAIR.

    No network is needed: what PAIR depends on is there, and PAIR is built from
    a copy of the checkout.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.python = folder / "bin" / "python"
        self.packages = next(folder.glob("lib/python3*/site-packages"))
        self.pip("uninstall", "--yes", "setuptools")  # Python 3.11 brings one that is too old
        # A path in a .pth file has its own .pth files left out, and so the editable install of the checkout.
        others = [path for path in sys.path if path.endswith("site-packages")]
        (self.packages / "others.pth").write_text("\n".join(others) + "\n")

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """What ``python`` with these arguments prints; it must succeed."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=cwd or self.packages.parent,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.packages.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pip(self, command: str, *arguments: str) -> None:
        self.run("-m", "pip", "--disable-pip-version-check", command, *arguments)

    def lists_pair(self, cwd: Path | None = None) -> bool:
        """Whether ``twistd --help`` knows the command."""
        text = self.run("-c", TWISTD, "--help", cwd=cwd)
        return any(line.split()[:2] == ["pair", "The"] for line in text.splitlines())


class InstallTests(SynchronousTestCase):
    """The ways in which PAIR comes onto a machine."""

    def setUp(self) -> None:
        if not (CHECKOUT / "pyproject.toml").exists():
            raise SkipTest("the tests run from an installed package, of which none can be built")
        self.root = Path(self.mktemp()).absolute()
        self.source = self.root / "source"
        self.source.mkdir(parents=True)
        for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
            shutil.copy(CHECKOUT / name, self.source)
        for name in ("pair", "twisted"):
            shutil.copytree(CHECKOUT / name, self.source / name, ignore=shutil.ignore_patterns("__pycache__"))
        (self.source / "twisted" / "plugins" / "dropin.cache").touch()
        self.environment = Environment(self.root / "venv")

    def test_checkout(self) -> None:
        """In a checkout, with nothing installed, the command is there."""
        self.assertFalse(self.environment.lists_pair())
        self.assertTrue(self.environment.lists_pair(cwd=self.source))

    def test_editable(self) -> None:
        """After an editable install it is there in every folder: the checkout is a plain entry of the path."""
        self.environment.pip(
            "install", "--no-index", "--no-deps", "--no-build-isolation", "--editable", str(self.source)
        )
        self.assertTrue(self.environment.lists_pair())

    def test_wheel(self) -> None:
        """The wheel has the plugin and no package of Twisted's; installed it runs, removed it is gone."""
        self.environment.pip(
            *("wheel", "--no-index", "--no-deps", "--no-build-isolation"),
            *("--wheel-dir", str(self.root), str(self.source)),
        )
        (wheel,) = self.root.glob("*.whl")
        self.assertTrue(wheel.name.endswith("-py3-none-any.whl"))
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        self.assertEqual([name for name in names if name.startswith("twisted/")], ["twisted/plugins/pair_plugin.py"])
        self.assertIn("pair/py.typed", names)
        self.assertIn(f"personal_ai_router-{pair.__version__}.dist-info/licenses/LICENSE", names)
        self.assertEqual({name.split("/")[0] for name in names if ".dist-info" not in name}, {"pair", "twisted"})

        self.environment.pip("install", "--no-index", "--no-deps", str(wheel))
        self.assertTrue(self.environment.lists_pair())
        self.assertIn("the settings are valid", self.environment.run("-c", TWISTD, "--nodaemon", "pair", "--check"))

        self.environment.pip("uninstall", "--yes", "personal-ai-router")
        self.assertFalse(self.environment.lists_pair())
        self.assertEqual(list(self.environment.packages.glob("*pair*")), [])
        self.assertEqual(list(self.environment.packages.glob("personal*")), [])
