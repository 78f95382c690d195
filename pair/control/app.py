"""The control API as a Klein app: every route of the table, answered from the sources.

Who may ask was settled before (:mod:`pair.surfaces.site`, :mod:`pair.control.auth`).
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from klein import Klein
from twisted.internet.defer import Deferred

from pair.addresses import parse_node
from pair.choices import SettingLocked
from pair.control import cluster, errors, jobs, nodes, routing, steering, streaming, views
from pair.control.openapi import document
from pair.control.reading import invalid, read_body, read_query
from pair.control.route import Nothing
from pair.control.routes import ROUTES, EndpointChange, EventQuery
from pair.proxy.facades import NoSuchFacade, PortOccupied, PortReserved
from pair.proxy.listeners import PortDenied
from pair.proxy.portwords import denial
from pair.surfaces.answers import Reply, detached, json_reply, render_failures, send
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from klein.resource import KleinResource

    from pair.control.events import EventHub
    from pair.control.revision import Revision
    from pair.control.route import Route
    from pair.control.sources import ClusterSources, ControlSources, JobCommands, Nodes, Steering
    from pair.surfaces.site import SurfaceRequest


class ControlApi:
    """Answers each operation of the table.

    A method is called by its route's ``operation``: with the query, with the
    body where the route has one, and with what stands in the path by name.

    Args:
        sources: what is shown.
        revision: whoever joins the parts subscribes its ``bump`` to all that the sources show.
        hub: tells of changes.
    """

    def __init__(self, sources: ControlSources, revision: Revision, hub: EventHub) -> None:
        self._sources = sources
        self._revision = revision
        self._hub = hub

    def get_health(self, query: Nothing) -> Reply:
        """OP-42."""
        started_at = self._sources.service().started_at
        return json_reply(views.Health(max(0, self._sources.now() - started_at)))

    def get_readiness(self, query: Nothing) -> Reply:
        """OP-42, OP-43."""
        reasons = tuple(self._sources.readiness())
        return json_reply(views.Readiness(not reasons, reasons), 503 if reasons else 200)

    def get_metrics(self, query: Nothing) -> Reply:
        """OP-40."""
        if self._sources.metrics is None:
            raise Refused(404, "no_such_route", "Metrics are switched off by the setting metrics.enabled.")
        return Reply(self._sources.metrics(), content_type=b"text/plain; version=0.0.4; charset=utf-8")

    def get_openapi(self, query: Nothing) -> Reply:
        """UI-29."""
        return json_reply(document(ROUTES))

    def get_service(self, query: Nothing) -> Reply:
        """UI-31."""
        return json_reply(self._sources.service())

    def list_endpoints(self, query: Nothing) -> Reply:
        """UI-59."""
        return json_reply(views.EndpointList(*self._stamp(), self._endpoints()))

    async def change_endpoint(self, query: Nothing, change: EndpointChange, facade: str) -> Reply:
        """UI-59, PX-96."""
        return await self._changed(facade, self._sources.facades.change(facade, change.port, change.enabled))

    async def reset_endpoint_port(self, query: Nothing, facade: str) -> Reply:
        """UI-59, PX-97."""
        return await self._changed(facade, self._sources.facades.default_port(facade))

    def list_engines(self, query: Nothing) -> Reply:
        """UI-37."""
        sources = self._sources
        engines = views.all_engines(sources.engines(), sources.engine_address, sources.peers())
        return json_reply(views.EngineList(*self._stamp(), engines))

    def list_models(self, query: Nothing) -> Reply:
        """UI-41."""
        sources = self._sources
        entries = () if sources.nodes is None else sources.nodes.all()
        offline = {each.key for each in entries if each.presence == "offline"}
        rows = views.model_rows((sources.engines(), *sources.peers()), offline)
        return json_reply(views.ModelList(*self._stamp(), rows))

    def list_jobs(self, query: jobs.JobQuery) -> Reply:
        """UI-45, JB-58."""
        node = None if query.node is None else self._node(query.node)
        return json_reply(jobs.listed(self._sources.jobs, query, node, self._stamp()))

    def get_job(self, query: Nothing, origin: str, id: str) -> Reply:
        """UI-45."""
        return json_reply(jobs.one(self._sources.jobs, self._node(origin), id))

    def cancel_job(self, query: Nothing, origin: str, id: str) -> Reply:
        """UI-46, JB-47."""
        return json_reply(jobs.cancelled(self._sources.jobs, self._commands, self._node(origin), id))

    async def clear_history(self, query: Nothing) -> Reply:
        """UI-46."""
        return json_reply(await jobs.cleared(self._commands))

    def get_routing(self, query: Nothing) -> Reply:
        """UI-54, RT-54."""
        return json_reply(routing.routing(self._sources))

    async def choose_policy(self, query: Nothing, asked: steering.PolicyBody) -> Reply:
        """UI-54, RT-60."""
        await steering.policy_chosen(self._steering, asked)
        return json_reply(routing.routing(self._sources))

    async def select_node(self, query: Nothing, asked: steering.SelectionBody) -> Reply:
        """UI-55, RT-27."""
        await steering.selected(self._steering, asked, self._entry(asked.node))
        return json_reply(routing.routing(self._sources))

    async def unselect_node(self, query: Nothing, facade: str) -> Reply:
        """UI-55, RT-27."""
        await steering.unselected(self._steering, facade)
        return json_reply(routing.routing(self._sources))

    async def drain_node(self, query: Nothing, asked: steering.DrainBody, id: str) -> Reply:
        """UI-36, RT-22."""
        await steering.drained(self._steering, asked, self._entry(id))
        return json_reply(self._entry(id))

    def explain_routing(self, query: Nothing, asked: routing.ExplainBody) -> Reply:
        """UI-56, RT-67."""
        return json_reply(routing.explanation(self._sources.scheduling, asked))

    def list_errors(self, query: Nothing) -> Reply:
        """UI-47, JB-79."""
        found = self._sources.errors
        return json_reply(errors.ErrorList(*self._stamp(), errors.shown(found.entries()), found.hidden))

    def dismiss_error(self, query: Nothing, node: str, id: str) -> Reply:
        """UI-47, JB-74."""
        sources = self._sources
        return json_reply(errors.dismissed(sources.errors, self._node(node), id, sources.node))

    def hide_error(self, query: Nothing, node: str, id: str) -> Reply:
        """UI-47, JB-73."""
        sources = self._sources
        if sources.hide_error is None:
            raise _not_up()
        return json_reply(errors.hidden(sources.hide_error, self._node(node), id))

    def follow_events(self, query: EventQuery) -> streaming.EventReply:
        """UI-61."""
        return streaming.reply(self._hub, query)

    def list_nodes(self, query: Nothing) -> Reply:
        """UI-33."""
        return json_reply(nodes.NodeList(*self._stamp(), tuple(self._nodes.all())))

    def get_node(self, query: Nothing, id: str) -> Reply:
        """UI-33."""
        return json_reply(self._entry(id))

    def get_telemetry(self, query: nodes.TelemetryQuery, id: str) -> Reply:
        """UI-34, DS-96."""
        return json_reply(nodes.history(self._nodes, self._entry(id), query.window_ms, self._sources.now()))

    async def probe_node(self, query: Nothing, id: str) -> Reply:
        """UI-35."""
        return json_reply(await nodes.probed(self._nodes, self._entry(id), self._sources.now))

    async def add_node(self, query: Nothing, asked: nodes.AddressBody) -> Reply:
        """UI-35, DS-71."""
        node, is_new = await nodes.added(self._nodes, asked)
        return json_reply(node, 201 if is_new else 200)

    async def remove_node(self, query: Nothing, id: str) -> Reply:
        """UI-35."""
        return json_reply(await nodes.removed(self._nodes, id))

    def get_cluster(self, query: Nothing) -> Reply:
        """UI-48."""
        return json_reply(self._cluster.cluster.roster())

    async def leave_cluster(self, query: Nothing) -> Reply:
        """UI-48, CL-88."""
        return json_reply(await cluster.left(self._cluster.cluster))

    async def remove_member(self, query: cluster.RemovalQuery, uuid: str) -> Reply:
        """UI-48, CL-86."""
        return json_reply(await cluster.removed(self._cluster.cluster, self._node(uuid), query.with_admitted))

    async def list_audit(self, query: cluster.AuditQuery) -> Reply:
        """UI-48, CL-104."""
        rows = tuple(await self._cluster.cluster.audit(query.limit))
        return json_reply(cluster.AuditList(*self._stamp(), rows))

    async def invite(self, query: Nothing, asked: cluster.InviteBody) -> Reply:
        """UI-49."""
        return json_reply(await cluster.invited(self._cluster.invitations, asked), 201)

    def list_invitations(self, query: Nothing) -> Reply:
        """UI-50."""
        return json_reply(cluster.InvitationList(*self._stamp(), tuple(self._cluster.invitations.all())))

    def get_invitation(self, query: Nothing, id: str) -> Reply:
        """UI-50."""
        return json_reply(cluster.invitation(self._cluster.invitations, id))

    def cancel_invitation(self, query: Nothing, id: str) -> Reply:
        """UI-50, CL-55."""
        return json_reply(cluster.cancelled(self._cluster.invitations, id))

    async def answer_invitation(self, query: Nothing, answer: cluster.AnswerBody, id: str) -> Reply:
        """UI-50, CL-46."""
        return json_reply(await cluster.answered(self._cluster.invitations, id, answer))

    def get_identity(self, query: Nothing) -> Reply:
        """UI-51, CL-7."""
        return json_reply(self._cluster.cluster.identity())

    async def renew_identity(self, query: Nothing, asked: cluster.NewIdentityBody) -> Reply:
        """UI-51, CL-96."""
        return json_reply(await cluster.renewed(self._cluster.cluster, asked))

    @property
    def _cluster(self) -> ClusterSources:
        if self._sources.cluster is None:
            raise _not_up()
        return self._sources.cluster

    @property
    def _nodes(self) -> Nodes:
        if self._sources.nodes is None:
            raise _not_up()
        return self._sources.nodes

    @property
    def _commands(self) -> JobCommands:
        if self._sources.job_commands is None:
            raise _not_up()
        return self._sources.job_commands

    @property
    def _steering(self) -> Steering:
        if self._sources.steering is None:
            raise _not_up()
        return self._sources.steering

    def _entry(self, id: str) -> nodes.NodeView:
        return nodes.node(self._nodes, id, self._sources.node)

    def _endpoints(self) -> tuple[views.EndpointView, ...]:
        return views.endpoint_views(self._sources.facades.endpoints(), self._sources.scheduling.catalogue.nodes())

    async def _changed(self, facade: str, change: Deferred[None]) -> Reply:
        """The facade after ``change``, or why that was refused."""
        try:
            await change
        except NoSuchFacade:
            raise Refused(404, "no_such_endpoint", "There is no such facade.") from None
        except SettingLocked as locked:
            raise steering.fixed(locked) from None
        except PortReserved:
            raise invalid("port", "That port is kept for another part of PAIR, or for an engine.") from None
        except PortOccupied as occupied:
            message = "Another program listens on that port."
            raise Refused(409, "port_occupied", message, port=str(occupied.port), holder=occupied.holder) from None
        except PortDenied as denied:
            raise Refused(409, "port_occupied", denial(denied)) from None
        except sqlite3.Error:
            message = "The choice could not be written to the disk; nothing has changed."
            raise Refused(503, "not_ready", message) from None
        return json_reply(next(each for each in self._endpoints() if each.facade == facade))

    def _node(self, node: str) -> str:
        return self._sources.node if node == "self" else parse_node(node) or node

    def _stamp(self) -> tuple[str, int]:
        return self._revision.generation, self._revision.number


def control_app(api: ControlApi) -> Klein:
    """``api`` behind the routes of the table."""
    app = Klein()
    # An id is the rest of a path as it stands; merging its slashes would redirect to another one.
    app.url_map.merge_slashes = False
    for route in ROUTES:
        app.route(route.path, methods=[route.method], endpoint=route.operation)(_served(api, route))
    render_failures(app)
    return app


def control_resource(api: ControlApi) -> KleinResource:
    """What a site serves."""
    return control_app(api).resource()


def _served(api: ControlApi, route: Route) -> Any:
    handle = getattr(api, route.operation)

    def serve(request: SurfaceRequest, **path: str) -> bytes | Deferred[bytes] | Deferred[None]:
        query, body = read_query(request.args, route.query), read_body(request.content.read(), route.body)
        given = () if route.body is Nothing else (body,)
        reply = handle(query, *given, **path)
        if isinstance(reply, Reply):
            return send(request, reply)
        if isinstance(reply, streaming.EventReply):
            return reply.begin(request)
        return detached(Deferred.fromCoroutine(reply)).addCallback(lambda reply: send(request, reply))

    return serve


def _not_up() -> Refused:
    return Refused(503, "not_ready", "This part of PAIR is not up on this node.")
