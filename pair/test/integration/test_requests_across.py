"""Requests that other members serve: as clients see them, where they go, and who may send them (PX-53, PX-86)."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

from pair.test.integration.cluster import connection_as
from pair.test.integration.engines import MODEL, Engine
from pair.test.integration.node import Answer, ask, wait_for
from pair.test.integration.owners import OwnersTestCase, candidates, fail, met, states
from pair.test.integration.streams import Crowd
from pair.test.integration.test_clients import FACADES, anthropic_results, ollama_results, openai_results

if TYPE_CHECKING:
    from pair.test.integration.cluster import ClusterNode

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "stream": False}

NOT_FOR_MEMBERS = (
    ("POST", "/api/pull"),
    ("POST", "/api/push"),
    ("DELETE", "/api/delete"),
    ("GET", "/api/tags"),
    ("GET", "/"),
    ("POST", "/api/%63hat"),
    ("POST", "/api/chat/"),
)


class ClientTests(OwnersTestCase):
    """A node without an engine gives clients what the engine of another gives them."""

    def test_ollama(self) -> None:
        """``ollama``: list, show, ps, chat, generate and embed, whole and streamed."""
        engine = Engine("ollama")
        self.addCleanup(engine.kill)
        straight = ollama_results(engine.url)
        self.gather({"double": engine})
        self.assertEqual(ollama_results(self.front.facade("ollama")), straight)

    def test_openai_and_anthropic(self) -> None:
        """``openai`` and ``anthropic``, on each facade, from a real engine."""
        owner = self.make_peer(embedded=True)
        self.front, self.owners = self.make_peer(), [owner]
        self.join()
        self.wait_until_offered(owner, "embedded", facade="lmstudio")
        known = owner.get("/engines")["engines"]
        (engine,) = (each for each in known if (each["node"], each["id"]) == (owner.uuid, "embedded"))
        for results in (openai_results, anthropic_results):
            straight = results(f"http://{engine['address']}")
            for facade in FACADES:
                self.assertEqual(results(self.front.facade(facade)), straight, facade)


class PlacingTests(OwnersTestCase):
    def test_spread(self) -> None:
        """A hundred chats at once over three equal nodes: no node has two more than another (RT-47).

        ``X-Pair-Node`` names the node that served, as the jobs do (PX-83), and all nodes list the same jobs.
        """
        engines = [self.start_engine() for _ in range(3)]
        self.gather(*({"double": each} for each in engines[:2]), front=engines[2].settings("double"))
        wait_for("three candidates", lambda: len(candidates(self.front)) == 3)
        for each in engines:
            fail(each, "slow", seconds=3)
        ends = Crowd(self.front.facade("ollama"), MODEL, 100).ends()
        self.assertEqual(ends, {"full": 100})
        shares = Counter(placed for _, placed in states(self.front).values())
        self.assertEqual(len(shares), 3)
        self.assertLessEqual(max(shares.values()) - min(shares.values()), 1, shares)

        for each in engines:
            each.mend()
        served = Counter(self.explained() for _ in range(6))
        shares.update(served)
        self.assertEqual(Counter(placed for _, placed in states(self.front).values()), shares)
        self.assertEqual(sorted(shares.values()), sorted(met(each) for each in engines))
        self.assert_settled(Counter(full=106))

    def explained(self) -> str:
        """Which node served a chat, as it says."""
        answer = ask(self.front.facade("ollama"), "/api/chat", CHAT, {"X-Pair-Explain": "1"})
        self.assertEqual((answer.status, answer.fields["X-Pair-Attempts"]), (200, "1"))
        self.assertRegex(answer.fields["X-Pair-Why"], r"^policy=pressure; load=")
        return str(answer.fields["X-Pair-Node"])


class IngressTests(OwnersTestCase):
    def test_refused(self) -> None:
        """Who is no member is served nothing, a member only what it may ask, and a hop is made once."""
        engine = self.start_engine()
        self.gather({"double": engine})
        (owner,) = self.owners
        stranger = self.make_peer()
        stranger.start()
        self.assertEqual(self.refusal(stranger, owner), (403, "not_member"))
        for method, path in NOT_FOR_MEMBERS:
            self.assertEqual(self.refusal(self.front, owner, method, path), (403, "peer_path"), path)
        for hop in ("2", "", "1, 1"):
            self.assertEqual(self.refusal(self.front, owner, hop=hop), (508, "loop"), hop)
        self.assertEqual(met(engine), 0)
        self.assertEqual(self.refusal(self.front, owner), (200, None))
        owner.remove(self.front)
        self.assertEqual(self.refusal(self.front, owner), (403, "not_member"))
        self.assertEqual(met(engine), 1)

    def refusal(
        self, caller: ClusterNode, owner: ClusterNode, method: str = "POST", path: str = "/api/chat", hop: str = "1"
    ) -> tuple[int, str | None]:
        """Status and code of what an owner answers to a node, or to whoever has its key."""
        fields = {"Content-Type": "application/json", **({"X-Pair-Hop": hop} if hop else {})}
        with closing(connection_as(caller, int(owner.facade("ollama").rpartition(":")[2]))) as connection:
            connection.request(method, path, json.dumps(CHAT), fields)
            answer = Answer(connection.getresponse())
        code = answer.fields.get("X-Pair-Error")
        return answer.status, answer.value["error"]["code"] if code is None and answer.status != 200 else code
