"""An inviter in the hand of a test: it says what it is told to say, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.cluster.leaf import check_leaf
from pair.privacy import Secret
from pair.protocols.pairing import Admit, InviterExchange, Send
from pair.test.cluster.neighbours import Caught
from pair.test.protocols.couple import CLUSTER, CODE, DESK, OFFERED, Draws, Side

if TYPE_CHECKING:
    from pair.cluster.refusing import PairingReply
    from pair.test.cluster.neighbours import Node

HERE = "10.0.0.9"


class Asker:
    """An inviter without a clock: each request is sent by a call of the test.

    Attributes:
        exchange: What judges the replies.
        side: What it was told to do.
    """

    def __init__(self, node: Node, seed: str = "asker", address: str = HERE) -> None:
        self.side = Side()
        self.exchange = InviterExchange(DESK, "pin", Secret(CODE), check_leaf, lambda _: None, Draws(seed))
        self._node = node
        self._address = address

    @property
    def id(self) -> str:
        return self.exchange.invite

    def say(self, body: bytes, mac: bytes | None) -> Caught:
        """Send any request."""
        return Caught(self._node.service.receive(body, mac, self._address))

    def hello(self) -> PairingReply:
        """Say hello."""
        reply: PairingReply = self.say(self.exchange.hello, None).value
        if reply.status == 200:
            self.side.do(self.exchange.greeted(reply.body))
        return reply

    def ask(self) -> Caught:
        """Send the newest request."""
        send = self.side.last(Send)
        return self.say(send.body, send.mac)

    def take(self, asked: Caught) -> None:
        """Judge the answer, and store at once what is to be stored."""
        self.side.do(self.exchange.received(asked.value.body, asked.value.mac))
        if asked.value.status == 200 and self.side.done and isinstance(self.side.done[-1], Admit):
            self.side.do(self.exchange.admitted(CLUSTER, "home", OFFERED))
