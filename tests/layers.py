"""Layers as plain tar files, made entry by entry."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """An entry of a tar; `text` is a file's content or a link's target."""

    name: str
    kind: bytes = tarfile.REGTYPE
    text: str = ""


def link(name: str, target: str) -> Member:
    return Member(name, tarfile.SYMTYPE, target)


def hard(name: str, target: str) -> Member:
    return Member(name, tarfile.LNKTYPE, target)


def folder(name: str) -> Member:
    return Member(name, tarfile.DIRTYPE)


def packed(members: Sequence[Member]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.type = member.kind
            content = member.text.encode() if member.kind == tarfile.REGTYPE else b""
            info.linkname = "" if content else member.text
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()
