#!/usr/bin/env bash
# The gpu-rl image: what differs from the other images. `--help` prints the whole contract.

IMAGE=gpu-rl
DOCKERFILE=${DOCKERFILE:-docker/Dockerfile.gpu-rl}
WHEEL_SOURCE=${WHEEL_SOURCE:-prebuilt-wheelhouse}
INSTALL_MEGATRON=${INSTALL_MEGATRON:-0}
TAG_PREFIX=${TAG_PREFIX:-gpu-rl}
CONTRACT=(WHEEL_SOURCE WHEELHOUSE INSTALL_MEGATRON)
BUILD_ARGUMENTS=("WHEEL_SOURCE=$WHEEL_SOURCE" "INSTALL_MEGATRON=$INSTALL_MEGATRON")

contract() {
  cat <<'TEXT'
  WHEELHOUSE         the wheel set, as an image by digest; needed with WHEEL_SOURCE=prebuilt-wheelhouse
Of this image:
  WHEEL_SOURCE       prebuilt-wheelhouse (default: fetch WHEELHOUSE, never compile) or wheel-builder (compile)
  INSTALL_MEGATRON   0 (default) or 1
TEXT
}

check_inputs() {
  [[ $INSTALL_MEGATRON == [01] ]] || refuse "INSTALL_MEGATRON is 0 or 1, not $INSTALL_MEGATRON"
  case $WHEEL_SOURCE in
    wheel-builder) ;;
    prebuilt-wheelhouse)
      [[ ${WHEELHOUSE:-} =~ @sha256:[0-9a-f]{64}$ ]] ||
        refuse "WHEELHOUSE is not an image by digest: '${WHEELHOUSE:-}'; give it, or WHEEL_SOURCE=wheel-builder" ;;
    *) refuse "WHEEL_SOURCE is prebuilt-wheelhouse or wheel-builder, not $WHEEL_SOURCE" ;;
  esac
}

expected_manifest() { # sets EXPECTED: the lines that a set for these pins has
  local name
  EXPECTED=()
  for name in VLLM_FORK_COMMIT FLASH_ATTN_VERSION TORCH_VERSION TORCH_CUDA_ARCH_LIST; do
    pin "$name" && EXPECTED+=("$name=$VALUE")
  done
  pin CUDA_INDEX && local cuda=${VALUE#cu}
  pin PYTHON_VERSION
  EXPECTED+=("CUDA=${cuda:0:-1}.${cuda: -1} PY=cp${VALUE/./} PLATFORM=linux_$(uname -m)")
}

check_manifest() { # names each line that differs, wanted and found
  local found line differs=''
  expected_manifest
  mapfile -t found < <(sed /^WHEEL=/d "$1")
  for ((line = 0; line < ${#EXPECTED[@]} || line < ${#found[@]}; line++)); do
    [[ ${EXPECTED[line]:-} == "${found[line]:-}" ]] ||
      differs+="; line $((line + 1)): wanted '${EXPECTED[line]:-}', found '${found[line]:-}'"
  done
  [[ -z $differs ]] || finish "$WHEELS_REFUSED" wheels-refused "the set was made for other pins${differs}"
}

fetch_inputs() {
  [[ $WHEEL_SOURCE == prebuilt-wheelhouse ]] || return 0
  local house=$CONTEXT/docker/wheelhouse project found
  crane export "$WHEELHOUSE" "$KANIKO/wheels.tar" ||
    finish "$WHEELS_REFUSED" wheels-refused "$WHEELHOUSE could not be fetched"
  rm -rf "$house"
  tar -xf "$KANIKO/wheels.tar" -C "$KANIKO" wheels && mv "$KANIKO/wheels" "$house"
  rm "$KANIKO/wheels.tar"
  [[ -s $house/MANIFEST && -s $house/SHA256SUMS ]] ||
    finish "$WHEELS_REFUSED" wheels-refused "$WHEELHOUSE holds no MANIFEST or no SHA256SUMS"
  check_manifest "$house/MANIFEST"
  for project in vllm flash_attn; do
    found=("$house/$project"-*.whl)
    [[ ${#found[@]} == 1 && -f ${found[0]} ]] ||
      finish "$WHEELS_REFUSED" wheels-refused "$WHEELHOUSE does not hold exactly one wheel of $project"
    grep -qF "  ${found[0]##*/}" "$house/SHA256SUMS" ||
      finish "$WHEELS_REFUSED" wheels-refused "SHA256SUMS does not name ${found[0]##*/}"
  done
  (cd "$house" && sha256sum --check --quiet --strict SHA256SUMS) ||
    finish "$WHEELS_REFUSED" wheels-refused 'a wheel does not have the sha256 that SHA256SUMS gives'
}

# shellcheck source=docker/kaniko.sh
source "${BASH_SOURCE[0]%/*}/kaniko.sh"
main "$@"
