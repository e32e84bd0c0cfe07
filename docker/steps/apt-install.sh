#!/bin/sh
# apt-install.sh PACKAGE...: Debian packages, without a look at the mirrors when the base has them all.
# A stalled mirror once left a build silent for ever: hence the retries and the time limits.
set -eu
if dpkg -s "$@" >/dev/null 2>&1; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -o Acquire::Retries=3 -o Acquire::http::Timeout=60 -o Acquire::https::Timeout=60 "$@"; }
apt update
apt install -y --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/*
