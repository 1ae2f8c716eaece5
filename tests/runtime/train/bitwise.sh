#!/bin/bash
# bitwise.sh - the same config gives the same bits on 1, 2, 3, 4, 5 and 8 ranks, with and without mpirun, on 1, 2 and 3
# threads, and with every kind of recomputation, for two families and both precisions; a few of those for the others.
. "$(dirname "$0")/lib.sh"
make_data
for family in gpt2 llama; do
    for precision in fp32 bf16; do
        config "$family" "$precision" >config.yaml
        rm -rf reference
        TERN_THREADS=1 ranks 0 config.yaml --run-dir reference || fail "$family $precision on one process"
        expected=$(digest reference)
        [ -n "$expected" ] || fail "no digest"
        echo "$family $precision: $expected"
        check() { # WHAT
            [ "$(digest run)" = "$expected" ] || fail "$family $precision, $1: $(digest run), expected $expected"
            echo "  equal: $1"
            rm -rf run
        }
        for n in 1 2 3 4 5 8; do
            TERN_THREADS=1 ranks "$n" config.yaml --run-dir run || fail "$family $precision on $n ranks"
            check "$n ranks"
        done
        for threads in 2 3; do
            TERN_THREADS=$threads ranks 0 config.yaml --run-dir run || fail "$threads threads"
            check "$threads threads"
        done
        for recompute in attention block; do
            TERN_THREADS=2 ranks 0 config.yaml --run-dir run --set train.recompute=$recompute || fail "$recompute"
            check "recompute $recompute"
        done
        grep -q '"step_allocations":0' reference/log.jsonl || fail "allocations inside a step"
    done
done
# Norms behind sublayers and of heads, caps, scaled embeddings: what a pass can do besides.
for model in "gemma2 fp32" "gemma3 bf16" "qwen3 bf16"; do
    # shellcheck disable=SC2086 # two words
    config $model | sed 's/^  heads: 4/  heads: 4\n  head_width: 12/' >family.yaml
    rm -rf reference
    TERN_THREADS=1 ranks 0 family.yaml --run-dir reference || fail "$model on one process"
    expected=$(digest reference)
    echo "$model: $expected"
    TERN_THREADS=1 ranks 3 family.yaml --run-dir run || fail "$model on 3 ranks"
    [ "$(digest run)" = "$expected" ] || fail "$model on 3 ranks: $(digest run), expected $expected"
    rm -rf run
    for recompute in attention block; do
        TERN_THREADS=3 ranks 0 family.yaml --run-dir run --set train.recompute=$recompute || fail "$model, $recompute"
        [ "$(digest run)" = "$expected" ] || fail "$model, recompute $recompute: $(digest run), expected $expected"
        rm -rf run
    done
    grep -q '"step_allocations":0' reference/log.jsonl || fail "$model: allocations inside a step"
done
# What must differ does: another seed gives other digests.
ranks 0 config.yaml --run-dir other --set train.seed=99 || fail "another seed"
[ "$(digest other)" != "$expected" ] || fail "another seed gives the same digest: the digest sees nothing"
