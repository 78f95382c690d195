"""Tests of the path tables, of dialects and of what an engine's answer says."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.routing.dialects import (
    ROUTES,
    Dialect,
    Pattern,
    Route,
    alternative,
    classify,
    id_in_path,
    match,
    normalise_path,
    routes_of,
    with_routes,
)
from pair.test.routing.table import DECLARED, OPERATIONS, PATHS

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


def split(key: str) -> tuple[str, str]:
    method, path = key.split(" ")
    return method, path.replace("{id}", "org/some:id")


class TableTests(SynchronousTestCase):
    """The tables of section 4 of the proxy page."""

    def test_every_route_is_found_in_its_role(self) -> None:
        """Method and path give the route, with and without one trailing slash (RT-6)."""
        for facade, roles in PATHS.items():
            for role, keys in roles.items():
                for key in keys:
                    method, path = split(key)
                    for sent in (path, path if path == "/" else f"{path}/"):
                        route = match(facade, method, normalise_path(sent))
                        assert route is not None, key
                        self.assertEqual((route.key, route.role), (key, role))

    def test_no_route_beside_the_tables(self) -> None:
        """The tables have what the page has, each once."""
        for facade, routes in ROUTES.items():
            keys = [each.key for each in routes]
            self.assertEqual(len(keys), len(set(keys)))
            self.assertEqual(set(keys), {key for keys in PATHS[facade].values() for key in keys})

    def test_another_method_is_no_route(self) -> None:
        """A listed path by another method is passed through (RT-6)."""
        for facade, roles in PATHS.items():
            listed = {split(key) for keys in roles.values() for key in keys}
            for _, path in listed:
                for method in METHODS:
                    known = (method, path) in listed or (method == "HEAD" and ("GET", path) in listed)
                    self.assertEqual(match(facade, method, path) is not None, known, f"{facade} {method} {path}")

    def test_near_paths_are_no_routes(self) -> None:
        """Only the path as listed counts: no second slash, case, encoding, prefix or empty id."""
        for path in (
            "/api/chat//",
            "/API/chat",
            "/api/%63hat",
            "/api/chat/x",
            "//api/chat",
            "/api",
            "",
            "/v1/models/",
            "/v1/rerank",
        ):
            for method in METHODS:
                self.assertIsNone(match("ollama", method, path), f"{method} {path}")

    def test_one_trailing_slash_only(self) -> None:
        """Two are not one: what is matched is what is sent on (RT-6)."""
        for sent, wanted in [("/api/chat/", "/api/chat"), ("/api/chat//", "/api/chat/"), ("/", "/"), ("//", "/")]:
            self.assertEqual(normalise_path(sent), wanted)
        self.assertIsNone(match("ollama", "POST", normalise_path("/api/chat//")))

    def test_head_is_get_unless_listed(self) -> None:
        """HEAD of a list is the list; HEAD of a blob is a route of its own, and GET of one is none."""
        self.assertEqual(match("ollama", "HEAD", "/api/tags"), match("ollama", "GET", "/api/tags"))
        blob = match("ollama", "HEAD", "/api/blobs/sha256:ab")
        assert blob is not None
        self.assertEqual((blob.method, blob.role), ("HEAD", "mutate"))
        self.assertIsNone(match("ollama", "GET", "/api/blobs/sha256:ab"))

    def test_id_is_the_rest_of_the_path(self) -> None:
        """Percent-decoded once, slashes included (PX-23)."""
        for path, wanted in [
            ("/v1/models/llama3", "llama3"),
            ("/v1/models/org/name:tag", "org/name:tag"),
            ("/v1/models/name/", "name/"),
            ("/v1/models/org%2Fname%3Atag", "org/name:tag"),
            ("/v1/models/a%252Fb", "a%2Fb"),
            ("/v1/models/{id}", "{id}"),
        ]:
            route = match("ollama", "GET", path)
            assert route is not None
            self.assertEqual(id_in_path(route, path), wanted)

    def test_no_id_leads_elsewhere(self) -> None:
        """PX-23: an engine may resolve dot segments, and a member would get at any path with them (PX-87)."""
        for id in ("..", "../../api/tags", "a/../../x", "%2e%2e/x", "a%2F..%2Fx", ".", "./x", "..\\x"):
            for facade in ROUTES:
                self.assertIsNone(match(facade, "GET", f"/v1/models/{id}"), id)
        for id in ("...", "a..b", "..a", "v1.", ".hidden"):
            self.assertIsNotNone(match("ollama", "GET", f"/v1/models/{id}"), id)

    @given(st.text(alphabet="/apiv1chtmodels{}%2F", max_size=24), st.sampled_from(METHODS))
    def test_what_matches_is_listed(self, path: str, method: str) -> None:
        """Whatever is sent, a match is a route of that facade."""
        for facade in ROUTES:
            route = match(facade, method, path)
            self.assertTrue(route is None or route in ROUTES[facade])

    def test_operations(self) -> None:
        """Each inference route says what its job is called (JB-34); all others say ``other``."""
        for routes in ROUTES.values():
            for route in routes:
                self.assertEqual(route.operation, OPERATIONS.get(route.path, "other"))
                self.assertEqual(route.role == "inference", route.path in OPERATIONS)

    def test_where_the_model_is(self) -> None:
        """Routes that pass the gate say where the model is named; others do not look for one."""
        for routes in ROUTES.values():
            for route in routes:
                expected = {"/api/show": "body_or_name"}.get(route.path)
                if expected is None and route.role in ("inference", "owner"):
                    expected = "path" if route.path.endswith("{id}") else "body"
                self.assertEqual(route.model_from, expected or "none", route.key)

    def test_what_streams_unasked(self) -> None:
        """Only Ollama's chat and generate do (PX-37)."""
        streaming = {route.path for routes in ROUTES.values() for route in routes if route.streams}
        self.assertEqual(streaming, {"/api/chat", "/api/generate"})

    def test_keys_of_lists(self) -> None:
        """Each list has the field that names its records (PX-71); nothing else has one."""
        keys = {route.path: route.list_key for routes in ROUTES.values() for route in routes if route.list_key}
        self.assertEqual(
            keys,
            {
                "/api/tags": "model",
                "/api/ps": "model",
                "/v1/models": "id",
                "/api/v0/models": "id",
                "/api/v1/models": "key",
            },
        )
        self.assertEqual(len(keys), len({r.path for rs in ROUTES.values() for r in rs if r.role == "listing"}))

    def test_what_changes_the_list_of_an_engine(self) -> None:
        """Four answers end when it was read again, three before; an upload of a layer changes nothing yet (PX-26)."""
        after = {route.path: route.after for routes in ROUTES.values() for route in routes if route.after != "nothing"}
        self.assertEqual(
            after,
            {
                "/api/pull": "reread_first",
                "/api/create": "reread_first",
                "/api/copy": "reread_first",
                "/api/delete": "reread_first",
                "/api/v1/models/load": "reread",
                "/api/v1/models/unload": "reread",
                "/api/v1/models/download": "reread",
            },
        )

    def test_families(self) -> None:
        """The family of a path is that of its API (PX-84)."""
        for facade, path, family in [
            ("ollama", "/api/chat", "ollama"),
            ("ollama", "/v1/messages", "anthropic"),
            ("lmstudio", "/v1/messages/count_tokens", "anthropic"),
            ("lmstudio", "/v1/rerank", "openai"),
            ("lmstudio", "/api/v0/completions", "lmstudio0"),
            ("lmstudio", "/api/v1/chat", "lmstudio1"),
        ]:
            route = match(facade, "POST", path)
            assert route is not None
            self.assertEqual(route.family, family)

    def test_a_route_needs_a_role_and_a_path(self) -> None:
        """A bad one cannot be made (RT-3)."""
        for role, path in [("", "/x"), ("pass", "/x"), ("owner", "x"), ("owner", "/{id}/x")]:
            with self.assertRaises(ValueError):
                Route("GET", path, role, "openai")  # type: ignore[arg-type]


class DeclarationTests(SynchronousTestCase):
    """What a kind says that it serves."""

    def test_the_table_of_kinds_can_be_declared(self) -> None:
        """Each row of RT-8 comes out of the helper as it is written down."""
        for kind, facades in DECLARED.items():
            for facade, keys in facades.items():
                self.assertEqual(routes_of(facade, *(split_path(key) for key in keys)), keys, kind)

    def test_a_slash_stands_for_all_below(self) -> None:
        """``/`` is the whole table, ``/api/v0/`` that family."""
        self.assertEqual(routes_of("ollama", "/"), {each.key for each in ROUTES["ollama"]})
        self.assertEqual(
            routes_of("lmstudio", "/api/v0/"),
            {each.key for each in ROUTES["lmstudio"] if each.family == "lmstudio0"},
        )

    def test_models_come_with_v1(self) -> None:
        """Where a kind has ``/v1`` routes it also has the one that shows a model (RT-8)."""
        self.assertIn("GET /v1/models/{id}", routes_of("ollama", "/v1/completions"))
        self.assertNotIn("GET /v1/models/{id}", routes_of("ollama", "/api/chat"))

    def test_a_path_that_is_none(self) -> None:
        """A misspelt path is refused, not left out."""
        with self.assertRaises(ValueError):
            routes_of("ollama", "/v1/chat/completion")
        with self.assertRaises(ValueError):
            routes_of("ollama", "/v1/rerank")

    def test_more_routes_by_setting(self) -> None:
        """A path of the setting is added on each facade that lists it, and refused where none does."""
        plain = Dialect("x", {facade: routes_of(facade, "/v1/completions") for facade in ROUTES})
        more = with_routes(plain, ["/v1/responses", "/v1/rerank"])
        self.assertEqual(more.routes["ollama"], plain.routes["ollama"] | {"POST /v1/responses"})
        self.assertEqual(more.routes["lmstudio"], plain.routes["lmstudio"] | {"POST /v1/responses", "POST /v1/rerank"})
        with self.assertRaises(ValueError):
            with_routes(plain, ["/v2/anything"])

    def test_bad_dialects_and_patterns(self) -> None:
        """A dialect has a kind and an idle life, a pattern is a regular expression (RT-3)."""
        for make in (
            lambda: Dialect("", {}),
            lambda: Dialect("x", {}, idle=0.0),
            lambda: Dialect("x", {}, idle=float("nan")),
            lambda: Pattern((404,), "("),
        ):
            with self.assertRaises(ValueError):
                make()

    def test_values_are_frozen(self) -> None:
        """Nothing changes a route once it is made (RT-3)."""
        with self.assertRaises(AttributeError):
            ROUTES["ollama"][0].path = "/other"  # type: ignore[misc]
        self.assertEqual(msgspec.structs.replace(ROUTES["ollama"][0]), ROUTES["ollama"][0])


def split_path(key: str) -> str:
    return key.split(" ")[1]


class AlternativeTests(SynchronousTestCase):
    """Another path for the same work (PX-24)."""

    def test_the_best_that_is_offered(self) -> None:
        """Chat is offered as chat first, then as completion; what has no other path has none."""
        both = {"POST /v1/chat/completions", "POST /v1/completions"}
        for path, offered, wanted in [
            ("/api/chat", both, "/v1/chat/completions"),
            ("/api/generate", both, "/v1/completions"),
            ("/api/generate", {"POST /v1/chat/completions"}, "/v1/chat/completions"),
            ("/api/embed", {"POST /v1/embeddings"}, "/v1/embeddings"),
            ("/api/embeddings", {"POST /v1/embeddings"}, "/v1/embeddings"),
            ("/api/embed", both, None),
            ("/api/show", {"GET /v1/models/{id}"}, "/v1/models/{id}"),
            ("/v1/messages", both, None),
        ]:
            route = match("ollama", "POST", path)
            assert route is not None
            self.assertEqual(alternative(route, offered), wanted, path)


class ClassifyTests(SynchronousTestCase):
    """What an answer says of the engine (RT-10)."""

    ollama = Dialect("ollama", {}, stale=(Pattern((404,), "model .{1,300} not found"),))
    lmstudio = Dialect("lmstudio", {}, stale=(Pattern((400, 404), "no models loaded|model_not_found"),))

    def test_defaults(self) -> None:
        """Each status has its verdict."""
        for status, wanted in [
            (200, "ok"),
            (302, "ok"),
            (400, "client"),
            (401, "client"),
            (404, "route_missing"),
            (408, "fault"),
            (413, "client"),
            (422, "client"),
            (429, "busy"),
            (500, "fault"),
            (502, "fault"),
            (503, "busy"),
            (504, "fault"),
        ]:
            self.assertEqual(classify(self.ollama, status, b""), wanted, str(status))

    def test_model_not_found(self) -> None:
        """A 404 in the engine's own words is about the model; any other is about the route."""
        for body, wanted in [
            (b'{"error":"model \'llama3\' not found"}', "stale_model"),
            (b'{"error":"model \\"llama3\\" not found, try pulling it first"}', "stale_model"),
            (b'{"error":"MODEL x NOT FOUND"}', "stale_model"),
            (b"404 page not found", "route_missing"),
            (b"\xff\xfe\x00", "route_missing"),
        ]:
            self.assertEqual(classify(self.ollama, 404, body), wanted, repr(body))

    def test_words_count_only_with_their_status(self) -> None:
        """The same words under another status are no sign of a missing model."""
        self.assertEqual(classify(self.ollama, 400, b"model x not found"), "client")
        self.assertEqual(classify(self.lmstudio, 400, b'{"error":{"code":"model_not_found"}}'), "stale_model")
        self.assertEqual(classify(self.lmstudio, 400, b"'temperature' must be a number"), "client")

    def test_only_the_first_eight_kibibytes(self) -> None:
        """What stands behind 8,192 bytes is not looked at."""
        words = b"model x not found"
        self.assertEqual(classify(self.ollama, 404, b" " * (8192 - len(words)) + words), "stale_model")
        self.assertEqual(classify(self.ollama, 404, b" " * 8192 + words), "route_missing")

    @given(st.integers(100, 599), st.binary(max_size=64))
    def test_never_raises(self, status: int, body: bytes) -> None:
        """Any status and any bytes have a verdict."""
        self.assertIn(
            classify(self.ollama, status, body), ("ok", "stale_model", "route_missing", "busy", "client", "fault")
        )
