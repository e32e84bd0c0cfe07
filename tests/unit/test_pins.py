"""Dockerfiles as text, and executors that would build them otherwise than written."""

from __future__ import annotations

import pytest

from scripts.errors import ConfigurationError, InputError
from scripts.pins import dockerfile, executors

LOCAL = "127.0.0.1:5005/iris-images/executor@sha256:" + "a" * 64


def test_pins_are_the_first_default_at_the_start_of_a_line() -> None:
    text = 'ARG A=1\nARG B="2 3"\nFROM x\nARG A\nARG A=4\n  ARG C=5\nENV D=6\n'
    assert dockerfile.pins(text) == {"A": "1", "B": "2 3"}


@pytest.mark.parametrize(
    ("text", "feature", "line"),
    [
        ("FROM x\nRUN <<EOF\ntrue\nEOF\n", "heredoc", 2),
        ('FROM x\nCOPY <<"EOF" /f\n', "heredoc", 2),
        ("FROM x\n# note\nRUN \\\n  --mount=type=secret,id=t \\\n  true\n", "mount-secret", 3),
        ("FROM x\nRUN --mount=target=/c,type=cache true\n", "mount-cache", 2),
        ("FROM x\nCOPY --from=0 /a /a\n", "numbered-stage", 2),
        ("FROM x\nCOPY a /kaniko/b\n", "writes-kaniko", 2),
        ('FROM x\nCOPY ["a", "/kaniko/b"]\n', "writes-kaniko", 2),
        ("FROM x\nRUN --mount=target=/c true\n", "mount-bind", 2),
        ("FROM x\nRUN --mount='type=cache,target=/c' true\n", "mount-cache", 2),
        ("FROM x\nONBUILD RUN <<EOF\ntrue\nEOF\n", "heredoc", 2),
        ("FROM x\nRUN true \\\n\n  && cat <<EOF\nEOF\n", "heredoc", 2),
    ],
)
def test_what_the_local_executor_would_build_wrong_is_refused(text: str, feature: str, line: int) -> None:
    with pytest.raises(ConfigurationError, match=f"Dockerfile, line {line}: {feature}"):
        executors.check_dockerfile("Dockerfile", text, LOCAL)


def test_a_shift_in_shell_arithmetic_is_no_heredoc() -> None:
    executors.check_dockerfile("Dockerfile", "FROM x\nRUN echo $((1 << 3)) && cat <<< word\n", LOCAL)


def test_the_maintained_fork_knows_heredocs_but_gets_no_secrets() -> None:
    executors.check_dockerfile("Dockerfile", "FROM x\nRUN <<EOF\ntrue\nEOF\n", executors.MAINTAINED)
    with pytest.raises(ConfigurationError, match="mount-secret"):
        executors.check_dockerfile(
            "Dockerfile", "FROM x\nRUN --mount=type=secret,id=t true\n", executors.MAINTAINED
        )


@pytest.mark.parametrize(
    "image",
    [
        "gcr.io/kaniko-project/executor:v1.24.0",
        "gcr.io/kaniko-project/debug:v1.24.0",
        "mirror.example:5000/kaniko-project/executor:v1.24.0",
        "ghcr.io/osscontainertools/kaniko:debug",
        "ghcr.io/osscontainertools/kaniko:latest",
        "ghcr.io/osscontainertools/kaniko",
    ],
)
def test_an_executor_that_is_archived_or_floats_is_refused(image: str) -> None:
    with pytest.raises(InputError, match=image):
        executors.check_reference(image)
