"""Real builds on this machine: Iris, kaniko in a disposable root, crane, a registry; what was pushed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scripts import catalogue, command
from scripts.local import sandbox, services, tool_images
from scripts.registry import reference
from tests.conftest import CACHE, git
from tests.local.faulty_proxy import faulty
from tests.local.place import INV, ROOT, SMALL, TOKEN, Place, context, files, processes

LOGIN = base64.b64encode(f"someone:{TOKEN}".encode()).decode()
FORMS = (TOKEN, LOGIN, base64.b64encode(TOKEN.encode()).decode(), TOKEN.encode().hex())
"""The token as it is, and as files of logins and dumps hold it."""
HOST_FILES = ("root/.bashrc", "kaniko/", "app/", "usr/local/bin/crane")
DUMP = r"""
RUN mkdir /seen && cat /proc/*/environ > /seen/environ 2>/dev/null || true
RUN cat /proc/*/cmdline > /seen/cmdline 2>/dev/null || true
RUN find / -xdev -type f -size -200k ! -path '/seen/*' ! -path '/usr/*' ! -path '/var/*' \
      -exec cat {} + > /seen/files 2>/dev/null || true
RUN cat /run/rigging/secrets/* > /seen/secrets 2>/dev/null || true
RUN env > /seen/env; ls -la / /kaniko /root > /seen/ls
COPY memory.py /memory.py
RUN python3 /memory.py > /seen/memory
RUN printf '#!/bin/sh\nexit 1' > /usr/bin/docker-credential-evil && chmod +x /usr/bin/docker-credential-*
RUN mkdir -p /kaniko/.docker && echo '{"credsStore": "evil"}' > /kaniko/.docker/config.json
RUN echo '#!/bin/sh' > /kaniko/crane && chmod +x /kaniko/crane
RUN mkdir -p /app && echo made > /app/made
RUN setsid sleep 7654 > /dev/null 2>&1 < /dev/null &
"""
MEMORY = """\
import re
try:
    spans = [re.match("([0-9a-f]+)-([0-9a-f]+) r", line) for line in open("/proc/1/maps")]
    memory = open("/proc/1/mem", "rb")
    for span in filter(None, spans):
        memory.seek(int(span[1], 16))
        print(memory.read(int(span[2], 16) - int(span[1], 16)))
except OSError as refused:
    print("refused:", refused)
"""


def absent(reference: str) -> bool:
    """Whether the registry says, in so many words, that it has no such tag or repository."""
    said = command.run(["crane", "digest", reference], timeout=60, ok=None).stderr
    return "MANIFEST_UNKNOWN" in said or "NAME_UNKNOWN" in said


def registry_port(place: Place) -> int:
    running = services.find(place.state / "services", "registry")
    assert running
    return running.port


@pytest.mark.parametrize("name", ["gpurl", "tpu"])
def test_an_image_is_pushed_labelled_and_reported(
    name: str, place: Place, request: pytest.FixtureRequest
) -> None:
    record = request.getfixturevalue(name)
    result = record["result"]
    shown = json.loads(place.inv(f"record.{name}", "--json").stdout)
    assert shown == record
    assert result["digest"] == command.output(["crane", "digest", record["destination"]])
    assert result["labels"]["org.opencontainers.image.revision"] == record["inputs"]["GITSHA"]
    assert result["labels"]["org.iris-images.pin.harbor-commit"] == record["pins"]["HARBOR_COMMIT"]
    assert record["destination"].endswith(record["inputs"]["GITSHA"])
    assert list(record["phases"]) == ["tools", "inputs", "build", "layers", "push"]


def test_gpu_rl_has_a_layer_for_each_step(gpurl: dict[str, Any]) -> None:
    assert len(gpurl["result"]["layers"]) > 20


@pytest.mark.parametrize("name", ["gpurl", "tpu"])
def test_the_pushed_image_starts_and_its_asserts_pass(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    record = request.getfixturevalue(name)
    argv = catalogue.load(ROOT)[record["image"]].asserts
    pushed = reference.parse(record["result"]["reference"])
    result = sandbox.run_image(pushed, tmp_path, argv, size=3_000_000_000, timeout=300)
    assert result.code == 0


def leaks(content: bytes) -> list[str]:
    """The forms of the token that some bytes hold."""
    return [form for form in FORMS if form.encode() in content]


def test_the_search_finds_a_login_file() -> None:
    assert leaks(json.dumps({"auths": {"host": {"auth": LOGIN}}}).encode()) == [LOGIN]


@pytest.mark.parametrize("name", ["gpurl", "tpu"])
def test_nothing_of_the_outer_root_and_no_token_is_in_the_image(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    record = request.getfixturevalue(name)
    for path, content in files(record["result"]["reference"], tmp_path / "layers"):
        layer, _, inner = path.partition(":")
        assert not leaks(content), path
        # layer 0 is the base image's own
        assert layer == "0" or not inner.removeprefix("./").startswith(HOST_FILES), path


def test_no_token_is_in_records_logs_or_the_servers_data(gpurl: dict[str, Any], place: Place) -> None:
    assert not leaks(place.log(gpurl).encode())
    read = [path for path in place.state.rglob("*") if path.is_file() and "registry-data" not in path.parts]
    assert any("iris-data" in path.parts for path in read)
    for path in read:
        assert not leaks(path.read_bytes()), path


def test_a_run_can_read_no_token_and_leaves_no_process(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", DUMP, {"memory.py": MEMORY})
    record, _ = place.build("tpu", f"--context={folder}", REGISTRY_USER="someone", REGISTRY_TOKEN=TOKEN)
    seen = {
        name.partition(":")[2]: content
        for name, content in files(record["result"]["reference"], tmp_path / "l")
    }
    assert b"DOCKER_CONFIG=" in seen["seen/environ"], "the executor's own environment was read"
    assert b"refused: [Errno 13]" in seen["seen/memory"], "the memory of the script was asked for"
    assert len(seen["seen/secrets"].strip()) == 2 * len(TOKEN), "the half of the secret was read"
    for name, content in seen.items():
        assert not leaks(content), name
        assert b"REGISTRY_TOKEN_PAD=" not in content, name
    assert seen["app/made"] == b"made\n", "nothing of /app is lost"
    assert not any("sleep 7654" in line for line in processes().values())


def test_a_build_shows_no_token_in_the_process_list(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", "RUN sleep 3\n")
    with ThreadPoolExecutor() as pool:
        words = ("tpu", f"--context={folder}")
        building = pool.submit(place.build, *words, REGISTRY_USER="someone", REGISTRY_TOKEN=TOKEN)
        while not building.done():
            for line in processes().values():
                assert not leaks(line.encode())
            time.sleep(0.2)
    assert building.result()[0]["state"] == "pushed"


def test_wheels_can_be_compiled_in_the_build(place: Place) -> None:
    record, _ = place.build("gpurl", "--wheel-source=wheel-builder")
    assert record["result"]["labels"]["org.iris-images.pin.wheel-source"] == "wheel-builder"
    assert "WHEELHOUSE" not in record["inputs"]
    assert "Building wheel" in place.log(record) or "Successfully built" in place.log(record)


def test_a_variant_has_its_own_tag_and_inputs(place: Place) -> None:
    record, _ = place.build("gpurl", "--variant=megatron")
    assert ":gpu-rl-megatron-" in record["destination"]
    assert record["result"]["labels"]["org.iris-images.pin.install-megatron"] == "1"
    assert record["pins"]["INSTALL_MEGATRON"] == "1"


def test_a_damaged_wheel_is_refused_and_never_compiled_instead(
    place: Place, gpurl: dict[str, Any], tmp_path: Path
) -> None:
    house = tmp_path / "house"
    command.run(["crane", "export", gpurl["inputs"]["WHEELHOUSE"], tmp_path / "set.tar"], timeout=60)
    command.run(["mkdir", house], timeout=60)
    command.run(["tar", "-xf", tmp_path / "set.tar", "-C", house, "--strip-components=1"], timeout=60)
    wheel = next(house.glob("vllm-*.whl"))
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    wheel.write_bytes(content)
    damaged = tool_images.wheel_set(Path("crane"), f"127.0.0.1:{registry_port(place)}", house)
    _, said = place.build("gpurl", ok=(22,), INVOKE_WHEELS_GPU_RL=damaged)
    assert "does not have the sha256" in said
    assert "phase=build" not in said


def test_an_executor_that_arrives_in_part_is_not_started(
    place: Place, tpu: dict[str, Any], tmp_path: Path
) -> None:
    folder = context(tmp_path / "context", SMALL)
    whole = tpu["inputs"]["EXECUTOR_IMAGE"]
    manifest = json.loads(command.output(["crane", "manifest", whole]))
    layer = manifest["layers"][0]["digest"]
    with faulty(registry_port(place), lambda _, path, __: 404 if path.endswith(layer) else 0) as proxy:
        image = whole.replace(f":{registry_port(place)}", f":{proxy.port}")
        _, said = place.build("tpu", f"--context={folder}", ok=(25,), INVOKE_EXECUTOR_IMAGE=image)
    assert "could not be fetched" in said
    assert "phase=build" not in said


def test_the_prebuilt_path_compiles_nothing(gpurl: dict[str, Any], place: Place) -> None:
    assert "compile-wheels.sh" not in place.log(gpurl)


def test_a_failing_assert_names_the_step_and_pushes_nothing(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    git(ROOT, "clone", "--quiet", ".", str(folder))
    asserts = folder / "docker/asserts/tpu.py"
    asserts.write_text("import sys\nprint('assert: libtpu is missing')\nsys.exit(9)\n")
    git(folder, "commit", "--quiet", "--all", "--message", "an assert that fails")
    record, said = place.build("tpu", f"--context={folder}", ok=(20,))
    assert "a RUN of docker/Dockerfile.tpu ended with exit status 9" in said
    assert "assert: libtpu is missing" in said
    assert (record["state"], record["exit_code"]) == ("failed", 20)
    assert absent(record["destination"])


def test_a_build_failure_outside_of_a_run_has_its_own_code(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", "COPY no-such-file /\n")
    _, said = place.build("tpu", f"--context={folder}", ok=(21,))
    assert "no-such-file" in said


def test_wheels_for_other_pins_are_refused_with_the_line_that_differs(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    git(ROOT, "clone", "--quiet", ".", str(folder))
    path = folder / "docker/Dockerfile.gpu-rl"
    path.write_text(path.read_text().replace("ARG TORCH_VERSION=2.11.0", "ARG TORCH_VERSION=2.12.0"))
    git(folder, "commit", "--quiet", "--all", "--message", "another torch")
    _, said = place.build("gpurl", f"--context={folder}", ok=(22,))
    assert "line 3: wanted 'TORCH_VERSION=2.12.0', found 'TORCH_VERSION=2.11.0'" in said


def test_a_layer_over_the_ceiling_is_refused_before_the_push(place: Place, tmp_path: Path) -> None:
    noise = os.urandom(1_500_000).hex()
    folder = context(tmp_path / "context", SMALL, {"docker/noise": noise}, ceiling=1_000_000)
    with faulty(registry_port(place), lambda *_: 0) as proxy:
        repository = f"127.0.0.1:{proxy.port}/iris-images/ceiling"
        _, said = place.build("tpu", f"--context={folder}", ok=(23,), INVOKE_REGISTRY_REPOSITORY=repository)
        written = [request for request in proxy.requests if request[0] in ("POST", "PUT", "PATCH")]
    assert "over the ceiling of 1000000" in said
    assert not written


def test_a_push_that_is_refused_once_is_repeated_without_a_build(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", SMALL)
    refusals = iter([403])

    def refuse_first_manifest(method: str, path: str, _: str) -> int:
        return next(refusals, 0) if method == "PUT" and "/manifests/" in path else 0

    with faulty(registry_port(place), refuse_first_manifest) as proxy:
        repository = f"127.0.0.1:{proxy.port}/iris-images/retried"
        record, _ = place.build("tpu", f"--context={folder}", INVOKE_REGISTRY_REPOSITORY=repository)
    log = place.log(record)
    assert "push attempt 2 of 4" in log
    assert log.count("phase=build") == 1


def test_a_push_that_is_refused_for_ever_says_so(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", SMALL)
    with faulty(registry_port(place), lambda method, *_: 403 if method == "POST" else 0) as proxy:
        repository = f"127.0.0.1:{proxy.port}/iris-images/refused"
        words = ("tpu", f"--context={folder}")
        _, said = place.build(*words, ok=(24,), INVOKE_REGISTRY_REPOSITORY=repository)
    assert "the registry did not take" in said
    assert "write:packages" in said


def test_a_registry_that_asks_for_a_login_gets_the_token_of_the_user(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", SMALL)
    wanted = f"Basic {LOGIN}"
    with faulty(registry_port(place), lambda _, __, login: 0 if login == wanted else 401) as proxy:
        env = {"REGISTRY_USER": "someone", "REGISTRY_TOKEN": TOKEN}
        env["INVOKE_REGISTRY_REPOSITORY"] = f"127.0.0.1:{proxy.port}/iris-images/login"
        record, _ = place.build("tpu", f"--context={folder}", **env)
        _, said = place.build("tpu", f"--context={folder}", ok=(24,), **{**env, "REGISTRY_TOKEN": "wrong"})
    assert record["result"]["reference"].startswith(env["INVOKE_REGISTRY_REPOSITORY"])
    assert "the registry did not take" in said


def test_a_private_base_is_read_with_the_login_that_no_run_sees(
    place: Place, tpu: dict[str, Any], tmp_path: Path
) -> None:
    port = registry_port(place)
    base = tpu["pins"]["BASE_IMAGE"].partition("@")[2]
    with faulty(port, lambda _, __, login: 0 if login == f"Basic {LOGIN}" else 401) as proxy:
        host = f"127.0.0.1:{proxy.port}"
        steps = f"FROM {host}/iris-images/base@{base}\nRUN cat /kaniko/.docker/* > /seen; true\n"
        folder = context(tmp_path / "context", steps)
        env = {"REGISTRY_USER": "someone", "REGISTRY_TOKEN": TOKEN}
        env["INVOKE_REGISTRY_REPOSITORY"] = f"{host}/iris-images/private"
        record, _ = place.build("tpu", f"--context={folder}", **env)
    assert "is not public" in place.log(record)
    public = record["result"]["reference"].replace(host, f"127.0.0.1:{port}")
    seen = {name.partition(":")[2]: content for name, content in files(public, tmp_path / "layers")}
    assert seen["seen"] == b"{}"


def test_two_builds_of_one_commit_at_once(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", "RUN date +%N > /time\n")
    with ThreadPoolExecutor() as pool:
        builds = list(pool.map(lambda _: place.build("tpu", f"--context={folder}")[0], range(2)))
    assert [build["state"] for build in builds] == ["pushed", "pushed"]
    assert builds[0]["id"] != builds[1]["id"]
    digests = {build["result"]["digest"] for build in builds}
    assert command.output(["crane", "digest", builds[0]["destination"]]) in digests


def test_an_interrupted_watch_leaves_the_job_and_can_be_taken_up_again(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", "RUN sleep 8\n")
    env = {"INVOKE_PATHS_STATE": str(place.state), **place.env}
    process = command.start([INV, "build.tpu", f"--context={folder}"], cwd=ROOT, env=env)
    assert process.stderr
    said = ""
    for raw in process.stderr:
        said += raw.decode()
        if "phase=build" in said:
            os.kill(process.pid, signal.SIGINT)
            break
    said += process.stderr.read().decode()
    assert process.wait(60) == 130
    assert "The job goes on" in said
    name = said.split("--build=")[1].split()[0]
    watched = place.inv("watch", f"--build={name}")
    record = json.loads(place.inv("record.tpu", "--json", f"--build={name}").stdout)
    assert record["state"] == "pushed"
    log = place.log(record)
    again = place.inv("watch", f"--build={name}")
    assert watched.stdout == again.stdout == record["result"]["reference"] + "\n"
    assert place.log(record) == log != ""


def test_a_build_cancelled_in_the_middle_of_a_run_leaves_nothing(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", "RUN sleep 4321\n")
    record, _ = place.build("tpu", f"--context={folder}", "--no-wait")
    deadline = time.monotonic() + 300
    while not any("sleep 4321" in line for line in processes().values()):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    place.inv("cancel", f"--build={record['id']}")
    while any("sleep 4321" in line or "/kaniko/executor" in line for line in processes().values()):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    said = place.inv("watch", f"--build={record['id']}", ok=(12,)).stderr
    assert "The job was cancelled" in said
    assert absent(record["destination"])


def test_a_signal_ends_the_executor_and_its_children_with_its_own_code(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", "RUN sleep 8765\n")
    with ThreadPoolExecutor() as pool:
        building = pool.submit(place.build, "tpu", f"--context={folder}", ok=(12,))
        launcher = wait_for_process("sleep 8765", f"--scratch={place.state}")
        os.kill(launcher, signal.SIGTERM)
        record, _ = building.result()
    assert "result=ended-by-signal code=143" in place.log(record)
    assert not any("sleep 8765" in line for line in processes().values())


def wait_for_process(inner: str, outer: str) -> int:
    """The id of a process whose command line has `outer`, once one has `inner`."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        found = processes()
        if any(inner in line for line in found.values()):
            return next(pid for pid, line in found.items() if outer in line)
        time.sleep(0.5)
    raise AssertionError(f"no process {inner!r} came")


@pytest.mark.parametrize(
    ("executor", "code", "words"),
    [
        ("gcr.io/kaniko-project/executor:v1.24.0", 2, "is archived"),
        ("ghcr.io/osscontainertools/kaniko:latest", 2, "floats"),
        ("127.0.0.1:{port}/iris-images/no-such-executor:v1", 10, "does not have"),
    ],
)
def test_an_executor_that_cannot_be_used_is_refused_before_the_job(
    place: Place, tmp_path: Path, executor: str, code: int, words: str
) -> None:
    folder = context(tmp_path / "context", SMALL)
    image = executor.format(port=registry_port(place))
    result = place.inv("build.tpu", f"--context={folder}", ok=(code,), INVOKE_EXECUTOR_IMAGE=image)
    assert words in result.stderr
    assert "submitted" not in result.stderr


@pytest.mark.parametrize(
    ("words", "env", "code", "said"),
    [
        (("--architecture=arm64",), {}, 2, "kaniko builds only for the machine that it runs on"),
        (("--variant=x",), {}, 2, "variants: megatron"),
        (("--wheel-source=x",), {}, 2, "No wheels come from 'x'"),
        (("--context=/nonexistent",), {}, 4, "not a git checkout"),
        (("--cluster=x",), {"INVOKE_IRIS_PROGRAM": "no-such-iris"}, 5, "is not on PATH"),
        ((), {"INVOKE_REGISTRY_REPOSITORY": "ghcr.io/Team/x"}, 2, "'Team/x' is not valid"),
        ((), {"INVOKE_EXECUTOR_IMAGE": "$EXECUTOR"}, 2, "a reference begins with a registry"),
    ],
)
def test_what_cannot_be_ends_before_anything_is_done(
    words: tuple[str, ...], env: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    place = Place(tmp_path / "state")
    result = place.inv("build.gpurl", "--dry-run", *words, ok=(code,), **env)
    assert said in result.stderr
    assert "Next: " in result.stderr
    assert not place.state.exists()


def test_a_dockerfile_that_the_executor_would_build_wrong_is_refused(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", "RUN <<EOF\nexit 5\nEOF\n")
    said = place.inv("build.tpu", f"--context={folder}", ok=(3,)).stderr
    assert "docker/Dockerfile.tpu, line 8: heredoc" in said


def test_a_tag_of_an_executor_becomes_a_digest(place: Place, tmp_path: Path) -> None:
    host = f"127.0.0.1:{registry_port(place)}"
    tags = command.output(["crane", "ls", f"{host}/iris-images/executor"]).split()
    tag = next(tag for tag in tags if tag.startswith("v"))
    folder = context(tmp_path / "context", SMALL)
    image = f"{host}/iris-images/executor:{tag}"
    record, _ = place.build("tpu", f"--context={folder}", INVOKE_EXECUTOR_IMAGE=image)
    assert record["inputs"]["EXECUTOR_IMAGE"].startswith(f"{host}/iris-images/executor@sha256:")


def test_a_submission_that_was_not_recorded_is_found_again(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", SMALL)
    record, _ = place.build("tpu", f"--context={folder}", "--no-wait")
    path = place.state / "records" / "tpu" / f"{record['id']}.json"
    lost = {name: value for name, value in record.items() if name not in ("job", "submitted")}
    path.write_text(json.dumps({**lost, "state": "submitting"}))
    place.inv("watch", f"--build={record['id']}")
    found = json.loads(path.read_text())
    assert (found["state"], found["job"]) == ("pushed", record["job"])


def test_what_cannot_be_is_refused_in_the_task_by_name(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", SMALL)
    table = folder / "docker/images.toml"
    table.write_text(table.read_text().replace("4000000000", "0"))
    _, said = place.build("tpu", f"--context={folder}", ok=(2,))
    assert "LAYER_CEILING is not a whole number above 0: 0" in said


def test_a_killed_submitter_leaves_a_record_that_can_be_finished(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", "RUN sleep 5\n")
    env = {"INVOKE_PATHS_STATE": str(place.state), **place.env}
    process = command.start([INV, "build.tpu", f"--context={folder}"], cwd=ROOT, env=env)
    assert process.stderr
    for raw in process.stderr:
        if b"phase=build" in raw:
            process.kill()
            break
    process.wait()
    record = json.loads(place.inv("record.tpu", "--json").stdout)
    assert record["state"] == "submitted"
    place.inv("watch", f"--build={record['id']}")
    shown = place.inv("record.tpu", "--json", f"--build={record['id']}").stdout
    assert json.loads(shown)["state"] == "pushed"


def test_an_interrupted_set_up_stops_its_compilers(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    env = {"XDG_CACHE_HOME": str(cache), "INVOKE_PATHS_STATE": str(tmp_path / "state")}
    process = command.start([INV, "local.up"], cwd=ROOT, env=env)
    wait_for_process(f"-o {cache}", str(cache))
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
    assert not any(str(cache) in line for line in processes().values())


def test_on_a_terminal_the_view_is_live(place: Place, tmp_path: Path) -> None:
    folder = context(tmp_path / "context", SMALL)
    ours, theirs = os.openpty()
    env = {"INVOKE_PATHS_STATE": str(place.state), "TERM": "xterm", **place.env}
    with open(theirs, "wb") as terminal:  # noqa: PTH123 - a file descriptor
        words = [INV, "build.tpu", f"--context={folder}"]
        process = command.start(words, cwd=ROOT, env=env, stderr=terminal)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal whose other side is closed
        while block := os.read(ours, 65536):
            seen += block
    assert process.wait(60) == 0
    assert b"  phase: " in seen
    assert b"\x1b[" in seen, "it is drawn over and over"


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path / "state")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "REGISTRY_TOKEN": TOKEN}
    result = place.inv("build.gpurl", "--dry-run", **env)
    assert "cluster: local, embedded" in result.stderr.splitlines()[0]
    assert "job run" in result.stderr
    assert TOKEN not in result.stdout + result.stderr
    assert not list(tmp_path.iterdir())


def test_a_cluster_takes_the_same_path_with_other_values(place: Place, tmp_path: Path) -> None:
    iris = next(CACHE.glob("iris-*/bin/iris"))
    folder = context(tmp_path / "context", "RUN true\n")
    words = ("build.tpu", "--cluster=cw-us-east-02a", "--dry-run", "--json", f"--context={folder}")
    plan = json.loads(place.inv(*words, INVOKE_IRIS_PROGRAM=str(iris)).stdout)
    assert "--cluster cw-us-east-02a" in plan["argv"]
    assert plan["argv"].count("docker.io/library/ubuntu:22.04") == 1
    assert "sandbox" not in plan["argv"]
    assert plan["inputs"]["EXECUTOR_IMAGE"].startswith("ghcr.io/osscontainertools/kaniko:")
    (folder / "new").touch()
    said = place.inv(*words, INVOKE_IRIS_PROGRAM=str(iris), ok=(4,)).stderr
    assert "differs from its commit" in said


def test_the_last_build_out_stops_what_builds_started(tmp_path: Path) -> None:
    place = Place(tmp_path / "state")
    folder = context(tmp_path / "context", SMALL)
    place.build("tpu", f"--context={folder}")
    said = place.inv("local.status").stderr
    assert said.count("not running") == 3
    assert not any(str(place.state) in line for line in processes().values())
