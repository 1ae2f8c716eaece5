#!/bin/bash
# formats.sh - how long model files take: opening one of 16 GB, and exporting MODEL to each format and type.
#
#   bench/formats.sh MODEL [BUILD_FOLDER]      (default: build/release, built first; needs its tests for model_file_tool)
#
# Opening: best of 5 runs of a process that maps the file, checks its head and prints its list. Exports: one run each, to the
# folder TMPDIR; MB/s are of the weights as f32, so that types compare, and of the file that is written.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model=${1:?usage: bench/formats.sh MODEL [BUILD_FOLDER]}
build=${2:-$root/build/release}
if [ $# -lt 2 ]; then
    (cd "$root" && cmake --preset release -DTERN_TESTS=ON >/dev/null && cmake --build --preset release >/dev/null)
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

header='{"a":{"dtype":"U8","shape":[16000000000],"data_offsets":[0,16000000000]}}'
big=$scratch/big.safetensors
printf '%b%s' "\\x$(printf %02x "${#header}")\\0\\0\\0\\0\\0\\0\\0" "$header" >"$big"
truncate -s $((8 + ${#header} + 16000000000)) "$big" # a hole: nothing of it is read
best=999999
for _ in 1 2 3 4 5; do
    start=$(date +%s%N)
    "$build/tests/model_file_tool" list "$big" >/dev/null
    took=$((($(date +%s%N) - start) / 1000))
    best=$((took < best ? took : best))
done
printf 'open 16 GB                %8.1f ms, the whole process\n' "$(echo "$best / 1000" | bc -l)"
rm "$big"

export_as() { # FORMAT TYPE
    local out=$scratch/out line parameters seconds bytes
    line=$("$build/bin/tern" export "$model" "$out" --format "$1" --dtype "$2" 2>&1 | grep ' parameters, ' | tail -n 1)
    parameters=$(sed -E 's/.* ([0-9,]+) parameters.*/\1/; s/,//g' <<<"$line")
    seconds=$(sed -E 's/.* in ([0-9.]+) s.*/\1/' <<<"$line")
    bytes=$(du -sb "$out" | cut -f 1)
    awk -v f="$1" -v t="$2" -v p="$parameters" -v s="$seconds" -v b="$bytes" 'BEGIN {
        s = s < 0.05 ? 0.05 : s
        printf "export %-5s %-7s %8.1f s %8.0f MB/s of f32 %8.0f MB/s written\n", f, t, s, p * 4 / s / 1e6, b / s / 1e6 }'
    rm -rf "$out"
}
for type in f32 bf16; do export_as hf "$type"; done
for type in f32 f16 q8_0 q4_0 q4_k_m; do export_as gguf "$type"; done
