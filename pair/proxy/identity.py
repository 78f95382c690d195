"""Who answers here: the routes by which clients look for an engine (PX-28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pair.interfaces import ILocalEngines
    from pair.proxy.request import ClientRequest

_TEXT = b"text/plain; charset=utf-8"
_JSON = b"application/json"


class Banners:
    """Answers the class *identity* as an engine of the facade's kind would, also where none runs."""

    def __init__(self, engines: ILocalEngines) -> None:
        self._engines = engines

    def answer(self, request: ClientRequest) -> None:
        """Answer at once, from what is known."""
        if request.path == "/api/version":
            request.respond(200, _JSON, msgspec.json.encode({"version": self._version()}))
        elif request.path == "/lmstudio-greeting":
            request.respond(200, _JSON, b'{"lmstudio":true}')
        else:
            request.respond(200, _TEXT, b"Ollama is running" if request.facade == "ollama" else b"PAIR is running")

    def _version(self) -> str:
        """The lowest version among the running Ollama engines; clients ask before they use what is new."""
        statuses = [each.status for each in self._engines.inventory().engines]
        known = [each.version for each in statuses if each.kind == "ollama" and each.routable and each.version]
        return min(known, key=_numbers, default="0.0.0")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) if each.isdigit() else 0 for each in version.split("-")[0].split("."))
