"""The table of all routes: the only source of what the API has (UI-29). Pure data.

Klein's routes, the guard's public paths and the OpenAPI document are made
from it. ``operation`` is also the name of the method of
:class:`pair.control.app.ControlApi` that answers.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from pair.control import errors, jobs, views
from pair.control.cluster_routes import CLUSTER_ROUTES, NODE_ROUTES
from pair.control.route import BASE, EVENTS, TEXT, Route
from pair.control.routing_routes import ROUTING_ROUTES
from pair.records.jobs import ShownJob

Port = Annotated[int, Meta(ge=1, le=65535)]


class EndpointChange(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of ``PUT /endpoints/{facade}``: what is absent, or null, stays as it is (UI-59)."""

    port: Port | None = None
    enabled: bool | None = None


class EventQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of ``GET /events``: topics, with commas, and the id of the last event that is known (UI-61, UI-63)."""

    topics: str | None = None
    since: str | None = None


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/healthz",
        operation="get_health",
        summary="Whether the process answers.",
        answer=views.Health,
        auth="public",
        cli="health",
    ),
    Route(
        method="GET",
        path="/readyz",
        operation="get_readiness",
        summary="Whether the node serves, and if not, why.",
        answer=views.Readiness,
        auth="public",
        cli="health --ready",
    ),
    Route(
        method="GET",
        path="/metrics",
        operation="get_metrics",
        summary="Metrics as Prometheus text.",
        answer=bytes,
        content=TEXT,
        auth="metrics",
        no_cli="It is for Prometheus, which reads it by HTTP.",
    ),
    Route(
        method="GET",
        path=f"{BASE}/openapi.json",
        operation="get_openapi",
        summary="This API as an OpenAPI document.",
        answer=dict,
        no_cli="It is for programs that are made from it.",
    ),
    Route(
        method="GET",
        path=f"{BASE}/service",
        operation="get_service",
        summary="The process, its listeners and its parts.",
        answer=views.ServiceStatus,
        cli="status",
    ),
    Route(
        method="GET",
        path=f"{BASE}/endpoints",
        operation="list_endpoints",
        summary="The facades: addresses, states, and a command to try each.",
        answer=views.EndpointList,
        cli="endpoints",
    ),
    Route(
        method="PUT",
        path=f"{BASE}/endpoints/<facade>",
        operation="change_endpoint",
        summary="Set the port of a facade, or switch it on or off.",
        body=EndpointChange,
        example=EndpointChange(port=11500),
        answer=views.EndpointView,
        cli="endpoints set",
    ),
    Route(
        method="DELETE",
        path=f"{BASE}/endpoints/<facade>/port",
        operation="reset_endpoint_port",
        summary="Let a facade seek its default port again.",
        answer=views.EndpointView,
        cli="endpoints set --default",
    ),
    Route(
        method="GET",
        path=f"{BASE}/engines",
        operation="list_engines",
        summary="The engines and their states.",
        answer=views.EngineList,
        cli="engine list",
    ),
    Route(
        method="GET",
        path=f"{BASE}/models",
        operation="list_models",
        summary="The models by name, with every copy.",
        answer=views.ModelList,
        cli="model list",
    ),
    Route(
        method="GET",
        path=f"{BASE}/jobs",
        operation="list_jobs",
        summary="Jobs of all nodes: running, queued, then ended ones, newest first.",
        query=jobs.JobQuery,
        answer=jobs.JobList,
        cli="job list",
    ),
    Route(
        method="GET",
        path=f"{BASE}/jobs/<origin>/<id>",
        operation="get_job",
        summary="One job with its attempts.",
        answer=ShownJob,
        cli="job show",
    ),
    Route(
        method="POST",
        path=f"{BASE}/jobs/<origin>/<id>/cancel",
        operation="cancel_job",
        summary="End a job of this node: its engine is stopped, and its client answered.",
        answer=ShownJob,
        cli="job cancel",
    ),
    Route(
        method="DELETE",
        path=f"{BASE}/jobs/history",
        operation="clear_history",
        summary="Delete what this node remembers of jobs that ended.",
        answer=jobs.Cleared,
        cli="job clear",
    ),
    *ROUTING_ROUTES,
    Route(
        method="GET",
        path=f"{BASE}/errors",
        operation="list_errors",
        summary="What is wrong now on all nodes, the worst first.",
        answer=errors.ErrorList,
        cli="error list",
    ),
    Route(
        method="POST",
        path=f"{BASE}/errors/<node>/dismiss/<path:id>",
        operation="dismiss_error",
        summary="Take an error entry of this node from sight, everywhere.",
        answer=errors.Dismissed,
        cli="error dismiss",
    ),
    Route(
        method="POST",
        path=f"{BASE}/errors/<node>/hide/<path:id>",
        operation="hide_error",
        summary="Take an error entry of any node from sight on this one, until it is raised anew.",
        answer=errors.Hidden,
        cli="error hide",
    ),
    Route(
        method="GET",
        path=f"{BASE}/events",
        operation="follow_events",
        summary="All that is shown, and each change of it, as it comes.",
        query=EventQuery,
        answer=bytes,
        content=EVENTS,
        cli="events",
    ),
    *NODE_ROUTES,
    *CLUSTER_ROUTES,
)
