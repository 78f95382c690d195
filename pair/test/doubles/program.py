"""Doubles as programs: what is theirs on the command line, and how they run."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet import reactor

from pair.test.doubles.faults import OF_THE_PROGRAM, Fault, parse
from pair.test.doubles.lmstudio import LMStudio
from pair.test.doubles.ollama import KEEP, VERSION, Ollama
from pair.test.doubles.ollama_shapes import duration
from pair.test.doubles.site import DoubleSite
from pair.test.doubles.telling import Pace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twisted.internet.interfaces import IDelayedCall, IListeningPort, IReactorTime

    from pair.test.doubles.serving import Double

STATUS = 3
"""How a program ends by the fault ``exit``."""


class Listening:
    """A double at a port, open and closed as its faults say.

    Args:
        host: an address.
        port: 0: one that the kernel chooses, the same whenever it opens again.
    """

    def __init__(self, reactor: Any, double: Double, host: str = "127.0.0.1", port: int = 0) -> None:
        self._reactor = reactor
        self._double = double
        self._host = host
        self._again: IDelayedCall | None = None
        self._port: IListeningPort | None = reactor.listenTCP(port, DoubleSite(self._double), interface=host)
        self.port: int = self._port.getHost().port
        double.faults.changed = self._look

    def close(self) -> Any:
        """End it, with all connections."""
        self._double.faults.changed = lambda: None
        if self._again is not None and self._again.active():
            self._again.cancel()
        self._double.break_all()
        port, self._port = self._port, None
        return None if port is None else port.stopListening()

    def _look(self) -> None:
        if self._again is not None and self._again.active():
            self._again.cancel()
        if not self._double.faults.refusing:
            if self._port is None:
                self._port = self._reactor.listenTCP(self.port, DoubleSite(self._double), interface=self._host)
            return
        if self._port is not None:
            self._port.stopListening()
            self._port = None
        left = self._double.faults.refusing_for
        if left != float("inf"):
            self._again = self._reactor.callLater(left + 0.001, self._look)


def ollama(arguments: Sequence[str]) -> None:
    """``python -m pair.test.doubles.ollama serve``."""
    if any(each in ("-v", "--version") for each in arguments):
        print(f"ollama version is {VERSION}")
        return
    parser = _parser("ollama")
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--pull-rate", type=float, default=1e9, help="bytes a second")
    options = parser.parse_args(arguments)
    _leave_the_group(options, "pair.test.doubles.ollama", ["serve"])
    host, port = _address(os.environ.get("OLLAMA_HOST", ""))
    double = _from_environment(os.environ, reactor, _pace(options), options.pull_rate)
    _run(double, options, host, port)


def lmstudio(arguments: Sequence[str]) -> None:
    """``python -m pair.test.doubles.lmstudio --port N``."""
    parser = _parser("lmstudio")
    parser.add_argument("--port", type=int, default=1234)
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--home", type=Path, help="where its state outlives it")
    parser.add_argument("--no-just-in-time", action="store_true", help="load nothing for a request")
    parser.add_argument("--older", action="store_true", help="answer as before 0.4")
    options = parser.parse_args(arguments)
    _leave_the_group(options, "pair.test.doubles.lmstudio", ["--port", str(options.port)])
    double = LMStudio(
        reactor,
        home=options.home,
        pace=_pace(options),
        just_in_time=not options.no_just_in_time,
        older=options.older,
    )
    _run(double, options, options.bind, options.port)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--rate", type=float, default=0.0, help="tokens a second; 0: all at once")
    parser.add_argument("--prefill", type=float, default=0.0, help="tokens of a prompt a second; 0: all at once")
    parser.add_argument("--load", type=float, default=0.0, help="seconds to load a model")
    parser.add_argument("--fault", type=parse, action="append", default=[], help="a name, or a JSON object")
    return parser


def _pace(options: argparse.Namespace) -> Pace:
    return Pace(rate=options.rate, prefill=options.prefill, load=options.load)


def _leave_the_group(options: argparse.Namespace, module: str, arguments: Sequence[str]) -> None:
    """With the fault ``fork``: serve from a process that TERM to our group does not reach, and wait for its end."""
    faults: list[Fault] = options.fault
    if not any(each.fault == "fork" for each in faults):
        return
    child = subprocess.Popen([sys.executable, "-m", module, *arguments], start_new_session=True)
    sys.exit(child.wait())


def _run(double: Double, options: argparse.Namespace, host: str, port: int) -> None:
    listening = Listening(reactor, double, host, port)
    double.die = lambda: os._exit(STATUS)
    for fault in options.fault:
        if fault.fault not in OF_THE_PROGRAM:
            double.faults.put(fault)
    if any(each.fault == "deaf" for each in options.fault):
        # Later than the reactor, which sets its own.
        reactor.callWhenRunning(signal.signal, signal.SIGTERM, signal.SIG_IGN)
    # Later still: whoever reads it may send a signal.
    reactor.callWhenRunning(print, f"Listening on {host}:{listening.port}", flush=True)
    reactor.run()


def _from_environment(environment: Mapping[str, str], clock: IReactorTime, pace: Pace, pull_rate: float) -> Ollama:
    """The double as a program makes it."""
    folder = environment.get("OLLAMA_MODELS")
    keep = duration(environment.get("OLLAMA_KEEP_ALIVE") or None)
    return Ollama(
        clock,
        folder=Path(folder) if folder else None,
        pace=pace,
        pull_rate=pull_rate,
        keep=KEEP if keep is None else keep,
        parallel=int(environment.get("OLLAMA_NUM_PARALLEL") or 4),
        line=int(environment.get("OLLAMA_MAX_QUEUE") or 512),
        room=int(environment.get("OLLAMA_MAX_LOADED_MODELS") or 3),
    )


def _address(told: str) -> tuple[str, int]:
    """Where ``OLLAMA_HOST`` says to listen."""
    host, colon, port = told.removeprefix("http://").rstrip("/").rpartition(":")
    if not colon:
        host, port = port, "11434"
    return host.strip("[]") or "127.0.0.1", int(port)
