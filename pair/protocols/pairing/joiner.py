"""The side where the code is typed: it is asked, proves itself first, and judges the inviter (CL-46 to CL-52).

Pure. It reads requests and makes answers. One request at a time is open: a long
poll, or the inviter's proof while what it brings is being stored.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pair.protocols.pairing.actions import (
    LIVE,
    Answer,
    Ended,
    Hold,
    Join,
    Offer,
    OverError,
    Refuse,
    Show,
    common_reason,
)
from pair.protocols.pairing.codes import password
from pair.protocols.pairing.keys import (
    SIGNED_BY_INVITER,
    SIGNED_BY_JOINER,
    Channel,
    Pake,
    PakeError,
    ProofError,
    ShareError,
    agree,
    authenticate,
    check_pake,
    derive_keys,
    hello_digest,
    proof_digest,
    seal,
    unseal,
)
from pair.protocols.pairing.messages import (
    Acknowledgement,
    End,
    Hello,
    HelloReply,
    InviterIdentity,
    JoinerIdentity,
    MalformedError,
    Prove,
    Reply,
    Wait,
    encode,
    read,
    read_request,
)
from pair.protocols.pairing.parties import check_peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.privacy import Secret
    from pair.protocols.pairing.actions import FinalState, JoinerAction, Reason, State
    from pair.protocols.pairing.keys import Keys
    from pair.protocols.pairing.messages import EndState
    from pair.protocols.pairing.parties import Party, Peer


class JoinerExchange:
    """One invitation at the joiner, from a hello that was found worth an answer (CL-42).

    Attributes:
        hello: What the inviter says of itself, unproven.
        state: Where it stands.
        reason: Why it ended so, where there is a reason.
        tag: Tells this prompt from others, for people (CL-45).
        reply: The bytes that answer the hello.
    """

    # From the own proof on.
    _keys: Keys
    _t2: bytes

    def __init__(
        self,
        me: Party,
        hello: bytes,
        check_leaf: Callable[[bytes], str],
        objection: Callable[[Peer, Offer], Reason | None],
        entropy: Callable[[int], bytes],
    ) -> None:
        """An invitation that no person is told of yet.

        Args:
            me: This node.
            hello: The body of the hello.
            check_leaf: Gives the UUID of a leaf, or raises a ValueError (CL-6).
            objection: Why the offer of an inviter that has proven itself is not taken, if so (the middle of CL-50).
            entropy: Gives so many random bytes: ``os.urandom``. Asked for 32 and 32 now, for 64 by the code.

        Raises:
            MalformedError: No hello, no version in common, or a share that gives no secret. Nothing came of it.
        """
        greeting = read_request(hello)
        if not isinstance(greeting, Hello) or greeting.version is None:
            raise MalformedError("it is not a hello in a version of ours")
        nonce = entropy(32)
        private = X25519PrivateKey.from_private_bytes(entropy(32))
        reply = HelloReply(
            version=greeting.version,
            invite=greeting.invite,
            node=UUID(me.uuid),
            name=me.name,
            leaf=me.digest,
            nonce=nonce,
            share=private.public_key().public_bytes_raw(),
        )
        try:
            self._channel = Channel(hello_digest(greeting, reply), agree(private, greeting.share))
        except ShareError:
            raise MalformedError("its share gives no secret") from None
        self.hello = greeting
        self.state: State = "waiting"
        self.reason: Reason | None = None
        self.tag = self._channel.tag
        self.reply = encode(reply)
        self._me = me
        self._hello = hello
        self._check_leaf = check_leaf
        self._objection = objection
        self._entropy = entropy
        self._pake = b""
        self._word = Reply(state="waiting")
        self._n = 0
        self._request = b""
        self._answer: Answer | None = None
        self._joining = False

    def received(self, body: bytes, mac: bytes | None) -> tuple[JoinerAction, ...]:
        """Judge a request that names this invitation.

        Args:
            body: As it came.
            mac: The value of its ``X-Pair-Mac``, if it has one.

        Returns:
            What to do; among it one of ``Answer``, ``Refuse`` and ``Hold`` for this very request.

        Raises:
            MalformedError: It is no request.
        """
        request = read_request(body)
        if isinstance(request, Hello):
            return (Answer(self.reply, None) if body == self._hello else Refuse(409, "invite_conflict"),)
        if mac is None or not hmac.compare_digest(mac, self._channel.request_mac(request.n, body)):
            return (Refuse(401, "bad_mac"),)
        if request.n == self._n and body == self._request:
            return (self._answer or Hold(),)
        if request.n != self._n + 1 or self._joining:
            return (Refuse(409, "out_of_order"),)
        self._n, self._request, self._answer = request.n, body, None
        if self.state not in LIVE:
            return self._speak()
        match request:
            case Wait():
                return self._take_wait(request)
            case Prove():
                return self._judge(request)
            case End():
                ended = self._conclude(request.state, common_reason(request.state, request.reason))
                return (*ended, *self._speak())

    def poll_ended(self) -> tuple[JoinerAction, ...]:
        """Nothing came of the open poll in its 20 seconds."""
        return () if self._joining else self._speak()

    def prove(self, code: Secret, epoch: int) -> tuple[JoinerAction, ...]:
        """Make the one proof, from the one code typed and the inviter's one PAKE message (CL-38, CL-47).

        It answers the poll that is open, or else the next one.

        Args:
            code: Of the hello's kind, from ``parse_code``.
            epoch: The least that this node accepts for itself (CL-69).

        Raises:
            OverError: The invitation is not ``waiting``, so a code was typed for it or it has ended.
        """
        if self.state != "waiting" or not self._pake:
            raise OverError(self.state)
        self.state = "confirming"
        pake = Pake("B", password(self.hello.code_kind, code), self._channel.t0, self._entropy)
        try:
            k = pake.finish(self._pake)
        except PakeError:
            return self._break_off("voided", "protocol_error")
        self._keys = keys = derive_keys(self._channel, k, self._pake, pake.message)
        identity = JoinerIdentity(self._me.leaf, epoch, self._me.key.sign(SIGNED_BY_JOINER + keys.t1))
        confirm = authenticate(keys.confirm_joiner, keys.t1)
        sealed = seal(keys.seal_joiner, encode(identity), keys.t1)
        self._t2 = proof_digest(keys.t1, confirm, sealed)
        self._word = Reply(state="proof", pake=pake.message, confirm=confirm, sealed=sealed)
        return self._speak()

    def joined(self, statements: tuple[bytes, ...]) -> tuple[JoinerAction, ...]:
        """What ``Join`` asked for is on the disk and in force: tell the inviter (CL-40).

        Args:
            statements: Our ``join`` and ``note``.

        Raises:
            OverError: Nothing was asked for.
        """
        if not self._joining:
            raise OverError(self.state)
        ended = self._conclude("paired")
        sealed = seal(self._keys.seal_ack, encode(Acknowledgement(statements)), self._t2)
        self._word = Reply(state="paired", sealed=sealed)
        return (*ended, *self._speak())

    def end(self, state: EndState, reason: Reason | None = None) -> tuple[JoinerAction, ...]:
        """End it from this side: declined, expired, no answer came, what ``Join`` asked for failed.

        The inviter is told by the request that is open, or else by its next one.
        Once ``Join`` was asked for, only its failure may end it.

        Raises:
            OverError: It has ended.
        """
        if self.state not in LIVE:
            raise OverError(self.state)
        return self._break_off(state, reason)

    def _take_wait(self, wait: Wait) -> tuple[JoinerAction, ...]:
        if self._pake:
            if wait.pake != self._pake:
                return self._break_off("failed", "protocol_error")
            return (Hold(),) if self.state == "waiting" else self._speak()
        try:
            check_pake("A", wait.pake)
        except PakeError:
            return self._break_off("voided", "protocol_error")
        self._pake = wait.pake
        return (Show(), Hold())

    def _judge(self, proof: Prove) -> tuple[JoinerAction, ...]:
        """CL-50, in its order, up to what is stored."""
        if self.state != "confirming":
            return self._break_off("failed", "protocol_error")
        keys = self._keys
        if not hmac.compare_digest(authenticate(keys.confirm_inviter, self._t2), proof.confirm):
            return self._break_off("failed", "protocol_error")
        try:
            identity = read(InviterIdentity, unseal(keys.seal_inviter, proof.sealed, self._t2))
            peer = check_peer(self.hello, identity, SIGNED_BY_INVITER + self._t2, self._check_leaf)
        except (ProofError, MalformedError):
            return self._break_off("failed", "protocol_error")
        offer = Offer(str(identity.cluster.id), identity.cluster.name, identity.statements)
        objection = self._objection(peer, offer)
        if objection is not None:
            return self._break_off("failed", objection)
        self._joining = True
        return (Hold(), Join(peer, offer))

    def _break_off(self, state: EndState, reason: Reason | None) -> tuple[JoinerAction, ...]:
        return (*self._conclude(state, reason), *self._speak())

    def _conclude(self, state: FinalState, reason: Reason | None = None) -> tuple[JoinerAction, ...]:
        self.state, self.reason = state, reason
        self._joining = False
        self._word = Reply(state=state, reason=reason)
        return (Ended(state, reason),)

    def _speak(self) -> tuple[JoinerAction, ...]:
        """Say what there is to say, if a request is open."""
        if self._n == 0 or self._answer is not None:
            return ()
        body = encode(self._word)
        self._answer = Answer(body, self._channel.reply_mac(self._n, body))
        return (self._answer,)
