"""What every command has at hand: the options given, the service, and the two streams."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from pair.admin import places
from pair.admin.api import Api, Fetch, Follow, fetch, follow
from pair.settings.places import state_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import RenderableType


class OutputClosed(Exception):  # noqa: N818 - nobody reads on: that is no fault
    """The reader of our output has left (UI-107)."""


@dataclass
class GlobalOptions:
    """The options that any command takes, before it or behind it."""

    state_dir: str | None = None
    url: str | None = None
    token_file: str | None = None
    json: bool = False
    quiet: bool = False
    no_color: bool = False
    timeout: float = 15.0


@dataclass
class Session:
    """One run of ``pair-admin``.

    Attributes:
        environ: the environment.
        fetch: makes a request.
        follow: makes one whose answer goes on.
        out: gets the result, and nothing else.
        err: gets hints, questions and failures.
        stdin: standard input.
        ask: writes a prompt to the terminal and reads a line there that is not shown.
        now: epoch milliseconds.
        sleep: lets so many seconds pass.
        options: as given.
    """

    environ: Mapping[str, str]
    now: Callable[[], int]
    fetch: Fetch = fetch
    follow: Follow = follow
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    stdin: TextIO = field(default_factory=lambda: sys.stdin)
    ask: Callable[[str], str] = getpass
    sleep: Callable[[float], None] = time.sleep
    options: GlobalOptions = field(default_factory=GlobalOptions)

    @property
    def state(self) -> Path:
        """The state directory."""
        return state_directory(self.options.state_dir, self.environ)

    @cached_property
    def api(self) -> Api:
        """The service.

        Raises:
            Unreachable: There is no word of a running one.
        """
        options = self.options
        if options.url is None:
            start = places.START + (self._naming("state_dir") or places.IN_A_CHECKOUT)
            url = places.control_file(self.state, start).url
            hint = f"{self.state / 'control.json'} says that PAIR is there. To start it: {start}"
        else:
            url = options.url if "://" in options.url else f"http://{options.url}"
            hint = "Is that its address?"
        path = Path(options.token_file) if options.token_file else self.state / "control.token"
        return Api(url, lambda: places.token(path), self.fetch, self.follow, options.timeout, hint)

    def command(self, words: str) -> str:
        """``pair-admin`` with ``words``, as it has to be given to mean the same service again."""
        return f"pair-admin {words}{self._naming('state_dir', 'url', 'token_file')}"

    def _naming(self, *options: str) -> str:
        """Those of ``options`` that were given, as they are written."""
        given = {f"--{name.replace('_', '-')}": getattr(self.options, name) for name in options}
        return "".join(f" {name} {shlex.quote(value)}" for name, value in given.items() if value is not None)

    def show(self, body: bytes, render: Callable[[], RenderableType]) -> None:
        """The result: ``body`` with ``--json``, else what ``render`` makes of it."""
        if self.options.json:
            self.write(msgspec.json.format(body, indent=2 if self.out.isatty() else 0).decode() + "\n")
        else:
            self.write(self._rendered(render()))

    def show_value(self, value: Any, render: Callable[[], RenderableType]) -> None:
        """As :meth:`show`, of a value that is not yet JSON."""
        self.show(msgspec.json.encode(value), render)

    def line(self, value: Any, render: Callable[[], RenderableType]) -> None:
        """As :meth:`show_value`, where more follows: with ``--json`` one line, and at once."""
        if self.options.json:
            self.write(msgspec.json.encode(value).decode() + "\n")
        else:
            self.show_value(value, render)

    def hint(self, text: str) -> None:
        """Something by the way, for a person."""
        if not (self.options.quiet or self.options.json):
            print(text, file=self.err)

    def write(self, text: str) -> None:
        """Put ``text`` out.

        Raises:
            OutputClosed: Nobody reads it.
        """
        try:
            self.out.write(text)
            self.out.flush()
        except BrokenPipeError:
            raise OutputClosed from None

    def _rendered(self, renderable: RenderableType) -> str:
        # Only now: with --json the start to exit is to be short.
        from rich.console import Console

        terminal = self.out.isatty()
        console = Console(
            file=self.out,
            width=None if terminal else 10_000,  # a line that is cut is of no use to a program
            no_color=self.options.no_color or bool(self.environ.get("NO_COLOR")),
            markup=False,  # what others named is no instruction
            highlight=False,
            emoji=False,
        )
        with console.capture() as captured:
            console.print(renderable, crop=False)
        return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())
