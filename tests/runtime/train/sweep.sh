# sweep.sh - what the sweeps of random deaths share. Sourced after lib.sh, with a config.yaml, the array set_args and the
# digests of the undisturbed run in $expected; pick_fault N has to set $fault for a run on N ranks.

# From a seed of its own for each round: repeating one needs no other.
seed_round() { # SEED ROUND
    RANDOM=$(($1 * 7919 + $2))
}
pick() { # WORD...: one of them in $picked
    picked=${*:RANDOM % $#+1:1}
}

# What must be true of a run directory whatever happened: each checkpoint that is there verifies, and the newest that was
# announced, or one after it, is among them.
check_announced() { # RUN WHAT
    local step newest=-1 announced
    for step in "$1"/ckpt/step-*; do
        [ -e "$step/MANIFEST.json" ] || continue
        "$TERN" checkpoint verify "$step" >verify.log 2>&1 ||
            fail "$2: $step is announced and does not verify: $(cat verify.log)"
        newest=$((10#${step##*-}))
    done
    announced=$(grep -o '"kind":"checkpoint".*"step":[0-9]*' "$1/log.jsonl" 2>/dev/null | tail -n 1 | sed 's/.*://' || true)
    [ "${announced:--1}" -le "$newest" ] || fail "$2: the checkpoint of step $announced was announced and is lost"
}
check_leftovers() { # RUN WHAT
    local leftovers
    leftovers=$(
        find "$1" -name '*.tmp*' -o -name '*.rank-[0-9]*' -o -name 'step-*.new' -o -name 'step-*.old'
        find "$TERN_SHM_DIR" -name 'tern-*'
        for step in "$1"/ckpt/step-*; do
            [ -e "$step/MANIFEST.json" ] || echo "$step"
        done
        left_behind
    )
    [ -z "$leftovers" ] || fail "$2: leftovers $(head -n 3 <<<"$leftovers")"
}
# faulted N FAULT WHAT: one launch on N ranks with a fault; counts in $struck whether it did anything.
faulted() {
    local code=0
    TERN_FAULT=$2 TERN_COMM_TIMEOUT=8 timeout 120 "${run[@]}" -np "$1" "$TERN" train config.yaml --run-dir run "${set_args[@]}" \
        >last.log 2>&1 || code=$?
    [ "$code" != 124 ] || fail "$3: hung"
    ended=$code
    if [ "$code" != 0 ] || grep -q "was not written\|in memory failed\|going on without it\|no copy of" last.log; then
        struck=$((struck + 1))
    fi
    [ ! -d run/ckpt ] || check_announced run "$3"
}
# resumed N WHAT: the last launch, undisturbed: the digests are those of the run that was never disturbed.
resumed() {
    ranks "$1" config.yaml --run-dir run "${set_args[@]}" || fail "$2: the resume failed"
    [ "$(digest run)" = "$expected" ] || fail "$2: digests differ"
    check_announced run "$2"
    check_leftovers run "$2"
}
