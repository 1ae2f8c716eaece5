#!/bin/bash
# train.sh - the short training run that mutate.py judges the step, the queues and the checkpoints by.
# Usage: train.sh TERN SIMULATOR-PLUGIN RANKS
#
# One simulated GPU has the losses of the cpu backend, and RANKS have its bits, with another order of the queues. What a step
# records it also replays. One rank resumes from a checkpoint in the middle, and the writer of its own first one comes late to
# the snapshot, when the next update has long been enqueued.
. "$(dirname "$0")/../runtime/train/lib.sh"
plugin=$(realpath "$2")
n=$3
make_data
config gpt2 bf16 >config.yaml
args=(--set train.steps=4 --set checkpoint.every_steps=2 --set train.eval_every=2 --set train.eval_tokens=64
    --set train.lanes=4 --set train.global_batch=8 --set train.sequence_length=16)
cuda() {
    TERN_BACKEND=cuda TERN_CUDA_PLUGIN=$plugin TERN_CUDA_CACHE=off ranks "$@"
}
loss() {
    sed -n 's/.*"kind":"\(step\|eval\)".*"loss":\([0-9.e+-]*\).*/\2/p' "$1/log.jsonl"
}
TERN_BACKEND=cpu ranks 0 config.yaml --run-dir host "${args[@]}" || fail "the cpu backend"
cuda 0 config.yaml --run-dir reference "${args[@]}" || fail "one simulated GPU"
paste <(loss host) <(loss reference) | awk '
    { d = $1 - $2; if (d * d > 1e-4 * $1 * $1 || NF != 2) exit bad = 1; n++ }
    END { exit bad || n < 6 }' || fail "losses differ from the cpu backend's: $(loss host | xargs) and $(loss reference | xargs)"
if [ "$n" = 1 ]; then
    cp -r reference run
    rm -r run/ckpt/step-00000004
    echo step-00000002 >run/ckpt/LATEST
    args+=(--set checkpoint.every_steps=1)
    export TERN_FAULT=ckpt.settle:delay=4
fi
CUSIM_SEED=2 cuda "$n" config.yaml --run-dir run "${args[@]}" || fail "$n simulated GPUs"
[ "$(digest run step-00000004)" = "$(digest reference step-00000004)" ] || fail "other bits on $n GPUs"
