#!/bin/sh
# compile-wheels.sh PART: one part of the wheel set in /wheels. The pins come from the environment.
#   environment   the locked environment, and what compiles in it
#   flash-attn    its wheel
#   vllm          its wheel
#   manifest      what the set was compiled for, and the sums of its wheels
set -eu
steps=$(cd "$(dirname "$0")" && pwd)
environment=/opt/marin/envs/rl
export UV_PROJECT_ENVIRONMENT=$environment PATH="$environment/bin:$PATH"

make_environment() {
  "$steps/fetch-commit.sh" "$SKYRL_REPO" "$SKYRL_COMMIT" /opt/skyrl
  uv venv --python "$PYTHON_VERSION" "$environment"
  # All layers, for any backend: the same sync as in the image, so compile-time torch is run-time torch.
  "$steps/sync-locked.sh" /opt/skyrl 99 fsdp
  uv pip install --no-cache --python "$environment/bin/python" -r "$steps/wheel-build-requirements.txt"
  torch=$(python -c 'import torch; print(torch.__version__)')
  if ! test "$torch" = "$TORCH_VERSION+$CUDA_INDEX"; then
    echo "compile-wheels: expected torch $TORCH_VERSION+$CUDA_INDEX in the lock, saw $torch." >&2
    exit 1
  fi
}

compile() { # compile REPO COMMIT
  source=$(mktemp -d)
  "$steps/fetch-commit.sh" "$1" "$2" "$source"
  uv build --wheel --no-build-isolation --python "$environment/bin/python" \
    --no-create-gitignore --out-dir /wheels "$source"
  rm -rf "$source"
}

case $1 in
  environment) make_environment ;;
  flash-attn)
    # It has its own variable for the architectures, without dots. Forced, because otherwise it takes
    # somebody's wheel where there is one.
    FLASH_ATTN_CUDA_ARCHS=$(echo "$TORCH_CUDA_ARCH_LIST" | tr -d .)
    export FLASH_ATTN_CUDA_ARCHS FLASH_ATTENTION_FORCE_BUILD=TRUE
    compile "$FLASH_ATTN_REPO" "$FLASH_ATTN_COMMIT"
    ls "/wheels/flash_attn-$FLASH_ATTN_VERSION-"*.whl
    ;;
  vllm)
    export VLLM_TARGET_DEVICE=cuda
    compile "$VLLM_FORK_REPO" "$VLLM_FORK_COMMIT"
    ;;
  manifest)
    cd /wheels
    "$steps/wheel-manifest.sh" "$environment/bin/python" >MANIFEST
    sha256sum -- *.whl >SHA256SUMS
    cat MANIFEST SHA256SUMS
    ;;
esac
