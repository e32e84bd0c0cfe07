"""Each check of an image, on manifests and configurations as registries show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scripts import catalogue
from scripts.registry import checks, reference
from scripts.registry.checks import Expected, Verdict
from scripts.registry.image import Child, Layer, Named, Pushed

COMMIT, OTHER = "1" * 40, "2" * 40
IMAGE = catalogue.load(Path(__file__).parents[2])["gpu-rl"]
ARGV = " ".join(IMAGE.asserts)
REFERENCE = reference.parse("ghcr.io/team/image@sha256:" + "a" * 64)
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
PINS = {"org.iris-images.pin.harbor-commit": OTHER}
EXPECTED = Expected("amd64", COMMIT, "--commit", PINS, "the Dockerfile")
LABELS = {"org.opencontainers.image.revision": COMMIT, **PINS}


def pushed(sizes: tuple[int, ...] = (1_000_000,) * 24, **changes: object) -> Pushed:
    """A fit image with layers of those sizes, and changes to its configuration."""
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Labels": LABELS},
        "rootfs": {"diff_ids": [f"sha256:{number}" for number in range(len(sizes))]},
        "history": [{"created_by": f"RUN check && {ARGV}"}],
        **changes,
    }
    layers = tuple(Layer(f"sha256:{number:064}", size, GZIP) for number, size in enumerate(sizes))
    return Pushed(REFERENCE, "OCI manifest", layers, config, "sha256:c", {})


def failing(image: Pushed, expected: Expected = EXPECTED, verdict: Verdict = Verdict.FAIL) -> list[str]:
    return [row.check for row in checks.of_image(image, IMAGE, expected) if row.verdict is verdict]


def test_a_fit_image_passes_every_check() -> None:
    rows = list(checks.of_image(pushed(), IMAGE, EXPECTED))
    assert {row.verdict for row in rows} == {Verdict.PASS}
    assert checks.worst(rows) is Verdict.PASS
    assert not any(row.next for row in rows)


@pytest.mark.parametrize(
    ("image", "failed"),
    [
        (pushed((16_600_000_000,)), ["layer count", "largest layer"]),
        (pushed((4_000_000_001, *(1,) * 23)), ["largest layer"]),
        (pushed((35_444_941_962, *(1,) * 23)), ["largest layer"]),
        (pushed((1,) * 20), ["layer count"]),
        (pushed(architecture="arm64"), ["platform"]),
        (pushed(os="windows"), ["platform"]),
        (pushed(rootfs={"diff_ids": ["sha256:1"]}), ["media types"]),
        (pushed(config={"Labels": PINS}), ["revision"]),
        (pushed(config={"Labels": LABELS | {"org.opencontainers.image.revision": OTHER}}), ["revision"]),
        (pushed(config={"Labels": LABELS | {next(iter(PINS)): COMMIT}}), ["pin harbor-commit"]),
        (pushed(config={"Labels": None}), ["revision", "pin harbor-commit"]),
        (pushed(config={"Labels": LABELS, "Env": ["HF_TOKEN=made-up"]}), ["secrets"]),
        (pushed(history=[]), ["asserts"]),
        (pushed(history=[{"created_by": f"COPY x {IMAGE.asserts[-1]} # buildkit"}]), ["asserts"]),
        (pushed(history=[{"created_by": f"RUN true # {ARGV} is not run"}]), ["asserts"]),
        (pushed(history=[{"created_by": f"RUN true # {IMAGE.asserts[-1]}"}]), ["asserts"]),
    ],
)
def test_each_fault_fails_its_check_and_no_other(image: Pushed, failed: list[str]) -> None:
    assert failing(image) == failed
    assert all(row.next for row in checks.of_image(image, IMAGE, EXPECTED) if row.verdict is Verdict.FAIL)


def test_sizes_near_the_ceiling_and_growth_are_warned_of() -> None:
    assert failing(pushed((3_300_000_000, *(1,) * 23)), verdict=Verdict.WARN) == ["largest layer"]
    grown = replace(EXPECTED, total=20_000_000)
    assert failing(pushed(), grown, Verdict.WARN) == ["total size"]
    assert failing(pushed(), replace(EXPECTED, total=23_000_000), Verdict.WARN) == []


def test_zstd_needs_an_oci_manifest() -> None:
    layers = tuple(replace(layer, media_type=GZIP.replace("gzip", "zstd")) for layer in pushed().layers)
    assert failing(replace(pushed(), layers=layers)) == []
    assert failing(replace(pushed(), layers=layers, kind="Docker manifest")) == ["media types"]


def test_a_dirty_build_and_a_commit_that_nobody_named_are_warned_of() -> None:
    dirty = pushed(config={"Labels": LABELS | {"org.opencontainers.image.revision": f"{COMMIT}-dirty"}})
    assert failing(dirty, replace(EXPECTED, revision=f"{COMMIT}-dirty"), Verdict.WARN) == ["revision"]
    assert failing(pushed(), replace(EXPECTED, revision=""), Verdict.WARN) == ["revision"]


def test_pins_that_cannot_be_known_fail() -> None:
    assert failing(pushed(), replace(EXPECTED, pins=None)) == ["pins"]


def test_an_annotation_that_contradicts_a_label_is_told() -> None:
    revision = "org.opencontainers.image.revision"
    right, wrong = {revision: COMMIT}, {revision: OTHER}
    assert checks.of_annotations(replace(pushed(), annotations=right), right).verdict is Verdict.PASS
    assert checks.of_annotations(replace(pushed(), annotations=wrong), {}).verdict is Verdict.WARN
    assert checks.of_annotations(pushed(), wrong).verdict is Verdict.WARN


def test_any_variant_of_the_architecture_fits() -> None:
    assert failing(pushed(variant="v3")) == []


def child(platform: str, *, kind: str = "OCI manifest", attestation: bool = False) -> Child:
    return Child("sha256:" + "b" * 64, kind, platform, attestation)


@pytest.mark.parametrize(
    ("children", "verdicts"),
    [
        ([child("linux/amd64")], ["pass", "pass"]),
        ([child("linux/amd64/v2"), child("unknown/unknown", attestation=True)], ["pass", "pass"]),
        ([child("linux/amd64"), child("linux/arm64")], ["pass", "fail"]),
        ([child("linux/arm64")], ["pass", "fail"]),
        ([], ["pass", "fail"]),
        ([child("", kind="OCI index"), child("linux/amd64")], ["pass", "pass", "warn"]),
    ],
)
def test_the_children_of_an_index(children: list[Child], verdicts: list[str]) -> None:
    named = Named(REFERENCE, "OCI index", tuple(children))
    assert [row.verdict for row in checks.of_named(named, ["a", "b"], "amd64")] == verdicts


def test_a_missing_child_fails() -> None:
    gone = child("linux/amd64")
    rows = checks.of_named(Named(REFERENCE, "Docker list", (gone,), (gone,)), ["a"], "amd64")
    assert [row.check for row in rows if row.verdict is Verdict.FAIL] == ["index"]
