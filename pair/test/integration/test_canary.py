"""Nothing that people say, and no secret, is kept or shown by a node that serves all kinds of requests (OP-34, OP-35).

Every text that must not be is marked with one word of this run; in the end
that word is searched wherever something of a request could have been left.
"""

from __future__ import annotations

import json
import secrets
import socket
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pair.control.route import EVENTS
from pair.control.routes import ROUTES
from pair.test.integration.node import MODEL, Answer, Node, NodeTestCase, Stream, ask, wait_for
from pair.test.integration.scripted import CHUNKED, Request, ScriptedEngine

CHAT = "/v1/chat/completions"

TOPICS = ("service", "nodes", "telemetry", "engines", "jobs", "errors", "cluster", "invitations")
"""Of the event stream."""

MALFORMED = (
    b"%b\r\n\r\n",
    b"GET /%b HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: 1\r\n %b\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n%b : 1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + 20000 * b"x" + b"%b\r\n\r\n",
)
"""Requests that are none."""


class CanaryTestCase(NodeTestCase):
    """Asks nodes all kinds of things, with marks in them, and knows where to look for these."""

    def setUp(self) -> None:
        self.word = secrets.token_hex(8)
        self.refusals: list[Answer] = []

    def mark(self, place: str) -> str:
        """A text that must not be found. It tells where it was put."""
        return f"{self.word}-{place}"

    # What is asked

    def ask(self, url: str, path: str, body: object = None, **fields: str) -> Answer:
        """A request with marks in all fields that say something of its sender."""
        answer = ask(
            url,
            f"{path}?key={self.mark('query')}",
            body,
            {
                "Authorization": f"Bearer {self.mark('authorization')}",
                "Cookie": f"session={self.mark('cookie')}",
                "User-Agent": self.mark("user-agent"),
                "X-Api-Key": self.mark("x-api-key"),
                "X-Forwarded-For": self.mark("x-forwarded-for"),
                **{name.replace("_", "-"): value for name, value in fields.items()},
            },
        )
        if "X-Pair-Error" in answer.fields:
            self.refusals.append(answer)
        return answer

    def chat(self, model: str, **more: object) -> dict[str, Any]:
        return {
            "model": model,
            "messages": [{"role": "user", "content": self.mark("prompt")}],
            "user": self.mark("user"),
            "max_tokens": 4,
            **more,
        }

    # What is searched

    def places(self, node: Node) -> dict[str, bytes]:
        """All places where a node that runs could have left something of a request, and what is there."""
        shown = {path: self.shown(node, path) for path in self.paths(node)} | {"events": self.events(node)}
        refusals = {f"refusal {each.fields['X-Pair-Error']}": told(each) for each in self.refusals}
        return {**self.files(node), "process arguments": self.arguments(node), **shown, **refusals}

    def files(self, node: Node) -> dict[str, bytes]:
        """All that it has written."""
        files = {
            str(path.relative_to(node.state)): path.read_bytes() for path in node.state.rglob("*") if path.is_file()
        }
        return {**files, "output": node.output().encode()}

    def arguments(self, node: Node) -> bytes:
        return "\n".join(" ".join(each.cmdline()) for each in node.processes()).encode()

    def paths(self, node: Node) -> list[str]:
        """All that the control API has to show, each job apart."""
        gets = [route for route in ROUTES if route.method == "GET" and "<" not in route.path]
        paths = [each.path for each in gets if each.content != EVENTS]  # That never ends, and is looked at apart.
        return paths + [f"/api/v1/jobs/{job['origin']}/{job['id']}" for job in node.jobs()]

    def events(self, node: Node) -> bytes:
        """All that the event stream tells of at first."""
        token = (node.state / "control.token").read_text().strip()
        path = f"/api/v1/events?topics={','.join(TOPICS)}"
        follower = Stream(node.control, path, None, {"Authorization": f"Bearer {token}"}, "GET")
        self.addCleanup(follower.leave)
        answer = follower.answer()
        self.assertEqual(answer.status, 200)
        return b"".join(iter(answer.readline, b"\n"))

    def shown(self, node: Node, path: str) -> bytes:
        token = (node.state / "control.token").read_text().strip()
        answer = ask(node.control, path, fields={"Authorization": f"Bearer {token}"})
        self.assertEqual(answer.status, 200, path)
        return told(answer)

    # What the engine does, by the model that it is asked for

    def scripts(self) -> dict[str, Any]:
        said = self.mark("answer")
        delta = {"choices": [{"index": 0, "delta": {"content": said}}]}
        failure = {"error": {"message": self.mark("engine-error"), "type": said, "code": said}}

        def answers(request: Request) -> None:
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 3, "completion_tokens": 2}
            request.reply(200, {"choices": [choice], "usage": usage}, Set_Cookie=said, X_Engine=said)

        def streams(request: Request) -> None:
            request.begin(200, {**CHUNKED, "X-Engine": said}, said)
            request.event(delta)
            request.finish_stream()

        def errs(request: Request) -> None:
            request.begin(200, CHUNKED)
            request.event(delta)
            request.event(failure)
            request.finish_stream()

        def breaks_off(request: Request) -> None:
            request.begin(200, CHUNKED)
            request.event(delta)
            request.cut()

        def goes_on(request: Request) -> None:
            request.begin(200, CHUNKED)
            request.go_on(delta)

        def babbles(request: Request) -> None:
            request.wfile.write(f"{said} {said}\r\n{said}\r\n\r\n".encode())
            request.cut()

        def has_a_bad_field(request: Request) -> None:
            request.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {said}\r\n\r\n{said}".encode())
            request.cut()

        return {
            "answers": answers,
            "streams": streams,
            "errs": errs,
            "breaks-off": breaks_off,
            "goes-on": goes_on,
            "babbles": babbles,
            "has-a-bad-field": has_a_bad_field,
            "refuses": lambda request: request.reply(400, failure, said, WWW_Authenticate=said),
            "does-not-know": lambda request: request.reply(
                404, {"error": {"message": f"model {said} does not exist"}}
            ),
            "is-busy": lambda request: request.reply(429, failure, Retry_After=said),
            "fails": lambda request: request.reply(500, failure, said),
            "redirects": lambda request: request.reply(302, failure, Location=f"http://127.0.0.1/{said}"),
        }

    # What is asked for

    def served(self, facade: str, engine: ScriptedEngine, stream: bool) -> None:
        """Requests that come to the engine."""
        for model in set(engine.scripts) - {"goes-on"}:
            try:
                self.ask(facade, CHAT, self.chat(model, stream=stream))
            except HTTPException:
                self.assertEqual(model, "breaks-off")
        self.ask(facade, "/v1/completions", {"model": "answers", "prompt": self.mark("prompt")})
        self.ask(facade, "/v1/embeddings", {"model": "answers", "input": self.mark("input")})
        self.ask(facade, "/v1/models")
        self.ask(facade, "/api/tags")

    def refused(self, facade: str) -> None:
        """Requests that come to no engine."""
        prompt = self.mark("prompt")
        self.ask(facade, CHAT, self.chat("nobody-has-it"))
        self.ask(facade, "/v1/messages", self.chat("nobody-has-it"))
        self.ask(facade, "/api/chat", self.chat("nobody-has-it"))
        self.ask(facade, "/api/show", {"model": "nobody-has-it", "system": prompt})
        self.ask(facade, "/api/pull", {"model": "nobody-has-it", "username": prompt, "password": prompt})
        self.ask(facade, "/v1/messages", self.chat("answers"))
        for body in (
            prompt.encode(),
            f'{{"model": "{prompt}'.encode(),
            f'["{prompt}"]'.encode(),
            b"\xff" + prompt.encode(),
        ):
            self.ask(facade, CHAT, body)
        self.ask(facade, CHAT, {"model": {prompt: prompt}, "messages": prompt})
        self.ask(facade, CHAT, {"model": f"\x1b{prompt}"})
        self.ask(facade, CHAT, self.chat("answers"), Content_Encoding="gzip")
        self.ask(facade, CHAT, prompt.encode(), Content_Type=f"multipart/form-data; boundary={prompt}")
        self.ask(facade, CHAT, self.chat("answers"), Host=f"{prompt}.example")
        self.ask(facade, CHAT, self.chat("answers"), Origin=f"https://{prompt}.example")
        self.ask(facade, CHAT, self.chat("answers"), X_Pair_Require=prompt)
        self.ask(facade, CHAT, self.chat("answers"), X_Pair_Hop=prompt)
        self.ask(facade, f"/v1/files/{prompt}", self.chat("answers"))
        self.ask(facade, f"/{prompt}")

    def malformed(self, facade: str) -> None:
        """Bytes that are no request."""
        place = urlsplit(facade)
        for data in MALFORMED:
            with socket.create_connection((place.hostname or "", place.port or 0), timeout=10) as client:
                client.sendall(data % self.mark("malformed").encode())
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass

    def left(self, facade: str) -> None:
        """A stream whose client hangs up."""
        stream = Stream(facade, CHAT, self.chat("goes-on", stream=True))
        self.addCleanup(stream.leave)
        self.assertTrue(stream.answer().read1())
        stream.leave()

    def controlled(self, control: str) -> None:
        """Requests to the control API of somebody who has no token, and who has one and errs."""
        text = self.mark("control")
        for path in ("/healthz", "/readyz", "/metrics", "/api/v1/jobs", "/api/v1/none", f"/{text}"):
            self.ask(control, path)
            self.ask(control, path, Host=text)
            self.ask(control, path, Origin=f"http://{text}")
        self.ask(control, "/api/v1/errors/self/dismiss/a:b", {text: text})


class CanaryTests(CanaryTestCase):
    def test_everything(self) -> None:
        """Success, failure, cancellation, nonsense and refusals, at level debug, by an engine that has much to say."""
        credential = self.mark("credential")
        engine = ScriptedEngine(credential, self.mark("wrong-credential"), self.scripts())
        self.addCleanup(engine.close)
        file = Path(self.mktemp()).absolute()
        file.touch(mode=0o600)
        file.write_text(credential)
        node = self.start_node(
            "log.level=debug",
            "proxy.explain=true",
            "proxy.start_deadline=1",
            *("engines.first.kind=openai-compatible", f"engines.first.url={engine.url}"),
            f"engines.first.credential_file={file}",
            *("engines.second.kind=openai-compatible", f"engines.second.url={engine.url}"),
            "engines.second.credential_env=CANARY_CREDENTIAL",
            *("engines.third.kind=openai-compatible", f"engines.third.url={engine.url}"),
            "engines.third.credential_env=CANARY_WRONG",
            environ={"CANARY_CREDENTIAL": credential, "CANARY_WRONG": self.mark("not-the-credential")},
            embedded=False,
        )
        wait_for("the first engine to be found", lambda: node.engine("first")["routable"])
        wait_for("the second engine to be found", lambda: node.engine("second")["routable"])
        wait_for("the third to want more", lambda: node.engine("third")["health"] == "needs_credential")

        for name in ("ollama", "lmstudio"):
            facade = node.facade(name)
            self.served(facade, engine, stream=name == "lmstudio")
            self.refused(facade)
            self.malformed(facade)
            self.left(facade)
        self.controlled(node.control)
        wait_for("the jobs to end", lambda: all(each["completedAt"] for each in node.jobs()))

        places = self.places(node)
        self.assertEqual(found(places, self.word), [])
        (token,) = places["control.token"].decode().split()
        self.assertEqual(found(places, token), ["control.token"])
        self.assertEqual(found(places, places["node.key"].decode().splitlines()[1]), ["node.key"])
        self.assert_seen(node, engine, found(places, "breaks-off"))
        node.stop()
        self.assertEqual(found(self.files(node), self.word), [])

    def assert_seen(self, node: Node, engine: ScriptedEngine, traces: list[str]) -> None:
        """What was searched is what there was to be seen: requests came through, and left their traces."""
        self.assertEqual({each["model"] for each in node.jobs()} & set(engine.scripts), set(engine.scripts))
        self.assertIn("/api/v1/jobs", traces)
        self.assertTrue(any(each.startswith("pair.sqlite3") for each in traces), traces)
        self.assertIn('"level":"debug"', (node.state / "logs" / "pair.jsonl").read_text())
        self.assertGreaterEqual(
            {each.fields["X-Pair-Error"] for each in self.refusals},
            {"bad_request", "bad_host", "bad_origin", "model_unknown", "engine_redirect", "engine_unreachable"},
        )

    def test_embedded_engine(self) -> None:
        """So with the real engine: neither question nor answer is anywhere, though it is killed while it answers."""
        node = self.start_node("log.level=debug")
        facade = node.facade("lmstudio")
        question = "How does the moon make the tides?"
        asked = self.chat(MODEL, max_tokens=24, temperature=0, ignore_eos=True)
        asked["messages"][0]["content"] = question
        answer: str = self.ask(facade, CHAT, asked).value["choices"][0]["message"]["content"]
        message = self.ask(facade, "/v1/messages", asked).value["content"][0]["text"]
        stream = Stream(facade, CHAT, self.chat(MODEL, stream=True, max_tokens=1500, ignore_eos=True))
        self.addCleanup(stream.leave)
        stream.answer().read1()
        node.engine_process().kill()
        wait_for("the engine to be back", lambda: ask(facade, CHAT, self.chat(MODEL)).status == 200)
        places = self.places(node)
        for text in (question, answer, message):
            self.assertGreater(len(text), 20)
            self.assertEqual(found(places, json.dumps(text)[1:20]), [])
        self.assertEqual(found(places, self.word), [])
        node.stop()
        self.assertEqual(found(self.files(node), self.word), [])


def told(answer: Answer) -> bytes:
    """All of an answer: its fields and its body."""
    return f"{answer.fields}".encode() + answer.body


def found(places: dict[str, bytes], word: str) -> list[str]:
    """The places that have ``word``, in order."""
    return sorted(place for place, content in places.items() if word.encode() in content)
