#!/usr/bin/env bash
# build_wheels.sh NAME WORK: one wheel compiled on this machine, by the step that the Dockerfile uses; in WORK/out.
# scripts/wheels calls it (nox -s wheels) after it has looked at the machine and made the environment.
#   PYTHON              of the environment that it compiles in
#   CUDA_HOME           the CUDA toolkit
#   SOURCE              a folder; or REPO and COMMIT, 40 hexadecimal digits
#   TORCH_CUDA_ARCH_LIST, MAX_JOBS, NVCC_THREADS
# A source that was begun is kept in WORK/source, with its objects: the next call goes on from there.
set -euo pipefail
name=$1 work=$2
steps=$(cd "${BASH_SOURCE[0]%/*}/steps" && pwd)

finish() { # ninja gives each compiler a process group of its own, and ends them all when it is told to end
  trap '' TERM INT
  kill -TERM 0
  wait
  exit 143
}
trap finish TERM INT

step() { # bash answers a signal only between its commands, or while it waits
  "$@" &
  wait $!
}

if [[ ! -d $work/source ]]; then
  rm -rf "$work/source.part"
  mkdir -p "$work"
  if [[ -n ${SOURCE:-} ]]; then
    step cp -RL "$SOURCE" "$work/source.part"
  else
    step "$steps/fetch-commit.sh" "$REPO" "$COMMIT" "$work/source.part"
  fi
  mv "$work/source.part" "$work/source"
fi
rm -rf "$work/out"
export PATH="${PYTHON%/*}:$CUDA_HOME/bin:$PATH"
step "$steps/compile-wheel.sh" "$PYTHON" "$name" "$work/source" "$work/out"
