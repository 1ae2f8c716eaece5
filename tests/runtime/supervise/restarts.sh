#!/bin/bash
# restarts.sh - tern supervise over the real mpirun on this machine: ranks and launchers killed and stopped, a run that is
# asked to stop again and again; each time it goes on by itself, and the digests are those of the undisturbed run.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../train/lib.sh"
. "$here/lib.sh"
export TERN_THREADS=1
unset TERN_MEM_FREEZE
make_data
config llama fp32 >config.yaml
command=("${run[@]}" -np 2 "$TERN" train config.yaml --run-dir run "${steady[@]}")
trains() { # K: until launch K, counted from 1, has done some steps
    await "launch $1" has_launch "$1"
    some_steps
}
launcher() {
    pgrep -P "$supervisor" -x mpirun
}
a_rank() {
    pgrep -P "$(launcher)" -x tern | tail -n 1
}
"$TERN" supervise --hang-seconds 10 -- "${command[@]}" >last.log 2>&1 &
supervisor=$!
trains 1
kill -KILL "$(a_rank)"
trains 2
echo "ok: a rank killed ($(account status))"
kill -KILL "$(launcher)"
trains 3
echo "ok: mpirun killed ($(account status))"
kill -USR2 "$(launcher)"
trains 4
[[ "$(account verdict)" == *reclaimed* ]] || fail "verdicts: $(account verdict)"
echo "ok: asked from outside, and goes on ($(account verdict))"
kill -TERM "$(launcher)" # which kills its ranks
trains 5
echo "ok: SIGTERM to mpirun ($(account verdict))"
kill -STOP "$(a_rank)" # nothing is logged from then on
trains 6
echo "ok: a rank stopped ($(account verdict))"
kill -TERM "$supervisor"
code=0
wait "$supervisor" || code=$?
[ "$code" = 33 ] || fail "exit code $code, expected 33"
[ "$(state run)" = reclaimed ] || fail "the launch record says $(state run)"
[ -z "$(left_behind)" ] || fail "processes are left"
same_as_undisturbed
echo "after $(launches) launches that ended with $(account status)"

# A run that ends by itself; a second supervisor over it has nothing to do.
rm -rf run
command=("$TERN" train config.yaml --run-dir run)
"$TERN" supervise -- "${command[@]}" >last.log 2>&1 || fail "a run without mpirun"
"$TERN" supervise -- "${command[@]}" >last.log 2>&1 || fail "a run that is done"
[ "$(account verdict)" = "finished finished" ] || fail "verdicts: $(account verdict)"
expect 2 "the command, its configuration or its input is refused" -- "$TERN" supervise -- "$TERN" train nonesuch.yaml --run-dir other
expect 2 "expected one that has no record" -- env "TERN_LAUNCH_ID=$(account id | cut -d ' ' -f 1)" "${command[@]}"
expect 2 "environment TERN_LAUNCH_ID: found '../x'" -- env TERN_LAUNCH_ID=../x "${command[@]}"
echo "restarts: done"
