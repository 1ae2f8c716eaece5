#!/bin/sh
# self_test.sh - include_edges.sh finds each kind of bad edge in a made-up tree, and nothing in a good one.
set -eu
script=$(cd "$(dirname "$0")" && pwd)/include_edges.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p launch runtime/base runtime/train models kernels/cpu kernels/cuda comm/mpi io

good() {
    rm -rf launch/* runtime/base/* runtime/train/* models/* comm/mpi/*.c io/* kernels/cpu/* kernels/cuda/*
    echo '#include "runtime/train/a.h"' >launch/main.c
    printf '#include "models/model.h"\n#include "io/file.h"\n#include "runtime/base/mem.h"\n' >runtime/train/a.c
    printf '/* malloc(3) is not called, and #include "launch/x.h" is not read:\n * free(it) */\nint x; // free(x)\n' \
        >runtime/train/b.c
    printf '#include "kernels/ops.h"\nconst char *text = "free(this)";\n' >models/model.c
    printf '#include <mpi.h>\n#include "runtime/base/status.h"\n' >comm/mpi/mpi.c
    printf '#include <hdf5.h>\n#include <jansson.h>\nvoid f(void) { free(realpath("x", 0)); }\n' >io/h5.c
    printf '#include <yaml.h>\n' >runtime/base/config.c
    printf 'void *f(void) { return aligned_alloc(64, 64); }\n' >runtime/base/mem.c
    printf '#include "kernels/ops.h"\n__global__ void k() { if (1 << 2) return; } // no asm, no k<<<1, 1>>>\n' >kernels/cuda/k.cu
    printf '#include <cusim_target.cuh>\n__shared__ int x;\nvoid f() { k<<<1, 1>>>(); }\n' >kernels/cuda/target.cuh
    printf '#include <cusim_mma.cuh>\nvoid f() { asm volatile("mma"); }\n' >kernels/cuda/mma.cuh
    printf 'void g(struct t *t) { t->free(1); tern_free(t); x.free(2); }\n' >kernels/cpu/a.c
}

good
if ! found=$(sh "$script" "$tree"); then
    echo "a good tree was refused: $found" >&2
    exit 1
fi

# FILE, its text (printf format), what the finding must say
check() {
    good
    printf "$2" >"$1"
    if found=$(sh "$script" "$tree"); then
        echo "not found: $1: $2" >&2
        exit 1
    fi
    case $found in
    "$1":*"$3"*) echo "found: $found" ;;
    *)
        echo "found '$found', expected '$1' and '$3'" >&2
        exit 1
        ;;
    esac
}

check runtime/base/up.c '#include "io/file.h"\n' 'base must not include io'
check runtime/base/up.h '\n\n#  include "runtime/train/a.h"\n' 'base must not include runtime'
check io/side.c '#include "kernels/ops.h"\n' 'io must not include kernels'
check kernels/cpu/side.c '#include "comm/comm.h"\n' 'kernels must not include comm'
check kernels/cpu/up.c '#include "models/model.h"\n' 'kernels must not include models'
check models/up.c '#include "runtime/train/a.h" /* why not */\n' 'models must not include runtime'
check runtime/train/up.c '#include "launch/options.h"\n' 'runtime must not include launch'
check launch/up.c '#include "tests/base/check.h"\n' 'launch must not include tests'
check launch/local.c '#include "options.h"\n' 'is not relative to the root'
check launch/mpi.c '#include <mpi.h>\n' '<mpi.h> belongs to comm/mpi/'
check runtime/train/h5.c '#include <hdf5.h>\n' '<hdf5.h> belongs to io/'
check runtime/train/z.c '#include <zstd.h>\n' '<zstd.h> belongs to io/'
check io/y.c '#include <yaml.h>\n' '<yaml.h> belongs to runtime/base/'
check runtime/base/j.c '#include <jansson.h>\n' '<jansson.h> belongs to'
check launch/p.c '#include <pcre2.h>\n' '<pcre2.h> belongs to io/'
check kernels/cpu/c.c '#include <cuda_runtime.h>\n' '<cuda_runtime.h> belongs to kernels/cuda/'
check comm/mpi/b.c '#include <cublasLt.h>\n' '<cublasLt.h> belongs to kernels/cuda/'
check models/m.c 'void *f(void) { return malloc(3); }\n' 'memory goes through'
check models/m.c '/* fine */ void f(void *p) { free (p); }\n' 'memory goes through'
check kernels/cuda/side.cu '#include "comm/comm.h"\n' 'kernels must not include comm'
check kernels/cuda/up.cuh '#include "models/model.h"\n' 'kernels must not include models'
check kernels/cuda/m.cu 'void f() { free(malloc(3)); }\n' 'memory goes through'
check kernels/cuda/sim.cu '#include <cusim_target.cuh>\n' '<cusim_target.cuh> belongs to'
check kernels/cuda/l.cu 'void f() { k<<<1, 1>>>(); }\n' 'tern_launch'
check kernels/cuda/p.cuh '__device__ void f() { asm volatile("bar.sync 0;"); }\n' 'PTX is in'
check kernels/cuda/s.cu '__global__ void k() { __shared__ float x[3]; }\n' 'language'
check kernels/cuda/v.cu 'void f(const float4 *x);\n' 'language'
check models/v.cu '#include <cuda_runtime.h>\n' '<cuda_runtime.h> belongs to'
check io/r.c 'char *f(void) { return strdup("x"); }\n' 'memory goes through'
echo "every bad edge was found"
