#!/bin/sh
# rl-env COMMAND...: run a command in the RL environment.
# shellcheck source=/dev/null
. /opt/marin/envs/rl/bin/activate
exec "$@"
