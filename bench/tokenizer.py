"""tokenizer.py - the work of bench/tokenizer.sh: every kind of tokenizer, on the whole book at once and verse by verse.

Vocabularies are learnt from the book first, in each family's configuration. Each round runs both contenders once, so that a
slow minute of the machine hits both; a number is the median of the rounds. Ours starts each round with an empty cache of
words, theirs keeps its own. Of theirs the quickest call is taken (encode_batch_fast, which leaves out offsets).
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from tokenizer_families import STAGES, decoder, learn_bytes, learn_characters, learn_unigram, split_then_bytes
from tokenizer_texts import read_book
from tokenizers import Tokenizer, normalizers, pre_tokenizers

program, rounds = sys.argv[1], int(sys.argv[2])
book = read_book()
lines = book.split("\n")


def marked(name):
    data = learn_characters(lines, pre_tokenizers.Metaspace(prepend_scheme="never"))
    normalizer, pre_tokenizer, strips = STAGES[name]
    data.update(normalizer=normalizer, pre_tokenizer=pre_tokenizer, decoder=decoder(strips))
    return data


KINDS = {
    "byte-level, gpt2": lambda: learn_bytes(lines, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "byte-level, llama3": lambda: learn_bytes(lines, split_then_bytes("llama3")),
    "byte-level, qwen2": lambda: learn_bytes(lines, split_then_bytes("qwen2"), normalizers.NFC()),
    "byte-level, tekken": lambda: learn_bytes(lines, split_then_bytes("tekken")),
    "characters, llama2": lambda: marked("llama2"),
    "characters, gemma": lambda: marked("gemma"),
    "unigram": lambda: learn_unigram(lines, False, True, "always"),
}


def ours(path, text, mode):
    line = subprocess.run([program, path, text, mode, "1"], capture_output=True, check=True, text=True).stdout.split()
    return float(line[0]), int(line[2])


def theirs(tokenizer, mode):
    texts = [book] if mode == "whole" else [line for line in lines]
    started = time.perf_counter()
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return time.perf_counter() - started, sum(len(encoding.ids) for encoding in encodings)


with tempfile.TemporaryDirectory() as folder:
    text = pathlib.Path(folder) / "book.txt"
    text.write_text(book)
    size = len(book.encode()) / 1e6
    print("the book, %.1f MB, one thread, median of %d rounds in turn" % (size, rounds))
    for kind, learn in KINDS.items():
        path = pathlib.Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(learn()))
        tokenizer = Tokenizer.from_file(str(path))
        for mode in "whole", "lines":
            a, b = [], []
            for _ in range(rounds):
                a.append(ours(path, text, mode))
                b.append(theirs(tokenizer, mode))
            if a[0][1] != b[0][1]:
                sys.exit("%s, %s: %d ids, theirs %d" % (kind, mode, a[0][1], b[0][1]))
            fast, slow = statistics.median(t for t, _ in a), statistics.median(t for t, _ in b)
            print("%-20s %-6s tern %7.1f MB/s   tokenizers %7.2f MB/s   ratio %6.1f"
                  % (kind, mode, size / fast, size / slow, slow / fast), flush=True)
