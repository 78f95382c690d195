"""What an engine lists, and what it tells of a model only when asked (EN-78, EN-79)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.charge import Entries
from pair.engines.facts import Answer, ProbeRequest
from pair.engines.lists import Lists
from pair.engines.memory import RememberedModels
from pair.engines.probe import NoAnswer, Refused
from pair.engines.tasks import Tasks
from pair.records.engines import EngineAddress, Model
from pair.test.engines.toy import STANDARD, Host, charge

if TYPE_CHECKING:
    from pair.privacy import Secret

ADDRESS = EngineAddress("127.0.0.1", STANDARD)


class Engine:
    """Answers lists at once, and questions about a model when the test says so."""

    def __init__(self, models: str) -> None:
        self.models = models
        self.open: dict[str, Deferred[Answer]] = {}
        self.asked: list[str] = []

    def __call__(self, address: EngineAddress, request: ProbeRequest, credential: Secret | None) -> Deferred[Answer]:
        if request.path == "/list":
            return succeed(Answer(200, {}, self.models.encode()))
        name = request.path.rpartition("/")[2]
        self.asked.append(name)
        waiting = self.open[name] = Deferred()
        return waiting

    def tells(self, name: str, context: int, status: int = 200) -> None:
        """The answer to the question about ``name``."""
        self.open.pop(name).callback(Answer(status, {}, str(context).encode()))

    def fails(self, name: str, why: Exception) -> None:
        """There is no answer."""
        self.open.pop(name).errback(why)


class DetailsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.host = Host()
        self.engine = Engine("a@1 b@2 c@3 d")
        self.address: EngineAddress | None = ADDRESS
        self.changes = 0
        self.make()

    def make(self) -> None:
        """The lists of an engine that was found just now."""
        around = self.host.around()
        object.__setattr__(around, "ask", self.engine)
        self.tasks = Tasks("the test")

        def changed() -> None:
            self.changes += 1

        mine = charge()
        entries = Entries(mine.id, self.host.book)
        self.lists = Lists(mine, around, entries, self.tasks, lambda: self.address, lambda: None, changed)
        self.lists.remember()

    def read(self) -> None:
        """What a poll does."""
        self.successResultOf(Deferred.fromCoroutine(self.lists.read(ADDRESS, {})))

    @property
    def contexts(self) -> list[int | None]:
        return [each.context_max for each in self.lists.models.shown]

    def test_two_at_a_time(self) -> None:
        """Models are asked about in the order of the list, two at once, beside the polls."""
        self.read()
        self.assertEqual(self.engine.asked, ["a", "b"])
        self.read()
        self.assertEqual(self.engine.asked, ["a", "b"])
        self.engine.tells("b", 20)
        self.assertEqual(self.engine.asked, ["a", "b", "c"])
        self.engine.tells("a", 10)
        self.engine.tells("c", 30)
        self.assertEqual(self.contexts, [10, 20, 30, None])
        self.assertEqual(self.engine.open, {})

    def test_shown_together(self) -> None:
        """What is told is shown when the last has answered: one change of the inventory, not one for each model."""
        self.read()
        revision, changes = self.lists.models.revision, self.changes
        self.engine.tells("a", 10)
        self.engine.tells("b", 20)
        self.assertEqual((self.contexts, self.lists.models.revision), ([None] * 4, revision))
        self.engine.tells("c", 30)
        self.assertEqual((self.lists.models.revision, self.changes), (revision + 1, changes + 1))

    def test_once(self) -> None:
        """One name and digest is asked about once, also where the answer was of no use."""
        self.read()
        self.engine.tells("a", 10)
        self.engine.tells("b", 0, 500)
        self.engine.tells("c", 30)
        self.engine.models = "a@1* b@2 c@3 d"
        self.read()
        self.assertEqual(self.engine.asked, ["a", "b", "c"])
        self.assertEqual(self.contexts, [10, None, 30, None])
        self.assertTrue(self.lists.models.shown[0].loaded)

    def test_another_digest(self) -> None:
        """A model that was pulled anew is asked about anew."""
        self.test_once()
        self.engine.models = "a@9 b@2 c@3"
        self.read()
        self.assertEqual(self.engine.asked[3:], ["a"])
        self.assertEqual(self.contexts, [None, None, 30])
        self.engine.tells("a", 99)
        self.assertEqual(self.contexts, [99, None, 30])

    def test_no_answer(self) -> None:
        """It is asked again with the next poll; the others' details are shown."""
        self.read()
        self.engine.fails("a", NoAnswer())
        self.engine.tells("b", 20)
        self.engine.tells("c", 30)
        self.assertEqual(self.contexts, [None, 20, 30, None])
        self.read()
        self.assertEqual(self.engine.asked[3:], ["a"])
        self.engine.fails("a", Refused())
        self.assertEqual(self.contexts, [None, 20, 30, None])

    def test_engine_stops(self) -> None:
        """No further question goes to an engine that stopped, and what it told last changes nothing by itself."""
        self.read()
        self.address = None
        self.lists.models.stopped()
        self.engine.tells("a", 10)
        self.engine.tells("b", 20)
        self.assertEqual((self.engine.asked, self.contexts), (["a", "b"], [None] * 4))
        self.address = ADDRESS
        self.read()
        self.assertEqual(self.engine.asked, ["a", "b", "c"])
        self.engine.tells("c", 30)
        self.assertEqual(self.contexts, [10, 20, 30, None])

    def test_kept(self) -> None:
        """After a restart nothing is asked that was told before."""
        self.test_two_at_a_time()
        self.engine.asked.clear()
        self.make()
        self.assertEqual(self.contexts, [10, 20, 30, None])
        self.read()
        self.assertEqual((self.engine.asked, self.contexts), ([], [10, 20, 30, None]))

    def test_remembered_without_digest(self) -> None:
        """What bears no digest may be another model now."""
        self.host.memory.lists["toy"] = RememberedModels(1, (Model("a", "toy", "lmstudio", context_max=1),))
        self.make()
        self.engine.models = "a@1"
        self.read()
        self.assertEqual(self.engine.asked, ["a"])

    def test_ended(self) -> None:
        """A stop ends the questions."""
        self.read()
        self.tasks.cancel()
        self.successResultOf(self.tasks.finished())
        self.assertEqual(self.engine.asked, ["a", "b"])
