"""tokenizer_families.py - small tokenizers in each model family's own configuration, learnt from given lines."""
import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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


def added(token_id, content, special=False, **flags):
    entry = {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": not special, "special": special}
    return {**entry, **flags}


def learn_bytes(lines, pre_tokenizer, normalizer=None):
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


def learn_characters(lines, pre_tokenizer, with_bytes=True):
    """Merges over marked words; byte tokens stand in front, as in sentencepiece's vocabularies."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=with_bytes))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    specials = ["<unk>", "<s>", "</s>"]
    sample = [" " + line.strip() + "  " * (i % 7 == 0) for i, line in enumerate(lines)]
    tokenizer.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=VOCAB, show_progress=False, special_tokens=specials + (BYTES if with_bytes else []),
        initial_alphabet=["é", "中", "🙂", "\u0301"]))
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [added(i, token, special=True) for i, token in enumerate(specials)]
    return data


def decoder(strips):
    steps = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    return {"type": "Sequence", "decoders": steps + ([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strips else [])}


def learn_unigram(lines, with_bytes, splits, scheme):
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
    return data
