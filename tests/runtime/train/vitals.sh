#!/bin/bash
# vitals.sh - what a run says of its health: ranks that stop or do not come to an end of their step are named by the
# heartbeat, slow ones in the log; /metrics answers; the ledger's time is the clock's, through kills and resumes.
. "$(dirname "$0")/lib.sh"
export TERN_THREADS=1
make_data
config llama fp32 >config.yaml
short=(--set reclaim.hang_seconds=3 --set train.steps=100000 --set train.eval_every=0 --set checkpoint.every_steps=0
    --set checkpoint.snapshot_every_steps=0)

# ledger RUN EXPRESSION: a Python expression over the object of tern ledger --json
ledger() {
    "$TERN" ledger "$1" --json >ledger.json || fail "tern ledger $1"
    python3 -c "import json, sys; s = json.load(open('ledger.json')); print($2)"
}
# holds RUN CONDITION: the same, and it is true
holds() {
    [ "$(ledger "$1" "$2")" = True ] || fail "$1: not so: $2; $(cat ledger.json)"
}
wait_for() { # PATTERN FILE
    for _ in $(seq 1200); do
        grep -q -- "$1" "$2" 2>/dev/null && return
        sleep 0.05
    done
    fail "'$1' never came"
}

# named N FAULT SENTENCE [keep]: a run of N ranks (keep: that goes on with what is there) with that fault ends by the heartbeat, long before TERN_COMM_TIMEOUT
named() {
    local n=$1 fault=$2 sentence=$3 code=0
    [ "${4:-}" = keep ] || rm -rf hang
    TERN_FAULT=$fault TERN_COMM_TIMEOUT=600 timeout 60 "${run[@]}" -np "$n" "$TERN" train config.yaml \
        --run-dir hang "${short[@]}" >last.log 2>&1 || code=$?
    [ "$code" != 124 ] || fail "$fault on $n ranks: hung"
    [ "$code" != 0 ] || fail "$fault on $n ranks: went unnoticed"
    grep -q -- "$sentence" last.log || fail "$fault on $n ranks: no '$sentence'"
    [ "$(grep -c "reclaim.hang_seconds" last.log)" = 1 ] || fail "$fault on $n ranks: said more than once"
    [ "$(state hang)" = peer_lost ] || fail "$fault on $n ranks: the record says $(state hang)"
    grep -q -- "$sentence" hang/launches/*.json || fail "$fault on $n ranks: the record does not say who"
    kill_left_behind
    holds hang "s['launches'][-1]['state'] == 'peer_lost'"
    [ "${4:-}" = keep ] || holds hang "s['seconds']['hang_detection'] > 1.5"
    echo "ok: $fault on $n ranks, ended $code"
}

for n in 2 4; do
    named $n "step.backward@2000#1:stop" "rank 1 (host .*) is stopped or cut off: nothing was heard for .*in step [1-9].*exchange [1-9]"
    named $n "step.update@9#$((n - 1)):stop" "rank $((n - 1)) (host .*) is stopped or cut off"
    named $n "step.begin@12#0:stop" "rank 0 (host .*) is stopped or cut off"
done
# before the first step, too
rm -rf hang
ranks 2 config.yaml --run-dir hang "${short[@]}" --set train.steps=5 || fail "a run to resume"
named 2 "ckpt.restore#1:stop" "rank 1 (host .*) is stopped or cut off: .*starting" keep
named 3 "step.backward@200#2:delay=50" "takes .* s, usually .* s: rank 2 (host .*) is late; in step .*, forward and backward"
grep -q '"state":"peer_lost"' hang/launches/*.json || fail "no peer_lost record"

# Started again, it goes on: the digests are those of a run that nothing happened to.
end=(--set train.steps=60 --set train.eval_every=0 --set checkpoint.every_steps=5)
ranks 0 config.yaml --run-dir reference "${end[@]}" || fail "the reference run"
rm -rf hang
TERN_FAULT=step.backward@300#1:stop timeout 60 "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir hang "${end[@]}" \
    --set reclaim.hang_seconds=2 >last.log 2>&1 && fail "a stopped rank went unnoticed"
kill_left_behind
ranks 3 config.yaml --run-dir hang "${end[@]}" || fail "the resume after a hang"
[ "$(digest hang)" = "$(digest reference)" ] || fail "digests differ after a hang"
holds hang "s['last_step'] == 60 and s['tokens'] == 60 * 16 * 32 and s['launches'][-1]['state'] == 'finished'"

# hang_seconds 0: nobody watches, and TERN_COMM_TIMEOUT has the word.
rm -rf hang
TERN_FAULT=step.backward@40#1:stop TERN_COMM_TIMEOUT=4 timeout 60 "${run[@]}" -np 2 "$TERN" train config.yaml \
    --run-dir hang "${short[@]}" --set reclaim.hang_seconds=0 >last.log 2>&1 && fail "a stopped rank went unnoticed"
grep -q "reclaim.hang_seconds" last.log && fail "switched off, and yet"
kill_left_behind

# A whole job that is suspended for longer than the limit goes on as if nothing had been.
rm -rf pause
"${run[@]}" -np 2 "$TERN" train config.yaml --run-dir pause "${short[@]}" >last.log 2>&1 &
launcher=$!
wait_for '"step":30,' pause/log.jsonl
pids=$(pgrep -P $launcher)
kill -STOP $pids
sleep 5
kill -CONT $pids
steps=$(grep -c '"kind":"step"' pause/log.jsonl)
wait_for "\"step\":$((steps + 200))," pause/log.jsonl
kill -USR2 $launcher
wait $launcher || true
[ "$(state pause)" = reclaimed ] || fail "a job that was suspended: $(state pause)"
echo "ok: suspended"

# A rank that gets a third of the processor is named, with a factor; so it is when it is itself again.
rm -rf slow
"${run[@]}" -np 2 "$TERN" train config.yaml --run-dir slow "${short[@]}" --set reclaim.hang_seconds=30 >last.log 2>&1 &
launcher=$!
wait_for '"step":60,' slow/log.jsonl
slow=$(pgrep -P $launcher | tail -n 1)
rank=$(tr '\0' '\n' <"/proc/$slow/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
(while kill -STOP "$slow" 2>/dev/null; do
    sleep 0.06
    kill -CONT "$slow" 2>/dev/null
    sleep 0.02
done) &
brake=$!
wait_for "\"straggler\":$rank,\"factor\":[0-9.]*,\"slow\":true" slow/log.jsonl
kill $brake
wait $brake 2>/dev/null || true
kill -CONT "$slow"
grep -q "rank $rank (host .*) is slow: its part of a step takes" last.log || fail "the slow rank is not named"
wait_for "\"straggler\":$rank,.*\"slow\":false" slow/log.jsonl
kill -USR2 $launcher
wait $launcher || true
[ "$(state slow)" = reclaimed ] || fail "a run with a slow rank: $(state slow)"
echo "ok: a slow rank"

# /metrics: what a scraper finds while training runs; a port that is taken ends the run before its first step.
rm -rf metrics
"$TERN" train config.yaml --run-dir metrics --metrics-port 0 "${short[@]}" --set ledger.price_per_hour=36 \
    --set checkpoint.every_steps=10 >last.log 2>&1 &
pid=$!
wait_for '"kind":"checkpoint"' metrics/log.jsonl
url=$(sed -n 's/.*metrics on \(http[^ ]*\)$/\1/p' last.log)
python3 - "$url" <<'PYTHON' || fail "/metrics"
import re, sys, urllib.error, urllib.request
answer = urllib.request.urlopen(sys.argv[1], timeout=10)
assert answer.headers["content-type"].startswith("text/plain; version=0.0.4"), answer.headers
values = {}
for line in answer.read().decode().splitlines():
    if line.startswith("#"):
        assert re.fullmatch(r"# (HELP \w+ .+|TYPE \w+ (gauge|counter|histogram))", line), line
    else:
        name, value = re.fullmatch(r"(\w+(?:\{\w+=\"[^\"]*\"\})?) (\S+)", line).groups()
        values[name] = float(value)
assert 0 < values["tern_train_loss"] < 20, values
assert values["tern_train_step"] >= 10 and values["tern_train_steps_done_total"] == values["tern_train_step"]
assert values["tern_train_tokens_total"] == 512 * values["tern_train_steps_done_total"]
assert values["tern_train_checkpoints_total"] >= 1 and values["tern_train_machines"] == 1
assert values['tern_train_step_seconds_bucket{le="+Inf"}'] == values["tern_train_step_seconds_count"]
kinds = {k: v for k, v in values.items() if k.startswith("tern_ledger_machine_seconds_total")}
assert len(kinds) == 11 and kinds['tern_ledger_machine_seconds_total{kind="productive"}'] > 0, kinds
assert abs(sum(kinds.values()) / 3600 * 36 - values['tern_ledger_cost_total{currency="USD"}']) < 1e-4
assert urllib.request.urlopen(sys.argv[1].replace("/metrics", "/health"), timeout=10).status == 200
try:
    urllib.request.urlopen(sys.argv[1] + "x", timeout=10)
    raise SystemExit("a path that is none is answered")
except urllib.error.HTTPError as error:
    assert error.code == 404, error
PYTHON
port=${url##*:}
port=${port%/metrics}
code=0
timeout 60 "${run[@]}" -np 2 "$TERN" train config.yaml --run-dir taken --metrics-port "$port" "${short[@]}" >taken.log 2>&1 || code=$?
[ "$code" != 0 ] && [ "$code" != 124 ] && [ "$(grep -c "$port" taken.log)" -ge 1 ] || fail "a port that is taken: $code, $(cat taken.log)"
[ "$(state taken)" = failed ] || fail "a port that is taken: $(state taken)"
kill -INT $pid
wait $pid || true
echo "ok: metrics"

# A person stopped it: until it is started again, nobody wanted the machine. Killed: somebody did.
sleep 1
"$TERN" train config.yaml --run-dir metrics "${short[@]}" >last.log 2>&1 &
pid=$!
wait_for '"kind":"resume"' metrics/log.jsonl
holds metrics "s['seconds']['restart'] == 0"
from=$(ledger metrics "s['last_step']")
wait_for "\"step\":$((from + 20))," metrics/log.jsonl
sleep 1.2
kill -KILL $pid
wait $pid 2>/dev/null || true
sleep 1
"$TERN" train config.yaml --run-dir metrics "${short[@]}" --set train.steps=$((from + 10)) --set ledger.price_per_hour=36 >last.log 2>&1 ||
    fail "the resume after a kill"
holds metrics "s['seconds']['restart'] > 0.9 and s['seconds']['lost_steps'] > 0.5 and s['launches'][-1]['state'] == 'finished'"
holds metrics "s['last_step'] == $from + 10 and s['tokens'] == 512 * ($from + 10)"
grep -q "ledger: .* in 3 launches, effective training time .* %" last.log || fail "no summary at the end"
"$TERN" checkpoint list metrics >list.log 2>list.err || fail "checkpoint list"
grep -q "ledger: .* in 3 launches" list.err || fail "no summary by checkpoint list"
# Plain sums of the columns say the same.
awk -F, 'NR > 1 && NF == 23 { for (i = 12; i <= 22; i++) sum[i] += $i * $5 } END { for (i = 12; i <= 22; i++) printf "%.3f ", sum[i] }' \
    metrics/ledger.csv >columns
[ "$(cat columns)" = "$(ledger metrics "''.join('%.3f ' % v for v in s['seconds'].values())")" ] ||
    echo "columns: $(cat columns)" # lost steps are found by steps, columns by rows: they may differ in the last digits
"$TERN" ledger metrics --focus >focus.csv || fail "tern ledger --focus"
python3 - <<'PYTHON' || fail "FOCUS"
import csv, json
rows = list(csv.DictReader(open("focus.csv")))
total = json.load(open("ledger.json"))
assert rows and all(None not in r and None not in r.values() for r in rows)
assert abs(sum(float(r["ConsumedQuantity"]) for r in rows) * 3600 - total["machine_seconds"]) < 0.01
assert {json.loads(r["Tags"])["kind"] for r in rows} <= set(total["seconds"])
PYTHON

# The ledger against a clock: three launches, two of them killed, from the first one's start to the last one's end.
rm -rf clock
began=$(date +%s.%N)
for at in 40 80; do
    "$TERN" train config.yaml --run-dir clock "${short[@]}" --set checkpoint.every_steps=25 >last.log 2>&1 &
    pid=$!
    wait_for "\"step\":$at," clock/log.jsonl
    sleep 1.5
    kill -KILL $pid
    wait $pid 2>/dev/null || true
done
last=$(sed -n 's/.*"step":\([0-9]*\),"loss".*/\1/p' clock/log.jsonl | sort -n | tail -n 1)
"$TERN" train config.yaml --run-dir clock "${short[@]}" --set train.steps=$((last + 400)) >last.log 2>&1 || fail "the last launch"
ended=$(date +%s.%N)
holds clock "abs(s['machine_seconds'] - ($ended - $began)) < 0.5 + 0.01 * ($ended - $began)"
holds clock "s['tokens'] == 512 * s['last_step'] and s['seconds']['productive'] > 0"
echo "ok: $(ledger clock "'%.3f s in the ledger' % s['machine_seconds']"), $(echo "$ended $began" | awk '{ print $1 - $2 }') s by the clock"

# A ledger that is none, or full of rubbish: training goes on.
printf 'rubbish,%.0s' $(seq 100) >clock/ledger.csv
echo >>clock/ledger.csv
"$TERN" train config.yaml --run-dir clock "${short[@]}" --set train.steps=$((last + 405)) >last.log 2>&1 || fail "a broken ledger ended the run"
grep -q "this launch keeps no ledger" last.log || fail "a broken ledger is not said"
code=0
"$TERN" ledger clock >last.log 2>&1 || code=$?
[ "$code" = 2 ] && grep -q "first line" last.log || fail "tern ledger of rubbish: $code"
code=0
"$TERN" ledger nowhere >last.log 2>&1 || code=$?
[ "$code" != 0 ] && grep -q nowhere last.log || fail "tern ledger of nothing: $code"
echo "vitals: done"
