#!/usr/bin/env python3
"""make_families.py - small random models of every family, as Transformers saves them.

    make_families.py OUT_FOLDER [NAME ...]     writes OUT_FOLDER/NAME/{config.json, model.safetensors, ...}
    make_families.py --golden OUT_FOLDER       smaller ones, with expected.safetensors: ids (T) I32 and logits (T, V) F32
    make_families.py --compare FOLDER          makes those afresh and compares with the ones in FOLDER

Each case is the family's own class with real wiring and odd sizes: heads that are not width / heads wide, one key/value
head, windows shorter than the prompts, tied and untied heads, biases, every scaling of rotary positions. Weights come from
a seed and are large enough that attention is far from uniform, norms are far from 1 and caps and gates bend.
"""

import argparse
import os
import sys
import zlib

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM
from transformers import (Gemma2Config, Gemma3Config, Gemma3TextConfig, GemmaConfig, GPT2Config, LlamaConfig, MistralConfig,
                          MixtralConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

COMMON = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


# What golden files do with less of: each is in the repository. The sizes that a case does not ask for by itself.
SMALL = {"hidden_size": (48, 24), "intermediate_size": (80, 28), "num_hidden_layers": (4, 2), "vocab_size": (263, 71),
         "n_embd": (48, 24), "n_inner": (140, 36), "n_positions": (512, 64), "max_position_embeddings": (512, 128)}
GOLDEN = ["gpt2_untied", "llama_biased", "llama_dynamic", "llama_yarn_mscale", "llama_longrope", "mistral", "qwen2_windowed",
          "qwen3_biased", "gemma", "gemma2", "gemma3_pattern", "phi3_longrope_long", "mixtral", "qwen3_moe_raw"]
GOLDEN_TOKENS = 40
is_small = False


def shrink(keys):
    if not is_small:
        return keys
    return {key: SMALL[key][1] if SMALL.get(key, (None,))[0] == value else value for key, value in keys.items()}


def gpt2(**changes):
    return GPT2Config(**shrink({"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 512, "vocab_size": 263,
                                "n_inner": 140, **COMMON, **changes}))


def llama(**changes):
    keys = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
            "num_key_value_heads": 2, "vocab_size": 263, "max_position_embeddings": 512,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **COMMON, **changes}
    return LlamaConfig(**shrink(keys))


def sized(config, **changes):
    keys = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 263, "max_position_embeddings": 512, **COMMON, **changes}
    return config(**shrink(keys))


def rope(kind, **changes):
    return {"rope_type": kind, "rope_theta": 10000.0, **changes}


def phi3_longrope(original):
    return sized(Phi3Config, hidden_size=64, num_key_value_heads=1, original_max_position_embeddings=original,
                 rope_parameters=rope("longrope", partial_rotary_factor=0.75, short_factor=FACTORS[:6],
                                      long_factor=[3 * f for f in FACTORS[:6]]))


FACTORS = [1.0 + 0.07 * i for i in range(64)]

CASES = {
    "gpt2": lambda: gpt2(),
    "gpt2_untied": lambda: gpt2(n_embd=40, n_layer=2, n_head=5, n_inner=None, tie_word_embeddings=False),
    "llama": lambda: llama(),
    "llama_tied_odd_head": lambda: llama(tie_word_embeddings=True, head_dim=10, num_key_value_heads=1),
    "llama_biased": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama_linear": lambda: llama(rope_parameters=rope("linear", factor=3.0)),
    "llama_dynamic": lambda: llama(max_position_embeddings=24, rope_parameters=rope("dynamic", factor=32.0)),
    "llama_llama3": lambda: llama(rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                       original_max_position_embeddings=64)),
    "llama_yarn": lambda: llama(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "llama_yarn_mscale": lambda: llama(head_dim=16, rope_parameters=rope(
        "yarn", factor=8.0, original_max_position_embeddings=64, mscale=0.7, mscale_all_dim=0.4, beta_fast=4.0,
        beta_slow=0.25, truncate=False)),
    "llama_longrope": lambda: llama(head_dim=16, rope_parameters=rope(
        "longrope", short_factor=FACTORS[:8], long_factor=[2 * f for f in FACTORS[:8]], factor=4.0,
        original_max_position_embeddings=256)),
    "mistral": lambda: sized(MistralConfig, sliding_window=7, rope_parameters=rope("default")),
    "mistral_wide_head": lambda: sized(MistralConfig, sliding_window=None, head_dim=20, num_key_value_heads=1,
                                       rope_parameters=rope("default")),
    "qwen2": lambda: sized(Qwen2Config, rope_parameters=rope("default"), tie_word_embeddings=True),
    "qwen2_windowed": lambda: sized(Qwen2Config, use_sliding_window=True, sliding_window=9, max_window_layers=1,
                                    rope_parameters=rope("yarn", factor=2.0, original_max_position_embeddings=256)),
    "qwen3": lambda: sized(Qwen3Config, head_dim=20, rope_parameters=rope("default", rope_theta=1e6)),
    "qwen3_biased": lambda: sized(Qwen3Config, head_dim=6, num_attention_heads=5, num_key_value_heads=1,
                                  attention_bias=True, tie_word_embeddings=True, rope_parameters=rope("default")),
    "gemma": lambda: sized(GemmaConfig, head_dim=24, num_key_value_heads=1, hidden_act="gelu_pytorch_tanh",
                           rope_parameters=rope("default")),
    "gemma2": lambda: sized(Gemma2Config, head_dim=20, sliding_window=6, query_pre_attn_scalar=17,
                            attn_logit_softcapping=3.0, final_logit_softcapping=4.0, rope_parameters=rope("default")),
    "gemma2_plain": lambda: sized(Gemma2Config, head_dim=20, sliding_window=6, query_pre_attn_scalar=20,
                                  attn_logit_softcapping=3.0, final_logit_softcapping=4.0, rope_parameters=rope("default")),
    "gemma3_plain": lambda: sized(Gemma3TextConfig, head_dim=20, num_key_value_heads=1, sliding_window=5,
                                  num_hidden_layers=7, query_pre_attn_scalar=20, final_logit_softcapping=5.0,
                                  rope_parameters={"full_attention": rope("linear", rope_theta=1e6, factor=8.0),
                                                   "sliding_attention": rope("default")}),
    "gemma3": lambda: sized(Gemma3TextConfig, head_dim=20, num_key_value_heads=1, sliding_window=5,
                            num_hidden_layers=7, query_pre_attn_scalar=24,
                            rope_parameters={"full_attention": rope("linear", rope_theta=1e6, factor=8.0),
                                             "sliding_attention": rope("default")}),
    "gemma3_pattern": lambda: sized(Gemma3TextConfig, head_dim=16, sliding_window=4, num_hidden_layers=5,
                                    query_pre_attn_scalar=16, attention_bias=True, final_logit_softcapping=5.0,
                                    layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                                 "sliding_attention", "sliding_attention"]),
    "gemma3_images": lambda: Gemma3Config(
        text_config=sized(Gemma3TextConfig, head_dim=20, num_key_value_heads=1, sliding_window=5,
                          query_pre_attn_scalar=20).to_dict(),
        vision_config={"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "image_size": 28,
                       "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 14}, mm_tokens_per_image=4),
    "phi3": lambda: sized(Phi3Config, num_key_value_heads=4, sliding_window=11,
                          rope_parameters=rope("default", partial_rotary_factor=1.0)),
    "phi3_longrope": lambda: phi3_longrope(128),
    "phi3_longrope_long": lambda: phi3_longrope(32),
    "mixtral": lambda: sized(MixtralConfig, num_local_experts=5, num_experts_per_tok=2, rope_parameters=rope("default")),
    "mixtral_windowed": lambda: sized(MixtralConfig, num_local_experts=4, num_experts_per_tok=1, sliding_window=6,
                                      rope_parameters=rope("default")),
    "qwen3_moe": lambda: sized(Qwen3MoeConfig, head_dim=20, num_experts=8, num_experts_per_tok=3,
                               moe_intermediate_size=28, norm_topk_prob=True, rope_parameters=rope("default")),
    "qwen3_moe_raw": lambda: sized(Qwen3MoeConfig, head_dim=12, num_experts=6, num_experts_per_tok=4,
                                   moe_intermediate_size=36, norm_topk_prob=False, rope_parameters=rope("default")),
}


def fill(net, seed):
    """Values of every parameter, by name in sorted order: the same on every machine."""
    rng = np.random.Generator(np.random.PCG64(seed))
    with torch.no_grad():
        for name, parameter in sorted(net.named_parameters()):
            values = rng.standard_normal(tuple(parameter.shape))
            if parameter.dim() >= 2:
                embeds = "embed" in name or "wte" in name or "wpe" in name
                values *= 0.3 if embeds else 1.5 / np.sqrt(parameter.shape[-1])
            elif name.endswith("bias"):
                values *= 0.3
            else:  # norms: Gemma's are offsets from 1
                values = 0.3 * values + (0.0 if type(net).__name__.startswith("Gemma") else 1.0)
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))


def tokenizer():
    """One token a byte, behind three special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<pad>": 0, "<bos>": 1, "<eos>": 2, **{c: 3 + i for i, c in enumerate(alphabet)}}
    out = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens(["<pad>", "<bos>", "<eos>"])
    return out


def build(name):
    net = AutoModelForCausalLM.from_config(CASES[name](), attn_implementation="eager")
    net = net.float().eval()
    fill(net, zlib.crc32(name.encode()))
    return net


def golden(name):
    """Model, ids (T), logits (T, V): by Transformers in float32."""
    net = build(name)
    rng = np.random.Generator(np.random.PCG64(7))
    ids = rng.integers(0, net.config.vocab_size, GOLDEN_TOKENS)
    with torch.no_grad():
        logits = net(torch.from_numpy(ids)[None]).logits[0].numpy()
    return net, {"ids": ids.astype(np.int32), "logits": logits}


def write_golden(out):
    for name in GOLDEN:
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        net, expected = golden(name)
        net.save_pretrained(folder)
        os.remove(os.path.join(folder, "generation_config.json"))
        save_file(expected, os.path.join(folder, "expected.safetensors"))
    return 0


def compare(folder):
    bad = 0
    for name in GOLDEN:
        _, fresh = golden(name)
        with safe_open(os.path.join(folder, name, "expected.safetensors"), "np") as old:
            error = np.linalg.norm(old.get_tensor("logits") - fresh["logits"]) / np.linalg.norm(fresh["logits"])
        good = error < 1e-5
        bad += not good
        print(f"{name}: {error:.1e}{'' if good else '  BAD'}")
    return 1 if bad else 0


def main():
    global is_small
    parser = argparse.ArgumentParser(description="Small random models of every family.")
    parser.add_argument("--golden", metavar="OUT_FOLDER")
    parser.add_argument("--compare", metavar="FOLDER")
    parser.add_argument("out", nargs="?")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if sum(x is not None for x in (args.golden, args.compare, args.out)) != 1:
        parser.error("give OUT_FOLDER, --golden OUT_FOLDER or --compare FOLDER")
    torch.set_num_threads(1)
    is_small = args.out is None
    if is_small:
        return write_golden(args.golden) if args.golden else compare(args.compare)
    for name in args.names or CASES:
        folder = os.path.join(args.out, name)
        os.makedirs(folder, exist_ok=True)
        build(name).save_pretrained(folder)
        tokenizer().save(os.path.join(folder, "tokenizer.json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
