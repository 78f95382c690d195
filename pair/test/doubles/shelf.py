"""The models of a double: what it has on disk, and what of that is in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

FOREVER = float("inf")


@dataclass(frozen=True)
class Weights:
    """A model that there is somewhere.

    Attributes:
        can: what it can do, in Ollama's words.
        parameters: as Ollama writes it: ``135M``, ``8.2B``.
        context: its longest, in tokens.
        at: when it was put on the disk, in epoch seconds.
        salt: tells one pulled later from one of the same name.
    """

    name: str
    size: int
    family: str
    parameters: str
    quantization: str
    context: int
    can: tuple[str, ...] = ("completion",)
    publisher: str = "library"
    at: float = 1_760_000_000.0
    salt: str = ""

    @property
    def digest(self) -> str:
        """In 64 hex digits."""
        return hashlib.sha256(f"{self.name} {self.size} {self.salt}".encode()).hexdigest()

    @property
    def embeds(self) -> bool:
        """It makes embeddings and nothing else."""
        return "embedding" in self.can and "completion" not in self.can

    @property
    def layers(self) -> tuple[tuple[str, int], ...]:
        """Digest and size of each: the weights, and a small one."""
        small = self.size // 1000 + 1
        parts = (("weights", self.size - small), ("template", small))
        return tuple(
            (f"sha256:{hashlib.sha256(f'{self.digest} {what}'.encode()).hexdigest()}", size) for what, size in parts
        )

    def named(self, name: str, at: float) -> Weights:
        """The same under another name."""
        return replace(self, name=name, at=at)


@dataclass
class Copy:
    """One copy of a model in memory.

    Attributes:
        id: its own name.
        ready: when it is loaded, by the clock.
        keep: seconds that it stays after its last use.
        until: when it leaves, if nobody uses it.
        users: how many requests are at it.
    """

    id: str
    weights: Weights
    context: int
    ready: float
    keep: float
    until: float = FOREVER
    users: int = 0
    parallel: int = 4


@dataclass
class Memory:
    """What is in memory. What has had its time leaves when anyone looks.

    Attributes:
        room: how many copies fit; to load one more, the one that is used least recently leaves.
    """

    room: int = 3
    copies: list[Copy] = field(default_factory=list)

    def now(self, now: float) -> list[Copy]:
        """The copies that are there, in the order in which they were used last."""
        self.copies = [each for each in self.copies if each.users or each.until > now]
        return self.copies

    def of(self, name: str, now: float) -> list[Copy]:
        """Those of one model."""
        return [each for each in self.now(now) if each.weights.name == name]

    def load(self, copy: Copy, now: float) -> None:
        """Put it in."""
        idle = [each for each in self.now(now) if not each.users]
        while len(self.copies) >= self.room and idle:
            self.copies.remove(idle.pop(0))
        self.copies.append(copy)

    def drop(self, copy: Copy) -> None:
        """Take it out, now or when nobody uses it any more."""
        copy.until = 0.0
        if not copy.users and copy in self.copies:
            self.copies.remove(copy)

    def use(self, copy: Copy) -> None:
        """A request begins at it."""
        copy.users += 1
        if copy in self.copies:
            self.copies.remove(copy)
        self.copies.append(copy)

    def leave(self, copy: Copy, now: float) -> None:
        """A request at it has ended."""
        copy.users -= 1
        if not copy.users and copy.until:
            copy.until = now + copy.keep
        self.now(now)


class Disk:
    """The models on disk and the layers that were begun.

    Args:
        models: those that are there at first.
        library: what can be pulled.
        folder: keeps both beyond the end of the process; what it has goes before ``models``.
    """

    def __init__(self, models: Sequence[Weights], library: Sequence[Weights], folder: Path | None = None) -> None:
        self.models = {each.name: each for each in models}
        self.library = {each.name: each for each in (*models, *library)}
        self.layers: dict[str, int] = {digest: size for each in models for digest, size in each.layers}
        self.blobs: dict[str, bytes] = {}
        self._folder = folder
        if folder is not None:
            self._read(folder)

    def put(self, model: Weights) -> None:
        """It is there from now on."""
        self.models[model.name] = model
        self._write(Path("manifests", quote(model.name, safe="")), msgspec.json.encode(model))

    def remove(self, name: str) -> None:
        """It is there no more, nor are the layers that nobody else has."""
        gone = self.models.pop(name)
        held = {digest for each in self.models.values() for digest, _ in each.layers}
        for digest, _ in gone.layers:
            if digest not in held:
                self.layers.pop(digest, None)
        if self._folder is not None:
            (self._folder / "manifests" / quote(name, safe="")).unlink(missing_ok=True)

    def fetched(self, digest: str, size: int) -> None:
        """So much of a layer has come."""
        self.layers[digest] = size
        self._write(Path("blobs", digest.replace(":", "-")), str(size).encode())

    def _read(self, folder: Path) -> None:
        if (folder / "manifests").is_dir():
            self.models = {}
            for path in sorted((folder / "manifests").iterdir()):
                self.models[unquote(path.name)] = msgspec.json.decode(path.read_bytes(), type=Weights)
            for path in (folder / "blobs").glob("*"):
                self.layers[path.name.replace("-", ":", 1)] = int(path.read_bytes())
        else:
            for each in self.models.values():
                self.put(each)

    def _write(self, path: Path, content: bytes) -> None:
        if self._folder is not None:
            where = self._folder / path
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_bytes(content)


SMOLLM = Weights("smollm2:135m", 98_362_432, "llama", "134.52M", "Q4_1", 8192, ("completion", "tools"))
QWEN = Weights("qwen3:8b", 5_225_388_164, "qwen3", "8.2B", "Q4_K_M", 40_960, ("completion", "tools", "thinking"))
GEMMA = Weights("gemma3:latest", 3_338_801_804, "gemma3", "4.3B", "Q4_K_M", 131_072, ("completion", "vision"))
MINILM = Weights("all-minilm:22m", 45_960_996, "bert", "22.57M", "F16", 512, ("embedding",))
