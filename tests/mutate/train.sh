#!/bin/bash
# train.sh - the short training run that mutate.py judges the step, the queues and the communicator by.
# Usage: train.sh TERN SIMULATOR-PLUGIN RANKS: RANKS simulated GPUs give the bits of one, whatever the seed, a checkpoint
# taken on the way included; and the losses of the cpu backend.
. "$(dirname "$0")/../runtime/train/lib.sh"
plugin=$(realpath "$2")
n=$3
make_data
config gpt2 bf16 >config.yaml
args=(--set train.steps=6 --set checkpoint.every_steps=3 --set train.eval_every=3)
cuda() {
    TERN_BACKEND=cuda TERN_CUDA_PLUGIN=$plugin TERN_COMM_TIMEOUT=60 ranks "$@"
}
loss() {
    sed -n 's/.*"kind":"\(step\|eval\)".*"loss":\([0-9.e+-]*\).*/\2/p' "$1/log.jsonl"
}
TERN_BACKEND=cpu ranks 0 config.yaml --run-dir host "${args[@]}" || fail "the cpu backend"
cuda 0 config.yaml --run-dir reference "${args[@]}" || fail "one simulated GPU"
paste <(loss host) <(loss reference) | awk '
    { d = $1 - $2; if (d * d > 1e-4 * $1 * $1 || NF != 2) exit bad = 1; n++ }
    END { exit bad || n < 8 }' || fail "losses differ from the cpu backend's: $(loss host | xargs) and $(loss reference | xargs)"
for seed in 1 2 3; do
    rm -rf run
    CUSIM_SEED=$seed cuda "$n" config.yaml --run-dir run "${args[@]}" || fail "$n simulated GPUs, seed $seed"
    for step in step-00000003 step-00000006; do
        [ "$(digest run $step)" = "$(digest reference $step)" ] || fail "$n GPUs, seed $seed: other bits at $step"
    done
done
