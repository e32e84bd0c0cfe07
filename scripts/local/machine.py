"""This machine in the place of a cluster: what is made once, what is started, and the values of its site.

A build starts what is missing, and the last one to end stops what the builds started. What was pushed,
and what was made, stays.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from scripts import command, credentials
from scripts.build import Site
from scripts.catalogue import Image
from scripts.credentials import Credential
from scripts.errors import IrisError
from scripts.iris import local_cluster
from scripts.iris.cli import Iris
from scripts.local import certificates, registry, roots, sandbox, services, sources, tool_images, toolchain
from scripts.progress import say, step
from scripts.registry import crane
from scripts.registry.reference import Reference
from scripts.settings import LOCAL, Settings

NAMES = ("iris", "git", "registry")
"""The services, in the order in which they are stopped."""
TASK_IMAGE = "iris-images/task"
ROOT_BYTES = 6_000_000_000
"""What the root of a small build may grow to: base, layers uncompressed, and the layout."""
WRITTEN_BYTES = 2_000_000_000
"""What an image's root may be larger than its tar: whole blocks for small files, and what a task writes."""
EXPORT_SECONDS = 1800.0


@dataclass(frozen=True)
class Made:
    """What a build needs that takes long to make, as paths in the cache."""

    executor: Path
    task_root: Path
    base_root: Path
    iris: Path


@contextmanager
def site(settings: Settings, image: Image) -> Iterator[Site]:
    """The site of this machine, everything made, filled and started, until the end of the block."""
    sandbox.available()
    with services.in_use(settings.services, lambda: _stop(settings, on_demand_only=True)):
        made = _make(settings)
        with ThreadPoolExecutor() as pool:  # Iris takes three seconds to start
            iris = pool.submit(local_cluster.up, settings.cache, settings.services)
            found = _filled(settings, image, made)
            running = iris.result()
        yield replace(found, iris=_iris(made.iris, running))


def _filled(settings: Settings, image: Image, made: Made) -> Site:
    """The values of the site, with everything in the registry that they name."""
    port = registry.up(settings.cache, settings.services).port
    origin = sources.make(settings.cache, sources.up(settings.cache, settings.services).port)
    crane, host, scratch = toolchain.crane(), f"127.0.0.1:{port}", settings.state / "roots"
    archive = tool_images.crane_archive(crane, host)
    base = roots.image(
        made.base_root, Reference(host, "iris-images/base", "local"), env=certificates.DEBIAN_ENV
    )
    return replace(
        outline(settings, image),
        credential=credential(),
        executor=settings.executor_image or tool_images.executor_image(crane, host, made.executor),
        crane_url=archive.url,
        crane_sha256=archive.sha256,
        launcher=sandbox.command_prefix(made.task_root, scratch, ROOT_BYTES),
        build_args=_build_args(settings, image, origin, str(base), made.base_root),
        wheelhouse=_wheelhouse(settings, image, origin, made.base_root, scratch, host),
    )


def outline(settings: Settings, image: Image) -> Site:
    """The same site for a plan that is only shown: nothing is made or started, tags stand for digests."""
    host = f"127.0.0.1:{registry.expected_port(settings.services)}"
    return Site(
        name=LOCAL,
        iris=Iris(("iris",), ("--controller-url", "http://127.0.0.1:<port>"), local_cluster.OPTIONS),
        repository=settings.repository or repository(settings, image),
        credential=Credential("local", "<token>"),
        executor=settings.executor_image or f"{host}/iris-images/executor:{toolchain.EXECUTOR.version}",
        crane_url=f"http://{host}/v2/iris-images/crane/blobs/<digest>",
        crane_sha256="<sha256>",
        task_image=TASK_IMAGE,
        launcher=("<disposable root>",),
        wheelhouse=f"{host}/iris-images/wheels:<manifest>",
        architecture=toolchain.architecture(),
        local=True,
    )


def repository(settings: Settings, image: Image) -> str:
    """Where the image goes in the local registry, as host/path."""
    return f"127.0.0.1:{registry.expected_port(settings.services)}/iris-images/{image.name}"


@contextmanager
def readable(settings: Settings) -> Iterator[None]:
    """The local registry and the git server live until the end of the block."""
    with services.in_use(settings.services, lambda: _stop(settings, on_demand_only=True)):
        registry.up(settings.cache, settings.services)
        sources.up(settings.cache, settings.services)
        yield


@contextmanager
def runner(
    settings: Settings, reference: Reference, *, env: crane.Env | None
) -> Iterator[tuple[Iris, tuple[str, ...]]]:
    """The local Iris, and words that make a task's command run in an image, until the end of the block.

    The local Iris ignores a task image. So what a node does is done here: the image is had by its digest, and
    unpacked into a disposable root, where its own environment counts.
    """
    sandbox.available()
    scratch = settings.state / "roots"
    with services.in_use(settings.services, lambda: _stop(settings, on_demand_only=True)):
        iris = local_cluster.environment(settings.cache)
        running = local_cluster.up(settings.cache, settings.services)
        scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch, prefix="smoke-") as folder:
            tar = Path(folder, "root.tar")
            with step(f"pulling {reference}"):
                crane.ask(["export", str(reference), str(tar)], timeout=EXPORT_SECONDS, env=env)
            pairs = crane.config(reference, env=env).get("config", {}).get("Env") or []
            prefix = sandbox.command_prefix(tar, scratch, tar.stat().st_size + WRITTEN_BYTES)
            yield _iris(iris, running), (*prefix, "env", *pairs)


@contextmanager
def attached(settings: Settings, image: Image) -> Iterator[Site]:
    """The site of a job that runs already.

    Raises:
        IrisError: the local Iris does not live, and its jobs with it.
    """
    running = services.find(settings.services, "iris")
    if not running:
        raise IrisError("The local Iris does not run, so none of its jobs does.", "build again.")
    with services.in_use(settings.services, lambda: _stop(settings, on_demand_only=True)):
        iris = _iris(local_cluster.environment(settings.cache), running)
        yield replace(outline(settings, image), iris=iris)


def up(settings: Settings) -> None:
    """Make what is missing and start every service, until somebody stops them."""
    _make(settings)
    registry.up(settings.cache, settings.services, on_demand=False)
    sources.up(settings.cache, settings.services, on_demand=False)
    local_cluster.up(settings.cache, settings.services, on_demand=False)
    keep(settings)
    status(settings)


def status(settings: Settings) -> None:
    """Say which services live."""
    for name in reversed(NAMES):
        running = services.find(settings.services, name)
        say(f"{name}: " + (f"127.0.0.1:{running.port}, log {running.log}" if running else "not running"))


def down(settings: Settings) -> None:
    """Stop every service."""
    _stop(settings, on_demand_only=False)
    status(settings)


def keep(settings: Settings) -> None:
    """Let the services run when the builds that started them are over."""
    services.keep(settings.services)


def _stop(settings: Settings, *, on_demand_only: bool) -> None:
    for name in NAMES:
        running = services.find(settings.services, name)
        if running and (running.on_demand or not on_demand_only):
            services.down(settings.services, name)


def _make(settings: Settings) -> Made:
    """Everything that takes long, side by side: compilers and downloads wait for different things."""
    cache = settings.cache
    makers: tuple[Callable[[Path], Path], ...] = (
        toolchain.executor,
        roots.task_root,
        roots.base_root,
        local_cluster.environment,
        toolchain.registry,
    )
    with ThreadPoolExecutor(len(makers)) as pool:
        futures = [pool.submit(make, cache) for make in makers]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:  # an interrupt, too: nobody waits for a compiler then
            command.stop_all()
            raise
        executor, task_root, base_root, iris, _ = (future.result() for future in futures)
    return Made(executor, task_root, base_root, iris)


def _iris(environment: Path, running: services.Running) -> Iris:
    url = local_cluster.controller_url(running)
    return Iris(local_cluster.iris(environment), ("--controller-url", url), local_cluster.OPTIONS)


def credential() -> Credential:
    """Who pushes here: the user's own for a registry that asks for one; else one that is made up."""
    user, token = os.environ.get("REGISTRY_USER"), os.environ.get("REGISTRY_TOKEN")
    return Credential(user, token) if user and token else credentials.made_up()


def _build_args(
    settings: Settings, image: Image, origin: sources.Sources, base: str, base_root: Path
) -> dict[str, str]:
    version = sources.python_version(settings.cache, base_root)
    return {"BASE_IMAGE": base, "PYTHON_VERSION": version, **origin.build_args(image.name)}


def _wheelhouse(
    settings: Settings, image: Image, origin: sources.Sources, base_root: Path, scratch: Path, host: str
) -> str:
    if not image.wheels or image.name in settings.wheels:
        return settings.wheels.get(image.name, "")
    wheels = sources.wheels(settings.cache, origin, base_root, scratch)
    return tool_images.wheel_set(toolchain.crane(), host, wheels)
