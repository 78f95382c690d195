"""LM Studio's double: its words, and how its state changes (EN-109)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.engines.kinds.lmstudio import LMStudio as LMStudioKind
from pair.routing.dialects import classify
from pair.test.doubles import lmstudio_shapes as lm
from pair.test.doubles.case import DoubleCase
from pair.test.doubles.contract import SAY
from pair.test.doubles.lmstudio import LMStudio
from pair.test.engines.samples import LMSTUDIO

if TYPE_CHECKING:
    from pair.test.doubles.wire import Got


class LMStudioTests(DoubleCase):
    """LM Studio's own words and ways."""

    def setUp(self) -> None:
        super().setUp()
        self.serve(LMStudio(self.clock))

    @property
    def copies(self) -> list[str]:
        models = self.ask("GET", "/api/v1/models").json["models"]
        return [copy["id"] for model in models for copy in model["loaded_instances"]]

    def load(self, name: str, **fields: object) -> Got:
        return self.post("/api/v1/models/load", {"model": name, **fields})

    def test_just_in_time(self) -> None:
        """A request loads what it names; after an hour without use it leaves."""
        self.assertEqual(self.copies, [])
        self.post("/v1/chat/completions", {"model": lm.OSS.name, "messages": SAY})
        self.assertEqual(self.copies, [lm.OSS.name])
        self.clock.advance(3601)
        self.assertEqual(self.copies, [])

    def test_no_just_in_time(self) -> None:
        """Nothing is loaded: a 4xx that says so; else what is not loaded is not there (M04)."""
        double = self.serve(LMStudio(self.clock, just_in_time=False))
        chat = {"model": lm.OSS.name, "messages": SAY}
        got = self.post("/v1/chat/completions", chat)
        self.assert_sample(got, LMSTUDIO, "nothing_loaded")
        self.assertEqual(classify(LMStudioKind.dialect, got.status, got.body), "stale_model")
        self.assertEqual(self.ask("GET", "/v1/models").json["data"], [])
        self.assertEqual(len(self.ask("GET", "/api/v0/models").json["data"]), 3)
        double.load(lm.SMOLLM.name)
        got = self.post("/v1/chat/completions", chat)
        self.assertEqual(got.status, 404)
        self.assertEqual(classify(LMStudioKind.dialect, got.status, got.body), "stale_model")
        self.assertEqual([each["id"] for each in self.ask("GET", "/v1/models").json["data"]], [lm.SMOLLM.name])

    def test_second_copy(self) -> None:
        """A second load makes ``key:2``, which is a name too (M10, RT-14)."""
        self.load(lm.OSS.name)
        self.assertEqual(self.load(lm.OSS.name, context_length=9000).json["instance_id"], f"{lm.OSS.name}:2")
        self.assertEqual(self.copies, [lm.OSS.name, f"{lm.OSS.name}:2"])
        got = self.post("/v1/chat/completions", {"model": f"{lm.OSS.name}:2", "messages": SAY})
        self.assertEqual(got.status, 200)
        self.assertEqual(len(self.copies), 2)
        self.post("/api/v1/models/unload", {"instance_id": lm.OSS.name})
        self.assertEqual(self.copies, [f"{lm.OSS.name}:2"])
        self.post("/v1/chat/completions", {"model": lm.OSS.name, "messages": SAY})
        self.assertEqual(self.copies, [f"{lm.OSS.name}:2"])
        self.assertEqual(self.post("/api/v1/models/unload", {"instance_id": lm.OSS.name}).status, 404)

    def test_exact_names(self) -> None:
        """No case is forgiven (M02)."""
        got = self.post("/v1/chat/completions", {"model": lm.OSS.name.upper(), "messages": SAY})
        self.assertEqual(got.status, 404)

    def test_download(self) -> None:
        """It goes on by itself, and the model is listed when it is complete."""
        double = self.serve(LMStudio(self.clock, download_rate=1e9))
        got = self.post("/api/v1/models/download", {"model": lm.GRANITE.name})
        self.assert_sample(got, LMSTUDIO, "download")
        status = f"/api/v1/models/download/status/{got.json['job_id']}"
        self.clock.advance(1)
        told = self.ask("GET", status).json
        self.assertEqual(told["status"], "downloading")
        self.assertGreater(told["downloaded_bytes"], 1e9 - 1)
        self.assertNotIn(lm.GRANITE.name, double.models)
        self.clock.advance(2)
        self.assert_sample(self.ask("GET", status), LMSTUDIO, "download_status")
        self.assertIn(lm.GRANITE.name, double.models)
        again = self.post("/api/v1/models/download", {"model": lm.GRANITE.name}).json
        self.assertEqual(again, {"status": "already_downloaded"})
        self.assertEqual(len(self.ask("GET", "/api/v1/models/download/status").json["completed"]), 1)
        self.assertEqual(self.post("/api/v1/models/download", {"model": "x"}).status, 404)

    def test_own_chat_stream(self) -> None:
        """It begins with ``chat.start`` and ends with ``chat.end``, which has the whole answer."""
        asking = {"model": lm.OSS.name, "input": "hi"}
        events = self.post("/api/v1/chat", {**asking, "stream": True}).events
        names = [name for name, _ in events]
        self.assertEqual(names[:3], ["chat.start", "model_load.start", "model_load.end"])
        said = "".join(document["content"] for name, document in events if name == "message.delta")
        self.assertEqual(events[-1][1]["result"]["output"], [{"type": "message", "content": said}])
        self.assertEqual(names[-1], "chat.end")
        self.assertEqual(self.post("/api/v1/chat", asking).json["output"], events[-1][1]["result"]["output"])

    def test_idle(self) -> None:
        """It closes connections that rest for 5 s."""
        asking = self.begin("GET", "/lmstudio-greeting", Connection="keep-alive")
        self.pass_time(4.5)
        self.assertFalse(asking.got.lost)
        self.pass_time(1)
        self.assertTrue(asking.got.lost)
