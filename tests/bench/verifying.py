"""What a verdict by manifest and configuration costs: requests, bytes, time, and how it grows with layers.

The peer is `crane manifest` and `crane config` of the same image, run one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scripts import command, expected, settings, verify
from scripts.catalogue import load
from scripts.local import registry, services
from scripts.verify import Question
from tests.bench.measure import median, show
from tests.conftest import CACHE, git
from tests.local.faulty_proxy import Fault, faulty
from tests.local.images import Repository, layer
from tests.local.place import ROOT

REPEATS = 15
COUNTS = (10, 48, 500)
PEER = ("manifest", "config")
ROUND_TRIP = 0.05
"""Seconds that a registry far away takes to answer."""
IMAGE = replace(load(ROOT)["tpu"], lock=None)
"""Without the lock, which git fetches once for a commit and keeps."""


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
    """Measure a verdict of an image with so many layers, near and far; returns its seconds near."""
    commit = git(ROOT, "rev-parse", "HEAD")
    tag = f"tpu-{commit}"
    config = {"Labels": {"org.opencontainers.image.revision": commit}}
    repository.image(tag, [layer({f"file-{number}": b"x"}) for number in range(count)], config=config)
    seconds = compare(f"verify, {count} layers", f"{repository}:{tag}", work)
    with faulty(int(repository.host.split(":")[1]), lambda *_: 0) as proxy:
        far = f"127.0.0.1:{proxy.port}/{repository.path}:{tag}"
        verdict(far, work)
        asked = len(proxy.requests), sum("/blobs/" in path for _, path, _ in proxy.requests)
        print(f"verify, {count} layers: {asked[0]} requests, {asked[1]} of a blob, {proxy.sent} bytes")
        proxy.choose = lambda *_: Fault(pause=ROUND_TRIP)
        compare(f"verify, {count} layers, {ROUND_TRIP * 1000:.0f} ms a request", far, work)
    return seconds


def compare(what: str, ref: str, work: Path) -> float:
    """Print a verdict's time beside crane's; returns its seconds."""
    ours = median(lambda: verdict(ref, work), REPEATS)
    theirs = median(lambda: [command.run(["crane", word, ref], timeout=60) for word in PEER], REPEATS)
    show(what, ours * 1000, "crane manifest + crane config", theirs * 1000, "ms")
    return ours


def verdict(ref: str, work: Path) -> None:
    """Verify as the task does, from the reference to the rows, with nothing kept from the time before."""
    expected.dockerfile_at.cache_clear()
    verify.verify(place(work), Question(IMAGE, ROOT, (ref,)))


def place(work: Path) -> settings.Settings:
    """Settings of a cluster, for which no local server is started."""
    return settings.Settings("bench", CACHE, work / "state", "iris", "", "", "", {})
