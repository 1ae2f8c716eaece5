"""tokenizer_families_oracle.py - every kind of tokenizer that the model families have, against `tokenizers`.

    python tokenizer_families_oracle.py TERN_BINARY WORK_FOLDER [TEXTS [NAME]]

Small vocabularies are learnt from the King James Bible in each family's own configuration; then the ids of random texts
(50,000 a tokenizer, unless TEXTS says) and of the whole book, and the decoded texts, must be equal. With NAME only the
tokenizers whose names contain it.
"""
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizer_texts import compare, random_texts, read_book

tern, work = sys.argv[1], pathlib.Path(sys.argv[2])
count = int(sys.argv[3]) if len(sys.argv) > 3 else 50_000
chosen = sys.argv[4] if len(sys.argv) > 4 else ""
VOCAB = 2000
CONTRACTIONS, BLANKS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS,
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS,
    "qwen35": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + BLANKS,
    "tekken": r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER
              + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + BLANKS,
}
MARK = "▁"
book = read_book()
lines = book.split("\n")


def added(token_id, content, special=False, **flags):
    entry = {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": not special, "special": special}
    return {**entry, **flags}


def check(name, data, texts, **keywords):
    if chosen not in name:
        return
    path = work / (name.replace(" ", "_") + ".json")
    path.write_text(json.dumps(data))
    compare(tern, name, path, texts, **keywords)
    compare(tern, name + ", the book", path, [book], decodes=False)


# ---- byte-level ----

def learn_bytes(pre_tokenizer, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=VOCAB, show_progress=False, special_tokens=["<|endoftext|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(tokenizer.to_str())


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


texts = random_texts(count, book)
for pattern in PATTERNS:
    data = learn_bytes(split_then_bytes(pattern), normalizers.NFC() if pattern.startswith("qwen") else None)
    data["model"]["ignore_merges"] = pattern in ("llama3", "tekken")
    check(pattern, data, texts)
data = learn_bytes(pre_tokenizers.ByteLevel(add_prefix_space=True))
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

# ---- added tokens and their flags ----

FLAGS = ["<a>", "<a>b", "tok", " tok", "<ls>", "<rs>", "<lrs>", "word", "wörd", "  ", "é", "e\u0301", "\n", "<N>", MARK, "a"]
flag_texts = random_texts(count, book, FLAGS + ["wo", "rd", " word", "word ", "xword", "_word", "word_", "\u0301"])


def with_flags(data):
    first = max([*data["model"]["vocab"].values()] if isinstance(data["model"]["vocab"], dict)
                else [len(data["model"]["vocab"]) - 1]) + 1
    known = [entry for entry in data["added_tokens"]]
    fresh = [added(0, "<a>", special=True), added(0, "<a>b"), added(0, "tok", single_word=True),
             added(0, " tok", normalized=False), added(0, "<ls>", special=True, lstrip=True),
             added(0, "<rs>", special=True, rstrip=True), added(0, "<lrs>", lstrip=True, rstrip=True, normalized=False),
             added(0, "wörd", single_word=True, normalized=False), added(0, "e\u0301", normalized=True),
             added(0, "<N>", special=True, normalized=True, lstrip=True)]
    for i, entry in enumerate(fresh):
        entry["id"] = first + i
    return {**data, "added_tokens": known + fresh}


data = learn_bytes(split_then_bytes("qwen2"), normalizers.NFC())
check("flags, qwen2", with_flags(data), flag_texts)
data["normalizer"] = None
check("flags, bytes as they are", with_flags(data), flag_texts)
blank = with_flags(data)
next_id = blank["added_tokens"][-1]["id"] + 1  # a gap would make theirs count anew
blank["added_tokens"] += [added(next_id, "  ", normalized=False, rstrip=True), added(next_id + 1, "\n", normalized=False)]
check("flags, tokens of blanks", blank, flag_texts)

# ---- BPE over characters ----

BYTES = ["<0x%02X>" % byte for byte in range(256)]
STAGES = {
    "llama2": ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK},
                                                    {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]},
               None, True),
    "metaspace first": (None, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}, True),
    "metaspace always, split": (None, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True},
                                True),
    "metaspace never": (None, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "never", "split": False}, False),
    "gemma": ({"type": "Replace", "pattern": {"String": " "}, "content": MARK},
              {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}, False),
}


def learn_characters(pre_tokenizer, with_bytes=True, limit=None):
    """Merges over marked words; byte tokens stand in front, as in sentencepiece's vocabularies."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=with_bytes))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    specials = ["<unk>", "<s>", "</s>"]
    sample = [" " + line.strip() + "  " * (i % 7 == 0) for i, line in enumerate(lines[:limit])]
    tokenizer.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=VOCAB, show_progress=False, special_tokens=specials + (BYTES if with_bytes else []),
        initial_alphabet=["é", "中", "🙂", "\u0301"]))
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [added(i, token, special=True) for i, token in enumerate(specials)]
    return data


def decoder(strips):
    steps = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    return {"type": "Sequence", "decoders": steps + ([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strips else [])}


marked = learn_characters(pre_tokenizers.Metaspace(prepend_scheme="never"))
crossing = learn_characters(None, limit=3000)  # merges that cross marks
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
    data = learn_characters(pre_tokenizers.Metaspace(prepend_scheme="never"), with_bytes=False)
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
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True)
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(
        vocab_size=VOCAB, show_progress=False, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>"))
    data = json.loads(tokenizer.to_str())
    if with_bytes:
        data["model"]["vocab"] += [[token, 0.0] for token in BYTES]
        data["model"]["byte_fallback"] = True
    data["pre_tokenizer"]["split"] = splits
    data["decoder"] = decoder(True) if with_bytes else {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme,
                                                         "split": True}
    check(name, data, texts)
    check("flags, " + name, with_flags(data), flag_texts)
