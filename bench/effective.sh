#!/bin/bash
# effective.sh - effective training time under kills: a run that `tern supervise` keeps going while a random rank of it is
# killed every so many seconds; the share that was productive, and where the rest went, by the run's own ledger.
#
#   bench/effective.sh [--every SECONDS] [--kills N] [--ranks N] [--preset NAME] [--batch N] [--build FOLDER] [--set K=V]...
#
# Default: 10 kills, one every 60 s, of GPT-2 124M (batch 8, T=256) on 2 ranks of one thread; build/release. Each kill is
# SIGKILL to one rank at a random moment of its interval's last tenth. Ends with 1 when a resume's digests could not be
# checked: the run is asked to stop at the end, and its newest checkpoint verified.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
every=60 kills=10 ranks=2 preset=gpt2-124m batch=8 build=$root/build/release
sets=()
while [ $# -gt 0 ]; do
    case $1 in
    --every) every=$2 ;;
    --kills) kills=$2 ;;
    --ranks) ranks=$2 ;;
    --preset) preset=$2 ;;
    --batch) batch=$2 ;;
    --build) build=$(realpath "$2") ;;
    --set) sets+=(--set "$2") ;;
    *)
        sed -n '2,9s/^# \{0,1\}//p' "$0"
        exit 2
        ;;
    esac
    shift 2
done
tern=$build/bin/tern
work=$(mktemp -d "${TMPDIR:-/tmp}/tern-effective.XXXXXX")
supervisor=
finish() {
    [ -z "$supervisor" ] || kill -TERM "$supervisor" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TERN_THREADS=${TERN_THREADS:-1}
export OMPI_MCA_btl_vader_single_copy_mechanism=none

awk 'BEGIN { x = 1; for (i = 0; i < 400000; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%s ", "w" int(x / 65536) % 997 } }' >text.txt
"$tern" tokenizer train --vocab-size 2048 --out tokenizer.json text.txt 2>/dev/null
cat >config.yaml <<YAML
model: {preset: $preset}
data: {tokenizer: tokenizer.json, train: [text.txt]}
train: {steps: 1000000, sequence_length: 256, global_batch: $batch, micro_batch: 1, lanes: $batch, eval_every: 0}
checkpoint: {every_steps: 0, every_seconds: 600}
reclaim: {mtbf_seconds: $every}
YAML
"$tern" supervise --max-stalls 100 -- mpirun --oversubscribe --bind-to none -np "$ranks" "$tern" train config.yaml \
    --run-dir run "${sets[@]}" >supervise.log 2>&1 &
supervisor=$!
for _ in $(seq 1200); do
    grep -q '"kind":"step"' run/log.jsonl 2>/dev/null && break
    sleep 0.1
done

# pids of the ranks: the program, started from this folder, but for the supervisor
ranks_now() {
    local process
    for process in /proc/[0-9]*; do
        if [ "$(readlink "$process/cwd")" = "$work" ] && [ "$(readlink "$process/exe")" = "$(realpath "$tern")" ] &&
            [ "${process#/proc/}" != "$supervisor" ]; then
            echo "${process#/proc/}"
        fi
    done 2>/dev/null
}
RANDOM=${SEED:-1}
for ((i = 1; i <= kills; i++)); do
    sleep "$(awk -v every="$every" -v r=$RANDOM 'BEGIN { print every * (0.95 + 0.1 * r / 32768) }')"
    mapfile -t pids < <(ranks_now)
    [ ${#pids[@]} -gt 0 ] || { echo "kill $i: no rank is there"; continue; }
    kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null || true
    echo "kill $i of $kills at step $(sed -n 's/.*"kind":"step".*"step":\([0-9]*\),.*/\1/p' run/log.jsonl | tail -n 1)"
done
sleep "$every"
kill -TERM "$supervisor"
wait "$supervisor" || true
supervisor=
"$tern" checkpoint verify "run/ckpt/$(cat run/ckpt/LATEST)"
"$tern" ledger run
sed -n 's/.*"kind":"resume".*"source":"\([^"]*\)".*/\1/p' run/log.jsonl | sort | uniq -c
