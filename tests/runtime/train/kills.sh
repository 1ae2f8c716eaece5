#!/bin/bash
# kills.sh - random (fault point, pass, rank, action) while training and saving, SWEEP_COUNT times (default 20, aim 200):
# afterwards a resume on a random number of ranks reaches the digests of the undisturbed run, and every checkpoint that
# verify calls good reads back. Seeded: SWEEP_SEED repeats a sweep.
sweep=$(realpath "${BASH_SOURCE[0]%/*}")/sweep.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
. "$sweep"
export TERN_THREADS=1
seed=${SWEEP_SEED:-1}
count=${SWEEP_COUNT:-20}
unset SWEEP_COUNT SWEEP_SEED
make_data
config llama fp32 >config.yaml
steps=24
set_args=(--set train.steps=$steps --set checkpoint.every_steps=3 --set train.eval_every=0)
ranks 0 config.yaml --run-dir reference "${set_args[@]}" || fail "the reference run"
expected=$(digest reference)

# One fault "point@pass#rank:action" for n ranks: only passes that such a run reaches.
pick_fault() { # N
    local steps_points=(step.begin step.backward step.reduce step.update step.end)
    local file_points=(file.open file.write file.fsync file.rename)
    local commit_points=(ckpt.view ckpt.manifest ckpt.latest ckpt.prune)
    local deaths=(kill kill exit) errors=(kill kill exit enospc eio short) rank=$((RANDOM % $1))
    case $((RANDOM % 6)) in
    0 | 1) fault="${steps_points[RANDOM % 5]}@$((RANDOM % 20 + 1))#$rank:${deaths[RANDOM % 3]}" ;;
    2) fault="${file_points[RANDOM % 4]}@$((RANDOM % 30 + 1))#0:${errors[RANDOM % 6]}" ;;
    3) fault="${commit_points[RANDOM % 4]}@$((RANDOM % 4 + 1))#0:${errors[RANDOM % 5]}" ;;
    4) fault="ckpt.shard@$((RANDOM % 4 + 1))#$rank:${errors[RANDOM % 5]}" ;;
    5) if [ "$1" -gt 1 ] && [ $((RANDOM % 2)) = 0 ]; then
        fault="comm.send@$((RANDOM % 60 + 1))#$rank:${deaths[RANDOM % 3]}"
    else
        fault="snapshot@$((RANDOM % 4 + 1))#$rank:${deaths[RANDOM % 3]}"
    fi ;;
    esac
}

struck=0
for ((i = 1; i <= count; i++)); do
    rm -rf run
    seed_round "$seed" "$i"
    n=$((RANDOM % 4 + 1))
    pick_fault "$n"
    again=$((RANDOM % 5 + 1))
    name="seed $seed round $i: $n ranks, TERN_FAULT=$fault, resumed on $again"
    faulted "$n" "$fault" "$name"
    resumed "$again" "$name"
    echo "ok $i: $fault on $n ranks (ended $ended), resumed on $again"
done
echo "$count faults, $struck of them ended the run or a save"
[ "$struck" -ge $((count / 3)) ] || fail "only $struck of $count faults did anything: the sweep tests nothing"
