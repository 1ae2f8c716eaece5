#!/usr/bin/env python3
"""make_golden.py - tiny models whose every number PyTorch has computed, for the C tests to agree with.

    make_golden.py OUT_FOLDER                  writes one NAME.safetensors a case
    make_golden.py --compare FOLDER            makes them afresh and compares with those in FOLDER

The families' own classes in Transformers are the definition. Each case is run twice: in float64, with every place where
Transformers falls back to float32 (RMSNorm, rotary angles, softmax) replaced by a float64 formula of our own, and in
float32 with Transformers untouched. The two must agree to 1e-5; what is stored is the float64 run, rounded to float32.

A file holds, as F32 or I32, little-endian, row-major:
    <Hugging Face name>         the weights before training
    grad.<Hugging Face name>    d loss / d weight; a tied head has no entry of its own
    ids, targets  (B, T) I32    input tokens; the token to predict at each place, -1 where none counts
    logits        (B, T, V)
    loss          (1)           mean of -log p over the targets that count
    losses        (10)          loss before each of ten AdamW steps on that same batch
    grad_norms    (10)          global norm of the gradient of each of those steps, before clipping
and as metadata (strings): "model" and "optimizer", JSON objects with the keys of a Tern configuration file.
"""

import argparse
import contextlib
import json
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import (AutoModelForCausalLM, Gemma2Config, Gemma3TextConfig, GemmaConfig, GPT2Config, GPT2LMHeadModel,
                          LlamaConfig, LlamaForCausalLM, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config)

FILE_BYTES_MAX = 600_000
STEPS = 10
AGREE = 1e-5
# Between machines: float64 sums differ by their order only, which is lost in the rounding to float32.
COMPARE = 2e-6
COMPUTED = ("logits", "loss", "losses", "grad_norms")
OPTIMIZER = {"name": "adamw", "lr": 1e-3, "schedule": "constant", "warmup_steps": 0, "betas": [0.9, 0.95],
             "eps": 1e-8, "weight_decay": 0.1, "clip_grad_norm": 1.0}

CASES = {
    # Every bias, learned positions, a feed-forward width that is no multiple of 16.
    "gpt2": {
        "seed": 11, "batch": 2, "sequence": 24, "ignored": 0,
        "model": {"family": "gpt2", "layers": 2, "width": 48, "heads": 4, "kv_heads": 4, "head_width": 12,
                  "ff_width": 140, "context": 32, "vocab_size": 199, "tied_embeddings": True, "norm_eps": 1e-5},
    },
    # Grouped queries (three heads share one), a head of its own, clipping that bites.
    "llama_untied": {
        "seed": 12, "batch": 2, "sequence": 27, "ignored": 0,
        "model": {"family": "llama", "layers": 2, "width": 48, "heads": 6, "kv_heads": 2, "head_width": 8,
                  "ff_width": 88, "context": 64, "vocab_size": 199, "tied_embeddings": False, "norm_eps": 1e-5,
                  "rope_theta": 10000.0},
    },
    # Tied, and targets that do not count: the loss is divided by those that do.
    "llama_tied": {
        "seed": 13, "batch": 2, "sequence": 24, "ignored": 7,
        "model": {"family": "llama", "layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "head_width": 16,
                  "ff_width": 72, "context": 48, "vocab_size": 131, "tied_embeddings": True, "norm_eps": 1e-5,
                  "rope_theta": 10000.0},
    },
    # Llama 3's frequency scaling with an original context so short that all three of its ranges occur.
    "llama_rope3": {
        "seed": 14, "batch": 2, "sequence": 33, "ignored": 0,
        "model": {"family": "llama", "layers": 2, "width": 64, "heads": 4, "kv_heads": 1, "head_width": 16,
                  "ff_width": 76, "context": 128, "vocab_size": 157, "tied_embeddings": True, "norm_eps": 1e-5,
                  "rope_theta": 10000.0, "rope_scaling": "llama3", "rope_factor": 8.0, "rope_low_freq_factor": 1.0,
                  "rope_high_freq_factor": 4.0, "rope_original_context": 64},
    },
    # A window shorter than the sequence, heads that are no share of the width.
    "mistral": {
        "seed": 15, "batch": 2, "sequence": 24, "ignored": 3,
        "model": {"family": "mistral", "layers": 2, "width": 40, "heads": 3, "kv_heads": 1, "head_width": 12,
                  "ff_width": 52, "context": 64, "vocab_size": 89, "tied_embeddings": False, "norm_eps": 1e-6,
                  "rope_theta": 10000.0, "window": 7},
    },
    # Biases of queries, keys and values only.
    "qwen2": {
        "seed": 16, "batch": 2, "sequence": 21, "ignored": 0,
        "model": {"family": "qwen2", "layers": 2, "width": 40, "heads": 4, "kv_heads": 2, "head_width": 10,
                  "ff_width": 52, "context": 64, "vocab_size": 89, "tied_embeddings": True, "norm_eps": 1e-6,
                  "rope_theta": 10000.0},
    },
    # Norms of every head of queries and keys.
    "qwen3": {
        "seed": 17, "batch": 2, "sequence": 23, "ignored": 0,
        "model": {"family": "qwen3", "layers": 2, "width": 40, "heads": 4, "kv_heads": 1, "head_width": 14,
                  "ff_width": 52, "context": 64, "vocab_size": 89, "tied_embeddings": False, "norm_eps": 1e-6,
                  "rope_theta": 1000000.0},
    },
    # Norms that count from 1, scaled embeddings, a gate of GELU.
    "gemma": {
        "seed": 21, "batch": 2, "sequence": 20, "ignored": 0,
        "model": {"family": "gemma", "layers": 2, "width": 24, "heads": 2, "kv_heads": 1, "head_width": 16,
                  "ff_width": 40, "context": 64, "vocab_size": 67, "tied_embeddings": True, "norm_eps": 1e-6,
                  "rope_theta": 10000.0},
    },
    # Caps that bend scores and logits, four norms a layer that count from 1, windows on every other layer.
    "gemma2": {
        "seed": 18, "batch": 2, "sequence": 24, "ignored": 0,
        "model": {"family": "gemma2", "layers": 2, "width": 40, "heads": 4, "kv_heads": 2, "head_width": 12,
                  "ff_width": 52, "context": 64, "vocab_size": 89, "tied_embeddings": True, "norm_eps": 1e-6,
                  "rope_theta": 10000.0, "window": 6, "window_period": 2, "query_scale": 17 ** -0.5,
                  "attention_softcap": 3.0, "logit_softcap": 8.0},
    },
    # Two bases of rotary positions, windows on two layers of three, norms of heads besides.
    "gemma3": {
        "seed": 19, "batch": 2, "sequence": 24, "ignored": 5,
        "model": {"family": "gemma3", "layers": 3, "width": 32, "heads": 4, "kv_heads": 1, "head_width": 12,
                  "ff_width": 44, "context": 64, "vocab_size": 71, "tied_embeddings": True, "norm_eps": 1e-6,
                  "rope_theta": 1000000.0, "rope_theta_local": 10000.0, "window": 5, "window_period": 3,
                  "query_scale": 24 ** -0.5},
    },
    # Positions turn three quarters of a head; fused tensors.
    "phi3": {
        "seed": 20, "batch": 2, "sequence": 22, "ignored": 0,
        "model": {"family": "phi3", "layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "head_width": 16,
                  "ff_width": 44, "context": 64, "vocab_size": 89, "tied_embeddings": False, "norm_eps": 1e-5,
                  "rope_theta": 10000.0, "rope_width": 12},
    },
}
COUNTS_FROM_ONE = ("gemma", "gemma2", "gemma3")  # norms multiply by 1 + weight


def rope_frequencies(model, theta):
    """float64 (R/2): the angle one position turns each pair by; Llama 3.1's published rule where it is asked for."""
    half = model.get("rope_width", model["head_width"]) // 2
    frequencies = []
    for i in range(half):
        f = theta ** (-i / half)
        if model.get("rope_scaling") == "llama3":
            turns = model["rope_original_context"] * f / (2 * math.pi)
            low, high = model["rope_low_freq_factor"], model["rope_high_freq_factor"]
            keep = min(1.0, max(0.0, (turns - low) / (high - low)))
            f = keep * f + (1 - keep) * f / model["rope_factor"]
        frequencies.append(f)
    return torch.tensor(frequencies, dtype=torch.float64)


class Norm64(torch.nn.Module):
    """RMSNorm without the detour through float32 that all of them take."""

    def __init__(self, of, offset):
        super().__init__()
        self.weight, self.offset = of.weight, offset
        self.eps = of.variance_epsilon if hasattr(of, "variance_epsilon") else of.eps

    def forward(self, x):
        return (self.offset + self.weight) * x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Rotary64(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.frequencies = rope_frequencies(model, model["rope_theta"])
        self.local = rope_frequencies(model, model.get("rope_theta_local", model["rope_theta"]))

    def forward(self, x, position_ids, layer_type="full_attention"):
        angles = position_ids[..., None].double() * (
            self.local if layer_type == "sliding_attention" else self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def build_family(model, rope, common):
    """A Transformers model of a family whose config differs from Llama's by a few keys."""
    layers, window = model["layers"], model.get("window")
    kinds = ["sliding_attention" if window and (i + 1) % model.get("window_period", layers + 1) else "full_attention"
             for i in range(layers)]
    keys = {"num_hidden_layers": layers, "hidden_size": model["width"], "num_attention_heads": model["heads"],
            "num_key_value_heads": model["kv_heads"], "intermediate_size": model["ff_width"],
            "max_position_embeddings": model["context"], "rms_norm_eps": model["norm_eps"], "attention_dropout": 0.0,
            "rope_parameters": rope, "pad_token_id": None, **common}
    family = model["family"]
    if family in ("mistral", "qwen3"):
        keys.update(head_dim=model["head_width"], sliding_window=window)
    if family == "gemma":
        keys.update(head_dim=model["head_width"], hidden_act="gelu_pytorch_tanh")
    if family in ("gemma2", "gemma3"):
        keys.update(head_dim=model["head_width"], sliding_window=window, layer_types=kinds, attn_implementation="eager",
                    query_pre_attn_scalar=round(model["query_scale"] ** -2), hidden_activation="gelu_pytorch_tanh",
                    final_logit_softcapping=model.get("logit_softcap"))
    if family == "gemma2":
        keys.update(attn_logit_softcapping=model["attention_softcap"])
    if family == "gemma3":
        keys.update(rope_parameters={"full_attention": rope, "sliding_attention":
                                     {"rope_type": "default", "rope_theta": model["rope_theta_local"]}})
    if family == "phi3":
        rope.update(partial_rotary_factor=model["rope_width"] / model["head_width"])
        keys.update(resid_pdrop=0.0, embd_pdrop=0.0)
    classes = {"gemma": GemmaConfig, "mistral": MistralConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config,
               "gemma2": Gemma2Config, "gemma3": Gemma3TextConfig, "phi3": Phi3Config}
    implementation = keys.pop("attn_implementation")
    return AutoModelForCausalLM.from_config(classes[family](**keys), attn_implementation=implementation)


def build(model):
    """The Transformers model of a case, float32, weights not yet set."""
    common = {"vocab_size": model["vocab_size"], "tie_word_embeddings": model["tied_embeddings"], "use_cache": False,
              "attn_implementation": "sdpa", "bos_token_id": 0, "eos_token_id": 0}
    if model["family"] == "gpt2":
        return GPT2LMHeadModel(GPT2Config(
            n_layer=model["layers"], n_embd=model["width"], n_head=model["heads"], n_inner=model["ff_width"],
            n_positions=model["context"], layer_norm_epsilon=model["norm_eps"], activation_function="gelu_new",
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common))
    rope = {"rope_type": "default", "rope_theta": model["rope_theta"]}
    if model["family"] != "llama":
        return build_family(model, rope, common)
    if model.get("rope_scaling") == "llama3":
        rope.update(rope_type="llama3", factor=model["rope_factor"], low_freq_factor=model["rope_low_freq_factor"],
                    high_freq_factor=model["rope_high_freq_factor"],
                    original_max_position_embeddings=model["rope_original_context"])
    return LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=model["layers"], hidden_size=model["width"], num_attention_heads=model["heads"],
        num_key_value_heads=model["kv_heads"], head_dim=model["head_width"], intermediate_size=model["ff_width"],
        max_position_embeddings=model["context"], rms_norm_eps=model["norm_eps"], hidden_act="silu",
        attention_bias=False, mlp_bias=False, attention_dropout=0.0, rope_parameters=rope, **common))


def to_float64(net, model):
    net = net.double()
    if model["family"] != "gpt2":
        for parent in list(net.modules()):
            for name, child in list(parent.named_children()):
                if type(child).__name__.endswith("RMSNorm"):
                    setattr(parent, name, Norm64(child, 1.0 if model["family"] in COUNTS_FROM_ONE else 0.0))
        net.model.rotary_emb = Rotary64(model)
    return net


@contextlib.contextmanager
def softmax_as_it_comes():
    """Transformers asks for a float32 softmax; here it has the dtype of what it is given."""
    softmax = F.softmax
    F.softmax = lambda x, dim=None, _stacklevel=3, dtype=None: softmax(x, dim=dim)
    try:
        yield
    finally:
        F.softmax = softmax


def initial_weights(net, seed, family):
    """float32 numbers under their names, large enough that attention is far from uniform and every gate is curved."""
    rng = np.random.Generator(np.random.PCG64(seed))
    weights = {}
    for name, parameter in sorted(net.named_parameters()):  # a tied head is listed once, as the embedding
        values = rng.standard_normal(tuple(parameter.shape))
        if parameter.dim() == 2:
            values *= 0.3 if "wte" in name or "wpe" in name or "embed" in name else 1.0 / math.sqrt(48)
        elif name.endswith("weight"):
            values = (0 if family in COUNTS_FROM_ONE else 1) + 0.2 * values
        else:
            values *= 0.1
        weights[name] = values.astype(np.float32)
    return weights


def is_decayed(name, parameter):
    return parameter.dim() == 2 and not any(part in name for part in ("wte", "wpe", "embed_tokens"))


def run(net, weights, ids, targets):
    """Logits, loss, gradients and ten steps; dtype is the network's."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))
    net.train()
    named = dict(net.named_parameters())
    groups = [{"params": [p for n, p in named.items() if is_decayed(n, p)], "weight_decay": OPTIMIZER["weight_decay"]},
              {"params": [p for n, p in named.items() if not is_decayed(n, p)], "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=OPTIMIZER["lr"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"],
                             foreach=False, fused=False)
    out = {"losses": [], "grad_norms": []}
    for step in range(STEPS):
        logits = net(input_ids=ids).logits
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        if step == 0:
            out["logits"], out["loss"] = logits.detach().clone(), loss.detach().reshape(1).clone()
            out.update({f"grad.{n}": p.grad.detach().clone() for n, p in named.items()})
        out["losses"].append(loss.item())
        out["grad_norms"].append(torch.nn.utils.clip_grad_norm_(net.parameters(), OPTIMIZER["clip_grad_norm"]).item())
        adam.step()
    for key in ("losses", "grad_norms"):
        out[key] = torch.tensor(out[key], dtype=torch.float64)
    return {key: value.double().numpy() for key, value in out.items()}


def distance(a, b):
    """Relative Frobenius distance."""
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


def make_case(name):
    """(tensors, metadata) of one golden file."""
    case = CASES[name]
    model = case["model"]
    rng = np.random.Generator(np.random.PCG64(1000 + case["seed"]))
    text = rng.integers(0, model["vocab_size"], (case["batch"], case["sequence"] + 1))
    ids, targets = text[:, :-1].copy(), text[:, 1:].copy()
    for place in rng.choice(targets.size, case["ignored"], replace=False):
        targets.reshape(-1)[place] = -1
    torch.manual_seed(0)
    weights = initial_weights(build(model), case["seed"], model["family"])
    batch = torch.from_numpy(ids), torch.from_numpy(targets)
    with softmax_as_it_comes():
        exact = run(to_float64(build(model), model), weights, *batch)
    single = run(build(model), weights, *batch)
    worst = max(((distance(single[key], exact[key]), key) for key in exact))
    if worst[0] >= AGREE:
        sys.exit(f"{name}: float32 and float64 differ by {worst[0]:.2e} in {worst[1]}, expected less than {AGREE:.0e}")
    if not exact["grad_norms"][0] > OPTIMIZER["clip_grad_norm"]:
        sys.exit(f"{name}: gradient norm {exact['grad_norms'][0]} is not clipped; the case would not test clipping")
    if not exact["losses"][-1] < exact["losses"][0] - 0.05:
        sys.exit(f"{name}: ten steps did not lower the loss: {exact['losses']}")
    print(f"{name}: loss {exact['losses'][0]:.6f} -> {exact['losses'][-1]:.6f}, float32 within {worst[0]:.1e} ({worst[1]})")
    tensors = {key: value.astype(np.float32) for key, value in exact.items()} | weights
    tensors |= {"ids": ids.astype(np.int32), "targets": targets.astype(np.int32)}
    metadata = {"model": json.dumps(model), "optimizer": json.dumps(OPTIMIZER)}
    return {key: np.ascontiguousarray(value) for key, value in tensors.items()}, metadata


def write(folder):
    os.makedirs(folder, exist_ok=True)
    for name in CASES:
        path = os.path.join(folder, f"{name}.safetensors")
        tensors, metadata = make_case(name)
        save_file(tensors, path, metadata=metadata)
        size = os.path.getsize(path)
        if size > FILE_BYTES_MAX:
            sys.exit(f"{path}: {size} bytes, expected at most {FILE_BYTES_MAX}")
    return 0


def compare(folder):
    bad = 0
    known = {f"{name}.safetensors" for name in CASES} | {"blocks.safetensors"}  # make_blocks_golden.py
    for stray in sorted(f for f in os.listdir(folder) if f.endswith(".safetensors") and f not in known):
        print(f"{os.path.join(folder, stray)}: no case makes this file")
        bad += 1
    for name in CASES:
        tensors, metadata = make_case(name)
        path = os.path.join(folder, f"{name}.safetensors")
        with safe_open(path, framework="numpy") as file:
            if file.metadata() != metadata:
                print(f"{path}: metadata {file.metadata()}, expected {metadata}")
                bad += 1
            stored = {key: file.get_tensor(key) for key in file.keys()}
        if sorted(stored) != sorted(tensors):
            print(f"{path}: tensors differ: {sorted(set(stored) ^ set(tensors))}")
            bad += 1
            continue
        for key, value in tensors.items():
            old = stored[key]
            if old.dtype != value.dtype or old.shape != value.shape:
                print(f"{path}: {key} is {old.dtype} {old.shape}, expected {value.dtype} {value.shape}")
                bad += 1
            elif key in ("ids", "targets") or not (key.startswith("grad.") or key in COMPUTED):
                if not np.array_equal(old, value):
                    print(f"{path}: {key} is not bit for bit what the seed gives")
                    bad += 1
            elif not distance(old.astype(np.float64), value.astype(np.float64)) < COMPARE:
                print(f"{path}: {key} differs by {distance(old, value):.2e}, expected less than {COMPARE:.0e}")
                bad += 1
    print(f"golden files: {len(CASES)} compared, {bad} differences")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description="Golden files for the C tests, from Transformers in float64.")
    parser.add_argument("--compare", metavar="FOLDER", help="make the files afresh and compare with those in FOLDER")
    parser.add_argument("out", nargs="?", metavar="OUT_FOLDER", help="write the files here")
    args = parser.parse_args()
    if (args.compare is None) == (args.out is None):
        parser.error("give either OUT_FOLDER or --compare FOLDER")
    torch.set_num_threads(1)
    return compare(args.compare) if args.compare else write(args.out)


if __name__ == "__main__":
    sys.exit(main())
