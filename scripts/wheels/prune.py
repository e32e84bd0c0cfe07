"""`inv wheels.prune`: published sets that no commit at the tip of a branch or a tag needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from scripts import command, sites
from scripts.errors import Absent, CredentialError, RegistryError, SourceError
from scripts.pins import dockerfile
from scripts.progress import say, size
from scripts.registry import crane
from scripts.settings import Settings
from scripts.source import unset
from scripts.wheels import manifest, sets, store
from scripts.wheels.store import Published

Pins = dict[str, str]
REFS = ("refs/heads", "refs/remotes", "refs/tags")


def prune(settings: Settings, context: Path, *, yes: bool = False) -> None:
    """Show which published sets are kept and why, which are not, and remove those with `yes`.

    Args:
        context: a git checkout; each of its branches and tags is read, those of its remotes too.

    Raises:
        SourceError: it is shallow or has no branch: then not every pin can be read, and nothing is proposed.
        CredentialError, RegistryError: the registry refuses; what was not removed is named.
    """
    pinned = list(pins(context))
    where = store.repository(settings)
    with sites.asking(settings, store.holder()) as accesses:
        published = accesses(where.host).ask(partial(store.listed, where))[0]
    reasons = {one.tag: keeps(one, pinned, settings) for one in published}
    for one in published:
        why = reasons[one.tag]
        say(f"{f'keep   ({why})' if why else 'remove'} {one.reference} {size(one.size)}")
    doomed = [one for one in published if not reasons[one.tag]]
    if not doomed:
        say("Nothing to remove.")
    elif yes:
        _remove(settings, doomed)
    else:
        say("Nothing was removed: give --yes.")


def keeps(one: Published, pinned: list[tuple[str, str, Pins]], settings: Settings) -> str:
    """Why a set is kept: a setting or a commit that names it, or whose pins it fits; empty: it is not."""
    for image, named in settings.wheels.items():
        if one.reference.digest in named or one.tag in named:
            return f"wheels.{image}"
    for ref, text, found in pinned:
        if one.reference.digest in text or one.tag in text or fits(one.manifest.key, found):
            return ref
    return ""


def fits(key: Pins, found: Pins) -> bool:
    """Whether a Dockerfile that takes CUDA wheels agrees with a key, in what both of them name.

    A key that was renamed, and one that no ARG gives (SOURCES, PLATFORM), keeps a set rather than not.
    """
    shared = key.keys() & found.keys()
    return "TORCH_CUDA_ARCH_LIST" in shared and all(
        manifest.normalised(name, found[name]) == manifest.normalised(name, key[name]) for name in shared
    )


def pins(context: Path) -> Iterator[tuple[str, str, Pins]]:
    """Of each branch and tag, and of the work tree: its name, its settings as text, the pins of a Dockerfile.

    Raises:
        SourceError: see `prune`.
    """
    git = ["git", "-C", str(context)]
    if _git(git, "rev-parse", "--is-shallow-repository") != "false":
        raise SourceError(f"{context} is shallow: its other branches are not here.", "git fetch --unshallow.")
    refs = _git(git, "for-each-ref", "--format=%(refname)", *REFS).splitlines()
    if not refs:
        raise SourceError(f"{context} has no branch and no tag.", "give the checkout whose pins count.")
    for ref in refs:
        names = _git(git, "ls-tree", "-r", "--name-only", ref).splitlines()
        settings = "\n".join(_show(git, ref, name) for name in names if name.endswith("invoke.yaml"))
        for name in names:
            if Path(name).name.startswith("Dockerfile"):
                yield ref, settings, derived(dockerfile.pins(_show(git, ref, name)))
    for path in (context / "docker").rglob("Dockerfile*"):
        yield "the work tree", "", derived(dockerfile.pins(path.read_text()))


def _git(git: list[str], *words: str) -> str:
    return command.output([*git, *words], env=unset())


def _show(git: list[str], ref: str, name: str) -> str:
    return _git(git, "show", f"{ref}:{name}")


def derived(found: Pins) -> Pins:
    """The pins with what a key derives from them: CUDA and PY."""
    more = {}
    if index := found.get("CUDA_INDEX"):
        more["CUDA"] = sets.cuda_version(index)
    if version := found.get("PYTHON_VERSION"):
        more["PY"] = "cp" + version.replace(".", "")
    return found | more


def _remove(settings: Settings, doomed: list[Published]) -> None:
    host = doomed[0].reference.host
    with sites.writing(settings, host) as env:
        for number, one in enumerate(doomed):
            try:
                # What the tag gives is looked at again: somebody may have moved it since.
                if (
                    crane.digest(replace(one.reference, tag=one.tag, digest=""), env=env)
                    == one.reference.digest
                ):
                    crane.ask(["delete", str(one.reference)], env=env)
            except Absent:
                pass
            except (RegistryError, CredentialError) as refused:
                left = ", ".join(str(one.reference) for one in doomed[number:])
                raise RegistryError(
                    f"{host} does not remove {one.reference}; still there: {left}.",
                    "some registries (ghcr.io) remove only through their own pages: remove it there.",
                    f"  {refused.what}",
                ) from refused
            say(f"removed {one.reference}")
