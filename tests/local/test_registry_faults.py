"""What a registry can do to a question: each fault has a class, a sentence that names it, and an end."""

from __future__ import annotations

import itertools
import json
import socket
import tarfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from scripts import command
from scripts.credentials import Credential
from scripts.errors import (
    Absent,
    CommandTimeout,
    CredentialError,
    Damaged,
    IrisImagesError,
    RateLimited,
    RegistryError,
)
from scripts.local import registry, services
from scripts.registry import crane
from scripts.registry.reference import Reference
from tests.local.faulty_proxy import Fault, Proxy, faulty

TOKEN = "a-made-up-token-of-someone"
NEVER = 1e6
LIMIT = b'{"errors":[{"code":"TOOMANYREQUESTS","message":"too many"}]}'
GHCR_LIMIT = b'{"errors":[{"code":"TOOMANYREQUESTS","message":"retry-after: 2h0.5s, allowed: 44000/minute"}]}'
NO_BLOB = b'{"errors":[{"code":"BLOB_UNKNOWN"}]}'
SECONDARY = b'{"message":"You have exceeded a secondary rate limit. Please wait."}'
PAGE = b"<html><body>no such page; MANIFEST_UNKNOWN: not really</body></html>"
HTML = {"Content-Type": "text/html"}


@dataclass(frozen=True)
class Image:
    """An image in a registry without faults: where it is, and the digest of its configuration."""

    port: int
    tagged: Reference
    config_digest: str

    def behind(self, proxy: Proxy) -> Reference:
        """Its tag as it is asked for through a proxy."""
        return replace(self.tagged, host=f"127.0.0.1:{proxy.port}")


@pytest.fixture(scope="module")
def image(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    state = tmp_path_factory.mktemp("registry")
    port = registry.up(cache, state, on_demand=False).port
    layer = state / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    tagged = Reference(f"127.0.0.1:{port}", "some/image", tag="one")
    crane.ask(["append", "--oci-empty-base", f"--new_layer={layer}", f"--new_tag={tagged}"])
    yield Image(port, tagged, crane.manifest(tagged).data["config"]["digest"])
    services.down(state, "registry")


Ask = Callable[[Reference, Image], Any]
Chosen = Fault | int | None


def manifest(tagged: Reference, _: Image) -> object:
    return crane.manifest(tagged)


def digest(tagged: Reference, _: Image) -> object:
    return crane.digest(tagged)


def config(tagged: Reference, _: Image) -> object:
    return crane.config(tagged)


def blob(tagged: Reference, image: Image) -> object:
    return crane.blob(tagged.at(image.config_digest))


def soon(tagged: Reference, _: Image) -> object:
    return crane.manifest(tagged, timeout=1)


def other(tagged: Reference, _: Image) -> object:
    return crane.manifest(replace(tagged, tag="two"))


def nowhere(tagged: Reference, _: Image) -> object:
    return crane.tags(replace(tagged, path="no/where"))


def no_blob(tagged: Reference, _: Image) -> object:
    return crane.blob(tagged.at(f"sha256:{'0' * 64}"))


def on(part: str, *faults: Chosen, then: Chosen = None) -> Callable[[str, str, str], Chosen]:
    """These faults for the first requests whose path has that part in it, then another one for the rest."""
    ahead = itertools.chain(faults, itertools.repeat(then))
    return lambda _, path, __: next(ahead) if part in path else None


def always(part: str, fault: Chosen) -> Callable[[str, str, str], Chosen]:
    return on(part, then=fault)


M, B = "/manifests/", "/blobs/"
SURVIVED: dict[str, tuple[Ask, Callable[[str, str, str], Chosen]]] = {
    "500 once": (manifest, on(M, Fault(500, body=b""))),
    "manifest cut once": (manifest, on(M, Fault(cut_after=20))),
    "blob cut once": (blob, on(B, Fault(cut_after=20))),
    "trickle": (config, always("/", Fault(chunk_pause=0.02))),
}
NAMED: dict[str, tuple[Ask, Callable[[str, str, str], Chosen] | None, type[IrisImagesError], str]] = {
    "401": (manifest, always("/", 401), CredentialError, "401 DENIED for /v2/some/image/manifests/one"),
    "403": (digest, always(M, 403), CredentialError, "refused crane digest 127.0.0.1"),
    "403 blob": (blob, always(B, 403), CredentialError, "403 DENIED for /v2/some/image/blobs/sha256:"),
    "403 limit": (manifest, always(M, Fault(403, body=SECONDARY)), RateLimited, "(403 for /v2/"),
    "404 tag": (other, None, Absent, "does not have 127.0.0.1"),
    "404 repository": (nowhere, None, Absent, "answered 404 NAME_UNKNOWN for /v2/no/where/tags/list"),
    "404 blob": (no_blob, None, Absent, "answered 404 BLOB_UNKNOWN"),
    "404 config": (config, always(B, Fault(404, body=NO_BLOB)), RegistryError, "404 BLOB_UNKNOWN"),
    "404 page": (manifest, always(M, Fault(404, HTML, PAGE)), RegistryError, "answered 404 for /v2/some"),
    "200 page": (manifest, always(M, Fault(200, HTML, PAGE)), RegistryError, "other than a JSON object"),
    "429": (manifest, always(M, Fault(429, body=LIMIT)), RateLimited, "it did not say for how long"),
    "429 hour": (manifest, always(M, Fault(429, {"Retry-After": "3600"})), RateLimited, "to wait 3600 s"),
    "429 ghcr": (blob, always(B, Fault(429, body=GHCR_LIMIT)), RateLimited, "to wait 7201 s"),
    "500": (manifest, always("/", Fault(500)), RegistryError, "answered 500 DENIED for /v2/"),
    "manifest cut": (manifest, always(M, Fault(cut_after=20)), RegistryError, "it cut the connection"),
    "manifest bit": (manifest, always(M, Fault(flip=20)), Damaged, "sent a damaged manifest"),
    "blob bit": (blob, always(B, Fault(flip=20)), Damaged, "does not match its digest"),
    "config bit": (config, always(B, Fault(flip=20)), Damaged, "does not match its digest"),
    "never": (soon, always(M, Fault(pause=NEVER)), CommandTimeout, "did not answer within 1 s"),
    "too slow": (soon, always(M, Fault(chunk_pause=NEVER)), CommandTimeout, "did not answer within 1 s"),
}  # fmt: skip


@pytest.mark.parametrize("name", SURVIVED)
def test_a_fault_that_passes_is_survived(name: str, image: Image) -> None:
    question, choose = SURVIVED[name]
    wanted = question(image.tagged, image)
    with faulty(image.port, choose) as proxy:
        assert question(image.behind(proxy), image) == wanted


@pytest.mark.parametrize("name", NAMED)
def test_a_fault_that_stays_is_named(name: str, image: Image) -> None:
    question, choose, kind, words = NAMED[name]
    with faulty(image.port, choose or (lambda *_: None)) as proxy, pytest.raises(kind) as caught:
        question(image.behind(proxy), image)
    assert type(caught.value) is kind
    assert words in caught.value.what
    assert f"127.0.0.1:{proxy.port}" in caught.value.what


def test_a_question_waits_as_long_as_the_registry_says(image: Image) -> None:
    # crane asks three times by itself: the fourth request is ours, after the wait.
    forms = ("1", "880µs", formatdate(time.time() + 5, usegmt=True))

    def ask(form: str) -> int:
        refused = [Fault(429, {"Retry-After": form}, LIMIT)] * 3
        with faulty(image.port, on(M, *refused)) as proxy:
            assert crane.manifest(image.behind(proxy)).digest == crane.digest(image.tagged)
            return len([path for _, path, _ in proxy.requests if M in path])

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(ask, forms)) == [4, 4, 4]


NOW = "Wed, 21 Oct 2026 07:28:00 GMT"
WAITS = {
    "3": 3, "880µs": 880e-6, "880μs": 880e-6, "15us": 15e-6, "20ms": 0.02, "1.5s": 1.5, "2m": 120,
    "1h2m3s": 3723, "0s": 0, "Wed, 21 Oct 2026 07:29:30 GMT": 90, "Wed, 21 Oct 2026 07:27:00 GMT": 0,
    "soon": None, "": None, "3 apples": None, "-1": None,
}  # fmt: skip


@pytest.mark.parametrize("text", WAITS)
def test_the_forms_of_a_wait(text: str) -> None:
    wanted = WAITS[text]
    assert crane.seconds_to_wait(text, NOW) == (wanted if wanted is None else pytest.approx(wanted))


def test_a_registry_that_is_not_there_is_no_absent_image() -> None:
    with socket.create_server(("127.0.0.1", 0)) as was_there:
        host = f"127.0.0.1:{was_there.getsockname()[1]}"
    with pytest.raises(RegistryError, match="nothing listens there") as caught:
        crane.manifest(Reference(host, "some/image", tag="one"))
    assert type(caught.value) is RegistryError


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("dial tcp: lookup r.io on 10.0.0.1:53: no such host", RegistryError, "there is no such host"),
        ("tls: failed to verify certificate: x509: unknown authority", RegistryError, "certificate"),
        ("dial tcp 10.0.0.1:443: i/o timeout", CommandTimeout, "did not answer in time"),
    ],
)
def test_a_network_that_fails_is_named(said: str, kind: type[IrisImagesError], words: str) -> None:
    # As Go words them: this machine's network and resolver have no part in it.
    stderr = f'Error: fetching manifest r.io/some/image:one: Get "https://r.io/v2/": {said}\n'
    error = crane.explained(["manifest", "r.io/some/image:one"], 1, stderr)
    assert type(error) is kind
    assert words in error.what


def test_a_registry_that_accepts_and_says_nothing_has_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(CommandTimeout, match="within 1 s"):
        crane.digest(Reference(f"127.0.0.1:{silent.getsockname()[1]}", "some/image", tag="one"), timeout=1)


def by_bearer(port: int) -> Callable[[str, str, str], Chosen]:
    """Every request is refused; a bearer token is given for the login."""
    realm = {"WWW-Authenticate": f'Bearer realm="http://127.0.0.1:{port}/token",service="test"'}
    given = Fault(200, body=json.dumps({"token": f"bearer-{TOKEN}"}).encode())
    return lambda _, path, __: given if path.startswith("/token") else Fault(401, realm)


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_no_form_of_a_token_is_in_what_crane_says_or_an_error_tells(scheme: str, image: Image) -> None:
    login = b64encode(f"someone:{TOKEN}".encode()).decode()
    with faulty(image.port, always("/", 401)) as proxy:
        if scheme == "Bearer":
            proxy.choose = by_bearer(proxy.port)
        tagged = image.behind(proxy)
        with crane.logged_in(tagged.host, Credential("someone", TOKEN)) as env:
            said = command.run(["crane", "-v", "digest", str(tagged)], timeout=30, env=env, ok=None).stderr
            with pytest.raises(CredentialError) as caught:
                crane.digest(tagged, env=env)
        shown = {login for _, path, login in proxy.requests if M in path}
    assert shown == {f"Basic {login}" if scheme == "Basic" else f"Bearer bearer-{TOKEN}"}
    assert "<redacted>" in said
    told = said + str(caught.value) + repr(caught.value.__cause__)
    assert TOKEN not in told
    assert login not in told


@pytest.mark.parametrize(
    "text", ['{"credsStore": "of-no-machine"}', '{"auths": ', '{"credsStore": "broken"}']
)
def test_a_broken_docker_configuration_is_this_machines_fault_and_none_of_an_anonymous_reader(
    text: str, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(text)
    helper = tmp_path / "docker-credential-broken"
    helper.write_text(f"#!/bin/sh\necho {TOKEN}\nexit 3\n")
    helper.chmod(0o755)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(CredentialError, match="This machine's docker configuration") as caught:
        crane.digest(image.tagged)
    assert TOKEN not in str(caught.value)
    with crane.anonymous() as env:
        assert crane.digest(image.tagged, env=env).startswith("sha256:")


def test_an_anonymous_reader_shows_no_login_that_this_machine_has(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty(image.port, lambda *_: None) as proxy:
        tagged = image.behind(proxy)
        login = b64encode(b"someone:secret").decode()
        logins = json.dumps({"auths": {tagged.host: {"auth": login}}})
        for name in ("config.json", ".config/containers/auth.json", "containers/auth.json", "auth.json"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(logins)
        for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
            monkeypatch.setenv(name, str(tmp_path))
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
        monkeypatch.setenv("DOCKER_AUTH_CONFIG", logins)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        # A registry that asks for a login is what makes crane look for one.
        proxy.choose = always("/", 401)
        with crane.anonymous() as env:
            shown = command.output(["env"], env=env)
            for question in (crane.digest, crane.config, crane.manifest, crane.tags):
                with pytest.raises(CredentialError):
                    question(tagged, env=env)
        assert [login for _, _, login in proxy.requests if login] == []
        with pytest.raises(CredentialError):
            crane.digest(tagged)
        assert f"Basic {login}" in [login for _, _, login in proxy.requests]
    assert TOKEN not in shown
    assert "AUTH" not in shown
