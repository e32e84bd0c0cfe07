"""`inv verify.*` on images with each fault, in a real registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import command
from tests.conftest import git
from tests.local.faulty_proxy import Fault, faulty
from tests.local.images import STEP, TWO, Repository, fit, labels, layer, on
from tests.local.place import Place, context


def verified(
    place: Place, source: Path, *refs: str, words: tuple[str, ...] = (), ok: tuple[int, ...] = (0, 15)
) -> tuple[dict[str, Any], int]:
    """The verdict as JSON, and the exit code."""
    named = [f"--ref={ref}" for ref in refs]
    result = place.inv("verify.tpu", "--json", f"--context={source}", *named, *words, ok=ok)
    return json.loads(result.stdout), result.code


def rows(verdict: dict[str, Any], *verdicts: str) -> dict[str, dict[str, str]]:
    return {row["check"]: row for row in verdict["images"][0]["checks"] if row["verdict"] in verdicts}


@pytest.mark.parametrize("kind", ["oci", "docker"])
def test_a_fit_image_passes(place: Place, source: Path, repository: Repository, kind: str) -> None:
    commit = git(source, "rev-parse", "HEAD")
    repository.image(f"tpu-{commit}", **fit(source), kind=kind)
    verdict, code = verified(place, source, f"{repository}:tpu-{commit}")
    assert (verdict["verdict"], code, rows(verdict, "warn", "fail")) == ("pass", 0, {})
    assert rows(verdict, "pass").keys() >= {"identity", "anonymous read", "platform", "revision", "pins"}


def test_a_verdict_takes_few_requests_and_no_layer(
    place: Place, source: Path, host: str, repository: Repository
) -> None:
    layers = [layer({f"file-{number}": b"x"}) for number in range(48)]
    repository.image("a", **fit(source) | {"layers": layers})
    config = json.loads(command.output(["crane", "manifest", f"{repository}:a"]))["config"]["digest"]
    with faulty(int(host.split(":")[1]), lambda *_: 0) as proxy:
        verified(place, source, f"127.0.0.1:{proxy.port}/{repository.path}:a", words=("--commit=HEAD",))
    assert len(proxy.requests) <= 6
    assert [path.rpartition("/")[2] for _, path, _ in proxy.requests if "/blobs/" in path] == [config]


def test_each_fault_of_an_image_is_named(place: Place, source: Path, repository: Repository) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    commit = git(source, "rev-parse", "HEAD")
    stale = labels(source) | {"org.iris-images.pin.harbor-commit": "0" * 40}
    repository.image(
        f"tpu-{commit}",
        layers=[layer({"big": bytes(range(256)) * 8000 + secret.encode()}) + b"\0" * 1_000_000],
        architecture="arm64",
        config={"Labels": stale, "Env": [f"X={secret}"]},
        kind="docker",
        layer_type="application/vnd.oci.image.layer.v1.tar+zstd",
    )
    verdict, code = verified(place, source, f"{repository}:tpu-{commit}")
    assert code == 15
    assert rows(verdict, "fail").keys() == {
        *(
            "platform",
            "layer count",
            "largest layer",
            "media types",
            "pin harbor-commit",
            "secrets",
            "asserts",
        )
    }
    assert secret not in json.dumps(verdict)


def test_an_index_is_looked_through(place: Place, source: Path, repository: Repository) -> None:
    child = repository.image(**fit(source))
    attestations = [
        on(
            repository.image(),
            "unknown/unknown",
            annotations={"vnd.docker.reference.type": "attestation-manifest"},
        ),
        on(repository.image(layers=[layer({"a": b"a"})]), "unknown/unknown", artifactType="application/x"),
    ]
    repository.index("fit", [on(child, "linux/amd64"), *attestations])
    verdict, code = verified(place, source, f"{repository}:fit", words=("--commit=HEAD",))
    assert (verdict["verdict"], code) == ("pass", 0)
    assert "2 attestation(s)" in rows(verdict, "pass")["platforms of the index"]["seen"]
    assert verdict["images"][0]["read"]["manifest"] == child["digest"]

    repository.index("nested", [repository.index("inner", [on(child, "linux/amd64")])], kind="docker")
    verdict, code = verified(place, source, f"{repository}:nested", words=("--commit=HEAD",))
    assert (code, rows(verdict, "warn").keys()) == (0, {"nested index"})


def test_an_extra_architecture_and_a_missing_child_fail(
    place: Place, source: Path, repository: Repository
) -> None:
    child = repository.image(**fit(source))
    other = repository.image(**fit(source), architecture="arm64")
    repository.index("both", [on(child, "linux/amd64"), on(other, "linux/arm64")])
    verdict, _ = verified(place, source, f"{repository}:both")
    assert rows(verdict, "fail").keys() == {"platforms of the index"}
    command.run(["crane", "delete", f"{repository}@{other['digest']}"], timeout=60)
    verdict, _ = verified(place, source, f"{repository}:both")
    assert other["digest"] in rows(verdict, "fail")["index"]["seen"]
    command.run(["crane", "delete", f"{repository}@{child['digest']}"], timeout=60)
    verdict, code = verified(place, source, f"{repository}:both")
    assert (code, "platform" in rows(verdict, "pass", "fail")) == (15, False)


def test_an_index_without_an_image_that_can_be_read_is_no_success(
    place: Place, source: Path, repository: Repository
) -> None:
    empty = repository.index("inner", [])
    # It says that it is an image.
    lying = {**empty, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    repository.index("lying", [on(lying, "linux/amd64")])
    place.inv("verify.tpu", f"--context={source}", f"--ref={repository}:lying", ok=(9,))
    child = on(repository.image(**fit(source)), "linux/amd64")
    repository.index("twice", [child, on(repository.image(layers=[layer({"x": b"x"})]), "linux/amd64")])
    verdict, code = verified(place, source, f"{repository}:twice", words=("--commit=HEAD",))
    assert (code, rows(verdict, "fail").keys()) == (15, {"platforms of the index"})
    # An annotation does not keep a node from running it.
    marked = on(repository.image(**fit(source), architecture="arm64"), "linux/arm64")
    marked["annotations"] = {"vnd.docker.reference.type": "attestation-manifest"}
    repository.index("marked", [child, marked])
    verdict, _ = verified(place, source, f"{repository}:marked", words=("--commit=HEAD",))
    assert rows(verdict, "fail").keys() == {"platforms of the index"}


def test_what_an_image_says_is_handed_to_no_program(
    place: Place, source: Path, repository: Repository, tmp_path: Path
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    table = source / "docker/images.toml"
    line = LOCK_TABLE.replace("RESYNCS", "")
    table.write_text(table.read_text().replace("min_layers", f"{line}min_layers"))
    said = labels(source) | {
        "org.iris-images.pin.a": str(source),
        "org.iris-images.pin.b": f"--upload-pack={script}",
    }
    repository.image("a", layers=TWO, config={"Labels": said}, history=[STEP])
    said["org.opencontainers.image.revision"] = f"--output={tmp_path}/written"
    repository.image("b", layers=TWO, config={"Labels": said}, history=[STEP])
    for name in ("a", "b"):
        verified(place, source, f"{repository}:{name}", ok=(15,))
    assert not list(tmp_path.glob("ran")) + list(tmp_path.glob("written*"))


def test_a_side_question_without_an_answer_is_a_row(
    place: Place, source: Path, host: str, repository: Repository
) -> None:
    digest = repository.image("a", **fit(source))["digest"]
    with faulty(int(host.split(":")[1]), lambda _, path, __: 500 if path.endswith("/a") else 0) as proxy:
        ref = f"127.0.0.1:{proxy.port}/{repository.path}:a@{digest}"
        verdict, code = verified(place, source, ref, words=("--commit=HEAD",))
    assert (code, rows(verdict, "fail").keys()) == (15, {"tag"})
    assert "not known" in rows(verdict, "fail")["tag"]["seen"]


def test_references_of_one_digest_are_one_image(place: Place, source: Path, repository: Repository) -> None:
    digest = repository.image("a", **fit(source))["digest"]
    repository.image("b", **fit(source))
    refs = (f"{repository}:a", f"{repository}:b", f"{repository}@{digest}")
    verdict, _ = verified(place, source, *refs, words=("--commit=HEAD",))
    assert [image["names"] for image in verdict["images"]] == [list(refs)]


def test_the_pins_are_those_of_the_commit_that_was_asked_for(
    place: Place, source: Path, repository: Repository
) -> None:
    repository.image("a", **fit(source))
    git(source, "commit", "--quiet", "--allow-empty", "--message", "two")
    verdict, _ = verified(place, source, f"{repository}:a", words=("--commit=HEAD",))
    assert rows(verdict, "fail").keys() == {"revision"}
    verdict, _ = verified(place, source, f"{repository}:a", words=("--commit=HEAD~1",))
    assert rows(verdict, "fail") == {}


def test_a_commit_that_the_checkout_lacks_fails(place: Place, source: Path, repository: Repository) -> None:
    config = {"Labels": labels(source) | {"org.opencontainers.image.revision": "9" * 40}}
    repository.image("a", layers=TWO, config=config, history=[STEP])
    verdict, _ = verified(place, source, f"{repository}:a")
    assert rows(verdict, "fail").keys() == {"pins"}
    assert "9" * 40 in rows(verdict, "fail")["pins"]["seen"]


PRIVATE = Fault(status=401, headers={"WWW-Authenticate": 'Basic realm="test"'})


def private(method: str, path: str, authorization: str) -> Fault | int:
    """A registry in front of which somebody stands who wants a login."""
    return 0 if authorization else PRIVATE


def test_a_private_image_is_read_and_fails(
    place: Place, source: Path, host: str, repository: Repository
) -> None:
    repository.image("a", **fit(source))
    with faulty(int(host.split(":")[1]), private) as proxy:
        ref = f"127.0.0.1:{proxy.port}/{repository.path}:a"
        login = {"REGISTRY_USER": "someone", "REGISTRY_TOKEN": "made-up"}
        words = ("--json", f"--context={source}", f"--ref={ref}", "--commit=HEAD")
        # A token is for the registry of the user's own images, and no other one is told it.
        place.inv("verify.tpu", *words, ok=(8,), **login)
        assert {sent for _, _, sent in proxy.requests} == {""}
        login["INVOKE_REGISTRY_REPOSITORY"] = f"127.0.0.1:{proxy.port}/team/other"
        verdict = json.loads(place.inv("verify.tpu", *words, ok=(15,), **login).stdout)
        assert rows(verdict, "fail").keys() == {"anonymous read"}
        assert rows(verdict, "fail")["anonymous read"]["seen"].startswith("private")
        assert place.inv("verify.tpu", *words, ok=(8,)).stdout == ""


def test_a_broken_login_of_this_machine_changes_nothing(
    place: Place, source: Path, repository: Repository, tmp_path: Path
) -> None:
    repository.image("a", **fit(source))
    (tmp_path / "config.json").write_text('{"credsStore": "missing-helper"}')
    words = ("verify.tpu", f"--context={source}", f"--ref={repository}:a", "--commit=HEAD")
    assert place.inv(*words, DOCKER_CONFIG=str(tmp_path)).stdout.splitlines()[-1].startswith("pass: ")


def test_what_cannot_be_read_has_no_verdict(place: Place, source: Path, host: str) -> None:
    words = ("verify.tpu", f"--context={source}")
    assert "does not" in place.inv(*words, f"--ref={host}/team/none:a", ok=(10,)).stderr
    with faulty(
        int(host.split(":")[1]), lambda *_: Fault(status=429, headers={"Retry-After": "600"})
    ) as proxy:
        place.inv(*words, f"--ref=127.0.0.1:{proxy.port}/team/none:a", ok=(14,))


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "-x",
        "sha256:abc",
        "ghcr.io/Team/image:a",
        "image:a",
        "ghcr.io/team/image:$TAG",
        "ghcr.io/team/image:a b",
    ],
)
def test_a_reference_that_cannot_be_is_refused(place: Place, source: Path, ref: str) -> None:
    result = place.inv("verify.tpu", f"--context={source}", f"--ref={ref}", ok=(2,))
    assert any(f"the {part} " in result.stderr for part in ("tag", "digest", "repository")) or not ref


def test_a_reference_with_port_tag_and_digest_is_one(
    place: Place, source: Path, repository: Repository
) -> None:
    digest = repository.image("a", **fit(source))["digest"]
    verdict, _ = verified(place, source, f"{repository}:a@{digest}", words=("--commit=HEAD",))
    assert verdict["verdict"] == "pass"
    repository.image("a", **fit(source), annotations={"moved": "yes"})
    verdict, _ = verified(place, source, f"{repository}:a@{digest}", words=("--commit=HEAD",))
    assert rows(verdict, "fail").keys() == {"tag"}


def test_a_damaged_record_is_named(place: Place, source: Path, repository: Repository) -> None:
    repository.image("a", **fit(source))
    records = place.state / "records/tpu"
    records.mkdir(parents=True, exist_ok=True)
    for text in ("{", "[]", '{"schema": 2}', '{"schema": 1, "id": "x", "image": "tpu"}'):
        (records / "damaged.json").write_text(text)
        told = place.inv("verify.tpu", f"--context={source}", f"--ref={repository}:a", ok=(2,)).stderr
        (records / "damaged.json").unlink()
        assert "damaged.json" in told


def test_a_local_build_its_tag_and_its_record(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "source", "COPY docker/images.toml /\n")
    record, _ = place.build("tpu", f"--context={folder}")
    verdict, _ = verified(place, folder)
    # It has no asserts, and no labels for its pins.
    assert "asserts" in rows(verdict, "fail")
    kept = json.loads(place.inv("record.tpu", "--json", f"--build={record['id']}").stdout)
    assert kept["verified"][-1] == verdict["images"][0]

    moved = record["destination"]
    command.run(["crane", "mutate", moved, "--label=moved=yes", f"--tag={moved}"], timeout=60)
    verdict, _ = verified(place, folder)
    assert record["result"]["digest"] in rows(verdict, "fail")["tag"]["expected"]
    verdict, _ = verified(place, folder, record["result"]["digest"])
    assert "tag" in rows(verdict, "fail")


def of_path(proxy_host: str) -> list[str]:
    """Repositories behind a proxy whose names say what becomes of a question about them."""
    return [f"{proxy_host}/public/{name}" for name in ("private", "absent", "limited", "broken", "open")]


def by_name(method: str, path: str, authorization: str) -> Fault | int:
    """What a proxy answers for those repositories."""
    if "/limited/" in path:
        return Fault(status=429, headers={"Retry-After": "600"})
    if "/private/" in path and not authorization:
        return PRIVATE
    return 500 if "/broken/" in path else 0


def test_private_absent_limited_and_broken_are_four_answers(
    place: Place, source: Path, host: str, repository: Repository
) -> None:
    repository.image("a", **fit(source))
    for name in ("private", "open"):
        Repository(host, f"public/{name}").image("a")
    with faulty(int(host.split(":")[1]), by_name) as proxy:
        names = of_path(f"127.0.0.1:{proxy.port}")
        table = source / "docker/images.toml"
        table.write_text(table.read_text().replace("min_layers", f"public = {json.dumps(names)}\nmin_layers"))
        words = ("--json", f"--context={source}", f"--ref={repository}:a", "--commit=HEAD")
        own = {"INVOKE_REGISTRY_REPOSITORY": f"127.0.0.1:{proxy.port}/team/other"}
        login = {"REGISTRY_USER": "someone", "REGISTRY_TOKEN": "made-up", **own}
        verdict = json.loads(place.inv("verify.tpu", *words, ok=(15,), **login).stdout)
    read = [row for row in verdict["images"][0]["checks"] if row["check"] == "anonymous read"][1:]
    assert [row["seen"].split(":")[0].split(",")[0] for row in read] == [
        *("private", "absent", "rate-limited", "broken", "readable")
    ]
    assert [row["verdict"] for row in read] == [*["fail"] * 4, "pass"]


LOCKED = """
version = 1
[[package]]
name = "harbor"
version = "0.8.1"
source = { git = "https://github.com/marin-community/harbor.git?rev=main#COMMIT" }
"""
LOCK_TABLE = 'lock = { package = "harbor", pin = "HARBOR_COMMIT", repository = "A", commit = "B"RESYNCS }\n'


@pytest.mark.parametrize(
    ("commit", "resyncs", "verdict"),
    [
        ("1ffb4003f202daadcb7e407f449bd62278b5e8e1", "", "pass"),
        ("22d75039694db5c223797d5eec75b5c1ae975ac6", "", "fail"),
        ("22d75039694db5c223797d5eec75b5c1ae975ac6", ", resyncs = true", "warn"),
    ],
)
def test_a_lock_that_disagrees_is_the_authority_where_workers_install_from_it(
    place: Place, source: Path, repository: Repository, commit: str, resyncs: str, verdict: str
) -> None:
    repository.image("a", **fit(source))
    table = source / "docker/images.toml"
    line = LOCK_TABLE.replace("RESYNCS", resyncs)
    table.write_text(table.read_text().replace("min_layers", f"{line}min_layers"))
    lock = source / "uv.lock"
    lock.write_text(LOCKED.replace("COMMIT", commit))
    words = ("--commit=HEAD", f"--lock={lock}")
    seen, _ = verified(place, source, f"{repository}:a", words=words)
    row = rows(seen, verdict)["lock"]
    assert commit in row["expected"]
    assert ("the lock is the authority" in row["next"]) == bool(resyncs)


SITE = "opt/lib/python3.12/site-packages"
INSIDE = """
[[tpu.inside]]
file = "/opt/lib/python3.*/site-packages"
package = "harbor"
commit = "HARBOR_COMMIT"
[[tpu.inside]]
file = "/opt/bin/python"
machine = true
[[tpu.inside]]
file = "/opt/job.py"
pattern = "config != self"
followed_by = "raise"
within = 1
must = false
"""


def python_of(commit: str, machine: int, then: str) -> bytes:
    """A layer with a package of that commit, a program of that machine, and what follows a guard."""
    url = json.dumps({"vcs_info": {"commit_id": commit}})
    return layer(
        {
            f"{SITE}/harbor-0.9.0.dist-info/METADATA": b"Name: harbor\nVersion: 0.9.0\n",
            f"{SITE}/harbor-0.9.0.dist-info/direct_url.json": url.encode(),
            "opt/bin/python": b"\x7fELF\x02\x01\x01" + bytes(11) + machine.to_bytes(2, "little") + bytes(44),
            "opt/job.py": f"if config != self:\n    {then}\nraise Elsewhere\n".encode(),
        }
    )


def test_what_the_table_asks_for_is_read_from_the_layers(
    place: Place, source: Path, host: str, repository: Repository
) -> None:
    with (source / "docker/images.toml").open("a") as table:
        table.write(INSIDE)
    pinned = labels(source)["org.iris-images.pin.harbor-commit"]
    good = [python_of(pinned, 62, "warn()"), layer({"top": b"1"})]
    bad = [python_of("0" * 40, 183, "raise Changed"), layer({"top": b"1"})]
    words = ("--commit=HEAD", "--inside")
    repository.image("good", **fit(source) | {"layers": good})
    verdict, code = verified(place, source, f"{repository}:good", words=words)
    assert (code, rows(verdict, "fail")) == (0, {})
    assert "2 of 2" in rows(verdict, "pass")["layers read"]["seen"]
    repository.image("bad", **fit(source) | {"layers": bad})
    verdict, code = verified(place, source, f"{repository}:bad", words=words)
    assert rows(verdict, "fail").keys() == {
        "inside: harbor",
        "inside: /opt/bin/python",
        "inside: /opt/job.py",
    }
    assert "arm64" in rows(verdict, "fail")["inside: /opt/bin/python"]["seen"]

    for asked, code in (
        (("--file=/top", "--grep=^1$"), 0),
        (("--file=/top", "--grep=2"), 15),
        (("--file=/no",), 15),
    ):
        assert verified(place, source, f"{repository}:good", words=("--commit=HEAD", *asked))[1] == code
    layers = command.output(["crane", "manifest", f"{repository}:good"])

    def cut(method: str, path: str, authorization: str) -> Fault | int:
        return Fault(cut_after=40) if path.rpartition("/")[2] in layers.partition('"layers"')[2] else 0

    with faulty(int(host.split(":")[1]), cut) as proxy:
        ref = f"--ref=127.0.0.1:{proxy.port}/{repository.path}:good"
        told = place.inv(
            "verify.tpu", f"--context={source}", ref, "--commit=HEAD", "--file=/no", ok=(9,)
        ).stderr
    assert "absent" not in told
