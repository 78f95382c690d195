"""Tests of :mod:`pair.records.inventory` and :mod:`pair.engines.publishing`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from twisted.internet.defer import succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.publishing import SAMPLE_SECONDS, InventoryPublisher
from pair.feeds.follower import FeedFollower
from pair.feeds.publisher import Feed
from pair.records.engines import EngineInventory, EngineStatus, LoadedInstance, Model, NodeInventory
from pair.records.inventory import (
    RECORDS_MAX,
    EngineRecord,
    InventoryCodec,
    NodeRecord,
    OtherRecord,
    TelemetryRecord,
    inventory_of,
    records_of,
    telemetry_record,
    views_of,
    with_views,
)
from pair.records.telemetry import Cpu, Gpu, Memory, NodeInfo, ProtocolRange, System
from pair.telemetry.reduce import decode
from pair.test.feeds.links import GENERATION, STEP, A, B, Link

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from pair.feeds.following import Stream
    from pair.records.inventory import InventoryRecord

PROTOCOL = ProtocolRange(1, 1)
CODEC = InventoryCodec(decode)
LLAMA = Model(
    "llama3.2:latest",
    "ollama",
    "ollama",
    size_bytes=2019393189,
    digest="sha256:a80c",
    capabilities=("completion", "tools"),
    loaded=(LoadedInstance("llama3.2:latest", 4096, 1, 3_000_000_000, 3_000_000_000, 1764460800123),),
    listed=Raw(b'{"name":"llama3.2:latest","size":2019393189}'),
)
QWEN = Model("qwen3:8b", "ollama", "ollama")
OLLAMA = EngineStatus("ollama", "ollama", "ollama", "running", "ok", 1764460800123, routable=True, models="known")
OLLAMA = replace(OLLAMA, loaded="known", models_at=1764460799001, detail="A sentence.")
ABSENT = EngineStatus("llamacpp", "llamacpp", "lmstudio")
INVENTORY = NodeInventory(
    A, (EngineInventory(ABSENT), EngineInventory(OLLAMA, (LLAMA, QWEN), 7)), True, ("gpu=large", "os=linux")
)
INFO = NodeInfo(
    host_uuid=A,
    instance="9f3a6c0d51e2b774",
    name="spark",
    version="0.3.0",
    protocol=PROTOCOL,
    cluster_uuid="b7d0f6f0-13c4-4b6e-8f0a-6a5b4c3d2e1f",
    services={"ni": 14318},
    ips=("192.168.1.20",),
    telemetry_valid=True,
    sample_age_ms=310,
    gpu_utilization_percent=62.0,
    os=System("linux", "6.8.0", "x86_64"),
    cpu=Cpu("AMD", 16, 32, 12.5),
    memory=Memory(1000, 300, 700),
    gpus=(Gpu("GPU-1b2c", 0, "nvidia", utilization_percent=62.0),),
)

_texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
_sizes = st.none() | st.integers(0, 1 << 52)


@st.composite
def inventories(draw: st.DrawFn) -> NodeInventory:
    """Any inventory, in the order in which one is put together again."""
    engines = []
    for id in sorted(draw(st.sets(st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True), max_size=3))):
        models = tuple(
            Model(
                name,
                id,
                "ollama",
                size_bytes=draw(_sizes),
                family=draw(st.none() | _texts),
                loaded=tuple(
                    LoadedInstance(each, size_bytes=draw(_sizes)) for each in draw(st.lists(_texts, max_size=2))
                ),
                listed=draw(st.none() | st.just(Raw(b'{"a":1}'))),
            )
            for name in sorted(draw(st.sets(_texts, max_size=3)))
        )
        status = EngineStatus(id, "ollama", "ollama", detail=draw(st.none() | _texts), slots=draw(st.integers(1, 9)))
        engines.append(EngineInventory(status, models, draw(st.integers(0, 99))))
    labels, reason = tuple(draw(st.lists(_texts, max_size=2))), draw(st.none() | _texts)
    return NodeInventory(A, tuple(engines), draw(st.booleans()), labels, reason)


def through_codec(records: dict[str, InventoryRecord], origin: str = A) -> dict[str, InventoryRecord]:
    """What another node reads of ``records``."""
    return {key: CODEC.decode(origin, key, CODEC.encode(each)) for key, each in records.items()}


class RecordTests(SynchronousTestCase):
    def test_keys(self) -> None:
        """The node, each engine and each model have a record of their own (EN-84)."""
        records = records_of(INVENTORY, PROTOCOL)
        self.assertEqual(
            list(records),
            ["node", "engine:llamacpp", "engine:ollama", "model:ollama:llama3.2:latest", "model:ollama:qwen3:8b"],
        )
        self.assertEqual(records["node"], NodeRecord(PROTOCOL, True, ("gpu=large", "os=linux")))
        self.assertIs(records["model:ollama:llama3.2:latest"], LLAMA)

    @given(inventories())
    def test_round_trip(self, inventory: NodeInventory) -> None:
        """An inventory that was told is the same on the other side (EN-84)."""
        self.assertEqual(inventory_of(A, through_codec(records_of(inventory, PROTOCOL))), inventory)

    def test_form(self) -> None:
        """The records have the names of the engines page, and unknown is null (EN-84)."""
        records = records_of(INVENTORY, PROTOCOL)
        node, engine = (json.loads(CODEC.encode(records[key])) for key in ("node", "engine:ollama"))
        self.assertEqual(
            node,
            {"protocol": {"min": 1, "max": 1}, "drained": True, "labels": ["gpu=large", "os=linux"], "reason": None},
        )
        self.assertEqual((engine["modelsRevision"], engine["healthAt"], engine["path"]), (7, 1764460800123, None))
        model = json.loads(CODEC.encode(LLAMA))
        self.assertEqual(model["listed"], {"name": "llama3.2:latest", "size": 2019393189})
        self.assertEqual((model["family"], model["loaded"][0]["gpuBytes"]), (None, 3_000_000_000))

    def test_without_the_node(self) -> None:
        """A model whose engine is not told of is not offered, and a node that says nothing offers nothing."""
        records = records_of(INVENTORY, PROTOCOL)
        del records["engine:ollama"], records["node"]
        self.assertEqual(inventory_of(B, records), NodeInventory(B, (EngineInventory(ABSENT),)))
        self.assertEqual(inventory_of(B, {}), NodeInventory(B))


class CodecTests(SynchronousTestCase):
    def refused(self, key: str, data: bytes) -> None:
        with self.assertRaises(ValueError):
            CODEC.decode(A, key, data)

    def test_wrong_key(self) -> None:
        """A record is that of its key, or refused (JB-25)."""
        engine, model = CODEC.encode(EngineRecord("a", "ollama", "ollama")), CODEC.encode(LLAMA)
        self.refused("engine:b", engine)
        self.refused("engine", engine)
        self.refused("engine:a", model)
        for key in ("model:ollama:other", "model:other:llama3.2:latest", "model:ollama", "model"):
            self.refused(key, model)

    def test_malformed(self) -> None:
        """A record that lacks something or has a wrong type is refused, and so is telemetry that is none."""
        for key in ("node", "engine:a", "model:a:b", "telemetry"):
            for data in (b"{}", b"[]", b"null", b"{"):
                self.refused(key, data)
        self.refused("telemetry", msgspec.json.encode(INFO))

    def test_listed(self) -> None:
        """An engine's own entry is an object of 4 KiB at most; anything else counts as not told."""
        for listed, kept in (
            (b'{"a":1}', True),
            (b'{"a":"%s"}' % (b"x" * 4096), False),
            (b"1", False),
            (b"[]", False),
            (b'{"a":%s1%s}' % (b"[" * 199, b"]" * 199), True),
            (b'{"a":%s1%s}' % (b"[" * 900, b"]" * 900), False),
        ):
            data = b'{"id":"b","engine":"a","facade":"ollama","listed":%s}' % listed
            model = CODEC.decode(A, "model:a:b", data)
            assert isinstance(model, Model)
            self.assertEqual(model.listed, Raw(listed) if kept else None)

    def test_absurd_numbers(self) -> None:
        """A number that counts nothing is as if it had not been told: the record says more than that."""
        told = {"sizeBytes": 10**30, "parameters": -5, "contextMax": 4096, "modifiedAt": 2**53}
        loaded = [{"instance": "b", "parallel": -1, "gpuBytes": 5}]
        data = msgspec.json.encode({"id": "b", "engine": "a", "facade": "ollama", "loaded": loaded, **told})
        model = Model("b", "a", "ollama", context_max=4096, loaded=(LoadedInstance("b", gpu_bytes=5),))
        self.assertEqual(CODEC.decode(A, "model:a:b", data), model)
        told = {"slots": -1, "modelsAt": 10**400, "modelsRevision": -7, "healthAt": 5}
        data = msgspec.json.encode({"id": "a", "kind": "ollama", "facade": "ollama"})[:-1] + b","
        data += ",".join(f'"{name}":{value}' for name, value in told.items()).encode() + b"}"
        self.assertEqual(CODEC.decode(A, "engine:a", data), EngineRecord("a", "ollama", "ollama", health_at=5))

    def test_other_kinds(self) -> None:
        """What a later PAIR tells besides is passed over, and its new fields are (JB-23)."""
        for key in ("op:0b9e", "later", "nodes"):
            self.assertEqual(CODEC.decode(A, key, b'{"state":"running"}'), OtherRecord())
        node = CODEC.decode(A, "node", b'{"protocol":{"min":1,"max":2},"later":[1]}')
        self.assertEqual(node, NodeRecord(ProtocolRange(1, 2)))

    def test_telemetry(self) -> None:
        """It is a body of node-info without services and addresses, of whoever is connected to (DS-92, JB-28)."""
        record = telemetry_record(INFO, 17)
        body = json.loads(CODEC.encode(record))
        self.assertEqual((body["sample"], body["services"], body["ips"]), (17, None, []))
        self.assertEqual((body["hostUuid"], body["sampleAgeMs"], body["gpus"][0]["id"]), (A, 310, "GPU-1b2c"))
        self.assertEqual(CODEC.decode(A, "telemetry", CODEC.encode(record)), record)
        self.assertEqual(CODEC.decode(B, "telemetry", CODEC.encode(record)), replace(record, host_uuid=B))

    def test_spoilt_telemetry(self) -> None:
        """A figure that is none is unknown and spoils no other (DS-95)."""
        body = {**json.loads(CODEC.encode(telemetry_record(INFO, 1))), "gpuUtilizationPercent": -1, "name": 7}
        record = CODEC.decode(A, "telemetry", json.dumps(body).encode())
        assert isinstance(record, TelemetryRecord)
        self.assertEqual((record.gpu_utilization_percent, record.telemetry_valid, record.name), (None, False, None))
        self.assertEqual(record.memory, INFO.memory)


class ViewTests(SynchronousTestCase):
    def test_views(self) -> None:
        """The union, the lists of each engine, and what each has in memory (EN-84)."""
        views = json.loads(with_views(b'{"revision":1,"records":{"a":{}}}', views_of(INVENTORY)))
        self.assertEqual(list(views), ["revision", "models", "modelsByEngine", "loadedByEngine", "records"])
        self.assertEqual(views["models"], ["llama3.2:latest", "qwen3:8b"])
        self.assertEqual(views["modelsByEngine"], {"ollama": ["llama3.2:latest", "qwen3:8b"]})
        self.assertEqual(views["loadedByEngine"], {"ollama": ["llama3.2:latest"]})
        self.assertEqual((views["revision"], views["records"]), (1, {"a": {}}))

    def test_unknown(self) -> None:
        """A missing key is unknown, an empty list is empty; a list that is not up to date counts (EN-79, EN-84)."""
        nothing = NodeInventory(A, (EngineInventory(ABSENT),))
        views = json.loads(with_views(b'{"records":{}}', views_of(nothing)))
        self.assertEqual(views, {"modelsByEngine": {}, "loadedByEngine": {}, "records": {}})
        stale = replace(OLLAMA, models="stale", loaded="unknown")
        for models, ids in (((), []), ((QWEN,), ["qwen3:8b"])):
            inventory = NodeInventory(A, (EngineInventory(stale, models),))
            views = json.loads(with_views(b'{"records":{}}', views_of(inventory)))
            self.assertEqual((views["models"], views["modelsByEngine"]), (ids, {"ollama": ids}))
            self.assertEqual(views["loadedByEngine"], {})

    def test_listed_twice(self) -> None:
        """In the union each id is once."""
        other = EngineInventory(replace(ABSENT, models="known"), (replace(QWEN, engine="llamacpp"),))
        views = views_of(replace(INVENTORY, engines=(other, *INVENTORY.engines)))
        self.assertEqual(views.models, ("qwen3:8b", "llama3.2:latest"))


class PublisherTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.feed: Feed[InventoryRecord] = Feed(
            self.clock, "inventory", A, "0.0.0", CODEC, RECORDS_MAX, GENERATION, self.now
        )
        self.feed.startService()
        self.inventory = INVENTORY
        self.info = INFO
        self.publisher = InventoryPublisher(self.clock, self.feed, lambda: self.inventory, lambda: self.info)
        self.publisher.startService()
        self.link = Link()

    def now(self) -> int:
        return int(self.clock.seconds() * 1000)

    def follow(self) -> FeedFollower[InventoryRecord]:
        """Follow as B."""

        def connect(_: str, __: str) -> Deferred[Stream]:
            self.feed.serve(B, self.link, None)
            return succeed(self.link)

        follower = FeedFollower(self.clock, connect, A, "inventory", "/", CODEC, self.now)
        follower.startService()
        self.run_for(0)
        return follower

    def run_for(self, seconds: float) -> None:
        self.link.pump()
        for _ in range(round(seconds / STEP)):
            self.clock.advance(STEP)
            self.link.pump()

    def becomes(self, **fields: Any) -> bool:
        """Whether it is told that the loaded model is so now."""
        (loaded,) = LLAMA.loaded
        return self.has(replace(LLAMA, loaded=(replace(loaded, **fields),)))

    def has(self, model: Model, status: EngineStatus = OLLAMA, revision: int = 7) -> bool:
        before = self.feed.revision
        self.inventory = replace(INVENTORY, engines=(EngineInventory(status, (model, QWEN), revision),))
        self.publisher.update()
        return self.feed.revision != before

    def test_follower(self) -> None:
        """Who follows has what this node offers, and each change of it (EN-84)."""
        follower = self.follow()
        self.assertEqual(inventory_of(A, follower.records), INVENTORY)
        self.inventory = replace(INVENTORY, engines=(EngineInventory(OLLAMA, (QWEN,), 8),), drained=False)
        self.publisher.update()
        self.run_for(0.25)
        self.assertEqual(inventory_of(A, follower.records), self.inventory)
        self.inventory = replace(self.inventory, labels=())
        self.run_for(SAMPLE_SECONDS + 0.25)
        self.assertEqual(inventory_of(A, follower.records).labels, ())

    def test_no_change(self) -> None:
        """Ages, expiry times and memory within 5 % are no change; what is more is told, once (EN-84)."""
        self.assertTrue(self.has(LLAMA), "one engine less")
        self.assertFalse(self.has(LLAMA))
        self.assertFalse(self.has(LLAMA, replace(OLLAMA, health_at=1, models_at=2, retry_at=3)))
        self.assertFalse(self.becomes(expires_at=1))
        for drift, told in ((1.04, False), (0.96, False), (1.06, True), (1.07, False), (1.02, False), (1.0, True)):
            self.assertEqual(self.becomes(gpu_bytes=round(3_000_000_000 * drift)), told, drift)
        self.assertTrue(self.becomes(context_length=8192))
        self.assertTrue(self.has(replace(LLAMA, digest="sha256:b")))
        self.assertTrue(self.has(replace(LLAMA, digest="sha256:b"), replace(OLLAMA, health="busy")))
        self.assertTrue(self.has(replace(LLAMA, digest="sha256:b"), replace(OLLAMA, health="busy"), 8))

    def test_slow_drift(self) -> None:
        """Memory that moves slowly is told as soon as it is far from what was told last."""
        self.has(LLAMA)
        told = [self.becomes(size_bytes=round(3_000_000_000 * (1 + step / 100))) for step in range(1, 13)]
        self.assertEqual([step for step, each in enumerate(told, 1) if each], [6, 12])

    def test_telemetry(self) -> None:
        """While it is followed, each 2 s brings a sample, equal or not; and none is left behind (DS-92)."""
        self.run_for(9.5)
        self.assertNotIn(b'"telemetry"', self.feed.document())
        follower = self.follow()
        samples = []
        for _ in range(3):
            self.run_for(SAMPLE_SECONDS)
            record = follower.records["telemetry"]
            assert isinstance(record, TelemetryRecord)
            samples.append(record.sample)
        self.assertEqual(samples, [1, 2, 3])
        self.info = replace(INFO, gpu_utilization_percent=5.0)
        self.run_for(SAMPLE_SECONDS)
        self.assertEqual(follower.records["telemetry"], telemetry_record(self.info, 4))
        follower.stopService()
        self.run_for(SAMPLE_SECONDS)
        self.assertNotIn(b'"telemetry"', self.feed.document())

    def test_document(self) -> None:
        """The document is that of the feed with the views, of one instant (JB-11, EN-84)."""
        self.inventory = replace(INVENTORY, engines=(EngineInventory(OLLAMA, (QWEN,)),))
        document = json.loads(self.publisher.document())
        self.assertEqual(
            list(document),
            [
                *("protocol", "feed", "node", "generation", "revision"),
                *("models", "modelsByEngine", "loadedByEngine", "records"),
            ],
        )
        self.assertEqual(document["models"], ["qwen3:8b"])
        self.assertEqual(set(document["records"]), {"node", "engine:ollama", "model:ollama:qwen3:8b"})
        self.assertEqual(document["revision"], self.feed.revision)

    def test_stop(self) -> None:
        """After the stop nothing is published, and what was stays."""
        self.successResultOf(self.publisher.stopService())
        before = self.feed.document()
        self.inventory = NodeInventory(A)
        self.publisher.update()
        self.run_for(10)
        self.assertEqual(self.feed.document(), before)
