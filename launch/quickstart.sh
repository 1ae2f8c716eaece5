#!/bin/bash
# quickstart.sh - from a fresh Debian 12 to a model that was trained, interrupted, resumed and proved, in one command.
#
#   launch/quickstart.sh [WORK_FOLDER]          default: ./quickstart-run; may be run again: text and tokens are
#                                               kept, training starts afresh
#
# Needs root or sudo once, for Debian packages; about 12 minutes on two cores. Removes nothing it has not made.
set -euo pipefail
if [ $# -gt 1 ] || [[ ${1:-} == -* ]]; then
    sed -n 's/^# \{0,1\}//; 2,7p' "$0" >&2
    [ "${1:-}" = --help ] && exit 0
    exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=${1:-quickstart-run}
if [ -e "$work" ] && [ ! -e "$work/.tern-quickstart" ] && [ -n "$(ls -A "$work")" ]; then
    echo "quickstart: $work exists and is not of a quickstart; give another folder" >&2
    exit 2
fi
mkdir -p "$work"
work=$(cd "$work" && pwd)
touch "$work/.tern-quickstart"
cd "$root"
# shellcheck source=launch/packages.sh
. launch/packages.sh

steps=160          # of the whole run; a checkpoint every $every
every=20
half=80            # the first interruption
one_rank=10        # steps on one rank after it
proof=100          # the checkpoint that is compared with a run that was never interrupted

tern=$root/build/release/bin/tern
run=$work/run
reference=$work/reference
cores=$(nproc)
child=

# Two ranks on this machine, quietly: as root, in a container, and with fewer cores than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none

stage=0
say() {
    stage=$((stage + 1))
    printf '\n[%d/11  %d:%02d] %s\n' "$stage" $((SECONDS / 60)) $((SECONDS % 60)) "$*"
}

die() {
    echo "quickstart: $*" >&2
    exit 1
}

# Runs a command with its output in a file; shows the end of it only if it fails.
quietly() { # LOG COMMAND...
    local log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null || {
        tail -n 25 "$log" >&2
        die "'$1' failed; the whole of what it said is in $log"
    }
}

stop_child() {
    if [ -n "$child" ] && kill -0 "$child" 2>/dev/null; then
        kill -USR2 "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
}
trap stop_child EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Number of the last step in a run's log, 0 if there is none.
last_step() { # RUN
    local line
    line=$(tail -n 20 "$1/log.jsonl" 2>/dev/null | grep '"kind": *"step"' | tail -n 1) || true
    line=$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' <<<"$line")
    echo "${line:-0}"
}

# One number of the last step's record, as text.
last_value() { # RUN KEY
    tail -n 20 "$1/log.jsonl" 2>/dev/null | grep '"kind": *"step"' | tail -n 1 |
        sed -n 's/.*"'"$2"'": *\(-\{0,1\}[0-9][-+.eE0-9]*\).*/\1/p'
}

# A bar while the child trains; returns at step UNTIL, or when the child is gone. The whole is GOAL steps.
watch_run() { # RUN UNTIL [GOAL]
    local goal=${3:-$steps} now=0 shown=-1 rate eta filled width=30 line
    while kill -0 "$child" 2>/dev/null; do
        now=$(last_step "$1")
        [ "$now" -lt "$2" ] || break
        if [ "$now" -ne "$shown" ] && [ "$now" -gt 0 ]; then
            rate=$(last_value "$1" step_seconds)
            eta=$(awk -v n=$((goal - now)) -v s="${rate:-0}" 'BEGIN { t = int(n * s + 0.5); printf "%d:%02d", t / 60, t % 60 }')
            filled=$((now * width / goal))
            [ "$filled" -le "$width" ] || filled=$width
            line=$(printf 'step %3d/%d  loss %.3f  tok/s %.0f  eta %s' "$now" "$goal" "$(last_value "$1" loss)" \
                "$(last_value "$1" tokens_per_second)" "$eta")
            if [ -t 2 ]; then
                printf '\r\033[K  [%s%s] %s' "$(printf '%*s' "$filled" '' | tr ' ' '#')" \
                    "$(printf '%*s' $((width - filled)) '' | tr ' ' '.')" "$line" >&2
            elif [ $((now / 10)) -ne $((shown / 10)) ]; then
                echo "  $line" >&2
            fi
            shown=$now
        fi
        sleep 0.2
    done
    if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

# Starts training in the background; the child is mpirun, or tern itself for one rank.
start() { # RUN RANKS
    local threads=$((cores / $2))
    rm -f "$1/stop"
    export TERN_THREADS=$((threads > 0 ? threads : 1))
    if [ "$2" -eq 1 ]; then
        "$tern" train "$work/config.yaml" --run-dir "$1" >>"$1.log" 2>&1 </dev/null &
    else
        mpirun -np "$2" "$tern" train "$work/config.yaml" --run-dir "$1" >>"$1.log" 2>&1 </dev/null &
    fi
    child=$!
}

# Waits for the child and checks what counts: the launch record, not the exit code.
finish() { # RUN STATE
    local code=0 record
    wait "$child" || code=$?
    child=
    record=$(find "$1/launches" -name '*.json' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-) || true
    if [ -z "$record" ] || ! grep -q "\"state\": *\"$2\"" "$record"; then
        tail -n 25 "$1.log" >&2
        [ -z "$record" ] || cat "$record" >&2
        die "training ended with code $code and not as '$2'; see $1.log"
    fi
    echo "  exit code $code, launch record: $(tr -d '\n' <"$record" | cut -c 1-200)"
}

echo "Tern quickstart in $work"

say "Packages from Debian"
tern_install_packages "${TERN_PACKAGES_BUILD[@]}" "${TERN_PACKAGES_TEXT[@]}"
echo "  all there: ${TERN_PACKAGES_BUILD[*]} ${TERN_PACKAGES_TEXT[*]}"

say "Build the release preset"
quietly "$work/build.log" cmake --preset release
quietly "$work/build.log" cmake --build --preset release -j "$cores"
"$tern" --version | sed 's/^/  /'

say "The text: the King James Bible, 31,102 verses"
[ -s "$work/text.txt" ] || { bible -f gen1:1-rev22:21 >"$work/text.tmp" </dev/null && mv "$work/text.tmp" "$work/text.txt"; }
lines=$(wc -l <"$work/text.txt")
[ "$lines" -eq 31102 ] || die "$work/text.txt has $lines lines, expected 31102; remove it and start again"
echo "  $work/text.txt: $lines lines, $(wc -c <"$work/text.txt") bytes"

say "A tokenizer of 4096 tokens, and the text as tokens (2 % held out)"
[ -s "$work/tokenizer.json" ] ||
    quietly "$work/tokenizer.log" "$tern" tokenizer train --vocab-size 4096 --special '<|endoftext|>' \
        --out "$work/tokenizer.json" "$work/text.txt"
compgen -G "$work/tokens*.idx" >/dev/null ||
    quietly "$work/data.log" "$tern" data prepare --tokenizer "$work/tokenizer.json" --out "$work/tokens" \
        --val-fraction 0.02 "$work/text.txt"
(cd "$work" && wc -c tokens*) | sed 's/^/  /'

say "The model: a Llama of 9 million parameters, $steps steps of 4096 tokens"
rm -rf "$run" "$reference" "$run.log" "$reference.log"
cat >"$work/config.yaml" <<CONFIG
model:
  family: llama
  layers: 6
  width: 320
  heads: 5
  kv_heads: 5
  ff_width: 864
  context: 256
  vocab_size: 4096
  tied_embeddings: true
data:
  tokenizer: "$work/tokenizer.json"
  train: ["$work/tokens_train.bin"]
  val: ["$work/tokens_val.bin"]
train:
  steps: $steps
  sequence_length: 256
  global_batch: 16
  micro_batch: 4
  lanes: 4
  precision: bf16
  eval_every: 50
  eval_tokens: 16384
optimizer:
  lr: 2e-3
  lr_min: 2e-4
  schedule: cosine
  warmup_steps: 20
checkpoint:
  every_steps: $every
  keep: 10
CONFIG
sed 's/^/  /' "$work/config.yaml"

say "Train on two ranks; at step $half ask mpirun to stop (SIGUSR2), as a reclaimed machine would"
mkdir -p "$run" "$reference"
start "$run" 2
watch_run "$run" "$half"
kill -USR2 "$child" 2>/dev/null || true
finish "$run" reclaimed

say "Resume on ONE rank, without mpirun; after $one_rank steps ask by a file named 'stop'"
start "$run" 1
watch_run "$run" $(($(last_step "$run") + one_rank))
touch "$run/stop"
finish "$run" reclaimed

say "Resume on TWO ranks, to the end"
start "$run" 2
watch_run "$run" "$((steps + 1))"
finish "$run" finished
"$tern" checkpoint list "$run" | sed 's/^/  /'

say "The proof: the same run, never interrupted, up to the checkpoint of step $proof"
start "$reference" 2
watch_run "$reference" "$((proof + 1))" "$((proof + 1))"
touch "$reference/stop"
finish "$reference" reclaimed
digest() { # RUN
    "$tern" checkpoint digest "$(printf '%s/ckpt/step-%08d' "$1" "$proof")"
}
digest "$run" >"$work/digest.run"
digest "$reference" >"$work/digest.reference"
[ -s "$work/digest.run" ] || die "no digest of step $proof"
echo "  interrupted twice, on two, one and two ranks:"
sed 's/^/    /' "$work/digest.run"
echo "  never interrupted:"
sed 's/^/    /' "$work/digest.reference"
if ! cmp -s "$work/digest.run" "$work/digest.reference"; then
    die "the digests differ: the interrupted run is not the uninterrupted one. This is a bug; please report it with $work"
fi
echo "  Equal: parameters, optimizer and data cursor are the same to the last bit."

say "The loss curve"
launch/plot "$run" "$work/loss.svg" | sed 's/^/  /'

say "What it writes"
prompt="And the LORD said unto"
{
    printf '%s' "$prompt"
    "$tern" generate "$run" --prompt "$prompt" --max-tokens 80 --temperature 0.7 --top-k 40 --seed 1 2>>"$run.log"
    echo
} | fold -s -w 100 | sed 's/^/  /'

printf '\nDone in %d:%02d. Next: edit %s and run\n' $((SECONDS / 60)) $((SECONDS % 60)) "$work/config.yaml"
echo "  mpirun -np 2 $tern train $work/config.yaml --run-dir my-run"
