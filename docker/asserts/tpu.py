"""The import asserts of tpu: the last step of its build, and a check of any image that was built.

Run by the environment's own interpreter: /opt/openthoughts/.venv/bin/python /opt/iris-images/asserts.py
A machine without a TPU can run them: nothing initialises a device.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys

from runner import Pins, Unmet, expect, from_commit, importable, run


def python(pins: Pins) -> str:
    """The interpreter is of the pinned minor version."""
    return expect("Python", pins["PYTHON_VERSION"], f"{sys.version_info.major}.{sys.version_info.minor}")


def jax(pins: Pins) -> str:
    """JAX imports."""
    return f"{importable('jax')}, {importlib.metadata.version('jax')}"


def vllm(pins: Pins) -> str:
    """vLLM for TPU is of the pinned version; found, not imported: its import looks for a device."""
    if importlib.util.find_spec("vllm") is None:
        raise Unmet("expected a module vllm, saw none.")
    return expect("vllm-tpu", pins["VLLM_TPU_VERSION"], importlib.metadata.version("vllm-tpu"))


def harbor(pins: Pins) -> str:
    """Harbor is of the pinned commit."""
    return from_commit("harbor", pins["HARBOR_COMMIT"])


CHECKS = {"python": python, "jax": jax, "vllm": vllm, "harbor": harbor}

if __name__ == "__main__":
    sys.exit(run(CHECKS))
