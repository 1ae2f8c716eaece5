#!/bin/bash
# failures.sh - one rank fails, dies or differs: the job ends within seconds and says why; nobody hangs.
. "$(dirname "$0")/lib.sh"
export TERN_THREADS=1
make_data
config gpt2 fp32 >config.yaml


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
kill_left_behind

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

# A failed checkpoint is said once and tried again at the next due step; earlier ones stay good.
rm -rf full
TERN_FAULT=ckpt.shard@2#1:enospc "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir full \
    --set checkpoint.every_steps=20 --set train.steps=60 \
    >last.log 2>&1 || fail "one failed checkpoint ended the run"
[ "$(grep -c "was not written: .*rank 1: .*No space" last.log)" = 1 ] || fail "a failed checkpoint is not said once"
grep -q '"kind":"warning".*"not_written":".*rank 1: ' full/log.jsonl || fail "it is not in the log"
[ "$(grep -c "committed" last.log)" = 2 ] || fail "the checkpoints before and after it were not made"
[ "$(state full)" = finished ] || fail "the run did not finish after a failed checkpoint"
echo "ok: a failed checkpoint"

# The last checkpoint is tried twice; when that fails all ranks end with 1 and one sentence, and the record says failed.
every=(--set checkpoint.every_steps=0)
rm -rf last
TERN_FAULT=ckpt.shard@1#1:enospc "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir last "${every[@]}" >last.log 2>&1 ||
    fail "the last checkpoint was not tried again"
[ "$(state last)" = finished ] || fail "tried again: $(state last)"
for ranks in 1 3; do
    for faults in "ckpt.shard@1#0:eio,ckpt.shard@2#0:eio" "ckpt.manifest@1:eio,ckpt.manifest@2:eio"; do
        rm -rf last
        expect 1 "without a checkpoint of step 20: .*Input/output error" -- env TERN_FAULT=$faults \
            "${run[@]}" -np $ranks "$TERN" train config.yaml --run-dir last "${every[@]}"
        [ "$(grep -c "without a checkpoint" last.log)" = 1 ] || fail "said more than once"
        [ "$(state last)" = failed ] || fail "no last checkpoint: $(state last)"
        [ "$(ls last/launches | wc -l)" = 1 ] || fail "more than one record"
    done
done
# Being reclaimed without one is a failure too: whoever starts it again must know that steps are lost.
rm -rf last
TERN_FAULT="ckpt.shard@1:enospc,ckpt.shard@2:enospc" "$TERN" train config.yaml --run-dir last "${every[@]}" \
    --set train.steps=100000 >last.log 2>&1 &
pid=$!
for _ in $(seq 400); do
    grep -q '"step":3,' last/log.jsonl 2>/dev/null && break
    sleep 0.05
done
touch last/stop
code=0
wait "$pid" || code=$?
[ "$code" = 1 ] && [ "$(state last)" = failed ] || fail "reclaimed without a checkpoint: $code, $(state last)"
echo "ok: reclaimed without a checkpoint"

# A log that cannot be written does not end the run, and its other lines stay whole.
rm -rf log
"$TERN" train config.yaml --run-dir log "${every[@]}" --set train.steps=5 >last.log 2>&1 || fail "a run to go on with"
TERN_FAULT="file.write@9:short,file.write@10:enospc,file.open@16:enospc" "$TERN" train config.yaml --run-dir log "${every[@]}" \
    >last.log 2>&1 || fail "a log that cannot be written ended the run"
[ "$(grep -c "records are lost until" last.log)" = 2 ] || fail "lost records are not said"
[ "$(grep -c "can be written again; records missing: 1" last.log)" = 2 ] || fail "the end of it is not said"
[ "$(grep -vc '^{.*}$' log/log.jsonl)" = 1 ] || fail "not one torn line"
grep -q '"kind":"end"' log/log.jsonl || fail "the log does not go on"

# A run that is done says so, at once, leaves its files alone, and the record says finished.
before=$(digest run)
cp run/config.yaml config.before
for n in 0 3; do
    ranks $n config.yaml --run-dir run --set data.train='[missing.txt]' || fail "a finished run, started again"
    grep -q "nothing to do: the checkpoint is at step 20 of 20" last.log || fail "nothing to do is not said"
    [ "$(state run)" = finished ] || fail "nothing to do: the record says $(state run)"
done
"$TERN" train config.yaml --run-dir run --set train.steps=5 >last.log 2>&1 || fail "fewer steps than done"
grep -q "at step 20 of 5" last.log || fail "fewer steps than done is not said"
[ "$(digest run)" = "$before" ] && cmp -s run/config.yaml config.before || fail "a finished run was changed"
echo "ok: nothing to do"

# A launch that cannot go on with the run leaves it as it was.
cp run/tokenizer.json tokenizer.before
"$TERN" tokenizer train --vocab-size 300 --out small.json train.txt 2>/dev/null
expect 2 "tensor transformer.wte.weight: the checkpoint has shape (320, 32), the configured model (300, 32)" -- \
    "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir run --set train.steps=30 --set data.tokenizer=small.json
cmp -s run/tokenizer.json tokenizer.before && cmp -s run/config.yaml config.before || fail "the run's files were replaced"
[ "$(state run)" = failed ] || fail "a launch that cannot go on says $(state run)"

# Other data, another batch: said at resume.
make_text 50000 9 >train2.txt
ranks 2 config.yaml --run-dir run --set train.steps=21 --set data.train='[train2.txt]' --set train.global_batch=32 ||
    fail "resume with other data"
[ "$(grep -c "data.train is not what the checkpoint was trained on" last.log)" = 1 ] || fail "other data is not said once"
grep -q "the checkpoint's 20 steps took 320 sequences" last.log || fail "another batch is not said"
ranks 2 config.yaml --run-dir run --set train.steps=22 --set data.train='[train2.txt]' --set train.global_batch=32 ||
    fail "resume with the same data"
grep -q "is not what the checkpoint" last.log && fail "the same data is called other data"
echo "ok: other data"

# A rank that cannot read its part of the checkpoint: nobody waits for it.
expect 1 "rank 1: .*cannot read the checkpoint" -- env TERN_FAULT=ckpt.restore#1:eio \
    "${run[@]}" -np 3 "$TERN" train config.yaml --run-dir run --set train.steps=30
[ "$(grep -c "cannot read the checkpoint" last.log)" = 1 ] || fail "said more than once"
[ "$(state run)" = failed ] || fail "a checkpoint that cannot be read: $(state run)"

# Where the run directory goes.
expect 2 "found 0 bytes" -- "$TERN" train config.yaml --run-dir ""
echo x >file
expect 1 "--run-dir 'file' cannot be used: .*not a folder" -- "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir file
expect 1 "--run-dir 'file/below' cannot be used" -- "$TERN" train config.yaml --run-dir file/below
expect 1 "--run-dir '/sys/tern-run' cannot be used" -- "$TERN" train config.yaml --run-dir /sys/tern-run
mkdir -p elsewhere
(cd elsewhere && "$TERN" train ../config.yaml --run-dir ../deep/er/run --set train.steps=4 --set train.eval_every=0 \
    --set 'data.train=[../train.txt, "../train2.txt"]' --set data.val='[]' --set data.tokenizer=../tokenizer.json >../last.log 2>&1) ||
    fail "relative paths and a nested run directory"
[ "$(state deep/er/run)" = finished ] || fail "relative paths: $(state deep/er/run)"

# What is said before anything starts.
expect 2 "unexpected\|at most" -- "$TERN" train config.yaml config.yaml
expect 2 "train.stepz" -- "$TERN" train config.yaml --set train.stepz=3
expect 2 "data.train: no file matches" -- "$TERN" train config.yaml --dry-run --set data.train='[missing-*.txt]'
expect 0 "total" -- "${run[@]}" -np 3 "$TERN" train config.yaml --dry-run --run-dir never
[ "$(grep -c "^  total" last.log)" = 1 ] || fail "a dry run prints more than one bill"
[ ! -e never ] || fail "a dry run makes a run directory"
expect 2 "train.lanes" -- "${run[@]}" -np 9 "$TERN" train config.yaml --dry-run

# Length in tokens: 512 a step, so 1100 are three steps.
"$TERN" train config.yaml --run-dir tokens --set train.steps=0 --set train.tokens=1100 --set optimizer.warmup_steps=1 \
    >last.log 2>&1 || fail "train.tokens"
[ "$(cat tokens/ckpt/LATEST)" = step-00000003 ] || fail "train.tokens 1100: $(cat tokens/ckpt/LATEST)"
echo "failures: done"
