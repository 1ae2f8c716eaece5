#!/bin/bash
# generate.sh - a model trained for a second: what generate, score and eval say of it, and what they refuse.
. "$(dirname "$0")/../train/lib.sh"
export TERN_THREADS=1
make_data
config llama fp32 >config.yaml
ranks 0 config.yaml --run-dir run --set train.steps=150 --set checkpoint.every_steps=60 --set checkpoint.keep=3 ||
    fail "training"

say() { "$TERN" generate run "$@" 2>stderr.log; }
greedy() { say --temperature 0 "$@"; }
is_utf8() { iconv -f UTF-8 -t UTF-8 "$1" >/dev/null 2>&1; }

# The same settings give the same text, on any number of threads; another seed another one.
one=$(say --prompt "the of" --seed 7 --max-tokens 24)
[ "$(say --prompt "the of" --seed 7 --max-tokens 24)" = "$one" ] || fail "the same seed gives another text"
[ "$(TERN_THREADS=2 say --prompt "the of" --seed 7 --max-tokens 24)" = "$one" ] || fail "two threads give another text"
printf 'the of' >prompt.txt
[ "$(say --prompt-file prompt.txt --seed 7 --max-tokens 24)" = "$one" ] || fail "--prompt-file gives another text"
case "$one" in "$(say --prompt "the of" --seed 7 --max-tokens 12)"*) ;; *) fail "fewer tokens are not the beginning" ;; esac
[ "$(say --prompt "the of" --seed 7 --max-tokens 24 --echo)" = "the of$one" ] || fail "--echo"
different=0
for seed in 1 2 3 4 5; do
    [ "$(say --prompt "the of" --seed $seed --max-tokens 24)" = "$one" ] || different=$((different + 1))
done
[ "$different" -ge 4 ] || fail "the seed changes nothing"
echo "ok: seeds"

# Greedy is the best of score; top-k 1 and top-p 0 are greedy.
compared=0
for prompt in "the of" land "king house" "night said unto" "people word the of and light" "earth man day " "went, "; do
    best=$("$TERN" score run --prompt "$prompt" --top 1 | tail -n 1 | sed 's/.*"top":\[\[[0-9]*,"\(.*\)",[-0-9.e]*\]\]}$/\1/')
    case "$best" in *\\*) continue ;; esac
    first=$(greedy --prompt "$prompt" --max-tokens 1)
    [ "$first" = "$best" ] || fail "after '$prompt': greedy '$first', score '$best'"
    [ "$(say --prompt "$prompt" --max-tokens 9 --top-k 1)" = "$(greedy --prompt "$prompt" --max-tokens 9)" ] || fail "top-k 1"
    [ "$(say --prompt "$prompt" --max-tokens 9 --top-p 0)" = "$(greedy --prompt "$prompt" --max-tokens 9)" ] || fail "top-p 0"
    compared=$((compared + 1))
done
[ "$compared" -ge 5 ] || fail "only $compared prompts could be compared"
echo "ok: greedy is the best of score ($compared prompts)"

# eval and score look at the same text in other pieces: they must agree.
head -c 90 val.txt >short.txt
nll=$("$TERN" eval run --text short.txt 2>/dev/null | sed 's/.*"nll":\([0-9.e+-]*\),.*/\1/')
"$TERN" score run --prompt "$(cat short.txt)" --top 0 2>/dev/null | sed 's/.*"logprob":\([^,]*\),.*/\1/' | grep -v null |
    awk -v nll="$nll" '{ sum -= $1; n++ } END { d = sum / n - nll; if (n < 10 || d > 1e-4 || d < -1e-4) {
        print "score " sum / n ", eval " nll ", " n " tokens"; exit 1 } }' || fail "eval and score differ"
echo "ok: eval agrees with score"

# A stop string ends the text before it, wherever tokens are cut; a text that only begins like one stays whole.
whole=$(greedy --prompt "the of" --max-tokens 14)
for ((from = 0; from < 24; from += 3)); do
    for length in 1 2 5 9; do
        stop=${whole:from:length}
        [ "${#stop}" = "$length" ] || continue
        found=$(greedy --prompt "the of" --max-tokens 14 --stop "$stop"; echo .)
        expected=${whole%%"$stop"*}
        [ "$found" = "$expected"$'\n.' ] || fail "--stop '$stop': found '$found', expected '$expected'"
        grep -q "ended by stop" stderr.log || fail "--stop '$stop': not ended by it"
    done
done
[ "$(greedy --prompt "the of" --max-tokens 14 --stop "${whole: -3}~" --stop zzz)" = "$whole" ] || fail "half a stop string is lost"
echo "ok: stop strings"

# Bytes by lot are no characters: what comes out is UTF-8 all the same, and so are the JSON lines.
for seed in $(seq 12); do
    say --prompt "é😀" --seed "$seed" --temperature 50 --top-p 1 --max-tokens 24 >out.txt || fail "temperature 50"
    is_utf8 out.txt || fail "seed $seed: the text is no UTF-8"
done
grep -q $'\xEF\xBF\xBD' out.txt || fail "no seed made half a character: nothing was tested"
printf 'a\xFF\xC3 \xE2\x82' >bytes.txt
say --prompt-file bytes.txt --max-tokens 3 >out.txt || fail "a prompt that is no UTF-8"
"$TERN" score run --prompt "é😀 the" --top 3 >score.txt 2>/dev/null || fail "score of other characters"
is_utf8 score.txt || fail "score writes no UTF-8"
[ "$(grep -c '^{"position":[0-9]*,"id":[0-9]*,"token":".*","logprob":.*,"top":\[.*\]}$' score.txt)" = "$(wc -l <score.txt)" ] ||
    fail "a line of score is no object"
echo "ok: characters"

# One checkpoint by its folder, from wherever.
newest=$(cat run/ckpt/LATEST)
older=$(ls run/ckpt | grep step- | head -n 1)
[ "$older" != "$newest" ] || fail "only one checkpoint: nothing to choose from"
text=$(greedy --prompt "the of" --max-tokens 14)
for model in "run/ckpt/$newest" "run/ckpt/$newest/" "$PWD/run" run/; do
    [ "$("$TERN" generate "$model" --prompt "the of" --max-tokens 14 --temperature 0 2>/dev/null)" = "$text" ] || fail "$model"
done
(cd "run/ckpt/$newest" && [ "$("$TERN" generate . --prompt "the of" --max-tokens 14 --temperature 0 2>/dev/null)" = "$text" ]) ||
    fail "from inside the checkpoint"
"$TERN" eval "run/ckpt/$older" --text val.txt 2>/dev/null | grep -q "\"step\":$((10#${older#step-}))," || fail "$older is not its own step"

# What is refused, and how.
expect 2 "the prompt is empty" -- "$TERN" generate run --prompt ""
expect 2 "exactly one of --prompt" -- "$TERN" generate run
expect 2 "exactly one of --prompt" -- "$TERN" generate run --prompt a --prompt-file prompt.txt
expect 2 "No such file" -- "$TERN" generate run --prompt-file missing.txt
expect 2 "folder" -- "$TERN" generate run --prompt-file run
expect 2 "expected at most 31: the model's context is 32" -- "$TERN" generate run --prompt "$(head -c 3000 val.txt)"
expect 2 "expected 1 to 32" -- "$TERN" score run --prompt "$(head -c 3000 val.txt)"
expect 2 "expected 1 to 32" -- "$TERN" score run --prompt ""
: >nothing.txt
expect 2 "at least 2" -- "$TERN" eval run --text nothing.txt
expect 2 "empty text" -- "$TERN" generate run --prompt a --stop ""
expect 2 "--context: found 33" -- "$TERN" eval run --text val.txt --context 33
expect 2 "no such file" -- "$TERN" generate missing --prompt a
expect 2 "neither a run directory" -- "$TERN" generate . --prompt a
expect 2 "neither a run directory\|not a folder\|Not a directory" -- "$TERN" generate config.yaml --prompt a
expect 2 "no checkpoint\|has no" -- bash -c 'mkdir -p empty/ckpt && "$0" generate empty --prompt a' "$TERN"
expect 1 "cannot write to stdout\|standard output" -- bash -c '"$0" generate run --prompt a --max-tokens 3 >/dev/full' "$TERN"
expect 1 "cannot write to stdout" -- bash -c '"$0" score run --prompt a >/dev/full' "$TERN"
[ "$(greedy --prompt "$(head -c 60 val.txt)" --max-tokens 100000 | wc -c)" -gt 1 ] || fail "more tokens than fit"
grep -q "ended by length" stderr.log || fail "the context does not end the text"

# Another tokenizer, and none.
cp run/tokenizer.json kept.json
seq -s ' ' 1000 9999 >numbers.txt
"$TERN" tokenizer train --vocab-size 600 --out run/tokenizer.json numbers.txt 2>/dev/null
expect 2 "tokenizer.json is not the one it was trained with" -- "$TERN" score run --prompt "$(seq -s ' ' 4000 4004)"
expect 2 "tokenizer.json is not the one it was trained with" -- "$TERN" generate run --prompt "$(seq -s ' ' 4000 4004)"
rm run/tokenizer.json
expect 2 "there is no tokenizer.json" -- "$TERN" generate run --prompt a
expect 2 "there is no tokenizer.json" -- "$TERN" eval run --text val.txt
"$TERN" data prepare --tokenizer kept.json --out shard val.txt 2>/dev/null
"$TERN" eval run --tokens shard 2>/dev/null | grep -q '"bits_per_byte":null' || fail "eval of tokens without a tokenizer"
cp kept.json run/tokenizer.json

# A damaged checkpoint: by its own name refused, in a run named and passed over.
size=$(stat -c %s "run/ckpt/$newest/rank-0000.h5")
printf '\377\000\377' | dd of="run/ckpt/$newest/rank-0000.h5" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
expect 1 "damaged" -- "$TERN" generate "run/ckpt/$newest" --prompt a
text=$("$TERN" generate run --prompt "the of" --max-tokens 4 2>last.log) || fail "a run with one damaged checkpoint"
grep -q "step $((10#${newest#step-})) is damaged" last.log || fail "the damaged checkpoint is not named"
for step in run/ckpt/step-*; do
    truncate -s 100 "$step/rank-0000.h5"
done
expect 1 "none is good" -- "$TERN" generate run --prompt a
echo "generate: done"
