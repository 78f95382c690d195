"""The conditions that engines raise (registry of the jobs page)."""

from __future__ import annotations

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="engines:missing:<engine>",
        severity="error",
        action="none",
        cleared="auto",
        text="The engine {engine} is to run and is not installed. {detail}",
    ),
    Condition(
        id="engines:start_failed:<engine>",
        severity="error",
        action="retry",
        cleared="auto",
        text="The engine {engine} could not be started: {reason}. {output}",
    ),
    Condition(
        id="engines:crashed:<engine>",
        severity="error",
        action="retry",
        cleared="auto",
        text="The engine {engine} ended by itself ({reason}); failures in a row: {count}. It is started again.",
    ),
    Condition(
        id="engines:wedged:<engine>",
        severity="error",
        action="retry",
        cleared="auto",
        text="The engine {engine} has not answered for {seconds} s though its process lives. It is restarted.",
    ),
    Condition(
        id="engines:stop_failed:<engine>",
        severity="error",
        action="retry",
        cleared="auto",
        text="The engine {engine} still answers on port {port} after it was stopped{holder}.",
    ),
    Condition(
        id="engines:unhealthy:<engine>",
        severity="warning",
        action="none",
        cleared="auto",
        text="The engine {engine} does not answer. No requests are sent to it until it does.",
    ),
    Condition(
        id="engines:degraded:<engine>",
        severity="warning",
        action="none",
        cleared="auto",
        text="The engine {engine} answers, but its last {count} requests failed. Others are preferred to it.",
    ),
    Condition(
        id="engines:needs_credential:<engine>",
        severity="warning",
        action="none",
        cleared="auto",
        text="The engine {engine} asks for a token. Name one with engines.{engine}.credential_file in pair.toml.",
    ),
    Condition(
        id="engines:too_many_models:<engine>",
        severity="warning",
        action="none",
        cleared="auto",
        text="The engine {engine} lists too many models, or names over 200 bytes: {dropped} are left out.",
    ),
    Condition(
        id="engines:bad_plugin:<kind>",
        severity="warning",
        action="none",
        cleared="auto",
        text="The plugin for engines of kind {kind} cannot be used; its engines are not seen. The log says why.",
    ),
)
