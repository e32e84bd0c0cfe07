"""Compiles each .cu file beside this file to an extension module of its own: nvcc alone, no torch."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HOME = Path(os.environ["CUDA_HOME"])
SOURCES = sorted(path.name for path in Path().glob("*.cu"))


def code_options() -> list[str]:
    """One binary for each architecture of TORCH_CUDA_ARCH_LIST, and PTX where it says +PTX."""
    options = []
    for architecture in os.environ["TORCH_CUDA_ARCH_LIST"].split(";"):
        number = re.sub(r"\.|\+PTX", "", architecture)
        codes = [f"sm_{number}"] + [f"compute_{number}"] * architecture.endswith("+PTX")
        options += [f"-gencode=arch=compute_{number},code={code}" for code in codes]
    return options


class NvccExtensions(build_ext):
    """Extensions that nvcc compiles and links, the CUDA runtime inside: they load where no GPU is."""

    def build_extension(self, ext: Extension) -> None:
        """Compile one extension and then say which one of how many, as ninja does."""
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        self.spawn(
            [
                *(str(HOME / "bin" / "nvcc"), "-O2", "-shared", "-cudart=static", "-Xcompiler=-fPIC"),
                f"--threads={os.environ.get('NVCC_THREADS', '1')}",
                *code_options(),
                f"-I{sysconfig.get_path('include')}",
                # A toolkit has lib64, where nvcc looks; NVIDIA's packages have lib, where it does not.
                f"-L{HOME / 'lib'}",
                *(*ext.sources, "-o", str(target)),
            ]
        )
        print(f"[{SOURCES.index(ext.sources[0]) + 1}/{len(SOURCES)}] {ext.sources[0]}", flush=True)


setup(
    ext_modules=[Extension(Path(name).stem, [name]) for name in SOURCES],
    cmdclass={"build_ext": NvccExtensions},
)
