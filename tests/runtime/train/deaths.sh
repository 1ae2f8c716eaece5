#!/bin/bash
# deaths.sh - random deaths of a run on 4 ranks that keeps checkpoints on disk, snapshots in memory and copies of those:
# SWEEP_COUNT rounds (default 100; by hand SWEEP_COUNT=1000), each a launch that is killed, stopped, or refused by its disk
# or memory at a random named point on a random rank, in one round of three a second one that dies while it resumes or later,
# and a resume on 1 to 5 ranks with the digests of the undisturbed run, every announced checkpoint still there, and nothing
# left over. In one round of three there is a bucket too, which the test's server makes answer 500, 503, nothing or half of it
# while the run dies, and from which alone an empty machine goes on in some. SWEEP_SEED=S repeats a sweep, SWEEP_FIRST=R begins it at round R.
#   deaths.sh TERN STORE_SERVER.py [K/N]      the K-th of N parts of the rounds, which may run side by side: they mostly wait
store=$(realpath "${BASH_SOURCE[0]%/*}")/store.sh
server_script=$(realpath "$2")
sweep=$(realpath "${BASH_SOURCE[0]%/*}")/sweep.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
. "$sweep"
. "$store"
export TERN_THREADS=1 TERN_MEMORY_PEER=1
seed=${SWEEP_SEED:-1}
count=${SWEEP_COUNT:-100}
first=${SWEEP_FIRST:-1}
part=${3:-1/1}
unset SWEEP_COUNT SWEEP_SEED SWEEP_FIRST
[[ $part =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] && [ "${part%/*}" -le "${part#*/}" ] || fail "found part '$part', expected one like 2/4"
begin=$(((${part%/*} - 1) * count / ${part#*/}))
count=$((${part%/*} * count / ${part#*/} - begin))
first=$((first + begin))
[ "$count" -gt 0 ] || fail "there is no round for part $part"
make_data
config llama fp32 >config.yaml
common_args=(--set train.steps=80 --set checkpoint.every_steps=15 --set checkpoint.snapshot_every_steps=3
    --set train.eval_every=0)
set_args=("${common_args[@]}")
ranks 0 config.yaml --run-dir reference "${set_args[@]}" || fail "the reference run"
expected=$(digest reference)

# A fault of any phase, on passes that such a launch reaches (most of them).
pick_fault() { # N
    local rank=$((RANDOM % $1)) deaths="kill kill kill exit stop" errors="kill kill exit enospc eio short"
    case $((RANDOM % 8)) in
    0) pick step.begin step.reduce step.update step.end && pass=$((RANDOM % 78 + 1)) && actions=$deaths ;;
    1) picked=step.backward pass=$((RANDOM % 150 + 1)) actions=$deaths ;;
    2) pick file.open file.write file.fsync file.rename && pass=$((RANDOM % 36 + 1)) rank=0 actions=$errors ;;
    3) pick ckpt.view ckpt.manifest ckpt.latest ckpt.prune && pass=$((RANDOM % 3 + 1)) rank=0 actions=$errors ;;
    4) pick ckpt.shard ckpt.settle snapshot && pass=$((RANDOM % 3 + 1)) actions=$errors ;;
    5 | 6) pick memory.copy memory.seal memory.peer && pass=$((RANDOM % 12 + 1)) actions=$errors ;;
    7) pick comm.send launch.record && pass=$((RANDOM % 600 + 1)) actions=$deaths ;;
    esac
    case $picked in
    ckpt.settle | snapshot) actions=$deaths ;;
    launch.record) pass=$((RANDOM % 2 + 1)) rank=0 actions="kill exit eio" ;;
    esac
    # shellcheck disable=SC2086 # words
    local point=$picked && pick $actions
    fault="$point@$pass#$rank:$picked"
    [ "$1" -gt 1 ] || fault=${fault/:stop/:kill} # nobody is there to notice that it stands still
}
pick_second_fault() { # N
    if [ $((RANDOM % 2)) = 0 ]; then
        local rank=$((RANDOM % $1))
        pick memory.restore ckpt.restore && local point=$picked && pick kill exit eio stop
        fault="$point@1#$rank:$picked"
        [ "$1" -gt 1 ] || fault=${fault/:stop/:kill}
    else
        pick_fault "$1"
    fi
}

# A fault of the way to the bucket, on this side or on the server's.
pick_store_fault() { # N
    if [ $((RANDOM % 2)) = 0 ]; then
        local rank=$((RANDOM % $1))
        pick store.put store.part store.complete store.manifest && local point=$picked && pick kill kill exit eio short
        [ "$point" != store.manifest ] || rank=0
        fault="$point@$((RANDOM % 4 + 1))#$rank:$picked"
    else
        pick_fault "$1"
        control "{\"seed\": $RANDOM, \"rate\": 0.3, \"actions\": [\"500\", \"503\", \"cut\", \"lost\", \"half\", \"stall\", \"error200\"]}"
    fi
}
# With a bucket: the next round's own, in a store that does not grow for ever.
with_store() { # ROUND
    [ -n "$server" ] && [ $(($1 % 25)) != 0 ] || start_store
    control '{}'
    set_args=("${common_args[@]}" --set checkpoint.remote=s3://bucket/round-"$1" --set checkpoint.remote_keep=2)
}

struck=0
from_memory=0
from_bucket=0
for ((i = first; i < first + count; i++)); do
    rm -rf run
    seed_round "$seed" "$i"
    set_args=("${common_args[@]}")
    has_store=$((RANDOM % 3 == 0))
    if [ "$has_store" = 1 ]; then
        with_store "$i"
        pick_store_fault 4
    else
        pick_fault 4
    fi
    faults=$fault
    name="seed $seed round $i: TERN_FAULT=$fault on 4 ranks"
    faulted 4 "$fault" "$name"
    if [ $((RANDOM % 3)) = 0 ]; then
        n=$((RANDOM % 4 + 1))
        pick_second_fault "$n"
        faults="$faults, then $fault on $n ranks"
        name="$name, then TERN_FAULT=$fault on $n"
        faulted "$n" "$fault" "$name"
    fi
    again=$((RANDOM % 5 + 1))
    [ "$has_store" = 0 ] || control '{}'
    if [ "$has_store" = 1 ] && [ $((RANDOM % 3)) = 0 ]; then
        rm -rf run
        faults="$faults, its machine gone"
    fi
    lines=1
    [ ! -e run/log.jsonl ] || lines=$(($(wc -l <run/log.jsonl) + 1))
    resumed "$again" "$name, resumed on $again"
    source=$(tail -n +"$lines" run/log.jsonl 2>/dev/null | grep '"kind":"resume"' | tail -n 1 | sed 's/.*"source":"\([^"]*\)".*/\1/' || true)
    [ "$has_store" = 0 ] || tidy "$name: the bucket, after the resume"
    [ "$source" != "the bucket" ] || from_bucket=$((from_bucket + 1))
    case $source in *memory | *peer) from_memory=$((from_memory + 1)) ;; esac
    echo "ok $i: $faults (ended $ended), resumed on $again from ${source:-"the start, or was done"}"
done
echo "$count rounds, $struck faults ended a launch or a save, $from_memory resumes from memory, $from_bucket from the bucket"
[ "$struck" -ge $((count / 3)) ] || fail "only $struck faults in $count rounds did anything: the sweep tests nothing"
[ "$count" -lt 20 ] || [ "$from_memory" -gt 0 ] || fail "no resume from memory: the sweep tests nothing of it"
