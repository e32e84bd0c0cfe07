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

# --- what the set must be: docker/wheel-sets/*.toml of the context says which ARGs, the Dockerfile which values

wheel_set() { # sets SET to the text of the wheel set that is made for this Dockerfile
  local file
  for file in "$CONTEXT"/docker/wheel-sets/*.toml; do
    [[ -f $file ]] && SET=$(<"$file") && [[ $SET == *$'\n'"dockerfile = \"$DOCKERFILE\""* ]] && return
  done
  finish "$WHEELS_REFUSED" wheels-refused "no docker/wheel-sets/*.toml of the context is for $DOCKERFILE"
}

key_value() { # key_value NAME: sets VALUE
  case $1 in
    CUDA) pin CUDA_INDEX && VALUE=${VALUE#cu} VALUE=${VALUE:0:-1}.${VALUE: -1} ;;
    PY) pin PYTHON_VERSION && VALUE=cp${VALUE/./} ;;
    PLATFORM) VALUE=linux_$(uname -m) ;;
    *) pin "$1" ;;
  esac
}

expected_manifest() { # sets EXPECTED: the lines that a set for these pins has
  local rows row name line
  rows=${SET#*$'\n''key = ['} EXPECTED=()
  while [[ $rows =~ ^[^][]*\[([^][]*)\](.*)$ ]]; do
    row=${BASH_REMATCH[1]//[\",]/ } rows=${BASH_REMATCH[2]} line=''
    for name in $row; do key_value "$name" && line+="${line:+ }$name=$VALUE"; done
    EXPECTED+=("$line")
    [[ ! $rows =~ ^[[:space:],]*\] ]] || break
  done
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

# --- how it is fetched: each layer of the image is one file in an uncompressed or gzipped tar

RANGE=$((64 * 1024 * 1024)) AT_ONCE=4 BLOB_ATTEMPTS=3

authorize() { # sets AUTHORIZATION for the blobs of a repository: a header, or nothing
  AUTHORIZATION=$(crane auth token --header "$1" 2>/dev/null) || AUTHORIZATION=''
  [[ -n $AUTHORIZATION || ${1%%/*} != "${IMAGE_REPOSITORY%%/*}" ]] ||
    AUTHORIZATION="Authorization: Basic $(printf %s "$REGISTRY_USER:$TOKEN" | base64 --wrap=0)"
}

# The header is not on the command line, where everybody would see it; curl gives it to no other host (storage).
get() { # get URL OPTIONS...: waits when it is told to (Retry-After), begins again after a cut
  local url=$1 code=0 try
  shift
  for try in 1 2 3 4 5; do
    printf '%s\n' "$AUTHORIZATION" | curl --fail --silent --show-error --location --header @- --connect-timeout 20 \
      --speed-time 60 --speed-limit 1000 --retry 6 --retry-connrefused --retry-max-time 900 "$@" "$url" && return
    code=$?
    [[ $code == 18 || $code == 52 || $code == 56 || $code == 92 ]] || return $code
    pause "$try"
  done
  return $code
}

get_range() { # get_range URL FIRST LAST FILE: the bytes FIRST..LAST; 33 where the server ignores that it is a range
  local code
  # A larger answer is the whole file again: it must not fill the disk.
  code=$(get "$1" --range "$2-$3" --max-filesize $(($3 - $2 + 1)) --output "$4" --write-out '%{http_code}') || return
  # A transfer that was repeated has said it several times.
  [[ ${code: -3} == 206 && $(stat -c %s "$4") == $(($3 - $2 + 1)) ]] || return 33
}

# The ranges that come next are fetched while one is written, so that a blob is hashed and unpacked on the way and
# takes the disk of a few ranges.
ranges() { # ranges URL SIZE FOLDER: the blob, to standard output
  local count=$((($2 + RANGE - 1) / RANGE)) next=0 at last jobs=()
  for ((at = 0; at < count; at++)); do
    for (( ; next < count && next < at + AT_ONCE; next++)); do
      last=$(((next + 1) * RANGE - 1))
      get_range "$1" $((next * RANGE)) $((last < $2 ? last : $2 - 1)) "$3/$next" &
      jobs[next]=$!
    done
    wait "${jobs[at]}" || { wait && return 1; } # the others end by themselves
    cat "$3/$at" && rm "$3/$at" || return
  done
}

whole() { # whole URL FOLDER: the blob, to standard output; through a file, because what was repeated would come twice
  get "$1" --output "$2/whole" && cat "$2/whole"
}

blob() { # blob URL SIZE FOLDER ATTEMPT: to standard output, the first time by ranges
  mkdir -p "$3"
  if (($2 <= RANGE || $4 > 1)); then whole "$1" "$3"; else ranges "$1" "$2" "$3"; fi
}

unpacked() { # unpacked URL DIGEST SIZE PACKING ATTEMPT SCRATCH FOLDER: a layer in FOLDER, if its digest is right
  local found
  rm -rf "$6" # what an earlier attempt left may be anything
  mkdir -p "$6/files" || return
  found=$(blob "$1" "$3" "$6/parts" "$5" | tee >(unpack "$4" "$6") | sha256sum) || return
  while [[ ! -e $6/done ]]; do pause 0.05; done
  [[ ${found%% *} == "${2#sha256:}" ]] || { say "$2 came as sha256:${found%% *}" && return 1; }
  [[ ! -s $6/tar ]] || { say "$2 could not be unpacked: $(head -n 1 "$6/tar")" && return 1; }
  cp -RPl "$6/files/." "$7" && rm -r "$6"
}

unpack() { # unpack PACKING SCRATCH: a tar on standard input, read to its end in any case
  tar "$1" -x --no-same-owner -f - -C "$2/files" 2>"$2/tar" || true
  cat >/dev/null
  : >"$2/done"
}

fetch_layer() { # fetch_layer REPOSITORY DIGEST SIZE PACKING SCRATCH FOLDER
  local attempt scheme=https host=${1%%/*}
  [[ ! $host =~ ^(localhost|127\.[0-9.]+)(:|$) ]] || scheme=http # as crane does
  for ((attempt = 1; attempt <= BLOB_ATTEMPTS; attempt++)); do
    authorize "$1"
    unpacked "$scheme://$host/v2/${1#*/}/blobs/$2" "$2" "$3" "$4" $attempt "$5" "$6" && return
    say "$2: attempt $attempt of $BLOB_ATTEMPTS failed"
  done
  return 1
}

layers_of() { # layers_of REFERENCE: digest, size and packing of each layer; crane checks the manifest's digest
  local text layer digest packing
  text=$(crane manifest "$1") || return
  text=${text//[[:space:]]/}
  while [[ $text =~ ^(.*)\"annotations\":\{[^{}]*\},?(.*)$ ]]; do text=${BASH_REMATCH[1]}${BASH_REMATCH[2]}; done
  text=${text#*\"layers\":\[} && text=${text%%\]*}
  while [[ $text == *\}* ]]; do
    layer=${text%%\}*} text=${text#*\}} packing=--no-auto-compress
    [[ ! $layer =~ \"mediaType\":\"[^\"]*[.+]gzip\" ]] || packing=--gzip
    [[ $layer =~ \"digest\":\"(sha256:[0-9a-f]{64})\" ]] && digest=${BASH_REMATCH[1]}
    [[ $layer =~ \"size\":([0-9]+) ]] && printf '%s %s %s\n' "$digest" "${BASH_REMATCH[1]}" $packing
  done
}

fetch_set() { # fetch_set REFERENCE FOLDER: every layer of an image, unpacked in FOLDER
  local repository=${1%@*} layers digest size packing total=0 free
  layers=$(layers_of "$1") && [[ -n $layers ]] || return
  while read -r _ size _; do total=$((total + size)); done <<<"$layers"
  mkdir -p "$2"
  free=$(df --output=avail --block-size=1 "$2" | tail -n 1)
  ((free > total + AT_ONCE * RANGE)) ||
    finish "$WHEELS_REFUSED" wheels-refused "the wheel set needs $((total + AT_ONCE * RANGE)) bytes of disk, and $free are free"
  while read -r digest size packing; do
    fetch_layer "$repository" "$digest" "$size" "$packing" "$2.part" "$2" || return
  done <<<"$layers"
}

check_wheel() { # check_wheel FILE: says what a file is that is none
  local head
  head=$(head -c 64 "$1" | tr -d '\0')
  case $head in
    PK*) return ;;
    'version https://git-lfs'*) head='a Git LFS pointer' ;;
    '<'*) head='a page of HTML' ;;
    *) head='something else' ;;
  esac
  finish "$WHEELS_REFUSED" wheels-refused "${1##*/} is $head, not a wheel"
}

fetch_inputs() {
  [[ $WHEEL_SOURCE == prebuilt-wheelhouse ]] || return 0
  local house=$CONTEXT/docker/wheelhouse project found
  wheel_set
  fetch_set "$WHEELHOUSE" "$KANIKO/set" ||
    finish "$WHEELS_REFUSED" wheels-refused "$WHEELHOUSE could not be fetched"
  AUTHORIZATION=''
  [[ -s $KANIKO/set/wheels/MANIFEST && -s $KANIKO/set/wheels/SHA256SUMS ]] ||
    finish "$WHEELS_REFUSED" wheels-refused "$WHEELHOUSE holds no MANIFEST or no SHA256SUMS"
  rm -rf "$house"
  mv "$KANIKO/set/wheels" "$house" && rm -r "$KANIKO/set"
  check_manifest "$house/MANIFEST"
  while [[ $SET =~ \[wheels\.([A-Za-z0-9_-]+)\](.*)$ ]]; do
    project=${BASH_REMATCH[1]//-/_} SET=${BASH_REMATCH[2]}
    found=("$house/$project"-*.whl)
    [[ ${#found[@]} == 1 && -f ${found[0]} ]] ||
      finish "$WHEELS_REFUSED" wheels-refused "$WHEELHOUSE does not hold exactly one wheel of $project"
    check_wheel "${found[0]}"
    grep -qF "  ${found[0]##*/}" "$house/SHA256SUMS" ||
      finish "$WHEELS_REFUSED" wheels-refused "SHA256SUMS does not name ${found[0]##*/}"
  done
  (cd "$house" && sha256sum --check --quiet --strict SHA256SUMS) ||
    finish "$WHEELS_REFUSED" wheels-refused 'a wheel does not have the sha256 that SHA256SUMS gives'
}

# shellcheck source=docker/kaniko.sh
source "${BASH_SOURCE[0]%/*}/kaniko.sh"
main "$@"
