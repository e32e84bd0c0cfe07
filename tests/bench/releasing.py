"""What a promotion costs: requests and time, from the digest to the tag that was read back.

The peer is `crane digest`, `crane tag`, `crane digest`: look, move, look again.
"""

from __future__ import annotations

import io
import itertools
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from scripts import command
from scripts.catalogue import load
from scripts.local import registry, services
from scripts.release import promote
from scripts.settings import Settings
from tests.bench.measure import median, show
from tests.conftest import CACHE
from tests.local.faulty_proxy import faulty
from tests.local.images import Repository, fit, small_checkout

REPEATS = 9
PING = "/v2/"
"""Each call of crane asks this first, to learn whether and how it must log in."""
LOGIN = {"REGISTRY_USER": "someone", "REGISTRY_TOKEN": "made-up"}


def run(work: Path) -> None:
    """Run every measurement of releasing and print one line each."""
    state, source = work / "services", small_checkout(work / "source")
    running = registry.up(CACHE, state)
    try:
        repository = Repository(f"127.0.0.1:{running.port}", "bench/image")
        made = (
            repository.image(name, **{**fit(source), "annotations": {"name": name}}) for name in ("a", "b")
        )
        turns = itertools.cycle([str(one["digest"]) for one in made])
        os.environ |= LOGIN
        moved(str(repository), next(turns), source, work)
        ours = median(lambda: moved(str(repository), next(turns), source, work), REPEATS)
        theirs = median(lambda: bare(repository, next(turns)), REPEATS)
        show("promotion", ours * 1000, "crane digest + tag + digest", theirs * 1000, "ms")
        count_requests(repository, next(turns), source, work)
    finally:
        services.down(state, "registry")


def count_requests(repository: Repository, digest: str, source: Path, work: Path) -> None:
    """Print how often a promotion asks a registry; both images are on record by then."""
    with faulty(int(repository.host.split(":")[1]), lambda *_: 0) as proxy:
        through = f"127.0.0.1:{proxy.port}/{repository.path}"
        moved(through, digest, source, work)
        asked = [method for method, path, _ in proxy.requests if path != PING]
    print(f"promotion: {len(asked)} requests beyond authentication, three of them for the verdict")


def moved(repository: str, digest: str, source: Path, work: Path) -> None:
    """Promote a digest as the task does."""
    image = load(source)["tpu"]
    settings = Settings("bench", CACHE, work / "state", "iris", "", "", repository, {})
    options = promote.Options(yes=True, smoke=False, why="a measurement")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        promote.promote(settings, image, source, digest, options)


def bare(repository: Repository, digest: str) -> None:
    """Look, move, look again, and nothing else."""
    tag = f"{repository}:tpu"
    for words in (["digest", tag], ["tag", f"{repository}@{digest}", "tpu"], ["digest", tag]):
        command.run(["crane", *words], timeout=60)
