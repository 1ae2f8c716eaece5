#!/bin/bash
# fuzz.sh - builds the libFuzzer programs of tests/fuzz with clang, AddressSanitizer and UndefinedBehaviorSanitizer, and
# runs each for a while from its corpus. Ends with 1 at the first finding, whose input is left in BUILD_FOLDER/findings.
#
#   tests/fuzz.sh SECONDS_EACH [BUILD_FOLDER] [NAME ...]     (default: build/fuzz, every target)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
seconds=${1:?usage: tests/fuzz.sh SECONDS_EACH [BUILD_FOLDER] [NAME ...]}
build=${2:-$root/build/fuzz}
shift $(($# < 2 ? $# : 2))
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for file in "$root"/tests/fuzz/*_fuzz.c; do
        names+=("$(basename "$file" _fuzz.c)")
    done
fi
cd "$root"
cmake --preset default -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DTERN_CUDA=OFF \
    -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="-O1 -gline-tables-only" -DTERN_FUZZ=ON -DTERN_SANITIZE=address,undefined >/dev/null
cmake --build "$build" -j "$(nproc)" --target "${names[@]/#/fuzz_}" >"$build/fuzz.log" 2>&1 || { tail -n 50 "$build/fuzz.log"; exit 1; }
mkdir -p "$build/findings"

# What a fuzzer finds on the way stays in the build folder; the committed corpus is only read.
fuzz() {
    local name=$1 log=$build/fuzz-$1.log
    mkdir -p "$build/corpus/$name"
    if ! "$(find "$build" -type f -name "fuzz_$name" -perm -u+x | head -n 1)" -max_total_time="$seconds" -max_len=65536 \
        -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
        "$build/corpus/$name" "$root/tests/fuzz/corpus/$name" >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "fuzz $name: FAILED"
        return 1
    fi
    echo "fuzz $name: $seconds s, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
        "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log") MB"
}
export -f fuzz
export root build seconds
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz "$1"' fuzz '{}'
