"""A record beside its image, in a real registry that has no list of referrers of its own."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts import command, records
from scripts.errors import Absent, RegistryError
from scripts.registry import artifact, crane
from scripts.registry import reference as references
from scripts.registry.reference import Reference


@pytest.fixture
def image(host: str, tmp_path: Path, request: pytest.FixtureRequest) -> Reference:
    """An image of one small layer, by digest, in a repository of the test's own."""
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(__file__, "file")
    tagged = references.parse(f"{host}/tests/{request.node.name.replace('_', '-')}:one")
    crane.ask(["append", "--oci-empty-base", f"--new_layer={layer}", f"--new_tag={tagged}"])
    return tagged.at(crane.digest(tagged))


def raw(reference: Reference) -> str:
    return command.run(["crane", "manifest", str(reference)], timeout=60).stdout


def referrers(image: Reference) -> list[dict[str, Any]]:
    """The list that stands in for the referrers API, by the tag of the specification."""
    listed = json.loads(raw(replace(image, tag=image.digest.replace(":", "-"), digest="")))
    assert listed["mediaType"] == "application/vnd.oci.image.index.v1+json"
    entries: list[dict[str, Any]] = listed["manifests"]
    return entries


def test_a_document_is_read_back_and_refers_to_its_image(image: Reference) -> None:
    document = b'{"schema": 1}'
    stored = artifact.attach(image, document)
    assert artifact.attached(image) == document
    manifest = json.loads(raw(stored))
    assert manifest["artifactType"] == "application/vnd.iris-images.record.v1+json"
    subject = {"mediaType": json.loads(raw(image))["mediaType"], "digest": image.digest}
    assert manifest["subject"] == {**subject, "size": len(raw(image).encode())}
    assert artifact.attach(image, document) == stored
    listed = [(entry["digest"], entry["artifactType"]) for entry in referrers(image)]
    assert listed == [(stored.digest, manifest["artifactType"])]


def test_the_newest_counts_and_the_older_stays_in_reach(image: Reference) -> None:
    older, newer = (artifact.attach(image, f'{{"id": "{name}"}}'.encode()) for name in ("a", "b"))
    assert artifact.attached(image) == b'{"id": "b"}'
    assert {entry["digest"] for entry in referrers(image)} == {older.digest, newer.digest}
    assert json.loads(raw(older))["layers"]


def test_what_is_not_the_record_of_this_image_is_not_taken_for_it(image: Reference) -> None:
    with pytest.raises(Absent):
        artifact.attached(image)
    tag = artifact.tag_of(image)
    crane.ask(["copy", str(image), str(tag)])
    with pytest.raises(RegistryError, match="not the record") as other:
        artifact.attached(image)
    assert not isinstance(other.value, Absent)
    second = replace(tag, tag="two")
    crane.ask(["mutate", str(image), "--label=second=yes", f"--tag={second}"])
    artifact.attach(image.at(crane.digest(second)), b"{}")
    crane.ask(["copy", str(artifact.tag_of(image.at(crane.digest(second)))), str(tag)])
    with pytest.raises(RegistryError, match="not the record"):
        artifact.attached(image)


def test_an_image_that_is_not_there_gets_no_record(image: Reference) -> None:
    with pytest.raises(Absent):
        artifact.attach(image.at("sha256:" + "0" * 64), b"{}")


@pytest.mark.parametrize("content", [b"[]", b"\xff", b'{"schema": 2}', b"{}"])
def test_a_document_of_another_kind_is_no_record(content: bytes) -> None:
    with pytest.raises(RegistryError, match="The record is"):
        records.of_document(content)


def test_a_record_travels_whole(tmp_path: Path) -> None:
    record = records.create(tmp_path, "tpu", "build", note="é | \n")
    record.add("smoked", {"verdict": "fail", "digest": "sha256:1"})
    record.add("smoked", {"verdict": "pass", "digest": "sha256:1"})
    assert records.of_document(records.document(record)) == record.data
    assert [entry["verdict"] for entry in record.data["smoked"]] == ["fail", "pass"]
