"""The registry's token: where it is found, and that neither half gives it away."""

from __future__ import annotations

import pytest

from scripts import credentials
from scripts.credentials import Credential
from scripts.errors import CredentialError


def test_the_halves_give_the_token_only_together() -> None:
    credential = Credential("user", "ghp_made-up-token")
    pad, half = credential.halves()
    joined = bytes(a ^ b for a, b in zip(bytes.fromhex(pad), bytes.fromhex(half), strict=True))
    assert joined.decode() == credential.token
    assert credential.token.encode().hex() not in (pad, half)
    assert credential.halves() != (pad, half)


def test_a_token_is_in_no_representation() -> None:
    assert "ghp_made-up-token" not in repr(Credential("user", "ghp_made-up-token"))


def test_the_environment_comes_first_and_old_names_are_known() -> None:
    found = credentials.find("ghcr.io", "", {"REGISTRY_USER": "me", "DOCKER_TOKEN": "made-up"})
    assert (found.user, found.token) == ("me", "made-up")


@pytest.mark.parametrize("token", ["dckr_pat_made-up", "made up", "mäde-up"])
def test_a_token_that_cannot_work_is_refused_before_the_build(token: str) -> None:
    with pytest.raises(CredentialError) as caught:
        credentials.find("ghcr.io", "me", {"REGISTRY_TOKEN": token})
    assert token not in str(caught.value)


def test_no_token_says_where_one_is_looked_for() -> None:
    with pytest.raises(CredentialError, match="REGISTRY_TOKEN"):
        credentials.find("registry.example", "me", {})
