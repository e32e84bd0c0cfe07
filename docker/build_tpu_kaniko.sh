#!/usr/bin/env bash
# The tpu image: what differs from the other images. `--help` prints the whole contract.
# Only the pinned tag is pushed, never the floating one.

IMAGE=tpu
DOCKERFILE=${DOCKERFILE:-docker/Dockerfile.tpu}
TAG_PREFIX=${TAG_PREFIX:-tpu}
CONTRACT=()
BUILD_ARGUMENTS=()

contract() { :; }
check_inputs() { :; }
fetch_inputs() { :; }

# shellcheck source=docker/kaniko.sh
source "${BASH_SOURCE[0]%/*}/kaniko.sh"
main "$@"
