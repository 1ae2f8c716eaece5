#!/bin/bash
# lora.sh - adapters beside a frozen model: nothing changes until they have learnt, the same bits on any number of ranks
# and in any interruption, little memory, a base that must be the one they belong to; merged, they are a model.
. "$(dirname "$0")/lib.sh"
export TERN_THREADS=1
make_data
make_text 60000 7 >more.txt
lora() { # RANK TARGETS: appends the section
    printf 'lora:\n  rank: %s\n  targets: [%s]\n' "$1" "$2" >>tune.yaml
}

for family in gpt2 llama; do
    rm -rf base reference run
    config "$family" fp32 >base.yaml
    ranks 0 base.yaml --run-dir base || fail "training the base"
    if [ "$family" = gpt2 ]; then few=c_attn; else few="q_proj, v_proj"; fi
    for what in "fp32 $few" "fp32 all-linear" "bf16 all-linear"; do
        tune_config "$family" "${what%% *}" >tune.yaml
        lora 3 "${what#* }"
        rm -rf at_base reference run
        # B is zero: the model is the one that it was.
        if [ "${what%% *}" = fp32 ]; then
            tune 0 base at_base "${still[@]}" || fail "$family $what: one step"
            [ "$(last_eval at_base)" = "$(last_eval base)" ] ||
                fail "$family $what: begins at loss $(last_eval at_base), not $(last_eval base)"
        fi
        tune 0 base reference || fail "$family $what"
        grep -q '"step_allocations":0' reference/log.jsonl || fail "allocations inside a step"
        for n in 1 2 3; do
            tune "$n" base run || fail "$family $what on $n ranks"
            [ "$(digest run)" = "$(digest reference)" ] || fail "$family $what: $n ranks differ"
            rm -rf run
        done
        for recompute in attention block; do
            tune 0 base run --set train.recompute=$recompute || fail "$recompute"
            [ "$(digest run)" = "$(digest reference)" ] || fail "$family $what: recompute $recompute differs"
            rm -rf run
        done
        TERN_FAULT=ckpt.shard@2:kill tune 1 base run && fail "not killed"
        [ "$(cat run/ckpt/LATEST)" != step-00000020 ] || fail "killed at the end"
        tune 2 anything run || fail "$family $what: going on"
        [ "$(digest run)" = "$(digest reference)" ] || fail "$family $what: a killed run differs"
        echo "ok: $family $what"
    done
done

# Memory: gradients and moments of the adapters only.
bytes_of() { sed -n "s/^  $1  *\\([0-9.]*\\) KiB$/\\1/p" last.log; }
tune 0 base dry --dry-run --set train.lanes=1 --set train.precision=fp32 || fail "a dry run"
awk -v frozen="$(bytes_of "frozen weights")" -v adapters="$(bytes_of adapters)" -v gradients="$(bytes_of gradients)" \
    -v moments="$(bytes_of "AdamW moments")" 'BEGIN { exit !(adapters > 0 && adapters < frozen / 8 &&
        gradients < 1.1 * adapters && moments < 2.1 * adapters) }' || fail "the bill"

# What a run with adapters needs: its base, unchanged, where it was or where it is now.
mv base moved
expect 2 "gone: neither .*base/ckpt/step-00000020, where the run found it, nor base is there" -- \
    "$TERN" finetune base tune.yaml --run-dir run --set train.steps=30
"$TERN" finetune moved tune.yaml --run-dir run --set train.steps=30 >last.log 2>&1 || fail "going on with a base that moved"
mv moved base
ranks 0 base.yaml --run-dir other --set train.seed=5 || fail "another model"
mv base hidden
expect 2 "other/ckpt.* is not the model that the adapters belong to: its weights have the hash" -- \
    "$TERN" finetune other tune.yaml --run-dir run --set train.steps=40
mv hidden base

# Refusals, with the place of the key
refuse() { # SENTENCE YAML...
    local sentence=$1
    shift
    tune_config "$family" fp32 >tune.yaml
    printf '%s\n' "$@" >>tune.yaml
    expect 2 "$sentence" -- "$TERN" finetune base tune.yaml --run-dir new
}
at="tune.yaml:21:[0-9]*"
refuse "$at: lora.rank: found 0, expected a whole number from 1 to 1024" "lora:" "  rank: 0" "  alpha: 8"
refuse "lora.rank: missing, expected a whole number from 1 to 1024" "lora:" "  alpha: 8"
refuse "$at: lora.rank: found .*-4" "lora:" "  rank: -4"
refuse "$at: lora.rank: found.*1025" "lora:" "  rank: 1025"
refuse "lora.alpha: found" "lora:" "  rank: 4" "  alpha: -1"
refuse "lora.dropout: found 0.1, expected 0: dropout is not in this build" "lora:" "  rank: 4" "  dropout: 0.1"
refuse "lora.targets: found 'q_prj', expected some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, or all-linear; nearest is 'q_proj'" \
    "lora:" "  rank: 4" "  targets: [v_proj, q_prj]"
refuse "lora.targets: found 'q_proj' twice" "lora:" "  rank: 4" "  targets: [q_proj, q_proj]"
refuse "lora.ranks: unknown" "lora:" "  ranks: 4"
cat base.yaml - >with.yaml <<<"lora: {rank: 4}"
expect 2 "with.yaml:.*lora.rank: expected no section lora: adapters are trained by 'tern finetune'" -- "$TERN" train with.yaml --run-dir new
[ ! -e new/ckpt ] || fail "a refused run left checkpoints"

# A run with adapters is a model: merged by whoever reads it, by itself, from its export, or from peft's folder.
nll() { "$TERN" eval "$1" --text val.txt 2>/dev/null | sed 's/.*"nll":\([0-9.e+-]*\),.*/\1/'; }
for family in gpt2 llama; do
    rm -rf base hf tuned peft merged twice
    config "$family" fp32 >base.yaml
    ranks 0 base.yaml --run-dir base || fail "training the base"
    "$TERN" export base hf --format hf 2>/dev/null || fail "exporting the base"
    tune_config "$family" fp32 >tune.yaml
    lora 5 all-linear
    tune 0 hf tuned --set train.steps=60 --set optimizer.lr=2e-2 || fail "tuning an exported model"
    "$TERN" export tuned peft --format peft 2>/dev/null || fail "export --format peft"
    "$TERN" export tuned merged --format hf 2>/dev/null || fail "export --format hf"
    [ "$(nll tuned)" != "$(nll base)" ] || fail "$family: nothing was learnt"
    for model in peft merged tuned/ckpt/step-00000060; do
        [ "$(nll "$model")" = "$(nll tuned)" ] || fail "$family: $model has nll $(nll "$model"), expected $(nll tuned)"
    done
    [ "$("$TERN" generate tuned --prompt the --temperature 0 --max-tokens 8 2>/dev/null)" = \
        "$("$TERN" generate merged --prompt the --temperature 0 --max-tokens 8 2>/dev/null)" ] || fail "merged text"
    awk -v pass="$(last_eval tuned)" -v merged="$(nll tuned)" -v base="$(nll base)" 'BEGIN {
        d = pass - merged; exit !(d < 0.03 && d > -0.03 && merged != base) }' || fail "$family: training and merging differ"
    # Adapters on adapters, and all weights from where they end.
    tune 0 peft twice --set train.steps=4 || fail "adapters on adapters"
    [ "$(nll twice)" != "" ] || fail "eval of adapters on adapters"
    echo "ok: $family merged"
done
expect 2 "base has no adapters of its own" -- "$TERN" export base new --format peft
expect 2 "expected f32 with --format peft" -- "$TERN" export tuned new --format peft --dtype bf16

# Adapters whose base changed or went, and folders that are not what they say.
mv hf hidden
expect 2 "the model that the adapters belong to is not there: .*/hf" -- "$TERN" eval tuned --text val.txt
expect 2 "base_model_name_or_path: the model that the adapters belong to is not there" -- "$TERN" eval peft --text val.txt
cp -r merged hf
expect 2 "hf is not the model that the adapters of .*tuned.* belong to: its weights have the hash" -- \
    "$TERN" eval tuned --text val.txt
rm -rf hf
mv hidden hf
broken() { # SENTENCE SED-PROGRAM
    rm -rf bad
    cp -r peft bad
    sed -i "$2" bad/adapter_config.json
    expect 2 "bad/adapter_.*$1" -- "$TERN" eval bad --text val.txt
}
broken "key 'peft_type': found 'IA3', expected \"LORA\"" 's/"LORA"/"IA3"/'
broken "key 'r': found 0, expected a whole number from 1 to 1024" 's/"r": 5/"r": 0/'
broken "key 'r': found 1e+30" 's/"r": 5/"r": 1e30/'
broken "key 'r'" 's/"r": 5,//'
broken "key 'lora_alpha': found -1" 's/"lora_alpha": 10/"lora_alpha": -1/'
broken "key 'lora_alpha'" 's/"lora_alpha": 10/"lora_alpha": null/'
broken "key 'bias': found 'all', expected \"none\"" 's/"bias": "none"/"bias": "all"/'
broken "key 'use_dora'" 's/"use_dora": false/"use_dora": true/'
broken "key 'rank_pattern'" 's/"use_dora": false/"rank_pattern": {"q_proj": 8}/'
broken "key 'modules_to_save'" 's/"modules_to_save": null/"modules_to_save": ["lm_head"]/'
broken "key 'target_modules'.*expected a list of names" 's/"target_modules": .*/"target_modules": ".*q_proj"/'
broken "key 'target_modules'.*expected a list of names" 's/"target_modules": .*/"target_modules": []/'
broken "key 'target_modules': entry 1" 's/"target_modules": .*/"target_modules": [7]/'
broken "tensor .* belongs to no module that adapter_config.json names" 's/"q_proj", //'
broken "expected 6 x 32" 's/"r": 5/"r": 6/'
broken "line 3" '3s/.*/  what/'
broken "base_model_name_or_path" 's/"base_model_name_or_path": .*/"base_model_name_or_path": null,/'
broken "adapters of adapters 8 times" "s#\"base_model_name_or_path\": .*#\"base_model_name_or_path\": \"$WORK/bad\",#"
rm -rf bad
cp -r peft bad
sed -i 's/"q_proj"/"w_proj"/' bad/adapter_config.json
expect 2 "found 'w_proj', expected one of q_proj" -- "$TERN" eval bad --text val.txt
head -c 2000 peft/adapter_model.safetensors >bad/adapter_model.safetensors
cp peft/adapter_config.json bad
expect 2 "bad/adapter_model.safetensors" -- "$TERN" eval bad --text val.txt
rm bad/adapter_model.safetensors
expect 2 "bad/adapter_model.safetensors" -- "$TERN" eval bad --text val.txt
echo "lora: done"
