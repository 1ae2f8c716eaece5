"""make_tokenizer_golden.py - writes tests/golden/tokenizers: small tokenizers of every kind, and what `tokenizers` makes of
some texts with them. tests/io/tokenizer_golden_test.c reads both.

    python make_tokenizer_golden.py [FOLDER]
"""
import json
import pathlib
import sys

import tokenizer_families
from tokenizer_families import (MARK, PATTERNS, STAGES, added, decoder, learn_bytes, learn_characters, learn_unigram,
                                split_then_bytes, with_flags)
from tokenizer_texts import has_half_characters, random_texts, read_book
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "golden" / "tokenizers")
folder.mkdir(parents=True, exist_ok=True)
tokenizer_families.VOCAB = 460
book = read_book()
lines = book.split("\n")[:2000]
MARKS = ["<a>", "<a>b", "tok", " tok", "<ls>", "<rs>", "<lrs>", "wörd", "e\u0301", "<N>", "<|endoftext|>", "<s>", "</s>", "<|end|>"]
TEXTS = ["", " ", "  ", "\n", "Hello world", " Hello", "In the beginning God created the heaven and the earth.", "don't WE'LL I'ſ",
         "1234567 12.5%", "e\u0301 \u1112\u1161\u11ab \u0915\u093c \u212b", "中文 字🙂🙂", "a\u00a0b\u3000c", "camelCaseHTTPServer/\n/x",
         "x" * 300, " " * 200, "the" * 100, "\n\n\n\t\t  a", "▁a ▁▁b", "<0x41>", "_tok tok_ tok", "a <ls> <rs>  b<lrs> c", "🙂" * 60,
         "ÀÉÎ\u0301", "a\u033d\u0301 e\u0323\u0301 \u0cc6\u0cc2\u0cd5 u\u0308\u0301 \uac00\u11a8\u11a8", "\u0301" * 50, "ab\u0315\u0300\u05b0\u0327c"]


def write(name, data):
    (folder / (name + ".json")).write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    tokenizer = Tokenizer.from_str(json.dumps(data))
    cases = []
    for text in TEXTS + [text for text in random_texts(160, book, MARKS) if len(text) < 90][:40]:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": plain, "framed": tokenizer.encode(text).ids}
        if not has_half_characters([tokenizer.id_to_token(i) for i in plain]):
            case["decoded"] = tokenizer.decode(plain, skip_special_tokens=False)
        cases.append(case)
    (folder / (name + ".cases")).write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases))


def template(token, token_id):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": token, "type_id": 0}},
                                                     {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}


def staged(base, name):
    normalizer, pre_tokenizer, strips = STAGES[name]
    return {**base, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder(strips),
            "post_processor": template("<s>", 1)}


# Words of each pattern; vocabularies this small say little about them.
split_texts = [text for text in TEXTS + random_texts(400, book, MARKS) if 0 < len(text) < 60][:120]
with open(folder / "splits.cases", "w") as file:
    for name, pattern in {**PATTERNS, "digit": r"\p{N}", "digits": r"\p{N}+", "digits3": r"\p{N}{1,3}"}.items():
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        for text in split_texts:
            words = [word for word, _ in split.pre_tokenize_str(text)]
            file.write(json.dumps({"pattern": pattern, "text": text, "words": words}, ensure_ascii=False) + "\n")
data = learn_bytes(lines, pre_tokenizers.ByteLevel(add_prefix_space=True))
write("gpt2", data)
data = learn_bytes(lines, split_then_bytes("llama3"))
data["model"]["ignore_merges"] = True
data["post_processor"] = {"type": "Sequence", "processors": [
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template("<|endoftext|>", 0)]}
write("llama3", data)
write("qwen2", with_flags(learn_bytes(lines, split_then_bytes("qwen2"), normalizers.NFC())))
write("qwen35", learn_bytes(lines, split_then_bytes("qwen35")))
write("tekken", learn_bytes(lines, split_then_bytes("tekken")))
write("smollm", learn_bytes(lines, pre_tokenizers.Sequence([
    pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])))
marked = learn_characters(lines, pre_tokenizers.Metaspace(prepend_scheme="never"))
write("llama2", with_flags(staged(marked, "llama2")))
write("metaspace", staged(marked, "metaspace first"))
phi3 = staged(json.loads(json.dumps(marked)), "llama2")
phi3["added_tokens"][2]["rstrip"] = True
phi3["added_tokens"].append(added(max(phi3["model"]["vocab"].values()) + 1, "<|end|>", special=True, rstrip=True))
write("phi3", phi3)
gemma = staged(json.loads(json.dumps(marked)), "gemma")
first = max(gemma["model"]["vocab"].values()) + 1
gemma["added_tokens"] += [added(first + i, token, normalized=False)
                          for i, token in enumerate(["\n\n", "\n\n\n", MARK * 2, MARK * 3, "<a>"])]
write("gemma", gemma)
crossing = staged(learn_characters(lines[:500], None, with_bytes=False), "llama2")
write("crossing", crossing)
write("unigram", learn_unigram(lines, False, True, "always"))
write("unigram_bytes", with_flags(learn_unigram(lines, True, False, "first")))
