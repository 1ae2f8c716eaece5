#!/bin/bash
# fuzz.sh - builds the libFuzzer programs of tests/fuzz/ with clang and runs each for a while from its corpus.
#
#   tests/fuzz.sh [SECONDS [NAME...]]     60 seconds each, all of them; what they find is left in build/fuzz/found/
#
# Exits with 1 if one finds a crash, a hang, a leak or 600 MB of memory in use.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
seconds=${1:-60}
shift || true
names=("$@")
if [ ${#names[@]} = 0 ]; then
    for source in "$root"/tests/fuzz/*_fuzz.c; do
        name=$(basename "$source" _fuzz.c)
        names+=("$name")
    done
fi
command -v clang >/dev/null || { echo "fuzz.sh: needs clang (apt-get install clang)" >&2; exit 2; }
launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
cmake -S "$root" -B "$root/build/fuzz" -G Ninja -DCMAKE_C_COMPILER=clang -DTERN_FUZZ=ON -DTERN_CUDA=OFF -DTERN_MPI=OFF \
    "${launcher[@]}" >/dev/null
cmake --build "$root/build/fuzz" --target "${names[@]/#/fuzz_}"
failed=()
for name in "${names[@]}"; do
    mkdir -p "$root/build/fuzz/found/$name" "$root/build/fuzz/corpus/$name"
    echo "== $name, $seconds s"
    "$root/build/fuzz/bin/fuzz_$name" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=600 -print_final_stats=1 \
        -artifact_prefix="$root/build/fuzz/found/$name/" "$root/build/fuzz/corpus/$name" \
        "$root/tests/fuzz/corpus/$name" 2>&1 | grep -E "^(==|ERROR|SUMMARY|stat::|Done)|ERROR:" || true
    if [ -n "$(ls "$root/build/fuzz/found/$name")" ]; then
        failed+=("$name")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz.sh: found something: ${failed[*]}" >&2
    exit 1
fi
