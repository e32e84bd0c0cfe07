"""What a registry sends is looked at before it is believed."""

from __future__ import annotations

from typing import Any

import pytest

from scripts import shape
from scripts.errors import RegistryError

LAYER = {"digest": "sha256:1", "size": 1, "mediaType": "x"}
MANIFEST: dict[str, Any] = {"config": {"digest": "sha256:2"}, "layers": [LAYER]}


def test_what_is_whole_or_not_there_is_right() -> None:
    shape.check("it", MANIFEST, shape.MANIFEST)
    shape.check("it", MANIFEST | {"layers": [], "annotations": None, "more": 1}, shape.MANIFEST)
    shape.check("it", {"manifests": [{"digest": "sha256:1", "platform": {"os": "linux"}}]}, shape.INDEX)
    shape.check("it", {"config": {"Labels": {"a!": "b"}, "Env": None}, "rootfs": None}, shape.CONFIG)


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        ({}, shape.MANIFEST, "config is missing"),
        (MANIFEST | {"layers": None}, shape.MANIFEST, "layers is missing"),
        (
            MANIFEST | {"layers": [LAYER, {"digest": "x", "size": 1}]},
            shape.MANIFEST,
            r"layers\[1\].mediaType is mis",
        ),
        (MANIFEST | {"layers": [LAYER | {"size": "1"}]}, shape.MANIFEST, r"layers\[0\].size is not a size"),
        (MANIFEST | {"layers": [LAYER | {"size": -1}]}, shape.MANIFEST, "is not a size"),
        (MANIFEST | {"layers": [LAYER | {"size": True}]}, shape.MANIFEST, "is not a size"),
        (MANIFEST | {"annotations": []}, shape.MANIFEST, "annotations is not an object"),
        ({"manifests": [{"digest": "x", "platform": "linux"}]}, shape.INDEX, "platform is not an object"),
        ({"config": {"Labels": {"a": 1}}}, shape.CONFIG, "config.Labels.a is not text"),
        ({"history": ["x"]}, shape.CONFIG, r"history\[0\] is not an object"),
        ({"config": {"Env": [None]}}, shape.CONFIG, r"config.Env\[0\] is not text"),
        ([], shape.CONFIG, "it is not an object"),
    ],
)
def test_the_first_place_that_is_wrong_is_named(value: object, form: object, words: str) -> None:
    with pytest.raises(RegistryError, match=words):
        shape.check("it", value, form)
