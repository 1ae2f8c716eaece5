# lib.sh - what the tests of whole training runs share: a small text, tokenizer and config, ranks, digests.
# Sourced with the binary's path as $1. Everything happens in a folder of its own that is removed at the end.
set -euo pipefail
TERN=$(realpath "$1")
WORK=$(realpath "$(mktemp -d "${TMPDIR:-/tmp}/tern-test.XXXXXX")")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_base_warn_component_unused=0
# Open MPI unloads components that leak: a leak checker can name none of them, so it stays with single processes.
run=(env "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0" mpirun --oversubscribe --bind-to none)
export LSAN_OPTIONS=suppressions=$(realpath "${BASH_SOURCE[0]%/*}/../../lsan.supp"):print_suppressions=0
export TERN_COMM_TIMEOUT=${TERN_COMM_TIMEOUT:-60} TERN_MEM_FREEZE=abort
# Processes of this test that are still there: the binary under test, started from this folder.
left_behind() {
    local process
    for process in /proc/[0-9]*; do
        if [ "$(readlink "$process/cwd")" = "$WORK" ] && [ "$(readlink "$process/exe")" = "$TERN" ]; then
            echo "${process#/proc/}"
        fi
    done 2>/dev/null
}
kill_left_behind() {
    local pid
    for pid in $(left_behind); do
        kill -KILL "$pid" 2>/dev/null || true
    done
}
cleanup() {
    kill_left_behind
    rm -rf "$WORK"
}
trap cleanup EXIT
cd "$WORK"
# Snapshots in memory that outlive their processes do not outlive the test.
export TERN_SHM_DIR=$WORK/shm
mkdir "$TERN_SHM_DIR"

fail() {
    echo "FAILED: $*" >&2
    [ ! -f "$WORK/last.log" ] || tail -n 30 "$WORK/last.log" >&2
    exit 1
}

# A text with words, numbers and punctuation whose next word depends on the last one: something to learn.
make_text() { # BYTES SEED
    awk -v bytes="$1" -v seed="$2" 'BEGIN {
        n = split("the of and light water earth man day night said unto went king house land son people word", w, " ");
        x = seed; at = 1;
        while (length(out) + total < bytes) {
            x = (x * 1103515245 + 12345) % 2147483648;
            at = (at * 7 + int(x / 65536) % 3) % n + 1;
            piece = w[at] (int(x / 4096) % 11 == 0 ? ", " : int(x / 4096) % 17 == 0 ? ".\n" : " ");
            total += length(piece); printf "%s", piece;
        }
    }'
}

# expect CODE SENTENCE -- COMMAND...: exit code and a piece of what it says, within 20 s
expect() {
    local code=$1 sentence=$2 found=0
    shift 3
    timeout 20 "$@" >last.log 2>&1 || found=$?
    [ "$found" != 124 ] || fail "hung: $*"
    [ "$found" = "$code" ] || fail "exit code $found, expected $code: $*"
    grep -q -- "$sentence" last.log || fail "no '$sentence' in the output of: $*"
    echo "ok: $sentence"
}

make_data() {
    make_text 60000 1 >train.txt
    make_text 6000 2 >val.txt
    "$TERN" tokenizer train --vocab-size 320 --out tokenizer.json train.txt 2>/dev/null
}

# config FAMILY PRECISION >FILE: small and quick, with all that matters switched on; 8 lanes of two micro-batches.
config() {
    cat <<YAML
model:
  family: $1
  layers: 2
  width: 32
  heads: 4
$([ "$1" = gpt2 ] || echo "  kv_heads: 2")
  ff_width: 80
  context: 32
data:
  tokenizer: tokenizer.json
  train: [train.txt]
  val: [val.txt]
train:
  steps: 20
  sequence_length: 32
  global_batch: 16
  micro_batch: 1
  lanes: 8
  precision: $2
  eval_every: 10
  eval_tokens: 1024
optimizer:
  lr: 3e-3
  lr_min: 3e-4
  warmup_steps: 3
checkpoint:
  every_steps: 7
  keep: 2
YAML
}

# ranks N ARGUMENTS...: tern train on N ranks; output in last.log; the status of mpirun is only a hint.
ranks() {
    local n=$1
    shift
    if [ "$n" = 0 ]; then
        "$TERN" train "$@" >last.log 2>&1
    else
        "${run[@]}" -np "$n" "$TERN" train "$@" >last.log 2>&1
    fi
}

# The four digests of a checkpoint, on one line.
digest() { # RUN [STEP]
    local step=${2:-$(cat "$1/ckpt/LATEST")}
    "$TERN" checkpoint digest "$1/ckpt/$step" | tr '\n' ' '
}

# state of the newest launch record of a run
state() {
    sed -n 's/.*"state":"\([a-z_]*\)".*/\1/p' "$(ls -t "$1"/launches/*.json | head -n 1)"
}

# tune N BASE RUN ARGUMENTS...: tern finetune BASE tune.yaml on N ranks (0: no mpirun)
tune() {
    local n=$1 base=$2 to=$3
    shift 3
    if [ "$n" = 0 ]; then
        "$TERN" finetune "$base" tune.yaml --run-dir "$to" "$@" >last.log 2>&1
    else
        "${run[@]}" -np "$n" "$TERN" finetune "$base" tune.yaml --run-dir "$to" "$@" >last.log 2>&1
    fi
}
# What a user of tern finetune writes: no section model, no tokenizer.
tune_config() { # FAMILY PRECISION
    config "$1" "$2" | sed '/^model:/,/^data:/{/^data:/!d}; /^  tokenizer:/d; s/\[train.txt\]/[more.txt]/'
}
# Arguments for one step that changes nothing.
still=(--set train.steps=1 --set train.eval_every=1 --set optimizer.warmup_steps=0
    --set optimizer.lr=1e-30 --set optimizer.lr_min=0)
# Loss of the last evaluation of a run.
last_eval() { grep '"kind":"eval"' "$1/log.jsonl" | tail -n 1 | sed 's/.*"loss":\([^,]*\),.*/\1/'; }
