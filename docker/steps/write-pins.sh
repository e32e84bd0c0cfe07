#!/bin/sh
# write-pins.sh NAME...: NAME=value for each of these variables; an unset one is an error.
set -eu
for name; do
  printf '%s=%s\n' "$name" "$(printenv "$name")"
done
