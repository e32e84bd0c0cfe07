#!/bin/sh
# locked-environment.sh ENVIRONMENT SOURCE: the trainer's locked environment and what compiles in it; the trainer in SOURCE.
# From the environment: SKYRL_REPO, SKYRL_COMMIT, PYTHON_VERSION, TORCH_VERSION and CUDA_INDEX.
set -eu
environment=$1 source=$2
steps=$(cd "$(dirname "$0")" && pwd)
"$steps/fetch-commit.sh" "$SKYRL_REPO" "$SKYRL_COMMIT" "$source"
uv venv --relocatable --python "$PYTHON_VERSION" "$environment"
# All layers, for any backend: the same sync as in the image, so compile-time torch is run-time torch.
UV_PROJECT_ENVIRONMENT=$environment "$steps/sync-locked.sh" "$source" 99 fsdp
uv pip install --no-cache --python "$environment/bin/python" -r "$steps/wheel-build-requirements.txt"
torch=$("$environment/bin/python" -c 'import torch; print(torch.__version__)')
if ! test "$torch" = "$TORCH_VERSION+$CUDA_INDEX"; then
  echo "locked-environment: expected torch $TORCH_VERSION+$CUDA_INDEX in the lock, saw $torch." >&2
  exit 1
fi
