#!/bin/sh
# compile-wheel.sh PYTHON NAME SOURCE FOLDER: the wheel of the project NAME, compiled from SOURCE, in FOLDER.
# PYTHON's environment has what compiles it. MAX_JOBS, NVCC_THREADS, TORCH_CUDA_ARCH_LIST: from the environment.
set -eu
python=$1 name=$2 source=$3 folder=$4
case $name in
  flash-attn)
    # It has its own variable for the architectures, without dots. Forced, because otherwise it takes
    # somebody's wheel where there is one.
    FLASH_ATTN_CUDA_ARCHS=$(echo "$TORCH_CUDA_ARCH_LIST" | tr -d .)
    export FLASH_ATTN_CUDA_ARCHS FLASH_ATTENTION_FORCE_BUILD=TRUE
    ;;
  vllm) export VLLM_TARGET_DEVICE=cuda ;;
esac
# --verbose: otherwise pip keeps what the compiler says to itself until it fails.
exec "$python" -m pip wheel --verbose --no-build-isolation --no-deps --wheel-dir "$folder" "$source"
