"""References to images: `host[:port]/path[:tag][@digest]`, checked before anything is asked.

The grammar is that of the OCI distribution specification, section "Pulling manifests"; the two
characters at least of a path are a limit of go-containerregistry, which crane and kaniko share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from scripts.errors import InputError

HOST = re.compile(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Reference:
    """A parsed reference. `path` is the repository without its host; tag and digest may be empty."""

    host: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        """Host and path."""
        return f"{self.host}/{self.path}"

    def at(self, digest: str) -> Reference:
        """The same repository by digest alone."""
        return replace(self, tag="", digest=digest)

    def __str__(self) -> str:
        return (
            self.repository
            + (f":{self.tag}" if self.tag else "")
            + (f"@{self.digest}" if self.digest else "")
        )


def parse(text: str) -> Reference:
    """Read a reference; the host must stand in it, nothing is assumed.

    Raises:
        InputError: says which part is wrong and what it may be.
    """
    rest, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise _wrong(text, f"the digest {digest!r}", "a digest is sha256: and 64 hexadecimal digits")
    host, slash, rest = rest.partition("/")
    if not slash or not HOST.fullmatch(host) or not ({".", ":"} & set(host) or host == "localhost"):
        raise _wrong(
            text, f"the registry {host!r}", "a reference begins with a registry, as in ghcr.io/team/image:tag"
        )
    path, colon, tag = rest.partition(":")
    if not PATH.fullmatch(path) or not 2 <= len(path) <= 255:
        raise _wrong(
            text, f"the repository {path!r}", "lower case letters, digits and . _ - /, 2 to 255 characters"
        )
    if colon and not TAG.fullmatch(tag):
        raise _wrong(text, f"the tag {tag!r}", "letters, digits and . _ -, at most 128, the first not . or -")
    return Reference(host, path, tag, digest)


def _wrong(text: str, part: str, rule: str) -> InputError:
    return InputError(f"{text!r} is not a reference to an image: {part} is not valid.", f"{rule}.")
