"""What a request must pass before it is served (PX-13), and who serves it then.

The checks run in the order of the specification, each with its own answer;
no body byte is read before all of those that need none have passed.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from pair.authority import is_loopback
from pair.proxy import trail
from pair.proxy.attempt import Terms
from pair.proxy.attempts import Dispatch
from pair.proxy.bodies import is_name, read
from pair.proxy.browser import BrowserPolicy, preflight_fields
from pair.proxy.collecting import Collector, Ended, KeptBody
from pair.proxy.direct import Direct, home_engine, own_engine
from pair.proxy.outcomes import ROUNDS
from pair.proxy.replies import Fields, Refusal, refusal
from pair.proxy.request import ClientRequest, dialect_of
from pair.proxy.unrecorded import UNRECORDED
from pair.routing.candidates import Intent, Request
from pair.routing.labels import parse_labels

if TYPE_CHECKING:
    from pair.protocols.http_exchange import Exchange
    from pair.proxy.identity import Banners
    from pair.proxy.listings import Listings
    from pair.proxy.plane import Plane
    from pair.routing.dialects import Route

OWNER_PATIENCE = 10.0
"""Seconds to wait for the head of an owner route's answer (PX-27)."""

_NO_LABELS: frozenset[str] = frozenset()
_OWNER_TERMS = Terms(rounds=1, patience=OWNER_PATIENCE, commits_on_head=True, reserves=False)


class Admission:
    """Takes the exchanges of one facade.

    Args:
        plane: the shared parts.
        facade: its name.
        browser: what web pages may do.
        listings: answers the lists.
        banners: answers who we are.
        nonce: names this process to its own probes (PX-16).
        run: names it in request ids.
    """

    def __init__(
        self,
        plane: Plane,
        facade: str,
        browser: BrowserPolicy,
        listings: Listings,
        banners: Banners,
        nonce: str,
        run: str,
    ) -> None:
        self.stopping = False
        self._plane = plane
        self._facade = facade
        self._browser = browser
        self._listings = listings
        self._banners = banners
        self._nonce = nonce.encode("ascii")
        self._run = run
        self._numbers = count(1)
        self._terms = Terms(ROUNDS, plane.settings.engine_wait_max, "proxy.engine_wait_max")
        self._model_less_terms = Terms(1, plane.settings.engine_wait_max, "proxy.engine_wait_max")
        self._served: Ended = self._inference_ended  # Bound once, for each stream holds it.

    def received(self, exchange: Exchange) -> None:
        """A request's head is complete."""
        now = self._plane.monotonic()
        request = ClientRequest(exchange, self._facade, self.next_id(), now)
        why = self._objection(exchange)
        if why is not None:
            extra = ((b"X-Pair-Facade", self._nonce),) if why.code == "proxy_facade" else ()
            self._refuse(request, why, extra)
            return
        request.allow_origin()
        preflight = preflight_fields(exchange.head)
        if preflight is not None:
            request.status = 204
            exchange.respond(204, preflight)
            self._request_ended(request)
        elif self.stopping:
            self._refuse(request, refusal("stopping"))
        else:
            self._serve(request)

    def next_id(self) -> str:
        """The id of one more request, for the log and for ``X-Pair-Request``."""
        return f"{self._run}.{next(self._numbers)}"

    def stop(self) -> None:
        """Break off what is being served on this facade (PX-68)."""
        for each in tuple(self._plane.underway):
            if each.facade == self._facade:
                each.stop("stopping")

    def _objection(self, exchange: Exchange) -> Refusal | None:
        """What is wrong with the head, whatever it asks for (PX-14 to PX-19)."""
        notes = exchange.head.notes
        if "objection" not in notes:
            notes["objection"] = self._judge(exchange)
        objection: Refusal | None = notes["objection"]
        return objection

    def _judge(self, exchange: Exchange) -> Refusal | None:
        head = exchange.head
        if not is_loopback(exchange.peer):
            return refusal("loopback_only")
        if head.value(b"x-pair-hop") is not None:
            return refusal("loop")
        if head.value(b"x-pair-probe") == b"1":
            return refusal("proxy_facade")
        return self._browser.check(head)

    def _serve(self, request: ClientRequest) -> None:
        """By the role of its route alone (RT-7)."""
        role = None if request.route is None else request.route.role
        if role == "inference":
            self._admit_inference(request)
        elif role == "owner":
            self._admit_owner(request)
        elif role == "listing":
            self._listings.answer(request, self._request_ended)
        elif role == "identity":
            self._banners.answer(request)
            self._request_ended(request)
        elif role == "mutate":
            self._send_directly(request, own_engine(self._plane, self._facade), "no_local_engine")
        elif role == "tunnel" and request.websocket:
            self._send_directly(request, own_engine(self._plane, self._facade), "no_engine", upgrade=b"websocket")
        else:
            self._send_directly(request, home_engine(self._plane, self._facade), "route_unknown")

    def _request_ended(self, request: ClientRequest) -> None:
        self._plane.meters.request_ended(request)
        trail.request_ended(request, self._plane.monotonic)

    def _admit_inference(self, request: ClientRequest) -> None:
        if not self._plane.active.take(1):
            self._refuse(request, refusal("overloaded", retry_after=1))
            return
        Collector(self._plane, request, self._dispatch_inference, self._served).begin()

    def _inference_ended(self, request: ClientRequest) -> None:
        self._plane.active.give(1)
        self._request_ended(request)

    def _dispatch_inference(self, request: ClientRequest, body: KeptBody, ended: Ended) -> None:
        route = _route(request)
        routed = read(route, request.exchange.head.value(b"content-type"), body.data)
        if isinstance(routed, Refusal):
            self._refuse_collected(request, body, routed, ended)
            return
        wanted = self._wanted(request, routed.model or "", routed.intent)
        if isinstance(wanted, Refusal):
            self._refuse_collected(request, body, wanted, ended)
            return
        retry_after = self._plane.scheduling.retry_after(wanted)
        if retry_after is not None:
            self._refuse_collected(request, body, refusal("busy", retry_after=retry_after), ended)
            return
        job = self._plane.jobs.admit(
            self._facade,
            dialect_of(route),
            route.operation if routed.intent == "run" else routed.intent,
            route.path,
            routed.stream,
            routed.model,
            len(body.data),
        )
        terms = self._terms if routed.model else self._model_less_terms
        Dispatch(self._plane, request, wanted, body, job, terms, routed.stream, ended).begin()

    def _admit_owner(self, request: ClientRequest) -> None:
        ended = self._request_ended
        if _route(request).model_from != "path":
            Collector(self._plane, request, self._read_owner, ended).begin()
        elif is_name(request.id_in_path):
            self._dispatch_owner(request, None, request.id_in_path, ended)
        else:
            self._refuse(request, refusal("bad_model"))

    def _read_owner(self, request: ClientRequest, body: KeptBody, ended: Ended) -> None:
        routed = read(_route(request), request.exchange.head.value(b"content-type"), body.data)
        if isinstance(routed, Refusal):
            self._refuse_collected(request, body, routed, ended)
        else:
            self._dispatch_owner(request, body, routed.model or "", ended)

    def _dispatch_owner(self, request: ClientRequest, body: KeptBody | None, model: str, ended: Ended) -> None:
        wanted = self._wanted(request, model, "run")
        if isinstance(wanted, Refusal):
            self._refuse_collected(request, body, wanted, ended)
        else:
            Dispatch(self._plane, request, wanted, body, UNRECORDED, _OWNER_TERMS, False, ended).begin()

    def _wanted(self, request: ClientRequest, model: str, intent: Intent) -> Request | Refusal:
        """The request in routing's words, with the labels that its header and the rules ask for (RT-23)."""
        asked = _NO_LABELS
        header = request.exchange.head.values(b"x-pair-require")
        if header:
            try:
                asked = parse_labels(b",".join(header).decode("latin-1"))
            except ValueError:
                return refusal("bad_request")
        require, forbid = self._plane.scheduling.demands(model, asked)
        return Request(self._facade, _route(request), model, intent, require, forbid)

    def _send_directly(
        self, request: ClientRequest, engine: str | None, otherwise: str, upgrade: bytes | None = None
    ) -> None:
        if engine is None:
            self._refuse(request, refusal(otherwise))
        else:
            Direct(self._plane, request, engine, self._request_ended, upgrade).begin()

    def _refuse(self, request: ClientRequest, why: Refusal, extra: Fields = ()) -> None:
        request.refuse(why, extra)
        self._request_ended(request)

    def _refuse_collected(self, request: ClientRequest, body: KeptBody | None, why: Refusal, ended: Ended) -> None:
        request.refuse(why)
        if body is not None:
            body.free()
        ended(request)


def _route(request: ClientRequest) -> Route:
    assert request.route is not None, "only listed paths have a role"
    return request.route
