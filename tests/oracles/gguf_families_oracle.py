#!/usr/bin/env python3
"""gguf_families_oracle.py - GGUF files that llama.cpp's own converter makes of small models of every family.

    gguf_families_oracle.py TERN_BINARY EMPTY_FOLDER [NAME ...]

The converter (from the source package of llama-cpp-python) writes each model of make_families.py as f32, without a
vocabulary; `tern score --ids` on that file must give Transformers' log-probabilities: metadata, names of tensors,
permuted heads, norms plus one, transposed matrices, factors of rotary positions and stacked experts are then read as they
are written. What the format itself cannot say is left out by name.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_families  # noqa: E402
from llama_source import llama_source  # noqa: E402

RELATIVE = 1e-4
TOKENS = 90

# What the converter or the format does not carry over, so that no reader could tell.
LEFT_OUT = {
    "gpt2": "the converter writes 4 * n_embd for n_inner",
    "llama_dynamic": "no dynamic scaling in GGUF",
    "llama_longrope": "the converter writes no factors for llama",
    "llama_yarn_mscale": "mscale and truncate are not written",
    "mistral": "GGUF's llama has no window",
    "mixtral_windowed": "GGUF's llama has no window",
    "qwen2_windowed": "GGUF's qwen2 has no window",
    "qwen3_biased": "GGUF's qwen3 has no biases",
    "gemma2": "GGUF's gemma2 has no query_pre_attn_scalar",
    "gemma3": "GGUF's gemma3 has no query_pre_attn_scalar",
    "gemma3_pattern": "GGUF's gemma3 has a window in five of six layers",
    "gemma3_images": "as gemma3_plain",
    "qwen3_moe_raw": "GGUF's qwen3moe makes the shares sum to 1",
}


def convert(folder, out):
    """As convert_hf_to_gguf.py --outtype f32 does, but for the vocabulary."""
    import conversion
    from conversion.base import ModelBase, ModelType
    from conversion import get_model_architecture, get_model_class
    hparams = ModelBase.load_hparams(Path(folder), False)
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT), mmproj=False)
    bare = type("Bare" + kind.__name__, (kind,), 
                {"model_arch": kind.model_arch, "set_vocab": lambda self: self._set_vocab_none()})
    with torch.inference_mode():
        bare(Path(folder), conversion.base.gguf.LlamaFileType.ALL_F32, Path(out), eager=True).write()


def scores(tern, path, ids, vocab):
    done = subprocess.run([tern, "score", path, "--ids", " ".join(map(str, ids)), "--top", str(vocab)],
                          capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.decode()}")
    rows = [json.loads(line)["top"] for line in done.stdout.decode().splitlines()]
    out = np.empty((len(ids), len(rows[0])))
    for at, row in enumerate(rows):
        for entry in row:
            out[at, entry[0]] = entry[2]
    return out


def check(tern, name, scratch):
    folder, path = os.path.join(scratch, name), os.path.join(scratch, name + ".gguf")
    os.makedirs(folder)
    net = make_families.build(name)
    net.save_pretrained(folder)
    make_families.tokenizer().save(os.path.join(folder, "tokenizer.json"))
    config = Path(folder, "config.json")
    config.write_text(json.dumps({**json.loads(config.read_text()), "n_ctx": 512}))  # an old name of GPT-2's that it wants
    convert(folder, path)
    vocab = net.config.vocab_size
    ids = np.random.Generator(np.random.PCG64(3)).integers(0, vocab - 1, TOKENS).tolist()
    found = scores(tern, path, ids, vocab)  # the converter leaves out a token of Gemma 3 that has no text
    with torch.no_grad():
        logits = net(torch.tensor([ids])).logits[0, :, :found.shape[1]].double()
    expected = torch.log_softmax(logits, -1).numpy()
    return max(np.linalg.norm(found[t] - expected[t]) / np.linalg.norm(expected[t]) for t in range(TOKENS))


def main():
    tern, scratch = sys.argv[1:3]
    root = str(llama_source())
    sys.path[:0] = [root, os.path.join(root, "gguf-py")]
    torch.set_num_threads(1)
    names = sys.argv[3:] or [name for name in make_families.CASES if name not in LEFT_OUT]
    bad = 0
    for name in names:
        try:
            worst = check(tern, name, scratch)
        except (RuntimeError, KeyError, NotImplementedError, AssertionError) as error:
            print(f"{name}: {type(error).__name__} {error}")
            worst = np.inf
        good = worst <= RELATIVE
        bad += not good
        print(f"{name}: {worst:.2e}{'' if good else '  BAD'}", flush=True)
    for name, reason in LEFT_OUT.items():
        print(f"{name}: left out, {reason}")
    print(f"gguf families: {len(names)} models, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
