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
echo "lora: done"
