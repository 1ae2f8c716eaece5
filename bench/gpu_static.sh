#!/bin/bash
# gpu_static.sh - reads the compiled code of libtern_cuda.so's kernels, prints what each costs, and fails on what no run
# without a GPU would show: spilled registers, products without tensor cores, narrow accesses of memory.
#
#   bench/gpu_static.sh [--no-install] [BUILD_FOLDER]      default: build/default
#
# Needs NVIDIA's cuobjdump and nvdisasm: those beside nvcc or on PATH, else PyPI's, put into bench/.venv once (6 MB).
# --no-install: without them exit 77 (skipped). Exit 77 too where the build has no libtern_cuda.so. CUOBJDUMP names another
# cuobjdump. No GPU is needed; occupancy is computed, nothing is timed. What a kernel must be is the table in gpu_static.py.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/bench/.venv
version=13.2.86
install=yes
if [ "${1:-}" = --no-install ]; then
    install=no
    shift
fi
build=${1:-$root/build/default}
library=$build/bin/libtern_cuda.so
if [ ! -e "$library" ]; then
    echo "gpu_static.sh: skipped: there is no $library (no nvcc when it was configured, or not built)" >&2
    exit 77
fi

# The folder that holds both tools, or nothing.
tools() {
    local folder nvcc
    nvcc=$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
    for folder in "$(dirname "$(command -v cuobjdump || echo /none/none)")" "$(dirname "$nvcc")" \
        "$venv"/lib/python3*/site-packages/nvidia/cu13/bin; do
        if [ -x "$folder/cuobjdump" ] && [ -x "$folder/nvdisasm" ]; then
            echo "$folder"
            return
        fi
    done
}

if [ -z "${CUOBJDUMP:-}" ]; then
    folder=$(tools)
    if [ -z "$folder" ] && [ "$install" = no ]; then
        echo "gpu_static.sh: skipped: no cuobjdump and nvdisasm here; bench/gpu_static.sh fetches them once" >&2
        exit 77
    fi
    if [ -z "$folder" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 \
            "nvidia-cuda-cuobjdump==$version" "nvidia-cuda-nvdisasm==$version"
        chmod +x "$venv"/lib/python3*/site-packages/nvidia/cu13/bin/*
        folder=$(tools)
    fi
    export PATH=$folder:$PATH # cuobjdump finds nvdisasm there
    CUOBJDUMP=$folder/cuobjdump
fi
exec python3 "$root/bench/gpu_static.py" "$CUOBJDUMP" "$library"
