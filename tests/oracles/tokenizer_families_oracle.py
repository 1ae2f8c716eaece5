"""tokenizer_families_oracle.py - every kind of tokenizer that the model families have, against `tokenizers`.

    python tokenizer_families_oracle.py TERN_BINARY WORK_FOLDER [TEXTS [NAME]]

Small vocabularies are learnt from the King James Bible in each family's own configuration; then the ids of random texts
(ORACLE_TEXTS, 300 a tokenizer, unless TEXTS says; 50000 is the full test) and of a fifth of the book (with 10,000 texts or more the
whole one), and the decoded texts, must be equal. With NAME only the tokenizers whose names contain it.
"""
import json
import os
import pathlib
import random
import sys
import unicodedata

from tokenizer_families import (BYTES, MARK, PATTERNS, STAGES, added, decoder, learn_bytes, learn_characters, learn_unigram,
                                split_then_bytes, with_flags)
from tokenizer_texts import SEED, compare, random_texts, read_book
from tokenizers import normalizers, pre_tokenizers

tern, work = sys.argv[1], pathlib.Path(sys.argv[2])
count = int(sys.argv[3]) if len(sys.argv) > 3 else int(os.environ.get("ORACLE_TEXTS", "300"))
chosen = sys.argv[4] if len(sys.argv) > 4 else ""
book = read_book()
lines = book.split("\n")
passage = book if count >= 10000 else book[len(book) * 2 // 5:len(book) * 3 // 5]


def check(name, data, texts, **keywords):
    if chosen not in name:
        return
    path = work / (name.replace(" ", "_") + ".json")
    path.write_text(json.dumps(data))
    compare(tern, name, path, texts, **keywords)
    compare(tern, name + ", the book", path, [passage], decodes=False)


# ---- byte-level ----

texts = random_texts(count, book)
for pattern in PATTERNS:
    data = learn_bytes(lines, split_then_bytes(pattern), normalizers.NFC() if pattern.startswith("qwen") else None)
    data["model"]["ignore_merges"] = pattern in ("llama3", "tekken")
    check(pattern, data, texts)
data = learn_bytes(lines, pre_tokenizers.ByteLevel(add_prefix_space=True))
check("gpt2 with a blank first", data, texts)
data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": False},
    {"type": "Split", "pattern": {"Regex": PATTERNS["gpt2"]}, "behavior": "Removed", "invert": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
check("numbers in threes, then gpt2", data, texts)
for behavior in "Isolated", "MergedWithPrevious", "MergedWithNext":
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"String": "  "}, "behavior": behavior, "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    check("split by two blanks " + behavior, data, texts[: count // 5])

# ---- composition, of every character ----

# Each between marks of other classes, decomposed before itself, and among others that combine.
involved = [chr(c) for c in range(0x110000) if unicodedata.combining(chr(c)) or unicodedata.decomposition(chr(c))[:1] not in ("", "<")]
marks = [text for c in involved for text in ("a%s\u0315%s\u0334\u0300" % (c, c), unicodedata.normalize("NFD", c) + c)]
marks += ["e%s\u0301" % chr(c) for c in range(1, 0x30000) if not 0xD800 <= c < 0xE000 and c % 3 == 0]
rng = random.Random(SEED)
marks += ["".join(rng.choice(involved) if rng.random() < 0.7 else rng.choice("aeouAEO\uac00\uac01 \n") for _ in range(rng.randrange(1, 12)))
          for _ in range(count // 3)]
data = learn_bytes(lines[:2000], split_then_bytes("qwen2"), normalizers.NFC())
check("composition", data, marks, decodes=False)

# ---- added tokens and their flags ----

FLAGS = ["<a>", "<a>b", "tok", " tok", "<ls>", "<rs>", "<lrs>", "word", "wörd", "  ", "é", "e\u0301", "\n", "<N>", MARK, "a"]
flag_texts = random_texts(count, book, FLAGS + ["wo", "rd", " word", "word ", "xword", "_word", "word_", "\u0301"])


data = learn_bytes(lines, split_then_bytes("qwen2"), normalizers.NFC())
check("flags, qwen2", with_flags(data), flag_texts)
data["normalizer"] = None
check("flags, bytes as they are", with_flags(data), flag_texts)
blank = with_flags(data)
next_id = blank["added_tokens"][-1]["id"] + 1  # a gap would make theirs count anew
blank["added_tokens"] += [added(next_id, "  ", normalized=False, rstrip=True), added(next_id + 1, "\n", normalized=False)]
check("flags, tokens of blanks", blank, flag_texts)

# ---- BPE over characters ----

marked = learn_characters(lines, pre_tokenizers.Metaspace(prepend_scheme="never"))
crossing = learn_characters(lines[:3000], None)  # merges that cross marks
for name, (normalizer, pre_tokenizer, strips) in STAGES.items():
    for kind, base in (("", marked), (", merges across marks", crossing)):
        data = json.loads(json.dumps(base))
        data.update(normalizer=normalizer, pre_tokenizer=pre_tokenizer, decoder=decoder(strips))
        check(name + kind, data, texts if kind == "" else texts[: count // 5])
        if kind == "":
            check("flags, " + name, with_flags(data), flag_texts)
        if name == "llama2":
            data["model"]["ignore_merges"] = True
            check("ignore_merges, " + name + kind, data, texts[: count // 5])
            data["model"]["ignore_merges"] = False
            data["decoder"] = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
            check("metaspace decoder, " + name + kind, data, texts[: count // 5])
phi = json.loads(json.dumps(marked))
normalizer, pre_tokenizer, strips = STAGES["llama2"]
phi.update(normalizer=normalizer, pre_tokenizer=pre_tokenizer, decoder=decoder(strips))
phi["added_tokens"][2]["rstrip"] = True
phi["added_tokens"] += [added(2000 + i, token, special=True, rstrip=True)
                        for i, token in enumerate(["<|assistant|>", "<|end|>", "<|user|>"])]
check("phi3", phi, random_texts(count, book, ["<|assistant|>", "<|end|>", "<|user|>", "</s>", "<s>"]))
gemma = json.loads(json.dumps(marked))
normalizer, pre_tokenizer, strips = STAGES["gemma"]
gemma.update(normalizer=normalizer, pre_tokenizer=pre_tokenizer, decoder=decoder(strips))
gemma["added_tokens"] += [added(2000 + i, token, normalized=False)
                          for i, token in enumerate(["\n" * n for n in range(1, 9)] + [MARK * n for n in range(2, 9)]
                                                    + ["<table>", "</h1>", "[@BOS@]"])]
check("gemma with its tokens of blanks", gemma, random_texts(count, book, ["\n", "\n\n\n", MARK, MARK * 3, "<table>", "</h1>"]))
for fuses in False, True:
    data = learn_characters(lines, pre_tokenizers.Metaspace(prepend_scheme="never"), with_bytes=False)
    normalizer, pre_tokenizer, strips = STAGES["llama2"]
    data.update(normalizer=normalizer, pre_tokenizer=pre_tokenizer, decoder=decoder(strips))
    data["model"]["fuse_unk"] = fuses
    check("no bytes, fuse_unk %s" % fuses, data, texts[: count // 2])
partly = json.loads(json.dumps(data))  # bytes for some characters only: the order of unknown ones and bytes
first = max(partly["model"]["vocab"].values()) + 1
partly["model"]["byte_fallback"] = True
partly["model"]["vocab"].update({token: first + i for i, token in enumerate(BYTES[0xC0:0xD0] + BYTES[0x80:0xC0])})
check("bytes for some characters", partly, texts[: count // 2])

# ---- unigram ----

for name, with_bytes, splits, scheme in (("unigram", False, True, "always"), ("unigram with bytes", True, True, "first"),
                                         ("unigram in one piece", True, False, "always")):
    data = learn_unigram(lines, with_bytes, splits, scheme)
    check(name, data, texts)
    check("flags, " + name, with_flags(data), flag_texts)
