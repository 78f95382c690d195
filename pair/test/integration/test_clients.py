"""Clients written by others get through PAIR what they get from the engine itself (QA-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import ollama
import openai

from pair.test.doubles.shelf import MINILM, QWEN
from pair.test.integration.engines import Engine
from pair.test.integration.node import MODEL, Answer, Node, NodeTestCase, ask, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

FACADES = ("ollama", "lmstudio")

OLLAMA_MODEL = QWEN.name
EMBEDDING_MODEL = MINILM.name

HELLO: Any = [{"role": "user", "content": "Say hello."}]
WEATHER: Any = {
    "name": "weather",
    "description": "The weather of a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}

CHAT = {"model": MODEL, "messages": HELLO, "max_tokens": 8, "temperature": 0}

RAW: dict[str, tuple[str, object]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat, streamed": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "chat, refused": ("/v1/chat/completions", {**CHAT, "messages": "none"}),
    "messages, streamed": ("/v1/messages", {**CHAT, "stream": True}),
}
"""Requests as the clients make them: where, and what is asked."""

FRAMING = ("Content-Length", "Transfer-Encoding")


def openai_at(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30)


def anthropic_at(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=30)


def openai_results(url: str) -> dict[str, object]:
    """What OpenAI's client makes of each call."""
    client = openai_at(url)
    chat = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=HELLO,
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = client.completions.create(model=MODEL, prompt="The sky is", max_tokens=5, temperature=0)
    response = client.responses.create(model=MODEL, input="Say hi.", max_output_tokens=6, temperature=0)
    return {
        "models": [each.id for each in client.models.list()],
        "chat": (chat.choices[0].message.content, chat.choices[0].finish_reason, tokens(chat.usage)),
        "chat, streamed": "".join(each.choices[0].delta.content or "" for each in chunks if each.choices),
        "chunks": len(chunks),
        "chat, streamed: usage": tokens(chunks[-1].usage),
        "completions": (text.choices[0].text, tokens(text.usage)),
        "responses": (response.output_text, response.status),
    }


def tokens(usage: Any) -> tuple[int, int]:
    return usage.prompt_tokens, usage.completion_tokens


def anthropic_results(url: str) -> dict[str, object]:
    """What Anthropic's client makes of each call."""
    client = anthropic_at(url)
    cold: Any = {"temperature": 0}
    message = client.messages.create(model=MODEL, max_tokens=8, messages=HELLO, extra_body=cold)
    with client.messages.stream(model=MODEL, max_tokens=8, messages=HELLO, extra_body=cold) as stream:
        streamed = "".join(stream.text_stream)
        last = stream.get_final_message()
    tools = client.beta.messages.create(
        model=MODEL, max_tokens=8, messages=HELLO, tools=[WEATHER], betas=["tools"], extra_body=cold
    )
    return {
        "messages": ([block.model_dump() for block in message.content], message.stop_reason),
        "messages, streamed": (streamed, last.stop_reason, last.usage.output_tokens),
        "messages with tools": ([block.model_dump() for block in tools.content], tools.stop_reason),
        "count_tokens": client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens,
    }


def ollama_results(url: str) -> dict[str, object]:
    """What Ollama's client makes of each call."""
    client = ollama.Client(host=url, timeout=30)
    chat = client.chat(OLLAMA_MODEL, HELLO)
    streamed = list(client.chat(OLLAMA_MODEL, HELLO, stream=True))
    text = client.generate(OLLAMA_MODEL, "The sky is")
    shown = client.show(OLLAMA_MODEL)
    return {
        "list": sorted((each.model, each.digest, each.size) for each in client.list().models),
        "chat": (chat.message.content, chat.done_reason, chat.eval_count),
        "chat, streamed": [(each.message.content, each.done) for each in streamed],
        "generate": (text.response, text.done_reason),
        "embed": client.embed(EMBEDDING_MODEL, ["hello", "world"]).embeddings,
        "show": (shown.capabilities, shown.details, shown.modelinfo),
        "ps": sorted(each.model or "" for each in client.ps().models),
    }


def raw_results(url: str) -> dict[str, object]:
    """Status, and the fields by which a client reads the body."""
    return {name: shape(ask(url, path, body)) for name, (path, body) in RAW.items()}


def shape(answer: Answer) -> tuple[int, str | None, list[str]]:
    return answer.status, answer.fields["Content-Type"], [name for name in FRAMING if name in answer.fields]


class ClientTests(NodeTestCase):
    """In front of the real engine, one request at a time, at temperature 0; of Ollama's own API its double."""

    def assert_same(self, results: Callable[[str], dict[str, object]]) -> Node:
        """Each facade gives what the engine itself gives."""
        node = self.start_node()
        straight = results(node.engine_url)
        for facade in FACADES:
            self.assertEqual(results(node.facade(facade)), straight, facade)
        return node

    def test_openai(self) -> None:
        """``openai``: list, chat, completions and responses, whole and streamed."""
        self.assert_same(openai_results)

    def test_anthropic(self) -> None:
        """``anthropic``: messages, whole, streamed and with tools, and ``count_tokens``."""
        self.assert_same(anthropic_results)

    def test_heads(self) -> None:
        """Status and framing come through as the engine has them."""
        self.assert_same(raw_results)

    def test_refusals(self) -> None:
        """What no engine can do is refused in words that the clients know (PX-39, PX-84)."""
        node = self.start_node()
        for facade in FACADES:
            client = openai_at(node.facade(facade))
            with self.assertRaises(openai.APIStatusError) as embeddings:
                client.embeddings.create(model=MODEL, input="hello")
            self.assertEqual((embeddings.exception.status_code, embeddings.exception.code), (501, "route_unsupported"))
            with self.assertRaises(openai.InternalServerError) as unknown:
                client.chat.completions.create(model="nobody-has-it", messages=HELLO)
            self.assertEqual((unknown.exception.status_code, unknown.exception.code), (502, "model_unknown"))
            with self.assertRaises(anthropic.APIStatusError) as message:
                anthropic_at(node.facade(facade)).messages.create(model="nobody-has-it", max_tokens=1, messages=HELLO)
            self.assertEqual(message.exception.response.headers["x-pair-error"], "model_unknown")

    def test_ollama(self) -> None:
        """``ollama``: list, show, ps, chat, generate and embed, whole and streamed, from the double of Ollama."""
        engine = Engine("ollama")
        self.addCleanup(engine.kill)
        straight = ollama_results(engine.url)
        # What is in memory is read every few seconds; this node finds it as it is now.
        node = self.start_node(*engine.settings("double"), embedded=False)
        wait_for("the engine to be found", lambda: node.engine("double")["routable"])
        self.assertEqual(ollama_results(node.facade("ollama")), straight)

    def test_ollama_embedded(self) -> None:
        """``ollama`` sees the embedded model in its list, and is told what the model is not served on (PX-24)."""
        client = ollama.Client(host=self.start_node().facade("ollama"))
        self.assertEqual([each.model for each in client.list().models], [MODEL])
        with self.assertRaises(ollama.ResponseError) as chat:
            client.chat(MODEL, HELLO)
        self.assertEqual(chat.exception.status_code, 501)
        self.assertIn("/v1/chat/completions", chat.exception.error)
        with self.assertRaises(ollama.ResponseError) as show:
            client.show("nobody-has-it")
        self.assertEqual(show.exception.status_code, 404)

    def test_jobs(self) -> None:
        """``pair-admin job list`` shows the job with its node, attempts, time to first byte and tokens (JB-36)."""
        node = self.start_node()
        chat = openai_at(node.facade("lmstudio")).chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=8, temperature=0
        )
        node.ended_job()
        (job,) = node.admin("job", "list")["jobs"]
        (attempt,) = job["attempts"]
        here = node.get("/service")["node"]
        self.assertEqual((job["state"], job["model"], job["status"]), ("completed", MODEL, 200))
        self.assertEqual((job["placedOn"], attempt["node"], attempt["engine"]), (here, here, "embedded"))
        self.assertEqual((job["attemptCount"], attempt["outcome"]), (1, "won"))
        self.assertLessEqual(attempt["startedAt"], attempt["firstByteAt"])
        self.assertLessEqual(attempt["firstByteAt"], job["completedAt"])
        self.assertEqual((job["usage"]["promptTokens"], job["usage"]["outputTokens"]), tokens(chat.usage))
