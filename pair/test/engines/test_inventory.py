"""What an engine lists, and how far that is known (EN-78 to EN-84)."""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.facts import Listing
from pair.engines.inventory import ModelList
from pair.records.engines import LoadedInstance, Model


def model(id: str, **loaded: int) -> Model:
    instances = (LoadedInstance(instance=id, **loaded),) if loaded else ()
    return Model(id=id, engine="toy", facade="lmstudio", loaded=instances)


class ModelListTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.list = ModelList(str.lower)

    def read(self, *models: Model, at: int = 0) -> bool:
        return self.list.read(Listing(models), at)

    def test_nothing_known(self) -> None:
        """Before the first answer all is ``unknown``, and failures leave it so (EN-79)."""
        self.list.failed()
        self.assertEqual((self.list.models, self.list.loaded, self.list.shown), ("unknown", "unknown", ()))

    def test_empty_is_a_fact(self) -> None:
        """An empty list is known to be empty, and its first reading is a change."""
        self.assertTrue(self.read())
        self.assertEqual((self.list.models, self.list.loaded, self.list.revision), ("known", "known", 1))

    def test_failure_keeps_the_last_good_list(self) -> None:
        """A failed reading is never "empty": the list is ``stale`` and kept, with its time (EN-79)."""
        self.read(model("a"), at=7)
        self.list.failed()
        self.assertEqual((self.list.models, self.list.at, self.list.shown), ("stale", 7, (model("a"),)))

    def test_gone_after_one_reading(self) -> None:
        """A model that is gone from the engine's list is gone from ours (EN-80)."""
        self.read(model("a"), model("b"))
        self.read(model("b"))
        self.assertEqual((self.list.shown, self.list.revision), ((model("b"),), 2))

    def test_loaded_unknown(self) -> None:
        """Where the answers do not tell what is in memory, that is ``unknown`` and not "nothing"."""
        self.list.read(Listing((model("a"),), loaded_known=False), 0)
        self.assertEqual((self.list.models, self.list.loaded), ("known", "unknown"))

    def test_hidden(self) -> None:
        """A model that was found missing is hidden at once, by its key, until the next reading (EN-80)."""
        self.read(model("a"), model("b"))
        self.list.hide("A")
        self.assertEqual((self.list.shown, self.list.revision), ((model("b"),), 1))
        self.assertFalse(self.read(model("a"), model("b")))
        self.assertEqual(len(self.list.shown), 2)

    def test_hidden_until_a_good_reading(self) -> None:
        """A failed reading does not bring it back."""
        self.read(model("a"))
        self.list.hide("a")
        self.list.failed()
        self.assertEqual(self.list.shown, ())

    def test_expiry_and_drift(self) -> None:
        """Expiry times, and memory within 5 %, are shown and raise no revision (EN-84)."""
        self.read(model("a", size_bytes=1000, expires_at=1))
        self.assertFalse(self.read(model("a", size_bytes=1040, expires_at=2)))
        self.assertEqual(self.list.shown[0].loaded[0].expires_at, 2)
        self.assertEqual(self.list.revision, 1)

    def test_drift_adds_up(self) -> None:
        """Small steps that come to more than 5 % are a change."""
        self.read(model("a", size_bytes=1000))
        self.assertFalse(self.read(model("a", size_bytes=1040)))
        self.assertTrue(self.read(model("a", size_bytes=1080)))

    def test_loading_is_a_change(self) -> None:
        """A model that is loaded, or in another context, is a change."""
        self.read(model("a"))
        self.assertTrue(self.read(model("a", context_length=1)))
        self.assertTrue(self.read(model("a", context_length=2)))
        self.assertTrue(self.read(model("a", context_length=2, gpu_bytes=5)))
        self.assertFalse(self.read(model("a", context_length=2, gpu_bytes=5)))

    def test_other_fields(self) -> None:
        """Any other field is a change, the engine's own entry alone is not."""
        self.read(model("a"))
        self.assertFalse(self.read(msgspec.structs.replace(model("a"), listed=msgspec.Raw(b'{"seen":2}'))))
        self.assertTrue(self.read(msgspec.structs.replace(model("a"), digest="sha256:1")))

    def test_stopped(self) -> None:
        """A stopped engine has nothing in memory; its models are known as they were."""
        self.read(model("a", size_bytes=1))
        self.list.stopped()
        self.assertEqual((self.list.models, self.list.loaded, self.list.shown), ("stale", "unknown", (model("a"),)))
        self.assertEqual(self.list.revision, 2)

    def test_remembered(self) -> None:
        """What was listed before our start is ``stale``, in memory none of it (EN-79)."""
        self.list.remembered([model("a", size_bytes=1)], 5)
        self.assertEqual((self.list.models, self.list.at, self.list.shown), ("stale", 5, (model("a"),)))
        self.assertFalse(self.read(model("a")))
