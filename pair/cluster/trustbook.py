"""What this node goes by in matters of trust, and how the next takes its place (CL-98 to CL-100).

A step is written in one transaction and only then in force: view, pins, news.
One change is made at a time. It must not know what changes there are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from pair.cluster import signing, trustrows
from pair.cluster.alarms import tell, tell_out
from pair.cluster.audit import Entry, write_rows
from pair.cluster.changes import SELF, Change
from pair.cluster.membership import evaluate
from pair.cluster.merging import merge
from pair.cluster.pins import PinTable
from pair.cluster.statements import StatementError, make
from pair.cluster.transitions import Held, Step, Weighed, advance, overdue, resume
from pair.events import Signal
from pair.logs import Logger
from pair.privacy import clean_text, normalize_error
from pair.statedir import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from twisted.python.failure import Failure

    from pair.cluster.identity import Identity
    from pair.cluster.membership import View
    from pair.cluster.signing import Verify
    from pair.cluster.statements import Body, Statement
    from pair.interfaces import IErrorBook
    from pair.store import Store

T = TypeVar("T")

log = Logger()


class TrustBook:
    """What is in force, and on the disk.

    Attributes:
        held: Statements, view, archives.
        pins: Who is who by that view.
        changed: Emits each change that made another view, once it is in force.
        now: Epoch milliseconds.
        verify: Whether a signature is good.
    """

    def __init__(
        self, identity: Identity, store: Store, now: Callable[[], int], errors: IErrorBook, verify: Verify
    ) -> None:
        """An empty one, until :meth:`load`."""
        self.changed: Signal[Change] = Signal()
        self.now = now
        self.verify = verify
        self._store = store
        self._errors = errors
        self._sign = partial(signing.sign, identity.key)
        self._one_at_a_time = DeferredLock()
        self._put(Held(identity.uuid, identity.leaf))

    def load(self) -> None:
        """Bring into force what is stored. Blocks until all of it is read and verified (CL-99).

        If it says that this node is no member any more, that is in force at
        once, and on its way to the disk. Nobody is told of a change.

        Raises:
            StateError: Something stored is no statement, or proves nothing.
        """
        try:
            stored = self._store.read(trustrows.read)
        except StatementError:
            raise self._spoilt("one of its statements cannot be read") from None
        empty = Held(
            self.held.uuid, self.held.leaf, epoch=stored.epoch, counter=stored.counter, archives=stored.archives
        )
        held = empty
        if stored.cluster is not None:
            merged = merge((), stored.statements, stored.cluster, self.verify, bounded=False)
            held = resume(held, Weighed(merged, evaluate(merged.kept, stored.cluster, self.verify)))
        if len(held.statements) != len(stored.statements):
            raise self._spoilt("one of its statements is not signed by whom it names, or nothing leads to it")
        step = overdue(held, self.now())
        if step is not None:
            self._store.write(partial(trustrows.write, transition=step.transition)).addErrback(_leave_it)
            if step.out is not None and held.view is not None:
                tell_out(self._errors, held.view, step.out)
            held = step.held
        self._put(held)
        tell(self._errors, empty, held)

    def _spoilt(self, fault: str) -> StateError:
        cure = "put a backup in its place, or give this node up by removing the state directory"
        return StateError(self._store.path, fault, cure)

    async def alone(self, change: Coroutine[Deferred[Any], Any, T]) -> T:
        """Make one change when those before it are over.

        The one who waits gets a Deferred of its own: what it does with that
        cannot stop a change between the disk and the view.
        """
        done: Deferred[T] = Deferred()
        self._one_at_a_time.run(Deferred.fromCoroutine, change).addCallbacks(done.callback, done.errback)
        return await done

    def say(self, body: Body, cluster: str, incarnation: bytes) -> Statement:
        """A statement that this node signs. It is nothing yet."""
        return make(body, cluster, incarnation, self.now(), self._sign)

    def sign(self, payload: bytes) -> bytes:
        """The signature of this node over a payload."""
        return self._sign(payload)

    async def announce(self, said: Collection[Statement], cluster: str) -> View:
        """Store what this node has just signed, be the set ever so full; the view that it makes."""
        merged = merge(self.held.statements, said, cluster, self.verify, bounded=False)
        weighed = Weighed(merged, evaluate(merged.kept, cluster, self.verify))
        await self.carry_out(advance(self.held, weighed, self.now(), SELF, {each.id for each in said}), SELF)
        return weighed.view

    async def carry_out(self, step: Step, news_from: str) -> None:
        """Write a step, then let it be in force, then tell (CL-18, CL-98).

        Args:
            step: From what is held now.
            news_from: See :class:`~pair.cluster.changes.Change`.
        """
        await self._store.write(partial(trustrows.write, transition=step.transition))
        before, after = self.held, step.held
        self._put(after)
        if before.view != after.view:
            _log_change(before.view, after.view, news_from)
            self.changed.emit(Change(before.view, after.view, self.pins, step.out, news_from))
        tell(self._errors, before, after)
        if step.out is not None and before.view is not None and news_from != SELF:
            tell_out(self._errors, before.view, step.out)
        if step.lost:
            self._errors.raise_entry("cluster:state_rolled_back", count=step.lost)

    def record(self, entry: Entry) -> Deferred[None]:
        """Add a row to the audit, which changes nothing."""
        return self._store.write(partial(write_rows, at=self.now(), entries=(entry,)))

    def mention(self, entry: Entry) -> None:
        """Add a row to the audit, if that can be."""
        self.record(entry).addErrback(_leave_it)

    def _put(self, held: Held) -> None:
        self.held = held
        self.pins = PinTable(held.view, held.uuid, held.leaf, held.archives)


def _log_change(before: View | None, after: View | None, news_from: str) -> None:
    if after is None:
        assert before is not None, "two views of nothing are equal"
        log.info("This node is in no cluster any more; the last was {cluster}.", cluster=clean_text(before.name))
        return
    log.info(
        "The cluster {cluster}: members {members}, by news from {source}.",
        cluster=clean_text(after.name),
        members=len(after.members),
        source=news_from,
    )


def _leave_it(failure: Failure) -> None:
    assert failure.value is not None
    log.warn("What became of the cluster could not be written: {reason}.", reason=normalize_error(failure.value))
