#!/bin/sh
# write-pins.sh NAME...: NAME=value for each of these variables; an unset one is an error.
set -eu
for name; do
  value=$(printenv "$name")
  printf '%s=%s\n' "$name" "$value"
done
