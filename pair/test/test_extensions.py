"""Tests of kinds and policies that others bring."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides, implementer

import pair.plugins
from pair.extensions import extended
from pair.interfaces import IRoutingPolicy
from pair.routing.policies.pressure import PressurePolicy

if TYPE_CHECKING:
    from collections.abc import Iterable


@implementer(IRoutingPolicy)
class Policy:
    """One of somebody else's."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def rank(self, request: object, candidates: object, view: object) -> tuple[()]:
        return ()


class Lacking:
    """One that promises what it does not have."""

    name = "lacking"


directlyProvides(lacking := Lacking(), IRoutingPolicy)


def finds(*plugins: object) -> Any:
    def found(interface: object, package: object) -> Iterable[object]:
        return plugins

    return found


class ExtendedTests(SynchronousTestCase):
    """EN-1, RT-57."""

    def test_ours_come_first(self) -> None:
        """Plugins stand behind what comes with PAIR, in the order in which they are found."""
        ours, other = PressurePolicy(), Policy("lottery")
        found = extended((ours,), IRoutingPolicy, finds(other))
        self.assertEqual((found.members, found.refused), ((ours, other), ()))

    def test_bad_ones_cost_nobody_else_anything(self) -> None:
        """A taken, malformed or missing name and a missing method are refused by name; the others work."""
        good = Policy("lottery")
        bad = (Policy("pressure"), Policy("No Name"), Policy(None), lacking, Policy("lottery"))
        found = extended((PressurePolicy(),), IRoutingPolicy, finds(good, *bad))
        self.assertEqual([each.name for each in found.members], ["pressure", "lottery"])
        self.assertEqual(found.refused, ("pressure", "No Name", "Policy", "lacking", "lottery"))

    def test_found_by_twisted(self) -> None:
        """A module in a ``pair/plugins`` folder of the path is found without being named anywhere."""
        folder = Path(self.mktemp()) / "pair" / "plugins"
        folder.mkdir(parents=True)
        (folder / "lottery.py").write_text(
            "from twisted.plugin import IPlugin\n"
            "from zope.interface import classImplements\n"
            "from pair.test.test_extensions import Policy\n"
            "classImplements(Policy, IPlugin)\n"
            "policy = Policy('lottery')\n"
        )
        self.patch(pair.plugins, "__path__", [*pair.plugins.__path__, str(folder)])
        self.addCleanup(sys.modules.pop, "pair.plugins.lottery", None)
        found = extended((PressurePolicy(),), IRoutingPolicy, getPlugins)
        self.assertEqual([each.name for each in found.members], ["pressure", "lottery"])
