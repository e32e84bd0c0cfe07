#!/bin/sh
# check-wheels.sh PYTHON FOLDER: FOLDER holds one wheel each of vllm and flash_attn, whole, made for these pins.
set -eu
expected=$(mktemp)
found=$(mktemp)
"$(dirname "$0")/wheel-manifest.sh" "$1" >"$expected"
cd "$2"
sed /^WHEEL=/d MANIFEST >"$found"
if ! cmp -s "$expected" "$found"; then
  echo "check-wheels: the wheel set was made for other pins (-: expected, +: in the wheel set):" >&2
  diff -u "$expected" "$found" >&2 || exit 1
fi
rm "$expected" "$found"
sha256sum --check --strict SHA256SUMS
for name in vllm flash_attn; do
  if ! test "$(grep -c " $name-.*\.whl\$" SHA256SUMS)" -eq 1 || ! test "$(find . -name "$name-*.whl" | wc -l)" -eq 1; then
    echo "check-wheels: expected exactly one wheel of $name, and its line in SHA256SUMS." >&2
    exit 1
  fi
done
