"""Directives that make tables out of the code, so that a page cannot say something else.

``.. settings-table::``, ``.. paths-table:: ollama``, ``.. conditions-table::``,
``.. metrics-table::``, ``.. commands-table::``, and ``.. machine-table::`` with
the place of an Automat machine and of the protocol of its inputs.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from pair.admin.main import cli
from pair.included import CONDITIONS
from pair.metrics import TABLE
from pair.routing.dialects import ROUTES
from pair.settings import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

Row = tuple[str, ...]


class CodeTable(SphinxDirective):
    """A table whose rows come from :meth:`rows`; cells are reStructuredText on one line."""

    head: Row
    widths: Row

    def rows(self) -> Iterable[Row]:
        """The rows below the head."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """See :class:`docutils.parsers.rst.Directive`."""
        lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {' '.join(self.widths)}", ""]
        for row in (self.head, *self.rows()):
            lines += [f"   {'* -' if index == 0 else '  -'} {cell}" for index, cell in enumerate(row)]
        holder = nodes.Element()
        self.state.nested_parse(StringList(lines, source=self.get_source_info()[0]), self.content_offset, holder)
        return holder.children


class SettingsTable(CodeTable):
    """All keys of ``pair.toml``."""

    head = ("Key", "Default", "Allowed", "What it is")
    widths = ("26", "18", "26", "30")

    def rows(self) -> Iterator[Row]:
        """In the order of the structs."""
        for each in describe():
            plain = each.default in ("none", "the name of this machine", "the user's data directory for pair")
            yield _code(each.key), each.default if plain else _code(each.default), _prose(each.allowed), each.text


class PathsTable(CodeTable):
    """The paths of one facade."""

    head = ("Role", "Requests")
    widths = ("20", "80")
    required_arguments = 1

    def rows(self) -> Iterator[Row]:
        """By role, in the order in which the roles first appear."""
        routes = ROUTES[self.arguments[0]]
        for role in dict.fromkeys(each.role for each in routes):
            yield role, ", ".join(_code(each.key) for each in routes if each.role == role)


class ConditionsTable(CodeTable):
    """The error entries that this version can raise."""

    head = ("Entry", "Severity", "What it says")
    widths = ("36", "12", "52")

    def rows(self) -> Iterator[Row]:
        """By id."""
        for each in sorted(CONDITIONS, key=lambda condition: condition.id):
            yield _code(each.id), each.severity, _prose(each.text)


class MetricsTable(CodeTable):
    """The metrics."""

    head = ("Metric", "Kind", "Labels", "What it is")
    widths = ("36", "12", "22", "30")

    def rows(self) -> Iterator[Row]:
        """In the order of the table in the code."""
        for each in TABLE:
            yield _code(each.name), each.kind, ", ".join(map(_code, each.labels)) or "–", each.text


class CommandsTable(CodeTable):
    """The commands of ``pair-admin``."""

    head = ("Command", "What it does")
    widths = ("34", "66")

    def rows(self) -> Iterator[Row]:
        """Those without a noun first, then noun by noun."""
        return _commands(cli, "pair-admin")


class MachineTable(CodeTable):
    """The moves of an Automat machine: those that lead elsewhere or do something."""

    head = ("State", "When", "Next state")
    widths = ("20", "60", "20")
    required_arguments = 3

    def rows(self) -> Iterator[Row]:
        """By state and input, in the order of the declarations as far as they are known."""
        module, machine, protocol = self.arguments
        place = import_module(module)
        inputs = vars(getattr(place, protocol))
        automaton = getattr(place, machine).__automat_automaton__
        moves = [
            (state.name, name, after.name)
            for state, name, after, outputs in automaton.allTransitions()
            if state is not after or any(output.name not in ("returns(None)", "returns(False)") for output in outputs)
        ]
        order = list(inputs)
        for state, name, after in sorted(moves, key=lambda move: (move[0], order.index(move[1]))):
            said = (inspect.getdoc(inputs[name]) or "").split("\n")[0]
            yield state, f"{_code(name.lstrip('_'))}: {said}" if said else _code(name), after


def _commands(command: click.Command, name: str) -> Iterator[Row]:
    if isinstance(command, click.Group):
        for each, child in sorted(command.commands.items(), key=lambda item: isinstance(item[1], click.Group)):
            if not child.hidden:
                yield from _commands(child, f"{name} {each}")
        return
    context = click.Context(command, info_name=name)
    arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
    yield _code(" ".join([name, *arguments])), command.get_short_help_str(200)


def _code(text: str) -> str:
    return f"``{text}``"


def _prose(text: str) -> str:
    """``text`` with nothing in it that is markup."""
    return "".join(f"\\{each}" if each in "*`|_\\" else each for each in text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("settings-table", SettingsTable)
    app.add_directive("paths-table", PathsTable)
    app.add_directive("conditions-table", ConditionsTable)
    app.add_directive("metrics-table", MetricsTable)
    app.add_directive("commands-table", CommandsTable)
    app.add_directive("machine-table", MachineTable)
    return {"parallel_read_safe": True}
