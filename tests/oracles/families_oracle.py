#!/usr/bin/env python3
"""families_oracle.py - Tern's answers against Transformers', for every family and odd size.

    families_oracle.py TERN_BINARY EMPTY_FOLDER [NAME ...]

For each model of make_families.py, in fp32, on each CPU backend: the log-probabilities of the whole vocabulary at every
position of several prompts (prefill in pieces of 64 tokens) differ by at most 1e-4 of their norm, and 200 tokens written
greedily, one at a time, are the same. Then tern rewrites the config (export of the same model is left to its own oracle).
"""

import json
import os
import subprocess
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_families  # noqa: E402

RELATIVE = 1e-4
TOKENS = 200
PROMPTS = ["In the beginning God created the heaven and the earth.", "a",
           "And the earth was without form, and void; and darkness was upon the face of the deep. And the Spirit of God "
           "moved upon the face of the waters. \u00e9\u4e16\u754c \U0001f30d And God said, Let there be light: and there was light."]
BACKENDS = tuple(os.environ.get("TERN_BACKENDS", "cpu ref").split())


def run(tern, backend, *args):
    env = {**os.environ, "TERN_BACKEND": backend}
    done = subprocess.run([tern, *args], env=env, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"tern {' '.join(args)}: exit {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def scores(tern, backend, folder, prompt, vocab):
    """Log-probabilities (T, V) and the ids."""
    lines = run(tern, backend, "score", folder, "--prompt", prompt, "--top", str(vocab)).decode().splitlines()
    out = np.empty((len(lines), vocab))
    ids = []
    for at, line in enumerate(lines):
        row = json.loads(line)
        ids.append(row["id"])
        assert len(row["top"]) == vocab
        for entry in row["top"]:
            out[at, entry[0]] = entry[2]
    return out, ids


def check_logits(tern, backend, name, folder):
    """Each prompt with a fresh model: with dynamic scaling Transformers' keeps the longest length that it has seen."""
    worst = 0.0
    net = make_families.build(name)
    vocab = net.config.get_text_config().vocab_size
    for prompt in PROMPTS:
        net = make_families.build(name) if "dynamic" in name else net
        found, ids = scores(tern, backend, folder, prompt, vocab)
        with torch.no_grad():
            logits = net(torch.tensor([ids])).logits[0].double()
        expected = torch.log_softmax(logits, -1).numpy()
        for at in range(len(ids)):
            error = np.linalg.norm(found[at] - expected[at]) / np.linalg.norm(expected[at])
            worst = max(worst, error if np.isfinite(error) else np.inf)
    return worst


def check_greedy(tern, backend, name, folder, tokenizer):
    net = make_families.build(name)
    prompt = PROMPTS[0]
    ids = tokenizer.encode(prompt).ids
    with torch.no_grad():
        out = net.generate(torch.tensor([ids]), attention_mask=torch.ones((1, len(ids)), dtype=torch.long),
                           do_sample=False, max_new_tokens=TOKENS)[0].tolist()
    fresh = out[len(ids):]
    if fresh and fresh[-1] == 2:
        fresh.pop()
    expected = tokenizer.decode(fresh, skip_special_tokens=False)
    found = run(tern, backend, "generate", folder, "--prompt", prompt, "--temperature", "0", "--max-tokens",
                str(TOKENS)).decode()
    return found, expected


def main():
    tern, scratch = sys.argv[1:3]
    names = sys.argv[3:] or list(make_families.CASES)
    torch.set_num_threads(1)
    bad = 0
    tokenizer = make_families.tokenizer()
    for name in names:
        folder = os.path.join(scratch, name)
        os.makedirs(folder)
        make_families.build(name).save_pretrained(folder)
        tokenizer.save(os.path.join(folder, "tokenizer.json"))
        for backend in BACKENDS:
            worst = check_logits(tern, backend, name, folder)
            found, expected = check_greedy(tern, backend, name, folder, tokenizer)
            same = found.rstrip("\n") == expected.rstrip("\n")
            good = worst <= RELATIVE and same
            bad += not good
            print(f"{name} on {backend}: logits {worst:.2e}, greedy text {'equal' if same else 'DIFFERS'}"
                  f"{'' if good else '  BAD'}", flush=True)
            if not same:
                print(f"  found    {found!r}\n  expected {expected!r}")
    print(f"families: {len(names)} models, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
