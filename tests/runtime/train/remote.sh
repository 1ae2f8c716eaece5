#!/bin/bash
# remote.sh - checkpoints in a bucket: uploaded behind the steps by every rank, resumed from on an empty machine by another
# number of ranks, through faults of every kind; the digests are those of the run that had no bucket.
#   remote.sh TERN STORE_SERVER.py STORE_TOOL
server_script=$(realpath "$2") tool=$(realpath "$3")
store=$(realpath "${BASH_SOURCE[0]%/*}")/store.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
export TERN_THREADS=1
. "$store"
start_store

make_data
config llama bf16 >config.yaml
steps=300
ranks 0 config.yaml --run-dir reference --set train.steps=$steps || fail "the reference run"
expected=$(digest reference)
remote=(--set train.steps=$steps --set checkpoint.remote=s3://bucket/runs/a --set checkpoint.remote_keep=2)

# stopped N: N ranks, asked to stop by the stop file after some steps
stopped() {
    "${run[@]}" -np "$1" "$TERN" train config.yaml --run-dir run "${remote[@]}" >last.log 2>&1 &
    local launcher=$!
    for _ in $(seq 600); do
        [ "$(grep -c '"kind":"checkpoint"' run/log.jsonl 2>/dev/null)" -ge 2 ] 2>/dev/null && break
        sleep 0.05
    done
    touch run/stop
    wait "$launcher" || true
    [ "$(state run)" = reclaimed ] || fail "the launch record says $(state run)"
}

# Stopped: the bucket has the step that the run stopped at, and an empty machine goes on from there.
stopped 2
at=$(cat run/ckpt/LATEST)
[ ! -e run/upload ] || [ -z "$(ls run/upload)" ] || fail "links of uploads are left"
tidy "after a run"
"$TERN" checkpoint list s3://bucket/runs/a >list.txt || fail "list"
grep -q "^$at  ranks 2" list.txt || fail "the bucket lacks $at: $(cat list.txt)"
[ "$(wc -l <list.txt)" -le 2 ] || fail "kept: $(cat list.txt)"
"$TERN" checkpoint verify s3://bucket/runs/a >verify.txt || fail "verify: $(cat verify.txt)"
rm -rf run
ranks 4 config.yaml --run-dir run "${remote[@]}" || fail "resume from the bucket on 4 ranks"
grep -q "checkpoint step $((10#${at#step-})) fetched from s3://bucket/runs/a" last.log || fail "not from the bucket"
[ "$(digest run)" = "$expected" ] || fail "resumed from the bucket: digests differ"
tidy "after the resumed run"
"$TERN" checkpoint pull s3://bucket/runs/a pulled >/dev/null || fail "pull"
[ "$(digest pulled)" = "$expected" ] || fail "pulled: digests differ"
cmp -s run/id pulled/id || fail "the id of the run did not go with it"
echo "ok: 2 ranks, an empty machine, 4 ranks"

# Another run's bucket is not touched, whatever it is asked; without the mark of older ones it is.
before=$(keys | sort)
rm -rf other
ranks 1 config.yaml --run-dir other --set train.steps=20 || fail "another run"
for how in auto required never; do
    code=0
    ranks 2 config.yaml --run-dir other "${remote[@]}" --resume $how || code=$?
    [ "$code" = 2 ] || fail "another run's bucket, --resume $how: ended with $code: $(cat last.log)"
done
ranks 2 config.yaml --run-dir other "${remote[@]}" && fail "another run's bucket"
grep -q "s3://bucket/runs/a is of another run (s3://bucket/runs/a/id is $(cat run/id), other/id is $(cat other/id)); give each" last.log ||
    fail "another run's bucket: not said: $(cat last.log)"
[ "$(keys | sort)" = "$before" ] || fail "another run's bucket was changed"
rm -rf run
mv pulled run
"$tool" remove s3://bucket/runs/a id || fail "remove the id"
ranks 2 config.yaml --run-dir run "${remote[@]}" --set train.steps=$((steps + 20)) || fail "a bucket without an id"
[ "$(keys | sort | grep "runs/a/id")" = bucket/runs/a/id ] || fail "a bucket without an id got none"
control '{"reset": true}'
echo "ok: another run's bucket"

# Data and a model that lie in a store: through the cache, with the same bits.
n=0
export TERN_CACHE_DIR=$WORK/cache
"$tool" put s3://bucket/data train.txt train.txt || fail "the data's way up"
rm -rf run
ranks 2 config.yaml --run-dir run --set train.steps=$steps --set 'data.train=[s3://bucket/data/train.txt]' || fail "data in a store"
[ "$(grep -c 'fetched s3://bucket/data/train.txt' last.log)" = 1 ] || fail "not fetched once for two ranks"
[ "$(digest run)" = "$expected" ] || fail "data in a store: digests differ"
"$TERN" export run m.gguf --format gguf >last.log 2>&1 || fail "export"
"$tool" put s3://bucket/models m.gguf m.gguf || fail "the model's way up"
for model in m.gguf s3://bucket/models/m.gguf; do
    n=$((n + 1))
    "$TERN" generate "$model" --prompt "the earth" --max-tokens 12 --temperature 0 >said.$n 2>last.log || fail "generate $model"
done
cmp said.1 said.2 || fail "a model in a store says something else"
grep -q "fetched s3://bucket/models/m.gguf" last.log || fail "the model was not fetched"
expect 2 "s3://bucket/models/none" -- "$TERN" generate s3://bucket/models/none --prompt x
echo "ok: data and a model in a store"

# Faults on the way up: each point kills some rank in the middle; the next launch, on what disk has, ends the run, and the
# bucket holds whole checkpoints only.
for round in "store.put@2#0 2" "store.part#1 3" "store.complete#1 2" "store.manifest 4"; do
    set -- $round
    control '{"reset": true}'
    rm -rf run
    code=0
    TERN_FAULT="$1:kill" ranks "$2" config.yaml --run-dir run "${remote[@]}" || code=$?
    [ "$code" != 0 ] || fail "$1 on $2 ranks: nobody was killed"
    ranks "$2" config.yaml --run-dir run "${remote[@]}" || fail "$1 on $2 ranks: not gone on with"
    [ "$(digest run)" = "$expected" ] || fail "$1 on $2 ranks: digests differ"
    tidy "$1 on $2 ranks"
    "$TERN" checkpoint verify s3://bucket/runs/a >verify.txt || fail "$1: $(cat verify.txt)"
    rm -rf run
    ranks 1 config.yaml --run-dir run "${remote[@]}" || fail "$1: the finished run is not found in the bucket"
    [ "$(digest run)" = "$expected" ] || fail "$1: the bucket's digests differ"
    echo "ok: killed at $1, $2 ranks"
done

# A store that answers badly for a while, or is cut off, does not disturb the run.
for action in 500 503 cut lost half error200 stall; do
    control "{\"reset\": true, \"seed\": 3, \"rate\": 0.15, \"actions\": [\"$action\"]}"
    rm -rf run
    ranks 2 config.yaml --run-dir run "${remote[@]}" || fail "a store with $action"
    control '{}'
    [ "$(digest run)" = "$expected" ] || fail "a store with $action: digests differ"
    "$TERN" checkpoint verify s3://bucket/runs/a >verify.txt || fail "$action: $(cat verify.txt)"
    grep -q "step-$(printf %08d $steps)" verify.txt || fail "$action: the bucket lacks the end of the run"
    echo "ok: a store with $action"
done

# A store that refuses for good: the run ends well, and says what the bucket lacks.
control '{"reset": true, "rules": [{"match": "PUT", "action": "gone", "times": 100000}]}'
rm -rf run
ranks 2 config.yaml --run-dir run "${remote[@]}" || fail "a store that refuses"
grep -q "the bucket lacks the checkpoint of step $steps: s3://bucket/.*403 AccessDenied" last.log || fail "not said"
[ "$(digest run)" = "$expected" ] || fail "a store that refuses: digests differ"
echo "ok: a store that refuses"
control '{}'
ranks 2 config.yaml --run-dir run "${remote[@]}" || fail "the same command after a store that refused"
"$TERN" checkpoint list s3://bucket/runs/a | grep -q "^step-$(printf %08d $steps)" || fail "the rest was not sent"
echo "ok: what the bucket lacked is sent by the same command"

# A notice with less time than the bucket needs: disk has it, the bucket is said to lack it, and the next launch sends it.
control '{"reset": true}'
rm -rf run
slow=(--set checkpoint.remote_rate=100e3 --set reclaim.deadline_seconds=1)
"${run[@]}" -np 2 "$TERN" train config.yaml --run-dir run "${remote[@]}" "${slow[@]}" >last.log 2>&1 &
launcher=$!
for _ in $(seq 600); do
    grep -q '"kind":"checkpoint"' run/log.jsonl 2>/dev/null && break
    sleep 0.05
done
touch run/stop
wait "$launcher" || true
[ "$(state run)" = reclaimed ] || fail "too slow a bucket: the launch record says $(state run)"
at=$(cat run/ckpt/LATEST)
grep -q "the bucket lacks the checkpoint of step $((10#${at#step-}))" last.log || fail "too slow a bucket: not said"
ranks 3 config.yaml --run-dir run "${remote[@]}" || fail "going on after too slow a bucket"
[ "$(digest run)" = "$expected" ] || fail "too slow a bucket: digests differ"
tidy "after too slow a bucket"
echo "ok: a notice that is too short for the bucket"
