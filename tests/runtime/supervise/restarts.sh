#!/bin/bash
# restarts.sh - tern supervise over the real mpirun on this machine: ranks and launchers killed and stopped, a run that is
# asked to stop again and again; each time it goes on by itself, and the digests are those of the undisturbed run.
. "$(dirname "$0")/../train/lib.sh"
export TERN_THREADS=1
unset TERN_MEM_FREEZE
make_data
config llama fp32 >config.yaml
steady=(--set optimizer.schedule=constant --set train.eval_every=0 --set checkpoint.every_steps=20)
command=("${run[@]}" -np 2 "$TERN" train config.yaml --run-dir run --set train.steps=1000000 "${steady[@]}")

history() { # KEY: of all launches, in order
    python3 -c 'import json, sys
print(*[launch.get(sys.argv[1], "-") for launch in json.load(open("run/supervise.json"))["history"]])' "$1" 2>/dev/null || true
}
launches() {
    history id | wc -w
}
steps_done() {
    [ ! -e run/log.jsonl ] || grep -c '"kind":"step"' run/log.jsonl || true
}
# trains: until launch K (counted from 1) has done some steps
trains() {
    local began=$SECONDS start
    until [ "$(launches)" -ge "$1" ]; do
        [ $((SECONDS - began)) -lt 120 ] || fail "launch $1 never came"
        kill -0 "$supervisor" 2>/dev/null || fail "the supervisor is gone"
        sleep 0.05
    done
    start=$(steps_done)
    until [ "$(steps_done)" -gt $((${start:-0} + 10)) ]; do
        [ $((SECONDS - began)) -lt 120 ] || fail "launch $1 does no steps"
        kill -0 "$supervisor" 2>/dev/null || fail "the supervisor is gone"
        sleep 0.05
    done
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
echo "ok: a rank killed ($(history status))"
kill -KILL "$(launcher)"
trains 3
echo "ok: mpirun killed ($(history status))"
kill -USR2 "$(launcher)"
trains 4
[[ "$(history verdict)" == *reclaimed* ]] || fail "verdicts: $(history verdict)"
echo "ok: asked from outside, and goes on ($(history verdict))"
kill -TERM "$(launcher)" # which kills its ranks
trains 5
echo "ok: SIGTERM to mpirun ($(history verdict))"
kill -STOP "$(a_rank)" # nothing is logged from then on
trains 6
echo "ok: a rank stopped ($(history verdict))"
kill -TERM "$supervisor"
code=0
wait "$supervisor" || code=$?
[ "$code" = 33 ] || fail "exit code $code, expected 33"
[ "$(state run)" = reclaimed ] || fail "the launch record says $(state run)"
[ -z "$(left_behind)" ] || fail "processes are left"
stopped=$(cat run/ckpt/LATEST)
steps=$((10#${stopped#step-}))
ranks 0 config.yaml --run-dir reference --set train.steps=$steps "${steady[@]}" || fail "the reference run"
[ "$(digest run)" = "$(digest reference)" ] || fail "$stopped: digests differ"
echo "equal at $stopped, after $(launches) launches: $(history status)"

# A run that ends by itself; a second supervisor over it has nothing to do.
rm -rf run
command=("$TERN" train config.yaml --run-dir run)
"$TERN" supervise -- "${command[@]}" >last.log 2>&1 || fail "a run without mpirun"
"$TERN" supervise -- "${command[@]}" >last.log 2>&1 || fail "a run that is done"
[ "$(history verdict)" = "finished finished" ] || fail "verdicts: $(history verdict)"
expect 2 "the command, its configuration or its input is refused" -- "$TERN" supervise -- "$TERN" train nonesuch.yaml --run-dir other
expect 2 "expected one that has no record" -- env "TERN_LAUNCH_ID=$(history id | cut -d ' ' -f 1)" "${command[@]}"
expect 2 "environment TERN_LAUNCH_ID: found '../x'" -- env TERN_LAUNCH_ID=../x "${command[@]}"
echo "restarts: done"
