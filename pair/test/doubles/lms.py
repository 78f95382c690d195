"""A double of ``lms``, LM Studio's command; it drives the double of the server. Its state is in ``LMS_HOME`` (EN-109).

python -m pair.test.doubles.lms server start --port N
python -m pair.test.doubles.lms ps --json
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

VERSION = "0.0.47"
PATIENCE = 10.0
"""Seconds for the server to begin or to end."""


def install(folder: Path) -> Path:
    """Put a program ``lms`` into ``folder``, such as a search path may name."""
    root = Path(__file__).parents[3]
    program = folder / "lms"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -m pair.test.doubles.lms "$@"\n')
    program.chmod(0o755)
    return program


class Home:
    """What is kept: where the server listens, and its process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._config = folder / ".internal" / "http-server-config.json"
        self._pid = folder / ".internal" / "server.pid"

    @property
    def port(self) -> int:
        """The port of the server, or its last."""
        return int(json.loads(self._config.read_text())["port"]) if self._config.exists() else 1234

    @property
    def running(self) -> bool:
        """The server answers."""
        try:
            return bool(self.ask("GET", "/lmstudio-greeting") == {"lmstudio": True})
        except OSError:
            return False

    def start(self, port: int, bind: str) -> None:
        """Begin the server, in a session of its own.

        Raises:
            SystemExit: it does not begin.
        """
        self._config.parent.mkdir(parents=True, exist_ok=True)
        told = {"port": port, "networkInterface": bind, "cors": False, "justInTimeModelLoading": True}
        self._config.write_text(json.dumps(told))
        command = [sys.executable, "-m", "pair.test.doubles.lmstudio"]
        process = subprocess.Popen(
            [*command, "--port", str(port), "--bind", bind, "--home", str(self.folder)],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._pid.write_text(str(process.pid))
        deadline = time.monotonic() + PATIENCE
        while not self.running:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"Failed to start the server on port {port}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the server."""
        os.kill(int(self._pid.read_text()), signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while self.running and time.monotonic() < deadline:
            time.sleep(0.05)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask the server.

        Raises:
            OSError: it does not answer, or with an error.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)


def main(arguments: list[str]) -> None:
    """Do as the command line says."""
    options = _parser().parse_args(arguments)
    home = Home(Path(os.environ["LMS_HOME"]))
    try:
        options.do(home, options)
    except urllib.error.HTTPError as error:
        sys.exit(json.load(error)["error"]["message"])
    except OSError:
        sys.exit("The server is not running.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lms")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("version").set_defaults(do=_version)
    server = commands.add_parser("server").add_subparsers(required=True)
    start = server.add_parser("start")
    start.add_argument("-p", "--port", type=int)
    start.add_argument("--bind", default="127.0.0.1")
    start.add_argument("--cors", action="store_true")
    start.set_defaults(do=_start)
    server.add_parser("stop").set_defaults(do=_stop)
    for name, do, where in (("status", _status, server), ("ls", _ls, commands), ("ps", _ps, commands)):
        listing = where.add_parser(name)
        listing.add_argument("--json", action="store_true")
        listing.set_defaults(do=do)
    load = commands.add_parser("load")
    load.add_argument("model")
    load.add_argument("-y", "--yes", action="store_true")
    load.add_argument("--context-length", type=int)
    load.set_defaults(do=_load)
    unload = commands.add_parser("unload")
    unload.add_argument("identifier", nargs="?")
    unload.add_argument("-a", "--all", action="store_true")
    unload.set_defaults(do=_unload)
    get = commands.add_parser("get")
    get.add_argument("model")
    get.add_argument("-y", "--yes", action="store_true")
    get.set_defaults(do=_get)
    return parser


def _version(home: Home, options: argparse.Namespace) -> None:
    print(f"lms is LM Studio's CLI utility for your models, server, and inference runtime. (v{VERSION})")


def _start(home: Home, options: argparse.Namespace) -> None:
    port = options.port or home.port
    if home.running and port == home.port:
        print(f"The server is already running on port {port}.")
        return
    if home.running:
        home.stop()
    home.start(port, options.bind)
    print(f"Success! Server is now running on port {port}")


def _stop(home: Home, options: argparse.Namespace) -> None:
    if not home.running:
        sys.exit("The server is not running.")
    home.stop()
    print(f"Stopped the server on port {home.port}.")


def _status(home: Home, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({"running": True, "port": home.port} if home.running else {"running": False}))
    else:
        print(f"The server is running on port {home.port}." if home.running else "The server is not running.")


def _ls(home: Home, options: argparse.Namespace) -> None:
    _print([_model(each) for each in home.ask("GET", "/api/v1/models")["models"]], options)


def _ps(home: Home, options: argparse.Namespace) -> None:
    busy = {each["id"]: each["users"] for each in home.ask("GET", "/_double/memory")}
    copies = [
        {
            **_model(model),
            "identifier": copy["id"],
            "contextLength": copy["config"]["context_length"],
            "status": "generating" if busy[copy["id"]] else "idle",
            "queued": 0,
        }
        for model in home.ask("GET", "/api/v1/models")["models"]
        for copy in model["loaded_instances"]
    ]
    _print(copies, options)


def _load(home: Home, options: argparse.Namespace) -> None:
    asking = {"model": options.model}
    if options.context_length:
        asking["context_length"] = options.context_length
    print(f"Model loaded as {home.ask('POST', '/api/v1/models/load', asking)['instance_id']}")


def _unload(home: Home, options: argparse.Namespace) -> None:
    every = [each["id"] for each in home.ask("GET", "/_double/memory")]
    for id in every if options.all else [options.identifier]:
        home.ask("POST", "/api/v1/models/unload", {"instance_id": id})
        print(f"Model {id} unloaded.")


def _get(home: Home, options: argparse.Namespace) -> None:
    told = home.ask("POST", "/api/v1/models/download", {"model": options.model})
    while told["status"] == "downloading":
        time.sleep(0.1)
        told = home.ask("GET", f"/api/v1/models/download/status/{told['job_id']}")
    print(f"{options.model}: {told['status']}")


def _model(row: dict[str, Any]) -> dict[str, Any]:
    can = row.get("capabilities", {})
    return {
        "type": row["type"],
        "modelKey": row["key"],
        "format": row["format"],
        "displayName": row["display_name"],
        "publisher": row["publisher"],
        "path": row["key"],
        "sizeBytes": row["size_bytes"],
        "paramsString": row["params_string"],
        "architecture": row.get("architecture"),
        "vision": can.get("vision", False),
        "trainedForToolUse": can.get("trained_for_tool_use", False),
        "maxContextLength": row["max_context_length"],
    }


def _print(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(rows))
    else:
        print("\n".join(each.get("identifier", each["modelKey"]) for each in rows))


if __name__ == "__main__":
    main(sys.argv[1:])
