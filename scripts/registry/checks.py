"""Checks of an image by its manifest and configuration: what was expected, what was seen, what to do.

No check asks a registry: what they look at was read before, and is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from scripts.catalogue import Image
from scripts.progress import size
from scripts.registry import leaks
from scripts.registry.image import INDEXES, OCI, Named, Pushed

REVISION = "org.opencontainers.image.revision"
PIN_LABEL = "org.iris-images.pin."
NEAR = 0.8
"""The part of a ceiling from which a layer is warned of."""
GROWTH = 0.1
"""The part by which an image may grow from one build to the next before it is warned of."""
SLOW_BYTES_PER_SECOND, UPLOAD_SECONDS = 10_000_000, 600
"""ghcr.io ends an upload after ten minutes (docker/build-push-action#251); 10 MB/s is a slow node's rate."""
TAR = ("tar", "tar+gzip", "tar+zstd")
LAYER_TYPES = {
    "OCI manifest": {f"{OCI}layer.v1.{kind}" for kind in TAR},
    "Docker manifest": {"application/vnd.docker.image.rootfs.diff.tar.gzip"},
}


class Verdict(StrEnum):
    """What a check says; a greater one outweighs a smaller one."""

    PASS = "pass"  # noqa: S105
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One row of the verdict. `next` says what to do; empty where there is nothing."""

    check: str
    expected: str
    seen: str
    verdict: Verdict
    next: str = ""


@dataclass(frozen=True)
class Expected:
    """What was asked for, and where that is known from.

    Attributes:
        architecture: amd64 or arm64.
        revision: the commit, with `-dirty` where the checkout was; empty: nobody said.
        revision_source: who said which, in words.
        pins: the value of each pin label; None: the Dockerfile of that commit could not be read.
        pins_source: where the pins are from, or why they are not known.
        total: bytes of all layers of the build before; 0: none is on record.
    """

    architecture: str
    revision: str
    revision_source: str
    pins: Mapping[str, str] | None
    pins_source: str
    total: int = 0


def worst(checks: Sequence[Check]) -> Verdict:
    """The verdict over all of them."""
    order = list(Verdict)
    return max((check.verdict for check in checks), key=order.index, default=Verdict.PASS)


@dataclass(frozen=True)
class Result:
    """The verdict over one digest.

    Attributes:
        names: the references that were given for it.
        read: what was read, from where, and whether a login was needed.
    """

    names: tuple[str, ...]
    named: Named
    checks: tuple[Check, ...]
    read: dict[str, Any]
    when: str

    @property
    def verdict(self) -> Verdict:
        """The worst of the checks."""
        return worst(self.checks)

    def data(self) -> dict[str, Any]:
        """The same as a record holds it."""
        return {
            "when": self.when,
            "names": list(self.names),
            "reference": str(self.named.reference),
            "digest": self.named.reference.digest,
            "verdict": self.verdict,
            "read": self.read,
            "checks": [asdict(check) for check in self.checks],
        }


def of_named(named: Named, names: Sequence[str], architecture: str) -> Iterator[Check]:
    """Identity and, for an index, its children: what the reference gives, and whether all of it is there."""
    where = ", ".join(names)
    yield Check("identity", where, f"{named.reference} ({named.kind})", Verdict.PASS)
    if named.kind not in INDEXES:
        return
    if named.missing:
        missing = ", ".join(f"{child.digest} ({child.platform})" for child in named.missing)
        step = "push the index again: a node that needs that child cannot start."
        yield Check("index", "every child is in the registry", f"missing: {missing}", Verdict.FAIL, step)
    yield _platforms(named, architecture)
    if nested := [child.digest for child in named.children if child.kind in INDEXES]:
        seen = f"an index in the index: {', '.join(nested)}"
        step = "tools that copy or build lists refuse it; push the image itself."
        yield Check("nested index", "images", seen, Verdict.WARN, step)


def _platforms(named: Named, architecture: str) -> Check:
    images = [child for child in named.children if not child.attestation and child.kind not in INDEXES]
    found = sorted(child.platform or "no platform" for child in images)
    attestations = sum(child.attestation for child in named.children)
    seen = ", ".join(found) + (f"; {attestations} attestation(s)" if attestations else "")
    wanted = f"linux/{architecture}"
    fits = len(images) == 1 and images[0].runs_on(wanted)
    step = "" if fits else "push a tag for each architecture; a tag that was asked for one holds one."
    return Check(
        "platforms of the index",
        f"{wanted}, once",
        seen or "none",
        Verdict.PASS if fits else Verdict.FAIL,
        step,
    )


def no_image(architecture: str) -> Check:
    """The row of an index that has no image to look at: nothing else can be said of it."""
    step = "push an image for that architecture; nothing else was looked at."
    return Check("image", f"one for linux/{architecture}", "none that can be read", Verdict.FAIL, step)


def of_image(pushed: Pushed, image: Image, expected: Expected) -> Iterator[Check]:
    """All that one image's manifest and configuration say."""
    yield _platform(pushed, expected.architecture)
    yield _count(pushed, image)
    yield _largest(pushed, image)
    yield _total(pushed, expected)
    yield _media_types(pushed)
    yield _revision(pushed, expected)
    yield from _pins(pushed, expected)
    yield _secrets(pushed)
    yield _asserts(pushed, image)


def _platform(pushed: Pushed, architecture: str) -> Check:
    wanted, seen = f"linux/{architecture}", pushed.platform
    fits = seen == wanted or seen.startswith(f"{wanted}/")
    step = "" if fits else "build on a machine of that architecture; crane's --platform proves nothing."
    return Check(
        "platform", wanted, seen or "none in the configuration", Verdict.PASS if fits else Verdict.FAIL, step
    )


def _count(pushed: Pushed, image: Image) -> Check:
    count = len(pushed.layers)
    fits = count >= image.min_layers
    step = "" if fits else "build without a single snapshot: one RUN, one layer."
    verdict = Verdict.PASS if fits else Verdict.FAIL
    return Check("layer count", f"at least {image.min_layers}", str(count), verdict, step)


def _largest(pushed: Pushed, image: Image) -> Check:
    sizes = [layer.size for layer in pushed.layers] or [0]
    largest = max(sizes)
    seen = f"{size(largest)}, layer {sizes.index(largest) + 1} of {len(pushed.layers)}"
    verdict, step = Verdict.PASS, ""
    if largest > image.layer_ceiling:
        verdict, step = Verdict.FAIL, "split the step that makes it: nodes fail to pull such a layer."
    elif largest > min(NEAR * image.layer_ceiling, SLOW_BYTES_PER_SECOND * UPLOAD_SECONDS):
        verdict, step = Verdict.WARN, "split the step that makes it before it grows over the ceiling."
    return Check("largest layer", f"at most {size(image.layer_ceiling)}", seen, verdict, step)


def _total(pushed: Pushed, expected: Expected) -> Check:
    if not expected.total:
        return Check("total size", "no build before on record", size(pushed.total), Verdict.PASS)
    growth = pushed.total / expected.total - 1
    wanted = f"at most {GROWTH:.0%} over {size(expected.total)}, the build before"
    seen = f"{size(pushed.total)}, {growth:+.1%}"
    if growth <= GROWTH:
        return Check("total size", wanted, seen, Verdict.PASS)
    return Check("total size", wanted, seen, Verdict.WARN, "find what grew: compare the layers of the two.")


def _media_types(pushed: Pushed) -> Check:
    valid = LAYER_TYPES.get(pushed.kind, set())
    wrong = sorted({layer.media_type for layer in pushed.layers} - valid)
    described = len((pushed.config.get("rootfs") or {}).get("diff_ids") or [])
    expected = f"layers of an {pushed.kind}, as many as the configuration has"
    if wrong:
        step = "build it again with the layers and the manifest of one kind; zstd needs an OCI manifest."
        return Check("media types", expected, ", ".join(wrong), Verdict.FAIL, step)
    if described != len(pushed.layers):
        seen = f"{len(pushed.layers)} layers, {described} in the configuration"
        return Check("media types", expected, seen, Verdict.FAIL, "build it again: no node can unpack it.")
    kinds = sorted({layer.media_type.rpartition("tar")[2].lstrip("+.") or "tar" for layer in pushed.layers})
    return Check("media types", expected, f"{described} layers, {', '.join(kinds)}", Verdict.PASS)


def _revision(pushed: Pushed, expected: Expected) -> Check:
    seen = pushed.labels.get(REVISION, "")
    if not seen:
        step = "build it with GITSHA and the label of docker/Dockerfile.*."
        return Check("revision", expected.revision or "a commit", f"no label {REVISION}", Verdict.FAIL, step)
    if not expected.revision:
        return Check("revision", "not said", seen, Verdict.WARN, "--commit says which commit it must be.")
    wanted = f"{expected.revision} ({expected.revision_source})"
    if seen != expected.revision:
        step = "somebody else pushed this, or an old run did late; build that commit again."
        return Check("revision", wanted, seen, Verdict.FAIL, step)
    if seen.endswith("-dirty"):
        step = "commit, and build that: nobody can build this again."
        return Check("revision", wanted, seen, Verdict.WARN, step)
    return Check("revision", wanted, seen, Verdict.PASS)


def _pins(pushed: Pushed, expected: Expected) -> Iterator[Check]:
    if expected.pins is None:
        step = "fetch that commit, or name the checkout that has it with --context."
        yield Check(
            "pins", "those of the Dockerfile", f"not known: {expected.pins_source}", Verdict.FAIL, step
        )
        return
    seen = {name: pushed.labels.get(name, "") for name in expected.pins}
    wrong = {name: value for name, value in expected.pins.items() if seen[name] != value}
    for name, value in wrong.items():
        pin, wanted = name.removeprefix(PIN_LABEL), f"{value} ({expected.pins_source})"
        yield Check(f"pin {pin}", wanted, seen[name] or "no label", Verdict.FAIL, "build that commit again.")
    if not expected.pins:
        step = "label each pin in the Dockerfile, as the production ones do."
        yield Check("pins", f"labels {PIN_LABEL}*", "the Dockerfile has none", Verdict.WARN, step)
    elif not wrong:
        yield Check("pins", expected.pins_source, f"all {len(seen)} equal", Verdict.PASS)


def of_annotations(pushed: Pushed, of_index: Mapping[str, str]) -> Check:
    """Whether an annotation of the manifest, or of the index above it, contradicts a label."""
    found = [*pushed.annotations.items(), *of_index.items()]
    wrong = [(name, value) for name, value in found if pushed.labels.get(name, value) != value]
    seen = "; ".join(f"{name}: {value}, label: {pushed.labels[name]}" for name, value in wrong)
    if wrong:
        step = "believe the label, which is part of the image; find what annotated the manifest."
        return Check("annotations", "none contradicts a label", seen, Verdict.WARN, step)
    return Check("annotations", "none contradicts a label", f"{len(found)}", Verdict.PASS)


def _secrets(pushed: Pushed) -> Check:
    found = leaks.found(pushed.config)
    expected = "no value that looks like a secret in env, labels, history"
    if found:
        step = "revoke it now, delete the image, and take it out of the Dockerfile."
        return Check("secrets", expected, "; ".join(found), Verdict.FAIL, step)
    return Check("secrets", expected, "none", Verdict.PASS)


def _asserts(pushed: Pushed, image: Image) -> Check:
    argv = " ".join(image.asserts)
    steps = [entry.get("created_by") or "" for entry in pushed.config.get("history") or []]
    # At the end of the step, before BuildKit's own comment.
    ran = re.compile(rf"(?:^|\s){re.escape(argv)}\s*(?:# buildkit)?$")
    if any("COPY " not in step and ran.search(step) for step in steps):
        return Check("asserts", f"a step runs {argv}", "in the history", Verdict.PASS)
    step = "build it with the asserts as the last RUN: nothing has imported what is in it."
    return Check("asserts", f"a step runs {argv}", "not in the history", Verdict.FAIL, step)
