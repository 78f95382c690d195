"""The routes for where requests go (UI-36, UI-54 to UI-56). Pure data."""

from __future__ import annotations

from pair.control import steering
from pair.control.nodes import NodeView
from pair.control.route import BASE, Route
from pair.control.routing import ExplainBody, Routing
from pair.routing.explain import Explanation

ROUTING_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=f"{BASE}/routing",
        operation="get_routing",
        summary="The policy, where each facade would send a chat now, and what is held against engines.",
        answer=Routing,
        cli="route show",
    ),
    Route(
        method="PUT",
        path=f"{BASE}/routing/policy",
        operation="choose_policy",
        summary="Put engines in order by another policy from now on.",
        body=steering.PolicyBody,
        example=steering.PolicyBody("pressure"),
        answer=Routing,
        cli="route policy",
    ),
    Route(
        method="PUT",
        path=f"{BASE}/routing/selection",
        operation="select_node",
        summary="Send the requests of a facade to one node wherever it can serve them; others stand in for it.",
        body=steering.SelectionBody,
        example=steering.SelectionBody("ollama", "self"),
        answer=Routing,
        cli="route select",
    ),
    Route(
        method="DELETE",
        path=f"{BASE}/routing/selection/<facade>",
        operation="unselect_node",
        summary="Let the policy alone decide on a facade again.",
        answer=Routing,
        cli="route auto",
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
        method="PUT",
        path=f"{BASE}/nodes/<id>/drain",
        operation="drain_node",
        summary="Let this node take no new work, or take it again; what is under way ends normally.",
        body=steering.DrainBody,
        example=steering.DrainBody(drained=True, reason="new GPU"),
        answer=NodeView,
        cli="node drain",
    ),
)
