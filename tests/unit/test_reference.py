"""References: what is refused before anything is asked."""

from __future__ import annotations

import pytest

from scripts.errors import InputError
from scripts.registry.reference import Reference, parse

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("ghcr.io/team/image:tag", Reference("ghcr.io", "team/image", "tag")),
        ("127.0.0.1:5005/a/b", Reference("127.0.0.1:5005", "a/b")),
        (f"localhost/im:t@{DIGEST}", Reference("localhost", "im", "t", DIGEST)),
        (f"[::1]:5000/a__b/c-d@{DIGEST}", Reference("[::1]:5000", "a__b/c-d", "", DIGEST)),
    ],
)
def test_a_reference_is_read_and_written_alike(text: str, parsed: Reference) -> None:
    assert parse(text) == parsed
    assert str(parsed) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "registry"),
        ("image:tag", "registry"),
        ("team/image:tag", "registry"),
        ("ghcr.io/Team/image", "repository"),
        ("ghcr.io/a:tag", "repository"),
        ("ghcr.io/team/image ", "repository"),
        ("ghcr.io/team/$IMAGE", "repository"),
        ("ghcr.io/team/image:${TAG}", "tag"),
        ("ghcr.io/team/image:-tag", "tag"),
        ("ghcr.io/team/image:" + "t" * 129, "tag"),
        ("ghcr.io/team/image:torch2.11+cu129", "tag"),
        ("ghcr.io/team/image:tag\n", "tag"),
        ("ghcr.io/team/image:", "tag"),
        ("ghcr.io/team/image@sha256:abc", "digest"),
        ("ghcr.io/team/image@" + DIGEST.upper(), "digest"),
    ],
)
def test_what_is_wrong_is_named(text: str, part: str) -> None:
    with pytest.raises(InputError, match=f"the {part} "):
        parse(text)
