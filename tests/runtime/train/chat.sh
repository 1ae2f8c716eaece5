#!/bin/bash
# chat.sh - training on conversations: only the assistant's words are learned, the same bits on any number of ranks and
# in any interruption; prepared before or on the fly; the run answers by the template that it was trained with.
. "$(dirname "$0")/lib.sh"
export TERN_THREADS=1

conversations() { # COUNT SEED
    awk -v count="$1" -v seed="$2" 'BEGIN {
        n = split("light water earth day night man king house land son", w, " "); x = seed;
        for (i = 0; i < count; i++) {
            line = "{\"messages\": [";
            if (i % 4 == 0) line = line "{\"role\": \"system\", \"content\": \"Count.\"}, ";
            for (turn = 0; turn <= i % 3; turn++) {
                x = (x * 1103515245 + 12345) % 2147483648; k = int(x / 65536) % n + 1; c = int(x / 4096) % 4 + 1;
                answer = w[k]; for (j = 1; j < c; j++) answer = answer " " w[k];
                line = line (turn ? ", " : "") "{\"role\": \"user\", \"content\": \"say " w[k] " " c "\"}, " \
                    "{\"role\": \"assistant\", \"content\": \"" answer "\"}";
            }
            print line "]}";
        }
    }'
}
conversations 200 1 >chat.jsonl
conversations 40 2 >val.jsonl
echo '{"messages": [{"role": "user", "content": "nobody answers"}]}' >>chat.jsonl
"$TERN" tokenizer train --vocab-size 300 --special '<|endoftext|>' --special '<|im_start|>' --special '<|im_end|>' \
    --out tokenizer.json chat.jsonl 2>/dev/null
cat >chat_template.jinja <<'JINJA'
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
JINJA
echo '{"eos_token": "<|im_end|>"}' >tokenizer_config.json

chat_config() { # FAMILY
    config "$1" fp32 | sed -e 's/train.txt/chat.jsonl/; s/val.txt/val.jsonl/; s/^train:/  format: chat\ntrain:/' \
        -e 's/context: 32/context: 96/; s/sequence_length: 32/sequence_length: 96/; s/global_batch: 16/global_batch: 8/'
}

for family in gpt2 llama; do
    rm -rf reference run
    chat_config "$family" >chat.yaml
    ranks 0 chat.yaml --run-dir reference || fail "$family"
    grep -q "1 of 201 conversations are left out: the assistant says nothing" last.log || fail "the silent one is not named"
    grep -q '"step_allocations":0' reference/log.jsonl || fail "allocations inside a step"
    for n in 1 2 3; do
        ranks "$n" chat.yaml --run-dir run || fail "$family on $n ranks"
        [ "$(digest run)" = "$(digest reference)" ] || fail "$family: $n ranks differ"
        rm -rf run
    done
    TERN_FAULT=ckpt.shard@2:kill ranks 1 chat.yaml --run-dir run && fail "not killed"
    [ "$(cat run/ckpt/LATEST)" != step-00000020 ] || fail "killed at the end"
    ranks 2 chat.yaml --run-dir run || fail "$family: going on"
    [ "$(digest run)" = "$(digest reference)" ] || fail "$family: a killed run differs"
    rm -rf run
    echo "ok: $family"
done

# Prepared before: the same packs, the same run.
"$TERN" data prepare --format chat --tokenizer tokenizer.json --out ready chat.jsonl 2>last.log || fail "data prepare"
grep -q "tokens to learn" last.log || fail "data prepare says nothing of what is learned"
ranks 0 chat.yaml --run-dir run --set 'data.train=[ready]' || fail "prepared shards"
[ "$(digest run | cut -d ' ' -f 1-10)" = "$(digest reference | cut -d ' ' -f 1-10)" ] || fail "prepared shards differ"
echo "ok: prepared"

# The run has the template, and answers by it.
"$TERN" tokenizer template --tokenizer run --messages <(head -n 1 chat.jsonl) --generation-prompt >text || fail "template of a run"
tail -n 1 text | grep -q '^<|im_start|>assistant$' || fail "the template's text"
"$TERN" generate run --chat --system Count. --prompt "say light 2" --temperature 0 --max-tokens 8 --echo >text 2>last.log ||
    fail "generate --chat"
head -n 5 text | tr '\n' ' ' | grep -q '^<|im_start|>system Count.<|im_end|> <|im_start|>user say light 2<|im_end|> <|im_start|>assistant ' ||
    fail "generate --chat: $(cat text)"
echo "ok: answers"

# What is refused.
mv chat_template.jinja kept.jinja
expect 2 "has no chat template" -- "$TERN" train chat.yaml --run-dir other
expect 2 "has no chat template" -- "$TERN" data prepare --format chat --tokenizer tokenizer.json --out x chat.jsonl
echo '{% for m in messages %}{{ m.content }}{% include "x" %}{% endfor %}' >chat_template.jinja
expect 2 "chat_template.jinja: line 1, column 42: the tag {% include %} is not supported" -- "$TERN" train chat.yaml --run-dir other
echo '{% for m in messages %}{{ m.content }}{{ loop.last }}{% endfor %}' >chat_template.jinja
expect 2 "chat.jsonl: line 1: message 2: the chat template writes other text" -- "$TERN" train chat.yaml --run-dir other
mv kept.jinja chat_template.jinja
echo '{"messages": "x"}' >>val.jsonl
expect 2 "data.val: .*val.jsonl: line 41: messages: found a string" -- "$TERN" train chat.yaml --run-dir other
