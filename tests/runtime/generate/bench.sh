#!/bin/bash
# bench.sh - tern bench's object, and --weights: exact is what is stored, the others are near it or refused by name.
tern=$1
golden=$(cd "$(dirname "$0")/../../golden/families" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export TERN_BACKEND=cpu TERN_THREADS=2
fail() { echo "FAILED: $*" >&2; exit 1; }

"$tern" bench "$golden/mistral" --pp 20 --tg 4 --batch 3 --rounds 1 --json >out 2>err || fail "bench: $(cat err)"
python3 - out <<'PY' || fail "bench's object: $(cat out)"
import json, sys
r = json.load(open(sys.argv[1]))
assert r["prefill_tokens_per_second"] > 0 and r["decode_tokens_per_second"] > 0, r
assert abs(r["prefill_tokens_per_second"] * r["prefill_seconds"] - 20) < 0.1, r
assert abs(r["decode_tokens_per_second"] * r["decode_seconds"] - 12) < 0.1, r
assert r["read_bytes_per_second"] > 1e8 and 0 < r["decode_share_of_bandwidth"] < 2, r
assert (r["pp"], r["tg"], r["batch"], r["threads"], r["backend"]) == (20, 4, 3, 2, "cpu"), r
assert r["resident_bytes"] > 0 and r["weights"] == "auto" and r["parameters"] > 0, r
PY
"$tern" bench "$golden/mistral" --pp 0 --tg 2 --rounds 1 --profile >out 2>err || fail "bench --profile: $(cat err)"
grep -q "tokens/s" out || fail "bench prints: $(cat out)"
grep -q "^.*gemm .*%" err || fail "bench --profile prints: $(cat err)"
refused() { # what the sentence has, then the command
    local want=$1
    shift
    "$tern" "$@" >out 2>err
    local code=$?
    [ $code -eq 2 ] || fail "$*: ended with $code, expected 2"
    grep -q -- "$want" err || fail "$*: $(cat err)"
}
refused "the model's context is" bench "$golden/mistral" --pp 100000
refused "both 0" bench "$golden/mistral" --pp 0 --tg 0
refused "stored, exact, auto" score "$golden/mistral" --ids "1 2" --weights q3

ids="5 9 60 30 42 17 3 50 22 8 9 10"
score() { "$tern" score "$golden/$1" --ids "$ids" --top 1 --weights "$2" 2>err || fail "$1, $2: $(cat err)"; }
logprobs() { sed -n 's/.*"logprob":\(-[-0-9.e]*\).*/\1/p'; }
# Largest difference of two lists of numbers.
furthest() { paste "$1" "$2" | awk '{ d = $1 - $2; d = d < 0 ? -d : d; if (d > worst) worst = d } END { print NR, worst + 0 }'; }
for model in mistral gemma2 mixtral; do
    score $model stored | logprobs >stored
    for mode in "exact 1e-4" "auto 1e-4" "bf16 0.3" "q8 0.3" "q4 6"; do
        score $model "${mode% *}" | logprobs >other
        read -r count worst < <(furthest stored other)
        [ "$count" -eq 11 ] || fail "$model, $mode: $count numbers"
        awk -v a="$worst" -v b="${mode#* }" 'BEGIN { exit !(a <= b) }' || fail "$model: $mode is $worst off"
        echo "$model, ${mode% *}: at most $worst off"
    done
done
