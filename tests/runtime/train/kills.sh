#!/bin/bash
# kills.sh - random (fault point, pass, rank, action) while training and saving, SWEEP_COUNT times (default 20, aim 200):
# afterwards a resume on a random number of ranks reaches the digests of the undisturbed run, and every checkpoint that
# verify calls good reads back. Seeded: SWEEP_SEED repeats a sweep.
. "$(dirname "$0")/lib.sh"
export TERN_THREADS=1 TERN_COMM_TIMEOUT=8
seed=${SWEEP_SEED:-1}
count=${SWEEP_COUNT:-20}
unset SWEEP_COUNT SWEEP_SEED
RANDOM=$seed
make_data
config llama fp32 >config.yaml
steps=24
set_args=(--set train.steps=$steps --set checkpoint.every_steps=3 --set train.eval_every=0)
ranks 0 config.yaml --run-dir reference "${set_args[@]}" || fail "the reference run"
expected=$(digest reference)

# One fault "point@pass#rank:action" for n ranks: only passes that such a run reaches.
random_fault() { # N
    local steps_points=(step.begin step.backward step.reduce step.update step.end)
    local file_points=(file.open file.write file.fsync file.rename)
    local commit_points=(ckpt.view ckpt.manifest ckpt.latest ckpt.prune)
    local deaths=(kill kill exit) errors=(kill kill exit enospc eio short) rank=$((RANDOM % $1))
    case $((RANDOM % 6)) in
    0 | 1) echo "${steps_points[RANDOM % 5]}@$((RANDOM % 20 + 1))#$rank:${deaths[RANDOM % 3]}" ;;
    2) echo "${file_points[RANDOM % 4]}@$((RANDOM % 30 + 1))#0:${errors[RANDOM % 6]}" ;;
    3) echo "${commit_points[RANDOM % 4]}@$((RANDOM % 4 + 1))#0:${errors[RANDOM % 5]}" ;;
    4) echo "ckpt.shard@$((RANDOM % 4 + 1))#$rank:${errors[RANDOM % 5]}" ;;
    5) if [ "$1" -gt 1 ] && [ $((RANDOM % 2)) = 0 ]; then
        echo "comm.send@$((RANDOM % 60 + 1))#$rank:${deaths[RANDOM % 3]}"
    else
        echo "snapshot@$((RANDOM % 4 + 1))#$rank:${deaths[RANDOM % 3]}"
    fi ;;
    esac
}

struck=0
for ((i = 1; i <= count; i++)); do
    rm -rf run
    n=$((RANDOM % 4 + 1))
    fault=$(random_fault "$n")
    RANDOM=$((seed * 7919 + i)) # the call above ran in a subshell: move on here too
    again=$((RANDOM % 5 + 1))
    name="seed $seed round $i: $n ranks, TERN_FAULT=$fault, resumed on $again"
    TERN_FAULT=$fault timeout 60 "${run[@]}" -np "$n" "$TERN" train config.yaml \
        --run-dir run "${set_args[@]}" >last.log 2>&1 && code=0 || code=$?
    [ "$code" != 124 ] || fail "$name: hung"
    if [ "$code" != 0 ] || grep -q "was not written" last.log; then
        struck=$((struck + 1))
    fi
    for step in run/ckpt/step-*; do
        [ -e "$step/MANIFEST.json" ] || continue
        "$TERN" checkpoint verify "$step" >verify.log 2>&1 || fail "$name: $step is announced and does not verify: $(cat verify.log)"
    done
    ranks "$again" config.yaml --run-dir run "${set_args[@]}" || fail "$name: the resume failed"
    [ "$(digest run)" = "$expected" ] || fail "$name: digests differ"
    leftovers=$(find run -name '*.tmp*' | head -n 3)
    [ -z "$leftovers" ] || fail "$name: leftovers $leftovers"
    echo "ok $i: $fault on $n ranks (ended $code), resumed on $again"
done
echo "$count faults, $struck of them ended the run or a save"
[ "$struck" -ge $((count / 3)) ] || fail "only $struck of $count faults did anything: the sweep tests nothing"
