"""Moving a floating tag in a real registry: the way back, the race, the kill, the refused write."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import command
from tests.conftest import git
from tests.local.faulty_proxy import Fault, Proxy, faulty
from tests.local.images import Repository, fit, on
from tests.local.place import INV, ROOT, Place

NEVER = Fault(pause=3600)


@dataclass(frozen=True)
class Tag:
    """The floating tag of a repository, and the tasks that move it."""

    place: Place
    source: Path
    repository: Repository

    def promote(self, *words: str, ok: tuple[int, ...] = (0,), through: str = "") -> command.Result:
        named = (f"--context={self.source}", "--yes", "--no-smoke", "--why=a test", *words)
        return self.place.inv("promote.tpu", *named, ok=ok, **self.env(through))

    def rollback(self, *words: str, ok: tuple[int, ...] = (0,)) -> command.Result:
        return self.place.inv(
            "rollback.tpu", f"--context={self.source}", "--yes", *words, ok=ok, **self.env()
        )

    def promotions(self, through: str = "") -> str:
        return self.place.inv("promotions.tpu", **self.env(through)).stdout

    def env(self, through: str = "") -> dict[str, str]:
        host = through or self.repository.host
        return {"INVOKE_REGISTRY_REPOSITORY": f"{host}/{self.repository.path}"}

    def push(self, name: str) -> str:
        """A fit image that differs from all others; returns its digest."""
        config = {**fit(self.source), "annotations": {"name": name}}
        return str(self.repository.image(f"fixed-{name}", **config)["digest"])

    @property
    def now(self) -> str:
        return command.output(["crane", "digest", f"{self.repository}:tpu"])

    @property
    def kept(self) -> dict[str, str]:
        """What the tags that keep the way back give, the oldest first."""
        tags = command.output(["crane", "ls", str(self.repository)]).split()
        names = sorted(tag for tag in tags if tag.startswith("tpu-"))
        return {name: command.output(["crane", "digest", f"{self.repository}:{name}"]) for name in names}


@pytest.fixture
def tag(place: Place, source: Path, repository: Repository) -> Tag:
    return Tag(place, source, repository)


def test_a_promotion_keeps_the_way_back_and_a_rollback_takes_it(tag: Tag) -> None:
    one, two, three = (tag.push(name) for name in ("one", "two", "three"))
    shown = tag.promote(f"--digest={one}").stderr
    assert "no such tag" in shown
    assert "IfNotPresent" in shown
    assert (tag.now, tag.kept) == (one, {})
    tag.promote(f"--digest={two}")
    tag.promote(f"--digest={three}")
    assert tag.now == three
    assert list(tag.kept.values()) == [one, two]

    tag.rollback()
    assert tag.now == two
    # What was taken back is not gone back to, and neither is what is there.
    tag.rollback()
    assert tag.now == one
    assert "No earlier promotion" in tag.rollback(ok=(2,)).stderr
    moves = tag.promotions().splitlines()
    verbs = [" ".join(line.split()[2:5]) for line in moves[:4]]
    assert verbs == ["gave way to", "gave way to", "was taken back", "was taken back"]
    assert moves[-1].endswith(f"gives {one}")
    tag.rollback(f"--to={three}")
    assert tag.now == three


def test_repeating_a_promotion_is_no_move_and_a_dry_run_is_none(tag: Tag) -> None:
    one, two = tag.push("one"), tag.push("two")
    tag.promote(f"--digest={one}")
    assert "nothing to do" in tag.promote(f"--digest={one}").stderr
    assert two in tag.promote(f"--digest={two}", "--dry-run").stderr
    assert (tag.now, tag.kept) == (one, {})


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--digest=sha256:" + "0" * 64,), 10),
        (("--digest=sha256:0123",), 2),
        (("--digest=127.0.0.1:1/other/image@sha256:" + "0" * 64,), 2),
        ((), 2),
    ],
)
def test_a_digest_that_cannot_be_promoted(tag: Tag, words: tuple[str, ...], code: int) -> None:
    before = tag.push("one")
    tag.promote(f"--digest={before}")
    tag.promote(*words, ok=(code,))
    assert (tag.now, tag.kept) == (before, {})


def test_what_is_not_fit_or_was_not_run_is_not_promoted(tag: Tag) -> None:
    unfit = tag.repository.image("unfit", config={})["digest"]
    assert "is not fit" in tag.promote(f"--digest={unfit}", ok=(15,)).stderr
    digest = tag.push("one")
    words = (f"--context={tag.source}", "--yes", f"--digest={digest}")
    assert "inv smoke.tpu" in tag.place.inv("promote.tpu", *words, ok=(2,), **tag.env()).stderr
    assert "--why" in tag.place.inv("promote.tpu", *words, "--no-smoke", ok=(2,), **tag.env()).stderr
    refused = tag.place.inv("promote.tpu", *words[::2], "--no-smoke", "--why=x", ok=(2,), **tag.env())
    assert "--yes" in refused.stderr
    assert tag.repository.host in tag.place.inv("promotions.tpu", **tag.env()).stdout
    assert "has no floating tag" in tag.place.inv("promote.gpurl", f"--digest={digest}", ok=(2,)).stderr


def test_a_child_does_not_take_the_place_of_its_index_nor_an_index_that_of_its_child(tag: Tag) -> None:
    child = tag.repository.image(**fit(tag.source))
    index = tag.repository.index("index", [on(child, "linux/amd64")])
    tag.promote(f"--digest={index['digest']}")
    assert "is a child" in tag.promote(f"--digest={child['digest']}", ok=(2,)).stderr
    assert tag.now == index["digest"]
    command.run(["crane", "tag", f"{tag.repository}@{child['digest']}", "tpu"], timeout=60)
    assert "gives its child" in tag.promote(f"--digest={index['digest']}", ok=(2,)).stderr
    assert tag.now == child["digest"]


def test_what_somebody_put_there_by_hand_is_no_way_back_unless_it_passes(tag: Tag) -> None:
    unfit = tag.repository.image("tpu", config={})["digest"]
    one = tag.push("one")
    tag.promote(f"--digest={one}")
    assert list(tag.kept.values()) == [unfit]
    tag.rollback(ok=(15,))
    assert tag.now == one


def test_the_tag_of_head_must_be_of_head(tag: Tag) -> None:
    wrong = fit(tag.source)
    git(tag.source, "commit", "--quiet", "--allow-empty", "--message", "two")
    tag.repository.image(f"tpu-{git(tag.source, 'rev-parse', 'HEAD')}", **wrong)
    assert "revision" in tag.promote("--digest", ok=(15,)).stdout


def test_a_way_back_that_is_of_no_day_is_passed_over(tag: Tag) -> None:
    one, two = tag.push("one"), tag.push("two")
    tag.promote(f"--digest={one}")
    tag.promote(f"--digest={two}")
    command.run(["crane", "tag", f"{tag.repository}@{two}", "tpu-before-20269999T999999Z-1a2b"], timeout=60)
    assert "gave way" in tag.promotions()
    tag.rollback()
    assert tag.now == one


def test_head_is_promoted_when_no_digest_is_named(tag: Tag) -> None:
    commit = git(tag.source, "rev-parse", "HEAD")
    digest = tag.repository.image(f"tpu-{commit}", **fit(tag.source))["digest"]
    assert f"tpu-{commit}" in tag.promote("--digest").stderr
    assert tag.now == digest


def test_a_rollback_warns_of_a_target_without_the_fix(tag: Tag) -> None:
    one = tag.push("one")
    tag.promote(f"--digest={one}")
    git(tag.source, "commit", "--quiet", "--allow-empty", "--message", "the fix")
    two = tag.push("two")
    tag.promote(f"--digest={two}")
    shown = tag.rollback("--not-before=HEAD", "--dry-run").stderr
    assert "does not contain" in shown
    assert "commits taken back" in shown
    assert "the fix" in shown
    assert "warning" not in tag.rollback("--not-before=HEAD~1", "--dry-run").stderr
    never = tag.repository.image("never", config={})["digest"]
    tag.rollback(f"--to={never}", ok=(15,))


def writes(request: tuple[str, str, str]) -> bool:
    return request[0] == "PUT" and "/manifests/" in request[1]


def at_write(number: int, act: Callable[[Proxy], Fault | int]) -> Callable[[Proxy], object]:
    """Let a proxy act at its so many-th write of a manifest (from 1)."""

    def install(proxy: Proxy) -> None:
        def choose(*request: str) -> Fault | int:
            ours = writes((request[0], request[1], request[2]))
            count = sum(map(writes, proxy.requests))
            return act(proxy) if ours and count == number else 0

        proxy.choose = choose

    return install


def test_a_tag_that_others_moved_after_the_plan_stays_theirs(tag: Tag) -> None:
    one, two, three = (tag.push(name) for name in ("one", "two", "three"))
    tag.promote(f"--digest={one}")

    def overtake(proxy: Proxy) -> int:
        command.run(["crane", "tag", f"{tag.repository}@{three}", "tpu"], timeout=60)
        return 0

    with faulty(int(tag.repository.host.split(":")[1]), lambda *_: 0) as proxy:
        at_write(1, overtake)(proxy)
        told = tag.promote(f"--digest={two}", through=f"127.0.0.1:{proxy.port}", ok=(18,)).stderr
    assert one in told
    assert three in told
    assert tag.now == three


def test_of_two_at_once_both_are_told_and_nothing_is_lost(tag: Tag) -> None:
    one, two, three = (tag.push(name) for name in ("one", "two", "three"))
    tag.promote(f"--digest={one}")
    told: list[str] = []

    def faster(proxy: Proxy) -> int:
        told.append(tag.promote(f"--digest={three}").stderr)
        return 0

    with faulty(int(tag.repository.host.split(":")[1]), lambda *_: 0) as proxy:
        at_write(2, faster)(proxy)
        slower = tag.promote(f"--digest={two}", through=f"127.0.0.1:{proxy.port}").stderr
    assert "others moved" in slower
    assert tag.now == two
    assert list(tag.kept.values()) == [one, one]


def test_a_refused_write_moves_nothing(tag: Tag) -> None:
    one, two = tag.push("one"), tag.push("two")
    tag.promote(f"--digest={one}")
    with faulty(int(tag.repository.host.split(":")[1]), lambda *_: 0) as proxy:
        at_write(1, lambda _: Fault(status=403))(proxy)
        tag.promote(f"--digest={two}", through=f"127.0.0.1:{proxy.port}", ok=(8,))
    assert (tag.now, tag.kept) == (one, {})


def test_a_registry_that_fails_before_the_read_back_leaves_the_truth_to_be_asked(tag: Tag) -> None:
    one, two = tag.push("one"), tag.push("two")
    tag.promote(f"--digest={one}")

    def refuse(*request: str) -> int:
        moved = sum(map(writes, proxy.requests)) == 2 and not writes((request[0], request[1], request[2]))
        return 401 if moved else 0

    with faulty(int(tag.repository.host.split(":")[1]), lambda *_: 0) as proxy:
        proxy.choose = refuse
        through = f"127.0.0.1:{proxy.port}"
        tag.promote(f"--digest={two}", through=through, ok=(8,))
        assert tag.now == two
        proxy.choose = lambda *_: 0
        assert "the tag was moved" in tag.promotions(through)


@pytest.mark.parametrize(("number", "truth"), [(1, "was not moved"), (2, "was not moved"), (3, "was moved")])
def test_a_kill_at_any_step_leaves_what_is_true_to_be_told(tag: Tag, number: int, truth: str) -> None:
    one, two = tag.push("one"), tag.push("two")
    tag.promote(f"--digest={one}")
    reached = threading.Event()

    def hang(*request: str) -> Fault | int:
        written = sum(map(writes, proxy.requests))
        ours = writes((request[0], request[1], request[2]))
        if (written == number and ours) or (number == 3 and written == 2 and not ours):
            reached.set()
            return NEVER
        return 0

    with faulty(int(tag.repository.host.split(":")[1]), lambda *_: 0) as proxy:
        proxy.choose = hang
        words = (
            "promote.tpu",
            f"--context={tag.source}",
            "--yes",
            "--no-smoke",
            "--why=x",
            f"--digest={two}",
        )
        env = {
            "INVOKE_PATHS_STATE": str(tag.place.state),
            **tag.place.env,
            **tag.env(f"127.0.0.1:{proxy.port}"),
        }
        process = command.start([INV, *words], cwd=ROOT, env=env)
        assert reached.wait(60)
        time.sleep(0.1)
        command.stop(process, grace=0) if number == 1 else process.send_signal(signal.SIGKILL)
        process.wait(60)
        proxy.choose = lambda *_: 0
        through = f"127.0.0.1:{proxy.port}"
        assert tag.now == (two if number == 3 else one)
        assert truth in tag.promotions(through)
        tag.promote(f"--digest={two}", through=through)
    assert tag.now == two
