#!/bin/bash
# pretrained.sh - models of other makers by the commands: Hugging Face folders in and out, GGUF out and in, and what is
# refused when files do not fit together.
tern=$1
golden=$(cd "$(dirname "$0")/../../golden/families" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export TERN_BACKEND=cpu TERN_THREADS=1
fail() { echo "FAILED: $*" >&2; exit 1; }

ids="5 9 60 30 42 17 3 50 22 8 9 10 11 12 13 40 41 2 2 19"
score() { "$tern" score "$1" --ids "$ids" --top 71; }

# Largest difference of any log-probability of two scores; prints it, fails beyond 1e-4.
near() {
    paste -d '\n' "$1" "$2" | sed 's/.*"top":\[//; s/\]\]}$//; s/\],\[/ /g; s/\[//g' | awk '
        NR % 2 == 1 { delete one; n = split($0, w, " "); for (i = 1; i <= n; i++) { split(w[i], p, ","); one[p[1]] = p[3] } }
        NR % 2 == 0 { m = split($0, w, " "); if (m != n) { print "other tokens"; exit 1 }
                      for (i = 1; i <= m; i++) { split(w[i], p, ","); d = one[p[1]] - p[3]; d = d < 0 ? -d : d
                                                 if (d > worst) worst = d } lines++ }
        END { print worst; exit !(lines == 20 && worst <= 1e-4) }'
}

# A folder written from a folder is the same model to the last bit; a GGUF file of it the same model.
hf=0
gguf=0
for folder in "$golden"/*; do
    name=${folder##*/}
    score "$folder" >"$name.score" 2>err || fail "$name: $(cat err)"
    "$tern" export "$folder" "$name.hf" --format hf --dtype f32 >/dev/null 2>err || fail "export $name: $(cat err)"
    score "$name.hf" >"$name.hf.score" 2>err || fail "$name.hf: $(cat err)"
    cmp -s "$name.score" "$name.hf.score" || fail "$name: its copy as a folder answers differently"
    hf=$((hf + 1))
    if "$tern" export "$folder" "$name.gguf" --format gguf --dtype f32 >/dev/null 2>err; then
        score "$name.gguf" >"$name.gguf.score" 2>err || fail "$name.gguf: $(cat err)"
        worst=$(near "$name.score" "$name.gguf.score") || fail "$name: its copy as GGUF answers differently: $worst"
        gguf=$((gguf + 1))
    else
        grep -q "GGUF has no key" err || fail "export $name as GGUF: $(cat err)"
    fi
done
[ "$hf" = 14 ] && [ "$gguf" -ge 6 ] || fail "$hf folders, $gguf GGUF files"
echo "ok: $hf models as folders, $gguf as GGUF files"

# Weights that stay in the type of their file: 16 bits and blocks of 8 keep the answer.
"$tern" export "$golden/llama_yarn_mscale" half.hf --format hf --dtype bf16 >/dev/null 2>err || fail "export bf16: $(cat err)"
score half.hf >half.score || fail "bf16"
best() { sed 's/.*"top":\[\[\([0-9]*\),.*/\1/' "$1"; }
same=$(paste <(best llama_yarn_mscale.score) <(best half.score) | awk '$1 == $2' | wc -l)
[ "$same" -ge 17 ] || fail "bf16 weights: only $same of 20 most likely tokens are the same"
echo "ok: bf16 weights"

# What does not fit together is refused by name, with status 2, and whatever a config asks for is not allocated. (A build
# with sanitizers takes its shadow memory and cannot be held to a limit.)
limit=400000
{ (ulimit -v $limit && "$tern" --version >/dev/null 2>&1); } 2>/dev/null || limit=unlimited
base=$golden/mistral
broken() { # NAME SED_SCRIPT WORDS...
    local name=$1 script=$2
    shift 2
    rm -rf "$name"
    mkdir "$name"
    cp "$base/model.safetensors" "$name/"
    sed "$script" "$base/config.json" >"$name/config.json"
    (ulimit -v $limit && "$tern" score "$name" --ids "1 2" >out 2>err)
    [ $? = 2 ] || fail "$name: status is not 2: $(cat out err)"
    for word in "$@"; do
        grep -qF -- "$word" err || fail "$name: '$word' is not in: $(cat err)"
    done
}
broken more_layers 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' "model.layers.2." "is missing" "expected it with shape"
broken fewer_layers 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' "model.layers.1." "expected none" "at byte"
broken wider 's/"hidden_size": 24/"hidden_size": 32/' "found shape [71, 24]" "expected [71, 32]"
broken other_ff 's/"intermediate_size": 28/"intermediate_size": 30/' "mlp." "found shape" "expected"
broken other_vocab 's/"vocab_size": 71/"vocab_size": 72/' "model.embed_tokens.weight" "found shape [71, 24]" "expected [72, 24]"
broken more_heads 's/"num_key_value_heads": 2/"num_key_value_heads": 4/' "_proj.weight" "found shape" "expected"
broken huge 's/"vocab_size": 71/"vocab_size": 16000000/' "expected those of a model of"
broken deep 's/"num_hidden_layers": 2/"num_hidden_layers": 1024/' "expected those of a model of" "in 9219 tensors"
broken immense 's/"vocab_size": 71/"vocab_size": 16000000/; s/"hidden_size": 24/"hidden_size": 131072/;
    s/"intermediate_size": 28/"intermediate_size": 1048576/; s/"num_hidden_layers": 2/"num_hidden_layers": 1024/' "expected those of a model of"
base=$golden/mixtral
broken many 's/"num_local_experts": 5/"num_local_experts": 1024/; s/"num_hidden_layers": 2/"num_hidden_layers": 1024/' "expected those of a model of"
base=$golden/mistral
broken biased 's/MistralForCausalLM/Qwen2ForCausalLM/' "self_attn.q_proj.bias is missing"
broken normed 's/MistralForCausalLM/Qwen3ForCausalLM/' "self_attn.q_norm.weight is missing"
broken gemma 's/MistralForCausalLM/Gemma2ForCausalLM/' "is missing"
broken gpt 's/MistralForCausalLM/GPT2LMHeadModel/' "key 'n_layer'" "found nothing"
broken unknown 's/MistralForCausalLM/MambaForCausalLM/' "found 'MambaForCausalLM'" "expected one of"
broken text 's/"hidden_size": 24/"hidden_size": "24"/' "key 'hidden_size'" "found '24'"
broken comma 's/"hidden_size": 24,/"hidden_size": 24/' "config.json" "line"
broken tied 's/"tie_word_embeddings": false/"tie_word_embeddings": 2/' "tie_word_embeddings" "true or false"
mkdir no_weights && cp "$base/config.json" no_weights/
"$tern" score no_weights --ids "1 2" >out 2>err && fail "a folder without weights"
grep -q "model.safetensors" err || fail "no weights: $(cat err)"
mkdir empty && "$tern" score empty --ids "1 2" >out 2>err
[ $? = 2 ] && grep -q "nor a Hugging Face folder" err || fail "an empty folder: $(cat err)"
head -c 100 /dev/urandom >noise.gguf && "$tern" score noise.gguf --ids "1 2" >out 2>err
[ $? = 2 ] || fail "a file of noise: $(cat err)"
"$tern" generate "$golden/mistral" --prompt hello >out 2>err
[ $? = 2 ] && grep -q "tokenizer.json" err || fail "no tokenizer: $(cat err)"
for ids in "" "1 x" "71" "-1" "1,2" "99999999999999999999"; do
    "$tern" score "$golden/mistral" --ids "$ids" >out 2>err
    [ $? = 2 ] || fail "--ids '$ids': $(cat out err)"
done
echo "ok: refusals"
