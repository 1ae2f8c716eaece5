#!/bin/bash
# train.sh - tokens per second of GPT-2 124M training: Tern against PyTorch, in turn, on the same cores, in one run.
#
#   bench/train.sh [--seq 256,1024] [--batch 4] [--rounds 3] [--steps 4] [--threads 2] [--precision bf16]
#                  [--save-every N | --snapshot-every N [--ranks N]] [--peer PYTHON|none] [--build FOLDER] [--json FILE]
#
# PYTHON is an interpreter that has torch; default: tests/.venv (made by tests/oracles.sh) if it is there. Builds the
# release preset first unless --build names a folder with bin/tern. `bench/train.sh --help` explains the numbers.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
if [[ " $* " != *" --build"* && " $* " != *" --help "* ]]; then
    cmake --preset release >/dev/null
    cmake --build --preset release >/dev/null
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
exec python3 bench/train.py "$@"
