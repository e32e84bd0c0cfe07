"""Builds the extension against the torch that is installed, as the real flash-attn does."""

import torch
from setuptools import Extension, setup

VERSION = "2.8.3"

print(f"flash-attn {VERSION}: torch {torch.__version__}")
setup(
    name="flash-attn",
    version=VERSION,
    packages=["flash_attn"],
    ext_modules=[
        Extension(
            "flash_attn_2_cuda",
            ["csrc/flash_attn_2_cuda.c"],
            define_macros=[("FLASH_ATTN_VERSION", f'"{VERSION}"')],
        )
    ],
)
