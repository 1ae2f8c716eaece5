#!/bin/sh
# seeds.sh - runs a command on the simulated CUDA, once for each of several seeds of its scheduling.
#
#   [CUSIM_SEEDS=1] [CUSIM_SEED=1] TERN_CUDA_PLUGIN=.../libtern_cuda_sim.so seeds.sh COMMAND...
#
# Each case is run TERN_RUNS times (2: the least that shows whether another order gives other bits). Whoever changed kernels:
#   CUSIM_SEEDS=3 TERN_RUNS=3 ctest --test-dir build/default -R conform_cusim --timeout 7200
# Goes on to the next seed after a failure, so that the report says how many fail; exit 1 if any did.
set -u
first=${CUSIM_SEED:-1}
last=$((first + ${CUSIM_SEEDS:-1} - 1))
export TERN_RUNS=${TERN_RUNS:-2}
failed=
seed=$first
while [ "$seed" -le "$last" ]; do
    CUSIM_SEED=$seed TERN_BACKEND=cuda "$@" || failed="$failed $seed"
    seed=$((seed + 1))
done
if [ -n "$failed" ]; then
    echo "seeds.sh: of the seeds $first to $last these failed:$failed" >&2
    exit 1
fi
