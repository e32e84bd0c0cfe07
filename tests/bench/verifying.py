"""What a verdict by manifest and configuration costs: requests, bytes, time, and how it grows with layers.

The peer is `crane manifest` and `crane config` of the same image, run one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from scripts import command, settings, verify
from scripts.catalogue import load
from scripts.local import registry, services
from scripts.verify import Question
from tests.bench.measure import median, show
from tests.conftest import CACHE, git
from tests.local.faulty_proxy import faulty
from tests.local.images import Repository, layer
from tests.local.place import ROOT

REPEATS = 15
COUNTS = (10, 48, 500)


def run(work: Path) -> None:
    """Run every measurement of verifying and print one line each."""
    state = work / "services"
    running = registry.up(CACHE, state)
    try:
        repository = Repository(f"127.0.0.1:{running.port}", "bench/image")
        seconds = {count: against_crane(repository, work, count) for count in COUNTS}
        show("verify of 500 layers", seconds[500] * 1000, "of 10 layers", seconds[10] * 1000, "ms")
    finally:
        services.down(state, "registry")


def against_crane(repository: Repository, work: Path, count: int) -> float:
    """Measure a verdict of an image with so many layers; returns its seconds."""
    commit = git(ROOT, "rev-parse", "HEAD")
    tag = f"tpu-{commit}"
    config = {"Labels": {"org.opencontainers.image.revision": commit}}
    repository.image(tag, [layer({f"file-{number}": b"x"}) for number in range(count)], config=config)
    ours = median(partial(verdict, f"{repository}:{tag}", work), REPEATS)
    peer = ("manifest", "config")
    theirs = median(
        lambda: [command.run(["crane", word, f"{repository}:{tag}"], timeout=60) for word in peer], REPEATS
    )
    show(f"verify, {count} layers", ours * 1000, "crane manifest + crane config", theirs * 1000, "ms")
    with faulty(int(repository.host.split(":")[1]), lambda *_: 0) as proxy:
        verdict(f"127.0.0.1:{proxy.port}/{repository.path}:{tag}", work)
        asked = len(proxy.requests), sum("/blobs/" in path for _, path, _ in proxy.requests)
        print(f"verify, {count} layers: {asked[0]} requests, {asked[1]} of a blob, {proxy.sent} bytes")
    return ours


def verdict(ref: str, work: Path) -> None:
    """Verify as the task does, from the reference to the rows."""
    # Without a lock, which git fetches once for a commit and keeps.
    image = replace(load(ROOT)["tpu"], lock=None)
    verify.verify(place(work), Question(image, ROOT, (ref,)))


def place(work: Path) -> settings.Settings:
    """Settings of a cluster, for which no local server is started."""
    return settings.Settings("bench", CACHE, work / "state", "iris", "", "", "", {})
