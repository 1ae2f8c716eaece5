#!/usr/bin/env python3
"""export_oracle.py - what `tern export` writes, as those it is for read it.

    export_oracle.py TERN_BINARY EMPTY_FOLDER [NAME ...]

For each model of make_families.py (small random ones of every family):
1. A Hugging Face folder: AutoModelForCausalLM loads it to the same logits, bit for bit, AutoTokenizer to the same ids.
2. A GGUF file in f32: gguf.GGUFReader reads it, `tern score` answers as for the folder, and exported back to a folder
   it gives the tensors that it was made of. What GGUF cannot express is refused by name.
3. llama.cpp loads that GGUF file and gives the logits of Transformers, where there is a Python that has llama_cpp
   (tests/oracles.sh --llama; this part is left out otherwise, and says so).
Then SmolLM2-135M from its GGUF file: a folder in f32 whose logits are those of the dequantised weights, and files of
each written type that `tern eval` finds about as good.
"""
import json
import os
import subprocess
import sys

import gguf
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_families  # noqa: E402
import model_files  # noqa: E402
from llama_source import llama_python  # noqa: E402

PROMPT = "In the beginning God created the heaven and the earth. And the earth was without form, and void."
# What GGUF has no words for, and a part of the sentence that says so.
REFUSED = {
    "llama_dynamic": "rotary positions of type dynamic",
    "llama_yarn_mscale": "yarn with truncate = false",
    "qwen2_windowed": "a sliding window in some of the layers",
    "gemma2": "this query_pre_attn_scalar",
    "gemma3": "this query_pre_attn_scalar",
    "qwen3_biased": "biases at the end of attention",
    "gemma3_pattern": "biases at the end of attention",
    "qwen3_moe_raw": "shares are not made to sum to 1",
}
NOT_IN_LLAMA_CPP = {"mistral", "mixtral_windowed", "phi3"}  # windows that it does not look at
# Values that config.json has in other words, and that come out rounded differently.
REWORDED = {"llama_yarn_mscale"}
LLAMA = """
import json, sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=256, logits_all=True, verbose=False, n_threads=1, type_k=0, type_v=0)
ids = json.loads(sys.argv[2])
model.eval(ids)
print(json.dumps([[float(x) for x in row] for row in model.scores[:len(ids)]]))
"""


# Models whose queries are scaled as GGUF's readers take for granted, and ones wide enough for k-blocks.
def more_cases():
    rope, sized = make_families.rope, make_families.sized
    both = {"full_attention": rope("linear", rope_theta=1e6, factor=8.0), "sliding_attention": rope("default")}
    make_families.CASES.update({
        "gemma2_plain": lambda: sized(transformers.Gemma2Config, head_dim=20, sliding_window=6, query_pre_attn_scalar=20,
                                      attn_logit_softcapping=3.0, final_logit_softcapping=4.0,
                                      rope_parameters=rope("default")),
        "gemma3_plain": lambda: sized(transformers.Gemma3TextConfig, head_dim=20, num_key_value_heads=1,
                                      sliding_window=5, num_hidden_layers=7, query_pre_attn_scalar=20,
                                      rope_parameters={**both, "full_attention": rope("default", rope_theta=1e6)}),
    })


WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
MIXES = {
    "llama_wide": lambda: make_families.llama(**WIDE, num_hidden_layers=9, tie_word_embeddings=True),
    "qwen3_wide": lambda: make_families.sized(transformers.Qwen3Config, **WIDE, head_dim=64),
    "gemma_wide": lambda: make_families.sized(transformers.GemmaConfig, **WIDE, head_dim=64,
                                              hidden_act="gelu_pytorch_tanh"),
    "gpt2_wide": lambda: make_families.gpt2(n_embd=256, n_inner=512),
    "mixtral_wide": lambda: make_families.sized(transformers.MixtralConfig, **WIDE, num_local_experts=8,
                                                num_experts_per_tok=2, sliding_window=None),
    "llama_odd": lambda: make_families.llama(hidden_size=96, intermediate_size=160),
}
QUANTIZE = """
import sys, ctypes, llama_cpp
parameters = llama_cpp.llama_model_quantize_default_params()
parameters.ftype = int(sys.argv[3])
parameters.nthread = 1
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(parameters)))
"""


def require(condition, *words):
    if not condition:
        sys.exit("export_oracle: " + " ".join(str(word) for word in words))


def run(tern, *words, expect=0):
    done = subprocess.run([tern, *words], capture_output=True, text=True, env={**os.environ, "TERN_BACKEND": "cpu"})
    require(done.returncode == expect, words, "ended with", done.returncode, done.stderr)
    return done.stdout if expect == 0 else done.stderr


def logits_of(net, ids):
    with torch.no_grad():
        return net(torch.tensor([ids])).logits[0].numpy()


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def scores(tern, model, ids, vocab, top=None):
    words = ["score", model, "--ids", " ".join(map(str, ids)), "--top", str(top or vocab)]
    rows = [json.loads(line) for line in run(tern, *words).splitlines()]
    out = np.full((len(rows), vocab), -np.inf)
    for at, row in enumerate(rows):
        for entry in row["top"]:
            out[at, entry[0]] = entry[2]
    return out


def difference(found, expected):
    return float(np.max(np.linalg.norm(found - expected, axis=-1) / np.linalg.norm(expected, axis=-1)))


def check_folder(tern, source, out):
    run(tern, "export", source, out, "--format", "hf")
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer.encode(PROMPT)
    require(ids == AutoTokenizer.from_pretrained(source).encode(PROMPT), out, "tokens differ")
    found, expected = logits_of(load(out), ids), logits_of(load(source), ids)
    worst = difference(found, expected)
    require(worst == 0 or (worst < 1e-5 and os.path.basename(source) in REWORDED), out, "logits differ by", worst)
    return ids, expected


def check_back(tern, source, file, out):
    """GGUF to a folder again: the tensors are the same, norms that were stored plus one to rounding."""
    run(tern, "export", file, out, "--format", "hf")
    first, second = load_file(source + "/model.safetensors"), load_file(out + "/model.safetensors")
    # of a model with images the text part
    first = {name.removeprefix("language_model."): values for name, values in first.items()
             if not name.startswith(("vision_tower.", "multi_modal_projector."))}
    require(sorted(first) == sorted(second), out, "has tensors", sorted(set(first) ^ set(second)))
    for name, values in first.items():
        worst = float(np.abs(values.astype(np.float32) - second[name]).max())
        require(worst == 0 or (worst < 3e-7 and "norm" in name), out, name, "differs by", worst)


def check_gguf(tern, source, file, ids, expected):
    run(tern, "export", source, file, "--format", "gguf", "--dtype", "f32")
    reader = gguf.GGUFReader(file)
    require(all(t.tensor_type == gguf.GGMLQuantizationType.F32 for t in reader.tensors), file, "has other types")
    ours = scores(tern, file, ids, expected.shape[1])
    wanted = torch.log_softmax(torch.from_numpy(expected).double(), -1).numpy()
    worst = difference(ours, wanted)
    require(worst < 1e-4, file, "tern's answers differ by", worst)
    return worst


def check_llama(python, file, ids, expected):
    done = subprocess.run([python, "-c", LLAMA, file, json.dumps(ids)], capture_output=True, text=True)
    require(done.returncode == 0, "llama.cpp refuses", file, done.stderr[-2000:])
    found = np.array(json.loads(done.stdout.splitlines()[-1]))
    worst = difference(found, expected)
    # GELU comes from a table of f16 there
    has_gelu = any(word in os.path.basename(file) for word in ("gpt2", "gemma"))
    require(worst < (2e-3 if has_gelu else 5e-5), file, "llama.cpp's answers differ by", worst)
    return worst


def check_family(tern, scratch, name, python):
    # llama.cpp looks for tokens of the real Phi-3 when a file's name has "phi3" in it
    source = os.path.join(scratch, name.replace("phi3", "fi3"))
    os.makedirs(source)
    make_families.build(name).save_pretrained(source)
    make_families.tokenizer().save(source + "/tokenizer.json")
    with open(source + "/tokenizer_config.json", "w") as config:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"}, config)
    ids, expected = check_folder(tern, source, source + "-hf")
    file = source + ".gguf"
    if name in REFUSED:
        said = run(tern, "export", source, file, "--format", "gguf", expect=2)
        require(REFUSED[name] in said and not os.path.exists(file), name, "said", said)
        print(f"export_oracle: {name}: folder equal, GGUF refused", flush=True)
        return
    worst = check_gguf(tern, source, file, ids, expected)
    check_back(tern, source, file, source + "-back")
    words = f"export_oracle: {name}: folder equal, GGUF {worst:.1e}, and back"
    if python and name not in NOT_IN_LLAMA_CPP:
        if name == "phi3_longrope":  # it picks the set of factors by the size of its cache: both take the long ones
            ids = ids + ids
            expected = logits_of(load(source), ids)
        words += f", llama.cpp {check_llama(python, file, ids, expected):.1e}"
    print(words, flush=True)


def check_mix(tern, scratch, name, python):
    """Each tensor gets the type that llama.cpp's own tool gives it."""
    source = os.path.join(scratch, name)
    make_families.CASES[name] = MIXES[name]
    make_families.build(name).save_pretrained(source)
    make_families.tokenizer().save(source + "/tokenizer.json")
    run(tern, "export", source, source + ".gguf", "--format", "gguf", "--dtype", "f32")
    for dtype, number in (("q4_k_m", 15), ("q4_0", 2), ("q8_0", 7)):
        ours, theirs = f"{source}-{dtype}.gguf", f"{source}-{dtype}-llama.gguf"
        run(tern, "export", source, ours, "--format", "gguf", "--dtype", dtype)
        done = subprocess.run([python, "-c", QUANTIZE, source + ".gguf", theirs, str(number)], capture_output=True)
        require(done.returncode == 0, "llama.cpp cannot quantise", source, done.stderr[-2000:])
        first = {t.name: t.tensor_type.name for t in gguf.GGUFReader(ours).tensors}
        second = {t.name: t.tensor_type.name for t in gguf.GGUFReader(theirs).tensors}
        other = {n: (first.get(n), second.get(n)) for n in first.keys() | second.keys() if first.get(n) != second.get(n)}
        require(not other, name, dtype, "ours and llama.cpp's types:", other)
        print(f"export_oracle: {name} as {dtype}: {len(first)} types as llama.cpp has them, of "
              f"{', '.join(sorted(set(first.values())))}", flush=True)


def perplexity(tern, model, text):
    return json.loads(run(tern, "eval", model, "--text", text, "--context", "256"))["perplexity"]


def check_smollm2(tern, scratch):
    source = model_files.smollm2()
    text = os.path.join(scratch, "text.txt")
    with open(text, "w") as out:
        out.write((__doc__ + PROMPT) * 3)
    before = perplexity(tern, source, text)
    folder = os.path.join(scratch, "smollm2")
    run(tern, "export", source, folder, "--format", "hf")
    tokenizer, net = AutoTokenizer.from_pretrained(folder), load(folder)
    ids = tokenizer.encode(PROMPT)
    found = scores(tern, source, ids, net.config.vocab_size, top=1000)
    expected = torch.log_softmax(torch.from_numpy(logits_of(net, ids)), -1).numpy()
    known = np.isfinite(found)  # the thousand most likely
    worst = float(np.abs(found[known] - expected[known]).max())
    require(worst < 2e-3, "SmolLM2 as a folder differs by", worst)
    again = os.path.join(scratch, "again.gguf")
    run(tern, "export", folder, again, "--format", "gguf", "--dtype", "f16")
    require(perplexity(tern, again, text) / before < 1.01, "SmolLM2 from GGUF to a folder to GGUF is worse")
    os.remove(again)
    print(f"export_oracle: SmolLM2 as a folder: {worst:.1e} from the file it is from, {len(ids)} tokens alike", flush=True)
    for dtype, most in (("f32", 1.001), ("f16", 1.01), ("bf16", 1.01), ("q8_0", 1.01), ("q4_k_m", 1.15), ("q4_0", 1.40)):
        file = os.path.join(scratch, dtype + ".gguf")
        run(tern, "export", source, file, "--format", "gguf", "--dtype", dtype)
        after = perplexity(tern, file, text)
        require(after / before < most, dtype, "has perplexity", after, "the file it is from", before)
        print(f"export_oracle: SmolLM2 as {dtype}: {os.path.getsize(file) / 1e6:.0f} MB, perplexity {after:.4f} "
              f"({before:.4f})", flush=True)
        os.remove(file)


def main():
    tern, scratch = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    python = llama_python()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    more_cases()
    for name in sys.argv[3:] or list(make_families.CASES):
        check_family(tern, scratch, name, python)
    for name in MIXES if python and len(sys.argv) == 3 else ():
        check_mix(tern, scratch, name, python)
    if not python:
        print("export_oracle: llama.cpp was not asked: tests/oracles.sh --llama installs it")
    if len(sys.argv) == 3:
        check_smollm2(tern, scratch)


if __name__ == "__main__":
    main()
