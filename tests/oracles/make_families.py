#!/usr/bin/env python3
"""make_families.py - small random models of every family, as Transformers saves them.

    make_families.py OUT_FOLDER [NAME ...]     writes OUT_FOLDER/NAME/{config.json, model.safetensors, ...}

Each case is the family's own class with real wiring and odd sizes: heads that are not width / heads wide, one key/value
head, windows shorter than the prompts, tied and untied heads, biases, every scaling of rotary positions. Weights come from
a seed and are large enough that attention is far from uniform, norms are far from 1 and caps and gates bend.
"""

import argparse
import os
import sys

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM
from transformers import (Gemma2Config, Gemma3TextConfig, GemmaConfig, GPT2Config, LlamaConfig, MistralConfig,
                          MixtralConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

COMMON = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def llama(**changes):
    keys = {"hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 6,
            "num_key_value_heads": 2, "vocab_size": 263, "max_position_embeddings": 512,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **COMMON, **changes}
    return LlamaConfig(**keys)


def sized(config, **changes):
    keys = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 263, "max_position_embeddings": 512, **COMMON, **changes}
    return config(**keys)


def rope(kind, **changes):
    return {"rope_type": kind, "rope_theta": 10000.0, **changes}


FACTORS = [1.0 + 0.07 * i for i in range(64)]

CASES = {
    "gpt2": lambda: GPT2Config(n_embd=48, n_layer=3, n_head=4, n_positions=512, vocab_size=263, n_inner=140, **COMMON),
    "gpt2_untied": lambda: GPT2Config(n_embd=40, n_layer=2, n_head=5, n_positions=512, vocab_size=259,
                                      tie_word_embeddings=False, **COMMON),
    "llama": lambda: llama(),
    "llama_tied_odd_head": lambda: llama(tie_word_embeddings=True, head_dim=10, num_key_value_heads=1),
    "llama_biased": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama_linear": lambda: llama(rope_parameters=rope("linear", factor=3.0)),
    "llama_dynamic": lambda: llama(max_position_embeddings=24, rope_parameters=rope("dynamic", factor=32.0)),
    "llama_llama3": lambda: llama(rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                       original_max_position_embeddings=64)),
    "llama_yarn": lambda: llama(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "llama_yarn_mscale": lambda: llama(rope_parameters=rope("yarn", factor=8.0, original_max_position_embeddings=32,
                                                            mscale=0.7, mscale_all_dim=0.4, beta_fast=16.0,
                                                            beta_slow=2.0, truncate=False)),
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
    "gemma3": lambda: sized(Gemma3TextConfig, head_dim=20, num_key_value_heads=1, sliding_window=5,
                            num_hidden_layers=7, query_pre_attn_scalar=24,
                            rope_parameters={"full_attention": rope("linear", rope_theta=1e6, factor=8.0),
                                             "sliding_attention": rope("default")}),
    "gemma3_pattern": lambda: sized(Gemma3TextConfig, head_dim=16, sliding_window=4, num_hidden_layers=5,
                                    query_pre_attn_scalar=16, attention_bias=True, final_logit_softcapping=5.0,
                                    layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                                 "sliding_attention", "sliding_attention"]),
    "phi3": lambda: sized(Phi3Config, num_key_value_heads=4, sliding_window=11,
                          rope_parameters=rope("default", partial_rotary_factor=1.0)),
    "phi3_longrope": lambda: sized(Phi3Config, hidden_size=64, num_key_value_heads=1,
                                   original_max_position_embeddings=128,
                                   rope_parameters=rope("longrope", partial_rotary_factor=0.75,
                                                        short_factor=FACTORS[:6],
                                                        long_factor=[3 * f for f in FACTORS[:6]])),
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
    fill(net, 1000 + list(CASES).index(name))
    return net


def main():
    parser = argparse.ArgumentParser(description="Small random models of every family.")
    parser.add_argument("out")
    parser.add_argument("names", nargs="*", default=list(CASES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names or CASES:
        folder = os.path.join(args.out, name)
        os.makedirs(folder, exist_ok=True)
        build(name).save_pretrained(folder)
        tokenizer().save(os.path.join(folder, "tokenizer.json"))
    print(f"{len(args.names or CASES)} models in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
