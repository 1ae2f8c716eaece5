#!/bin/bash
# interrupt.sh - asked to stop by each signal and by the stop file, on some rank, at a step nobody chose, and gone on with
# by another number of ranks: the launch records say so, and the digests are those of the run never interrupted.
. "$(dirname "$0")/lib.sh"
export TERN_THREADS=1
make_data
config llama bf16 >config.yaml
steps=400
ranks 0 config.yaml --run-dir reference --set train.steps=$steps || fail "the reference run"
expected=$(digest reference)

wait_for_step() { # RUN STEP: polls the log until the step is done
    for _ in $(seq 600); do
        grep -q "\"step\":$2," "$1/log.jsonl" 2>/dev/null && return
        sleep 0.05
    done
    fail "step $2 never came"
}

# interrupted N HOW: starts N ranks, stops them by HOW after some steps
interrupted() {
    local n=$1 how=$2 from=$3 launcher pids
    "${run[@]}" -np "$n" "$TERN" train config.yaml --run-dir run \
        --set train.steps=$steps >last.log 2>&1 &
    launcher=$!
    wait_for_step run "$from"
    case $how in
    file) touch run/stop ;;
    USR2-launcher) kill -USR2 "$launcher" ;;
    *) # one rank alone
        pids=($(pgrep -P "$launcher" || true))
        kill "-$how" "${pids[$((RANDOM % ${#pids[@]}))]}"
        ;;
    esac
    wait "$launcher" || true
    [ "$(state run)" = reclaimed ] || fail "$n ranks, $how: the launch record says $(state run)"
    [ ! -e run/stop ] || fail "the stop file is still there"
}

for round in "2 USR2-launcher 3" "4 file 3" "1 INT 2" "3 TERM 5" "8 USR2 1"; do
    set -- $round
    rm -rf run
    at=$((10 + RANDOM % 60))
    interrupted "$1" "$2" "$at"
    stopped=$(cat run/ckpt/LATEST)
    ranks "$3" config.yaml --run-dir run --set train.steps=$steps || fail "resume on $3 ranks"
    [ "$(state run)" = finished ] || fail "resumed run says $(state run)"
    [ "$(digest run)" = "$expected" ] || fail "$1 ranks, $2, stopped at $stopped, resumed on $3: digests differ"
    echo "equal: $1 ranks, stopped by $2 at $stopped, resumed on $3"
done

# One process without mpirun ends with 33 itself, and a second SIGINT ends it at once.
rm -rf run
"$TERN" train config.yaml --run-dir run --set train.steps=100000 >last.log 2>&1 &
pid=$!
wait_for_step run 5
kill -USR2 "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 33 ] || fail "one process, SIGUSR2: exit code $code, expected 33"
# Asked before the first step: the first one is taken, kept, and then it stops.
rm -rf run
TERN_FAULT=launch.record@1:delay=1 "$TERN" train config.yaml --run-dir run --set train.steps=100000 >last.log 2>&1 &
pid=$!
for _ in $(seq 200); do
    [ -e run/lock ] && break
    sleep 0.02
done
kill -USR2 "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 33 ] && [ "$(state run)" = reclaimed ] || fail "SIGUSR2 before the first step: exit code $code, $(state run)"
[ "$(cat run/ckpt/LATEST)" = step-00000001 ] || fail "SIGUSR2 before the first step: $(cat run/ckpt/LATEST)"
rm -rf run
(
    set -m # job control: a background process that does not ignore SIGINT
    TERN_FAULT=step.end@20:delay=30 "$TERN" train config.yaml --run-dir run --set train.steps=100000 >last.log 2>&1 &
    echo $! >pid
    code=0
    wait %1 || code=$?
    echo "$code" >code
) &
wait_for_step run 20
kill -INT "$(cat pid)"
sleep 0.1
started=$SECONDS
kill -INT "$(cat pid)"
wait
[ "$(cat code)" = 130 ] || fail "a second SIGINT: status $(cat code), expected 130 at once"
[ $((SECONDS - started)) -lt 10 ] || fail "a second SIGINT ended the run only after $((SECONDS - started)) s"
echo "interrupt: done"
