#!/bin/bash
# with_model.sh - a model trained for a second, for a test of tern serve: with_model.sh TERN SCRIPT.py
# runs SCRIPT.py TERN MODEL CHAT_TEMPLATE in a folder of its own, and ends as it does.
. "$(dirname "$0")/../train/lib.sh"
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
export TERN_THREADS=1
make_text 60000 1 >train.txt
make_text 6000 2 >val.txt
"$TERN" tokenizer train --vocab-size 320 --special '<|endoftext|>' --special '<|im_start|>' --special '<|im_end|>' \
    --out tokenizer.json train.txt 2>/dev/null
config llama fp32 >config.yaml
ranks 0 config.yaml --run-dir run --set train.steps=60 --set checkpoint.every_steps=60 --set model.context=4096 ||
    fail "training"
cat >chat.jinja <<'JINJA'
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
JINJA
python3 -B "$here/$2" "$TERN" run chat.jinja
