#!/usr/bin/env python3
"""gguf_oracle.py - our reader and our block types against the gguf package and llama.cpp's quantiser.

    gguf_oracle.py TERN_BINARY EMPTY_FOLDER

1. Every key and tensor of real GGUF files (two models, the vocabularies of llama.cpp) as gguf.GGUFReader sees them.
2. Every tensor of the two models decoded to the same bits as gguf.quants.dequantize; random blocks of each type likewise.
3. What we encode has no more squared error than ggml_quantize_chunk's, with and without an importance matrix. The library
   is compiled here from the sources in the package llama-cpp-python; nothing else of it is built.
Uses tests/model_file_tool of the same build. Ends with 1 at the first difference.
"""
import ctypes
import glob
import os
import subprocess
import sys
import zlib

import gguf
import numpy as np

import model_files
from llama_source import llama_source
from make_blocks_golden import SCALES, blocks_of

ENCODED = ["Q4_0", "Q5_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


def require(condition, *words):
    if not condition:
        sys.exit("gguf_oracle: " + " ".join(str(word) for word in words))


def crc(parts):
    return f"{zlib.crc32(b''.join(parts)):08x}"


def run(tool, *words):
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True)
    require(done.returncode == 0, words, "ended with", done.returncode, done.stderr)
    return done.stdout


# ---- what is in a file ----

def shown_array(field):
    kind = field.types[1]
    if kind == gguf.GGUFValueType.STRING:
        parts = [bytes(field.parts[i]) for i in field.data]
        return f"strings {len(parts)} {crc(p + bytes(1) for p in parts)}"
    numbers = [field.parts[i][0] for i in field.data]
    if kind in (gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.FLOAT64):
        return f"floats {len(numbers)} {crc(np.float64(n).tobytes() + bytes(1) for n in numbers)}"
    name = "bools" if kind == gguf.GGUFValueType.BOOL else "integers"
    return f"{name} {len(numbers)} {crc(np.int64(n).tobytes() + bytes(1) for n in numbers)}"


def shown_key(field):
    kind = field.types[0]
    if kind == gguf.GGUFValueType.ARRAY:
        return shown_array(field)
    value = field.parts[field.data[0]]
    if kind == gguf.GGUFValueType.STRING:
        return crc([bytes(value)])
    if kind in (gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.FLOAT64):
        return "%.17g" % value[0]
    return str(bool(value[0])) if kind == gguf.GGUFValueType.BOOL else str(int(value[0]))


def check_listing(tool, path):
    reader = gguf.GGUFReader(path)
    want = [f"tensor {t.name} {t.tensor_type.name.lower()} {t.data_offset} {t.n_bytes}"
            + "".join(f" {n}" for n in reversed(t.shape.tolist())) for t in reader.tensors]
    want += [f"key {field.name} {shown_key(field)}" for field in reader.fields.values()
             if not field.name.startswith("GGUF.")]
    got = run(tool, "list", path).splitlines()
    for ours, theirs in zip(got, want):
        require(ours == theirs, path, "found", ours, "expected", theirs)
    require(len(got) == len(want), path, "found", len(got), "entries, expected", len(want))
    return reader


def same_bits(where, ours, theirs):
    different = (ours.view(np.uint32) != theirs.view(np.uint32)) & ~(np.isnan(ours) & np.isnan(theirs))
    require(not different.any(), where, int(different.sum()), "of", len(ours), "values differ")


def check_values(tool, folder, path, reader):
    out = os.path.join(folder, "values")
    run(tool, "values", path, out)
    ours = np.fromfile(out, np.float32)
    at = 0
    for tensor in reader.tensors:
        theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(-1)
        same_bits(f"{path} {tensor.name}", ours[at:at + len(theirs)], theirs)
        at += len(theirs)
    require(at == len(ours), path, "has", at, "values, we found", len(ours))
    return at


def check_random(tool, folder):
    rng = np.random.default_rng(11)
    for name in SCALES:
        kind = gguf.GGMLQuantizationType[name]
        elements, _ = gguf.GGML_QUANT_SIZES[kind]
        blocks = blocks_of(name, 2000, rng)
        wild = rng.integers(0, 256, blocks.shape, dtype=np.uint8)  # any scale, NaN and infinity included
        blocks = np.concatenate([blocks, wild])
        blocks.tofile(folder + "/in")
        run(tool, "decode", name.lower(), len(blocks), elements, folder + "/in", folder + "/out")
        with np.errstate(all="ignore"):
            theirs = gguf.quants.dequantize(blocks, kind).astype(np.float32).reshape(-1)
        same_bits(f"random {name}", np.fromfile(folder + "/out", np.float32), theirs)
    print(f"gguf_oracle: {len(SCALES)} types, 4000 random blocks each: the same bits")


# ---- llama.cpp's quantiser ----

def library_of_ggml(folder, root):
    out, objects = folder + "/libggml.so", []
    with open(folder + "/ggml-version.h", "w") as header:  # what its build would write
        header.write('#define GGML_VERSION "0"\n#define GGML_COMMIT "0"\n')
    for name in ["ggml.c", "ggml-quants.c", "ggml-threading.cpp"]:
        objects.append(f"{folder}/{name}.o")
        subprocess.run(["cc", "-O2", "-fPIC", "-D_GNU_SOURCE", "-w", f"-I{folder}",
                        f"-I{root}/ggml/include", f"-I{root}/ggml/src", "-c", f"{root}/ggml/src/{name}",
                        "-o", objects[-1]], check=True)
    subprocess.run(["c++", "-shared", "-o", out, *objects, "-lm", "-lpthread"], check=True)
    library = ctypes.CDLL(out, os.RTLD_LAZY)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                            ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    # ggml's table of f16 values, which quantising reads, is filled by ggml_init
    parameters = type("Parameters", (ctypes.Structure,), {
        "_fields_": [("bytes", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]})
    library.ggml_init.argtypes = [parameters]
    library.ggml_init(parameters(1 << 20, None, False))
    return library


def encode_theirs(library, kind, x, importance):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((x.shape[0], x.shape[1] // elements * size), np.uint8)
    wrote = library.ggml_quantize_chunk(int(kind), x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1],
                                        importance.ctypes.data if importance is not None else None)
    require(wrote == out.nbytes, kind.name, "ggml wrote", wrote, "of", out.nbytes)
    return out


def encode_ours(tool, folder, kind, x, importance):
    x.tofile(folder + "/x")
    words = ["encode", kind.name.lower(), *x.shape, folder + "/x", folder + "/y"]
    if importance is not None:
        importance.tofile(folder + "/w")
        words.append(folder + "/w")
    run(tool, *words)
    return np.fromfile(folder + "/y", np.uint8).reshape(x.shape[0], -1)


def error_of(kind, blocks, x, importance):
    rest = gguf.quants.dequantize(blocks, kind).astype(np.float64) - x
    return (rest * rest * (1 if importance is None else importance)).sum()


def check_encode(tool, folder, library, what, x, rng):
    importance = (rng.gamma(1, size=x.shape[1]) + 1e-3).astype(np.float32)
    for name in ENCODED:
        kind = gguf.GGMLQuantizationType[name]
        if x.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] != 0:
            continue
        ratios = []
        for weights in (None, importance):
            ours = error_of(kind, encode_ours(tool, folder, kind, x, weights), x, weights)
            theirs = error_of(kind, encode_theirs(library, kind, x, weights), x, weights)
            require(ours <= theirs, what, name, "squared error", ours, "llama.cpp's", theirs,
                    "with importance" if weights is not None else "")
            ratios.append(ours / theirs)
        print(f"gguf_oracle: {what} {name}: squared error {ratios[0]:.3f} of llama.cpp's, {ratios[1]:.3f} with importance")


def check_encoding(tool, folder, library, models):
    rng = np.random.default_rng(3)
    shape = (64, 1024)
    made = {"normal": rng.normal(size=shape) * 0.02, "laplace": rng.laplace(size=shape) * 0.02,
            "student": rng.standard_t(3, size=shape) * 0.02, "uniform": rng.uniform(-1, 1, shape),
            "shifted": rng.normal(size=shape) + 2}
    for what, x in made.items():
        check_encode(tool, folder, library, what, x.astype(np.float32), rng)
    for reader in models:
        for name in ("token_embd.weight", "blk.3.ffn_down.weight", "blk.7.attn_q.weight"):
            tensor = next(t for t in reader.tensors if t.name == name)
            x = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)[:256]
            x = np.ascontiguousarray(x + rng.normal(size=x.shape).astype(np.float32) * x.std() * 0.05)
            check_encode(tool, folder, library, name, x, rng)


def main():
    binary, folder = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    tool = os.path.join(os.path.dirname(binary), "..", "tests", "model_file_tool")
    models = [model_files.smollm2(), model_files.gemma3(folder + "/gemma3.gguf")]
    readers = [check_listing(tool, path) for path in models]
    for path, reader in zip(models, readers):
        count = check_values(tool, folder, path, reader)
        print(f"gguf_oracle: {os.path.basename(path)}: {len(reader.tensors)} tensors, {count} values: the same bits")
    check_random(tool, folder)
    root = str(llama_source())
    vocabularies = sorted(glob.glob(root + "/models/ggml-vocab-*.gguf"))
    require(len(vocabularies) > 10, "found only", len(vocabularies), "vocabularies")
    for path in vocabularies:
        check_listing(tool, path)
    print(f"gguf_oracle: {len(vocabularies)} vocabularies: the same keys and values")
    check_encoding(tool, folder, library_of_ggml(folder, root), readers)


if __name__ == "__main__":
    main()
