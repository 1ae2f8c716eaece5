#!/usr/bin/env python3
"""make_model_corpus.py - small model files for the fuzz targets gguf and safetensors to begin with.

    make_model_corpus.py CORPUS_FOLDER     writes CORPUS_FOLDER/gguf/* and CORPUS_FOLDER/safetensors/*

Needs the packages gguf and numpy (tests/oracles/requirements.txt has them).
"""
import json
import os
import struct
import sys

import gguf
import numpy as np

LAYER = {"attn_norm": (32,), "attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32),
         "ffn_norm": (32,), "ffn_gate": (32, 32), "ffn_up": (32, 32), "ffn_down": (32, 32)}


def head(writer, arch):
    writer.add_block_count(1)
    writer.add_context_length(16)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_rope_freq_base(10000.0)
    if arch == "gemma3":
        writer.add_sliding_window(4)
    if arch == "phi3":
        writer.add_rope_scaling_orig_ctx_len(8)


def tokens(writer, kind):
    if kind == "gpt2":
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(["<|end|>", "a", "b", "ab", "\u0120a", "\u0120", "[PAD6]", "z"])
        writer.add_token_types([3, 1, 1, 1, 1, 1, 5, 4])
        writer.add_token_merges(["a b", "\u0120 a"])
    else:
        writer.add_tokenizer_pre("default")
        writer.add_token_list(["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "\u2581a", "aa"])
        writer.add_token_scores([0, 0, 0, 0, -1, -2, -3, -4])
        writer.add_token_types([2, 3, 3, 6, 1, 1, 1, 1])
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(True)
    writer.add_tokenizer_model(kind)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def model(path, arch, kind, quantised=None):
    writer = gguf.GGUFWriter(path, arch)
    head(writer, arch)
    if kind:
        tokens(writer, kind)
    rng = np.random.default_rng(1)
    shapes = {"token_embd": (8, 32), "output_norm": (32,), **{f"blk.0.{n}": s for n, s in LAYER.items()}}
    if arch in ("gemma2", "gemma3"):
        shapes.update({"blk.0.post_attention_norm": (32,), "blk.0.post_ffw_norm": (32,)})
    if arch in ("gemma3", "qwen3"):
        shapes.update({"blk.0.attn_q_norm": (16,), "blk.0.attn_k_norm": (16,)})
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        if quantised and len(shape) == 2:
            _, size = gguf.GGML_QUANT_SIZES[quantised]
            values = rng.integers(0, 60, (shape[0], size), dtype=np.uint8)
            writer.add_tensor(name + ".weight", values, raw_dtype=quantised)
        else:
            writer.add_tensor(name + ".weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def bare(path, version, pairs):
    """Metadata alone, values as raw bytes."""
    with open(path, "wb") as out:
        out.write(struct.pack("<IIQQ", 0x46554747, version, 0, len(pairs)))
        for key, kind, value in pairs:
            out.write(struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value)


def safetensors(path, header, data):
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def main():
    folder = sys.argv[1]
    for name in ("gguf", "safetensors"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    kinds = gguf.GGMLQuantizationType
    model(f"{folder}/gguf/llama-spm", "llama", "llama")
    model(f"{folder}/gguf/qwen3-bpe-q8", "qwen3", "gpt2", kinds.Q8_0)
    model(f"{folder}/gguf/gemma2-spm-q4", "gemma2", "llama", kinds.Q4_0)
    model(f"{folder}/gguf/gemma3-iq4", "gemma3", None, kinds.IQ4_NL)
    model(f"{folder}/gguf/llama-mxfp4", "llama", None, kinds.MXFP4)
    every = [(b"k%d" % i, i, struct.pack("<" + form, 1)) for i, form in enumerate("BbHhIif?")]
    every += [(b"s", 8, struct.pack("<Q", 2) + b"xy"), (b"u", 10, struct.pack("<Q", 1 << 63)),
              (b"a", 9, struct.pack("<IQ", 8, 2) + struct.pack("<QQ", 0, 1) + b"z"),
              (b"f", 9, struct.pack("<IQdd", 12, 2, 0.5, -1.0)), (b"b", 9, struct.pack("<IQ??", 7, 2, True, False))]
    bare(f"{folder}/gguf/keys", 2, every)
    bare(f"{folder}/gguf/aligned", 3, [(b"general.alignment", 4, struct.pack("<I", 64))])
    safetensors(f"{folder}/safetensors/plain", {"__metadata__": {"format": "pt", "x": "\u00e9\""},
                                                "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                                                "b.c": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]}}, bytes(26))
    safetensors(f"{folder}/safetensors/odd", {"\u00e9\U0001f600": {"data_offsets": [0, 0], "shape": [0, 9], "dtype": "I64"},
                                              "q": {"dtype": "F8_E4M3", "shape": [1, 1, 1, 3], "data_offsets": [0, 3]}},
                bytes(3))
    with open(f"{folder}/safetensors/index", "wb") as out:
        out.write(b"I" + json.dumps({"metadata": {"total_size": 5, "x": [1.5e3, None, {"y": [True]}]},
                                     "weight_map": {"a": "model-00001-of-00002.safetensors",
                                                    "b": "model-00002-of-00002.safetensors"}}).encode())


if __name__ == "__main__":
    main()
