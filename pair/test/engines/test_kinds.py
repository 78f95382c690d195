"""Tests of the kinds of engines: one contract that all keep, and what is particular to each."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.engines import embedded as child
from pair.engines.data import EMBEDDED_WEIGHTS
from pair.engines.facts import Answer, Answers, Details, Found, LaunchOptions, Listing
from pair.engines.kinds import rows
from pair.engines.kinds.embedded import CONTEXT, SLOTS, Embedded
from pair.engines.kinds.llamacpp import LlamaCpp
from pair.engines.kinds.lmstudio import LMStudio
from pair.engines.kinds.ollama import Ollama
from pair.engines.kinds.openai_compatible import OpenAICompatible, dialect_for
from pair.interfaces import IEngineKind
from pair.records.engines import LoadedInstance, Model
from pair.routing.dialects import ROUTES, classify
from pair.test.engines.samples import (
    LLAMACPP,
    LMSTUDIO,
    LMSTUDIO_OLDER,
    OLLAMA,
    ROUTER,
    VLLM,
    answer,
    answers,
    sample,
)
from pair.test.routing.table import DECLARED, NATURE

LLAMACPP_ANSWERS = answers(
    LLAMACPP, identity="list", identity_props="props", health="health", list="list", loaded="health"
)
LMSTUDIO_ANSWERS = answers(
    LMSTUDIO,
    identity="greeting",
    identity_older="older_list",
    identity_slots="list",
    health="served",
    list="list",
    list_older="older_list",
    list_served="served",
)
KINDS: tuple[tuple[IEngineKind, Answers, str], ...] = (
    (
        Ollama(),
        answers(OLLAMA, identity="version", identity_tags="tags", health="version", list="tags", loaded="ps"),
        "models",
    ),
    (LMStudio(), LMSTUDIO_ANSWERS, "models"),
    (LlamaCpp(), LLAMACPP_ANSWERS, "data"),
    (Embedded(), LLAMACPP_ANSWERS, "data"),
    (OpenAICompatible(), answers(VLLM, identity="list", health="list", list="list"), "data"),
)
"""Each kind, what an engine of it answers, and the name of the array in its list."""

PURPOSES = tuple({purpose for kind, _, _ in KINDS for purpose in kind.requests})
FIELDS = (
    *("data", "models", "id", "key", "name", "model", "meta", "details", "status", "value", "capabilities"),
    *("expires_at", "state", "loaded_instances", "config", "quantization", "model_info", "lmstudio"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS), inner),
)
"""Any JSON, with the names that the kinds look for."""


class ContractTests(SynchronousTestCase):
    """What holds for every kind."""

    def test_provides_the_interface(self) -> None:
        """Each is an IEngineKind with a name that may be an engine's id, and its dialect bears its name."""
        for kind, _, _ in KINDS:
            verifyObject(IEngineKind, kind)
            self.assertTrue(re.fullmatch("[a-z][a-z0-9-]{0,31}", kind.name))
            self.assertEqual(kind.dialect.kind, kind.name)
            self.assertIn(kind.facade, kind.dialect.routes)
            self.assertIn(kind.control, ("process", "command", "none"))

    def test_answers_are_those_that_are_asked_for(self) -> None:
        """A kind has a question for each purpose of the runner, and reads no other."""
        for kind, given_answers, _ in KINDS:
            self.assertLessEqual({"identity", "health", "list"}, set(kind.requests))
            self.assertEqual(set(given_answers), set(kind.requests))

    def test_identifies_itself(self) -> None:
        """The answers of a real engine are recognised."""
        for kind, given_answers, _ in KINDS:
            self.assertIsNotNone(kind.identify(given_answers), kind.name)

    def test_status_alone_is_no_identity(self) -> None:
        """A 200 with a body of another shape, or no answer, is not that kind (Kinds)."""
        bodies = (b"", b"OK", b"{}", b"[]", b"null", b'{"data":null,"models":null,"version":1}', b"\xff", b"[" * 5000)
        for kind, given_answers, _ in KINDS:
            self.assertIsNone(kind.identify({}))
            for body in bodies:
                other = {purpose: Answer(200, {}, body) for purpose in given_answers}
                self.assertIsNone(kind.identify(other), (kind.name, body))

    def test_the_right_shape_with_an_error_status_is_no_identity(self) -> None:
        """The JSON of an identity counts only with status 200."""
        for kind, given_answers, _ in KINDS:
            failed = {purpose: Answer(500, {}, each.body) for purpose, each in given_answers.items()}
            self.assertIsNone(kind.identify(failed), kind.name)

    def test_models_are_of_that_engine(self) -> None:
        """A model bears the id of its engine, the home facade and the engine's own entry, byte for byte."""
        for kind, given_answers, array in KINDS:
            listing = kind.models("one", given_answers)
            assert listing is not None
            self.assertTrue(listing.models)
            entries = json.loads(given_answers["list"].body)[array]
            for model, entry in zip(listing.models, entries, strict=True):
                self.assertEqual((model.engine, model.facade), ("one", kind.facade))
                self.assertEqual(model.listed, msgspec.Raw(json.dumps(entry, separators=(",", ":")).encode()))

    def test_an_empty_list_is_a_fact(self) -> None:
        """``[]`` says that there are no models (EN-79)."""
        for kind, given_answers, array in KINDS:
            self.assertEqual(_models(kind, given_answers, {array: []}), Listing(()))

    def test_what_is_no_list_tells_nothing(self) -> None:
        """Missing, null or mistyped arrays, no usable row, and failed calls are never empty (EN-79)."""
        for kind, given_answers, array in KINDS:
            bodies: tuple[Any, ...] = (
                {},
                {array: None},
                {array: "x"},
                {array: {}},
                {array: [1, None, {}]},
                [],
                "x",
                None,
            )
            for body in bodies:
                self.assertIsNone(_models(kind, given_answers, body), (kind.name, body))
            failed = {purpose: Answer(500, {}, each.body) for purpose, each in given_answers.items()}
            self.assertIsNone(kind.models("e", failed))
            self.assertIsNone(kind.models("e", {}))

    def test_a_bad_row_spoils_no_list(self) -> None:
        """Rows without an id are passed over; fields of another type count as not told."""
        for kind, given_answers, array in KINDS:
            entries = json.loads(given_answers["list"].body)[array]
            listing = _models(kind, given_answers, {array: [7, {"id": 7, "model": 7}, *entries, None]})
            assert listing is not None
            self.assertEqual(
                [each.id for each in listing.models], [e.get("id") or e.get("key") or e["name"] for e in entries]
            )
            odd = {key: (entries[0][key] if key in ("id", "key", "model", "name") else [{}]) for key in entries[0]}
            listing = _models(kind, given_answers, {array: [odd]})
            assert listing is not None
            self.assertEqual(len(listing.models), 1)

    def test_ids_are_bounded(self) -> None:
        """Over 200 bytes, empty or with control characters: left out; at 1,800 models the list ends (EN-83)."""
        for kind, given_answers, array in KINDS:
            ids = ["é" * 100, "é" * 100 + "x", "a\nb", "a\x7f", *(f"m{n}" for n in range(1805)), "m0"]
            body = {array: [{"id": each, "key": each, "model": each} for each in ids]}
            listing = _models(kind, given_answers, body)
            assert listing is not None
            self.assertEqual(len(listing.models), 1800)
            self.assertEqual([each.id for each in listing.models[:2]], ["é" * 100, "m0"])
            self.assertEqual(listing.dropped, 3 + 6, "three bad names and six over 1,800")

    def test_an_entry_over_four_kibibytes_is_not_kept(self) -> None:
        """``listed`` is at most 4 KiB, else None (EN-83)."""
        for kind, given_answers, array in KINDS:
            fat = {"id": "m", "key": "m", "model": "m", "x": "y" * 5000}
            listing = _models(kind, given_answers, {array: [fat]})
            assert listing is not None
            self.assertIsNone(listing.models[0].listed)

    def test_an_entry_that_cannot_be_decoded_is_not_kept(self) -> None:
        """A field that the kind does not read may be no UTF-8: the model is listed, its entry is not passed on."""
        for kind, given_answers, array in KINDS:
            body = b'{"%s":[{"id":"m","key":"m","model":"m","x":"\xff"}]}' % array.encode()
            listing = kind.models("e", {**given_answers, "list": Answer(200, {}, body)})
            assert listing is not None
            self.assertEqual([(each.id, each.listed) for each in listing.models], [("m", None)])

    def test_a_kind_that_is_started_listens_on_loopback(self) -> None:
        """The port is in the command, and no address but 127.0.0.1 (EN-20)."""
        found = Found("/opt/engine", "known", model="/models/m.gguf")
        for kind, _, _ in KINDS:
            if kind.control != "process":
                self.assertRaises(ValueError, kind.launch, found, 8099, LaunchOptions())
                continue
            launch = kind.launch(found, 8099, LaunchOptions())
            words = " ".join((*launch.argv, *launch.env.values()))
            self.assertEqual(launch.argv[0], "/opt/engine")
            self.assertIn("127.0.0.1", words)
            self.assertIn("8099", words)
            self.assertNotIn("0.0.0.0", words)
            self.assertIsNotNone(kind.timing.ready)
            self.assertIsNotNone(kind.ports.base)

    def test_routes_are_listed_ones(self) -> None:
        """A dialect names only routes of the facade's table; with any ``/v1`` route, one model's record (RT-8)."""
        for kind, _, _ in KINDS:
            for facade, routes in kind.dialect.routes.items():
                self.assertLessEqual(routes, {each.key for each in ROUTES[facade]})
                self.assertIn("GET /v1/models/{id}", routes)

    @given(st.dictionaries(st.sampled_from(PURPOSES), st.binary() | JSON.map(msgspec.json.encode)))
    def test_no_answer_raises(self, bodies: dict[str, bytes]) -> None:
        """Whatever comes, it is read or is not read."""
        told = {purpose: Answer(200, {}, body) for purpose, body in bodies.items()}
        for kind, _, _ in KINDS:
            kind.identify(told)
            kind.models("e", told)
            kind.slots(told)
            for each in told.values():
                kind.details(each)

    def test_details_fill_what_the_list_leaves_open(self) -> None:
        """What a list tells is not asked for again, nor overruled (EN-78)."""
        told = Details(capabilities=("tools",), context_max=4096)
        bare = Model(id="m", engine="e", facade="ollama")
        known = msgspec.structs.replace(bare, capabilities=("vision",), context_max=1024)
        self.assertEqual(told.added_to(bare), msgspec.structs.replace(bare, capabilities=("tools",), context_max=4096))
        self.assertEqual(told.added_to(known), known)
        for kind, _, _ in KINDS:
            self.assertIsNone(kind.describe(known))


class RoutesTests(SynchronousTestCase):
    """The table of RT-8."""

    def test_table(self) -> None:
        """Each kind, facade by facade, and how it names, loads and keeps connections."""
        self.assertEqual({kind.name: kind.dialect.routes for kind, _, _ in KINDS}, DECLARED)
        natures = {kind.name: (d.naming, d.eligible, d.idle) for kind, d in ((k, k.dialect) for k, _, _ in KINDS)}
        self.assertEqual(natures, NATURE)

    def test_routes_of_one_engine(self) -> None:
        """``routes`` adds paths, where a facade has them; another path is refused."""
        dialect = dialect_for(["/v1/responses", "/v1/rerank"])
        openai = DECLARED["openai-compatible"]["lmstudio"]
        self.assertEqual(dialect.routes["ollama"], openai | {"POST /v1/responses"})
        self.assertEqual(dialect.routes["lmstudio"], openai | {"POST /v1/responses", "POST /v1/rerank"})
        self.assertEqual(dialect_for([]), OpenAICompatible.dialect)
        self.assertRaises(ValueError, dialect_for, ["/v1/nonsense"])

    def test_how_each_says_that_it_lacks_a_model(self) -> None:
        """A "model not found" is stale_model, any other 404 route_missing (RT-10)."""
        for dialect, folder, name, verdict in (
            (Ollama.dialect, OLLAMA, "unknown_model", "stale_model"),
            (Ollama.dialect, OLLAMA, "unknown_model_v1", "stale_model"),
            (LMStudio.dialect, LMSTUDIO, "nothing_loaded", "stale_model"),
            (LMStudio.dialect, LMSTUDIO, "unknown_model", "stale_model"),
            (LMStudio.dialect, LMSTUDIO, "unknown_model_v1", "stale_model"),
            (LMStudio.dialect, LMSTUDIO, "load_failed", "stale_model"),
            (LMStudio.dialect, LMSTUDIO, "bad_parameter", "client"),
            (LMStudio.dialect, LMSTUDIO_OLDER, "nothing_loaded", "stale_model"),
            (LlamaCpp.dialect, ROUTER, "unknown_model", "stale_model"),
            (LlamaCpp.dialect, ROUTER, "not_loaded", "stale_model"),
            (LlamaCpp.dialect, LLAMACPP, "unknown_route", "route_missing"),
            (LlamaCpp.dialect, LLAMACPP, "loading_list", "busy"),
            (Embedded.dialect, LLAMACPP, "unknown_route", "route_missing"),
            (OpenAICompatible.dialect, VLLM, "unknown_model", "stale_model"),
            (OpenAICompatible.dialect, VLLM, "unknown_route", "route_missing"),
        ):
            stored = sample(folder, name)
            self.assertEqual(classify(dialect, stored.status, stored.body), verdict, (folder, name))
        self.assertEqual(classify(Ollama.dialect, 404, b"404 page not found"), "route_missing")


class OllamaTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.kind = Ollama()
        self.answers = answers(OLLAMA, identity="version", identity_tags="tags", list="tags", loaded="ps")

    def test_identity(self) -> None:
        """Version and list must both be there."""
        identity = self.kind.identify(self.answers)
        assert identity is not None
        self.assertEqual(identity.version, "0.12.6")
        for purpose in ("identity", "identity_tags"):
            self.assertIsNone(self.kind.identify({k: v for k, v in self.answers.items() if k != purpose}))

    def test_model(self) -> None:
        """All that ``/api/tags`` and ``/api/ps`` tell."""
        listing = self.kind.models("ollama", self.answers)
        assert listing is not None
        self.assertTrue(listing.loaded_known)
        first, second = listing.models
        self.assertEqual(
            msgspec.structs.replace(first, listed=None),
            Model(
                id="gemma3:latest",
                engine="ollama",
                facade="ollama",
                size_bytes=3338801804,
                digest="sha256:a2af6cc3eb7fa8be8504abaf9b04e88f17a119ec3f04a3addf55f92841195f5a",
                family="gemma3",
                parameters=4_300_000_000,
                quantization="Q4_K_M",
                format="gguf",
                loaded=(
                    LoadedInstance(
                        instance="gemma3:latest",
                        context_length=4096,
                        size_bytes=6591830464,
                        gpu_bytes=5333539264,
                        expires_at=1760744827933,
                    ),
                ),
                modified_at=1759559643409,
            ),
        )
        self.assertEqual((second.parameters, second.loaded), (22_570_000, ()))

    def test_capabilities_where_it_tells_them(self) -> None:
        """The words that we know, in our order; ``insert`` is none of them."""
        row = {"model": "m", "capabilities": ["tools", "insert", "completion", 3]}
        listing = _models(self.kind, self.answers, {"models": [row]})
        assert listing is not None
        self.assertEqual(listing.models[0].capabilities, ("completion", "tools"))

    def test_loaded_compares_by_key(self) -> None:
        """``/api/ps`` may spell a name in another way (RT-11)."""
        told = {**self.answers, "loaded": answer({"models": [{"name": "Gemma3"}]})}
        listing = self.kind.models("ollama", told)
        assert listing is not None
        self.assertEqual([bool(each.loaded) for each in listing.models], [True, False])

    def test_loaded_not_told(self) -> None:
        """A ``/api/ps`` that fails leaves the list known and the loaded set unknown (EN-79)."""
        for loaded in (Answer(500, {}, b""), answer({"models": None}), answer({"models": [{}]}), None):
            told = {key: value for key, value in self.answers.items() if key != "loaded"}
            listing = self.kind.models("ollama", told if loaded is None else {**told, "loaded": loaded})
            assert listing is not None
            self.assertEqual((len(listing.models), listing.loaded_known), (2, False))

    def test_never_expires(self) -> None:
        """Go's zero time is no instant."""
        self.assertIsNone(rows.instant("0001-01-01T00:00:00Z"))
        self.assertIsNone(rows.instant("2025-10-03T23:34:03"))
        self.assertIsNone(rows.instant("soon"))
        self.assertEqual(rows.instant("2318-01-26T00:00:00Z"), 10983945600000)

    def test_details(self) -> None:
        """``/api/show`` tells capabilities and, under the architecture's name, the context length (EN-78)."""
        listing = self.kind.models("ollama", self.answers)
        assert listing is not None
        request = self.kind.describe(listing.models[0])
        assert request is not None
        self.assertEqual((request.method, request.path), ("POST", "/api/show"))
        self.assertEqual(json.loads(request.body or b""), {"model": "gemma3:latest"})
        self.assertEqual(self.kind.details(sample(OLLAMA, "show")), Details(("completion", "vision"), 131072))

    def test_details_not_told(self) -> None:
        """An older server tells no capabilities; an error, or another shape, tells nothing."""
        self.assertEqual(
            self.kind.details(answer({"model_info": {"general.architecture": "bert", "bert.context_length": 512}})),
            Details(context_max=512),
        )
        for told in (sample(OLLAMA, "unknown_model"), answer([]), answer({"model_info": 3, "capabilities": {}})):
            self.assertEqual(self.kind.details(told), Details())

    def test_launch(self) -> None:
        """``ollama serve``, told where to listen and how many requests to take at once."""
        launch = self.kind.launch(Found("/usr/bin/ollama", "path"), 11435, LaunchOptions(slots=4, context=8192))
        self.assertEqual(launch.argv, ("/usr/bin/ollama", "serve"))
        self.assertEqual(
            launch.env,
            {"OLLAMA_HOST": "127.0.0.1:11435", "OLLAMA_NUM_PARALLEL": "4", "OLLAMA_CONTEXT_LENGTH": "8192"},
        )


class LlamaCppTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.kind = LlamaCpp()

    def test_identity_by_header_or_owner(self) -> None:
        """The ``Server`` field is enough, while a model is being loaded too; so is the owner of the models."""
        loading = answers(LLAMACPP, identity="loading_list", identity_props="loading_props")
        self.assertIsNotNone(self.kind.identify(loading))
        self.assertIsNotNone(self.kind.identify({"identity": Answer(200, {}, sample(LLAMACPP, "list").body)}))
        self.assertIsNone(self.kind.identify(answers(VLLM, identity="list")))

    def test_version(self) -> None:
        """The build, where the server was built for a release."""
        for build, version in (("b7423-9a1c2d3", "b7423-9a1c2d3"), ("b0-unknown", None), (7, None)):
            told = {**LLAMACPP_ANSWERS, "identity_props": answer({"build_info": build})}
            identity = self.kind.identify(told)
            assert identity is not None
            self.assertEqual(identity.version, version)

    def test_model(self) -> None:
        """Its one model is in memory; ``meta`` tells of it."""
        listing = self.kind.models("llamacpp", LLAMACPP_ANSWERS)
        assert listing is not None
        (model,) = listing.models
        self.assertEqual(
            msgspec.structs.replace(model, listed=None),
            Model(
                id="smollm2:135m",
                engine="llamacpp",
                facade="lmstudio",
                size_bytes=96576768,
                parameters=134515008,
                quantization="Q4_1",
                format="gguf",
                context_max=8192,
                capabilities=("completion",),
                loaded=(LoadedInstance(instance="smollm2:135m", context_length=2048),),
            ),
        )

    def test_loading(self) -> None:
        """While it loads its model, the list is refused: nothing is told. A list that comes has nothing loaded."""
        loading = answers(LLAMACPP, list="loading_list", loaded="loading_health")
        self.assertIsNone(self.kind.models("llamacpp", loading))
        listing = self.kind.models("llamacpp", answers(LLAMACPP, list="list", loaded="loading_health"))
        assert listing is not None
        self.assertEqual((listing.models[0].loaded, listing.loaded_known), ((), True))

    def test_no_word_of_health(self) -> None:
        """Whether the model is in memory is not known then."""
        listing = self.kind.models("llamacpp", answers(LLAMACPP, list="list"))
        assert listing is not None
        self.assertEqual((listing.models[0].loaded, listing.loaded_known), ((), False))

    def test_router_mode(self) -> None:
        """Each model says whether it is loaded; one asleep needs no load (Model actions)."""
        listing = self.kind.models("llamacpp", answers(ROUTER, list="list", loaded="health"))
        assert listing is not None
        self.assertEqual([each.id for each in listing.models if each.loaded], [listing.models[0].id, "qwen3-8b"])

    def test_images(self) -> None:
        """A model that takes images can see."""
        row = {"id": "m", "architecture": {"input_modalities": ["text", "image"]}}
        other = {"id": "n"}
        models = [{"name": "n", "capabilities": ["completion", "multimodal"]}]
        listing = _models(self.kind, LLAMACPP_ANSWERS, {"data": [row, other], "models": models})
        assert listing is not None
        self.assertEqual([each.capabilities for each in listing.models], [("vision",), ("completion", "vision")])

    def test_slots(self) -> None:
        """``/props`` counts what ``/slots`` lists (EN-34)."""
        self.assertEqual(self.kind.slots(LLAMACPP_ANSWERS), len(json.loads(sample(LLAMACPP, "slots").body)))
        self.assertIsNone(self.kind.slots({}))
        self.assertIsNone(self.kind.slots({"identity_props": answer({"total_slots": 0})}))

    def test_launch(self) -> None:
        """Only what is asked for is said."""
        found = Found("/usr/bin/llama-server", "path")
        launch = self.kind.launch(found, 8081, LaunchOptions(model="/m.gguf", alias="m", slots=3, context=9000))
        where = ("/usr/bin/llama-server", "--host", "127.0.0.1", "--port", "8081")
        what = ("--model", "/m.gguf", "--alias", "m", "--ctx-size", "9000", "--parallel", "3")
        self.assertEqual(launch.argv, where + what)
        self.assertEqual(self.kind.launch(found, 8081, LaunchOptions()).argv, where)


class EmbeddedTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.kind = Embedded()

    def test_identity_names_our_model(self) -> None:
        """A server that lists another model, or none yet, is not ours (Kinds)."""
        other = {"identity": answer({"data": [{"id": "other", "owned_by": "llamacpp"}]})}
        self.assertIsNone(self.kind.identify(other))
        self.assertIsNotNone(LlamaCpp().identify(other))
        self.assertIsNone(self.kind.identify(answers(LLAMACPP, identity="loading_list")))

    def test_our_model_bears_its_digest(self) -> None:
        """Size and SHA-256 are those of the file (PX-71)."""
        listing = self.kind.models("embedded", LLAMACPP_ANSWERS)
        assert listing is not None
        (model,) = listing.models
        self.assertEqual(model.digest, f"sha256:{EMBEDDED_WEIGHTS.sha256}")
        self.assertEqual(model.size_bytes, EMBEDDED_WEIGHTS.bytes)
        self.assertTrue(model.loaded)

    def test_launch_of_the_child(self) -> None:
        """The command of EN-106."""
        launch = self.kind.launch(Found("/env/bin/python", "package", model="/m.gguf"), 8081, LaunchOptions())
        expected = "/env/bin/python -m pair.engines.embedded --port 8081 --model /m.gguf --alias smollm2:135m"
        self.assertEqual(" ".join(launch.argv), expected)

    def test_the_child_has_the_same_values(self) -> None:
        """Context and slots of the child program are those of the command for a server."""
        self.assertEqual((child.CONTEXT, child.SLOTS), (CONTEXT, SLOTS))

    def test_launch_of_a_server(self) -> None:
        """The same weights and values (EN-106)."""
        launch = self.kind.launch(Found("/usr/bin/llama-server", "path", model="/m.gguf"), 8081, LaunchOptions())
        expected = (
            "/usr/bin/llama-server --host 127.0.0.1 --port 8081 --model /m.gguf --alias smollm2:135m"
            " --ctx-size 4096 --parallel 2"
        )
        self.assertEqual(" ".join(launch.argv), expected)
        self.assertEqual(launch.env, {"LLAMA_OFFLINE": "1"})

    def test_launch_without_weights(self) -> None:
        """There is nothing to serve."""
        self.assertRaises(ValueError, self.kind.launch, Found("/x", "path"), 8081, LaunchOptions())


class OpenAICompatibleTests(SynchronousTestCase):
    def test_model(self) -> None:
        """What it lists is loaded; vLLM tells the context length."""
        listing = OpenAICompatible().models("nas", answers(VLLM, list="list"))
        assert listing is not None
        (model,) = listing.models
        name = "Qwen/Qwen2.5-1.5B-Instruct"
        self.assertEqual((model.id, model.engine, model.context_max), (name, "nas", 32768))
        self.assertEqual(model.loaded, (LoadedInstance(instance=name, context_length=32768),))

    def test_identity_needs_an_id_in_each_row(self) -> None:
        """An array of objects with string ids; an empty one is one."""
        kind = OpenAICompatible()
        self.assertIsNotNone(kind.identify({"identity": answer({"data": []})}))
        self.assertIsNone(kind.identify({"identity": answer({"data": [{"id": "a"}, {"id": 1}]})}))

    def test_nothing_is_looked_for(self) -> None:
        """It is given by URL (EN-4)."""
        self.assertEqual(OpenAICompatible.ports.probe, ())


def _models(kind: IEngineKind, given_answers: Answers, body: Any) -> Listing | None:
    """What the kind makes of ``body`` as all its lists, with the other answers as they are."""
    lists = {purpose: answer(body) for purpose in given_answers if purpose.startswith("list")}
    return kind.models("e", {**given_answers, **lists})
