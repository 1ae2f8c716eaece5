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

# A simulated GPU takes a second a step: few steps of half the lanes for all four, 12 whole ones for two of them.
few=(--set train.steps=5 --set checkpoint.every_steps=3 --set train.lanes=4 --set train.global_batch=8)
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

# A gradient that is not finite, found by the device: the same step is skipped, on any number of ranks, with the numbers of
# the cpu backend after it (how many updates were made is in AdamW's bias and in the cursor).
config gpt2 fp32 >config.yaml
rm -rf host reference
nan=(--set train.steps=5 --set train.on_nonfinite=skip --set train.eval_every=0 --set checkpoint.every_steps=0)
TERN_FAULT=gradient@6:nan TERN_BACKEND=cpu ranks 0 config.yaml --run-dir host "${nan[@]}" || fail "a skipped step on the cpu backend"
TERN_FAULT=gradient@6:nan cuda 0 config.yaml --run-dir reference "${nan[@]}" || fail "a skipped step on one simulated GPU"
near reference host 2e-5
skipped() { # RUN: the steps that were skipped, and why
    sed -n 's/.*"step":\([0-9]*\).*"skipped":true\(,"tensor":"[a-z0-9_.]*"\)*.*/\1\2/p' "$1/log.jsonl" | xargs
}
[ -n "$(skipped host)" ] && [ "$(skipped reference)" = "$(skipped host)" ] ||
    fail "skipped: $(skipped reference), on the cpu backend: $(skipped host)"
digest host >host.txt
digest reference >reference.txt
[ "$(grep -o 'cursor .*' host.txt)" = "$(grep -o 'cursor .*' reference.txt)" ] || fail "other updates were counted"
for n in 2 3; do
    rm -rf run
    CUSIM_SEED=$n TERN_FAULT=gradient@6#1:nan cuda "$n" config.yaml --run-dir run "${nan[@]}" || fail "a skipped step on $n GPUs"
    [ "$(skipped run)" = "$(skipped host)" ] || fail "skipped on $n GPUs: $(skipped run), expected $(skipped host)"
    [ "$(digest run)" = "$(digest reference)" ] || fail "a skipped step: other bits on $n GPUs"
done
echo "skipped alike: $(skipped host)"

# Or the run ends with the weights from before it, and nothing of the step that was under way meanwhile.
for n in 1 2; do
    rm -rf run
    TERN_FAULT=gradient@6#$((n - 1)):nan cuda "$n" config.yaml --run-dir run --set train.steps=5 &&
        [ "$n" = 1 ] && fail "a gradient that is not finite was let pass"
    grep -q "step 2: the gradient of" last.log || fail "the step that is not finite is not named"
    [ "$(state run)" = failed ] || fail "a non-finite gradient on $n GPUs: the launch record says $(state run)"
    ! grep -q '"kind":"step".*"step":[2-9],' run/log.jsonl || fail "a step was logged behind one that stops the run"
done
echo "stopped alike"

# The host is a step ahead: when it is through with the lanes of step 2, nobody has read step 1's loss; when it comes to its
# update, somebody has.
for point in step.backward@32 step.update@2; do
    rm -rf run
    TERN_FAULT=$point:kill cuda 0 config.yaml --run-dir run --set train.steps=3 && fail "$point was not passed"
    losses run >seen.txt
    echo "at $point: $(wc -l <seen.txt) losses read"
    [ "$(wc -l <seen.txt)" = $([ $point = step.update@2 ] && echo 1 || echo 0) ] || fail "losses are read at another time"
done

# A rank that stops between the GPUs: the watchdog names it, and before anybody leaves the launch record says so.
# Without TERN_COMM_TIMEOUT that takes it 30 s, and the hosts, who wait for the same rank, 600.
rm -rf run
(
    unset TERN_COMM_TIMEOUT
    TERN_BACKEND=cuda TERN_CUDA_PLUGIN=$plugin TERN_FAULT=step.backward@20#1:stop ranks 2 config.yaml --run-dir run \
        --set train.steps=9
) && fail "a stopped rank went unnoticed" || code=$?
kill_left_behind
[ "$(state run)" = peer_lost ] || fail "a stopped rank: exit code $code, the launch record says $(state run)"
grep -q '"step":2,.*"reason":"rank 1 ' run/launches/*.json || fail "the record: $(cat run/launches/*.json)"
echo "recorded: $(sed 's/.*"reason":"\([^"]*\)".*/\1/' run/launches/*.json)"

for which in "gpt2 fp32 2e-5" "llama bf16 2e-2"; do
    set -- $which
    config "$1" "$2" | sed 's/^  steps: 20$/  steps: 12/' >config.yaml
    rm -rf host reference
    TERN_BACKEND=cpu ranks 0 config.yaml --run-dir host || fail "$1 $2 on the cpu backend"
    cuda 0 config.yaml --run-dir reference || fail "$1 $2, 12 steps on one simulated GPU"
    [ "$(cat reference/ckpt/LATEST)" = step-00000012 ] || fail "not 12 steps: $(cat reference/ckpt/LATEST)"
    near reference host "$3"
done

# Sums in NCCL's own order: other bits are allowed, not other losses.
rm -rf run
TERN_BACKEND=cpu ranks 0 config.yaml --run-dir short "${few[@]}" || fail "5 steps on the cpu backend"
cuda 3 config.yaml --run-dir run "${few[@]}" --set train.deterministic=false || fail "deterministic: false on 3 GPUs"
near run short 2e-2

# Interrupted and gone on with elsewhere: the last config, llama in bf16.
expected=$(digest reference)
rm -rf run
cuda 2 config.yaml --run-dir run &
launcher=$!
for _ in $(seq 2400); do
    grep -q '"step":2,' run/log.jsonl 2>/dev/null && break
    sleep 0.05
done
touch run/stop
wait "$launcher" || true
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
TERN_BACKEND=cpu ranks 2 config.yaml --run-dir run --set optimizer.schedule=constant --set train.steps=5 ||
    fail "5 steps on the cpu backend"
cuda 2 config.yaml --run-dir run --set optimizer.schedule=constant ||
    fail "resume on simulated GPUs what the cpu backend began"
[ "$(losses run | wc -l)" -ge 12 ] || fail "the run began anew instead of going on"
near run host 2e-2
echo "resumed: from 2 ranks at step 5 to 2 GPUs"

# Adapters beside a frozen model: the CPU's losses, and the same bits on one and two GPUs.
cp train.txt more.txt
for family in llama gpt2; do
    config "$family" bf16 >base.yaml
    rm -rf base host one two
    TERN_BACKEND=cpu ranks 0 base.yaml --run-dir base --set train.steps=4 || fail "a base for adapters"
    tune_config "$family" bf16 >tune.yaml
    printf 'lora: {rank: 3, targets: [all-linear]}\n' >>tune.yaml
    TERN_BACKEND=cpu tune 0 base host --set train.steps=4 || fail "$family: adapters on the cpu backend"
    export TERN_BACKEND=cuda TERN_CUDA_PLUGIN=$plugin TERN_COMM_TIMEOUT=${CUDA_TIMEOUT:-300}
    tune 1 base one --set train.steps=4 || fail "$family: adapters on a simulated GPU"
    tune 2 base two --set train.steps=4 || fail "$family: adapters on two simulated GPUs"
    unset TERN_BACKEND
    [ "$(digest one)" = "$(digest two)" ] || fail "$family: adapters differ between one and two GPUs"
    near one host 1e-3
    echo "equal: $family, adapters on 1 and 2 GPUs"
done
