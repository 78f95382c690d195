"""What a command asks of the person who gave it: a code, and whether to go on.

A code comes from a prompt that does not show it, from standard input or from
the environment, never from an argument, which others could read (CL-101).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pair.admin.failures import Failed
from pair.privacy import Secret

if TYPE_CHECKING:
    from pair.admin.session import Session

VARIABLE = "PAIR_CODE"

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
"""For a command that asks by :func:`confirm`."""


def read_code(session: Session, from_stdin: bool, prompt: str) -> Secret:
    """The code.

    Args:
        session: It has standard input, the environment and the terminal.
        from_stdin: Take the first line of standard input.
        prompt: What is written to the terminal, where it comes from there.

    Raises:
        click.UsageError: There is no way to get one.
    """
    if from_stdin:
        return Secret(session.stdin.readline().strip())
    if session.environ.get(VARIABLE):
        return Secret(session.environ[VARIABLE])
    if not session.stdin.isatty():
        raise click.UsageError(f"There is no terminal to type the code: give it by --code-stdin or {VARIABLE}.")
    return Secret(session.ask(prompt))


def confirm(session: Session, question: str, yes: bool) -> None:
    """Ask before something is lost (UI-104).

    Args:
        session: It has the terminal.
        question: Names the object and what is lost.
        yes: It was answered beforehand.

    Raises:
        click.UsageError: There is no terminal to ask at.
        Failed: The answer is no.
    """
    if yes:
        return
    if not session.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at: give --yes if it is to be done.")
    session.err.write(f"{question} [y/N] ")
    session.err.flush()
    if session.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failed("not_confirmed", "Nothing was done.")
