"""A value in a launcher is found by syntax and replaced token by token; everything else keeps its bytes."""

from __future__ import annotations

import codecs
import io
import random
import tokenize
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scripts import command
from scripts.errors import ConfigurationError, InputError
from scripts.release import launcher
from scripts.release.launcher import Place

LAUNCHERS = Path(__file__).parent / "launchers"
REPOSITORY = "ghcr.io/marin-community/marinskyrl"
OLD, NEW = (f"sha256:{digit * 64}" for digit in "19")
OLD_IMAGE, NEW_IMAGE = f"{REPOSITORY}@{OLD}", f"{REPOSITORY}@{NEW}"
IMAGE = Place(Path("launch.py"), "IMAGE")
NOTE = launcher.note(f"gpu-rl-{'9' * 40}", "2026-12-01", "9" * 40, "a smaller layer")


def evaluated(source: bytes) -> dict[str, Any]:
    """What Python makes of the source: the names it sets."""
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "launcher", "exec"), names)  # noqa: S102  written by this test
    return names


def strings(source: bytes) -> dict[str, str]:
    names = evaluated(source)
    return {name: value for name, value in names.items() if isinstance(value, str)}


def changed_lines(before: bytes, after: bytes) -> list[tuple[bytes, bytes]]:
    return [pair for pair in zip(before.split(b"\n"), after.split(b"\n"), strict=True) if pair[0] != pair[1]]


FORMS = [
    f'IMAGE = "{OLD_IMAGE}"\n',
    f"IMAGE = '{OLD_IMAGE}'  # noqa: E501\n",
    f"IMAGE = '''{OLD_IMAGE}'''\n",
    f'IMAGE: str = r"{OLD_IMAGE}"\n',
    f'IMAGE = f"{OLD_IMAGE}"\n',
    f'IMAGE = "{REPOSITORY}" F"@{OLD}"\n',
    f'IMAGE = (("{REPOSITORY}" "@{OLD}"))\n',
    f'IMAGE = "ghcr.io/" \\\n    "marin-community/marinskyrl@sha256:" "{OLD[7:]}"\n',
    f'IMAGE: str\nIMAGE = "\\x67hcr.io/marin-community/marinskyrl" "" "@{OLD}"\n',
    f'import os\nIMAGE = os.environ.get("IMAGE", "{OLD_IMAGE}")\n',
    f'import os\nIMAGE = os.getenv("IMAGE", default="{OLD_IMAGE}")\n',
    f'import os\nIMAGE = os.environ.get("IMAGE") or (\n    "{REPOSITORY}"\n    "@{OLD}"\n)\n',
    f'OTHER = 1; IMAGE = "{OLD_IMAGE}"; IMAGES = "{OLD_IMAGE}"\n',
    f'_ONE = "{OLD_IMAGE}"\nIMAGE = _ONE\n',
    f'if True:\n\tIMAGE = (\n\t"{REPOSITORY}"\n# é ✓ @{OLD}\n\n\t"@{OLD}" # {OLD}\n\t)\n',
    f'def f():\n    IMAGE = "x"\nclass K:\n    IMAGE = "{OLD_IMAGE}"\nIMAGE = "{OLD_IMAGE}"',
]


@pytest.mark.parametrize("layout", ["plain", "crlf", "mark"])
@pytest.mark.parametrize("form", FORMS)
def test_a_constant_is_replaced_in_every_form(form: str, layout: str) -> None:
    source = form.encode()
    source = source.replace(b"\n", b"\r\n") if layout == "crlf" else source
    source = codecs.BOM_UTF8 + source if layout == "mark" else source
    found = launcher.locate(source, IMAGE)
    assert found.value == OLD_IMAGE
    after = launcher.replace(source, {IMAGE: NEW_IMAGE})
    meant = {"IMAGE": NEW_IMAGE, "_ONE": NEW_IMAGE}
    assert strings(after) == {name: meant.get(name, value) for name, value in strings(source).items()}
    assert len(changed_lines(source, after)) == 1
    assert launcher.replace(after, {IMAGE: NEW_IMAGE}) == after
    assert launcher.replace(after, {IMAGE: OLD_IMAGE}) == source or b"\\x67" in source


def test_a_constant_of_a_class_is_another_one() -> None:
    source = FORMS[-1].encode()
    after = launcher.replace(source, {replace(IMAGE, name="K.IMAGE"): NEW_IMAGE})
    assert (evaluated(after)["K"].IMAGE, evaluated(after)["IMAGE"]) == (NEW_IMAGE, OLD_IMAGE)
    with pytest.raises(ConfigurationError, match=r"K.IMAGE is set 2 times: launch.py:4, launch.py:6"):
        launcher.locate(source + b"\nK.IMAGE = 'b'", replace(IMAGE, name="K.IMAGE"))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("OTHER = 1\n", "IMAGE is set nowhere in launch.py"),
        ("IMAGE = 'a'\nX = 1\nIMAGE = 'b'\n", "IMAGE is set 2 times: launch.py:1, launch.py:3"),
        (
            "try:\n    from x import IMAGE\nexcept ImportError:\n    IMAGE = 'a'\n",
            "2 times: launch.py:2, launch.py:4",
        ),
        ("IMAGE = 'a'\nIMAGE += 'b'\n", "2 times: launch.py:1, launch.py:2"),
        ("IMAGE = 'a'\ndef f():\n    global IMAGE\n    IMAGE = 'b'\n", "2 times: launch.py:1, launch.py:4"),
        ("from x import IMAGE\n", "launch.py:1: IMAGE is computed"),
        ("\nIMAGE = OTHER = 'a'\n", "launch.py:2: IMAGE is computed"),
        ("IMAGE, OTHER = 'a', 'b'\n", "launch.py:1: IMAGE is computed"),
        ("IMAGE = 'a' + 'b'\n", "launch.py:1: IMAGE is computed"),
        ("IMAGE = b'a'\n", "launch.py:1: IMAGE is computed"),
        ("import x\nIMAGE = (\n  f'a{x.y}'\n)\n", "launch.py:3: IMAGE is computed"),
        ("X = 'a'\nIMAGE = f'{X!r}'\n", "launch.py:2: IMAGE is computed"),
        ("IMAGE = get('a', 'b')\n", "launch.py:1: IMAGE is computed"),
        ("IMAGE = os.getenv(default='a', key='b')\n", "launch.py:1: IMAGE is computed"),
        ("IMAGE = os.getenv('X', 'a') or 'b'\n", "launch.py:1: IMAGE is computed"),
        ("IMAGE = A\nA = IMAGE\n", "launch.py:1: IMAGE is computed"),
        ("IMAGE = (\n", "launch.py is not Python: Syntax Error @ "),
        ("# coding: latin-1\nIMAGE = 'a'\n", "launch.py is in"),
    ],
)
def test_what_is_not_there_exactly_once_as_a_string_is_refused_with_its_place(source: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        launcher.replace(source.encode(), {IMAGE: "ghcr.io/a/b:c"})


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("IMAGE = {'a': {'f': 'x'}, 'A': {'f': 'y'}}\n", r"IMAGE\[a\].f is there 2 times: launch.py:1"),
        ("IMAGE = {\n 'a': 1,\n 'a': 2}\n", "2 times: launch.py:2, launch.py:3"),
        ("IMAGE = [\n {'n': 'b'}]\n", r"launch.py:1 holds no IMAGE\[a\].f"),
        ("IMAGE = {\n 'a': {'g': 'x'}}\n", r"launch.py:2 holds no IMAGE\[a\].f"),
        ("IMAGE = {'a': I('x')}\n", r"launch.py:1 holds no IMAGE\[a\].f"),
        ("IMAGE = {'a': I(\n**more)}\n", "launch.py:2: a row with"),
        ("IMAGE = {'a': {'f': 'x'},\n**more}\n", "launch.py:2: a table with"),
        ("IMAGE = {'a': {'f': 'x'}}\nIMAGE['a']['f'] = 'y'\n", "2 times: launch.py:1, launch.py:2"),
        ("IMAGE = {'a': {'f': 'x'}}\nIMAGE.update(a=1)\n", "2 times: launch.py:1, launch.py:2"),
        ("IMAGE = {k: {'f': 'x'} for k in 'a'}\n", "holds no"),
    ],
)
def test_a_row_that_is_not_there_exactly_once_is_refused_with_its_place(source: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        launcher.locate(source.encode(), replace(IMAGE, key=("a",), field="f"))


def test_only_the_digest_between_the_decoys_changes() -> None:
    place = Place(Path("commented.py"), "DEFAULT_RL_DOCKER_IMAGE")
    before = (LAUNCHERS / place.file).read_bytes()
    after = launcher.replace(before, {place: NEW_IMAGE})
    ((old, new),) = changed_lines(before, after)
    assert old.lstrip().startswith(f'"@{OLD}"'.encode()) and new == old.replace(b"1" * 64, b"9" * 64)
    assert after.count(NEW.encode()) == 1


def test_another_repository_leaves_the_digest_on_its_line() -> None:
    before = f'IMAGE = (\n    "ghcr.io/open-thoughts/"\n    "openthoughts-agent"\n    "@{OLD}"\n)\n'.encode()
    after = launcher.replace(before, {IMAGE: NEW_IMAGE})
    assert after.decode().splitlines()[3:] == [f'    "@{NEW}"', ")"]
    assert evaluated(after)["IMAGE"] == NEW_IMAGE


def test_the_parts_that_fit_keep_their_tokens() -> None:
    before = f'IMAGE = (\n    "localhost:5000/"\n    "team/image"\n    "@{OLD}"\n)\n'.encode()
    after = launcher.replace(before, {IMAGE: f"ghcr.io/team/image@{OLD}"})
    assert changed_lines(before, after) == [(b'    "localhost:5000/"', b'    "ghcr.io/"')]


def test_two_constants_change_together_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "two_constants.py"
    before = (LAUNCHERS / file.name).read_bytes()
    file.write_bytes(before)
    file.chmod(0o750)
    (tmp_path / "link.py").symlink_to(file)
    plain, megatron = (Place(Path("link.py"), f"DEFAULT_RL_{name}DOCKER_IMAGE") for name in ("", "MEGATRON_"))
    with pytest.raises(ConfigurationError, match="NONE is set nowhere"):
        launcher.rewrites(tmp_path, {plain: NEW_IMAGE, replace(plain, name="NONE"): NEW_IMAGE})
    made = launcher.rewrites(tmp_path, {plain: NEW_IMAGE, megatron: NEW_IMAGE})
    assert file.read_bytes() == before
    launcher.write(made)
    assert evaluated(file.read_bytes())["image"]("megatron") == NEW_IMAGE
    assert evaluated(file.read_bytes())["image"]("fsdp") == NEW_IMAGE
    assert (file.stat().st_mode & 0o777, (tmp_path / "link.py").is_symlink()) == (0o750, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.py", file.name]
    with pytest.raises(ConfigurationError, match="was changed in the meantime"):
        launcher.write(made)


def row(variant: str, field: str, architecture: str = "amd64") -> Place:
    return Place(Path("table.py"), "IMAGES", (architecture, variant), field)


def row_values(variant: str, commit: str, digest: str, architecture: str = "amd64") -> dict[Place, str]:
    prefix = "gpu-rl-megatron" if variant == "megatron" else "gpu-rl"
    values = {"digest": digest, "tag": f"{prefix}-{commit}", "source_commit": commit}
    return {row(variant, field, architecture): value for field, value in values.items()}


def test_rows_that_share_a_commit_change_together() -> None:
    before = (LAUNCHERS / "table.py").read_bytes()
    changes = row_values("standard", "9" * 40, NEW) | row_values("megatron", "9" * 40, "sha256:" + "8" * 64)
    after = launcher.replace(before, changes)
    images = {tuple(map(str, key)): image for key, image in evaluated(after)["IMAGES"].items()}
    assert len(changed_lines(before, after)) == 3
    assert images["amd64", "megatron"].tag == f"gpu-rl-megatron-{'9' * 40}"
    assert (images["amd64", "standard"].digest, images["arm64", "standard"].digest) == (NEW, OLD)
    assert {place: launcher.current(after, place) for place in changes} == changes


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            row_values("standard", "9" * 40, NEW),
            r"SOURCE_COMMIT, which is used at table.py:\d+, table.py:\d+ too",
        ),
        ({row("standard", "tag"): "gpu-rl-" + "9" * 40}, "would be 'gpu-rl-1+', not 'gpu-rl-9+'"),
    ],
)
def test_a_row_never_changes_another_through_a_constant(changes: dict[Place, str], says: str) -> None:
    before = (LAUNCHERS / "table.py").read_bytes()
    with pytest.raises((ConfigurationError, InputError), match=says):
        launcher.replace(before, changes)


def test_one_string_cannot_have_two_values() -> None:
    places = [replace(IMAGE, name=name) for name in "AB"]
    with pytest.raises(ConfigurationError, match=r"launch.py:2: A would be 'c', not 'b'"):
        launcher.replace(b"_X = 'a'\nA = _X\nB = _X\n", dict(zip(places, "bc", strict=True)))


def test_a_row_with_a_commit_of_its_own_changes_alone() -> None:
    before = (LAUNCHERS / "table.py").read_bytes()
    after = launcher.replace(before, row_values("standard", "9" * 40, NEW, "arm64"))
    assert len(changed_lines(before, after)) == 2
    assert f'ARM64_SOURCE_COMMIT = "{"9" * 40}"'.encode() in after


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (Place(Path("rows.py"), "NESTED", ("amd64", "megatron"), "digest"), NEW),
        (Place(Path("rows.py"), "LISTED", ("amd64", "standard"), "image"), NEW_IMAGE),
        (Place(Path("rows.py"), "LISTED", ("megatron",), "image"), NEW_IMAGE),
    ],
)
def test_rows_of_other_shapes(place: Place, value: str) -> None:
    before = (LAUNCHERS / place.file).read_bytes()
    after = launcher.replace(before, {place: value})
    assert len(changed_lines(before, after)) == 1
    for other in (
        Place(place.file, "NESTED", (architecture, "standard"), "digest")
        for architecture in ("amd64", "arm64")
    ):
        assert launcher.current(after, other) == OLD
    assert launcher.current(after, place) == value
    assert launcher.replace(after, {place: launcher.current(before, place)}) == before


@pytest.mark.parametrize("value", ["", 'a"b', "a\\b", "a{b}", "a\nb", "é"])
def test_a_value_that_would_need_an_escape_is_refused(value: str) -> None:
    with pytest.raises(InputError, match="cannot be the value of IMAGE"):
        launcher.replace(b"IMAGE = 'a'\n", {IMAGE: value})


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_provenance_stands_above_the_constant_once_and_goes_again(ending: str) -> None:
    before = f'# why: é\nX = """\n# iris-images: no\n"""\n# theirs\nIMAGE = (\n    "{OLD_IMAGE}"\n)'
    source = before.replace("\n", ending).encode()
    after = launcher.replace(source, {IMAGE: NEW_IMAGE}, {IMAGE: NOTE})
    expected = before.replace("# theirs\n", f"# theirs\n# iris-images: {NOTE}\n").replace(OLD, NEW)
    assert after == expected.replace("\n", ending).encode()
    assert launcher.locate(after, IMAGE).note == NOTE
    assert launcher.replace(after, {IMAGE: NEW_IMAGE}, {IMAGE: NOTE}) == after
    after = after.replace(b"IMAGE =", b"# between" + ending.encode() + b"IMAGE =")
    source = source.replace(b"IMAGE =", b"# between" + ending.encode() + b"IMAGE =")
    later = launcher.replace(after, {}, {IMAGE: "later"})
    assert later == after.replace(NOTE.encode(), b"later")
    assert launcher.replace(later, {IMAGE: OLD_IMAGE}, {IMAGE: ""}) == source


def test_provenance_of_a_row_stands_above_the_row() -> None:
    before = (LAUNCHERS / "table.py").read_bytes()
    places = [row("megatron", field) for field in ("digest", "tag")]
    after = launcher.replace(before, {}, dict.fromkeys(places, NOTE))
    lines = after.decode().splitlines()
    at = lines.index(f"    # iris-images: {NOTE}")
    assert lines[at - 1].startswith("    # The two") and lines[at + 1].startswith(
        "    (Architecture.AMD64, Variant.M"
    )
    assert launcher.locate(after, places[0]).note == NOTE
    assert launcher.locate(after, row("standard", "digest")).note == ""
    with pytest.raises(InputError, match="one provenance, and two were given"):
        launcher.replace(before, {}, {places[0]: "a", places[1]: "b"})


def test_provenance_needs_a_line_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match=r"launch.py:1: provenance goes above"):
        launcher.replace(b"X = 1; IMAGE = 'a'\n", {}, {IMAGE: NOTE})


@pytest.mark.parametrize("reason", ["", " ", "a\nb", "a\u2028b", "a" * 101])
def test_a_reason_is_one_line(reason: str) -> None:
    with pytest.raises(InputError, match="cannot stand beside a pin"):
        launcher.note("tag", "2026-12-01", "9" * 40, reason)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_git_applies_the_diff(checkout: Path, end: bytes) -> None:
    before = b"# \x0c \xe2\x80\xa8\r\nIMAGE = 'a'" + end
    after = launcher.replace(before, {IMAGE: "b"})
    (checkout / "launch.py").write_bytes(before)
    patch = launcher.diff(before, after, "launch.py")
    command.run(["git", "-C", str(checkout), "apply", "-"], timeout=60, text_in=patch)
    assert (checkout / "launch.py").read_bytes() == after
    assert launcher.diff(before, before, "launch.py") == ""


class Layout:
    """A launcher made by chance: constants, tables, and decoys of every kind around them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311  no secret
        self.held: dict[Place, str] = {}
        makers = [self.constant, self.constant, self.table, self.decoy, self.decoy, self.function]
        self.chance.shuffle(makers)
        text = '"""@sha256:é ✓\n# iris-images: no\n"""\n' + "".join(
            maker(f"N{at}") for at, maker in enumerate(makers)
        )
        text = text if self.chance.random() < 0.8 else text.rstrip("\n")
        data = text.replace("\n", self.chance.choice(["\n", "\r\n"])).encode()
        self.source = self.chance.choice([b"", codecs.BOM_UTF8]) + data

    def digest(self) -> str:
        return f"sha256:{self.chance.getrandbits(256):064x}"

    def value(self, field: str = "") -> str:
        return self.digest() if field == "digest" else f"{REPOSITORY}@{self.digest()}"

    def comment(self) -> str:
        return f"# {self.value()} \"'{self.chance.choice(['é…', '✓', 'sha256:'])} (before: {self.digest()})"

    def literal(self, value: str) -> str:
        quote = self.chance.choice(["'", '"', "'''", '"""'])
        return self.chance.choice(["", "r", "f", "F", "Rf", "u"]) + quote + value + quote

    def spelled(self, value: str) -> str:
        """A value as one string or as a concatenation that is split anywhere, with comments in between."""
        cuts = sorted(self.chance.sample(range(1, len(value)), self.chance.choice([0, 0, 1, 2, 4])))
        parts = [self.literal(value[a:b]) for a, b in pairwise([0, *cuts, len(value)])]
        between = [f"\n  {self.comment()}\n\n    ", "\n", " ", f"  {self.comment()}\n"]
        text = parts[0] + "".join(self.chance.choice(between) + part for part in parts[1:])
        return f"({text})" if len(parts) > 1 or self.chance.random() < 0.3 else text

    def constant(self, name: str) -> str:
        value = self.held[Place(IMAGE.file, name)] = self.value()
        text = f"{name}{self.chance.choice(['', ': str'])} = {self.spelled(value)}"
        return self.around(text)

    def decoy(self, name: str) -> str:
        return self.around(f"{name} = ({self.spelled(self.value())}, {self.spelled(self.digest())})")

    def function(self, name: str) -> str:
        inner = "\n    ".join(f"N{at} = {self.literal(self.value())}" for at in range(6))
        return self.around(f"def {name}():\n    {inner}")

    def around(self, text: str) -> str:
        lines = [self.comment() for _ in range(self.chance.choice([0, 0, 1, 3]))]
        return "\n".join([*lines, text + self.chance.choice(["", f"  {self.comment()}"]), "", ""])

    def table(self, name: str) -> str:
        shape = self.chance.choice(["tuple", "nested", "list"])
        rows = []
        for key in (("amd64", "standard"), ("amd64", "megatron"), ("arm64", "standard")):
            fields = {field: self.value(field) for field in ("digest", "image")}
            self.held |= {Place(IMAGE.file, name, key, field): value for field, value in fields.items()}
            rows.append(self.row(shape, key, fields))
        return (
            self.around(f"{name} = [\n" + "".join(rows) + "]")
            if shape == "list"
            else self.dict(name, shape, rows)
        )

    def row(self, shape: str, key: tuple[str, str], fields: dict[str, str]) -> str:
        named = fields if shape != "list" else {"architecture": key[0], "variant": key[1], **fields}
        items = [(field, self.spelled(value)) for field, value in named.items()]
        self.chance.shuffle(items)
        body = self.chance.choice(
            [
                "{" + ", ".join(f"{self.literal(field)}: {value}" for field, value in items) + "}",
                "dict(\n" + "".join(f"        {field}={value},\n" for field, value in items) + "    )",
            ]
        )
        names = {"tuple": f"({', '.join(map(self.spelled, key))}): ", "nested": f"{self.literal(key[1])}: "}
        return f"    {self.comment()}\n    {names.get(shape, '')}{body},\n"

    def dict(self, name: str, shape: str, rows: list[str]) -> str:
        if shape == "nested":
            rows = ["    'amd64': {\n", *rows[:2], "    },\n    'arm64': {\n", rows[2], "    },\n"]
        return self.around(f"{name} = {{\n" + "".join(rows) + "}")


def values(source: bytes, places: Iterable[Place]) -> dict[Place, str]:
    """What Python finds at each place."""
    names = evaluated(source)
    return {place: _value(names[place.name], place) for place in places}


def _value(held: str | list[dict[str, str]] | dict[Any, Any], place: Place) -> str:
    if isinstance(held, list):
        held = next(one for one in held if {*place.key} <= {*one.values()})
    elif place.key:
        held = held[place.key] if place.key in held else held[place.key[0]][place.key[1]]
    return str(held[place.field] if place.field else held)


def code(source: bytes) -> list[str]:
    """Every token that is no string, comments included."""
    tokens = tokenize.tokenize(io.BytesIO(source).readline)
    return [token.string for token in tokens if "STRING" not in tokenize.tok_name[token.type]]


@pytest.mark.parametrize("seed", range(24))
def test_in_any_layout_only_the_right_tokens_change(seed: int) -> None:
    layout = Layout(seed)
    before, chance = layout.source, layout.chance
    assert values(before, layout.held) == layout.held
    chosen = chance.sample(sorted(layout.held, key=str), chance.randint(1, 4))
    changes = {place: layout.value(place.field) for place in chosen}
    after = launcher.replace(before, changes)
    assert values(after, layout.held) == layout.held | changes
    assert {name: value for name, value in evaluated(after).items() if isinstance(value, tuple)} == {
        name: value for name, value in evaluated(before).items() if isinstance(value, tuple)
    }
    assert code(after) == code(before)
    noted = launcher.replace(after, {}, dict.fromkeys(chosen, NOTE))
    assert noted.replace(f"# iris-images: {NOTE}".encode(), b"").split() == after.split()
    assert (
        launcher.replace(noted, {place: layout.held[place] for place in chosen}, dict.fromkeys(chosen, ""))
        == before
    )
