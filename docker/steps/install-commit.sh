#!/bin/sh
# install-commit.sh PYTHON NAME REPO COMMIT [OPTION...]: one Python package from exactly that commit.
# uv writes the commit into the package's direct_url.json, where the asserts read it.
set -eu
python=$1 name=$2 repo=$3 commit=$4
shift 4
source=$(mktemp -d)
"$(dirname "$0")/fetch-commit.sh" "$repo" "$commit" "$source"
uv pip install --no-cache --python "$python" "$@" "$name @ git+file://$source@$commit"
rm -rf "$source"
