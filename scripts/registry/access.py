"""Questions without any credential first, and with the user's own where a registry refuses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TypeVar

from scripts import credentials
from scripts.errors import Absent, CommandTimeout, CredentialError, RateLimited, RegistryError
from scripts.registry import crane
from scripts.registry.checks import Check, Verdict
from scripts.registry.image import Env

Answer = TypeVar("Answer")


class Access:
    """One registry, as somebody without a login sees it and as the user does."""

    def __init__(self, host: str, user: str | None, anonymous: Env, stack: ExitStack) -> None:
        self._host, self._user, self._anonymous, self._stack = host, user, anonymous, stack

    @cached_property
    def login(self) -> Env:
        """The environment of crane with the user's token; without one, with docker's own login.

        The token is for the registries of the user's own images: another one is not told it.
        """
        if self._user is None:
            return {}
        try:
            credential = credentials.find(self._host, self._user)
        except CredentialError:
            return {}
        return self._stack.enter_context(crane.logged_in(self._host, credential))

    def env(self, *, login: bool) -> Env:
        """The environment of crane with the login or without any."""
        return self.login if login else self._anonymous

    def ask(self, question: Callable[[Env], Answer]) -> tuple[Answer, bool]:
        """The answer, and whether it needed the login.

        Raises:
            CredentialError: refused with the login, too; whatever else the question raises.
        """
        try:
            return question(self.env(login=False)), False
        except CredentialError as refused:
            try:
                return question(self.login), True
            except CredentialError:
                raise refused from None

    def check(self, where: str, question: Callable[[Env], object]) -> Check:
        """Whether everybody can read `where`. Private, absent, rate-limited and broken are four answers."""
        try:
            return readable(where, login=self.ask(question)[1])
        except Absent:
            return _unreadable(where, "absent: the registry says so", "push it, or correct its name.")
        except RateLimited as limited:
            return _unreadable(
                where, f"rate-limited, so not known: {limited.what}", "wait, and verify again."
            )
        except CredentialError:
            seen = "private or absent: refused, and no login here may read it"
            return _unreadable(where, seen, "make it public in the settings of the package, or push it.")
        except (RegistryError, CommandTimeout) as broken:
            return _unreadable(
                where, f"broken: {broken.what}", "verify again; if it stays, ask the registry."
            )


def readable(where: str, *, login: bool) -> Check:
    """The row of a repository that was read, with a login or without."""
    if login:
        step = "make it public in the settings of the package: that a login reads it proves nothing."
        return _unreadable(where, "private: a login can read it, nobody else", step)
    return Check("anonymous read", f"{where} without a login", "readable", Verdict.PASS)


def _unreadable(where: str, seen: str, step: str) -> Check:
    return Check("anonymous read", f"{where} without a login", seen, Verdict.FAIL, step)


Accesses = Callable[[str], Access]
"""The access to a registry, by its host."""


@contextmanager
def opened(user: str, own: Collection[str]) -> Iterator[Accesses]:
    """Access to registries by their host, until the end of the block.

    Args:
        user: the registry's user, where the settings name one.
        own: the hosts that the user's token is for.
    """
    known: dict[str, Access] = {}
    with ExitStack() as stack:
        anonymous = stack.enter_context(crane.anonymous())

        def of(host: str) -> Access:
            return known.setdefault(host, Access(host, user if host in own else None, anonymous, stack))

        yield of
