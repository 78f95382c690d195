"""The commands of ``pair-admin``. Each returns its exit code; None is 0."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from pair import __version__
from pair.admin import cluster, errors, events, invitations, jobs, nodes, places, routing
from pair.admin.api import decoded
from pair.admin.directory import listed, names
from pair.admin.failures import CommandError, Failed, Unreachable
from pair.admin.grammar import Noun, Root, with_session
from pair.admin.naming import entry_of
from pair.admin.session import OutputClosed, Session
from pair.privacy import path_text
from pair.settings.places import config_file
from pair.settings.structs import Facade

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

INTERRUPTED = 130
_UNDER_WAY = "running,queued"


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pair-admin")
def cli() -> None:
    """Look after the PAIR node of this machine."""


engine = Noun("engine", help="The engines of this node, and of the other members.")
model = Noun("model", help="The models of this node, and of the other members.")
route = Noun("route", help="Where requests go, and why.")
config = Noun("config", help="The settings file.")
token = Noun("token", help="The control token.")
for _command in (
    *(engine, model, route, config, token),
    *(nodes.node, jobs.job, errors.error, events.events),
    *(cluster.cluster, cluster.identity),
    *(invitations.invite, invitations.pending, invitations.accept, invitations.decline, invitations.cancel),
):
    cli.add_command(_command)
for _command in (routing.select, routing.auto, routing.policy):
    route.add_command(_command)


@cli.command()
@with_session
def status(session: Session) -> None:
    """Show this node at a glance, with what is under way and what is wrong on all nodes."""
    api = session.api
    wrong = decoded(api.get("/errors"))
    view = {
        "service": decoded(api.get("/service")),
        "readiness": decoded(api.public("/readyz")[1]),
        "endpoints": decoded(api.get("/endpoints"))["endpoints"],
        "engines": decoded(api.get("/engines"))["engines"],
        "jobs": decoded(api.get("/jobs", state=_UNDER_WAY))["jobs"],
        "errors": wrong["errors"],
        "hiddenErrors": wrong["hidden"],
        "cluster": _roster(session),
    }
    session.show_value(view, lambda: _tables().status(view, session.now(), names(session)))
    for line in _tables().snippets(view["endpoints"], "curl")[:1] if not session.options.json else ():
        session.hint(f"\nTry it: {line}")


@cli.command()
@click.option("--ready", is_flag=True, help="Ask whether it serves, not only whether it lives.")
@with_session
def health(session: Session, ready: bool) -> int:
    """Tell by the exit code whether the node is well: 0, 1, or 3 when it does not answer."""
    code, body = session.api.public("/readyz" if ready else "/healthz")
    found = decoded(body)
    session.show(body, lambda: _tables().health(found))
    return 0 if code == 200 else 1


_client = click.option("--client", metavar="NAME", help="Print only the commands for one client, such as curl.")


@cli.group(cls=Noun, help="Where applications find PAIR.")
@_client
@click.pass_context
def endpoints(context: click.Context, client: str | None) -> None:
    """Alone it lists."""
    if context.invoked_subcommand is None:
        context.invoke(endpoints_list, client=client)


@endpoints.command("list")
@_client
@with_session
def endpoints_list(session: Session, client: str | None) -> None:
    """Show where applications find PAIR."""
    body = session.api.get("/endpoints")
    found = decoded(body)["endpoints"]
    if client is None or session.options.json:
        session.show(body, lambda: _tables().endpoints(found))
        return
    lines = _tables().snippets(found, client)
    if not lines:
        raise Failed("no_snippet", f"There is no command for {client}; or no facade is bound, or no model there.")
    session.write("".join(f"{line}\n" for line in lines))


@endpoints.command("set")
@click.argument("facade", type=click.Choice(get_args(Facade)))
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Listen there, and nowhere else.")
@click.option("--default", is_flag=True, help="Seek the default port again.")
@click.option("--on/--off", "enabled", default=None, help="Serve it, or do not.")
@with_session
def endpoints_set(session: Session, facade: str, port: int | None, default: bool, enabled: bool | None) -> None:
    """Set the port of a facade, or switch it on or off."""
    if default and port is not None:
        raise click.UsageError("--port and --default exclude each other.")
    if not default and port is None and enabled is None:
        raise click.UsageError("Say what to set: --port, --default, --on or --off.")
    body = b""
    if default:
        body = session.api.delete(f"/endpoints/{facade}/port")
    if port is not None or enabled is not None:
        body = session.api.put(f"/endpoints/{facade}", {"port": port, "enabled": enabled})
    _show(session, body, lambda found: _tables().endpoints([found]))


_of_node = click.option("--node", metavar="NODE", help="Only those of this node: UUID or its beginning, name, self.")


@engine.command("list")
@_of_node
@with_session
def engine_list(session: Session, node: str | None = None) -> None:
    """List the engines of this node and of the other members."""
    body = session.api.get("/engines")
    if node is not None:
        found, uuid = decoded(body), entry_of(node, listed(session))["uuid"]
        found["engines"] = [each for each in found["engines"] if each["node"] == uuid]
        body = msgspec.json.encode(found)
    _show(session, body, lambda found: _tables().engines(found["engines"], names(session)))


@model.command("list")
@_of_node
@with_session
def model_list(session: Session, node: str | None = None) -> None:
    """List the models of this node and of the other members, a line for every copy."""
    body = session.api.get("/models")
    if node is not None:
        found, uuid = decoded(body), entry_of(node, listed(session))["uuid"]
        for each in found["models"]:
            each["copies"] = [copy for copy in each["copies"] if copy["node"] == uuid]
        found["models"] = [each for each in found["models"] if each["copies"]]
        body = msgspec.json.encode(found)
    _show(session, body, lambda found: _tables().models(found["models"], names(session)))


@route.command("show")
@with_session
def route_show(session: Session) -> None:
    """Show where each facade would send a chat now, and what is held against engines."""
    body = session.api.get("/routing")
    _show(session, body, lambda found: _tables().routing(found, session.now(), names(session)))


@route.command("explain")
@click.argument("model", default="")
@click.option("--facade", type=click.Choice(get_args(Facade)), help="Where it comes in; ollama.")
@click.option("--path", metavar="PATH", help="What it asks for; a chat in OpenAI's dialect.")
@with_session
def route_explain(session: Session, model: str, facade: str | None, path: str | None) -> int:
    """Tell where a request for MODEL would go, and why not elsewhere; exit 1 if nowhere. Nothing is sent."""
    asked = {"facade": facade or "ollama", "path": path or "/v1/chat/completions", "model": model}
    body = session.api.post("/routing/explain", asked)
    found = decoded(body)
    session.show(body, lambda: _tables().explanation(found, session.now(), names(session)))
    assumed = [f"{each} {asked[each]}" for each, given in (("facade", facade), ("path", path)) if given is None]
    if assumed:
        session.hint(f"Assumed: {' and '.join(assumed)}. Ask for others with --facade and --path.")
    return 0 if any(each["eligible"] for each in found["candidates"]) else 1


@config.command("check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@with_session
def config_check(session: Session, file: Path | None) -> int:
    """Check the settings, with those of the environment; no service is needed.

    FILE is the settings file; without it, the one that the service would read.
    """
    from pair.admin.config import check

    verdict = check(file or config_file(None, session.environ), session.environ)
    session.show_value(verdict, lambda: str(verdict))
    return 0 if verdict.valid else 1


@config.command("example")
@with_session
def config_example(session: Session) -> None:
    """Print a settings file with every key, its default and a comment."""
    from pair.settings import example

    if session.options.json:
        session.show_value({"example": example()}, str)
    else:
        session.write(example())


@token.command("rotate")
@with_session
def token_rotate(session: Session) -> None:
    """Replace the control token; the old one fails at once."""
    path = places.rotate_token(session.state)
    session.show_value({"rotated": path_text(path)}, lambda: f"The control token is replaced: {path}")


@cli.command()
@with_session
def version(session: Session) -> None:
    """Print the version of this program, and of the service if it runs."""
    try:
        running = str(decoded(session.api.get("/service"))["version"])
    except Unreachable:
        running = None
    shown = f"pair-admin {__version__}, service {running or 'not running'}"
    session.show_value({"version": __version__, "service": running}, lambda: shown)


def run(arguments: Sequence[str], session: Session) -> int:
    """Run one command.

    Returns:
        Its exit code (UI-100).
    """
    try:
        return int(cli.main(list(arguments), prog_name="pair-admin", standalone_mode=False, obj=session) or 0)
    except click.ClickException as wrong:
        # It may be wrong before the option was come to.
        if session.options.json or "--json" in arguments:
            session.out.write(Failed("usage", wrong.format_message()).body.decode() + "\n")
        else:
            wrong.show(session.err)
        return wrong.exit_code
    except click.Abort:
        return INTERRUPTED
    except OutputClosed:
        # Whatever is still in the stream's own buffer must not fail at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), session.out.fileno())
        return 0
    except CommandError as failed:
        if session.options.json:
            session.out.write(failed.body.decode() + "\n")
        else:
            print(f"pair-admin: {failed}", file=session.err)
        return failed.exit_code


def main() -> None:
    """The program."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character still shows the rest.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:], Session(os.environ, now=lambda: round(time.time() * 1000))))


def _roster(session: Session) -> Any:
    """Who is in the cluster; None while membership is not up."""
    try:
        return decoded(session.api.get("/cluster"))
    except Failed as failed:
        if failed.code != "not_ready":
            raise
        return None


def _show(session: Session, body: bytes, render: Callable[[Any], RenderableType]) -> None:
    session.show(body, lambda: render(decoded(body)))


def _tables() -> Any:
    """The module that draws; it is slow to load, and with ``--json`` nothing is drawn."""
    from pair.admin import format  # noqa: A004

    return format
