# shellcheck shell=bash
# What the build scripts share: check, fetch, build without credentials, look at the layers, push.
#
# Runs as the first process of a plain ubuntu:22.04 task (an Iris job). The executor empties the root
# filesystem that it runs in, so from the moment that it starts only bash's builtins and what lies
# below /kaniko can be relied on. This text is put into the build scripts at submission, because one
# variable (BUILD_B64) is all that travels.
#
# A build script sets IMAGE, DOCKERFILE and TAG_PREFIX, defines `contract` (what it takes besides
# what is listed here), `check_inputs`, `fetch_inputs` and the array BUILD_ARGUMENTS, and calls `main`.

set +x
set -Eeuo pipefail
umask 022

readonly REFUSED=2 RUN_FAILED=20 BUILD_FAILED=21 WHEELS_REFUSED=22 LAYERS_REFUSED=23 PUSH_REFUSED=24 TOOLS_FAILED=25
readonly KANIKO=/kaniko CONTEXT=/kaniko/ctx LAYOUT=/kaniko/oci LAST_ERROR=/kaniko/last-error FINISHED=/kaniko/finished

say() { printf 'iris-images: %s\n' "$*" >&2; }
phase() { say "phase=$1 time=$(TZ=UTC printf '%(%Y-%m-%dT%H:%M:%SZ)T' -1)"; }
finish() { # finish CODE WORD SENTENCE: the last line of every build
  forget_credentials
  say "result=$2 code=$1: $3"
  : >$FINISHED
  exit "$1"
}
on_error() { # a subshell that finished has said why already
  local code=$?
  [[ ! -e $FINISHED ]] || exit "$code"
  finish "$TOOLS_FAILED" tools-failed "the build script stopped at line $1 (exit code $code)"
}

usage() {
  # shellcheck disable=SC2153 # IMAGE is set by the build script
  cat <<TEXT
Builds the image "$IMAGE" with kaniko inside an Iris task and pushes it. Submitted by 'inv build.*'.

Required:
  GITSHA             commit that is built: 40 hexadecimal digits ("-dirty" may follow)
  IMAGE_REPOSITORY   where the image goes, as host/path
  REGISTRY_USER      user of that registry
  REGISTRY_TOKEN     its token: one half in the variable REGISTRY_TOKEN_PAD, the other in the task's secret
                     of this name (hexadecimal, of equal length, combined by exclusive or), so that no file
                     and no variable alone is worth anything; the plain variable is accepted too
  EXECUTOR_IMAGE     the kaniko executor, by digest
  CRANE_URL          archive (tar.gz) that holds crane for this architecture
  CRANE_SHA256       its sha256
  CONTEXT_SHA256     sha256 of context.tar.gz in the task's bundle
$(contract)
Optional:
  DOCKERFILE         path in the context; default $DOCKERFILE
  TAG_PREFIX         default $TAG_PREFIX
  BUILD_ARGS         lines NAME=value for ARGs that the Dockerfile declares
  LAYER_CEILING      bytes; a larger layer is refused before the push; default 4000000000
  PUSH_ATTEMPTS      default 4

Older names are accepted and said to be old: DOCKER_TOKEN and GHCR_TOKEN (REGISTRY_TOKEN), DOCKER_USER_ID
(REGISTRY_USER), GHCR_IMAGE_REPOSITORY (IMAGE_REPOSITORY).

Exit codes: 0 pushed, $REFUSED refused before anything was touched, $RUN_FAILED a RUN failed, $BUILD_FAILED the build
failed elsewhere, $WHEELS_REFUSED wheels refused, $LAYERS_REFUSED a layer over the ceiling, $PUSH_REFUSED the push was refused, $TOOLS_FAILED crane,
executor or context could not be had, 128+N ended by signal N.
TEXT
}

refuse() { say "result=refused code=$REFUSED: $*" && exit "$REFUSED"; }

# --- before anything is touched -------------------------------------------------------------------

accept_old_name() { # accept_old_name OLD NEW
  [[ -n ${!1:-} ]] || return 0
  say "$1 is an old name; use $2"
  [[ -n ${!2:-} ]] || printf -v "$2" %s "${!1}"
  unset "$1"
}

accept_old_names() {
  accept_old_name DOCKER_TOKEN REGISTRY_TOKEN
  accept_old_name GHCR_TOKEN REGISTRY_TOKEN
  accept_old_name DOCKER_USER_ID REGISTRY_USER
  accept_old_name GHCR_IMAGE_REPOSITORY IMAGE_REPOSITORY
}

# A task id alone proves nothing: Iris' local mode sets one and runs on the bare machine. A container's
# first process in a container's root is what the root filesystem begins and ends with.
require_disposable_root() {
  local root_type=''
  while read -r _ _ _ _ point rest; do
    [[ $point == / ]] && root_type=${rest#* - } && root_type=${root_type%% *}
  done </proc/self/mountinfo
  [[ -n ${IRIS_TASK_ID:-} ]] || refuse "not inside an Iris task (no IRIS_TASK_ID); use 'inv build.*'"
  [[ $$ == 1 ]] || refuse "not the first process of a container of its own (process id $$); use 'inv build.*'"
  [[ $root_type == overlay || $root_type == tmpfs ]] ||
    refuse "the root filesystem is $root_type, not a container's; the executor would empty it"
}

require_variables() {
  local name missing=()
  for name in GITSHA IMAGE_REPOSITORY REGISTRY_USER EXECUTOR_IMAGE CRANE_URL CRANE_SHA256 CONTEXT_SHA256; do
    [[ -n ${!name:-} ]] || missing+=("$name")
  done
  [[ -n ${REGISTRY_TOKEN:-} || -n ${REGISTRY_TOKEN_PAD:-} ]] || missing+=(REGISTRY_TOKEN)
  ((${#missing[@]} == 0)) || refuse "not set: ${missing[*]}; 'bash docker/build_*_kaniko.sh --help' says what they are"
  [[ $GITSHA =~ ^[0-9a-f]{40}(-dirty)?$ ]] || refuse "GITSHA is not a full commit: $GITSHA"
  [[ $EXECUTOR_IMAGE =~ @sha256:[0-9a-f]{64}$ ]] || refuse "EXECUTOR_IMAGE is not pinned by digest: $EXECUTOR_IMAGE"
  for name in LAYER_CEILING PUSH_ATTEMPTS; do
    [[ ${!name:-1} =~ ^[1-9][0-9]*$ ]] || refuse "$name is not a whole number above 0: ${!name}"
  done
  [[ -n ${REGISTRY_TOKEN:-} || -s $(secret_half) ]] || refuse "the task has no secret REGISTRY_TOKEN ($(secret_half))"
  check_inputs
}

# A pin lives in the Dockerfile. A variable of the same name that says otherwise is a mistake, not a preference.
require_declared_pins() {
  local line name value
  while IFS= read -r line; do
    [[ $line =~ ^ARG\ ([A-Z0-9_]+)=(.*)$ ]] || continue
    name=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]//\"/}
    [[ " ${CONTRACT[*]} " == *" $name "* || $(declare -p "$name" 2>/dev/null) != 'declare -x'* || ${!name} == "$value" ]] ||
      refuse "$name is '${!name}' in the environment, but $DOCKERFILE declares '$value'; edit and commit the Dockerfile"
  done < <(tar -xzOf "$(context_archive)" "$DOCKERFILE" 2>/dev/null)
}

secret_half() { printf %s "${RIGGING_SECRETS_DIR:-/run/rigging/secrets}/REGISTRY_TOKEN"; }

exclusive_or() { # exclusive_or HEX HEX: the bytes that two strings of hexadecimal digits make together
  local text='' i
  for ((i = 0; i < ${#1}; i += 2)); do
    text+=$(printf '\\x%02x' $((0x${1:i:2} ^ 0x${2:i:2})))
  done
  printf %b "$text"
}

registry_token() {
  [[ -z ${REGISTRY_TOKEN:-} ]] || { printf %s "$REGISTRY_TOKEN" && return; }
  local half
  half=$(<"$(secret_half)")
  ((${#half} == ${#REGISTRY_TOKEN_PAD})) || return # an empty token is refused
  exclusive_or "$half" "$REGISTRY_TOKEN_PAD"
}

# A RUN reads /proc/*/environ of every process. So the script starts again with an environment in
# which no credential ever was, and takes the token through a pipe into a variable that it never exports.
start_clean() {
  local name keep=()
  [[ -n ${BASH_EXECUTION_STRING:-} ]] || refuse "run as 'bash -c', as a submission does; use 'inv build.*'"
  for name in "${CONTRACT[@]}"; do [[ -z ${!name:-} ]] || keep+=("$name=${!name}"); done
  exec 3< <(registry_token)
  exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=$KANIKO/home LC_ALL=C.UTF-8 \
    CLEAN=1 "${keep[@]}" bash -c "$BASH_EXECUTION_STRING" build
}

take_token() {
  IFS= read -r -d '' TOKEN <&3 || true
  exec 3<&-
  [[ -n $TOKEN ]] || refuse 'the registry token is empty, or its halves are not of one length'
}

context_archive() { printf %s "${IRIS_WORKDIR:-/app}/context.tar.gz"; }

# --- what the build needs ---------------------------------------------------------------------------

# A signal's trap runs when the shell waits, not while a program is in its foreground.
interruptible() { "$@" <&0 & wait $!; }

install_downloader() {
  command -v curl >/dev/null && [[ -s /etc/ssl/certs/ca-certificates.crt ]] && return
  local apt=(interruptible env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Acquire::http::Timeout=60)
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends curl ca-certificates >/dev/null; } ||
    finish $TOOLS_FAILED tools-failed 'curl and ca-certificates could not be installed'
}

fetch_crane() {
  interruptible curl -fsSL --retry 3 --connect-timeout 20 --max-time 600 -o $KANIKO/crane.tar.gz "$CRANE_URL" ||
    finish $TOOLS_FAILED tools-failed "crane could not be fetched from $CRANE_URL"
  printf '%s  %s\n' "$CRANE_SHA256" $KANIKO/crane.tar.gz | sha256sum --check --quiet ||
    finish $TOOLS_FAILED tools-failed "crane from $CRANE_URL does not have the sha256 $CRANE_SHA256"
  tar -xzf $KANIKO/crane.tar.gz -C $KANIKO crane
  # No file any more: a RUN that could put another program in its place would be given the token.
  exec 8<$KANIKO/crane
  rm $KANIKO/crane
}

crane() {
  local -x DOCKER_CONFIG=$KANIKO/.docker SSL_CERT_DIR=/etc/ssl/certs:$KANIKO/ssl/certs
  interruptible /proc/self/fd/8 "$@"
}

# The tar that crane writes ends properly even when a layer fails, so its exit code is asked before
# anything is unpacked; only /kaniko is, because an executor image may carry a shell, and a /bin.
fetch_executor() {
  crane export --platform "linux/$ARCHITECTURE" "$EXECUTOR_IMAGE" $KANIKO/executor.tar ||
    finish $TOOLS_FAILED tools-failed "the executor $EXECUTOR_IMAGE could not be fetched"
  tar --keep-directory-symlink --no-same-owner -xf $KANIKO/executor.tar -C / kaniko/executor kaniko/ssl ||
    finish $TOOLS_FAILED tools-failed "$EXECUTOR_IMAGE holds no /kaniko/executor with its certificates"
  rm $KANIKO/executor.tar
}

unpack_context() {
  local archive
  archive=$(context_archive)
  printf '%s  %s\n' "$CONTEXT_SHA256" "$archive" | sha256sum --check --quiet ||
    finish $TOOLS_FAILED tools-failed "the bundle's context.tar.gz does not have the sha256 $CONTEXT_SHA256"
  mkdir -p $CONTEXT
  tar -xzf "$archive" -C $CONTEXT
  [[ -f $CONTEXT/$DOCKERFILE ]] || finish $TOOLS_FAILED tools-failed "the context holds no $DOCKERFILE"
}

declared() { # declared NAME: whether the Dockerfile declares that ARG; VALUE is its first default then
  local line
  while IFS= read -r line; do
    [[ $line == "ARG $1" || $line == "ARG $1="* ]] || continue
    VALUE=${line#"ARG $1"} VALUE=${VALUE#=} VALUE=${VALUE#\"} VALUE=${VALUE%\"}
    return 0
  done <"$CONTEXT/$DOCKERFILE"
  return 1
}

pin() { # pin NAME: sets VALUE to what the build gives to an ARG: from BUILD_ARGS, else the Dockerfile's default
  local line
  declared "$1" || finish $TOOLS_FAILED tools-failed "$DOCKERFILE declares no ARG $1"
  while IFS= read -r line; do
    [[ $line != "$1="* ]] || VALUE=${line#*=}
  done <<<"${BUILD_ARGS:-}"
}

collect_build_arguments() {
  local line
  while IFS= read -r line; do
    [[ -z $line ]] || { pin "${line%%=*}" && BUILD_ARGUMENTS+=("$line"); }
  done <<<"${BUILD_ARGS:-}"
}

log_in() {
  local host=${IMAGE_REPOSITORY%%/*}
  printf '{}' >$KANIKO/.docker/config.json # a RUN may have named a credential helper of its own
  printf %s "$TOKEN" | crane auth login "$host" --username "$REGISTRY_USER" --password-stdin 2>/dev/null ||
    finish $TOOLS_FAILED tools-failed "crane could not keep a login for $host"
}
forget_credentials() { [[ ! -e $KANIKO/.docker/config.json ]] || printf '{}' >$KANIKO/.docker/config.json; }

# A base image that only this login may read is copied, while the login is here, to a registry of this task,
# where the executor finds it under its own name.
offer_private_bases() {
  local word image host=${IMAGE_REPOSITORY%%/*}
  while read -r word image _; do
    [[ $word == FROM ]] || continue
    if [[ $image =~ ^\$\{?([A-Za-z0-9_]+)\}?$ ]] && declared "${BASH_REMATCH[1]}"; then
      pin "${BASH_REMATCH[1]}" && image=$VALUE
    fi
    [[ $image == "$host"/* ]] || continue
    ! DOCKER_CONFIG=$KANIKO/home /proc/self/fd/8 digest "$image" >/dev/null 2>&1 || continue
    say "the base image $image is not public: it is copied before the build"
    [[ -n $BASES ]] || start_base_registry
    crane copy "$image" "$BASES/${image#*/}" ||
      finish $BUILD_FAILED build-failed "the base image $image could not be read; nothing was pushed"
  done <"$CONTEXT/$DOCKERFILE"
  [[ -z $BASES ]] || EXECUTOR_OPTIONS=("--registry-map=$host=$BASES")
}

start_base_registry() { # sets BASES to its address
  local line
  mkdir -p $KANIKO/bases
  exec 7< <(/proc/self/fd/8 registry serve --address=127.0.0.1:0 --disk=$KANIKO/bases 2>&1)
  while [[ -z $BASES ]] && IFS= read -rt 30 -u 7 line; do
    [[ $line =~ 'serving on port '([0-9]+) ]] && BASES=127.0.0.1:${BASH_REMATCH[1]}
  done
}

# --- build, look, push --------------------------------------------------------------------------------

# What is left of this root would be seen by the RUNs of the first stage, and what they change of it
# would land in the image. This is the last use of a program from the task's image.
empty_root() {
  local path device doomed=()
  device=$(stat -c %d /)
  for path in /* /.[!.]* /tmp/* /run/*; do
    case $path in /kaniko | /proc | /sys | /dev | /run | /tmp) continue ;; esac
    # what the node has mounted (caches that outlive the task) is not ours
    [[ $(stat -c %d "$path" 2>/dev/null) == "$device" ]] && doomed+=("$path")
  done
  rm -rf --one-file-system "${doomed[@]}" 2>/dev/null || true # a mounted file cannot be removed: it stays
}

show_executor_log() {
  local line
  while IFS= read -r line || [[ -n $line ]]; do
    [[ $line == *'Extracting layer '* ]] && continue
    [[ $line != *'error building'* ]] || printf %s "$line" >$LAST_ERROR
    printf '%s\n' "$line"
  done
}

# The memory of a process can be read by one that has all of its capabilities. The executor and its RUNs
# have two fewer than this script, which holds the token in its memory.
readonly DROPPED=-sys_ptrace,-audit_write
LESS=(setpriv --bounding-set="$DROPPED" --inh-caps="$DROPPED")

build() {
  local argument arguments=() code=0 log less=("${LESS[@]}")
  for argument in "GITSHA=$GITSHA" "${BUILD_ARGUMENTS[@]}"; do arguments+=("--build-arg=$argument"); done
  "${less[@]}" true 2>/dev/null || { less=() && say 'no capability can be dropped: a RUN may read this process'; }
  exec 4> >(show_executor_log)
  log=$!
  exec 5<> <(:) 6<> <(:)
  (
    for argument in $(compgen -e); do export -n "${argument?}"; done
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$KANIKO HOME=$KANIKO/home
    export DOCKER_CONFIG=$KANIKO/.docker SSL_CERT_DIR=$KANIKO/ssl/certs
    # shellcheck disable=SC2016 # the inner shell expands it
    exec "${less[@]}" bash -c 'echo >&6 && read -r _ <&5 && exec "$@" 5<&- 6<&-' executor \
      $KANIKO/executor --force --context="dir://$CONTEXT" --dockerfile="$CONTEXT/$DOCKERFILE" \
      --destination="$DESTINATION" --label="org.opencontainers.image.revision=$GITSHA" \
      --no-push --oci-layout-path=$LAYOUT --skip-unused-stages --compressed-caching=false --snapshot-mode=full \
      --image-fs-extract-retry=3 --image-download-retry=3 --log-format=text --verbosity=info \
      "${EXECUTOR_OPTIONS[@]}" "${arguments[@]}"
  ) >&4 2>&4 4>&- 7<&- 8<&- </dev/null &
  read -rt 60 _ <&6 || true # it is loaded, and needs nothing of this root any more
  empty_root
  echo >&5
  wait $! || code=$?
  end_others "$log"
  exec 4>&- 5<&- 6<&-
  wait "$log" || true
  ((code == 0)) || explain_build_failure "$code"
}

end_others() { # a RUN may leave a process behind, which must not live when the credentials come
  local path id
  for path in /proc/[0-9]*; do
    id=${path#/proc/}
    ((id == 1 || id == $1)) || kill -KILL "$id" 2>/dev/null || true
  done
}

explain_build_failure() {
  local error=''
  [[ ! -e $LAST_ERROR ]] || error=$(<$LAST_ERROR)
  if [[ $error =~ 'waiting for process to exit: '(exit status [0-9]+|signal: .*) ]]; then
    finish $RUN_FAILED run-failed "a RUN of $DOCKERFILE ended with ${BASH_REMATCH[1]}; nothing was pushed"
  fi
  (($1 != 137)) || error='killed from outside, as for want of memory'
  finish $BUILD_FAILED build-failed "the executor ended with code $1: ${error:-no reason in its log}; nothing was pushed"
}

pause() { read -rt "$1" _ <> <(:) || true; } # sleep is a program, and the image may have none

layer_sizes() { # prints the compressed size of each layer in bytes, from the manifest in the layout
  local text
  text=$(<$LAYOUT/index.json)
  [[ $text =~ sha256:([0-9a-f]{64}) ]]
  text=$(<"$LAYOUT/blobs/sha256/${BASH_REMATCH[1]}")
  text=${text#*\"layers\"}
  while [[ $text =~ \"size\":[[:space:]]*([0-9]+) ]]; do
    printf '%s\n' "${BASH_REMATCH[1]}"
    text=${text#*"${BASH_REMATCH[0]}"}
  done
}

check_layers() {
  local size count=0 total=0 largest=0
  while read -r size; do
    count=$((count + 1)) total=$((total + size))
    ((size <= largest)) || largest=$size
  done < <(layer_sizes)
  ((count > 0)) || finish $BUILD_FAILED build-failed 'the layout names no layer'
  say "layers: $count, largest $largest bytes, total $total bytes"
  ((largest <= LAYER_CEILING)) ||
    finish $LAYERS_REFUSED layers-refused "a layer of $largest bytes is over the ceiling of $LAYER_CEILING; nothing was pushed"
}

push() {
  local attempt
  log_in
  for ((attempt = 1; attempt <= PUSH_ATTEMPTS; attempt++)); do
    say "push attempt $attempt of $PUSH_ATTEMPTS: $DESTINATION"
    crane push $LAYOUT "$DESTINATION" && return
    ((attempt == PUSH_ATTEMPTS)) || pause $((2 ** attempt))
  done
  finish $PUSH_REFUSED push-refused "the registry did not take $DESTINATION in $PUSH_ATTEMPTS attempts"
}

# --- the whole ----------------------------------------------------------------------------------------

on_signal() { # this is the first process of its own process namespace: -1 is everything that it started
  trap - TERM INT HUP
  kill -TERM -1 2>/dev/null || true
  pause 2
  kill -KILL -1 2>/dev/null || true
  finish $((128 + $1)) ended-by-signal "signal $1; nothing was pushed unless a push line stands above"
}

BASES=''
EXECUTOR_OPTIONS=()
CONTRACT=(GITSHA IMAGE_REPOSITORY REGISTRY_USER EXECUTOR_IMAGE CRANE_URL CRANE_SHA256 CONTEXT_SHA256 DOCKERFILE
  TAG_PREFIX BUILD_ARGS LAYER_CEILING PUSH_ATTEMPTS IRIS_TASK_ID IRIS_WORKDIR "${CONTRACT[@]}")

main() {
  [[ ${1:-} != --help ]] || { usage && exit 0; }
  if [[ -z ${CLEAN:-} ]]; then
    accept_old_names
    require_variables
    require_disposable_root
    require_declared_pins
    start_clean
  fi
  require_disposable_root
  take_token
  trap 'on_signal 15' TERM
  trap 'on_signal 2' INT
  trap 'on_signal 1' HUP
  trap 'on_error $LINENO' ERR
  case $(uname -m) in
    x86_64) ARCHITECTURE=amd64 SUFFIX='' ;;
    aarch64) ARCHITECTURE=arm64 SUFFIX=-arm64 ;;
    *) refuse "no image is built for $(uname -m)" ;;
  esac
  LAYER_CEILING=${LAYER_CEILING:-4000000000} PUSH_ATTEMPTS=${PUSH_ATTEMPTS:-4}
  DESTINATION=$IMAGE_REPOSITORY:$TAG_PREFIX-$GITSHA$SUFFIX
  mkdir -p $KANIKO/home $KANIKO/.docker

  phase tools
  unpack_context
  install_downloader
  fetch_crane
  log_in
  fetch_executor
  phase inputs
  collect_build_arguments
  offer_private_bases
  fetch_inputs
  forget_credentials
  phase build
  build
  phase layers
  check_layers
  phase push
  push
  phase finished
  finish 0 pushed "$DESTINATION"
}
