#!/bin/bash
# gpu.sh - what only a machine with a GPU can show, in at most five minutes: right results, and speed against its goals.
#
#   tests/gpu.sh [BUILD_FOLDER] [--sizes FILE] [--limit SECONDS] [--only PART,...]
#
# BUILD_FOLDER (default build/default) was built with the tests; it may have been built elsewhere: this needs bash, python3,
# the NVIDIA driver and cuBLASLt, no compiler, no network. One JSON object on stdout, a summary on stderr. Every part has a
# time limit, and what was found so far is printed whatever happens. Exit status: 0 every part passed (a missed goal is
# named in "misses" and changes nothing), 1 one failed or did not end, 77 there is no GPU.
# --sizes: other sizes than the goals ask for, as JSON (see SIZES in gpu.py); goals are then not judged.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$here/../build/default
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    build=$1
    shift
fi
if [ ! -x "$build/bin/tern" ] || [ ! -x "$build/bin/bench_ops" ]; then
    echo "gpu.sh: $build holds no bin/tern and bin/bench_ops; build first: cmake --preset default && cmake --build --preset default" >&2
    exit 2
fi
exec python3 "$here/gpu.py" "$(cd "$build" && pwd)" "$@"
