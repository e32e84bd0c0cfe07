#!/bin/sh
# wheel-manifest.sh PYTHON: the five lines that say what a wheel set was compiled for. From the environment:
# VLLM_FORK_COMMIT, FLASH_ATTN_VERSION, TORCH_VERSION, TORCH_CUDA_ARCH_LIST and CUDA_INDEX (cu129 is 12.9).
set -eu
digits=${CUDA_INDEX#cu}
major=${digits%?}
cuda=$major.${digits#"$major"}
tag=$("$1" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
printf '%s\n' \
  "VLLM_FORK_COMMIT=$VLLM_FORK_COMMIT" \
  "FLASH_ATTN_VERSION=$FLASH_ATTN_VERSION" \
  "TORCH_VERSION=$TORCH_VERSION" \
  "TORCH_CUDA_ARCH_LIST=$TORCH_CUDA_ARCH_LIST" \
  "CUDA=$cuda PY=$tag PLATFORM=linux_$(uname -m)"
