"""tokenizer_oracle.py - our tokenizer against Hugging Face's `tokenizers`, token for token.

    python tokenizer_oracle.py TERN_BINARY WORK_FOLDER

Trains on the King James Bible (`bible`, package bible-kjv) with both, compares the vocabularies and merges, the ids of
ORACLE_TEXTS (1000; 50000 is the full test) random strings and of the whole book, and the decoded text. Also with a
vocabulary that splits digits and with merges in the old "a b" form. Exits with 1 and the first difference.
"""
import json
import os
import pathlib
import sys

from tokenizer_texts import SPECIALS, compare, fail, parse, random_texts, read_book, run
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

STRINGS = int(os.environ.get("ORACLE_TEXTS", "1000"))
VOCAB = 4096

tern, work = sys.argv[1], pathlib.Path(sys.argv[2])
work.mkdir(parents=True, exist_ok=True)
book = read_book()
(work / "book.txt").write_text(book)

# 1. The vocabulary that we learn is theirs.
ours_path = work / "tokenizer.json"
special_options = [option for token in SPECIALS for option in ("--special", token)]
run(tern, "tokenizer", "train", "--vocab-size", VOCAB, *special_options, "--out", ours_path, work / "book.txt")
theirs = Tokenizer(models.BPE())
theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
theirs.decoder = decoders.ByteLevel()
theirs.train_from_iterator([book], trainers.BpeTrainer(
    vocab_size=VOCAB, show_progress=False, special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIALS],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
theirs.save(str(work / "theirs.json"))
a, b = json.loads(ours_path.read_text())["model"], json.loads((work / "theirs.json").read_text())["model"]
for i, (x, y) in enumerate(zip(a["merges"], b["merges"])):
    if x != y:
        sys.exit("training: merge %d is %r; tokenizers learns %r" % (i, x, y))
if a["vocab"] != b["vocab"] or len(a["merges"]) != len(b["merges"]):
    sys.exit("training: the vocabularies differ: %d and %d tokens" % (len(a["vocab"]), len(b["vocab"])))
print("training: %d merges and %d ids equal" % (len(a["merges"]), len(a["vocab"])))

# 2. Ids, with our file read by both.
texts = random_texts(STRINGS, book)
compare(tern, "random strings", ours_path, texts)
compare(tern, "the book", ours_path, [book])
compare(tern, "long words", ours_path, ["a" * 300_000, " " * 300_000, "ab" * 100_000, "the" * 50_000, "lord" * 999 + " " * 5000 + "x"])

# 3. Their file, old form of merges, digits alone, a template around it.
old = json.loads((work / "theirs.json").read_text())
old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
old["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": True}, old["pre_tokenizer"]]}
(work / "digits.json").write_text(json.dumps(old))
compare(tern, "digits alone", work / "digits.json", texts)
old["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = False
(work / "digit_runs.json").write_text(json.dumps(old))
compare(tern, "digits together", work / "digit_runs.json", texts[:3000])
old["model"]["ignore_merges"] = True
(work / "ignore_merges.json").write_text(json.dumps(old))
compare(tern, "ignore_merges", work / "ignore_merges.json", texts[:3000])
old["model"]["ignore_merges"] = False
for token in old["added_tokens"][1:3]:
    token["special"] = False
    token["normalized"] = True
old["post_processor"] = {"type": "TemplateProcessing", "single": [
    {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": "<|a b|>", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]} for i, token in enumerate(SPECIALS)}}
(work / "template.json").write_text(json.dumps(old))
theirs = Tokenizer.from_file(str(work / "template.json"))
joined = b"".join(text.encode() + b"\0" for text in texts)
for flags, keywords in (([], {"add_special_tokens": False}), (["--add-special"], {})):
    ours = parse(run(tern, "tokenizer", "encode", "--tokenizer", work / "template.json", "--null", *flags, data=joined))
    for text, ids in zip(texts, ours, strict=True):
        expected = theirs.encode(text, **keywords).ids
        if ids != expected:
            fail("template %s" % flags, text, ids, expected)
theirs.encode_special_tokens = True
ours = parse(run(tern, "tokenizer", "encode", "--tokenizer", work / "template.json", "--null", "--specials-as-text", data=joined))
for text, ids in zip(texts, ours, strict=True):
    expected = theirs.encode(text, add_special_tokens=False).ids
    if ids != expected:
        fail("specials as text", text, ids, expected)
print("template and specials as text: equal")
