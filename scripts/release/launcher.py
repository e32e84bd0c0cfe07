"""The place in a launcher's Python source that holds an image: found by syntax, replaced token by token.

A launcher is full of digests that are not its value: in comments between the two halves of a string, in
constants that were superseded, in other rows of a table. So nothing is searched for as text. The source
is parsed with its comments and spaces (libcst), the value's tokens are found, their bytes are replaced,
and the result is parsed again: exactly the intended tokens may differ.
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import libcst as cst
from libcst import metadata

from scripts.errors import ConfigurationError, InputError
from scripts.release.syntax import Source, Token, parse, pieces_of, tokens_of

MARKER = "# iris-images: "
REASON_LIMIT = 100
WRITABLE = re.compile(r"[A-Za-z0-9._:/@+-]+")
"""What a reference, a tag or a commit is made of: needs no escape in any kind of string."""
ENVIRONMENT = ("os.environ.get", "environ.get", "os.getenv", "getenv")
CHANGING = ("update", "setdefault", "append", "extend", "insert")


@dataclass(frozen=True)
class Place:
    """Where a value lives.

    Attributes:
        file: relative to the root of the repository that holds the launcher.
        name: the constant; `Class.NAME` for one inside a class.
        key: the row, where the constant is a table: the parts of a dict's key, outer keys first, or, in a
            list, values that only this row has. A part is a string's value or the last name of an
            expression (`Architecture.AMD64` is "amd64"); case does not matter.
        field: the field of the row, where the row has some: a keyword argument or a dict's key.
    """

    file: Path
    name: str
    key: tuple[str, ...] = ()
    field: str = ""

    def __str__(self) -> str:
        row = f"[{', '.join(self.key)}]" if self.key else ""
        return f"{self.name}{row}" + (f".{self.field}" if self.field else "")


@dataclass(frozen=True)
class Located:
    """A value that was found.

    Attributes:
        value: what Python would compute.
        start, end: bytes of the source, from the first to the last token that carries the value; for one
            that is computed from another constant, those of the expression.
        line: from 1.
        note: the provenance beside it, without the marker; empty where there is none.
    """

    value: str
    start: int
    end: int
    line: int
    note: str


@dataclass(frozen=True)
class Rewrite:
    """A file, its bytes and what they are to become."""

    path: Path
    before: bytes
    after: bytes


def note(tag: str, date: str, revision: str, reason: str) -> str:
    """The provenance of a value, as it stands beside it: `TAG, DATE, revision COMMIT: REASON`.

    Raises:
        InputError: the reason is empty, over 100 characters or not one line of printable text.
    """
    if not reason.strip() or len(reason) > REASON_LIMIT or not reason.isprintable():
        raise InputError(
            f"The reason {reason!r} cannot stand beside a pin.",
            f"one line of 1 to {REASON_LIMIT} printable characters.",
        )
    return f"{tag}, {date}, revision {revision}: {reason.strip()}"


def locate(source: bytes, place: Place) -> Located:
    """Find a value; see `Place` for how it is described.

    Raises:
        ConfigurationError: it is not there exactly once, or is computed; names file and line.
    """
    parsed = parse(source, place.file)
    found = _find(parsed, place)
    nodes = found.tokens or (found.leaf,)
    beside = _note_beside(parsed, found.anchor)
    return Located(
        found.value,
        parsed.span(nodes[0])[0],
        parsed.span(nodes[-1])[1],
        parsed.line(nodes[0]),
        beside.value.removeprefix(MARKER) if beside else "",
    )


def current(source: bytes, place: Place) -> str:
    """The value that is there now. Raises: as `locate`."""
    return locate(source, place).value


def replace(source: bytes, changes: Mapping[Place, str], notes: Mapping[Place, str] | None = None) -> bytes:
    """The source with other values, and with provenance above the assignment or the row; all or nothing.

    A value may be computed from constants of the file: the name of one is followed, and an f-string over
    them must come out as asked once they are changed. A constant that is changed this way may have no
    other use than the places that are given. What is equal already is not touched.

    Args:
        source: the file; all places must be of it.
        changes: the value that each place shall have.
        notes: the text of `note` for a place; empty takes the line out.

    Raises:
        InputError: a value that cannot stand in a string of any kind; two notes for one line.
        ConfigurationError: as `locate`; a shared constant; a row without a line of its own for a note.
    """
    notes = notes or {}
    files = {place.file for place in (*changes, *notes)}
    if len(files) != 1:
        raise InputError(f"One source was given, and places of {len(files)} files.")
    parsed = parse(source, files.pop())
    edits = _edits(parsed, changes)
    splices = [(*parsed.span(token), text.encode()) for token, text in edits.items()]
    for start, end, data in sorted(splices + _note_splices(parsed, notes), reverse=True):
        source = source[:start] + data + source[end:]
    _verify(parsed, parse(source, parsed.file), changes, edits)
    return source


def rewrites(
    root: Path, changes: Mapping[Place, str], notes: Mapping[Place, str] | None = None
) -> list[Rewrite]:
    """What `replace` makes of every file that the places name, below a root; writes nothing.

    Raises:
        InputError, ConfigurationError: as `replace`; a file that is missing.
    """
    made = []
    for file in sorted({place.file for place in (*changes, *(notes or {}))}):
        try:
            before = (root / file).read_bytes()
        except OSError as missing:
            raise ConfigurationError(f"{root / file} cannot be read: {missing.strerror}.") from missing
        here = {place: value for place, value in changes.items() if place.file == file}
        beside = {place: text for place, text in (notes or {}).items() if place.file == file}
        made.append(Rewrite(root / file, before, replace(before, here, beside)))
    return made


def write(made: Sequence[Rewrite]) -> None:
    """Write files whole: each beside the old one and then in its place, with its mode; links stay links.

    Raises:
        ConfigurationError: a file is no longer what it was when the change was computed; nothing is written.
    """
    for one in made:
        if one.path.read_bytes() != one.before:
            raise ConfigurationError(f"{one.path} was changed in the meantime.", "run this again.")
    parts = [(path.with_name(f".{path.name}.part"), path) for path in (one.path.resolve() for one in made)]
    try:
        for one, (part, path) in zip(made, parts, strict=True):
            part.write_bytes(one.after)
            shutil.copymode(path, part)
        for part, path in parts:
            part.replace(path)
    finally:
        for part, _ in parts:
            part.unlink(missing_ok=True)


def diff(before: bytes, after: bytes, name: str) -> str:
    """A unified diff that `git apply` takes; empty when nothing differs."""
    # Only a line feed ends a line for git; a carriage return before it belongs to the line.
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", data.decode()) for data in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


@dataclass(frozen=True)
class _Found:
    """A value in the tree.

    Attributes:
        anchor: the assignment, or the row of the table.
        leaf: the expression that gives the value there.
        value: what it gives.
        tokens: the strings that carry it; none for an f-string over constants.
        uses: the names that were followed.
    """

    anchor: cst.CSTNode
    leaf: cst.CSTNode
    value: str
    tokens: tuple[Token, ...]
    uses: tuple[cst.Name, ...] = ()


def _find(source: Source, place: Place) -> _Found:
    anchor, node = _assigned(source, place.name)
    if place.key:
        anchor, node = _only(source, node, place, list(_rows(source, node, place.key)))
    if place.field:
        fields = [
            (entry, value) for names, entry, value in _entries(source, node) if _same(names, (place.field,))
        ]
        _, node = _only(source, node, place, fields)
    return _evaluated(source, place, anchor, node)


def _only(
    source: Source, holder: cst.CSTNode, place: Place, found: list[tuple[cst.CSTNode, cst.BaseExpression]]
) -> tuple[cst.CSTNode, cst.BaseExpression]:
    if len(found) > 1:
        raise ConfigurationError(
            f"{place} is there {len(found)} times: {source.at(*(entry for entry, _ in found))}.",
            "a place must be found exactly once: keep one, or describe it more closely.",
        )
    if not found:
        raise ConfigurationError(
            f"{source.at(holder)} holds no {place}.", "describe the place as the file has it now."
        )
    return found[0]


def _assigned(source: Source, name: str) -> tuple[cst.CSTNode, cst.BaseExpression]:
    """The one assignment of a constant and its value."""
    bound = _bindings(source, name)
    if len(bound) != 1:
        where = f"{len(bound)} times: {source.at(*bound)}" if bound else f"nowhere in {source.file}"
        raise ConfigurationError(
            f"{name} is set {where}.", "a constant must be set exactly once, by an assignment of its own."
        )
    holder = source.parents[bound[0]]
    if isinstance(holder, cst.AnnAssign) and holder.value:
        return holder, holder.value
    statement = source.parents[holder]
    if isinstance(statement, cst.Assign) and [target.target for target in statement.targets] == bound:
        return statement, statement.value
    raise _computed(source, bound[0], name)


def _bindings(source: Source, name: str) -> list[cst.CSTNode]:
    """Every node that sets a name, or changes what it holds, in the order of the text."""
    *classes, last = name.split(".")
    scope, changed = source.scopes[source.module], set[cst.CSTNode]()
    for part in classes:
        owners = scope.assignments[part] if scope else ()
        nodes = [owner.node for owner in owners if isinstance(owner, metadata.Assignment)]
        if len(nodes) != 1 or not isinstance(nodes[0], cst.ClassDef):
            return []
        scope = source.scopes[nodes[0].body.body[0]]
        changed |= _references(owners)
    assignments = scope.assignments[last] if scope else ()
    bound = {each.node for each in assignments if isinstance(each, metadata.Assignment)}
    bound = {node for node in bound if not _only_declares(source.parents[node])}
    changed |= _references(assignments)
    return sorted(bound | {node for node in changed if _is_changed(source, node)}, key=source.span)


def _references(assignments: Iterable[metadata.BaseAssignment]) -> set[cst.CSTNode]:
    return {access.node for assignment in assignments for access in assignment.references}


def _only_declares(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.AnnAssign) and node.value is None


def _is_changed(source: Source, node: cst.CSTNode) -> bool:
    """Whether a name's use sets an item or a field of what it holds, or calls a method that does."""
    parents, inner = source.parents, node
    while isinstance(holder := parents[inner], cst.Subscript | cst.Attribute) and holder.value is inner:
        inner = holder
    owner = parents[inner]
    if isinstance(owner, cst.Call) and owner.func is inner and isinstance(inner, cst.Attribute):
        return inner.attr.value in CHANGING
    return inner is not node and getattr(owner, "target", None) is inner


def _entries(
    source: Source, node: cst.BaseExpression
) -> Iterator[tuple[tuple[str, ...], cst.CSTNode, cst.BaseExpression]]:
    """The names, the element and the value of each entry of a dict or of a call's arguments."""
    node = _unwrapped(node)
    if isinstance(node, cst.Dict):
        for element in node.elements:
            if not isinstance(element, cst.DictElement):
                raise _computed(source, element, "a table with **")
            yield _names(element.key), element, element.value
    elif isinstance(node, cst.Call):
        for argument in node.args:
            if argument.star:
                raise _computed(source, argument, "a row with *")
            yield (argument.keyword.value,) if argument.keyword else (), argument, argument.value


def _rows(
    source: Source, node: cst.BaseExpression, key: tuple[str, ...]
) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """Every element of a table that a key fits, and its value."""
    node = _unwrapped(node)
    for element in node.elements if isinstance(node, cst.List | cst.Tuple) else ():
        held = {name.casefold() for _, _, value in _entries(source, element.value) for name in _names(value)}
        if {part.casefold() for part in key} <= held:
            yield element, element.value
    for names, entry, value in _entries(source, node):
        if names and _same(names, key[: len(names)]):
            rest = key[len(names) :]
            yield from _rows(source, value, rest) if rest else [(entry, value)]


def _unwrapped(node: cst.BaseExpression) -> cst.BaseExpression:
    """The table itself, where it stands in a call that wraps it, as in MappingProxyType({...})."""
    if isinstance(node, cst.Call) and len(node.args) == 1 and not node.args[0].keyword:
        inner = node.args[0].value
        return inner if isinstance(inner, cst.Dict | cst.List | cst.Tuple) else node
    return node


def _names(node: cst.BaseExpression) -> tuple[str, ...]:
    """What a key of a table can be called by."""
    if isinstance(node, cst.Tuple):
        return tuple(name for element in node.elements for name in _names(element.value))
    if isinstance(node, cst.Attribute):
        return (node.attr.value,)
    if isinstance(node, cst.Name):
        return (node.value,)
    pieces = [piece for token in tokens_of(node) for piece in pieces_of(token)]
    return ("".join(piece for piece in pieces if isinstance(piece, str)),) if pieces else ()


def _same(names: Sequence[str], key: Sequence[str]) -> bool:
    return [name.casefold() for name in names] == [part.casefold() for part in key]


def _evaluated(
    source: Source, place: Place, anchor: cst.CSTNode, leaf: cst.BaseExpression, seen: tuple[str, ...] = ()
) -> _Found:
    """What an expression gives: a string, a constant that holds one, or an f-string over such constants."""
    node = _default(source, leaf)
    tokens = carrying = tokens_of(node)
    value, uses = "", tuple[cst.Name, ...]()
    for piece in [piece for token in tokens for piece in pieces_of(token)] or [node]:
        if isinstance(piece, str):
            value += piece
            continue
        if not isinstance(piece, cst.Name) or piece.value in seen:
            raise _computed(source, node, str(place))
        held = _assigned(source, piece.value)[1]
        inner = _evaluated(source, place, anchor, held, (*seen, piece.value))
        value, uses = value + inner.value, (*uses, piece, *inner.uses)
        carrying = () if tokens else inner.tokens
    return _Found(anchor, node, value, carrying, uses)


def _default(source: Source, node: cst.BaseExpression) -> cst.BaseExpression:
    """The value that stands in the file, where the environment may give another."""
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
        return node.right if len(_asked(source, node.left)) == 1 else node
    asked = _asked(source, node)
    with_default = len(asked) == 2 and (asked[1].keyword is None or asked[1].keyword.value == "default")
    return asked[1].value if with_default else node


def _asked(source: Source, node: cst.BaseExpression) -> Sequence[cst.Arg]:
    """The arguments of a call that asks the environment; none for anything else."""
    return node.args if isinstance(node, cst.Call) and source.code(node.func) in ENVIRONMENT else ()


def _computed(source: Source, node: cst.CSTNode, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{source.at(node)}: {name} is computed.", "write it as a string, in one assignment of its own."
    )


def _edits(source: Source, changes: Mapping[Place, str]) -> dict[Token, str]:
    """The new text of every token that must change."""
    found = {place: _find(source, place) for place in changes}
    edits: dict[Token, str] = {}
    for place, value in changes.items():
        if not WRITABLE.fullmatch(value):
            raise InputError(f"{value!r} cannot be the value of {place}.", "give a reference, tag or commit.")
        if value == found[place].value or not found[place].tokens:
            continue
        _refuse_shared(source, place, found)
        edits |= _respelled(found[place].tokens, value)
    return edits


def _refuse_shared(source: Source, place: Place, found: Mapping[Place, _Found]) -> None:
    """A constant that a row names may only change when all that use it are meant."""
    meant = {name for each in found.values() for name in each.uses}
    for name in found[place].uses:
        scope = source.scopes[source.module]
        users = _references(scope.assignments[name.value] if scope else ()) - meant
        if users:
            raise ConfigurationError(
                f"{place} is the constant {name.value}, which is used at {source.at(*users)} too.",
                "give that row a constant of its own, or pin all of them together.",
            )


def _respelled(tokens: Sequence[Token], value: str) -> dict[Token, str]:
    """The tokens that differ when a concatenation shall give another value, with their prefix and quotes."""
    old = ["".join(piece for piece in pieces_of(token) if isinstance(piece, str)) for token in tokens]
    new = _spread(old, value)
    return {
        token: _quoted(token, after)
        for token, before, after in zip(tokens, old, new, strict=True)
        if before != after
    }


def _quoted(token: Token, text: str) -> str:
    if isinstance(token, cst.FormattedString):
        return token.start + text + token.end
    head = len(token.prefix) + len(token.quote)
    return token.value[:head] + text + token.quote


def _spread(parts: Sequence[str], value: str) -> list[str]:
    """Divide a value over the parts of another; a part that began at the tag or the digest does so again."""
    borders = list(accumulate(len(part) for part in parts))[:-1]
    cuts: dict[int, int] = {}
    for old, new in zip(_suffixes("".join(parts)), _suffixes(value), strict=True):
        if old in borders:
            cuts.setdefault(borders.index(old) + 1, new)
    ends = [(0, 0), *cuts.items(), (len(parts), len(value))]
    return [text for (i, a), (j, b) in pairwise(ends) for text in _fill(parts[i:j], value[a:b])]


def _suffixes(reference: str) -> tuple[int, int]:
    """Where a reference's tag and its digest begin; its end where it has none."""
    at = len(reference.partition("@")[0])
    colon = reference.rfind(":", reference.rfind("/", 0, at) + 1, at)
    return (at if colon < 0 else colon), at


def _fill(parts: Sequence[str], value: str) -> list[str]:
    """Divide a value by the lengths of the parts; the last has the rest; parts at the end that fit stay."""
    if len(parts) < 2:
        return [value]
    if value.endswith(parts[-1]):
        return [*_fill(parts[:-1], value.removesuffix(parts[-1])), parts[-1]]
    size = len(parts[0])
    return [value[:size], *_fill(parts[1:], value[size:])]


def _note_beside(source: Source, anchor: cst.CSTNode) -> cst.Comment | None:
    """Our comment among the comment lines directly above an assignment or a row."""
    above = {
        source.span(node)[1]: node
        for node in source.nodes
        if isinstance(node, cst.EmptyLine) and node.comment
    }
    end = source.line_start(anchor)
    while line := above.get(end):
        if line.comment and line.comment.value.startswith(MARKER):
            return line.comment
        end = source.span(line)[0]
    return None


def _note_splices(source: Source, notes: Mapping[Place, str]) -> list[tuple[int, int, bytes]]:
    """First byte, last byte and new bytes of each line of provenance that is written, changed or removed."""
    beside: dict[int, tuple[cst.CSTNode, str]] = {}
    for place, text in notes.items():
        anchor = _find(source, place).anchor
        line = source.line_start(anchor)
        if beside.setdefault(line, (anchor, text)) != (anchor, text):
            raise InputError(f"{source.at(anchor)} can hold one provenance, and two were given.")
    return [_note_splice(source, anchor, text) for anchor, text in beside.values()]


def _note_splice(source: Source, anchor: cst.CSTNode, text: str) -> tuple[int, int, bytes]:
    line, (start, _) = source.line_start(anchor), source.span(anchor)
    indent = source.data[line:start]
    if indent.strip():
        raise ConfigurationError(
            f"{source.at(anchor)}: provenance goes above the line, and other code begins it.",
            "begin a line with it.",
        )
    if comment := _note_beside(source, anchor):
        start, end = source.span(comment if text else source.parents[comment])
        return start, end, (MARKER + text).encode() if text else b""
    whole = indent + (MARKER + text + source.module.default_newline).encode()
    return line, line, whole if text else b""


def _verify(before: Source, after: Source, changes: Mapping[Place, str], edits: Mapping[Token, str]) -> None:
    """Require that the intended tokens changed, no other did, and every place gives what was asked."""
    wanted = [edits.get(token) or before.code(token) for token in _strings(before)]
    if wanted != [after.code(token) for token in _strings(after)]:
        raise ConfigurationError(f"Other strings of {before.file} would change, too.", "edit it by hand.")
    for place, value in changes.items():
        found = _find(after, place)
        if found.value != value:
            raise ConfigurationError(
                f"{after.at(found.leaf)}: {place} would be {found.value!r}, not {value!r}.",
                f"it follows from {', '.join(name.value for name in found.uses) or 'a shared string'}: "
                "give what that is for, too.",
            )


def _strings(source: Source) -> Iterator[Token]:
    return (node for node in source.nodes if isinstance(node, cst.SimpleString | cst.FormattedString))
