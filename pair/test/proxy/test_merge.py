"""Tests of :mod:`pair.proxy.merge`."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from ollama import ListResponse, ProcessResponse
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.merge import listing
from pair.records.engines import EngineInventory, EngineStatus, LoadedInstance, Model, NodeInventory
from pair.routing.candidates import NodeFacts
from pair.routing.dialects import Dialect, Route, match, routes_of

DIGEST = "a80c4f17acd55265feec403c7aef86be0c25983ab279d83f3bcd3abbcb5b8b72"
TAGS = {
    "name": "llama3.2:latest",
    "model": "llama3.2:latest",
    "modified_at": "2025-11-29T10:00:00.123456789+01:00",
    "size": 2019393189,
    "digest": DIGEST,
    "details": {"parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"]},
    "something_new": {"kept": [1, 2.50]},
}
OLLAMA = Dialect("ollama", {"ollama": routes_of("ollama", "/")}, "ollama", "on_disk")
LMSTUDIO = Dialect("lmstudio", {"lmstudio": routes_of("lmstudio", "/v1/", "/api/v0/", "/api/v1/")}, "exact", "on_disk")
V1 = {each: routes_of(each, "/v1/chat/completions") for each in ("ollama", "lmstudio")}
EMBEDDED = Dialect("embedded", V1)
LOADED = (LoadedInstance("smollm2:135m", context_length=4096),)


def raw(entry: object) -> Raw:
    return Raw(msgspec.json.encode(entry))


def llama(**fields: Any) -> Model:
    values: dict[str, Any] = {"id": "llama3.2:latest", "engine": "ollama", "facade": "ollama", "listed": raw(TAGS)}
    return Model(**{**values, **fields})


def smollm(**fields: Any) -> Model:
    values: dict[str, Any] = {"id": "smollm2:135m", "engine": "embedded", "facade": "lmstudio", "loaded": LOADED}
    return Model(**{**values, **fields})


def node(name: str, *engines: tuple[Dialect, tuple[Model, ...]], routable: bool = True, **facts: Any) -> NodeFacts:
    inventory = NodeInventory(
        name,
        tuple(
            EngineInventory(EngineStatus(each.kind, each.kind, "ollama", routable=routable), models)
            for each, models in engines
        ),
        drained=facts.pop("drained", False),
    )
    return NodeFacts(inventory, {each.kind: each for each, _ in engines}, **facts)


def ask(path: str, *nodes: NodeFacts, facade: str = "ollama", explain: bool = False) -> list[dict[str, Any]]:
    """The entries of a list; the bytes must be the same at each asking."""
    route = match(facade, "GET", path)
    assert isinstance(route, Route)
    body = listing(facade, route, nodes, explain=explain)
    assert body == listing(facade, route, reversed(nodes), explain=explain)
    answer = msgspec.json.decode(body)
    entries = answer["models"] if "models" in answer else answer["data"]
    assert isinstance(entries, list)
    return entries


class EnvelopeTests(SynchronousTestCase):
    """What is around the entries."""

    def test_nothing_known(self) -> None:
        """An empty list is an answer (PX-73)."""
        for facade, path, expected in [
            ("ollama", "/api/tags", b'{"models":[]}'),
            ("ollama", "/api/ps", b'{"models":[]}'),
            ("ollama", "/v1/models", b'{"object":"list","data":[]}'),
            ("lmstudio", "/v1/models", b'{"object":"list","data":[]}'),
            ("lmstudio", "/api/v0/models", b'{"object":"list","data":[]}'),
            ("lmstudio", "/api/v1/models", b'{"models":[]}'),
        ]:
            route = match(facade, "GET", path)
            assert route is not None
            self.assertEqual(listing(facade, route, ()), expected)


class WhoIsListedTests(SynchronousTestCase):
    """Whose models stand in a list (PX-69)."""

    def names(self, *nodes: NodeFacts, path: str = "/api/tags", facade: str = "ollama") -> list[str]:
        return [each.get("model") or each["id"] for each in ask(path, *nodes, facade=facade)]

    def test_who_could_not_serve_is_left_out(self) -> None:
        """Offline, untrusted, incompatible and drained nodes, and engines that do not run."""
        engine = (OLLAMA, (llama(),))
        self.assertEqual(self.names(node("n", engine)), ["llama3.2:latest"])
        self.assertEqual(self.names(node("n", engine, trusted=False, local=True)), ["llama3.2:latest"])
        for facts in ({"online": False}, {"trusted": False}, {"compatible": False}, {"drained": True}):
            self.assertEqual(self.names(node("n", engine, **facts)), [], facts)
        self.assertEqual(self.names(node("n", engine, routable=False)), [])

    def test_only_what_can_be_asked_for(self) -> None:
        """Where only a loaded model makes an owner, others are left out (RT-16)."""
        self.assertEqual(self.names(node("n", (EMBEDDED, (smollm(loaded=()),)))), [])
        self.assertEqual(self.names(node("n", (OLLAMA, (llama(),)), loaded_only=True)), [])

    def test_facades(self) -> None:
        """An engine is listed on the facades on which it serves anything (PX-71)."""
        nodes = node("n", (OLLAMA, (llama(),)), (EMBEDDED, (smollm(),)))
        self.assertEqual(self.names(nodes, path="/v1/models"), ["llama3.2:latest", "smollm2:135m"])
        self.assertEqual(self.names(nodes, path="/v1/models", facade="lmstudio"), ["smollm2:135m"])

    def test_instances(self) -> None:
        """A loaded copy ``key:2`` is not listed beside ``key``; a tag ``:2`` of Ollama is a model (PX-72, M10)."""
        first = Model("key", "lmstudio", "lmstudio", loaded=(LoadedInstance("key"), LoadedInstance("key:2")))
        copy = Model("key:2", "lmstudio", "lmstudio", loaded=(LoadedInstance("key:2"),))
        lmstudio = node("n", (LMSTUDIO, (first, copy)))
        self.assertEqual(self.names(lmstudio, path="/v1/models", facade="lmstudio"), ["key"])
        tags = (llama(id="m:1", listed=None), llama(id="m:2", listed=None))
        self.assertEqual(self.names(node("n", (OLLAMA, tags))), ["m:1", "m:2"])

    def test_equal_weights(self) -> None:
        """Two names of the same weights are two entries (M05)."""
        one = llama(id="a:1", digest=DIGEST, listed=None)
        two = llama(id="b:1", digest=DIGEST, listed=None)
        self.assertEqual(self.names(node("1", (OLLAMA, (one,))), node("2", (OLLAMA, (two,)))), ["a:1", "b:1"])


class MergeTests(SynchronousTestCase):
    """One entry for each model (PX-71, PX-72)."""

    def test_own_entry_passes_untouched(self) -> None:
        """What the engine says is said, unknown fields too, byte for byte."""
        route = match("ollama", "GET", "/api/tags")
        assert route is not None
        body = listing("ollama", route, [node("n", (OLLAMA, (llama(),)))])
        self.assertEqual(body, b'{"models":[%s]}' % msgspec.json.encode(TAGS))

    def test_whose_entry(self) -> None:
        """The local node's, else that of the lowest id; names are compared as Ollama does (M01)."""

        def marked(name: str, model: str, **facts: Any) -> NodeFacts:
            return node(name, (OLLAMA, (llama(id=model, listed=raw({"model": model, "mark": name})),)), **facts)

        a, b = marked("a", "M:latest"), marked("b", "m")
        self.assertEqual(ask("/api/tags", b, a), [{"model": "M:latest", "mark": "a"}])
        self.assertEqual(ask("/api/tags", a, marked("b", "m", local=True)), [{"model": "m", "mark": "b"}])

    def test_own_family_before_others(self) -> None:
        """On one node the engine whose dialect the list has speaks for a name that two engines have."""
        same = smollm(id="llama3.2:latest")
        entries = ask("/api/tags", node("n", (EMBEDDED, (same,)), (OLLAMA, (llama(),))))
        self.assertEqual(entries, [TAGS])

    def test_smallest_context(self) -> None:
        """Of differing context lengths the smallest is shown; an absent one is not invented."""

        def with_context(name: str, **fields: object) -> NodeFacts:
            entry = {"id": "m", "object": "model", **fields}
            model = Model("m", "embedded", "lmstudio", loaded=LOADED, listed=raw(entry))
            return node(name, (EMBEDDED, (model,)))

        entries = ask(
            "/v1/models",
            with_context("a", max_model_len=8192, meta={"n_ctx_train": 131072}),
            with_context("b", max_model_len=4096, meta={"n_ctx_train": 2048}, context_length=1),
            with_context("c"),
        )
        self.assertEqual(
            entries, [{"id": "m", "object": "model", "max_model_len": 4096, "meta": {"n_ctx_train": 2048}}]
        )

    def test_order_and_explain(self) -> None:
        """Order is by key; with explain each entry says which nodes have the model (PX-74, PX-83)."""
        entries = ask(
            "/api/tags",
            node("b", (OLLAMA, (llama(), llama(id="Alpha", listed=None)))),
            node("a", (OLLAMA, (llama(),))),
            explain=True,
        )
        self.assertEqual([each["name"] for each in entries], ["Alpha", "llama3.2:latest"])
        self.assertEqual([each["pair"] for each in entries], [{"nodes": ["b"]}, {"nodes": ["a", "b"]}])
        self.assertNotIn("pair", ask("/api/tags", node("b", (OLLAMA, (llama(),))))[0])

    def test_unreadable_entries(self) -> None:
        """An entry that cannot be read, or of another shape, gives way to a built one."""
        for listed in (Raw(b"[]"), Raw(b"{"), Raw(b"[" * 2000 + b"]" * 2000), raw({"id": "x"})):
            entries = ask("/api/tags", node("n", (OLLAMA, (llama(listed=listed),))))
            self.assertEqual(entries[0]["name"], "llama3.2:latest")

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["m", "M:latest", "n:1", "n:2"])), max_size=8))
    def test_any_mixture(self, have: list[tuple[str, str]]) -> None:
        """Whoever has what: one entry a key, in the order of keys, whatever the order of the nodes."""
        models = {name: tuple(sorted({model for each, model in have if each == name})) for name, _ in have}
        nodes = [
            node(name, (OLLAMA, tuple(llama(id=model, listed=None) for model in listed)))
            for name, listed in models.items()
        ]
        keys = [each["name"].lower().replace("m:latest", "m") for each in ask("/api/tags", *nodes)]
        self.assertEqual(keys, sorted(set(keys)))


class BuiltTests(SynchronousTestCase):
    """Entries made of what is known, for engines of another family (PX-71)."""

    full = smollm(
        size_bytes=98362432,
        digest=f"sha256:{DIGEST}",
        family="llama",
        parameters=134515008,
        quantization="Q4_1",
        format="gguf",
        context_max=8192,
        modified_at=1764460800123,
        capabilities=("chat", "tools"),
    )
    nodes = node("n", (EMBEDDED, (full, smollm(id="bare"))))

    def test_tags(self) -> None:
        """Name, digest and what is known; a digest that is not known is zeros."""
        bare, full = ask("/api/tags", self.nodes)
        self.assertEqual(bare, {"name": "bare", "model": "bare", "digest": "0" * 64, "details": {}})
        self.assertEqual(
            full,
            {
                "name": "smollm2:135m",
                "model": "smollm2:135m",
                "modified_at": "2025-11-30T00:00:00.123000Z",
                "size": 98362432,
                "digest": DIGEST,
                "details": {
                    "format": "gguf",
                    "family": "llama",
                    "parameter_size": "134.52M",
                    "quantization_level": "Q4_1",
                },
            },
        )

    def test_running(self) -> None:
        """One entry a model in memory, of Ollama's own and of others (PX-74)."""
        loaded = (LoadedInstance("llama3.2:latest", 8192, None, 3000000000, 2000000000, 1764460860000),)
        entries = ask(
            "/api/ps", node("n", (OLLAMA, (llama(loaded=loaded), llama(id="cold"))), (EMBEDDED, (smollm(),)))
        )
        self.assertEqual([each["name"] for each in entries], ["llama3.2:latest", "smollm2:135m"])
        warm = entries[0]
        self.assertEqual(
            (warm["size"], warm["size_vram"], warm["expires_at"], warm["context_length"], warm["digest"]),
            (3000000000, 2000000000, "2025-11-30T00:01:00Z", 8192, DIGEST),
        )
        self.assertNotIn("modified_at", warm)
        self.assertEqual(entries[1]["context_length"], 4096)

    def test_the_official_client_reads_them(self) -> None:
        """The ``ollama`` package makes its own objects of both lists."""
        nodes = [self.nodes, node("m", (OLLAMA, (llama(loaded=(LoadedInstance("llama3.2:latest"),)),)))]
        tags = ListResponse(models=ask("/api/tags", *nodes))  # type: ignore[arg-type]
        self.assertEqual([each.model for each in tags.models], ["bare", "llama3.2:latest", "smollm2:135m"])
        assert tags.models[2].details is not None
        self.assertEqual(tags.models[2].details.parameter_size, "134.52M")
        running = ProcessResponse(models=ask("/api/ps", *nodes))  # type: ignore[arg-type]
        self.assertEqual([each.name for each in running.models], ["bare", "llama3.2:latest", "smollm2:135m"])

    def test_openai(self) -> None:
        """The four members that OpenAI's clients demand, for Ollama's models too."""
        entries = ask("/v1/models", node("n", (OLLAMA, (llama(modified_at=1764400000999),))))
        self.assertEqual(
            entries,
            [{"id": "llama3.2:latest", "object": "model", "created": 1764400000, "owned_by": "ollama"}],
        )
        self.assertEqual(ask("/v1/models", self.nodes)[0]["created"], 0)

    def test_lmstudio(self) -> None:
        """LM Studio's own two lists name the embedded model in their own words."""
        entry = ask("/api/v0/models", self.nodes, facade="lmstudio")[1]
        self.assertEqual((entry["id"], entry["type"], entry["state"]), ("smollm2:135m", "llm", "loaded"))
        self.assertEqual((entry["max_context_length"], entry["loaded_context_length"]), (8192, 4096))
        self.assertEqual(entry["capabilities"], ["tool_use"])
        plain = node("n", (EMBEDDED, (smollm(capabilities=("completion",)),)))
        self.assertNotIn("capabilities", ask("/api/v0/models", plain, facade="lmstudio")[0])
        entry = ask("/api/v1/models", self.nodes, facade="lmstudio")[1]
        self.assertEqual((entry["key"], entry["params_string"]), ("smollm2:135m", "134.52M"))
        self.assertEqual(entry["loaded_instances"], [{"id": "smollm2:135m", "config": {"context_length": 4096}}])
        self.assertTrue(entry["capabilities"]["trained_for_tool_use"])

    def test_lmstudio_entries_stay_in_their_list(self) -> None:
        """An entry of ``/api/v0`` or ``/api/v1`` is shown as it is there, and built anew elsewhere."""
        old = {"id": "q", "object": "model", "type": "embeddings", "state": "not-loaded", "x": 1}
        new = {"key": "q", "type": "embedding", "x": 1}
        for listed, own, other in [(old, "/api/v0/models", "/v1/models"), (new, "/api/v1/models", "/api/v0/models")]:
            nodes = node("n", (LMSTUDIO, (Model("q", "lmstudio", "lmstudio", listed=raw(listed)),)))
            self.assertEqual(ask(own, nodes, facade="lmstudio"), [listed])
            self.assertNotIn("x", ask(other, nodes, facade="lmstudio")[0])

    def test_parameter_sizes(self) -> None:
        """Numbers of parameters are written as Ollama writes them."""
        for parameters, expected in [
            (3212749888, "3.2B"),
            (7000000000, "7B"),
            (134515008, "134.52M"),
            (22000000, "22M"),
            (1500, "2K"),
            (12, "12"),
        ]:
            entries = ask("/api/tags", node("n", (EMBEDDED, (smollm(parameters=parameters),))))
            self.assertEqual(entries[0]["details"]["parameter_size"], expected)
