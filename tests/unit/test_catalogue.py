"""docker/images.toml: what is wrong in it is named with its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import catalogue
from scripts.errors import ConfigurationError, InputError

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_that_the_catalogue_names_exists() -> None:
    images = catalogue.load(ROOT)
    assert {image.task for image in images.values()} == {"gpurl", "tpu"}
    for image in images.values():
        assert (ROOT / image.dockerfile).is_file()
        assert (ROOT / image.script).is_file()


def test_the_variant_and_the_architecture_are_checked() -> None:
    image = catalogue.load(ROOT)["tpu"]
    with pytest.raises(InputError, match="no variant 'megatron'"):
        image.variant("megatron")
    with pytest.raises(InputError, match="architectures: amd64"):
        image.resources_for("arm64", local=True)
    with pytest.raises(InputError, match="not built for 'local'"):
        image.resources_for("local", local=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [", "is not TOML"),
        ("[a]\ntask = 't'\n", r"\[a\].*missing"),
        ("[a]\ncolour = 'red'\n", r"\[a\].*colour"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / catalogue.CATALOGUE).write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        catalogue.load(tmp_path)


def test_no_catalogue(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        catalogue.load(tmp_path)
