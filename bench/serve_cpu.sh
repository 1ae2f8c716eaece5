#!/bin/bash
# serve_cpu.sh - the model's pass on the CPU against llama.cpp on the same file, in turns, so that what else the machine does
# falls on both: prefill of 512 tokens, decode of one sequence, decode of 16 at once. No tokenizer, sampling or HTTP.
#
#   bench/serve_cpu.sh MODEL.gguf... [--rounds 5] [--threads 2] [--pp 512] [--tg 64] [--batch 16] [--json FILE]
#                      [--build FOLDER] [--python PYTHON]
#
# Prints for each of the three the best and the median of both, their ratio (of the medians), and our share of the machine's
# own peak (int8 operations/s, bytes/s read), measured in the same rounds. PYTHON has llama_cpp, built natively for this
# machine; without it only our side is measured.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ $# -eq 0 ] || [[ " $* " == *" --help "* ]]; then
    sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0"
    [ $# -ne 0 ] && exit 0
    exit 2
fi
if [[ " $* " != *" --build"* ]]; then
    (cd "$root" && cmake --preset release && cmake --build --preset release --target tern) >/dev/null
    set -- "$@" --build "$root/build/release"
fi
exec python3 -B "$root/bench/serve_cpu.py" "$@"
