"""Python source as a tree that keeps every byte: where its tokens stand, and what its strings mean."""

from __future__ import annotations

import ast
import codecs
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import libcst as cst
from libcst import metadata

from scripts.errors import ConfigurationError

Token = cst.SimpleString | cst.FormattedString


class Source:
    """Python source and its tree: where each node stands and which names mean what."""

    def __init__(self, data: bytes, file: Path) -> None:
        self.data, self.file, self.module = data, file, cst.parse_module(data)
        # libcst takes a byte order mark off and does not count it.
        self._mark = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        self._wrapper = metadata.MetadataWrapper(self.module, unsafe_skip_copy=True)
        self._spans = self._wrapper.resolve(metadata.ByteSpanPositionProvider)

    @cached_property
    def nodes(self) -> Sequence[cst.CSTNode]:
        """Every node, in the order in which they end in the text."""
        return list(self._spans)

    @cached_property
    def parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        """The node that holds each node."""
        return self._wrapper.resolve(metadata.ParentNodeProvider)

    @cached_property
    def scopes(self) -> Mapping[cst.CSTNode, metadata.Scope | None]:
        """The scope in which each node stands."""
        return self._wrapper.resolve(metadata.ScopeProvider)

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """First byte of a node, and the one behind its last."""
        start = self._spans[node].start + self._mark
        return start, start + self._spans[node].length

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node."""
        return self.data[slice(*self.span(node))].decode()

    def line_start(self, node: cst.CSTNode) -> int:
        """The first byte of the line on which a node begins."""
        start = self.span(node)[0]
        return max(self._mark, *(self.data.rfind(end, 0, start) + 1 for end in (b"\n", b"\r")))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a byte, both from 1, the column in characters."""
        before = self.data[self._mark : offset].decode().replace("\r\n", "\n").replace("\r", "\n")
        return before.count("\n") + 1, len(before) - before.rfind("\n")

    def line(self, node: cst.CSTNode) -> int:
        """The number, from 1, of the line on which a node begins."""
        return self.position(self.span(node)[0])[0]

    def at(self, *nodes: cst.CSTNode) -> str:
        """`file:line`, of each node."""
        return ", ".join(f"{self.file}:{line}" for line in sorted({self.line(node) for node in nodes}))


def parse(data: bytes, file: Path) -> Source:
    """Parse Python source.

    Raises:
        ConfigurationError: it is not Python, or not UTF-8.
    """
    try:
        source = Source(data, file)
    except (cst.ParserSyntaxError, UnicodeDecodeError, LookupError) as wrong:
        raise ConfigurationError(f"{file} is not Python: {str(wrong).splitlines()[0]}") from wrong
    if not source.module.encoding.lower().startswith("utf-8"):
        raise ConfigurationError(f"{file} is in {source.module.encoding}.", "save it in UTF-8.")
    return source


def tokens_of(node: cst.CSTNode) -> tuple[Token, ...]:
    """The string tokens of an expression: of one string or of an implicit concatenation; else none."""
    if isinstance(node, cst.ConcatenatedString):
        return tokens_of(node.left) + tokens_of(node.right)
    return (node,) if isinstance(node, cst.SimpleString | cst.FormattedString) else ()


def pieces_of(token: Token) -> Sequence[str | cst.CSTNode]:
    """What a token is made of: its text, and the expressions in it; bytes are one. Braces stay doubled."""
    if isinstance(token, cst.SimpleString):
        value = token.evaluated_value
        return (value if isinstance(value, str) else token,)
    return [_piece(token, part) for part in token.parts] or [""]


def _piece(token: cst.FormattedString, part: cst.BaseFormattedStringContent) -> str | cst.CSTNode:
    if isinstance(part, cst.FormattedStringText):
        plain = token.start.lower().replace("f", "") + part.value + token.end
        return str(ast.literal_eval(plain))
    plain_name = isinstance(part, cst.FormattedStringExpression) and not (
        part.conversion or part.format_spec or part.equal
    )
    return part.expression if isinstance(part, cst.FormattedStringExpression) and plain_name else part
