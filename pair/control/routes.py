"""The table of all routes: the only source of what the API has (UI-29). Pure data.

Klein's routes, the guard's public paths and the OpenAPI document are made
from it. ``operation`` is also the name of the method of
:class:`pair.control.app.ControlApi` that answers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pair.control import cluster, views
from pair.control.routing import ExplainBody, Routing
from pair.records.cluster import Invitation, Roster
from pair.records.jobs import Job
from pair.routing.explain import Explanation

BASE = "/api/v1"

Auth = Literal["token", "public", "metrics"]
"""``token``: the control token. ``metrics``: as the setting ``metrics.auth`` says."""

Limit = Annotated[int, Meta(ge=1, le=500)]
Instant = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=1, le=65535)]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No query, or an empty body."""


class JobQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of ``GET /jobs``; ``state`` may hold several, with commas. ``since`` is in epoch milliseconds."""

    state: str | None = None
    node: str | None = None
    engine: str | None = None
    model: str | None = None
    since: Instant | None = None
    limit: Limit = 100
    cursor: str | None = None


class EndpointChange(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of ``PUT /endpoints/{facade}``: what is absent, or null, stays as it is (UI-59)."""

    port: Port | None = None
    enabled: bool | None = None


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path.

    ``path`` is a werkzeug rule. ``cli`` is the ``pair-admin`` form, or
    ``no_cli`` says why there is none (UI-30). ``example`` is a body for it,
    ``status`` that of a good answer.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    operation: str
    summary: str
    answer: Any
    query: type[Struct] = Nothing
    body: type[Struct] = Nothing
    example: Struct | None = None
    status: int = 200
    auth: Auth = "token"
    cli: str | None = None
    no_cli: str = ""


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
        summary="Jobs: running, queued, then ended ones, newest first.",
        query=JobQuery,
        answer=views.JobList,
        cli="job list",
    ),
    Route(
        method="GET",
        path=f"{BASE}/jobs/<origin>/<id>",
        operation="get_job",
        summary="One job with its attempts.",
        answer=Job,
        cli="job show",
    ),
    Route(
        method="GET",
        path=f"{BASE}/routing",
        operation="get_routing",
        summary="The policy, where each facade would send a chat now, and what is held against engines.",
        answer=Routing,
        cli="route show",
    ),
    Route(
        method="POST",
        path=f"{BASE}/routing/explain",
        operation="explain_routing",
        summary="Where a request would go, and why not elsewhere; nothing is sent or reserved.",
        body=ExplainBody,
        example=ExplainBody("ollama", "/api/chat", "llama3.2"),
        answer=Explanation,
        cli="route explain",
    ),
    Route(
        method="GET",
        path=f"{BASE}/errors",
        operation="list_errors",
        summary="What is wrong now, the worst first.",
        answer=views.ErrorList,
        cli="error list",
    ),
    Route(
        method="POST",
        path=f"{BASE}/errors/<node>/dismiss/<path:id>",
        operation="dismiss_error",
        summary="Take an error entry from sight.",
        answer=views.Dismissed,
        cli="error dismiss",
    ),
    Route(
        method="GET",
        path=f"{BASE}/cluster",
        operation="get_cluster",
        summary="The members of the cluster, and those that were; no cluster where this node is in none.",
        answer=Roster,
        cli="cluster show",
    ),
    Route(
        method="POST",
        path=f"{BASE}/cluster/leave",
        operation="leave_cluster",
        summary="Leave the cluster; no other member needs to be there for that.",
        answer=cluster.Left,
        cli="cluster leave",
    ),
    Route(
        method="DELETE",
        path=f"{BASE}/cluster/members/<uuid>",
        operation="remove_member",
        summary="Put a member out of the cluster.",
        query=cluster.RemovalQuery,
        answer=cluster.Removed,
        cli="cluster remove",
    ),
    Route(
        method="GET",
        path=f"{BASE}/cluster/audit",
        operation="list_audit",
        summary="What was done to trust, the newest first.",
        query=cluster.AuditQuery,
        answer=cluster.AuditList,
        cli="cluster audit",
    ),
    Route(
        method="POST",
        path=f"{BASE}/cluster/invitations",
        operation="invite",
        summary="Invite a node; the code is in this answer and nowhere else.",
        body=cluster.InviteBody,
        example=cluster.InviteBody(address="192.168.1.20"),
        answer=cluster.Invited,
        status=201,
        cli="invite",
    ),
    Route(
        method="GET",
        path=f"{BASE}/cluster/invitations",
        operation="list_invitations",
        summary="Invitations in both directions; ended ones for an hour.",
        answer=cluster.InvitationList,
        cli="pending",
    ),
    Route(
        method="GET",
        path=f"{BASE}/cluster/invitations/<id>",
        operation="get_invitation",
        summary="One invitation.",
        answer=Invitation,
        cli="invite --wait",
    ),
    Route(
        method="DELETE",
        path=f"{BASE}/cluster/invitations/<id>",
        operation="cancel_invitation",
        summary="Take back an invitation that this node made.",
        answer=Invitation,
        cli="cancel",
    ),
    Route(
        method="POST",
        path=f"{BASE}/cluster/invitations/<id>/answer",
        operation="answer_invitation",
        summary="Accept an invitation by its code, or decline it; answers when it has ended, or after 30 s.",
        body=cluster.AnswerBody,
        example=cluster.AnswerBody(accept=False),
        answer=Invitation,
        cli="accept",
    ),
    Route(
        method="GET",
        path=f"{BASE}/cluster/identity",
        operation="get_identity",
        summary="This node's UUID and the digest of its certificate.",
        answer=cluster.NodeIdentity,
        cli="identity show",
    ),
    Route(
        method="POST",
        path=f"{BASE}/cluster/identity/new",
        operation="renew_identity",
        summary="Make a new UUID, key and certificate: the cure of a copied disk.",
        body=cluster.NewIdentityBody,
        example=cluster.NewIdentityBody(confirm=True, abandon=True),
        answer=cluster.NodeIdentity,
        cli="identity new",
    ),
)
