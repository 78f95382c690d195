"""The route table as an OpenAPI 3.1 document (UI-29). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from pair import __version__
from pair.control.route import JSON, Nothing
from pair.surfaces.refusals import ErrorBody

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.control.route import Route

_PARAMETER = re.compile(r"<(?:[a-z]+:)?([a-z]+)>")

# An empty requirement: it may do without.
_SECURITY: dict[str, list[dict[str, Any]]] = {
    "public": [{}],
    "metrics": [{}, {"token": []}],
    "token": [{"token": []}],
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The document of ``routes``."""
    routes = tuple(routes)
    answers = (route.answer for route in routes if _is_struct(route.answer))
    bodies = (route.body for route in routes if route.body is not Nothing)
    structs = list(dict.fromkeys((*answers, *bodies, ErrorBody)))
    found, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(structs, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "PAIR control API", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    json = _json(schemas.get(route.answer, {"type": "object"}))
    content = json if route.content == JSON else {route.content: {"schema": {"type": "string"}}}
    body = {} if route.body is Nothing else {"requestBody": {"content": _json(schemas[route.body], route.example)}}
    return {
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        **body,
        "responses": {
            str(route.status): {"description": "Done.", "content": content},
            "default": {"description": "Refused.", "content": _json(schemas[ErrorBody])},
        },
        "security": _SECURITY[route.auth],
    }


def _json(schema: Any, example: Any = None) -> dict[str, Any]:
    shown = {} if example is None else {"example": msgspec.to_builtins(example)}
    return {JSON: {"schema": schema, **shown}}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([route.query])
    properties = components[route.query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]


def _is_struct(answer: Any) -> bool:
    return isinstance(answer, type) and issubclass(answer, msgspec.Struct)
