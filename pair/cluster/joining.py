"""Drives the joiner's side of one invitation: open polls, clocks, the store (cluster page, 5.1 and 5.3).

What is right is judged by :class:`~pair.protocols.pairing.JoinerExchange`, who
comes first by :mod:`~pair.cluster.life`. Here requests are held, answers are
sent when it is time, and what was agreed is stored. It must not know of other
invitations, nor of HTTP beyond a status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed

from pair.cluster.leaf import check_leaf
from pair.cluster.means import QUIET_SECONDS, why
from pair.cluster.prompts import Prompt
from pair.cluster.refusing import PairingReply, Refusal, refuse
from pair.protocols.pairing import Answer, Ended, Hold, Join, JoinerExchange, Prove, Refuse, Show
from pair.records.cluster import ClusterName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twisted.internet.interfaces import IDelayedCall
    from twisted.python.failure import Failure

    from pair.cluster.means import Means
    from pair.cluster.prompts import Keeper
    from pair.privacy import Secret
    from pair.protocols.pairing import Hello, JoinerAction
    from pair.protocols.pairing.messages import End, Wait

POLL_SECONDS = 20.0
"""So long a poll stays open while nothing happens."""


class Joining(Prompt):
    """One invitation that came to this node."""

    exchange: JoinerExchange

    def __init__(self, means: Means, keeper: Keeper, hello: bytes, greeting: Hello, address: str) -> None:
        """One whose hello was found worth an answer; :attr:`reply` is that answer.

        Args:
            means: What it works with.
            keeper: Who is told.
            hello: The hello's bytes.
            greeting: What they say.
            address: Where it came from.

        Raises:
            MalformedError: No pairing can come of this hello.
        """
        super().__init__(means, keeper, "in", greeting.code_kind, address)
        self.exchange = JoinerExchange(means.party(), hello, check_leaf, means.trust.offer_objection, means.entropy)
        self._open: Deferred[PairingReply] | None = None
        self._poll: IDelayedCall | None = None
        self._leaving: IDelayedCall | None = None
        self._quiet_until = 0.0
        self.life.hide()

    @property
    def id(self) -> str:
        """See :class:`~pair.cluster.prompts.Prompt`."""
        return self.exchange.hello.invite

    @property
    def claimed(self) -> tuple[str | None, str | None]:
        """See :class:`~pair.cluster.prompts.Prompt`."""
        return str(self.exchange.hello.node), self.exchange.hello.name

    def received(self, request: Hello | Wait | Prove | End, body: bytes, mac: bytes | None) -> Deferred[PairingReply]:
        """Judge a request that names this invitation.

        Args:
            request: What it says.
            body: Its bytes.
            mac: Its ``X-Pair-Mac``.

        Returns:
            Its answer, which for a poll comes late. To cancel it says that the client has hung up.
        """
        actions = self.exchange.received(body, mac)
        match actions[0]:
            case Refuse(status, code):
                if code == "bad_mac":
                    self._keeper.note_bad_mac(self)
                return succeed(refuse(status, code))
            case Answer(reply, None):
                return succeed(PairingReply(200, reply))
        answer = self._hold_open()
        if isinstance(request, Prove) and any(isinstance(each, Join | Ended) for each in actions):
            self._keep_quiet()
        self._do(actions)
        return answer

    def prove(self, code: Secret) -> None:
        """A person typed this code.

        Raises:
            Refusal: ``invitation_over``: it is not waiting for one.
        """
        if not self.life.confirm():
            raise Refusal("invitation_over", state=self.exchange.state)
        self.life.sent()
        self._keep_quiet()
        actions = self.exchange.prove(code, self._means.trust.least_epoch())
        if self.live:
            self._keeper.note_change(self)
        self._do(actions)

    def decline(self) -> None:
        """A person does not want it.

        Raises:
            Refusal: ``invitation_over``: something else came first (CL-55).
        """
        self._withdraw("declined")

    def stop(self) -> None:
        """Forget it, and let go of the request that is open."""
        self.life.drop()
        self._calm()
        waiting, self._open = self._open, None
        if waiting is not None:
            waiting.callback(refuse(404, "no_such_invitation"))

    def _do(self, actions: Iterable[JoinerAction]) -> None:
        for action in actions:
            match action:
                case Hold():
                    self._poll = self._means.clock.callLater(POLL_SECONDS, self._poll_over)
                case Answer():
                    self._answer(action)
                case Show():
                    self._show()
                case Join():
                    self._join(action)
                case Ended():
                    self._conclude()
                case Refuse():
                    raise AssertionError("a refusal comes alone")

    def _join(self, join: Join) -> None:
        """Become a member, and only then say so (CL-50)."""
        self.proven, self._cluster = join.peer, ClusterName(join.offer.cluster, join.offer.name)
        self.life.store()
        joining = Deferred.fromCoroutine(self._means.trust.join(join.peer, join.offer))
        self._storing = joining.addCallbacks(self._joined, self._not_joined)

    def _joined(self, statements: tuple[bytes, ...]) -> None:
        self._do(self.exchange.joined(statements))

    def _not_joined(self, failure: Failure) -> None:
        self._do(self.exchange.end("failed", why(failure)))

    # The request that is open.

    def _hold_open(self) -> Deferred[PairingReply]:
        """Make this request the one that is open; one that was learns that it is not awaited any more."""
        former, self._open = self._open, Deferred(self._hung_up)
        self._calm()
        if former is not None:
            former.callback(refuse(409, "out_of_order"))
        return self._open

    def _hung_up(self, answer: Deferred[PairingReply]) -> None:
        if answer is self._open:
            self._open = None
            self._calm()

    def _calm(self) -> None:
        for timer in (self._poll, self._leaving):
            if timer is not None and timer.active():
                timer.cancel()

    def _poll_over(self) -> None:
        self._do(self.exchange.poll_ended())

    def _keep_quiet(self) -> None:
        self._quiet_until = self._means.clock.seconds() + QUIET_SECONDS

    def _answer(self, answer: Answer) -> None:
        """Answer the request that is open, when it is time. What nobody waits for is asked again."""
        self._calm()
        wait = self._quiet_until - self._means.clock.seconds()
        if wait > 0:
            self._leaving = self._means.clock.callLater(wait, self._deliver, answer)
        else:
            self._deliver(answer)

    def _deliver(self, answer: Answer) -> None:
        waiting, self._open = self._open, None
        if waiting is None:
            return
        if self.exchange.state == "confirming":
            self.life.sent()
        waiting.callback(PairingReply(200, answer.body, answer.mac))
