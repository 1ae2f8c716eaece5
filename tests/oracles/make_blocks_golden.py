#!/usr/bin/env python3
"""make_blocks_golden.py - block types as the gguf package decodes them, for tests/kernels/blocks_test.c.

    make_blocks_golden.py OUT.safetensors

For each type NAME: "NAME.blocks" (u8) and "NAME.values" (f32, what gguf.quants.dequantize makes of them). Blocks are
random bytes with scales that are ordinary f16 numbers, then one of zeros, one of ones, one with a subnormal and one with
a large negative scale.
"""
import sys

import gguf
import numpy as np
from safetensors.numpy import save_file

# Where the f16 scales of a block lie.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}


def blocks_of(name, count, rng):
    kind = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    blocks[-4] = 0
    blocks[-3] = 255
    for i, block in enumerate(blocks):
        for at in SCALES[name]:
            scale = {count - 2: 3e-7, count - 1: -6e4}.get(i, rng.normal() * 0.01)
            if i != count - 4:
                block[at:at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
        if name == "MXFP4":
            block[0] = [0, 1, 2, 254][i - count + 4] if i >= count - 4 else rng.integers(100, 140)
    return blocks


def main():
    rng = np.random.default_rng(5)
    tensors = {}
    for name in SCALES:
        kind = gguf.GGMLQuantizationType[name]
        elements, _ = gguf.GGML_QUANT_SIZES[kind]
        blocks = blocks_of(name, 5 if elements == 256 else 8, rng)
        tensors[name.lower() + ".blocks"] = blocks
        tensors[name.lower() + ".values"] = gguf.quants.dequantize(blocks, kind).astype(np.float32)
    save_file(tensors, sys.argv[1])


if __name__ == "__main__":
    main()
