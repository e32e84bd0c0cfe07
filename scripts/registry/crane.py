"""Questions to a registry, asked by the crane binary, and what its failures mean.

crane ends with code 1 for every failure, so it runs with -v and the registry's own answer decides: the status
line, the headers, and the error codes of the distribution specification ("Error codes"). "Absent" is believed
only from such a code, never from a bare 404. crane itself repeats a request that got 408, 429 or 5xx twice,
after 1 and 3 seconds.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from scripts import command
from scripts.credentials import Credential
from scripts.errors import (
    Absent,
    CommandFailed,
    CommandTimeout,
    CredentialError,
    Damaged,
    IrisImagesError,
    RateLimited,
    RegistryError,
)
from scripts.progress import say
from scripts.registry.reference import Reference

Env = Mapping[str, str | None]
TIMEOUT = 120.0
TRIES = 3
"""How often a question is asked whose answer was cut, or that the registry wants to hear again later."""
CUT_PAUSE = 0.5
ABSENT = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN")
NETWORK = ("PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""What crane needs of the environment to reach a registry; an anonymous crane sees nothing else of it."""

ANSWER = re.compile(r"^\S+ \S+ <-- (\d{3}) (\S+) .*\n(?:\S+ \S+ HTTP/.*\n((?:[\w-]+: .*\n)*))?", re.M)
REFUSED = re.compile(r".*?\b(?:GET|HEAD|POST|PUT|PATCH|DELETE) (\S+): (.*)")
CODE = re.compile(r"(?:^|; |multiple errors returned: )([A-Z][A-Z0-9_]+): ")
MACHINE = re.compile(
    r"(?:error getting credentials|parsing config file|loading config file).*?(?=, out:|$)", re.M
)
DAMAGE = re.compile(r"error verifying|does not match (?:requested digest|expected size)")
LIMIT = re.compile(r"rate.?limit|too ?many ?requests", re.IGNORECASE)
WAIT = re.compile(r"retry-after: ([^\s,;]+)", re.IGNORECASE)
"""In the message of an error: where ghcr.io says how long to wait."""
CUT = re.compile(r"(?:unexpected EOF|connection reset by peer)$")
LONGEST = 64
"""Characters of a Retry-After; what is longer is no time, and a number of it may be infinite."""
UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# The last of the four is what is left of a micro sign in another encoding than UTF-8.
DURATION = re.compile("([0-9]+(?:[.][0-9]+)?)(h|ms|m|s|[u\u00b5\u03bc\ufffd]s|ns)")
UNREACHED = {
    r"connection refused": ("nothing listens there", "check the host and the port."),
    r"no such host": ("there is no such host", "check the name of the registry, and this machine's network."),
    r"EOF|reset by peer|broken pipe": ("it cut the connection", "try again; if it stays, ask the registry."),
    r"tls:|x509:": (
        "its TLS certificate is not accepted, or it speaks no TLS",
        "check the host; behind a proxy that inspects TLS, SSL_CERT_FILE names the certificates to trust.",
    ),
}
"""Of a connection that failed: a pattern of Go's words for it, ours, and the next step."""

HELPER = """#!/bin/sh
printf '{"Username":"%s","Secret":"%s"}' "$IRIS_IMAGES_USER" "$IRIS_IMAGES_TOKEN"
"""


@dataclass(frozen=True)
class Document:
    """A manifest or an index.

    Attributes:
        digest: sha256: and the checksum of the exact bytes that the registry gave.
        media_type: the one that it names itself, else the one under which the registry gave it.
        data: its JSON.
        size: bytes.
    """

    digest: str
    media_type: str
    data: dict[str, Any]
    size: int


@dataclass(frozen=True)
class _Failure:
    """What `crane -v` wrote when it failed.

    Attributes:
        said: its last word, without "Error: "; it may have several lines.
        codes: the error codes in it.
        status: of the request that was refused; 0: none was answered with a failure.
        headers: of that answer, names in lower case.
        path: of that request.
    """

    said: str
    codes: tuple[str, ...] = ()
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = ""

    @property
    def answer(self) -> str:
        """What the registry answered, and to what, in words."""
        return f"{' '.join([str(self.status), *self.codes])} for {self.path}"

    @property
    def detail(self) -> str:
        """The first line of crane's last word; a page of HTML is cut short."""
        return f"  {self.said.splitlines()[0][:500]}" if self.said else ""


@contextmanager
def logged_in(host: str, credential: Credential) -> Iterator[dict[str, str | None]]:
    """An environment for crane that knows one credential, without writing it to a file.

    crane asks a credential helper, and ours answers from the environment of crane itself.
    """
    with tempfile.TemporaryDirectory(prefix="iris-images-") as folder:
        helper = Path(folder) / "docker-credential-iris-images"
        helper.write_text(HELPER)
        helper.chmod(0o700)
        Path(folder, "config.json").write_text(json.dumps({"credHelpers": {host: "iris-images"}}))
        yield {
            "DOCKER_CONFIG": folder,
            "DOCKER_AUTH_CONFIG": None,
            "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
            "IRIS_IMAGES_USER": credential.user,
            "IRIS_IMAGES_TOKEN": credential.token,
        }


@contextmanager
def anonymous() -> Iterator[dict[str, str | None]]:
    """An environment for crane with no credential of any kind in reach, as on a node of a cluster.

    What is not NETWORK is taken out. An empty DOCKER_CONFIG folder is not enough: crane would look for the
    logins of podman then.
    """
    with tempfile.TemporaryDirectory(prefix="iris-images-") as folder:
        Path(folder, "config.json").write_text("{}")
        rest = {name: None for name in os.environ if name.upper() not in NETWORK}
        yield {**rest, "HOME": folder, "DOCKER_CONFIG": folder}


def digest(reference: Reference, *, env: Env | None = None, timeout: float = TIMEOUT) -> str:
    """The digest that the registry gives for a reference.

    Raises:
        Absent: the registry says that it has no such tag, digest or repository.
        CredentialError: it refuses; or this machine's docker configuration cannot be used.
        RateLimited: it takes no more requests for now.
        Damaged: what it sent does not match its digest.
        RegistryError: any other answer, or none.
        CommandTimeout: no answer within `timeout` seconds.
    """
    return ask(["digest", str(reference)], env=env, timeout=timeout)


def manifest(reference: Reference, *, env: Env | None = None, timeout: float = TIMEOUT) -> Document:
    """The manifest or the index, as the registry keeps it. Two requests. Errors: see `digest`."""
    result = _asked(["manifest", str(reference)], env=env, timeout=timeout)
    raw = result.stdout.encode()
    found = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    headers = _answers(result.stderr)[-1][2]
    # crane checks the bytes only when it is asked by digest.
    promised = headers.get("docker-content-digest", found)
    if promised != found:
        raise Damaged(
            f"{reference.host} sent a damaged manifest for {reference}: {found}, and called it {promised}.",
            "try again; if it stays, ask the registry, or push the image again.",
        )
    data = _json(result.stdout, reference)
    media_type = data.get("mediaType") or headers.get("content-type", "")
    return Document(found, media_type, data, len(raw))


def blob(reference: Reference, *, env: Env | None = None, timeout: float = TIMEOUT) -> dict[str, Any]:
    """A small JSON blob by its digest, as a configuration. Two requests. Errors: see `digest`."""
    return _json(ask(["blob", str(reference)], env=env, timeout=timeout), reference)


def config(reference: Reference, *, env: Env | None = None, timeout: float = TIMEOUT) -> dict[str, Any]:
    """The image's configuration: env, labels, history, architecture. Three requests. Errors: see `digest`."""
    return _json(ask(["config", str(reference)], env=env, timeout=timeout), reference)


def tags(repository: Reference, *, env: Env | None = None, timeout: float = TIMEOUT) -> list[str]:
    """The tags of a repository, in the registry's order. Errors: see `digest`."""
    return ask(["ls", repository.repository], env=env, timeout=timeout).split()


def tag(reference: Reference, name: str, *, env: Env | None = None, timeout: float = TIMEOUT) -> None:
    """Let a tag of the same repository give that image, whatever it gave before. Errors: see `digest`."""
    ask(["tag", str(reference), name], env=env, timeout=timeout)


def ask(words: list[str], *, env: Env | None = None, timeout: float = TIMEOUT) -> str:
    """Run crane and give back its standard output, without white space at its ends.

    An answer that was cut is asked for again, and so is one for which the registry says when to come back and
    that is within the time limit.

    Args:
        words: the arguments of crane, a reference among them.

    Raises: see `digest`.
    """
    return _asked(words, env=env, timeout=timeout).stdout.strip()


def explained(words: Sequence[str], code: int, stderr: str) -> IrisImagesError:
    """What a failed call of crane means, in one sentence.

    Args:
        words: its arguments, a reference among them.
        code: its exit code; negative: a signal.
        stderr: what it wrote there, run with -v.
    """
    if code < 0:
        return CommandFailed(f"crane {_verb(words)} {_target(words)} was ended by signal {-code}.", code=code)
    return _meaning(words, _failure(stderr))


def _asked(words: Sequence[str], *, env: Env | None, timeout: float) -> command.Result:
    end = time.monotonic() + timeout
    for left in reversed(range(TRIES)):
        result = _run(words, env, end - time.monotonic(), timeout)
        if result.code == 0:
            break
        error = explained(words, result.code, result.stderr)
        pause = _pause(error, result.stderr)
        if pause is None or not left or time.monotonic() + pause > end:
            raise error
        say(f"{error.what} Asking again in {math.ceil(pause)} s.")
        time.sleep(pause)
    return result


def _run(words: Sequence[str], env: Env | None, seconds: float, timeout: float) -> command.Result:
    try:
        return command.run(["crane", "-v", *words], timeout=max(seconds, 0), env=env, ok=None)
    except CommandTimeout as expired:
        target = _target(words)
        raise CommandTimeout(
            f"{_host(target)} did not answer within {timeout:g} s (crane {_verb(words)} {target}).",
            "try again; if it stays, check this machine's network and the registry's state.",
        ) from expired


def _pause(error: IrisImagesError, stderr: str) -> float | None:
    """Seconds after which it is worth asking again; None: it is not."""
    if isinstance(error, RateLimited):
        return error.retry_after
    said = _failure(stderr).said
    # With an address in it, it is a request without an answer, which crane has repeated itself.
    return CUT_PAUSE if CUT.search(said) and '"http' not in said and type(error) is RegistryError else None


def _failure(stderr: str) -> _Failure:
    _, found, said = f"\n{stderr}".rpartition("\nError: ")
    match = REFUSED.match(said) if found else None
    if not match:
        return _Failure(said.strip() if found else "")
    url, words = match.groups()
    # crane hides parts of a query, so that is not compared.
    place = url.partition("?")[0]
    answers = [answer for answer in _answers(stderr) if answer[1].partition("?")[0] == place]
    status, _, headers = answers[-1] if answers else (0, "", {})
    # A body without codes is quoted after these words, whatever is in it.
    codes = () if words.startswith("unexpected status code") else tuple(CODE.findall(words))
    return _Failure(said.strip(), codes, status, headers, "/" + place.split("/", 3)[-1])


def _answers(stderr: str) -> list[tuple[int, str, dict[str, str]]]:
    """Status, address and headers of each answer that crane got, in order."""
    return [
        (int(status), url, {name.lower(): value for name, value in _headers(text or "")})
        for status, url, text in ANSWER.findall(stderr.replace("\r\n", "\n"))
    ]


def _headers(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        yield name, value


def _meaning(words: Sequence[str], failure: _Failure) -> IrisImagesError:
    target = _target(words)
    if machine := MACHINE.search(failure.said):
        return CredentialError(
            f"This machine's docker configuration cannot be used, so {_host(target)} was not asked.",
            "repair what it names in config.json (of DOCKER_CONFIG, else of ~/.docker).",
            f"  {machine[0]}",
        )
    if DAMAGE.search(failure.said):
        return Damaged(
            f"What {_host(target)} sent for {target} does not match its digest or its size.",
            "try again; if it stays, ask the registry, or push the image again.",
            failure.detail,
        )
    if failure.status:
        return _refusal(target, _verb(words), failure)
    return _unreached(target, _verb(words), failure)


def _refusal(target: str, verb: str, failure: _Failure) -> IrisImagesError:
    host, status = _host(target), failure.status
    if status == 429 or "TOOMANYREQUESTS" in failure.codes or (status == 403 and LIMIT.search(failure.said)):
        return _limit(target, failure)
    absent = (*ABSENT, "BLOB_UNKNOWN") if verb == "blob" else ABSENT
    if status == 404 and set(failure.codes) & set(absent):
        return Absent(
            f"{host} does not have {target}: it answered {failure.answer}.",
            "correct the name, or push it.",
            failure.detail,
        )
    if status in (401, 403):
        return CredentialError(
            f"{host} refused crane {verb} {target}: it answered {failure.answer}.",
            f"log in (crane auth login {host}) as somebody who may do that; some registries answer the same"
            " for a name that they do not have.",
            failure.detail,
        )
    return RegistryError(
        f"{host} failed at crane {verb} {target}: it answered {failure.answer}.",
        "try again; if it stays, check the address, and ask the registry.",
        failure.detail,
    )


def _limit(target: str, failure: _Failure) -> RateLimited:
    in_words = WAIT.search(failure.said)
    wait = seconds_to_wait(
        failure.headers.get("retry-after") or (in_words[1] if in_words else ""),
        failure.headers.get("date", ""),
    )
    when = "it did not say for how long" if wait is None else f"it asks to wait {math.ceil(wait)} s"
    return RateLimited(
        f"{_host(target)} takes no more requests about {target} for now ({failure.answer}): {when}.",
        "wait, or log in: most registries allow more to a user whom they know.",
        failure.detail,
        retry_after=wait,
    )


def _unreached(target: str, verb: str, failure: _Failure) -> IrisImagesError:
    host, said = _host(target), failure.said
    if re.search(r"timeout|deadline exceeded", said):
        return CommandTimeout(
            f"{host} did not answer in time (crane {verb} {target}).", "try again later.", failure.detail
        )
    for pattern, (what, next_step) in UNREACHED.items():
        if re.search(pattern, said):
            return RegistryError(f"{host}: {what} (crane {verb} {target}).", next_step, failure.detail)
    return RegistryError(
        f"crane {verb} {target} failed.", "try again; if it stays, ask the registry.", failure.detail
    )


def seconds_to_wait(text: str, now: str = "") -> float | None:
    """How long a Retry-After asks to wait, in seconds.

    Args:
        text: seconds or an HTTP date (RFC 9110, "Retry-After"), or a duration as Go prints it: registries
            that are written in Go send that. Anything else gives None.
        now: the Date of the same answer, so that the clock of this machine does not matter.
    """
    if len(text) > LONGEST:
        return None
    if re.fullmatch(r"\d+", text):
        return float(text)
    if re.fullmatch(f"(?:{DURATION.pattern})+", text):
        parts = DURATION.findall(text)
        return sum(float(number) * UNITS[re.sub("[^a-z]s", "us", unit)] for number, unit in parts)
    try:
        since = _date(now) if now else datetime.now(UTC)
        return max((_date(text) - since).total_seconds(), 0.0)
    except ValueError:
        return None


def _date(text: str) -> datetime:
    """An HTTP date, which is always in UTC."""
    return parsedate_to_datetime(text).replace(tzinfo=UTC)


def _json(text: str, reference: Reference) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        data = None
    if isinstance(data, dict):
        return data
    raise RegistryError(
        f"{reference.host} answered with something other than a JSON object about {reference}.",
        "check the address: a proxy or a web page may stand in for the registry.",
        f"  {text[:200].strip()}",
    )


def _verb(words: Sequence[str]) -> str:
    return next(word for word in words if not word.startswith("-"))


def _target(words: Sequence[str]) -> str:
    # Neither an option nor the path of a file.
    return next((word for word in words if "/" in word and word[0] not in "-./"), words[-1])


def _host(target: str) -> str:
    return target.partition("/")[0]
