"""Tests of :mod:`pair.proxy.identity` (PX-28, H14)."""

from __future__ import annotations

from pair.test.proxy.bench import BenchCase
from pair.test.routing.facts import engine


class BannerTests(BenchCase):
    """What clients ask before they use a facade; also where no engine runs."""

    def test_root(self) -> None:
        """The Ollama facade says what Ollama's clients look for, the other one what it is; HEAD has no body."""
        for facade, banner in (("ollama", b"Ollama is running"), ("lmstudio", b"PAIR is running")):
            bench = self.bench(engine("llamacpp", name="e"), facade=facade)
            bench.engines.stop("e")
            for method, body in (("GET", banner), ("HEAD", b"")):
                client = bench.connect()
                client.asks(method, "/")
                answer = client.answer
                self.assertEqual((answer.status, answer.body), (200, body))
                self.assertEqual(answer.fields["content-length"], str(len(banner)))
                self.assertTrue(answer.fields["content-type"].startswith("text/plain"))
            self.assertEqual(bench.contacted(), [])

    def test_greeting(self) -> None:
        """LM Studio's greeting is always ours."""
        bench = self.bench(facade="lmstudio")
        bench.client.asks("GET", "/lmstudio-greeting")
        self.assertEqual(bench.client.answer.json, {"lmstudio": True})

    def test_version(self) -> None:
        """The lowest version among the Ollama engines that run, by its numbers; else 0.0.0."""
        for versions, told in [
            ((), "0.0.0"),
            (("0.13.0",), "0.13.0"),
            (("0.13.0", "0.9.6"), "0.9.6"),
            (("0.13.0-rc1", "0.13.1"), "0.13.0-rc1"),
            (("0.13", None), "0.13"),
            ((None,), "0.0.0"),
        ]:
            engines = [engine("ollama", name=f"o{i}", version=each) for i, each in enumerate(versions)]
            engines.append(engine("llamacpp", name="e", version="b1"))
            engines.append(engine("ollama", name="off", version="0.1.0", state="stopped", routable=False))
            bench = self.bench(*engines)
            bench.client.asks("GET", "/api/version")
            self.assertEqual(bench.client.answer.json, {"version": told})
