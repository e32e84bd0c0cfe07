"""One file out of a many-layer image: what the running image would see at a path.

The rules are those of the OCI image specification ("Image Layer Filesystem Changeset"): a whiteout hides what
lower layers have, never its own layer's; what is not a directory replaces a directory and all that is in it.

Layers are read from the top until every question is answered; all questions share a pass over a layer. A
layer that is read is read to its end: only then is its digest proven, and only then is it believed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass

from scripts.errors import Absent, Damaged, InputError, RegistryError
from scripts.registry import blobs
from scripts.registry.blobs import Blob
from scripts.registry.changeset import (
    IMPLIED_MODE,
    NOTHING,
    Entry,
    Memory,
    Path,
    Scan,
    View,
    literally,
    literals,
)
from scripts.registry.content import Content, Judged, Rule
from scripts.registry.image import Env, Layer
from scripts.registry.reference import Reference

Opener = Callable[[Layer], AbstractContextManager[Blob]]
MAX_LINKS = 40
"""As many links as Linux follows in one path (path_resolution(7))."""
ATTEMPTS = 3
SMALL, BEFORE_AHEAD = 8_000_000, 3
"""After so many layers without an answer, the next is asked for ahead if it has at most so many bytes."""


@dataclass(frozen=True)
class Wanted:
    """A question: an absolute path and rules about its lines.

    A component may hold `*`, `?` or `[]`. Then the topmost layer answers that has a visible match, or a link
    that matches a part of the path; of several the last by name.
    """

    path: str
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise InputError(f"{self.path!r} is not a path in an image.", "a path begins with /.")


@dataclass(frozen=True)
class Found:
    """The answer.

    Attributes:
        path: where it really is, after all links.
        kind: "file", "directory", "absent" or "other" (a device, a pipe).
        layer, digest: the layer that holds it, counted from 0 at the bottom; -1 and "" for none.
        size, sha256, head, text: of a file; see `Content`.
        mode: permission bits.
        met, matches: for each rule; what is not a file meets none.
        via: the links that were followed, as "/from -> target".
        why: why it is absent.
    """

    wanted: Wanted
    path: str
    kind: str
    layer: int
    digest: str
    size: int
    sha256: str
    mode: int
    head: bytes
    text: str
    met: tuple[bool, ...]
    matches: tuple[tuple[int, ...], ...]
    via: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Reading:
    """All answers, and the bytes and layers that were fetched for them; one fetched twice counts twice."""

    found: tuple[Found, ...]
    fetched: int
    layers: int


def read(
    repository: Reference, layers: Sequence[Layer], wanted: Sequence[Wanted], env: Env = None
) -> Reading:
    """Answer questions about the files of an image in a registry.

    Args:
        repository: where the layers are; its tag and digest do not matter.
        layers: the image's, from the bottom up.
        wanted: the questions.
        env: changes to crane's environment.

    Raises:
        Damaged: bytes that do not match their digest.
        CommandTimeout, Absent, CredentialError, RegistryError: a layer that cannot be read to its end.
    """
    return walk(layers, wanted, lambda layer: blobs.opened(repository.at(layer.digest), layer.size, env=env))


def walk(layers: Sequence[Layer], wanted: Sequence[Wanted], opened: Opener) -> Reading:
    """As `read`, for layers that `opened` gives."""
    walks = [_Walk(question, layers) for question in wanted]
    with closing(_Stack(layers, opened)) as stack:
        while pending := [one for one in walks if not one.answer]:
            # One that a link sent back to the top catches up with the others, and shares their passes again.
            index = max(one.layer for one in pending)
            stack.visit(index, [one for one in pending if one.layer == index])
    return Reading(tuple(one.answer for one in walks if one.answer), stack.fetched, stack.fetches)


class _Walk:
    """One question on its way down the layers, and again from the top after a link.

    Attributes:
        layer: the one to look at next.
        parts: the pattern that is looked for now.
        answer: the end of the walk.
    """

    def __init__(self, wanted: Wanted, layers: Sequence[Layer]) -> None:
        self.wanted = wanted
        self.answer: Found | None = None
        self._layers, self._top = layers, len(layers) - 1
        self._via: list[str] = []
        # Hard links whose targets are looked for: name, what follows it in the path, as of which layer.
        self._hard: list[tuple[Path, Path, int]] = []
        self._go((), tuple(wanted.path.split("/")), self._top)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules to judge."""
        return self.wanted.rules

    def _go(self, real: Path, further: Path, upper: int) -> None:
        """Look for `further` below a real folder, as of a layer. `..` after a name waits for that name."""
        further = tuple(part for part in further if part not in ("", "."))
        while further[:1] == ("..",):
            real, further = real[:-1], further[1:]
        cut = further.index("..") if ".." in further else len(further)
        self.parts, self._rest = real + further[:cut], further[cut:]
        self.layer = self._upper = upper
        self._folders: set[Path] = set()
        self._hidden: dict[Path, str] = {}
        self._opaque: dict[Path, str] = {}
        self._lost = ""
        if not self.parts:
            self._end((), "directory", mode=IMPLIED_MODE)
        elif upper < 0:
            self._absent("in no layer")

    def hides(self, path: Path) -> str:
        """Why an upper layer hides what lower layers have at a path; "" if none does."""
        parents = [path[:depth] for depth in range(len(path))]
        reasons = [self._hidden.get(one, "") for one in (*parents, path)]
        return next(filter(None, [*reasons, *(self._opaque.get(one, "") for one in parents)]), "")

    def step(self, view: View) -> None:
        """Learn what the layer says, and answer, follow a link or go down."""
        visible = {path: entry for path, entry in view.entries.items() if not self._covered(path)}
        whole = [path for path in visible if len(path) == len(self.parts)]
        links = [path for path, entry in visible.items() if entry.target and path not in self._folders]
        if whole:
            self._arrive(max(whole), visible[max(whole)])
        elif links:
            self._follow(max(links), visible[max(links)])
        else:
            self._descend(view, visible)

    def _covered(self, path: Path) -> bool:
        why = self.hides(path)
        if why and len(path) == len(self.parts):
            self._lost = self._lost or why
        return bool(why)

    def _arrive(self, path: Path, entry: Entry) -> None:
        if entry.target:
            self._follow(path, entry)
        elif entry.kind == "directory" and self._rest:
            self._go(literally(path), self._rest, self._upper)
        else:
            self._reach(path, entry)

    def _reach(self, path: Path, entry: Entry) -> None:
        name, after, _ = self._hard[-1] if self._hard else (path, (), 0)
        if entry.kind == "directory" and self._hard:
            self._absent(f"{_shown(path)} is a directory")
        elif entry.kind != "directory" and (self._rest or after):
            self._absent(f"{_shown(name)} is not a directory")
        else:
            self._end(name, entry.kind, self.layer, entry.mode, entry.content)

    def _follow(self, path: Path, entry: Entry) -> None:
        self._via.append(f"{_shown(path)} -> {entry.target}")
        further = (*self.parts[len(path) :], *self._rest)
        target = literally(tuple(entry.target.split("/")))
        if len(self._via) > MAX_LINKS:
            self._absent(f"a loop of links, or more than {MAX_LINKS}")
        elif entry.kind == "hardlink":
            # A chain of hard links is one file, which is known by the first name.
            if not self._hard or further:
                self._hard.append((path, further, self._upper))
            # The target is a name in that layer or below; what upper layers do to it does not matter.
            self._go((), target, self.layer)
        else:
            if self._hard and not further:
                path, further, self._upper = self._hard.pop()
            start = () if entry.target.startswith("/") else literally(path[:-1])
            self._go(start, (*target, *further), self._upper)

    def _descend(self, view: View, visible: dict[Path, Entry]) -> None:
        where = f"layer {self.layer}"
        for path, entry in visible.items():
            if entry.kind == "directory":
                self._folders.add(path)
            elif path in self._folders:
                self._hidden[path] = f"{_shown(path)} was no directory in {where}, and began anew above it"
            else:
                self._hidden[path] = f"{_shown(path)} is not a directory ({where})"
        for path in view.whiteouts:
            self._hidden.setdefault(path, f"{_shown(path)} was removed by {where}")
        for path in view.opaque:
            self._opaque.setdefault(path, f"{_shown(path)} was emptied by {where}")
        self.layer -= 1
        # Whatever is hidden for the part without wildcards is hidden for every match.
        literal = self.parts[: literals(self.parts)]
        whole = literal if literal == self.parts else (*literal, "")
        if why := self.hides(whole):
            self._absent(why)
        elif self.layer < 0:
            self._absent(self._lost or "in no layer")

    def _absent(self, why: str) -> None:
        path = (*self.parts, *self._rest)
        if self._hard:
            path = self._hard[0][0]
            why = f"the target of the hard link {_shown(path)} is absent: {why}"
        self._end(path, "absent", why=why)

    def _end(
        self,
        path: Path,
        kind: str,
        layer: int = -1,
        mode: int = 0,
        content: Content = NOTHING,
        why: str = "",
    ) -> None:
        judged = [content.judged.get(rule, Judged(met=False)) for rule in self.rules]
        self.answer = Found(
            self.wanted,
            _shown(path),
            kind,
            layer,
            self._layers[layer].digest if layer >= 0 else "",
            content.size,
            content.sha256,
            mode,
            content.head,
            content.text,
            tuple(one.met for one in judged),
            tuple(one.matches for one in judged),
            tuple(self._via),
            why,
        )


class _Unneeded(Exception):
    """A layer that was asked for ahead is not needed any more."""


class _Stack:
    """The layers, what was fetched of them, and what is remembered."""

    def __init__(self, layers: Sequence[Layer], opened: Opener) -> None:
        self._layers, self._opened = layers, opened
        self._memories: dict[int, Memory] = {}
        self._ahead: dict[int, tuple[ExitStack, Blob]] = {}
        self.fetched = self.fetches = 0

    def close(self) -> None:
        """Give up what was asked for ahead; it counts as fetched."""
        for index, (block, _) in self._ahead.items():
            self.fetched += self._layers[index].size
            with suppress(_Unneeded), block:
                raise _Unneeded

    def visit(self, index: int, walks: list[_Walk]) -> None:
        """Let walks learn what a layer says: from memory where that is enough."""
        memory = self._memories.get(index)
        views = [memory.view(one.parts) if memory else None for one in walks]
        unread = [one for one, view in zip(walks, views, strict=True) if view is None]
        read = iter(self._read(index, unread) if unread else ())
        for one, view in zip(walks, views, strict=True):
            one.step(view or next(read))

    def _read(self, index: int, walks: list[_Walk]) -> list[View]:
        for left in reversed(range(ATTEMPTS)):
            before = self.fetched
            try:
                scan = self._attempt(index, walks)
                break
            except RegistryError as error:
                # Where bytes came and then no more, the connection broke: that may go better once more.
                if isinstance(error, (Absent, Damaged)) or self.fetched == before or not left:
                    raise
        self._memories[index] = scan.memory
        return scan.views

    def _ask(self, index: int) -> tuple[ExitStack, Blob]:
        self.fetches += 1
        block = ExitStack()
        return block, block.enter_context(self._opened(self._layers[index]))

    def _ask_ahead(self, index: int) -> None:
        """Let the layer below come while this one is read: with small ones, asking is what takes time."""
        small = index > 0 and all(layer.size <= SMALL for layer in self._layers[index - 1 : index + 1])
        if small and len(self._memories) >= BEFORE_AHEAD and index - 1 not in {*self._memories, *self._ahead}:
            self._ahead[index - 1] = self._ask(index - 1)

    def _attempt(self, index: int, walks: list[_Walk]) -> Scan:
        scan, layer = Scan(walks), self._layers[index]
        block, blob = self._ahead.pop(index) if index in self._ahead else self._ask(index)
        with block:
            self._ask_ahead(index)
            try:
                failure = scan.run(blobs.unpacked(blob, layer.media_type))
                blob.drain()
            finally:
                self.fetched += blob.count
        if failure:
            raise Damaged(
                f"The layer {layer.digest} matches its digest, but is not a readable {layer.media_type}.",
                "build and push the image again.",
                f"  {failure}",
            )
        return scan


def _shown(path: Path) -> str:
    return "/" + "/".join(path)
