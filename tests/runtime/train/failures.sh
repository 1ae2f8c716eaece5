#!/bin/bash
# failures.sh - one rank fails, dies or differs: the job ends within seconds and says why; nobody hangs.
. "$(dirname "$0")/lib.sh"
export TERN_THREADS=1
make_data
config gpt2 fp32 >config.yaml

# expect CODE SENTENCE -- COMMAND...: exit code and a piece of stderr, within 20 s
expect() {
    local code=$1 sentence=$2 found=0
    shift 3
    timeout 20 "$@" >last.log 2>&1 || found=$?
    [ "$found" != 124 ] || fail "hung: $*"
    [ "$found" = "$code" ] || fail "exit code $found, expected $code: $*"
    grep -q -- "$sentence" last.log || fail "no '$sentence' in the output of: $*"
    echo "ok: $sentence"
}
run=(mpirun --oversubscribe --bind-to none)

expect 2 "train.lanes: found 8, expected at least the number of ranks (9)" -- \
    "${run[@]}" -np 9 "$TERN" train config.yaml --run-dir a
expect 2 "global_batch" -- "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir a --set train.global_batch=12
expect 2 "the configuration" -- "${run[@]}" -np 1 "$TERN" train config.yaml --run-dir a : \
    -np 1 "$TERN" train config.yaml --run-dir a --set train.seed=5
expect 2 "no such file\|cannot open\|No such file" -- "${run[@]}" -np 1 "$TERN" train config.yaml --run-dir a : \
    -np 1 "$TERN" train missing.yaml --run-dir a
expect 1 "not finite" -- env TERN_FAULT=gradient@3#1:nan "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir nan
grep -q '"state":"failed"' nan/launches/*.json || fail "a non-finite gradient leaves no record"

# Skipped instead: every rank skips the same step, the run ends well, and the record names the tensor.
TERN_FAULT=gradient@20#1:nan timeout 60 "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir skip \
    --set train.on_nonfinite=skip >last.log 2>&1 || fail "on_nonfinite: skip"
grep -q '"skipped":true,"tensor"' skip/log.jsonl || fail "the skipped step is not in the log"
[ "$(state skip)" = finished ] || fail "the run with a skipped step did not finish"

# A rank that dies takes the job along.
for action in kill exit; do
    rm -rf dead
    started=$SECONDS
    TERN_FAULT=step.backward@5#1:$action timeout 30 "${run[@]}" -np 3 "$TERN" train config.yaml --run-dir dead \
        >last.log 2>&1 && fail "a dead rank went unnoticed"
    [ $((SECONDS - started)) -le 10 ] || fail "a dead rank ($action) ended the job only after $((SECONDS - started)) s"
    echo "ok: rank 1 $action"
done

# A rank that stops is named within the time limit, and the job ends with 34.
rm -rf stop
TERN_COMM_TIMEOUT=3 TERN_FAULT=step.backward@5#1:stop timeout 30 "${run[@]}" -np 2 "$TERN" train config.yaml \
    --run-dir stop >last.log 2>&1 && fail "a stopped rank went unnoticed" || code=$?
[ "$code" != 124 ] || fail "a stopped rank hangs the job"
grep -q "rank 1" last.log || fail "the stopped rank is not named"
grep -q '"state":"peer_lost"' stop/launches/*.json || fail "no peer_lost record"
pkill -KILL -f "^$TERN train config.yaml --run-dir stop" || true

# Only one writer a run directory.
"$TERN" train config.yaml --run-dir busy --set train.steps=1000000 >busy.log 2>&1 &
writer=$!
for _ in $(seq 200); do
    [ -s busy/log.jsonl ] && break
    sleep 0.05
done
expect 1 "pid $writer" -- "$TERN" train config.yaml --run-dir busy
kill -TERM "$writer"
wait "$writer" || true

# --resume: never refuses what is there, required refuses what is not.
expect 2 "resume never" -- "$TERN" train config.yaml --run-dir busy --resume never
expect 2 "checkpoint" -- "$TERN" train config.yaml --run-dir fresh --resume required

# A damaged newest checkpoint is named and skipped.
rm -rf run
ranks 2 config.yaml --run-dir run || fail "a run to damage"
newest=$(cat run/ckpt/LATEST)
size=$(stat -c %s "run/ckpt/$newest/rank-0001.h5")
printf '\377\000\377' | dd of="run/ckpt/$newest/rank-0001.h5" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
ranks 2 config.yaml --run-dir run || fail "resume beside a damaged checkpoint"
grep -q "$newest" last.log || fail "the damaged checkpoint is not named"
[ "$(state run)" = finished ] || fail "the run did not finish"

# Disk full while saving: training goes on, earlier checkpoints stay good, the end says that it failed.
rm -rf full
TERN_FAULT=ckpt.shard@1:enospc "$TERN" train config.yaml --run-dir full --set checkpoint.every_steps=5 >last.log 2>&1 ||
    fail "one failed checkpoint ended the run"
grep -q "was not written" last.log || fail "a failed checkpoint is not reported"
[ "$(state full)" = finished ] || fail "the run did not finish after a failed checkpoint"
echo "failures: done"
