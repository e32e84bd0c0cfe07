#!/bin/sh
# fetch-commit.sh REPO COMMIT DIRECTORY: exactly that commit (40 hexadecimal digits) and its submodules.
set -eu
repo=$1 commit=$2 directory=$3
if ! expr "$commit" : '[0-9a-f]\{40\}$' >/dev/null; then
  echo "fetch-commit: '$commit' for $repo is not a full commit: names of branches and tags move." >&2
  exit 2
fi
git init -q "$directory"
git -C "$directory" remote add origin "$repo"
git -C "$directory" fetch -q --depth 1 origin "$commit"
git -C "$directory" checkout -q --detach FETCH_HEAD
git -C "$directory" submodule -q update --init --recursive --depth 1
test "$(git -C "$directory" rev-parse HEAD)" = "$commit"
