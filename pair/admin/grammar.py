"""How commands are written: nouns and verbs, and options that may stand anywhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from pair.admin.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

with_session = click.make_pass_decorator(Session)
"""Gives a command its session."""


class Seconds(click.FloatRange):
    """A number within bounds, which ``nan`` is not, though it is beyond neither."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Called by click."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    session = context.find_object(Session)
    if value and session is not None and parameter.name is not None:
        setattr(session.options, parameter.name, value)


def _global_options(hidden: bool) -> list[click.Parameter]:
    """The global options; ``--json`` is shown everywhere."""

    def option(*names: str, help: str, **attributes: Any) -> click.Option:
        shown = not hidden or "--json" in names
        return click.Option(
            names, help=help, hidden=not shown, expose_value=False, callback=_keep, is_eager=True, **attributes
        )

    return [
        option("--state-dir", metavar="DIR", help="The state directory of the service (PAIR_STATE_DIR)."),
        option("--url", metavar="URL", help="The address of the service, instead of the one in its control.json."),
        option("--token-file", metavar="FILE", help="The control token for --url, if not in the state directory."),
        option("--json", is_flag=True, help="Print one JSON value."),
        option("--quiet", is_flag=True, help="Print no hints."),
        option("--no-color", is_flag=True, help="Print without colours (NO_COLOR)."),
        option(
            "--timeout",
            type=Seconds(0.1, 3600),
            metavar="SECONDS",
            help="How long to wait for an answer; 15 if not given.",
        ),
    ]


class Verb(click.Command):
    """A command that does something; the global options may stand behind it too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _global_options(hidden=True)


class Listing(click.Group):
    """Commands whose help has the first sentence of each, whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Called by click, which would cut them at the width of the terminal."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, each.get_short_help_str(200)) for name, each in found if each is not None and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Noun(Listing):
    """Commands for one kind of thing; alone it is its command ``alone``, or does what ``callback`` says."""

    command_class = Verb

    def __init__(
        self,
        name: str,
        help: str,
        callback: Callable[..., Any] | None = None,
        alone: str = "list",
        **attributes: Any,
    ) -> None:
        super().__init__(name, help=help, invoke_without_command=True, callback=callback or self._alone, **attributes)
        self.params += _global_options(hidden=True)
        self._alone_is = alone

    def _alone(self) -> Any:
        context = click.get_current_context()
        if context.invoked_subcommand is not None:
            return None
        if self._alone_is in self.commands:
            return context.invoke(self.commands[self._alone_is])
        raise click.UsageError(f"Say what to do: {', '.join(sorted(self.commands))}.", context)


class Root(Listing):
    """``pair-admin`` itself. The plural of a noun is the same noun."""

    command_class = Verb

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _global_options(hidden=False)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command called ``name``."""
        found = super().get_command(context, name)
        if found is None and name.endswith("s"):
            singular = super().get_command(context, name[:-1])
            found = singular if isinstance(singular, Noun) else None
        return found
