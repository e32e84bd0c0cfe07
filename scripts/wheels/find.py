"""`inv wheels.find`: which published set fits the Dockerfile's key, and what keeps the nearest from it."""

from __future__ import annotations

from functools import partial

from scripts import sites
from scripts.errors import WheelsRefused
from scripts.progress import say
from scripts.settings import Settings
from scripts.wheels import house, store
from scripts.wheels.sets import Target

Key = dict[str, str]
NEAREST = 3


def find(settings: Settings, target: Target) -> None:
    """Print the reference, by digest, of the published set for the Dockerfile's pins.

    Raises:
        WheelsRefused: none fits; the nearest are named with what differs.
        CredentialError, RegistryError: the registry did not answer.
    """
    where = store.repository(settings)
    with sites.asking(settings, store.holder()) as accesses:
        published = accesses(where.host).ask(partial(store.listed, where))[0]
    folder = house.folder(settings, target)
    made = not house.faults(folder, target)
    if fitting := [one for one in published if one.manifest.key == target.key]:
        if len(fitting) > 1:
            say(
                f"{len(fitting)} sets fit; the others: {', '.join(str(one.reference) for one in fitting[1:])}"
            )
        print(fitting[0].reference)
        return
    near = sorted(published, key=lambda one: len(differing(target.key, one.manifest.key)))[:NEAREST]
    raise WheelsRefused(
        f"None of {len(published)} sets in {where.repository} fits the key of {target.wheel_set.name}.",
        f"publish {folder}, which fits: inv wheels.publish --set={target.wheel_set.name}."
        if made
        else f"nox -s wheels -- --set {target.wheel_set.name} compiles it.",
        "\n".join(f"  {one.reference}: {'; '.join(differing(target.key, one.manifest.key))}" for one in near),
    )


def differing(wanted: Key, found: Key) -> list[str]:
    """What differs between two keys, each as one phrase; a key that only has another name is said to."""
    gone, new = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    renamed = {
        name: other
        for name in sorted(gone)
        for other in sorted(new)
        if wanted[name] == found[other] and found[other]
    }
    return [
        *(f"{name} is named {other} there, and its value is the same" for name, other in renamed.items()),
        *(
            f"{name} {found.get(name, 'is not there')}, wanted {wanted.get(name, 'nothing')}"
            for name in dict.fromkeys((*wanted, *found))
            if wanted.get(name) != found.get(name) and name not in (*renamed, *renamed.values())
        ),
    ]
