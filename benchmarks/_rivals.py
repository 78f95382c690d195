"""Other routers for language models, as PyPI has them: each in an environment of its own, set up as its manual says.

They send what they measure nowhere: the switches for that are off, and each has an empty home.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from benchmarks import _setup
from benchmarks._processes import Process
from benchmarks._proxies import MODEL, Server, Start, free_port

if TYPE_CHECKING:
    from pathlib import Path

LITELLM = "1.106.12"
"""The last one whose proxy server PyPI has whole."""

HERD = "0.11.4"
LOCAL_ENGINE_ROUTER = "0.7.1"
SGLANG_ROUTER = "0.3.2"
VLLM_ROUTER = "0.1.17"


def start_litellm(engine: int, folder: Path) -> Server:
    """LiteLLM's proxy server with one model."""
    program = _setup.environment("litellm", f"litellm[proxy]=={LITELLM}") / "litellm"
    port = free_port()
    model = {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{engine}/v1", "api_key": "none"}
    folder.mkdir(parents=True)
    config = folder / "config.yaml"
    settings = {
        "model_list": [{"model_name": MODEL, "litellm_params": model}],
        # On loopback, as the others: none of them asks for a key here.
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
    }
    config.write_text(json.dumps(settings))
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    variables = {"HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return Server("litellm", LITELLM, Process([*command, "--telemetry", "False"], folder, variables), port)


def start_herd(engine: int, folder: Path) -> Server:
    """Ollama Herd: its router, and its agent beside the engine."""
    programs = _setup.environment("ollama-herd", f"ollama-herd=={HERD}")
    port = free_port()
    router = [str(programs / "herd"), "--host", "127.0.0.1", "--port", str(port)]
    address = ["--ollama-host", f"http://127.0.0.1:{engine}", "--router-url", f"http://127.0.0.1:{port}"]
    agent = [str(programs / "herd-node"), *address]
    variables = {"HOME": str(folder), "FLEET_NODE_TELEMETRY": "false"}
    both = f"{shlex.join(agent)} & exec {shlex.join(router)}"
    return Server("ollama-herd", HERD, Process(["sh", "-c", both], folder, variables), port)


def start_local_engine_router(engine: int, folder: Path) -> Server:
    """local-engine-router with one engine that it need not start."""
    program = _setup.environment("local-engine-router", f"local-engine-router=={LOCAL_ENGINE_ROUTER}")
    port = free_port()
    folder.mkdir(parents=True)
    config = folder / "config.yaml"
    settings = {
        "port": port,
        "routing_mode": "manual",
        "engines": {MODEL: {"type": "api_swap", "base_url": f"http://127.0.0.1:{engine}"}},
        "models": [{"id": MODEL, "engine": MODEL}],
    }
    config.write_text(json.dumps(settings))
    command = [str(program / "local-engine-router"), "--config", str(config)]
    process = Process(command, folder, {"HOME": str(folder)})
    return Server("local-engine-router", LOCAL_ENGINE_ROUTER, process, port)


def start_sglang_router(engine: int, folder: Path) -> Server:
    """SGLang's router, in Rust, before one worker."""
    program = _setup.environment("sglang-router", f"sglang-router=={SGLANG_ROUTER}") / "sglang-router"
    command = [str(program), "launch", "--worker-urls", f"http://127.0.0.1:{engine}", "--policy", "round_robin"]
    return _rust_router("sglang-router", SGLANG_ROUTER, command, folder)


def start_vllm_router(engine: int, folder: Path) -> Server:
    """The router of vLLM, in Rust, before one worker."""
    program = _setup.environment("vllm-router", f"vllm-router=={VLLM_ROUTER}") / "vllm-router"
    command = [str(program), "--worker-urls", f"http://127.0.0.1:{engine}", "--policy", "round_robin"]
    return _rust_router("vllm-router", VLLM_ROUTER, command, folder)


def _rust_router(name: str, version: str, command: list[str], folder: Path) -> Server:
    port = free_port()
    where = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    return Server(name, version, Process([*command, *where], folder, {"HOME": str(folder)}), port)


IN_PYTHON: dict[str, Start] = {
    "litellm": start_litellm,
    "ollama-herd": start_herd,
    "local-engine-router": start_local_engine_router,
}
IN_RUST: dict[str, Start] = {"sglang-router": start_sglang_router, "vllm-router": start_vllm_router}
