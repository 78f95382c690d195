"""Pairings with fixed randomness: ``pair/test/samples/pairing/vectors.json``.

``python -m pair.test.protocols.vectors`` writes the messages and values of that
file anew from the inputs that stand in it. They change only with the protocol.
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pair.cluster.leaf import check_leaf
from pair.privacy import Secret
from pair.protocols.pairing import Answer, InviterExchange, JoinerExchange, Party, Send
from pair.test.protocols.couple import Side

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = Path(__file__).parent.parent / "samples" / "pairing" / "vectors.json"


def cases() -> list[dict[str, Any]]:
    """The pairings in the file."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text())
    return found


def party(node: dict[str, str]) -> Party:
    """A node of a vector."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(node["key"]))
    return Party(node["uuid"], node["name"], key, b64decode(node["leaf"]))


def replay(draws: list[str]) -> Callable[[int], bytes]:
    """Randomness that was drawn before."""
    left = [bytes.fromhex(each) for each in draws]

    def draw(size: int) -> bytes:
        drawn = left.pop(0)
        if len(drawn) != size:
            raise ValueError(f"{size} bytes are asked for, not {len(drawn)}")
        return drawn

    return draw


def run(case: dict[str, Any]) -> tuple[list[dict[str, str | None]], dict[str, str]]:
    """The messages of a pairing with the inputs of ``case``, and the values behind them."""
    inputs = case["inputs"]
    desk, rack = inputs["inviter"], inputs["joiner"]
    code = Secret(inputs["code"])
    inviter = InviterExchange(party(desk), inputs["codeKind"], code, check_leaf, lambda _: None, replay(desk["draws"]))
    joiner = JoinerExchange(party(rack), inviter.hello, check_leaf, lambda _, __: None, replay(rack["draws"]))
    here, there = Side(), Side()

    def ask() -> None:
        there.do(joiner.received(here.last(Send).body, here.last(Send).mac))

    def reply() -> None:
        here.do(inviter.received(there.last(Answer).body, there.last(Answer).mac))

    here.do(inviter.greeted(joiner.reply))
    ask()
    there.do(joiner.poll_ended())
    reply()
    ask()
    there.do(joiner.prove(code, inputs["epoch"]))
    reply()
    cluster = inputs["cluster"]
    here.do(inviter.admitted(cluster["id"], cluster["name"], _statements(inputs["offered"])))
    ask()
    there.do(joiner.joined(_statements(inputs["returned"])))
    reply()

    messages = [_message(inviter.hello, None), _message(joiner.reply, None)]
    for request, answer in zip(here.all(Send), there.all(Answer), strict=True):
        messages += [_message(request.body, request.mac), _message(answer.body, answer.mac)]
    return messages, _values(inviter, joiner)


def _statements(texts: list[str]) -> tuple[bytes, ...]:
    return tuple(b64decode(each) for each in texts)


def _message(body: bytes, mac: bytes | None) -> dict[str, str | None]:
    return {"body": body.decode(), "mac": None if mac is None else mac.decode()}


def _values(inviter: InviterExchange, joiner: JoinerExchange) -> dict[str, str]:
    channel, keys = inviter._channel, inviter._keys
    return {
        "t0": channel.t0.hex(),
        "z": channel.z.hex(),
        "gateInviter": channel._inviter.hex(),
        "gateJoiner": channel._joiner.hex(),
        "tag": channel.tag,
        "t1": keys.t1.hex(),
        "confirmKeyJoiner": keys.confirm_joiner.hex(),
        "confirmKeyInviter": keys.confirm_inviter.hex(),
        "sealKeyJoiner": keys.seal_joiner.hex(),
        "sealKeyInviter": keys.seal_inviter.hex(),
        "sealKeyAck": keys.seal_ack.hex(),
        "t2": joiner._t2.hex(),
    }


def main() -> None:
    """Write the file anew."""
    written = cases()
    for case in written:
        case["messages"], case["values"] = run(case)
    FILE.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
