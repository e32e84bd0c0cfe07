"""The asserts that are baked into an image: all are tried, each says what it expected and saw."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ASSERTS = Path(__file__).parents[2] / "docker/asserts"
COMMIT = "a" * 40


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """What the tpu image has at /opt/iris-images, and small packages that are as its pins say."""
    shutil.copy(ASSERTS / "runner.py", tmp_path / "runner.py")
    shutil.copy(ASSERTS / "tpu.py", tmp_path / "asserts.py")
    (tmp_path / "provenance").mkdir()
    bake(tmp_path, PYTHON_VERSION=f"{sys.version_info.major}.{sys.version_info.minor}")
    for name, module in {"jax": "jax", "vllm-tpu": "vllm", "harbor": "harbor"}.items():
        (tmp_path / "packages" / module).mkdir(parents=True)
        (tmp_path / "packages" / module / "__init__.py").touch()
        info = tmp_path / "packages" / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "vcs_info": {"commit_id": COMMIT}}))
    return tmp_path


def bake(image: Path, **pins: str) -> None:
    known = {"VLLM_TPU_VERSION": "1.0", "HARBOR_COMMIT": COMMIT, **pins}
    (image / "provenance/pins").write_text("".join(f"{name}={value}\n" for name, value in known.items()))


def run(image: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(image / "asserts.py")]
    env = {"PYTHONPATH": str(image / "packages")}
    return subprocess.run(argv, env=env, capture_output=True, text=True)


def test_an_image_that_is_what_its_pins_say_passes(image: Path) -> None:
    result = run(image)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("assert ok: ") == 4
    assert COMMIT in result.stdout


def test_all_asserts_are_tried_and_each_says_what_it_expected_and_saw(image: Path) -> None:
    bake(image, PYTHON_VERSION="2.7", VLLM_TPU_VERSION="9.9", HARBOR_COMMIT="b" * 40)
    (image / "packages/jax/__init__.py").write_text("import no_such_library")
    result = run(image)
    assert result.returncode == 1
    failures = [line for line in result.stderr.splitlines() if line.startswith("assert failed: ")]
    assert len(failures) == 4
    assert all("expected" in line and "saw" in line for line in failures)
    assert f"expected the commit of harbor to be '{'b' * 40}', saw '{COMMIT}'" in result.stderr


def test_a_package_that_came_from_an_index_has_no_commit(image: Path) -> None:
    (image / "packages/harbor-1.0.dist-info/direct_url.json").unlink()
    result = run(image)
    assert result.returncode == 1
    assert f"expected the commit of harbor to be '{COMMIT}', saw ''" in result.stderr
