"""The settings as a tree of frozen structs: each key with its type, default, bounds and comment (OP-7 to OP-11).

Pure, but for two defaults that are the machine's own: ``node.name`` and
``node.data_dir``. Values are checked by :mod:`pair.settings.layers`, not when
a struct is made. Zero stands for "none" where :class:`Key` says so.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Annotated, Literal

import platformdirs
from msgspec import Meta, Struct, field

from pair.settings.grammar import (
    LABEL,
    VARIABLE,
    advertised,
    alias_place,
    bind_address,
    engine_address,
    full_origin,
    host_name,
    origin_pattern,
    peer_place,
)

MIB = 1 << 20
GIB = 1 << 30

Facade = Literal["ollama", "lmstudio"]
Level = Literal["debug", "info", "warn", "error"]
Mode = Literal["auto", "off", "on"]
Takeover = Literal["auto", "never"]


class Key(Struct, frozen=True):
    """What the type of a key does not say.

    ``text`` is its comment. ``allowed`` replaces the words made from the type.
    ``each`` looks at one text of the value and raises ValueError. ``size``:
    also as text with a unit. ``none_or``: 0 and ``"none"`` are allowed, and
    otherwise this is the least value. ``hidden``: the value is never shown.
    """

    text: str
    allowed: str = ""
    each: Callable[[str], object] | None = None
    size: bool = False
    none_or: float | None = None
    hidden: bool = False


Port = Annotated[int, Meta(ge=0, le=65535)]
Label = Annotated[str, Meta(pattern=LABEL)]
Limit = Annotated[float, Meta(ge=0)]
GpuId = Annotated[str, Meta(pattern=r"\A[\x21-\x7e]{1,63}\Z")]


def _machine_name() -> str:
    return platform.node()[:63] or "localhost"


def _data_directory() -> str:
    return platformdirs.user_data_dir("pair", appauthor=False)


class Node(Struct, frozen=True):
    """``[node]``: this machine."""

    name: Annotated[
        str,
        Meta(pattern=r"\A[^\x00-\x1f\x7f-\x9f]{1,63}\Z"),
        Key("What people call this node.", allowed="text of 1 to 63 characters without control characters"),
    ] = field(default_factory=_machine_name)
    bind: Annotated[
        tuple[str, ...],
        Meta(min_length=1),
        Key(
            "Addresses of this machine to listen on; a loopback address alone makes a single-machine node. "
            "The facades listen on loopback too, whatever stands here.",
            allowed="a list of IP addresses, none of them multicast",
            each=bind_address,
        ),
    ] = ("0.0.0.0", "::")  # noqa: S104 - the facades answer loopback callers only
    labels: Annotated[
        tuple[Label, ...],
        Meta(max_length=16),
        Key("Labels that routing rules name.", allowed="at most 16 labels, each [a-z0-9][a-z0-9._=-]{0,62}"),
    ] = ()
    data_dir: Annotated[
        str,
        Meta(min_length=1),
        Key("Installed engines and models; outside the state so that a backup stays small.", allowed="a path"),
    ] = field(default_factory=_data_directory)
    advertise: Annotated[
        tuple[str, ...],
        Meta(max_length=16),
        Key(
            "Where others reach this node when it cannot see it itself: behind address translation, in a container.",
            allowed="at most 16 entries, each an IP address or service=port, as ni=24318",
            each=advertised,
        ),
    ] = ()


class FacadePorts(Struct, frozen=True):
    """``[proxy.ports]``: where applications find each facade."""

    ollama: Annotated[Port, Key("Port of the Ollama facade; 0 lets the kernel choose.")] = 11434
    lmstudio: Annotated[Port, Key("Port of the LM Studio facade; 0 lets the kernel choose.")] = 1234


class Proxy(Struct, frozen=True):
    """``[proxy]``: the facades and the data path."""

    ports: FacadePorts = FacadePorts()
    facades: Annotated[tuple[Facade, ...], Key("The facades that are served.")] = ("ollama", "lmstudio")
    takeover: Annotated[
        Takeover | dict[Facade, Takeover],
        Key(
            "Whether a facade takes its standard port from an engine that can move.",
            allowed='"auto", "never", or a table of these by facade',
        ),
    ] = "auto"
    allowed_hosts: Annotated[
        tuple[str, ...],
        Key("Host names besides those of loopback.", allowed="a list of host[:port]", each=host_name),
    ] = ()
    origins: Annotated[
        tuple[str, ...],
        Key(
            "Web origins besides those of loopback.",
            allowed="a list of scheme://host[:port]; the host may begin with *., the port may be *",
            each=origin_pattern,
        ),
    ] = ()
    max_body: Annotated[
        int, Meta(ge=MIB, le=4 * GIB), Key("Largest request body that is kept for a repeat.", size=True)
    ] = 64 * MIB
    body_budget: Annotated[int, Meta(ge=MIB), Key("All kept bodies together; at least proxy.max_body.", size=True)] = (
        512 * MIB
    )
    max_active: Annotated[int, Meta(ge=16, le=20000), Key("Inference requests in flight at once.")] = 1000
    start_deadline: Annotated[
        float, Meta(ge=1, le=600), Key("Seconds for which a request may wait for a first attempt that holds.")
    ] = 30.0
    list_wait: Annotated[
        float, Meta(ge=0.1, le=10), Key("Seconds that a list of models waits for an engine that is slow.")
    ] = 1.5
    engine_wait_max: Annotated[
        Limit, Key("Seconds to wait for the head of an engine's answer; 0 is without limit.", none_or=5)
    ] = 0.0
    first_byte_limit: Annotated[
        Limit, Key("Seconds to wait for the first byte of an answer's body; 0 is without limit.", none_or=5)
    ] = 0.0
    stream_idle_max: Annotated[
        Limit, Key("Seconds between two bytes of an answer; 0 is without limit.", none_or=5)
    ] = 0.0
    client_stall: Annotated[
        float, Meta(ge=10, le=3600), Key("Seconds for which a client may take nothing of its answer.")
    ] = 300.0
    explain: Annotated[bool, Key("Answer with fields that say which node served, and why.")] = False

    def takeover_of(self, facade: str) -> Takeover:
        """The takeover rule of one facade (EN-47)."""
        if isinstance(self.takeover, dict):
            return next((rule for name, rule in self.takeover.items() if name == facade), "auto")
        return self.takeover


class OllamaFacade(Struct, frozen=True):
    """``[facade.ollama]``."""

    alias: Annotated[
        str,
        Key(
            "A second place of the Ollama facade, for tools that were told another port; env: the one in OLLAMA_HOST.",
            allowed='"env", "off", or host:port of this machine',
            each=alias_place,
        ),
    ] = "env"


class Facades(Struct, frozen=True):
    """``[facade]``: what concerns one facade alone."""

    ollama: OllamaFacade = OllamaFacade()


class Ports(Struct, frozen=True):
    """``[ports]``: our own surfaces."""

    control: Annotated[Port, Key("Control API and health, on loopback always; 0 lets the kernel choose.")] = 14300
    node_info: Annotated[Port, Key("Who this node is, and how busy; 0 lets the kernel choose.")] = 14318
    errors: Annotated[Port, Key("What is wrong here, for members; 0 lets the kernel choose.")] = 14319
    workloads: Annotated[Port, Key("Requests under way, for members; 0 lets the kernel choose.")] = 14320
    cluster: Annotated[Port, Key("Pairing, and what members tell each other; 0 lets the kernel choose.")] = 14321
    inventory: Annotated[Port, Key("Engines and models, for members; 0 lets the kernel choose.")] = 14322


class Cluster(Struct, frozen=True):
    """``[cluster]``: pairing and membership."""

    pairing: Annotated[bool, Key("Take invitations of other nodes; false refuses them all.")] = True
    gossip_interval: Annotated[
        float, Meta(ge=5, le=600), Key("Seconds between two looks whether a member knows the same of the cluster.")
    ] = 30.0


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[routing.rule]]``: what a node must have, or must not, to be given a model (RT-23)."""

    model: str
    require: tuple[Label, ...] = ()
    forbid: tuple[Label, ...] = ()


class Routing(Struct, frozen=True):
    """``[routing]``: which engine gets a request."""

    policy: Annotated[str, Key("The routing policy.", allowed="the name of a policy")] = "pressure"
    freshness: Annotated[float, Meta(ge=2, le=120), Key("Seconds after which a GPU's load counts no more.")] = 10.0
    loaded_only: Annotated[bool, Key("This node offers only models that are in memory.")] = False
    rule: Annotated[
        tuple[Rule, ...],
        Key(
            "The first rule whose pattern matches the model applies.",
            allowed="tables with model (a pattern), require and forbid (lists of labels)",
        ),
    ] = ()


class Discovery(Struct, frozen=True):
    """``[discovery]``: how other nodes are found."""

    mdns: Annotated[bool, Key("Find nodes by multicast; false leaves members and nodes added by address.")] = True
    ipv6: Annotated[bool, Key("Use multicast over IPv6 too; false: over IPv4 alone.")] = True
    scan_interval: Annotated[float, Meta(ge=2, le=60), Key("Seconds between two looks for nodes.")] = 5.0
    static_peers: Annotated[
        tuple[str, ...],
        Meta(max_length=64),
        Key(
            "Nodes that are looked for at an address, as if a person had added them.",
            allowed="at most 64 places, each host, host:port or [IPv6]:port",
            each=peer_place,
        ),
    ] = ()


class Telemetry(Struct, frozen=True):
    """``[telemetry]``: what is measured of this machine."""

    audience: Annotated[
        Literal["subnet", "members"],
        Key("Who is told how busy this node is, besides members: machines on its own networks, or nobody."),
    ] = "subnet"

    interval: Annotated[
        float, Meta(ge=0.5, le=10), Key("Seconds between two looks at processors, memory and GPUs.")
    ] = 1.0
    gpu: Annotated[Literal["auto", "off"], Key("auto: GPUs are looked for. off: no driver is asked.")] = "auto"
    unified: Annotated[
        tuple[GpuId, ...],
        Key("GPUs that share the system's memory and do not say so.", allowed="a list of the ids of GPUs"),
    ] = ()


class EngineSettings(Struct, frozen=True):
    """``[engines.<id>]``: one engine. With ``url`` it is an engine by URL, which is adopted and never run (EN-4)."""

    mode: Annotated[Mode, Key("auto: used if found. on: missing is an error. off: not used.")] = "auto"
    binary: Annotated[str | None, Key("The program to run.", allowed="the path of an executable file")] = None
    port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        Key("The port on which it is started.", allowed="an integer from 1 to 65535 that is not reserved"),
    ] = None
    slots: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        Key("Requests that it serves at once; else what the engine says, else 1.", allowed="an integer from 1 to 64"),
    ] = None
    drain_seconds: Annotated[
        float, Meta(ge=0, le=600), Key("Seconds for requests in flight before it is stopped or restarted.")
    ] = 10.0
    restart_wedged: Annotated[bool, Key("Restart it when it runs but has not answered for a minute.")] = True
    kind: Annotated[
        str | None, Key("With url: what it is.", allowed='"openai-compatible", "ollama" or "lmstudio"')
    ] = None
    url: Annotated[
        str | None,
        Key(
            "Where an engine answers that is not PAIR's to run.",
            allowed="http[s]://host[:port][/v1]",
            each=engine_address,
        ),
    ] = None
    remote: Annotated[bool, Key("With url: it may be on another machine.")] = False
    models: Annotated[tuple[str, ...], Key("With url: the only models of it that are used.")] = ()
    routes: Annotated[tuple[str, ...], Key("With url: paths that it serves besides the usual ones of its kind.")] = ()
    credential_file: Annotated[
        str | None, Key("With url: a file, mode 0600, that holds its bearer token.", allowed="a path", hidden=True)
    ] = None
    credential_env: Annotated[
        Annotated[str, Meta(pattern=VARIABLE)] | None,
        Key(
            "With url: the environment variable that holds its bearer token.",
            allowed="the name of an environment variable",
            hidden=True,
        ),
    ] = None


class Jobs(Struct, frozen=True):
    """``[jobs]``: the history of requests."""

    history_days: Annotated[int, Meta(ge=1, le=365), Key("Days for which ended jobs are kept.")] = 7
    history_rows: Annotated[int, Meta(ge=0, le=1_000_000), Key("Ended jobs that are kept; 0 keeps none.")] = 10000


class Log(Struct, frozen=True):
    """``[log]``: what is written, where."""

    level: Annotated[Level, Key("The least level that is written.")] = "info"
    levels: Annotated[
        dict[str, Level],
        Key("Levels by namespace; the longest prefix applies.", allowed='a table such as {"pair.proxy" = "debug"}'),
    ] = field(default_factory=dict)
    file: Annotated[bool, Key("Write logs/pair.jsonl in the state directory.")] = True
    max_bytes: Annotated[int, Meta(ge=MIB, le=GIB), Key("Size at which a new log file is begun.", size=True)] = (
        10 * MIB
    )
    keep: Annotated[int, Meta(ge=1, le=100), Key("Old log files that are kept.")] = 5
    stdout: Annotated[Literal["text", "json", "off"], Key("The form of the log on standard output.")] = "text"


class Metrics(Struct, frozen=True):
    """``[metrics]``."""

    enabled: Annotated[bool, Key("Serve /metrics on the control port.")] = True
    auth: Annotated[Literal["none", "token"], Key("What /metrics asks of the one who reads it.")] = "none"


class Console(Struct, frozen=True):
    """``[console]``."""

    allowed_origins: Annotated[
        tuple[str, ...],
        Key(
            "Origins of a reverse proxy of yours in front of the control port.",
            allowed="a list of http[s]://host[:port]",
            each=full_origin,
        ),
    ] = ()


class Service(Struct, frozen=True):
    """``[service]``: how the node stops."""

    drain: Annotated[float, Meta(ge=0, le=600), Key("Seconds for requests in flight at a stop.")] = 3.0
    stop_deadline: Annotated[
        float, Meta(ge=5, le=900), Key("Seconds for the whole stop; at least service.drain + 7.")
    ] = 10.0


class Watchdog(Struct, frozen=True):
    """``[watchdog]``."""

    stall: Annotated[
        float, Meta(ge=0.5, le=30), Key("Seconds without a turn of the reactor after which its stack is logged.")
    ] = 2.0


class Settings(Struct, frozen=True):
    """All settings. ``Settings()`` has the defaults."""

    node: Node = field(default_factory=Node)
    proxy: Proxy = Proxy()
    facade: Facades = Facades()
    ports: Ports = Ports()
    cluster: Cluster = Cluster()
    routing: Routing = Routing()
    discovery: Discovery = Discovery()
    telemetry: Telemetry = Telemetry()
    engines: dict[str, EngineSettings] = field(default_factory=dict)
    embedded: Annotated[Literal["auto", "on", "off"], Key("The small model that comes with PAIR.")] = "auto"
    jobs: Jobs = Jobs()
    log: Log = field(default_factory=Log)
    metrics: Metrics = Metrics()
    console: Console = Console()
    service: Service = Service()
    watchdog: Watchdog = Watchdog()

    def engine(self, id: str) -> EngineSettings:
        """The settings of one engine; the defaults where none is set."""
        return self.engines.get(id, _ENGINE)


_ENGINE = EngineSettings()
