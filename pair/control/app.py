"""The control API as a Klein app: every route of the table, answered from the sources.

Who may ask was settled before (:mod:`pair.surfaces.site`, :mod:`pair.control.auth`).
"""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec
from klein import Klein
from msgspec import Struct
from twisted.internet.defer import Deferred

from pair.choices import SettingLocked
from pair.control import cluster, routing, views
from pair.control.openapi import document
from pair.control.routes import ROUTES, EndpointChange, JobQuery, Nothing, Route
from pair.errors.book import NotDismissable
from pair.jobs.view import BadCursor, JobFilter
from pair.proxy.facades import NoSuchFacade, PortOccupied, PortReserved
from pair.proxy.listeners import PortDenied
from pair.proxy.portwords import denial
from pair.records.jobs import JobState
from pair.surfaces.answers import Reply, detached, json_reply, render_failures, send
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klein.resource import KleinResource
    from twisted.web.iweb import IRequest

    from pair.control.revision import Revision
    from pair.control.sources import ClusterSources, ControlSources

S = TypeVar("S", bound=Struct)

_STATES: frozenset[JobState] = frozenset(get_args(JobState))
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"(?:unknown|missing required) field `([^`]*)`")


class ControlApi:
    """Answers each operation of the table.

    A method is called by its route's ``operation``: with the query, with the
    body where the route has one, and with what stands in the path by name.

    Args:
        sources: what is shown.
        revision: whoever joins the parts subscribes its ``bump`` to all that the sources show.
    """

    def __init__(self, sources: ControlSources, revision: Revision) -> None:
        self._sources = sources
        self._revision = revision

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
        engines = views.engine_views(self._sources.engines(), self._sources.engine_address)
        return json_reply(views.EngineList(*self._stamp(), engines))

    def list_models(self, query: Nothing) -> Reply:
        """UI-41."""
        return json_reply(views.ModelList(*self._stamp(), views.model_rows(self._sources.engines())))

    def list_jobs(self, query: JobQuery) -> Reply:
        """UI-45, JB-58."""
        wanted = JobFilter(
            state=None if query.state is None else _states(query.state),
            node=None if query.node is None else self._node(query.node),
            engine=query.engine,
            model=query.model,
            since=query.since,
        )
        try:
            page = self._sources.jobs.page(wanted, query.limit, query.cursor)
        except BadCursor:
            raise _invalid("cursor", "The cursor is none that this API gave.") from None
        return json_reply(views.JobList(*self._stamp(), page.jobs, page.next_cursor))

    def get_job(self, query: Nothing, origin: str, id: str) -> Reply:
        """UI-45."""
        job = self._sources.jobs.get(self._node(origin), id)
        if job is None:
            raise Refused(404, "no_such_job", "No such job is known here; ended ones are kept for a while only.")
        return json_reply(job)

    def get_routing(self, query: Nothing) -> Reply:
        """UI-54, RT-54."""
        facades = [each.facade for each in self._sources.facades.endpoints()]
        return json_reply(routing.routing(self._sources.scheduling, facades))

    def explain_routing(self, query: Nothing, asked: routing.ExplainBody) -> Reply:
        """UI-56, RT-67."""
        return json_reply(routing.explanation(self._sources.scheduling, asked))

    def list_errors(self, query: Nothing) -> Reply:
        """UI-47, JB-79."""
        return json_reply(views.ErrorList(*self._stamp(), self._sources.errors.entries()))

    def dismiss_error(self, query: Nothing, node: str, id: str) -> Reply:
        """UI-47, JB-74."""
        if self._node(node) != self._sources.node:
            raise Refused(404, "no_such_node", "No node has that id.")
        try:
            self._sources.errors.dismiss(id)
        except NotDismissable:
            raise Refused(404, "no_such_error", "No such error entry is shown on this node.") from None
        return json_reply(views.Dismissed(id))

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
            raise Refused(503, "not_ready", "Membership and pairing are not up on this node.")
        return self._sources.cluster

    def _endpoints(self) -> tuple[views.EndpointView, ...]:
        return views.endpoint_views(self._sources.facades.endpoints(), self._sources.engines())

    async def _changed(self, facade: str, change: Deferred[None]) -> Reply:
        """The facade after ``change``, or why that was refused."""
        try:
            await change
        except NoSuchFacade:
            raise Refused(404, "no_such_endpoint", "There is no such facade.") from None
        except SettingLocked as locked:
            message = f"It is set by the {locked.source.name}, and so cannot be changed while the node runs."
            raise Refused(409, locked.code, message, key=locked.key, source=locked.source.where) from None
        except PortReserved:
            raise _invalid("port", "That port is kept for another part of PAIR, or for an engine.") from None
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
        return self._sources.node if node == "self" else node

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

    def serve(request: IRequest, **path: str) -> bytes | Deferred[bytes]:
        query, body = _read_query(request.args, route.query), _read_body(request.content.read(), route.body)
        given = () if route.body is Nothing else (body,)
        reply = handle(query, *given, **path)
        if isinstance(reply, Reply):
            return send(request, reply)
        return detached(Deferred.fromCoroutine(reply)).addCallback(lambda reply: send(request, reply))

    return serve


def _read_query(arguments: Mapping[bytes, list[bytes]], wanted: type[S]) -> S:
    """The query as ``wanted``.

    Raises:
        Refused: It has what ``wanted`` has not, a value that it does not allow, or the same name twice (JB-58).
    """
    values = {}
    for name, given in arguments.items():
        if len(given) > 1:
            raise _invalid(name.decode("utf-8", "replace"), "It may be given once.")
        values[name.decode("utf-8", "replace")] = given[0].decode("utf-8", "replace")
    try:
        return msgspec.convert(values, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(_path(error), "It is not known here, or it has a value that is not allowed.") from None


def _read_body(data: bytes, wanted: type[S]) -> S:
    """The body as ``wanted``; no body at all is an empty object.

    Raises:
        Refused: It is not JSON, or does not fit (UI-12).
    """
    try:
        return msgspec.json.decode(data or b"{}", type=wanted)
    except msgspec.ValidationError as error:
        message = "The body has a field that is not known here or of a wrong type, or lacks one."
        raise Refused(400, "bad_request", message, path=_path(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(400, "bad_request", "The body is not one JSON value.", path="") from None


def _states(text: str) -> frozenset[JobState]:
    states = frozenset(state for state in _STATES if state in text.split(","))
    if len(states) != len(set(text.split(","))):
        raise _invalid("state", f"The states are {', '.join(sorted(_STATES))}.")
    return states


def _invalid(path: str, message: str) -> Refused:
    return Refused(422, "invalid_value", message, path=path)


def _path(error: msgspec.ValidationError) -> str:
    """The field of which ``error`` tells, as a dotted path."""
    text = str(error)
    place, unknown = _PLACE.search(text), _UNKNOWN.search(text)
    return ".".join(found[1] for found in (place, unknown) if found is not None)
