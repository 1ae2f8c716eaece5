#!/bin/bash
# cuda.sh - whole training runs on the simulated CUDA: `tern train` itself, its plugin, its streams and its communicator.
# Usage: cuda.sh TERN SIMULATOR-PLUGIN
#
# Equal digests on 1, 2, 3 and 4 ranks, with zero 0 and 1, and whatever order the simulator's seed gives the queues;
# losses near those of the cpu backend; interrupted on one backend and resumed on the other, both ways.
. "$(dirname "$0")/lib.sh"
plugin=$(realpath "$2")
make_data

cuda() { # N ARGUMENTS...: ranks on the simulator
    TERN_BACKEND=cuda TERN_CUDA_PLUGIN=$plugin TERN_COMM_TIMEOUT=${CUDA_TIMEOUT:-300} ranks "$@"
}

losses() { # RUN: loss of each step, a line each
    sed -n 's/.*"kind":"step".*"step":\([0-9]*\),.*"loss":\([0-9.e+-]*\).*/\1 \2/p' "$1/log.jsonl"
}

# near RUN REFERENCE BOUND: every loss of RUN is within BOUND, relative, of the same step's in REFERENCE
near() {
    losses "$1" | sort >mine.txt
    losses "$2" | sort >theirs.txt
    [ -s mine.txt ] || fail "$1 has no losses"
    join mine.txt theirs.txt | awk -v bound="$3" -v steps="$(wc -l <mine.txt)" '
        { d = $2 - $3; d = d < 0 ? -d : d; d /= $3; worst = d > worst ? d : worst; n++ }
        END { printf "  losses of %d steps within %.2g of the cpu backend (bound %s)\n", n, worst, bound
              exit !(n == steps && worst <= bound) }' || fail "losses differ between backends"
}

# 20 steps for two of the four, fewer for the others: a simulated GPU takes seconds a step.
few=(--set train.steps=5 --set checkpoint.every_steps=3)
for family in gpt2 llama; do
    for precision in fp32 bf16; do
        config "$family" "$precision" >config.yaml
        rm -rf host reference long
        TERN_BACKEND=cpu ranks 0 config.yaml --run-dir host "${few[@]}" || fail "$family $precision on the cpu backend"
        cuda 0 config.yaml --run-dir reference "${few[@]}" || fail "$family $precision on one simulated GPU"
        grep -q '"step_allocations":0' reference/log.jsonl || fail "allocations inside a step"
        expected=$(digest reference)
        [ -n "$expected" ] || fail "no digest"
        echo "$family $precision: $expected"
        [ "$precision" = fp32 ] && bound=2e-5 || bound=2e-2
        near reference host $bound
        for n in 2 3 4; do
            rm -rf run
            CUSIM_SEED=$n cuda "$n" config.yaml --run-dir run "${few[@]}" --set parallel.zero=$((n % 2)) ||
                fail "$family $precision on $n simulated GPUs"
            [ "$(digest run)" = "$expected" ] || fail "$family $precision: other bits on $n GPUs: $(digest run)"
            echo "  equal: $n GPUs, zero $((n % 2))"
        done
    done
done

for which in "gpt2 fp32 2e-5" "llama bf16 2e-2"; do
    set -- $which
    config "$1" "$2" >config.yaml
    rm -rf host reference
    TERN_BACKEND=cpu ranks 0 config.yaml --run-dir host || fail "$1 $2 on the cpu backend"
    cuda 0 config.yaml --run-dir reference || fail "$1 $2, 20 steps on one simulated GPU"
    near reference host "$3"
done

# Sums in NCCL's own order: other bits are allowed, not other losses.
rm -rf run
TERN_BACKEND=cpu ranks 0 config.yaml --run-dir short "${few[@]}" || fail "5 steps on the cpu backend"
cuda 3 config.yaml --run-dir run "${few[@]}" --set train.deterministic=false || fail "deterministic: false on 3 GPUs"
near run short 2e-2

# Interrupted and gone on with elsewhere: the last config, llama in bf16.
expected=$(digest reference)
stop_at() { # BACKEND N RUN: a run that is asked to stop after some steps
    rm -rf "$3"
    if [ "$1" = cuda ]; then
        cuda "$2" config.yaml --run-dir "$3" &
    else
        TERN_BACKEND=cpu ranks "$2" config.yaml --run-dir "$3" --set train.steps=20 &
    fi
    local pid=$!
    for _ in $(seq 2400); do
        grep -q '"step":2,' "$3/log.jsonl" 2>/dev/null && break
        sleep 0.05
    done
    touch "$3/stop"
    wait "$pid" || true
}

stop_at cuda 2 run
[ "$(state run)" = reclaimed ] || fail "2 simulated GPUs, stop file: the launch record says $(state run)"
stopped=$(cat run/ckpt/LATEST)
cp -r run elsewhere
cuda 3 config.yaml --run-dir run || fail "resume on 3 simulated GPUs"
[ "$(digest run)" = "$expected" ] || fail "stopped at $stopped on 2 GPUs, resumed on 3: digests differ"
echo "equal: 2 GPUs, stopped at $stopped, resumed on 3"
TERN_BACKEND=cpu ranks 2 config.yaml --run-dir elsewhere || fail "resume on the cpu backend"
[ "$(state elsewhere)" = finished ] || fail "the cpu backend did not finish what the GPUs began"
near elsewhere host 2e-2
echo "resumed: from 2 GPUs at $stopped to 2 ranks without"

# Constant rates: then the number of steps planned changes nothing.
rm -rf run host
TERN_BACKEND=cpu ranks 0 config.yaml --run-dir host --set optimizer.schedule=constant || fail "constant rates"
TERN_BACKEND=cpu ranks 2 config.yaml --run-dir run --set optimizer.schedule=constant --set train.steps=9 ||
    fail "9 steps on the cpu backend"
cuda 2 config.yaml --run-dir run --set optimizer.schedule=constant ||
    fail "resume on simulated GPUs what the cpu backend began"
[ "$(losses run | wc -l)" -ge 20 ] || fail "the run began anew instead of going on"
near run host 2e-2
echo "resumed: from 2 ranks at step 9 to 2 GPUs"
