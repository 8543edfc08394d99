# shellcheck shell=bash
# What `up`, `down` and the Makefile share: where the state of the running engine is kept, how a process is
# recognised as ours, and how kinesis-local is installed. Sourced from the repository's root or from here.

localstack_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=localstack/versions
. "$localstack_folder/versions"
run_folder=${LOCALSTACK_RUN:-$localstack_folder/.run}
[[ $run_folder == /* ]] || run_folder=$PWD/$run_folder

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "$@"
  exit 1
}

# The moment a process started. Kept beside its pid, because a pid alone may belong to another program by now.
started_at() { LC_ALL=C ps -o lstart= -p "$1" 2>/dev/null | tr -s ' '; }

# Whether a process runs; one that is dead and not yet reaped does not.
alive() {
  local state
  state=$(ps -o stat= -p "$1" 2>/dev/null) || return 1
  [[ $state != Z* ]]
}

need_ps() { command -v ps >/dev/null || fail 'Expected ps on PATH. On Debian or Ubuntu: sudo apt-get install procps'; }

# Sets pid, engine and port and succeeds when an engine that `up` started still runs.
# shellcheck disable=SC2034  # engine and port are for the caller
read_state() {
  local started
  [ -f "$run_folder/engine.state" ] || return 1
  need_ps
  IFS='|' read -r pid engine port started <"$run_folder/engine.state" || return 1
  alive "$pid" && [ "$(started_at "$pid")" = "$started" ]
}

write_state() { printf '%s|%s|%s|%s\n' "$1" "$2" "$3" "$(started_at "$1")" >"$run_folder/engine.state"; }

forget_state() { rm -f "$run_folder/engine.state"; }

# Ends the process and what it started: politely, and after 20 s by force. `up` made it the leader of a process
# group of its own, so that the group holds nothing else.
stop_engine() {
  local pid=$1 deadline=$((SECONDS + 20))
  kill -TERM "$pid" 2>/dev/null || true
  while alive "$pid" && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.1; done
  kill -KILL -- "-$pid" 2>/dev/null || true
}

# Installs kinesis-local under the given folder; the mark tells a whole installation from an interrupted one.
install_kinesis_local() {
  local folder=$1 mark="$1/node_modules/.kinesis-local-$KINESIS_LOCAL_VERSION"
  if [ -e "$mark" ]; then return 0; fi
  command -v npm >/dev/null || return 1
  say "Installing kinesis-local $KINESIS_LOCAL_VERSION with npm (17 MB)."
  mkdir -p "$folder"
  npm install --silent --no-audit --no-fund --no-save --fetch-retries=1 --fetch-timeout=30000 \
    --prefix "$folder" "kinesis-local@$KINESIS_LOCAL_VERSION" >&2 || return 1
  touch "$mark"
}
