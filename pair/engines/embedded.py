"""The child program of the embedded engine: llama.cpp's server from the package ``xllamacpp`` (EN-106).

``python -m pair.engines.embedded --port N --model PATH --alias NAME``: on
loopback, kept from the network, 4,096 tokens of context, 2 slots. It imports
nothing of PAIR but its packages, and ends at TERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

CONTEXT = 4096
SLOTS = 2


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(prog="pair.engines.embedded")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--alias", required=True)
    return parser.parse_args(argv)


def _threads() -> int:
    """One for each core that we may use but one.

    The threads wait for one another at every layer: with none to spare, one
    busy core slows all of them to a crawl.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)


def main() -> None:
    """Serve until TERM or INT."""
    stops = (signal.SIGTERM, signal.SIGINT)
    # Blocked before the server makes its threads: they inherit it, and so the signal waits for sigwait below.
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    options = arguments()
    if not options.model.is_file():
        sys.exit("The weights are missing.")
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(options.model)
    parameters.model_alias = {options.alias} if isinstance(parameters.model_alias, set) else options.alias
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = options.port
    parameters.n_ctx = CONTEXT
    parameters.n_parallel = SLOTS
    parameters.n_gpu_layers = 0
    parameters.cpuparams.n_threads = _threads()
    parameters.offline = True
    parameters.ui = False
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    signal.sigwait(stops)
    # The server's own end waits for its requests; what is in flight is PAIR's to end.
    os._exit(0)


if __name__ == "__main__":
    main()
