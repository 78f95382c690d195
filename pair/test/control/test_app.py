"""Tests of pair.control.app, asked through the site that stands in front of it."""

from __future__ import annotations

import shlex
from errno import EACCES
from sqlite3 import OperationalError
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from pair.choices import SettingLocked
from pair.control.app import ControlApi, control_app
from pair.control.route import BASE, EVENTS, Route
from pair.control.routes import ROUTES
from pair.proxy.facades import NoSuchFacade, PortOccupied, PortReserved
from pair.proxy.listeners import PortDenied
from pair.records.errors import ShownError
from pair.records.jobs import Usage
from pair.settings import Source
from pair.test.control.samples import ASKED, INVENTORY, MAC, NODE, NOW, RACK, SHED, TOKEN, Node
from pair.test.surfaces.wire import Conversation, request

if TYPE_CHECKING:
    from werkzeug.routing import Map

    from pair.test.surfaces.wire import Answer


OTHERS = ShownError("test:broken:tap", RACK, "warning", "It drips.", "none", "auto", NOW, NOW, 1, 1, stale=True)


def example_path(route: Route) -> str:
    return (
        route.path.replace("<origin>", "self")
        .replace("/nodes/manual/<id>", f"/nodes/manual/{SHED.id}")
        .replace("/nodes/<id>/drain", "/nodes/self/drain")
        .replace("/nodes/<id>", f"/nodes/{RACK}")
        .replace("<node>", "self")
        .replace("<facade>", "ollama")
        .replace("<uuid>", RACK)
        .replace("/invitations/<id>", f"/invitations/{ASKED.id}")
        .replace("<path:id>", "a:b")
        .replace("<id>", "1")
    )


class WalkTests(SynchronousTestCase):
    """Every route, and an unknown path, from the outside (UI-9, X02)."""

    def setUp(self) -> None:
        self.node = Node()
        unknown = [("GET", "/"), ("GET", f"{BASE}/nowhere"), ("POST", f"{BASE}/service"), ("DELETE", "/healthz/x")]
        self.all = [(route.method, example_path(route)) for route in ROUTES] + unknown
        self.public = {route.path for route in ROUTES if route.auth != "token"}

    def test_foreign_host(self) -> None:
        """A foreign Host is refused everywhere, with the token too (UI-4)."""
        for method, path in self.all:
            answer = self.node.ask(method, path, host="evil.example")
            self.assertEqual((answer.status, answer.code), (421, "bad_host"), path)

    def test_foreign_origin(self) -> None:
        """A foreign Origin is refused everywhere, with the token too (UI-5)."""
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            for method, path in self.all:
                answer = self.node.ask(method, path, origin=origin)
                self.assertEqual((answer.status, answer.code), (403, "bad_origin"), path)

    def test_no_credentials(self) -> None:
        """Without the token all is refused but the public paths (UI-13, UI-14)."""
        for method, path in self.all:
            answer = self.node.ask(method, path, authorization=None)
            if path in self.public:
                self.assertEqual(answer.status, 200, path)
            else:
                self.assertEqual((answer.status, answer.code), (401, "unauthorized"), path)
                self.assertEqual(answer.field("www-authenticate"), "Bearer")

    def test_no_way_around(self) -> None:
        """Other ways to write a path are judged as the path that they lead to."""
        for path in ("/%61pi/v1/service", "/api%2Fv1/service"):
            self.assertEqual(self.node.ask("GET", path, sec_fetch_site="cross-site").code, "bad_origin", path)
            self.assertEqual(self.node.ask("GET", path, authorization=None).code, "unauthorized", path)
        self.assertEqual(self.node.ask("GET", "//api/v1/service").code, "bad_request")

    def test_simple_post(self) -> None:
        """What a page can post without asking first is refused for its type, with the token even (UI-12)."""
        answer = self.node.ask("POST", f"{BASE}/errors/self/dismiss/a:b", b"{}", content_type="text/plain")
        self.assertEqual((answer.status, answer.code), (415, "unsupported_media_type"))


class TableTests(SynchronousTestCase):
    def test_table_is_the_url_map(self) -> None:
        """Klein has the routes of the table and no others (UI-30)."""
        node = Node()
        urls: Map = control_app(ControlApi(node.sources, node.revision, node.hub)).url_map
        found = {
            (method, rule.rule, rule.endpoint)
            for rule in urls.iter_rules()
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        }
        self.assertEqual(found, {(route.method, route.path, route.operation) for route in ROUTES})

    def test_every_operation_has_a_command(self) -> None:
        """Each operation has a command or a reason to have none, never both (UI-30)."""
        for route in ROUTES:
            self.assertNotEqual(route.cli is None, not route.no_cli, route.operation)

    def test_operations_are_unique(self) -> None:
        """An operation id names one route (UI-29)."""
        self.assertEqual(len({route.operation for route in ROUTES}), len(ROUTES))

    def test_answers_fit_the_table(self) -> None:
        """What a route answers is what the table says it answers (UI-30)."""
        node = Node()
        job = node.ledger.admit("lmstudio", "openai", "chat", "/v1/chat/completions", False, "m", 10)
        node.job_commands.open[job.id] = job
        node.errors.raise_entry("test:broken:thing", thing="thing")
        node.invitations.found = [ASKED]
        for route in ROUTES:
            if route.content == EVENTS:
                continue  # it does not end
            if route.operation == "hide_error":
                node.errors.raise_entry("test:broken:thing", thing="thing")  # it was dismissed
            path = example_path(route).replace("/self/1", f"/self/{job.id}").replace("a:b", "test:broken:thing")
            answer = node.ask(route.method, path, msgspec.json.encode(route.example) if route.example else None)
            self.assertEqual(answer.status, route.status, route.operation)
            if route.answer is not bytes:
                msgspec.json.decode(answer.body, type=route.answer)


class HealthTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()

    def test_health(self) -> None:
        """Health tells that we live and for how long, and no name (OP-42)."""
        self.assertEqual(self.node.ask("GET", "/healthz").json, {"status": "ok", "uptimeMs": 5000})

    def test_ready(self) -> None:
        """A ready node says so (OP-42)."""
        answer = self.node.ask("GET", "/readyz")
        self.assertEqual((answer.status, answer.json), (200, {"ready": True}))

    def test_not_ready(self) -> None:
        """One that is not says why, with 503 (OP-42)."""
        self.node.reasons = ["store_read_only"]
        answer = self.node.ask("GET", "/readyz")
        self.assertEqual((answer.status, answer.json), (503, {"ready": False, "reasons": ["store_read_only"]}))

    def test_metrics(self) -> None:
        """Metrics come as Prometheus text (OP-40)."""
        answer = self.node.ask("GET", "/metrics")
        self.assertEqual(answer.body, b"pair_up 1\n")
        self.assertEqual(answer.field("content-type"), "text/plain; version=0.0.4; charset=utf-8")

    def test_metrics_off(self) -> None:
        """Switched off, they are not there."""
        self.node.metrics = None
        self.assertEqual(self.node.ask("GET", "/metrics").status, 404)

    def test_head(self) -> None:
        """A probe may ask by HEAD."""
        answer = self.node.ask("HEAD", "/healthz")
        self.assertEqual((answer.status, answer.body), (200, b""))


class ReadTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()

    def read(self, path: str) -> Any:
        answer = self.node.ask("GET", BASE + path)
        self.assertEqual(answer.status, 200)
        return answer.json

    def test_service(self) -> None:
        """The process, in camelCase, with its listeners and parts (UI-22, UI-31)."""
        service = self.read("/service")
        self.assertEqual((service["node"], service["startedAt"], service["stateDir"]), (NODE, NOW - 5000, "/state"))
        self.assertEqual(service["protocol"], {"min": 1, "max": 1})
        self.assertEqual(service["listeners"], [{"name": "console", "address": "127.0.0.1:14300", "state": "bound"}])
        self.assertEqual(service["components"][0]["name"], "store")
        self.assertEqual(service["watchdog"], {"stalls": 0, "lastStallAt": None, "longestMs": 0})

    def test_stamp(self) -> None:
        """A list tells which state of things it shows (UI-25)."""
        before = self.read("/engines")
        self.node.revision.bump()
        after = self.read("/models")
        self.assertEqual(before["generation"], after["generation"])
        self.assertEqual((before["revision"], after["revision"]), (0, 1))

    def test_engines(self) -> None:
        """Each engine with its node, its address and the number of its models (UI-37)."""
        embedded, ollama = self.read("/engines")["engines"]
        self.assertEqual((embedded["node"], embedded["address"]), (NODE, "127.0.0.1:1235"))
        self.assertEqual((embedded["state"], embedded["health"], embedded["version"]), ("running", "ok", "0.2"))
        self.assertEqual((embedded["modelCount"], embedded["loadedCount"]), (2, 1))
        self.assertEqual((ollama["state"], ollama["address"]), ("stopped", None))

    def test_models(self) -> None:
        """One row a name with all copies; the owners run; the same weights under two names are two rows (UI-41)."""
        rows = {row["name"]: row for row in self.read("/models")["models"]}
        self.assertEqual(list(rows), ["nomic-embed", "smollm2", "smollm2:360m"])
        both = rows["smollm2:360m"]
        self.assertEqual([copy["engine"] for copy in both["copies"]], ["embedded", "ollama"])
        self.assertEqual([len(copy["loaded"]) for copy in both["copies"]], [1, 0])
        self.assertEqual((both["owners"], both["sameAs"]), ([NODE], ["smollm2"]))
        self.assertEqual((rows["smollm2"]["owners"], rows["smollm2"]["sameAs"]), ([], ["smollm2:360m"]))
        self.assertEqual(rows["nomic-embed"]["sameAs"], [])
        self.assertNotIn("listed", both["copies"][0])

    def test_other_nodes(self) -> None:
        """Engines and models of other nodes are listed too; no node that is offline owns a model (UI-37, UI-41)."""
        self.node.peers = (replace(INVENTORY, node=RACK), replace(INVENTORY, node=MAC))
        engines = self.read("/engines")["engines"]
        self.assertEqual([each["node"] for each in engines], [NODE, NODE, RACK, RACK, MAC, MAC])
        self.assertEqual([each["address"] is None for each in engines], [False, True, True, True, True, True])
        rows = {row["name"]: row for row in self.read("/models")["models"]}
        self.assertEqual(len(rows["smollm2:360m"]["copies"]), 6)
        self.assertEqual(rows["smollm2:360m"]["owners"], [NODE, RACK])

    def test_endpoints(self) -> None:
        """A bound facade comes with a model that is there and a command for it; another says why not (UI-59)."""
        bound, failed = self.read("/endpoints")["endpoints"]
        self.assertEqual((bound["url"], bound["defaultModel"]), ("http://127.0.0.1:1234", "smollm2:360m"))
        (snippet,) = bound["snippets"]
        words = shlex.split(snippet["text"])
        self.assertEqual(
            (snippet["client"], words[:2]), ("curl", ["curl", "http://127.0.0.1:1234/v1/chat/completions"])
        )
        self.assertEqual(msgspec.json.decode(words[-1])["model"], "smollm2:360m")
        self.assertEqual((failed["url"], failed["snippets"]), (None, []))
        self.assertEqual((failed["state"], failed["detail"]), ("failed", "Port 11434 is held."))

    def test_openapi(self) -> None:
        """The document names every operation, and its references lead somewhere (UI-29)."""
        document = self.read("/openapi.json")
        operations = {each["operationId"] for methods in document["paths"].values() for each in methods.values()}
        self.assertEqual(operations, {route.operation for route in ROUTES})
        self.assertIn(f"{BASE}/errors/{{node}}/dismiss/{{id}}", document["paths"])
        text = msgspec.json.encode(document).decode()
        referred = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
        self.assertLessEqual(referred, set(document["components"]["schemas"]))
        query = document["paths"][f"{BASE}/jobs"]["get"]["parameters"]
        self.assertIn("limit", [each["name"] for each in query])


class EndpointTests(SynchronousTestCase):
    """UI-59: a facade's port and switch."""

    def setUp(self) -> None:
        self.node = Node()

    def put(self, body: bytes, facade: str = "ollama") -> Answer:
        return self.node.ask("PUT", f"{BASE}/endpoints/{facade}", body)

    def delete(self) -> Answer:
        return self.node.ask("DELETE", f"{BASE}/endpoints/ollama/port")

    def test_changed(self) -> None:
        """What is given is changed, and the answer is the facade as it is then."""
        for body, port, enabled in (
            (b'{"port":11500}', 11500, None),
            (b'{"enabled":false}', None, False),
            (b'{"port":1,"enabled":true}', 1, True),
            (b'{"port":null,"enabled":null}', None, None),
            (b"{}", None, None),
        ):
            answer = self.put(body)
            self.assertEqual((answer.status, answer.json["facade"]), (200, "ollama"), body)
            self.assertEqual(self.node.facades.asked.pop(), ("ollama", port, enabled))

    def test_default(self) -> None:
        """The default port is sought again."""
        answer = self.delete()
        self.assertEqual((answer.status, answer.json["wantedPort"]), (200, 11434))
        self.assertEqual(self.node.facades.asked, [("ollama", "default")])

    def test_bad_bodies(self) -> None:
        """What does not fit is refused before anything is done, with the field's name (UI-12)."""
        for body, path in (
            (b'{"port":0}', "port"),
            (b'{"port":65536}', "port"),
            (b'{"port":"11500"}', "port"),
            (b'{"enabled":1}', "enabled"),
            (b'{"ports":1}', "ports"),
            (b"[]", ""),
            (b'{"port":11500} x', ""),
        ):
            answer = self.put(body)
            self.assertEqual((answer.status, answer.code), (400, "bad_request"), body)
            self.assertEqual(answer.json["error"]["details"], {"path": path}, body)
        self.assertEqual(self.node.facades.asked, [])

    def test_refused(self) -> None:
        """Each reason has its code, and says what a person needs to go on (UI-24, OP-7)."""
        locked = SettingLocked("proxy.ports.ollama", Source("file", "/etc/pair/pair.toml"))
        for reason, status, code, details in (
            (NoSuchFacade("ollama"), 404, "no_such_endpoint", {}),
            (locked, 409, "setting_locked", {"key": "proxy.ports.ollama", "source": "/etc/pair/pair.toml"}),
            (PortReserved(1234), 422, "invalid_value", {"path": "port"}),
            (PortOccupied(11500, "nc (pid 9)"), 409, "port_occupied", {"port": "11500", "holder": "nc (pid 9)"}),
            (PortDenied(80, "::", EACCES), 409, "port_occupied", {}),
            (OperationalError("disk I/O error"), 503, "not_ready", {}),
        ):
            self.node.facades.outcome = lambda reason=reason: fail(reason)  # type: ignore[misc]
            for answer in (self.put(b'{"port":11500}'), self.delete()):
                self.assertEqual((answer.status, answer.code), (status, code))
                self.assertEqual(answer.json["error"]["details"], details)

    def test_fault(self) -> None:
        """A fault of ours is logged, and told without its words."""
        self.node.facades.outcome = lambda: fail(OSError("/secret"))
        answer = self.put(b'{"port":11500}')
        self.assertEqual((answer.status, answer.code), (500, "internal"))
        self.assertNotIn(b"secret", answer.body)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_client_that_leaves(self) -> None:
        """What it asked for goes on; its outcome is nobody's any more."""
        for outcome in (None, OSError()):
            going = Deferred[None]()
            self.node.facades.outcome = lambda going=going: going  # type: ignore[misc]
            conversation = Conversation(self.node.site())
            token = f"Bearer {TOKEN.decode()}"
            conversation.send(request("DELETE", f"{BASE}/endpoints/ollama/port", authorization=token))
            self.assertEqual(conversation.answers, [])
            conversation.transport.loseConnection()
            self.assertFalse(going.called)
            going.callback(None) if outcome is None else going.errback(outcome)
            self.assertEqual(conversation.answers, [])

    def test_document(self) -> None:
        """The document says what the body may hold (UI-29)."""
        document = self.node.ask("GET", f"{BASE}/openapi.json").json
        operation = document["paths"][f"{BASE}/endpoints/{{facade}}"]["put"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        self.assertEqual(schema, {"$ref": "#/components/schemas/EndpointChange"})
        self.assertEqual(set(document["components"]["schemas"]["EndpointChange"]["properties"]), {"port", "enabled"})


class JobTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()
        for number in range(3):
            job = self.node.ledger.admit("lmstudio", "openai", "chat", "/v1/chat/completions", False, f"m{number}", 10)
            job.attempt_began(NODE, "embedded", "pressure", "rank=1/1")
            if number < 2:
                job.committed(200)
                job.completed(200, 20, Usage(1, 2))

    def jobs(self, query: str = "") -> Answer:
        return self.node.ask("GET", f"{BASE}/jobs{query}")

    def ids(self, query: str = "") -> list[str]:
        answer = self.jobs(query)
        self.assertEqual(answer.status, 200, query)
        return [job["id"].partition(".")[2] for job in answer.json["jobs"]]

    def test_list(self) -> None:
        """Jobs under way first, then the ended ones (JB-58)."""
        self.assertEqual(self.ids(), ["3", "1", "2"])

    def test_filters(self) -> None:
        """By state, several too, node, engine, model and time (UI-45)."""
        for query, expected in (
            ("?state=completed", ["1", "2"]),
            ("?state=queued,running", ["3"]),
            ("?node=self", ["3", "1", "2"]),
            (f"?node={NODE}", ["3", "1", "2"]),
            ("?node=other", []),
            ("?engine=embedded&model=m1", ["2"]),
            (f"?since={NOW + 1}", []),
        ):
            self.assertEqual(self.ids(query), expected, query)

    def test_pages(self) -> None:
        """A page ends with the cursor of the next one, the last with none (UI-25)."""
        first = self.jobs("?limit=2").json
        self.assertEqual(len(first["jobs"]), 2)
        second = self.jobs(f"?limit=2&cursor={first['nextCursor']}").json
        self.assertEqual((len(second["jobs"]), second["nextCursor"]), (1, None))

    def test_bad_filters(self) -> None:
        """A filter that is none is 422 and named (JB-58)."""
        for query, path in (
            ("?limit=0", "limit"),
            ("?limit=501", "limit"),
            ("?limit=ten", "limit"),
            ("?since=-1", "since"),
            ("?state=done", "state"),
            ("?state=", "state"),
            ("?cursor=x", "cursor"),
            ("?colour=red", "colour"),
            ("?node=a&node=b", "node"),
        ):
            answer = self.jobs(query)
            self.assertEqual((answer.status, answer.code), (422, "invalid_value"), query)
            self.assertEqual(answer.json["error"]["details"], {"path": path}, query)

    def test_one(self) -> None:
        """One job by its origin and id, with its attempts and tokens (UI-45)."""
        for origin in ("self", NODE):
            job = self.node.ask("GET", f"{BASE}/jobs/{origin}/a1b2c3d4e5f60718.1").json
            self.assertEqual((job["state"], job["attempts"][0]["engine"]), ("completed", "embedded"))
            self.assertEqual(job["usage"], {"promptTokens": 1, "outputTokens": 2})

    def test_as_shown(self) -> None:
        """A job says whether its end is a guess, and whether its origin was not heard for a while (JB-53, JB-54)."""
        for job in (self.jobs().json["jobs"][0], self.node.ask("GET", f"{BASE}/jobs/self/a1b2c3d4e5f60718.3").json):
            self.assertEqual((job["inferred"], job["stale"]), (False, False))

    def cancel(self, id: str, origin: str = "self") -> Answer:
        return self.node.ask("POST", f"{BASE}/jobs/{origin}/{id}/cancel")

    def test_cancelled(self) -> None:
        """A job of this node is ended, once (JB-47)."""
        job = self.node.ledger.admit("lmstudio", "openai", "chat", "/v1/chat/completions", False, "m", 10)
        self.node.job_commands.open[job.id] = job
        answer = self.cancel(job.id)
        self.assertEqual((answer.status, answer.json["state"]), (200, "cancelled"))
        answer = self.cancel(job.id, NODE)
        self.assertEqual((answer.status, answer.code), (409, "finished"))

    def test_not_cancelled(self) -> None:
        """Not one that is unknown, nor another node's, which is named (JB-47)."""
        self.assertEqual((self.cancel("x.1").status, self.cancel("x.1").code), (404, "no_such_job"))
        theirs = replace(self.node.ledger.active()[0], origin=RACK, id="b2.1")
        self.patch(self.node.jobs, "get", lambda *_: theirs)
        answer = self.cancel("b2.1", RACK)
        self.assertEqual((answer.status, answer.code), (409, "not_origin"))
        self.assertEqual(answer.json["error"]["details"], {"node": RACK})

    def test_cleared(self) -> None:
        """The history can be cleared, if the disk lets it (UI-46)."""
        answer = self.node.ask("DELETE", f"{BASE}/jobs/history")
        self.assertEqual((answer.status, answer.json, self.node.job_commands.cleared), (200, {"cleared": True}, 1))
        self.node.job_commands.fault = OperationalError()
        answer = self.node.ask("DELETE", f"{BASE}/jobs/history")
        self.assertEqual((answer.status, answer.code), (503, "store"))

    def test_unknown(self) -> None:
        """An unknown one is 404 (UI-24)."""
        for path in ("/jobs/self/x.1", "/jobs/other/a1b2c3d4e5f60718.1"):
            answer = self.node.ask("GET", BASE + path)
            self.assertEqual((answer.status, answer.code), (404, "no_such_job"))


class ErrorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()

    def listed(self) -> list[str]:
        return [entry["id"] for entry in self.node.ask("GET", f"{BASE}/errors").json["errors"]]

    def dismiss(self, id: str, node: str = "self", body: bytes | None = None) -> Answer:
        return self.node.ask("POST", f"{BASE}/errors/{node}/dismiss/{id}", body)

    def test_dismissed(self) -> None:
        """A dismissed entry is gone; its id is the rest of the path, whatever is in it (UI-47)."""
        for subject, path in (
            ("a", "a"),
            ("a/b", "a/b"),
            ("a/b", "a%2Fb"),
            ("http://x", "http%3A%2F%2Fx"),
            ("a b", "a%20b"),
        ):
            id = f"test:broken:{subject}"
            self.node.errors.raise_entry(id, thing=subject)
            self.assertEqual(self.listed(), [id])
            answer = self.dismiss(f"test:broken:{path}")
            self.assertEqual((answer.status, answer.json, self.listed()), (200, {"dismissed": id}, []), path)

    def test_unknown(self) -> None:
        """What is not there cannot be dismissed (UI-24)."""
        answer = self.dismiss("test:broken:x")
        self.assertEqual((answer.status, answer.code), (404, "no_such_error"))

    def test_other_node(self) -> None:
        """Nor what is another node's: that node is named, and it can be hidden here (JB-73)."""
        self.assertEqual(self.dismiss("test:broken:x", node=RACK).code, "no_such_error")
        self.node.shown_errors.others = [OTHERS]
        answer = self.dismiss(OTHERS.id, node=RACK)
        self.assertEqual((answer.status, answer.code), (409, "not_origin"))
        self.assertEqual(answer.json["error"]["details"], {"node": RACK})
        self.assertEqual(self.listed(), [OTHERS.id])

    def test_hidden(self) -> None:
        """An entry of any node can be hidden on this one (UI-47)."""
        self.node.shown_errors.others = [OTHERS]
        for node, id in ((RACK.upper(), OTHERS.id), ("self", "test:broken:a/b")):
            self.node.errors.raise_entry("test:broken:a/b", thing="x")
            answer = self.node.ask("POST", f"{BASE}/errors/{node}/hide/{id}")
            self.assertEqual((answer.status, answer.json["hidden"]), (200, id))
            self.assertNotIn(id, self.listed())
            self.assertEqual(self.node.ask("POST", f"{BASE}/errors/{node}/hide/{id}").code, "no_such_error")
        self.assertEqual([each.id for each in self.node.errors.entries()], ["test:broken:a/b"])

    def test_stale(self) -> None:
        """What a node said that is offline now is shown as that (JB-78)."""
        self.node.errors.raise_entry("test:broken:a", thing="a")
        self.node.shown_errors.others = [OTHERS]
        entries = self.node.ask("GET", f"{BASE}/errors").json["errors"]
        self.assertEqual([(each["node"], each["stale"]) for each in entries], [(NODE, False), (RACK, True)])

    def test_body(self) -> None:
        """It takes no body; an empty object is none, anything else is named (UI-12)."""
        self.node.errors.raise_entry("test:broken:x", thing="x")
        for body, path in ((b'{"a":1}', "a"), (b"[]", ""), (b"{} {}", ""), (b"\xff", ""), (b"[" * 5000, "")):
            answer = self.dismiss("test:broken:x", body=body)
            self.assertEqual((answer.status, answer.code), (400, "bad_request"), body[:10])
            self.assertEqual(answer.json["error"]["details"], {"path": path}, body[:10])
        self.assertEqual(self.dismiss("test:broken:x", body=b"{}").status, 200)
