"""The embedded engine is killed in the middle of answers: who is told what, and how it comes back (PX-63, EN-26)."""

from __future__ import annotations

import json
from http.client import IncompleteRead
from typing import Any

import anthropic
import openai

from pair.test.integration.node import MODEL, NodeTestCase, Stream, ask, wait_for

WELL_AGAIN = 10.0
"""Seconds in which it serves again, without anybody's help."""

STORY: Any = [{"role": "user", "content": "Tell a long story."}]
CHAT = {"model": MODEL, "messages": STORY, "max_tokens": 1500, "ignore_eos": True}
SHORT = {"model": MODEL, "messages": STORY, "max_tokens": 4}

CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"


class CrashTests(NodeTestCase):
    def test_raw(self) -> None:
        """Each stream ends with an error frame in its dialect and is cut; then the engine comes back by itself."""
        node = self.start_node()
        facade = node.facade("lmstudio")
        streams = {path: Stream(facade, path, {**CHAT, "stream": True}) for path in (CHAT_PATH, MESSAGES_PATH)}
        answers = {path: stream.answer() for path, stream in streams.items()}
        for path, answer in answers.items():
            self.addCleanup(streams[path].leave)
            self.assertTrue(answer.read1())
        first = node.engine_process()

        first.kill()
        frames = {}
        for path, answer in answers.items():
            with self.assertRaises(IncompleteRead) as cut:
                answer.read()
            frames[path] = cut.exception.partial.split(b"\n\n")[-2]
        said = json.loads(frames[CHAT_PATH].removeprefix(b"data: "))
        self.assertEqual(said["error"]["code"], "stream_lost")
        event, _, data = frames[MESSAGES_PATH].partition(b"\n")
        self.assertEqual(event, b"event: error")
        self.assertEqual(json.loads(data.removeprefix(b"data: "))["error"]["type"], "api_error")

        lost = [(each["state"], each["error"]["code"], each["attempts"][0]["outcome"]) for each in node.jobs()]
        self.assertEqual(lost, [("failed", "stream_lost", "broken")] * 2)

        told = ask(facade, CHAT_PATH, SHORT)
        if told.status != 200:  # else it waited for the restart
            self.assertEqual((told.status, told.value["error"]["code"]), (502, "engine_stopped"))
        wait_for("it to be well again", lambda: ask(facade, CHAT_PATH, SHORT).status == 200, WELL_AGAIN)
        self.assertNotEqual(node.engine_process(), first)
        self.assertIn("engines:crashed:embedded", node.errors())
        node.stop()

    def test_clients(self) -> None:
        """OpenAI's and Anthropic's clients raise what they raise for an error of the server's."""
        node = self.start_node()
        client = openai.OpenAI(base_url=f"{node.facade('lmstudio')}/v1", api_key="none", max_retries=0)
        chat = client.chat.completions.create(
            model=MODEL, messages=STORY, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
        )
        other = anthropic.Anthropic(base_url=node.facade("ollama"), api_key="none", max_retries=0)
        message = other.messages.create(
            model=MODEL, messages=STORY, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(chat))
        next(iter(message))
        node.engine_process().kill()
        with self.assertRaises(openai.APIError) as lost:
            list(chat)
        self.assertEqual(lost.exception.code, "stream_lost")
        with self.assertRaises(anthropic.APIStatusError):
            list(message)
