# Sourced by scratch-postgres and scratch-kafka.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# A port of 127.0.0.1 that nobody listens on. From below the kernel's ephemeral range, so that no client takes it meanwhile;
# another server still may, and then the caller tries again with another.
free_port() {
  local port
  for _ in {1..200}; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  die "no free port found between 20000 and 31999 on 127.0.0.1"
}

# Waits until a command succeeds: within SECONDS COMMAND…
within() {
  local tries=$(($1 * 20))
  shift
  while ! "$@"; do
    ((tries-- > 0)) || return 1
    sleep 0.05
  done
}

# Sets `state` and `parent` of a process; fails if it does not exist (any more). Without a program, because it runs for each process of
# the machine. The file: pid (name) state parent …
look_at() {
  local line
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -r state parent _ <<<"${line##*) }"
}

# The process runs, and is no zombie that nobody has collected yet.
alive() {
  local state parent
  look_at "$1" && [[ $state != Z ]]
}
gone() { ! alive "$1"; }

# SIGSTOP has arrived at each of these processes, which takes a moment after `kill` has returned.
stopped() {
  local pid state parent
  for pid in "$@"; do
    look_at "$pid" && [[ $state != [TtZ] ]] && return 1
  done
  return 0
}

# Stops each of these processes (SIGSTOP), and returns when it does nothing more.
freeze() {
  kill -STOP "$@" 2>/dev/null || true
  within 10 stopped "$@" || die "not all of the processes $* stop at SIGSTOP"
}
