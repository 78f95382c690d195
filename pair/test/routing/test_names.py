"""Tests of model names as keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.routing.names import NAMINGS, key

PIECES = st.sampled_from(
    ["library/", "registry.ollama.ai/", "Library/", " ", "/", ":", "@", "llama3", "Q4_K_M", "É", ""]
)


class KeyTests(SynchronousTestCase):
    def test_the_table_of_the_page(self) -> None:
        """What Ollama implies is filled in (RT-11)."""
        for sent, wanted in [
            ("llama3", "llama3:latest"),
            (" llama3 ", "llama3:latest"),
            ("library/llama3", "llama3:latest"),
            ("LLama3:latest", "llama3:latest"),
            ("registry.ollama.ai/library/llama3", "llama3:latest"),
            ("host.example/team/llama3", "host.example/team/llama3:latest"),
            ("host.example:5000/llama3", "host.example:5000/llama3:latest"),
            ("qwen3:8b-q4_K_M", "qwen3:8b-q4_k_m"),
            ("llama3@sha256:ab12", "llama3@sha256:ab12"),
            ("É:A", "É:a"),
            ("", ""),
            ("  ", ""),
        ]:
            self.assertEqual(key("ollama", sent), wanted, sent)

    def test_exact_is_as_sent(self) -> None:
        """Spaces, case and a missing tag stand (RT-11)."""
        for name in ("", " Qwen ", "qwen", "QWEN", "library/x"):
            self.assertEqual(key("exact", name), name)

    @given(st.lists(PIECES, max_size=8).map("".join) | st.text())
    def test_a_key_is_its_own_key(self, name: str) -> None:
        """The key of a key is the key (RT-11)."""
        for naming in NAMINGS:
            once = key(naming, name)
            self.assertEqual(key(naming, once), once)
