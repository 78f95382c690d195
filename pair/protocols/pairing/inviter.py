"""The side that shows the code: it asks, judges one proof, and proves itself in turn (CL-46 to CL-52).

Pure. It makes requests and reads replies; how they travel, and when patience
ends, is its driver's.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pair.protocols.pairing.actions import LIVE, Admit, Ended, Keep, OverError, Retract, Send, common_reason
from pair.protocols.pairing.codes import password
from pair.protocols.pairing.keys import (
    CONFIRM_BYTES,
    SIGNED_BY_INVITER,
    SIGNED_BY_JOINER,
    Channel,
    Pake,
    PakeError,
    ProofError,
    ShareError,
    agree,
    authenticate,
    derive_keys,
    hello_digest,
    proof_digest,
    seal,
    unseal,
)
from pair.protocols.pairing.messages import (
    VERSIONS,
    Acknowledgement,
    Cluster,
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
)
from pair.protocols.pairing.parties import check_peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.privacy import Secret
    from pair.protocols.pairing.actions import FinalState, InviterAction, Reason, State
    from pair.protocols.pairing.codes import CodeKind
    from pair.protocols.pairing.keys import Keys
    from pair.protocols.pairing.messages import EndState
    from pair.protocols.pairing.parties import Party, Peer


class ForeignReplyError(Exception):
    """A reply that is not the joiner's to what was sent. It counts as none at all (CL-27, CL-57)."""


class InviterExchange:
    """One invitation at the inviter.

    Attributes:
        hello: The bytes that go to each address of the joiner; what comes back goes to :meth:`greeted`.
        invite: The invitation's id.
        state: Where it stands.
        reason: Why it ended so, where there is a reason.
        peer: UUID and name of the joiner as it gave them, unproven; None before its hello.
        tag: Tells this prompt from others, for people (CL-45); None before its hello.
    """

    # From the joiner's hello on.
    _reply: HelloReply
    _channel: Channel
    _pake: Pake
    # From its proof on.
    _keys: Keys
    _t2: bytes

    def __init__(
        self,
        me: Party,
        kind: CodeKind,
        code: Secret,
        check_leaf: Callable[[bytes], str],
        objection: Callable[[Peer], Reason | None],
        entropy: Callable[[int], bytes],
        node: str | None = None,
    ) -> None:
        """An invitation that nobody knows of yet.

        Args:
            me: This node.
            kind: The kind of ``code``.
            code: What a person will type at the joiner.
            check_leaf: Gives the UUID of a leaf, or raises a ValueError (CL-6).
            objection: Why a joiner that has proven itself is not admitted all the same, if so (the end of CL-48).
            entropy: Gives so many random bytes: ``os.urandom``. Asked for 16, 32 and 32 now, for 64 at the hello.
            node: The UUID of the node that is invited, where it is known.
        """
        self.state: State = "waiting"
        self.reason: Reason | None = None
        self.peer: tuple[str, str] | None = None
        self.tag: str | None = None
        self.invite = entropy(16).hex()
        nonce = entropy(32)
        self._private = X25519PrivateKey.from_private_bytes(entropy(32))
        self._hello = Hello(
            versions=VERSIONS,
            invite=self.invite,
            code_kind=kind,
            node=UUID(me.uuid),
            name=me.name,
            leaf=me.digest,
            nonce=nonce,
            share=self._private.public_key().public_bytes_raw(),
        )
        self.hello = encode(self._hello)
        self._me = me
        self._password = password(kind, code)
        self._check_leaf = check_leaf
        self._objection = objection
        self._entropy = entropy
        self._node = node
        self._greeted = b""
        self._sent: Wait | Prove | End | None = None
        self._n = 0
        self._admitting = False

    def greeted(self, body: bytes) -> tuple[InviterAction, ...]:
        """Take what an address answered to the hello with 200. A code is shown once this gave a ``Send`` (CL-43).

        Raises:
            ForeignReplyError: Not a reply to this hello, not of the node that is invited, or not the reply of before.
        """
        if self._greeted:
            if body != self._greeted:
                raise ForeignReplyError
            return ()
        reply = self._read_greeting(body)
        if self.state != "waiting":
            return ()
        self._greeted, self._reply = body, reply
        self.peer = (str(reply.node), reply.name)
        if reply.node == self._hello.node:
            return self._conclude("failed", "identity_clash")
        t0 = hello_digest(self._hello, reply)
        try:
            self._channel = Channel(t0, agree(self._private, reply.share))
        except ShareError:
            return self._conclude("failed", "protocol_error")
        self.tag = self._channel.tag
        self._pake = Pake("A", self._password, t0, self._entropy)
        return (self._send_wait(),)

    def received(self, body: bytes, mac: bytes | None) -> tuple[InviterAction, ...]:
        """Judge what was answered with 200 to the last ``Send``.

        Args:
            body: As it came.
            mac: The value of its ``X-Pair-Mac``, if it has one.

        Raises:
            ForeignReplyError: Its MAC is not that of the joiner's reply to this request.
        """
        sent = self._sent
        if sent is None or mac is None or not hmac.compare_digest(mac, self._channel.reply_mac(sent.n, body)):
            raise ForeignReplyError
        self._sent = None
        match sent:
            case Wait():
                return self._learn_answer(body)
            case Prove():
                return self._learn_outcome(body)
            case End():
                return ()

    def admitted(self, cluster: str, name: str, statements: tuple[bytes, ...]) -> tuple[InviterAction, ...]:
        """What ``Admit`` asked for is on the disk: now, and not before, prove ourselves (CL-39, CL-49).

        Args:
            cluster: The cluster's UUID.
            name: Its name.
            statements: What shows the joiner that we are a member and that it is admitted.

        Raises:
            OverError: Nothing was asked for, or the invitation has ended since.
        """
        if not self._admitting:
            raise OverError(self.state)
        self._admitting = False
        identity = InviterIdentity(
            leaf=self._me.leaf,
            signature=self._me.key.sign(SIGNED_BY_INVITER + self._t2),
            cluster=Cluster(UUID(cluster), name),
            statements=statements,
        )
        confirm = authenticate(self._keys.confirm_inviter, self._t2)
        sealed = seal(self._keys.seal_inviter, encode(identity), self._t2)
        return (self._send(Prove(self.invite, self._n + 1, confirm, sealed)),)

    def end(self, state: EndState, reason: Reason | None = None) -> tuple[InviterAction, ...]:
        """End it from this side: cancelled, expired, the store failed, no answer came.

        The joiner is told, unless it never said hello, or was sent our proof:
        then it may have joined, and is told nothing that it could mistake.

        Raises:
            OverError: It has ended.
        """
        if self.state not in LIVE:
            raise OverError(self.state)
        if self.tag is None or isinstance(self._sent, Prove):
            return self._conclude(state, reason)
        return self._break_off(state, reason)

    def _read_greeting(self, body: bytes) -> HelloReply:
        try:
            reply = read(HelloReply, body)
        except MalformedError:
            raise ForeignReplyError from None
        stranger = self._node is not None and str(reply.node) != self._node
        if stranger or reply.invite != self.invite or reply.version not in self._hello.versions:
            raise ForeignReplyError
        return reply

    def _learn_answer(self, body: bytes) -> tuple[InviterAction, ...]:
        try:
            reply = read(Reply, body)
        except MalformedError:
            return self._break_off("failed", "protocol_error")
        match reply.state:
            case "waiting":
                return (self._send_wait(),)
            case "proof":
                return self._judge(reply)
            case "paired":
                return self._break_off("failed", "protocol_error")
            case ended:
                return self._conclude(ended, common_reason(ended, reply.reason))

    def _judge(self, proof: Reply) -> tuple[InviterAction, ...]:
        """CL-48, in its order. The call spends the one guess, whatever comes of it (CL-47)."""
        self.state = "confirming"
        try:
            if len(proof.confirm) != CONFIRM_BYTES:
                raise PakeError("no confirmation")
            k = self._pake.finish(proof.pake)
        except PakeError:
            return self._break_off("voided", "protocol_error")
        self._keys = keys = derive_keys(self._channel, k, self._pake.message, proof.pake)
        if not hmac.compare_digest(authenticate(keys.confirm_joiner, keys.t1), proof.confirm):
            return self._break_off("voided", "wrong_code")
        try:
            identity = read(JoinerIdentity, unseal(keys.seal_joiner, proof.sealed, keys.t1))
            peer = check_peer(self._reply, identity, SIGNED_BY_JOINER + keys.t1, self._check_leaf)
        except (ProofError, MalformedError):
            return self._break_off("failed", "protocol_error")
        objection = self._objection(peer)
        if objection is not None:
            return self._break_off("failed", objection)
        self._t2 = proof_digest(keys.t1, proof.confirm, proof.sealed)
        self._admitting = True
        return (Admit(peer, identity.epoch),)

    def _learn_outcome(self, body: bytes) -> tuple[InviterAction, ...]:
        """What became of our proof. Only a plain "failed" says that the joiner did not join (CL-51, CL-52)."""
        try:
            reply = read(Reply, body)
            if reply.state == "paired":
                known = read(Acknowledgement, unseal(self._keys.seal_ack, reply.sealed, self._t2))
                return (Keep(known.statements), *self._conclude("paired"))
        except (ProofError, MalformedError):
            return self._conclude("failed", "protocol_error")
        if reply.state != "failed":
            return self._conclude("failed", "protocol_error")
        return (Retract(), *self._conclude("failed", common_reason("failed", reply.reason)))

    def _break_off(self, state: EndState, reason: Reason | None) -> tuple[InviterAction, ...]:
        ended = self._conclude(state, reason)
        return (*ended, self._send(End(self.invite, self._n + 1, state, reason)))

    def _conclude(self, state: FinalState, reason: Reason | None = None) -> tuple[InviterAction, ...]:
        self.state, self.reason = state, reason
        self._sent = None  # what is answered from now on comes too late
        self._admitting = False
        return (Ended(state, reason),)

    def _send_wait(self) -> Send:
        return self._send(Wait(self.invite, self._n + 1, self._pake.message))

    def _send(self, request: Wait | Prove | End) -> Send:
        self._sent, self._n = request, request.n
        body = encode(request)
        return Send(body, self._channel.request_mac(request.n, body))
