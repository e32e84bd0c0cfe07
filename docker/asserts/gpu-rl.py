"""The import asserts of gpu-rl: the last step of its build, and a check of any image that was built.

Run by the RL environment's own interpreter: /opt/marin/envs/rl/bin/python /opt/iris-images/asserts.py
"""

from __future__ import annotations

import importlib.metadata
import sys

from runner import PROVENANCE, Pins, Unmet, expect, from_commit, importable, run, short_commit


def python(pins: Pins) -> str:
    """The interpreter is of the pinned minor version."""
    return expect("Python", pins["PYTHON_VERSION"], f"{sys.version_info.major}.{sys.version_info.minor}")


def torch(pins: Pins) -> str:
    """The torch that the wheels were compiled against, of the same CUDA."""
    importable("torch")
    import torch

    return expect("torch.__version__", f"{pins['TORCH_VERSION']}+{pins['CUDA_INDEX']}", torch.__version__)


def trainer(pins: Pins) -> str:
    """The trainer and what it stands on."""
    return importable("torch", "transformers", "vllm", "skyrl_train")


def flash_attention(pins: Pins) -> str:
    """The compiled extension exists: a build without nvcc gives a package that lacks it."""
    importable("torch", "flash_attn", "flash_attn_2_cuda")
    return expect("flash-attn", pins["FLASH_ATTN_VERSION"], importlib.metadata.version("flash-attn"))


def vllm(pins: Pins) -> str:
    """vLLM is the fork at its commit: by the wheel set's MANIFEST, and by its version where that says one."""
    line = (PROVENANCE / "MANIFEST").read_text().splitlines()[0]
    expect("line 1 of the wheels' MANIFEST", f"VLLM_FORK_COMMIT={pins['VLLM_FORK_COMMIT']}", line)
    version = importlib.metadata.version("vllm")
    if not pins["VLLM_FORK_COMMIT"].startswith(short_commit(version)):
        raise Unmet(f"expected vllm from commit {pins['VLLM_FORK_COMMIT']}, saw version {version}.")
    return f"vllm {version} from commit {pins['VLLM_FORK_COMMIT']}"


def backend(pins: Pins) -> str:
    """The trainer's backend: Megatron, or FSDP with torchtitan's expert parallelism."""
    if pins["INSTALL_MEGATRON"] == "1":
        # torch first: it loads the CUDA libraries that transformer_engine links with.
        return importable("torch", "megatron.core", "megatron.bridge", "transformer_engine")
    from torchtitan.distributed.expert_parallel import ExpertParallel

    return f"{from_commit('torchtitan', pins['TORCHTITAN_COMMIT'])}, {ExpertParallel.__name__}"


def object_store(pins: Pins) -> str:
    """An S3 client can be made: that is where botocore and boto3 of unlike versions fail."""
    importable("boto3", "smart_open", "s3fs")
    import boto3

    boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url="http://127.0.0.1:9",
        aws_access_key_id="none",
        aws_secret_access_key="none",  # noqa: S106
    )
    return f"boto3 {boto3.__version__}, an S3 client"


def harbor(pins: Pins) -> str:
    """Harbor is of the pinned commit."""
    return from_commit("harbor", pins["HARBOR_COMMIT"])


CHECKS = {
    "python": python,
    "torch": torch,
    "trainer": trainer,
    "flash attention": flash_attention,
    "vllm": vllm,
    "backend": backend,
    "object store": object_store,
    "harbor": harbor,
}

if __name__ == "__main__":
    sys.exit(run(CHECKS))
