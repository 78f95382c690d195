"""What holds of every server that speaks OpenAI's ``/v1``, the real ones and their doubles (EN-110)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pair.test.doubles.wire import Asking, Got, ask

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IStreamClientEndpoint

SAY = [{"role": "user", "content": "Name a colour."}]
SURE = {"temperature": 0, "seed": 1}
"""What makes a real model say the same again."""


class CompatibleContract:
    """Mixed into a test case, which says where the server is and how to wait.

    Attributes:
        model: one that the server has.
    """

    model: str

    def endpoint(self) -> IStreamClientEndpoint:
        """Where the server is."""
        raise NotImplementedError

    def settle(self, work: Coroutine[Deferred[Any], Any, None]) -> Any:
        """Run ``work`` to its end."""
        raise NotImplementedError

    async def got(self, method: str, path: str, body: object = b"", **fields: str) -> Got:
        """Ask, and wait for the whole answer."""
        asking = await ask(self.endpoint(), method, path, body, Content_Type="application/json", **fields)
        return await asking.over

    async def events(self, path: str, body: dict[str, Any]) -> list[tuple[str, Any]]:
        """Ask for a stream, and take it apart."""
        got = await self.got("POST", path, {"model": self.model, "stream": True, **body})
        assert got.status == 200, got.body
        assert got.fields["content-type"].startswith("text/event-stream"), got.fields
        assert got.ended, "it ends by its own framing"
        return got.events

    def test_models(self) -> Any:
        """``/v1/models`` is a list of objects, each with its id."""

        async def work() -> None:
            got = await self.got("GET", "/v1/models")
            assert (got.status, got.json["object"]) == (200, "list")
            assert self.model in [each["id"] for each in got.json["data"]]
            assert all(each["object"] == "model" for each in got.json["data"])

        return self.settle(work())

    def test_chat(self) -> Any:
        """One document: who speaks, what, why it ended, and what it cost."""

        async def work() -> None:
            got = await self.got("POST", "/v1/chat/completions", {"model": self.model, "messages": SAY, **SURE})
            document = got.json
            assert (got.status, document["object"], document["model"]) == (200, "chat.completion", self.model)
            (choice,) = document["choices"]
            assert choice["message"]["role"] == "assistant"
            assert choice["message"]["content"]
            assert (choice["index"], choice["finish_reason"]) == (0, "stop")
            usage = document["usage"]
            assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 1

        return self.settle(work())

    def test_chat_stream(self) -> Any:
        """The same answer in pieces: chunks, one of them with the reason, then the usage if asked for, then [DONE]."""

        async def work() -> None:
            asking = {"messages": SAY, **SURE, "stream_options": {"include_usage": True}}
            *told, last = [document for _, document in await self.events("/v1/chat/completions", asking)]
            assert last == "[DONE]"
            assert {each["object"] for each in told} == {"chat.completion.chunk"}
            assert len({each["id"] for each in told}) == 1
            *chunks, usage = told
            assert usage["choices"] == []
            reasons = [each["choices"][0]["finish_reason"] for each in chunks]
            assert reasons == [None] * (len(chunks) - 1) + ["stop"]
            text = "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks)
            whole = await self.got("POST", "/v1/chat/completions", {"model": self.model, "messages": SAY, **SURE})
            assert text == whole.json["choices"][0]["message"]["content"]
            assert usage["usage"]["completion_tokens"] == whole.json["usage"]["completion_tokens"]

        return self.settle(work())

    def test_usage_is_told_only_if_asked_for(self) -> Any:
        """Else the last chunk before [DONE] has a choice."""

        async def work() -> None:
            *told, last = [document for _, document in await self.events("/v1/chat/completions", {"messages": SAY})]
            assert last == "[DONE]"
            assert all(len(each["choices"]) == 1 for each in told)

        return self.settle(work())

    def test_most(self) -> Any:
        """``max_tokens`` ends an answer."""

        async def work() -> None:
            asking = {"model": self.model, "messages": SAY, "max_tokens": 2}
            document = (await self.got("POST", "/v1/chat/completions", asking)).json
            assert document["usage"]["completion_tokens"] == 2
            assert document["choices"][0]["finish_reason"] == "length"

        return self.settle(work())

    def test_completions(self) -> Any:
        """A text goes on, whole and in pieces alike."""

        async def work() -> None:
            asking = {"model": self.model, "prompt": "The sky is", "max_tokens": 5, **SURE}
            got = await self.got("POST", "/v1/completions", asking)
            assert (got.status, got.json["object"]) == (200, "text_completion")
            *told, last = [document for _, document in await self.events("/v1/completions", asking)]
            assert last == "[DONE]"
            assert {each["object"] for each in told} == {"text_completion"}
            text = "".join(each["choices"][0]["text"] for each in told if each["choices"])
            assert text == got.json["choices"][0]["text"]

        return self.settle(work())

    def test_responses(self) -> Any:
        """The newer form; its stream begins with the response and ends with it, complete."""

        async def work() -> None:
            asking = {"model": self.model, "input": "Name a colour.", "max_output_tokens": 6, **SURE}
            got = await self.got("POST", "/v1/responses", asking)
            assert (got.status, got.json["object"], got.json["status"]) == (200, "response", "completed")
            text = _said(got.json)
            assert text
            events = await self.events("/v1/responses", asking)
            names = [name for name, _ in events]
            assert names[0] == "response.created"
            assert names[-1] == "response.completed"
            assert all(document["type"] == name for name, document in events)
            deltas = [document["delta"] for name, document in events if name == "response.output_text.delta"]
            assert "".join(deltas) == _said(events[-1][1]["response"]) == text

        return self.settle(work())

    def test_messages(self) -> Any:
        """Anthropic's form, whole and in pieces alike."""

        async def work() -> None:
            asking = {"model": self.model, "max_tokens": 6, "messages": SAY, **SURE}
            got = await self.got("POST", "/v1/messages", asking)
            assert (got.status, got.json["type"], got.json["role"]) == (200, "message", "assistant")
            assert got.json["usage"]["output_tokens"] > 0
            events = await self.events("/v1/messages", asking)
            names = [name for name, _ in events if name != "ping"]
            assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
            deltas = [document["delta"]["text"] for name, document in events if name == "content_block_delta"]
            assert "".join(deltas) == got.json["content"][0]["text"]

        return self.settle(work())

    def test_bad_json(self) -> Any:
        """What is no JSON is the client's fault, or is at least an error."""

        async def work() -> None:
            got = await self.got("POST", "/v1/chat/completions", b"{oops")
            assert got.status in (400, 500), got.status
            assert got.json["error"]["message"]

        return self.settle(work())

    def test_client_leaves(self) -> Any:
        """A client that goes in the middle of a stream hurts nobody."""

        async def work() -> None:
            story = {"model": self.model, "stream": True, "prompt": "The sky is", "max_tokens": 400, **SURE}
            asking: Asking = await ask(self.endpoint(), "POST", "/v1/completions", story)
            await asking.begun
            asking.leave()
            await asking.over
            assert not asking.got.ended
            await self.got("POST", "/v1/chat/completions", {"model": self.model, "messages": SAY, "max_tokens": 1})

        return self.settle(work())


def _said(response: dict[str, Any]) -> str:
    return "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )
