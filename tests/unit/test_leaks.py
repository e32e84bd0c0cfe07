"""What looks like a secret in an image's configuration is found, named, and not repeated."""

from __future__ import annotations

import pytest

from scripts.registry import leaks

MADE_UP = {
    "GitHub token": "ghp_" + "a1B2c3D4e5" * 4,
    "Hugging Face token": "hf_" + "a1B2c3D4e5" * 4,
    "Docker Hub token": "dckr_pat_" + "a1B2c3D4e5" * 3,
    "AWS access key": "AKIA" + "A1B2C3D4E5F6G7H8",
    "private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "login in a header": "Authorization: Bearer made.up-word-of-some-length",
    "password in a URL": "https://someone:made-up-word@example.test/repo.git",
}


@pytest.mark.parametrize("kind", MADE_UP)
def test_each_kind_is_found_wherever_it_stands(kind: str) -> None:
    secret = MADE_UP[kind]
    config = {
        "config": {"Env": [f"X={secret}"], "Labels": {"x": secret}, "Cmd": ["run", secret]},
        "history": [{"created_by": "RUN true"}, {"created_by": f"RUN curl {secret}"}, {"comment": secret}],
    }
    found = leaks.found(config)
    for where in ("env X", "label x", "Cmd", "history entry 2", "history entry 3"):
        assert f"{kind} in {where}" in found
    assert secret not in " ".join(found)


@pytest.mark.parametrize(
    "step",
    [
        "|1 GH_TOKEN=made-up-word /bin/sh -c pip install x",
        "RUN WANDB_API_KEY='made-up-word' true",
        "ENV registry_password: made-up-word",
    ],
)
def test_a_value_behind_a_telling_name_is_found(step: str) -> None:
    assert leaks.found({"history": [{"created_by": step}]})


@pytest.mark.parametrize(
    "step",
    [
        "ARG HF_TOKEN",
        'RUN test -n "$HF_TOKEN" && HF_TOKEN=$HF_TOKEN ./run',
        "RUN GIT_CREDENTIAL=none TOKENIZERS_PARALLELISM=false true",
        "ENV GPG_KEY=7169605F62C751356D054A26A821E680E5FA6305 PYTHON_SHA256=73ac8fffd",
        "RUN git clone https://github.com/marin-community/harbor /x",
        "LABEL commit=1ffb4003f202daadcb7e407f449bd62278b5e8e1",
        "ENV HF_TOKEN_PATH=/run/secrets/token",
        "ENV VLLM_MAX_NUM_BATCHED_TOKENS=8192 TOKENIZER=gpt2 TIKTOKEN_CACHE_DIR=cache",
        "RUN serve --max-tokens=4096 && MAX_TOKEN=12 true",
    ],
)
def test_what_images_rightly_hold_is_not(step: str) -> None:
    assert leaks.found({"history": [{"created_by": step}]}) == []
