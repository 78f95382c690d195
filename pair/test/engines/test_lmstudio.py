"""The kind ``lmstudio``: what it makes of LM Studio's answers and files (Kinds, EN-9, EN-81, RT-8, RT-14)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.facts import Answer, HostFacts
from pair.engines.kinds.lmstudio import LMStudio
from pair.records.engines import LoadedInstance, Model
from pair.test.engines.samples import LMSTUDIO, LMSTUDIO_OLDER, VLLM, answer, answers, sample

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pair.engines.facts import Listing

NEWER = answers(LMSTUDIO, list="list", list_older="older_list", list_served="served")
OLDER = answers(LMSTUDIO_OLDER, list="no_newer_list", list_older="older_list", list_served="served")


def facts(
    files: Mapping[str, str] | None = None, programs: Collection[str] = (), platform: str = "linux", home: str = "/h"
) -> HostFacts:
    """A host with these files and programs."""
    return HostFacts(
        platform=platform,
        home=home,
        search_path=("/usr/bin",),
        data_dir="/d",
        python="/usr/bin/python",
        modules=frozenset(),
        is_executable=lambda path: path in programs,
        is_file=lambda path: False,
        read_text=(files or {}).get,
    )


class LMStudioTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.kind = LMStudio()

    def read(self, told: Mapping[str, Answer]) -> Listing:
        listing = self.kind.models("lmstudio", told)
        assert listing is not None
        return listing

    def test_identity(self) -> None:
        """It greets; without a greeting its own list will do, and nobody else's (Kinds)."""
        self.assertIsNotNone(self.kind.identify(answers(LMSTUDIO, identity="greeting")))
        for folder in (LMSTUDIO, LMSTUDIO_OLDER):
            told = answers(folder, identity_older="older_list")
            self.assertIsNotNone(self.kind.identify({"identity": sample(LMSTUDIO, "unknown_route"), **told}))
        for other in (
            {"identity": answer({"lmstudio": False})},
            {"identity": sample(LMSTUDIO, "unknown_route"), "identity_older": sample(LMSTUDIO, "unknown_route")},
            answers(VLLM, identity_older="list"),
        ):
            self.assertIsNone(self.kind.identify(other))

    def test_model(self) -> None:
        """All that ``/api/v1/models`` tells; a second copy is an instance, not a model (EN-81)."""
        first, second, third = self.read(NEWER).models
        self.assertEqual(
            msgspec.structs.replace(first, listed=None),
            Model(
                id="gemma-3-270m-it-qat",
                engine="lmstudio",
                facade="lmstudio",
                size_bytes=241410208,
                family="gemma3",
                parameters=270_000_000,
                quantization="Q4_0",
                format="gguf",
                context_max=32768,
                capabilities=("chat", "completion"),
                loaded=(
                    LoadedInstance(instance="gemma-3-270m-it-qat", context_length=4096, parallel=4),
                    LoadedInstance(instance="gemma-3-270m-it-qat:2", context_length=8192, parallel=2),
                ),
            ),
        )
        self.assertEqual((second.capabilities, second.loaded), (("chat", "completion", "tools", "thinking"), ()))
        self.assertEqual((third.capabilities, third.parameters, third.family), (("embedding",), None, None))

    def test_older(self) -> None:
        """Before 0.4 the newer path answers 200 without a list; ``/api/v0/models`` tells what there is."""
        listing = self.read(OLDER)
        self.assertTrue(listing.loaded_known)
        vision, llama, nomic = listing.models
        self.assertEqual(
            msgspec.structs.replace(llama, listed=None),
            Model(
                id="meta-llama-3.1-8b-instruct",
                engine="lmstudio",
                facade="lmstudio",
                family="llama",
                quantization="Q4_K_M",
                format="gguf",
                context_max=131072,
                capabilities=("chat", "completion", "tools"),
                loaded=(
                    LoadedInstance(instance="meta-llama-3.1-8b-instruct", context_length=8192),
                    LoadedInstance(instance="meta-llama-3.1-8b-instruct:2", context_length=4096),
                ),
            ),
        )
        self.assertEqual((vision.format, vision.capabilities), ("mlx", ("chat", "completion", "vision")))
        self.assertEqual((nomic.capabilities, nomic.loaded), (("embedding",), ()))

    def test_older_tells_what_newer_does(self) -> None:
        """Of one server, both lists name the same models with the same copies."""
        newer, older = self.read(NEWER), self.read({**NEWER, "list": sample(LMSTUDIO, "unknown_route")})
        self.assertEqual(
            [(each.id, [copy.instance for copy in each.loaded], each.context_max) for each in newer.models],
            [(each.id, [copy.instance for copy in each.loaded], each.context_max) for each in older.models],
        )

    def test_a_number_behind_a_colon(self) -> None:
        """``key:2`` is a copy only beside ``key``; else it is a name like others."""
        row = {"id": "m:2", "state": "loaded"}
        listing = self.read({"list_older": answer({"data": [row]})})
        self.assertEqual([each.id for each in listing.models], ["m:2"])

    def test_list_of_another_server(self) -> None:
        """Rows without a state are not LM Studio's: nothing is told."""
        self.assertIsNone(self.kind.models("e", {"list_older": sample(VLLM, "list")}))

    def test_just_in_time_loading(self) -> None:
        """Off: the OpenAI list leaves out what is not in memory, and so does routing (RT-8, M04)."""
        self.assertFalse(self.read(NEWER).loaded_only)
        self.assertFalse(self.read(OLDER).loaded_only)
        self.assertTrue(self.read({**NEWER, "list_served": sample(LMSTUDIO, "served_without_loading")}).loaded_only)
        self.assertTrue(self.read({**NEWER, "list_served": answer({"data": []})}).loaded_only)

    def test_just_in_time_loading_not_told(self) -> None:
        """No such list, or nothing that rests on the disk: as the kind is by itself."""
        for served in (sample(LMSTUDIO, "unknown_route"), Answer(500, {}, b"")):
            self.assertFalse(self.read({**NEWER, "list_served": served}).loaded_only)
        row = {"key": "m", "loaded_instances": [{"id": "m"}]}
        told = {"list": answer({"models": [row]}), "list_served": answer({"data": [{"id": "m"}]})}
        self.assertFalse(self.read(told).loaded_only)

    def test_slots(self) -> None:
        """The copy that takes most at once counts (EN-34)."""
        self.assertEqual(self.kind.slots(answers(LMSTUDIO, identity_slots="list")), 4)
        self.assertIsNone(self.kind.slots(answers(LMSTUDIO_OLDER, identity_slots="no_newer_list")))
        self.assertIsNone(self.kind.slots({}))

    def test_locate(self) -> None:
        """The folder that the pointer names, the two usual ones, then the search path (EN-6)."""
        programs = ("/usr/bin/lms", "/h/.cache/lm-studio/bin/lms", "/h/.lmstudio/bin/lms", "/big/lm/bin/lms")
        pointer = {"/h/.lmstudio-home-pointer": "/big/lm\n"}
        found = self.kind.locate(facts(pointer, programs))
        self.assertEqual([each.path for each in found], list(reversed(programs)))
        self.assertEqual([each.found_by for each in found], ["known", "known", "known", "path"])
        self.assertEqual([each.path for each in self.kind.locate(facts({}, programs[:1]))], ["/usr/bin/lms"])
        self.assertEqual(self.kind.locate(facts({"/h/.lmstudio-home-pointer": "lm"}, ["lm/bin/lms"])), ())

    def test_locate_on_windows(self) -> None:
        """``lms.exe`` below the user's folder."""
        lms = r"C:\Users\me\.lmstudio\bin\lms.exe"
        found = self.kind.locate(facts({}, [lms], "win32", r"C:\Users\me"))
        self.assertEqual([each.path for each in found], [lms])

    def test_configured_port(self) -> None:
        """The server's own file tells its port; that of the folder which the pointer names goes first (EN-9)."""
        inner = ".internal/http-server-config.json"
        files = {f"/h/.lmstudio/{inner}": json.dumps({"port": 5555, "networkInterface": "127.0.0.1"})}
        self.assertEqual(self.kind.configured(facts(files)), (5555,))
        files |= {"/h/.lmstudio-home-pointer": "/big/lm", f"/big/lm/{inner}": '{"port": 6666}'}
        self.assertEqual(self.kind.configured(facts(files)), (6666,))
        self.assertEqual(self.kind.configured(facts({f"/h/.cache/lm-studio/{inner}": '{"port": 7777}'})), (7777,))

    def test_no_configured_port(self) -> None:
        """No file, or one that says nothing of use."""
        self.assertEqual(self.kind.configured(facts()), ())
        self.assertEqual(self.kind.configured(facts(home="")), ())
        for text in ("", "{", "[]", '{"port": "1234"}', '{"port": 0}', '{"port": 99999}', '{"port": true}'):
            files = {"/h/.lmstudio/.internal/http-server-config.json": text}
            self.assertEqual(self.kind.configured(facts(files)), (), text)
