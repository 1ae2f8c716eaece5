#!/bin/bash
# tokenizer.sh - MB/s of text into ids on one thread: Tern against Hugging Face's `tokenizers`, in turn, in one run.
#
#   bench/tokenizer.sh [--rounds 5] [--peer PYTHON] [--build FOLDER]
#
# PYTHON is an interpreter that has `tokenizers`; default: tests/.venv (made by tests/oracles.sh). Builds the release preset
# first unless --build names a folder with bin/bench_tokenizer. The text is the King James Bible (Debian's bible-kjv).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
peer=tests/.venv/bin/python rounds=5 build=
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --peer) peer=$2 ;;
    --build) build=$2 ;;
    *) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0"; [ "$1" = --help ] && exit 0; exit 2 ;;
    esac
    shift 2
done
if [ -z "$build" ]; then
    build=build/release
    cmake --preset release >/dev/null
    cmake --build --preset release --target bench_tokenizer >/dev/null
fi
export TOKENIZERS_PARALLELISM=false RAYON_NUM_THREADS=1 PYTHONPATH=$root/tests/oracles PYTHONDONTWRITEBYTECODE=1
exec "$peer" bench/tokenizer.py "$build/bin/bench_tokenizer" "$rounds"
