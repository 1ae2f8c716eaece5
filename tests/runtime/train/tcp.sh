#!/bin/bash
# tcp.sh - training without MPI: ranks that meet by a file or by an address give the bits of one, and end together when one of
# them is killed.
. "${BASH_SOURCE[0]%/*}/lib.sh"
make_data
config gpt2 fp32 >config.yaml

# alone N ARGUMENTS...: N processes, no launcher; the exit code of rank 0.
alone() {
    local n=$1 rank pids=() code=0
    shift
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank WORLD_SIZE=$n "$TERN" train "$@" >last.$rank.log 2>&1 &
        pids+=($!)
    done
    for ((rank = n - 1; rank >= 0; rank--)); do
        code=0
        wait "${pids[rank]}" || code=$?
    done
    cat last.[0-9]*.log >last.log
    return "$code"
}

ranks 0 config.yaml --run-dir reference || fail "one rank"
TERN_RENDEZVOUS=$WORK/meet alone 3 config.yaml --run-dir file || fail "three ranks, by a file"
[ ! -e meet ] || fail "the file is left"
[ "$(digest file)" = "$(digest reference)" ] || fail "three ranks give other bits than one"
echo "ok: three ranks by a file"
MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 10000)) alone 2 config.yaml --run-dir address ||
    fail "two ranks, by an address"
[ "$(digest address)" = "$(digest reference)" ] || fail "two ranks give other bits than one"
echo "ok: two ranks by an address"

code=0
TERN_FAULT=step.update@5#1:kill TERN_RENDEZVOUS=$WORK/meet alone 3 config.yaml --run-dir killed || code=$?
[ "$code" = 34 ] || fail "rank 0 ends with $code when rank 1 is killed, expected 34"
[ -z "$(left_behind)" ] || fail "ranks are left behind"
TERN_RENDEZVOUS=$WORK/meet alone 2 config.yaml --run-dir killed || fail "resuming on two ranks"
[ "$(digest killed)" = "$(digest reference)" ] || fail "other bits after a death"
echo "ok: a rank killed, and resumed"
