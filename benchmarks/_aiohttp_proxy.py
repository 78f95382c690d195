"""A streaming proxy as one writes it with aiohttp, to compare with: ``python aiohttp_proxy.py PORT ENGINE_URL``.

Runs in an environment of its own; nothing else here imports it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator  # noqa: TC003 - there is no type checker in its environment

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

_HOP = frozenset(("connection", "content-length", "host", "keep-alive", "transfer-encoding"))


def make_app(engine: str) -> web.Application:
    """The proxy in front of ``engine``."""
    app = web.Application(client_max_size=2**30)
    session = web.AppKey("session", ClientSession)

    async def run_session(app: web.Application) -> AsyncIterator[None]:
        connector = TCPConnector(limit=0)
        async with ClientSession(connector=connector, timeout=ClientTimeout(None), auto_decompress=False) as made:
            app[session] = made
            yield

    async def forward(request: web.Request) -> web.StreamResponse:
        fields = [(name, value) for name, value in request.headers.items() if name.lower() not in _HOP]
        body = await request.read()
        async with app[session].request(request.method, engine + request.path_qs, headers=fields, data=body) as answer:
            response = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP or name == "Content-Length":
                    response.headers.add(name, value)
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    app.cleanup_ctx.append(run_session)
    app.router.add_route("*", "/{path:.*}", forward)
    return app


if __name__ == "__main__":
    web.run_app(make_app(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
