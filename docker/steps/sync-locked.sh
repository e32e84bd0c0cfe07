#!/bin/sh
# sync-locked.sh PROJECT LAYER BACKEND: the locked environment of PROJECT up to LAYER of rl-layers.txt.
# BACKEND is the extra of the trainer: fsdp or megatron. Nothing is resolved here: the lock says it all.
# The compiled packages never come from the lock: they are installed from our own wheels and commit.
# --no-cache: uv's download cache would be a second copy of everything in the layer.
set -eu
project=$1 layer=$2 backend=$3
later=$(awk -v layer="$layer" '/^[^#]/ && ++line > layer' "$(dirname "$0")/rl-layers.txt")
set --
for name in vllm flash-attn torchtitan $later; do set -- "$@" --no-install-package "$name"; done
exec uv sync --frozen --no-cache --no-dev --project "$project" \
  --extra vllm --extra telemetry --extra "$backend" "$@"
