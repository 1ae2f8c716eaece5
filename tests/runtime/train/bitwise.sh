#!/bin/bash
# bitwise.sh - the same config gives the same bits on 1, 2, 3, 4, 5 and 8 ranks, with and without mpirun, on 1, 2 and 3
# threads, and with every kind of recomputation, for both families and both precisions.
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
# What must differ does: another seed gives other digests.
ranks 0 config.yaml --run-dir other --set train.seed=99 || fail "another seed"
[ "$(digest other)" != "$expected" ] || fail "another seed gives the same digest: the digest sees nothing"
