#!/bin/bash
# reclaimed.sh - whole training runs that a cloud takes away: reclaimed.sh TERN [CASE...]; see reclaimed.py.
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
. "$here/../train/lib.sh"
export TERN_THREADS=1
shift
make_data
config llama bf16 >config.yaml
python3 -B "$here/reclaimed.py" "$TERN" "$@"
