"""Tests of :mod:`pair.proxy.listings`: when a list is read again before it is shown (PX-69, PX-70, PX-73)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pair.test.proxy.bench import NODE, START, Bench, BenchCase
from pair.test.routing.facts import engine

if TYPE_CHECKING:
    from pair.test.proxy.network import Client

NOW = int(START * 1000)


def known(name: str, *models: str, age: float = 0, **status: Any) -> Any:
    """An engine whose list was read so many seconds ago."""
    return engine("ollama", *models, name=name, models_at=NOW - int(age * 1000), **status)


class ListingsTests(BenchCase):
    def listing(self, *engines: Any, path: str = "/api/tags", **settings: Any) -> Bench:
        """A bench whose client has asked for a list; what is read again stays unread until told."""
        bench = self.bench(*engines, **settings)
        bench.engines.reads_at_once = False
        bench.client.asks("GET", path)
        return bench

    def assert_listed(self, client: Client, *names: str) -> None:
        """The client has a list with these models."""
        self.assertEqual([each["name"] for each in client.answer.json["models"]], list(names))

    def test_fresh(self) -> None:
        """What was read within 10 s is answered without a wait or a word to the engine."""
        bench = self.listing(known("a", "m:latest", age=10), known("b", "n:latest"))
        self.assert_listed(bench.client, "m:latest", "n:latest")
        self.assertEqual((bench.engines.refreshed, bench.contacted()), ([], []))

    def test_stale(self) -> None:
        """What is older, or was never read, is read again first; the answer has what was found."""
        for stale in (known("a", "m:latest", age=10.1), engine("ollama", "m:latest", name="a")):
            bench = self.listing(stale, known("b", "n:latest"))
            self.assertEqual((bench.client.received, bench.engines.refreshed), (b"", ["a"]))
            bench.engines.put(known("a", "new:latest"))
            bench.engines.reading["a"].callback(None)
            self.assert_listed(bench.client, "n:latest", "new:latest")

    def test_reading_that_fails(self) -> None:
        """A list that cannot be read is shown as it was last."""
        bench = self.listing(known("a", "m:latest", age=60))
        bench.engines.reading["a"].errback(RuntimeError())
        self.assert_listed(bench.client, "m:latest")

    def test_wait_is_bounded(self) -> None:
        """After ``list_wait`` what was known is shown; that engine is not waited for again for 30 s."""
        bench = self.listing(known("a", "m:latest", age=60), known("b", "n:latest", age=60), list_wait=1.5)
        bench.engines.reading["b"].callback(None)
        bench.advance(1.4)
        self.assertEqual(bench.client.received, b"")
        bench.advance(0.2)
        self.assert_listed(bench.client, "m:latest", "n:latest")
        bench.engines.put(known("b", "n:latest"))
        again = bench.connect()
        again.asks("GET", "/api/tags")
        self.assert_listed(again, "m:latest", "n:latest")
        bench.engines.put(known("b", "n:latest", age=-60))
        bench.advance(31)
        later = bench.connect()
        later.asks("GET", "/api/tags")
        self.assertEqual(later.received, b"")

    def test_read_in_the_background(self) -> None:
        """An engine that missed the wait is read all the same, once at a time."""
        bench = self.listing(known("a", "m:latest", age=60))
        bench.advance(2)
        bench.engines.reading["a"].callback(None)
        again = bench.connect()
        again.asks("GET", "/api/tags")
        self.assert_listed(again, "m:latest")
        self.assertEqual(bench.engines.refreshed, ["a", "a"])

    def test_one_reading_for_many(self) -> None:
        """Clients that ask at once share the reading, and all get its result."""
        bench = self.listing(known("a", "m:latest", age=60))
        others = [bench.connect() for _ in range(3)]
        for each in others:
            each.asks("GET", "/api/ps")
        self.assertEqual(bench.engines.refreshed, ["a"])
        bench.engines.reading["a"].callback(None)
        self.assert_listed(bench.client, "m:latest")
        for each in others:
            self.assert_listed(each)

    def test_client_that_leaves(self) -> None:
        """Its wait ends, the reading goes on; the engine has missed nothing, and others still get the list."""
        bench = self.listing(known("a", "m:latest", age=60))
        other = bench.connect()
        other.asks("GET", "/api/tags")
        bench.client.leaves()
        self.assertEqual(list(bench.plane.meters.requests.values), [("ollama", "ollama", "listing", "aborted")])
        third = bench.connect()
        third.asks("GET", "/api/tags")
        self.assertEqual((other.received, third.received), (b"", b""))
        bench.engines.reading["a"].callback(None)
        self.assert_listed(other, "m:latest")
        self.assert_listed(third, "m:latest")

    def test_stopped_engine(self) -> None:
        """One that does not run is neither read nor listed; with nothing known the list is empty (PX-73)."""
        bench = self.bench(known("a", "m:latest", age=60))
        bench.engines.stop("a")
        for path, empty in [("/api/tags", {"models": []}), ("/v1/models", {"object": "list", "data": []})]:
            client = bench.connect()
            client.asks("GET", path)
            self.assertEqual((client.answer.status, client.answer.json), (200, empty))
        self.assertEqual(bench.engines.refreshed, [])

    def test_head(self) -> None:
        """HEAD of a list has its length and no body (H14)."""
        bench = self.bench(known("a", "m:latest"))
        bench.client.asks("HEAD", "/api/tags")
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (200, b""))
        self.assertGreater(int(bench.client.answer.fields["content-length"]), 20)

    def test_explained(self) -> None:
        """PX-74: entries name the nodes that have the model, when that is asked for."""
        bench = self.listing(known("a", "m:latest"), explain=True)
        self.assertEqual(bench.client.answer.json["models"][0]["pair"], {"nodes": [NODE]})
        bench = self.bench(known("a", "m:latest"))
        bench.client.asks("GET", "/api/tags", X_Pair_Explain="1")
        self.assertEqual(bench.client.answer.json["models"][0]["pair"], {"nodes": [NODE]})
