"""Who may open a prompt at a node (CL-29, CL-42, CL-44, CL-45)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pair.protocols.pairing import InviterExchange, Party
from pair.test.cluster.asker import Asker
from pair.test.cluster.neighbours import Caught
from pair.test.cluster.test_invitations import NeighbourTests
from pair.test.protocols.couple import CLUSTER, DESK, MALLORY

if TYPE_CHECKING:
    from pair.cluster.refusing import PairingReply


class HelloTests(NeighbourTests):
    """Hellos by hand."""

    def hello(self, address: str = "10.9.0.1", me: Party = DESK, seed: str = "", **fields: Any) -> PairingReply:
        """What a hello from an address is answered with."""
        asker = Asker(self.rack, f"{seed or address} {me.uuid}", address)
        body = asker.exchange.hello
        if fields:
            body = msgspec.json.encode(msgspec.json.decode(body) | fields)
        reply: PairingReply = Caught(self.rack.service.receive(body, None, address)).value
        return reply

    def code(self, reply: PairingReply) -> tuple[int, str]:
        return reply.status, msgspec.json.decode(reply.body)["error"]["code"]

    def test_order(self) -> None:
        """The first of what stands against a hello is told, and whose refusal it is (CL-42)."""
        me = self.rack.party
        asked: dict[str, Any] = {"node": me.uuid, "versions": [9]}
        self.rack.enabled = False
        self.rack.trust.enter(CLUSTER, "home", me.uuid)
        self.assertEqual(self.code(self.hello(**asked)), (403, "pairing_off"))
        self.rack.enabled = True
        self.assertEqual(self.code(self.hello(**asked)), (400, "version"))
        asked["versions"] = [9, 1]
        self.assertEqual(self.code(self.hello(self.rack.address, **asked)), (409, "is_self"))
        self.assertEqual(self.code(self.hello(**asked)), (409, "identity_clash"))
        refused = self.hello()
        self.assertEqual(self.code(refused), (409, "already_clustered"))
        self.assertEqual(msgspec.json.decode(refused.body)["node"], me.uuid)
        self.rack.trust.view = None
        self.assertEqual(self.hello().status, 200)
        self.assertEqual(self.code(self.hello(seed="second")), (429, "too_many"))

    def test_knocked(self) -> None:
        """In a cluster, who said hello is told to whoever syncs (CL-91)."""
        heard: list[str] = []
        self.rack.service.knocked.subscribe(heard.append)
        self.hello()
        self.assertEqual(heard, [])
        self.rack.trust.enter(CLUSTER, "home", self.rack.party.uuid)
        self.hello(seed="second")
        self.assertEqual(heard, [DESK.uuid])

    def test_no_share(self) -> None:
        """A share that gives no secret is 400, and does not stay pending (CL-26)."""
        zero = "A" * 43 + "="
        for at in range(3):
            self.assertEqual(self.code(self.hello(seed=str(at), share=zero)), (400, "bad_request"))
            self.clock.advance(10.0)
        self.assertEqual(self.hello(seed="good").status, 200)

    def test_limits(self) -> None:
        """The second of a source within ten seconds, its third, and the ninth of all are 429 (CL-44)."""
        self.assertEqual(self.hello(seed="1").status, 200)
        self.clock.advance(2.0)
        refused = self.hello(seed="2")
        self.assertEqual((self.code(refused), refused.fields), ((429, "too_many"), ((b"Retry-After", b"9"),)))
        self.assertEqual(self.hello("::ffff:10.9.0.1", seed="2").status, 429)
        for at in range(2, 9):
            self.assertEqual(self.hello(f"10.9.0.{at}").status, 200)
        self.assertEqual(self.hello("10.9.0.9").status, 429)
        self.assertEqual(self.rack.service.limited.values, {(): 3})
        self.clock.advance(10.0)  # nobody polled: all are dropped
        self.assertEqual(self.hello("10.9.0.9").status, 200)

    def test_one_network(self) -> None:
        """An IPv6 /64 is one source; two of its prompts may be pending, once they are polled (CL-44)."""
        for at, status in enumerate((200, 200, 429)):
            asker = Asker(self.rack, f"seed {at}", f"2001:db8::{at}")
            self.assertEqual(asker.hello().status, status)
            if status == 200:
                asker.ask()
            self.clock.advance(10.0)
        self.assertEqual(self.hello("2001:db8:0:1::").status, 200)
        self.assertEqual(len(self.rack.service.all()), 2)

    def test_ends_make_room(self) -> None:
        """An invitation that has ended is not pending."""
        askers = [Asker(self.rack, f"seed {at}", "10.9.0.1") for at in range(2)]
        for asker in askers:
            self.assertEqual(asker.hello().status, 200)
            asker.ask()
            self.clock.advance(10.0)
        self.assertEqual(self.hello(seed="third").status, 429)
        self.rack.service.decline(askers[0].id)
        self.assertEqual(self.hello(seed="third").status, 200)

    def test_strangers_change_nothing(self) -> None:
        """Hellos under the id of an invitation of others, in either direction, are 409 (CL-29, CL-45)."""
        made = self.desk.invite(self.rack)
        id = made.value[0].id
        before = [node.service.all() for node in self.nodes]
        self.assertEqual(self.code(self.hello(me=MALLORY, invite=id)), (409, "invite_conflict"))
        forged = InviterExchange(MALLORY, "pin", made.code, str, lambda _: None, lambda size: b"m" * size)
        body = msgspec.json.encode(msgspec.json.decode(forged.hello) | {"invite": id})
        reply = Caught(self.desk.service.receive(body, None, "10.9.0.1")).value
        self.assertEqual(self.code(reply), (409, "invite_conflict"))
        self.assertEqual([node.service.all() for node in self.nodes], before)
        self.rack.accept(made.code)
        self.network.run(1.0)
        self.assertEqual((self.desk.states, self.rack.states), ([("paired", None)], [("paired", None)]))
