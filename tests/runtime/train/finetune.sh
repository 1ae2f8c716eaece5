#!/bin/bash
# finetune.sh - a run that begins as another model: at its weights, the same bits on any number of ranks, interrupted or
# not, without MODEL once it has begun; and what is refused.
. "$(dirname "$0")/lib.sh"
export TERN_THREADS=1
make_data
make_text 60000 7 >more.txt

for family in gpt2 llama; do
    rm -rf base reference at_base run
    config "$family" fp32 >base.yaml
    ranks 0 base.yaml --run-dir base || fail "training the base"
    tune_config "$family" fp32 >tune.yaml

    # It begins at MODEL's weights: a step that changes nothing leaves the loss that MODEL had.
    tune 0 base at_base "${still[@]}" || fail "$family: one step"
    [ "$(last_eval at_base)" = "$(last_eval base)" ] || fail "$family: begins at loss $(last_eval at_base), not $(last_eval base)"

    tune 0 base reference || fail "$family: fine-tuning"
    [ "$(digest reference)" != "$(digest base)" ] || fail "$family: nothing was learnt"
    cmp -s reference/tokenizer.json base/tokenizer.json || fail "the run has not MODEL's tokenizer"
    for n in 1 2 3; do
        tune "$n" base run || fail "$family on $n ranks"
        [ "$(digest run)" = "$(digest reference)" ] || fail "$family: $n ranks differ"
        rm -rf run
    done
    # Killed after its first checkpoint, MODEL lost: the run goes on by itself, on other ranks.
    TERN_FAULT=ckpt.shard@2:kill tune 1 base run && fail "not killed"
    [ "$(cat run/ckpt/LATEST)" != step-00000020 ] || fail "killed at the end"
    mv base hidden
    tune 2 base run || fail "$family: going on without MODEL"
    mv hidden base
    [ "$(digest run)" = "$(digest reference)" ] || fail "$family: a killed run differs"
    echo "ok: $family"
done
# The run is a MODEL like any other: one checkpoint of it can be tuned on.
"$TERN" finetune reference/ckpt/step-00000020/ tune.yaml --run-dir again --set train.steps=4 >last.log 2>&1 || fail "tuning on"
"$TERN" generate again --prompt "the of" --max-tokens 4 >last.log 2>&1 || fail "generate from a tuned run"

# Refusals
expect 2 "no such file" -- "$TERN" finetune nothing tune.yaml --run-dir new
expect 2 "neither a run directory" -- "$TERN" finetune . tune.yaml --run-dir new
expect 2 "no model given, expected MODEL CONFIG.yaml" -- "$TERN" finetune
expect 2 "no configuration file given" -- "$TERN" finetune base
(echo "model: {layers: 3, width: 32}"; cat tune.yaml) >wrong.yaml
expect 2 "wrong.yaml:1:9: model.layers: found 3, expected 2 as base has it" -- "$TERN" finetune base wrong.yaml --run-dir new
expect 2 "set model.family=gpt2: model.family: found gpt2, expected llama as base has it" -- \
    "$TERN" finetune base tune.yaml --run-dir new --set model.family=gpt2
"$TERN" tokenizer train --vocab-size 320 --out other.json more.txt 2>/dev/null
"$TERN" tokenizer train --vocab-size 300 --out smaller.json train.txt 2>/dev/null
for other in other smaller; do
    expect 2 "data.tokenizer: token [0-9]* of $other.json is not that of base" -- \
        "$TERN" finetune base tune.yaml --run-dir new --set data.tokenizer=$other.json
done
cp base/tokenizer.json same.json
"$TERN" finetune base tune.yaml --run-dir same --set data.tokenizer=same.json --set train.steps=4 >last.log 2>&1 || fail "the same vocabulary"
expect 2 "began from a seed" -- "$TERN" finetune reference tune.yaml --run-dir base --set train.steps=40
[ ! -e new/ckpt ] || fail "a refused run left checkpoints"
echo "finetune: done"
