"""One file out of many layers: the walk, against a plain model that applies the layers from the bottom up."""

from __future__ import annotations

import hashlib
import itertools
import platform
import random
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.errors import ConfigurationError, Damaged, InputError
from scripts.registry import changeset, content, files
from scripts.registry.blobs import Blob
from scripts.registry.content import Rule
from scripts.registry.files import Found, Reading, Wanted
from scripts.registry.image import Layer
from tests.layers import Member, folder, hard, link, packed

TAR = "application/vnd.oci.image.layer.v1.tar"


@dataclass
class Stack:
    """Layers in a folder; `opened` holds the index of each that was read, in order."""

    path: Path
    layers: list[Layer]
    opened: list[int]

    @contextmanager
    def open(self, layer: Layer) -> Iterator[Blob]:
        index = self.layers.index(layer)
        self.opened.append(index)
        with (self.path / str(index)).open("rb") as file:
            blob = Blob(file, layer.digest, 5, layer.size)
            yield blob
            blob.drain()

    def read(self, *wanted: Wanted | str) -> Reading:
        questions = [one if isinstance(one, Wanted) else Wanted(one) for one in wanted]
        return files.walk(self.layers, questions, self.open)

    def find(self, wanted: Wanted | str) -> Found:
        return self.read(wanted).found[0]


def stack(path: Path, *layers: Sequence[Member] | bytes) -> Stack:
    """Write layers, the lowest first."""
    path.mkdir(exist_ok=True)
    made = []
    for index, members in enumerate(layers):
        data = members if isinstance(members, bytes) else packed(members)
        (path / str(index)).write_bytes(data)
        made.append(Layer(f"sha256:{index:064x}", len(data), TAR))
    return Stack(path, made, [])


# The model: a whole file system, as a runtime that unpacks every layer would have it.

Node = tuple[str, str]
System = dict[str, Node]


def apply(system: System, members: Sequence[Member]) -> System:
    """The file system after one more layer: its whiteouts, then its entries in order."""
    system = dict(system)
    for member in members:
        parent, _, base = member.name.rpartition("/")
        if base == changeset.OPAQUE:
            remove(system, parent, itself=False)
        elif base.startswith(changeset.WHITEOUT):
            remove(system, f"{parent}/{base.removeprefix(changeset.WHITEOUT)}".strip("/"))
    for member in members:
        parent, _, base = member.name.rpartition("/")
        make_folders(system, parent)
        if base.startswith(changeset.WHITEOUT):
            continue
        if member.kind == tarfile.DIRTYPE:
            make_folders(system, member.name)
            continue
        node = (member.kind.decode(), member.text)
        if member.kind == tarfile.LNKTYPE:
            node = resolve(system, f"/{member.text}", final=False)[1]
            node = ("absent", "") if node[0] == "dir" else node
        remove(system, member.name)
        system[member.name] = node
    return system


def remove(system: System, path: str, *, itself: bool = True) -> None:
    prefix = f"{path}/" if path else ""
    for name in [name for name in system if name.startswith(prefix) or (itself and name == path)]:
        del system[name]


def make_folders(system: System, path: str) -> None:
    parts = path.split("/") if path else []
    for name in itertools.accumulate(parts, "{}/{}".format):
        if system.get(name, ("", ""))[0] != "dir":
            remove(system, name)
            system[name] = ("dir", "")


def resolve(system: System, path: str, *, final: bool = True) -> tuple[str, Node]:
    """The real path and what is there, as Linux finds it; ("", ("absent" or "loop", "")) for none."""
    here, ahead, links = "", path.split("/"), 0
    while ahead:
        part = ahead.pop(0)
        if part in ("", "."):
            continue
        if here and system[here][0] != "dir":
            return "", ("absent", "")
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        name = f"{here}/{part}".strip("/")
        if system.get(name, ("absent", ""))[0] in ("absent", "loop"):
            return "", system.get(name, ("absent", ""))
        kind, target = system[name]
        if kind == tarfile.SYMTYPE.decode() and (final or any(ahead)):
            links += 1
            if links > files.MAX_LINKS:
                return "", ("loop", "")
            ahead = [*target.split("/"), *ahead]
            here = "" if target.startswith("/") else here
            continue
        here = name
    return here, system.get(here, ("dir", ""))


NAMES = ["a", "b", "c"]


def some_path(dice: random.Random, deepest: int = 3) -> str:
    return "/".join(dice.choices(NAMES, k=dice.randint(1, deepest)))


def some_target(dice: random.Random) -> str:
    start = dice.choice(["", "", "/", "../", "../../", "./"])
    middle = dice.choice(["", "", "", "a/../", "b/c/../"])
    return start + middle + some_path(dice, 2)


def some_layer(dice: random.Random, number: int) -> list[Member]:
    tree: dict[str, Member] = {}
    for _ in range(dice.randint(0, 5)):
        path = some_path(dice)
        above = [path.rsplit("/", depth)[0] for depth in range(1, path.count("/") + 1)]
        if any(tree.get(one, folder("")).kind != tarfile.DIRTYPE for one in above):
            continue
        options = [Member(path, text=f"{path} of {number}"), link(path, some_target(dice))]
        within = any(name.startswith(f"{path}/") for name in tree)
        tree[path] = folder(path) if within else dice.choice([*options, *options, folder(path)])
    hides = [f"{some_path(dice)}/{changeset.OPAQUE}" for _ in range(dice.choice([0, 0, 0, 1]))]
    hides += [
        "/".join([*(path := some_path(dice).split("/"))[:-1], changeset.WHITEOUT + path[-1]])
        for _ in range(dice.choice([0, 0, 1, 2]))
    ]
    solid = [name for name, member in tree.items() if member.kind != tarfile.DIRTYPE]
    marks = [Member(mark) for mark in hides if not any(mark.startswith(f"{name}/") for name in solid)]
    twice = [
        dice.choice([Member(name, text="1st"), link(name, "b")]) for name in solid if dice.random() < 0.2
    ]
    links = []
    if dice.random() < 0.4:
        name = f"h{dice.randint(0, 1)}"
        target = dice.choice([some_path(dice), "h0", "h1"])
        links = [hard(name, target)] if name != target else []
    members = [*twice, *tree.values()]
    for mark in marks:
        members.insert(dice.randint(0, len(members)), mark)
    return [*members, *links]


def seen(found: Found) -> tuple[str, str, str]:
    """Real path, kind and digest of the content, for what the model says too."""
    kind = "loop" if "loop" in found.why else found.kind
    return ("" if kind in ("absent", "loop") else found.path, kind, found.sha256)


def expected(system: System, path: str) -> tuple[str, str, str]:
    real, (kind, text) = resolve(system, path)
    if kind in ("absent", "loop"):
        return "", kind, ""
    if kind == "dir":
        return f"/{real}", "directory", ""
    return f"/{real}", "file", hashlib.sha256(text.encode()).hexdigest()


QUESTIONS = ["/".join(("", *parts)) for size in (1, 2, 3) for parts in itertools.product(NAMES, repeat=size)]
QUESTIONS += ["/", "/h0", "/h1", "/h0/a", "/a/../b", "/a/b/../c", "/c/../../a/./b", "/h1/../a"]


@pytest.mark.parametrize("seed", range(4))
def test_random_stacks_read_as_a_runtime_that_unpacks_every_layer(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    kinds: set[str] = set()
    for number in range(20):
        layers = [some_layer(dice, index) for index in range(dice.randint(1, 6))]
        system: System = {}
        for members in layers:
            system = apply(system, members)
        made = stack(tmp_path / str(number), *layers)
        together = made.read(*QUESTIONS)
        for question, found in zip(QUESTIONS, together.found, strict=True):
            assert seen(found) == expected(system, question), (question, layers, found)
            kinds.add(seen(found)[1])
        alone = dice.choice(QUESTIONS)
        assert seen(made.find(alone)) == expected(system, alone), (alone, layers)
    assert kinds == {"file", "directory", "absent", "loop"}


def test_the_reason_for_absence_names_the_layer(tmp_path: Path) -> None:
    made = stack(
        tmp_path / "s",
        [Member("a/b/c"), Member("o/x/y"), Member("f/deep")],
        [Member("a/.wh.b"), Member(f"o/{changeset.OPAQUE}"), Member("f")],
        [Member("other")],
    )
    whys = [one.why for one in made.read("/a/b/c", "/o/x/y", "/f/deep", "/other/x", "/none").found]
    assert whys == [
        "/a/b was removed by layer 1",
        "/o was emptied by layer 1",
        "/f is not a directory (layer 1)",
        "/other is not a directory (layer 2)",
        "in no layer",
    ]


def test_a_folder_that_was_a_file_in_between_begins_anew(tmp_path: Path) -> None:
    made = stack(tmp_path / "s", [Member("d/old")], [Member("d")], [Member("d/new")])
    old, new = made.read("/d/old", "/d/new").found
    assert (old.kind, new.kind) == ("absent", "file")
    assert "began anew" in old.why


@pytest.mark.parametrize("name", ["./opt/x", "/opt/x", "opt//x", "./opt/./x"])
def test_the_forms_of_a_name(tmp_path: Path, name: str) -> None:
    assert stack(tmp_path / "s", [Member(name, text="1")]).find("/opt/x").size == 1


def test_long_names_and_targets(tmp_path: Path) -> None:
    deep = "/".join(["long" * 20] * 5)
    made = stack(tmp_path / "s", [Member(deep, text="1")], [link("short", f"/{deep}")])
    found = made.find("/short")
    assert (found.path, found.layer, found.via) == (f"/{deep}", 0, (f"/short -> /{deep}",))


def test_links_do_not_fetch_again_what_cannot_matter(tmp_path: Path) -> None:
    made = stack(
        tmp_path / "s",
        [Member("usr/bin/real", text="1")],
        [link("venv/python", "python3"), link("venv/python3", "/usr/bin/real"), link("up", "new")],
        [Member("usr/share/other"), Member("new", text="22")],
        [Member("usr/share/third"), folder("usr/bin")],
    )
    assert made.find("/venv/python").size == 1
    # Two links in one layer, a target below: each layer once.
    assert made.opened == [3, 2, 1, 0]
    made.opened.clear()
    assert made.find("/up").size == 2
    assert made.opened == [3, 2, 1, 2]


def test_the_last_entry_of_a_name_counts_also_in_a_layer_that_was_read(tmp_path: Path) -> None:
    made = stack(tmp_path / "s", [link("start", "a")], [link("a", "wrong"), Member("a", text="right")])
    assert made.find("/start").text == "right"


def test_a_loop_is_an_answer_and_takes_one_pass(tmp_path: Path) -> None:
    made = stack(tmp_path / "s", [link("a", "b"), link("b", "./a")])
    found = made.find("/a/x")
    assert (found.kind, made.opened) == ("absent", [0])
    assert "loop" in found.why


def test_all_questions_share_the_passes_and_the_reading_stops_early(tmp_path: Path) -> None:
    made = stack(tmp_path / "s", [Member("never")], [Member("b", text="b")], [Member("a"), Member("c")])
    reading = made.read("/a", "/b", "/c", "/b/", "/")
    assert [one.kind for one in reading.found] == ["file", "file", "file", "file", "directory"]
    assert made.opened == [2, 1]
    assert (reading.layers, reading.fetched) == (2, made.layers[1].size + made.layers[2].size)


def test_a_small_layer_is_asked_for_ahead_once_some_gave_no_answer(tmp_path: Path) -> None:
    made = stack(tmp_path / "s", *([Member(f"in{number}")] for number in range(7)))
    assert made.read("/in4").layers == len(made.opened) == 3
    made.opened.clear()
    reading = made.read("/in2")
    # The one below the answer was given up; it counts.
    assert made.opened == [6, 5, 4, 3, 2, 1]
    assert (reading.layers, reading.fetched) == (6, sum(layer.size for layer in made.layers[1:]))
    large = [Layer(layer.digest, files.SMALL + 1, TAR) for layer in made.layers]
    assert Stack(made.path, large, []).read("/in2").layers == 5


def test_a_hard_link_keeps_what_it_had_when_its_layer_was_made(tmp_path: Path) -> None:
    made = stack(
        tmp_path / "s",
        [Member("bin/a", text="old"), link("l", "bin/a")],
        [hard("bin/h", "bin/a"), hard("m", "./l")],
        [Member("bin/a", text="newer")],
    )
    hard_link, through_link = made.read("/bin/h", "/m").found
    assert (hard_link.text, hard_link.path) == ("old", "/bin/h")
    # A second name of a symbolic link is that link, now.
    assert (through_link.text, through_link.path) == ("newer", "/bin/a")


DIST = "opt/env/lib/python3.12/site-packages"
WANTED = "/opt/env/lib/python3.*/site-packages/harbor-[0-9]*.dist-info/METADATA"


def test_wildcards_find_what_is_visible_in_the_topmost_layer(tmp_path: Path) -> None:
    made = stack(
        tmp_path / "s",
        [Member(f"{DIST}/harbor-0.8.dist-info/METADATA", text="old")],
        [Member(f"{DIST}/harbor_other-9.dist-info/METADATA")],
        [
            Member(f"{DIST}/.wh.harbor-0.8.dist-info"),
            Member(f"{DIST}/harbor-0.9.dist-info/METADATA", text="new"),
        ],
        [Member("x")],
    )
    assert made.find(WANTED).path == f"/{DIST}/harbor-0.9.dist-info/METADATA"
    assert made.opened == [3, 2]


def test_wildcards_look_again_into_a_layer_that_was_read(tmp_path: Path) -> None:
    made = stack(tmp_path / "s", [link("old", "new/lib")], [Member("new/lib/x-1.py", text="1")])
    assert made.find("/old/x-*.py").path == "/new/lib/x-1.py"
    assert made.opened == [1, 0, 1]


def test_wildcards_do_not_find_what_was_removed(tmp_path: Path) -> None:
    below = [Member(f"{DIST}/harbor-0.8.dist-info/METADATA")]
    for number, hider in enumerate((f"{DIST}/.wh.harbor-0.8.dist-info", f"opt/env/lib/{changeset.OPAQUE}")):
        found = stack(tmp_path / str(number), below, [Member(hider)]).find(WANTED)
        assert found.kind == "absent"
        assert "by layer 1" in found.why


def test_wildcards_go_through_links_and_leave_their_targets_alone(tmp_path: Path) -> None:
    made = stack(
        tmp_path / "s",
        [Member("real[1]/x.py", text="right"), Member("real1/x.py", text="wrong")],
        [link("opt", "real[1]")],
    )
    found = made.find("/op*/?.py")
    assert (found.path, found.text) == ("/real[1]/x.py", "right")


GOOD = [Member("usr/a", text="a" * 2000), Member("usr/b", text="b" * 2000)]


def harmed() -> dict[str, bytes]:
    whole = packed(GOOD)
    second = whole.index(b"usr/b")
    return {
        "no tar": b"no tar at all " * 100,
        "a spoiled header": whole[: second + 10] + b"\xff" * 20 + whole[second + 30 :],
        "cut in a header": whole[: second + 100],
        "cut in a file": whole[: second + 1000],
    }


@pytest.mark.parametrize("harm", harmed())
def test_a_layer_that_cannot_be_read_is_never_absent(tmp_path: Path, harm: str) -> None:
    made = stack(tmp_path / "s", GOOD, harmed()[harm], [Member("top")])
    with pytest.raises(Damaged, match="not a readable"):
        made.find("/usr/none")
    assert made.opened == [2, 1]


TEXT = """\
def guarded(job):
    lock(job)
    try:
        return run(job)

def bare(job):
    return run(job)
"""


@pytest.mark.parametrize(
    ("rule", "met", "matches"),
    [
        (Rule("run"), True, (4, 7)),
        (Rule("walk"), False, ()),
        (Rule("walk", must=False), True, ()),
        (Rule("run", must=False), False, (4, 7)),
        (Rule(r"def guarded", r"\block\(", 1), True, (1,)),
        (Rule(r"def guarded", r"run\(", 2), False, (1,)),
        (Rule(r"^def", r"lock\(", 3), False, (1, 6)),
        (Rule(r"^def", r"run\(", 3), True, (1, 6)),
        (Rule("run", "run", 1), False, (4, 7)),
        (Rule("walk", "run", 1), False, ()),
        (Rule("walk", "run", 1, must=False), True, ()),
        (Rule(r"lock", r"return", 2, must=False), False, (2,)),
        (Rule(r"lock", r"return", 1, must=False), True, (2,)),
    ],
)
def test_rules_about_lines(tmp_path: Path, rule: Rule, met: bool, matches: tuple[int, ...]) -> None:
    found = stack(tmp_path / "s", [Member("f", text=TEXT)]).find(Wanted("/f", (rule,)))
    assert (found.met, found.matches) == ((met,), (matches,))


def test_a_rule_about_a_large_file_needs_none_of_it_in_memory(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\r\n" for number in range(200_000))
    rule = Rule("^line 123456$", "^line 123459$", 3)
    found = stack(tmp_path / "s", [Member("f", text=lines)]).find(Wanted("/f", (rule,)))
    assert (found.met, found.matches, found.text) == ((True,), ((123457,),), "")
    assert found.sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_two_questions_about_one_file_have_their_own_rules(tmp_path: Path) -> None:
    made = stack(tmp_path / "s", [Member("f", text=TEXT)])
    one, two = made.read(Wanted("/f", (Rule("run"), Rule("walk"))), Wanted("/f", (Rule("walk"),))).found
    assert (one.met, two.met, made.opened) == ((True, False), (False,), [0])


def test_what_is_no_file_meets_no_rule(tmp_path: Path) -> None:
    rules = (Rule("fault", must=False),)
    made = stack(tmp_path / "s", [Member("d/f")])
    assert [one.met for one in made.read(Wanted("/none", rules), Wanted("/d", rules)).found] == [(False,)] * 2


@pytest.mark.parametrize("wrong", [("(",), ("a", "("), ("a", "b"), ("a", "", 3)])
def test_a_rule_that_could_never_judge_is_refused(wrong: tuple[str]) -> None:
    with pytest.raises(ConfigurationError):
        Rule(*wrong)


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(InputError, match="begins with /"):
        Wanted("opt/x")


def test_the_machine_of_a_program() -> None:
    with Path(sys.executable).open("rb") as program:
        here = content.elf_machine(program.read(content.HEAD))
    assert here == {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    big_endian = b"\x7fELF\x02\x02\x01".ljust(18, b"\0") + b"\x00\x16"
    assert content.elf_machine(big_endian) == "s390x"
    assert content.elf_machine(b"#!/bin/sh") == content.elf_machine(b"\x7fELF") == ""


def test_what_a_dist_info_folder_states() -> None:
    assert (
        content.version("Metadata-Version: 2.4\nName: x\nVersion: 0.8.1+g12\n\nVersion: 9\n") == "0.8.1+g12"
    )
    assert content.version("") == ""
    assert content.commit('{"url": "u", "vcs_info": {"vcs": "git", "commit_id": "12ab"}}') == "12ab"
    assert [content.commit(text) for text in ('{"url": "u", "dir_info": {}}', "[]", "")] == ["", "", ""]
