#!/bin/sh
# compile-wheels.sh PART: one part of the wheel set in /wheels. The pins come from the environment.
#   environment   the locked environment, and what compiles in it
#   flash-attn    its wheel
#   vllm          its wheel
#   manifest      what the set was compiled for, and the sums of its wheels
set -eu
steps=$(cd "$(dirname "$0")" && pwd)
environment=/opt/marin/envs/rl

compile() { # compile NAME REPO COMMIT
  source=$(mktemp -d)
  "$steps/fetch-commit.sh" "$2" "$3" "$source"
  PATH="$environment/bin:$PATH" "$steps/compile-wheel.sh" "$environment/bin/python" "$1" "$source" /wheels
  rm -rf "$source"
}

case $1 in
  environment) "$steps/locked-environment.sh" "$environment" /opt/skyrl ;;
  flash-attn)
    compile flash-attn "$FLASH_ATTN_REPO" "$FLASH_ATTN_COMMIT"
    ls "/wheels/flash_attn-$FLASH_ATTN_VERSION-"*.whl
    ;;
  vllm) compile vllm "$VLLM_FORK_REPO" "$VLLM_FORK_COMMIT" ;;
  manifest)
    cd /wheels
    "$steps/wheel-manifest.sh" "$environment/bin/python" >MANIFEST
    sha256sum -- *.whl >SHA256SUMS
    cat MANIFEST SHA256SUMS
    ;;
esac
