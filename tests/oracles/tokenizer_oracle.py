"""tokenizer_oracle.py - our tokenizer against Hugging Face's `tokenizers`, token for token.

    python tokenizer_oracle.py TERN_BINARY WORK_FOLDER

Trains on the King James Bible (`bible`, package bible-kjv) with both, compares the vocabularies and merges, the ids of
10,000 random strings and of the whole book, and the decoded text. Also with a vocabulary that splits digits and with
merges in the old "a b" form. Exits with 1 and the first difference.
"""
import json
import pathlib
import random
import subprocess
import sys
import unicodedata

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SEED = 20240611
STRINGS = 10_000
VOCAB = 4096
SPECIALS = ["<|endoftext|>", "<|user|>", "<|user|>x", "<|a b|>"]

tern, work = sys.argv[1], pathlib.Path(sys.argv[2])
work.mkdir(parents=True, exist_ok=True)


def run(*arguments, data=None):
    done = subprocess.run([tern, *map(str, arguments)], input=data, capture_output=True)
    if done.returncode != 0:
        sys.exit("tern %s: status %d: %s" % (" ".join(map(str, arguments)), done.returncode, done.stderr.decode()))
    return done.stdout


def parse(output):
    lines = output.decode().split("\n")
    assert lines.pop() == ""
    return [[int(word) for word in line.split()] for line in lines]


def random_character(rng):
    kind = rng.randrange(10)
    if kind == 0:
        return chr(rng.choice([0x300, 0x301, 0x308, 0x200D, 0xFE0F, 0x20E3, 0x640, 0xAD, 0x200B, 0x180E, 0xFEFF, 0x85]))
    if kind == 1:
        return chr(rng.randrange(0x1F300, 0x1FAFF))  # emoji
    if kind == 2:
        return chr(rng.randrange(0x4E00, 0x9FFF))
    if kind == 3:
        return chr(rng.randrange(0xA0, 0x600))
    if kind == 4:
        return rng.choice("０１２٣४Ⅷ½²①৭𝟘𐒠")
    while True:
        code = rng.randrange(0x110000)
        if not 0xD800 <= code < 0xE000 and code != 0:
            return chr(code)


def random_string(rng):
    kind = rng.randrange(9)
    length = rng.choice([1, 2, 3, 5, 8, 20, 60, 200])
    if kind == 0:
        return "".join(random_character(rng) for _ in range(length))
    if kind == 1:
        return "".join(chr(rng.randrange(1, 128)) for _ in range(length))
    if kind == 2:
        blanks = " \t\n\r\v\f\u00a0\u2003\u3000\u2028\u1680\x85"
        return "".join(rng.choice(blanks if rng.random() < 0.8 else "ab1!") for _ in range(length))
    if kind == 3:
        return "".join(rng.choice("0123456789 .,-") for _ in range(length))
    if kind == 4:
        parts = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'", "I", " he", "don", "\u2019s", " '", "'l", "'r"]
        return "".join(rng.choice(parts) for _ in range(length))
    if kind == 5:
        at = rng.randrange(len(book) - 400)
        return book[at : at + length * 2]
    if kind == 6:
        return "".join(rng.choice(SPECIALS + ["<|", "|>", "<|user", " ", "x", "<|endoftext", "b|>"]) for _ in range(length // 3 + 1))
    if kind == 7:
        return rng.choice(["a", " ", "\n", "the", "é", "ab ", "'", "1", "\u3000", "🙂"]) * length
    return "".join(random_string(rng) for _ in range(3)) if length < 20 else random_character(rng) * length


def fail(what, text, ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    print("%s differs at token %d of %d / %d\n  text   %r\n  tern   %r\n  oracle %r"
          % (what, at, len(ours), len(theirs), text[:400], ours[max(0, at - 3) : at + 5], theirs[max(0, at - 3) : at + 5]))
    sys.exit(1)


def compare(name, path, texts):
    """Ids and decoded bytes of texts, each by both. Ours gets NUL-separated records."""
    theirs = Tokenizer.from_file(str(path))
    joined = b"".join(text.encode() + b"\0" for text in texts)
    ours = parse(run("tokenizer", "encode", "--tokenizer", path, "--null", data=joined))
    assert len(ours) == len(texts), (len(ours), len(texts))
    for text, ids in zip(texts, ours):
        expected = theirs.encode(text).ids
        if ids != expected:
            fail(name, text, ids, expected)
    # Any ids, not only those of a text: half characters become U+FFFD in theirs, as in Python's "replace".
    rng = random.Random(SEED + 1)
    nul = theirs.token_to_id("\u0100")  # ends a record, so it is left out
    usable = [i for i in range(theirs.get_vocab_size()) if i != nul]
    ids_lists = ours + [[rng.choice(usable) for _ in range(rng.randrange(1, 40))] for _ in range(2000)]
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in ids_lists).encode()
    decoded = run("tokenizer", "decode", "--tokenizer", path, "--null", data=lines).split(b"\0")
    assert len(decoded) == len(ids_lists) + 1
    for ids, text in zip(ids_lists, decoded):
        expected = theirs.decode(ids, skip_special_tokens=False)
        if text.decode("utf-8", "replace") != expected:
            print("%s: decode differs\n  ids    %r\n  tern   %r\n  oracle %r" % (name, ids, text, expected))
            sys.exit(1)
    print("%s: %d texts, %d ids equal; %d decoded texts equal" % (name, len(texts), sum(map(len, ours)), len(ids_lists)))


book = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout.decode()
(work / "book.txt").write_text(book)
print("seed %d, unicodedata %s" % (SEED, unicodedata.unidata_version))

# 1. The vocabulary that we learn is theirs.
ours_path = work / "tokenizer.json"
special_options = [option for token in SPECIALS for option in ("--special", token)]
run("tokenizer", "train", "--vocab-size", VOCAB, *special_options, "--out", ours_path, work / "book.txt")
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
rng = random.Random(SEED)
texts = [text for text in (random_string(rng) for _ in range(STRINGS)) if "\0" not in text]
assert len(texts) == STRINGS
compare("random strings", ours_path, texts)
compare("the book", ours_path, [book])
compare("long words", ours_path, ["a" * 300_000, " " * 300_000, "ab" * 100_000, "the" * 50_000, "lord" * 999 + " " * 5000 + "x"])

# 3. Their file, old form of merges, digits alone, a template around it.
old = json.loads((work / "theirs.json").read_text())
old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
old["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": True}, old["pre_tokenizer"]]}
(work / "digits.json").write_text(json.dumps(old))
compare("digits alone", work / "digits.json", texts)
old["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = False
(work / "digit_runs.json").write_text(json.dumps(old))
compare("digits together", work / "digit_runs.json", texts[:3000])
old["model"]["ignore_merges"] = True
(work / "ignore_merges.json").write_text(json.dumps(old))
compare("ignore_merges", work / "ignore_merges.json", texts[:3000])
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
    ours = parse(run("tokenizer", "encode", "--tokenizer", work / "template.json", "--null", *flags, data=joined))
    for text, ids in zip(texts, ours, strict=True):
        expected = theirs.encode(text, **keywords).ids
        if ids != expected:
            fail("template %s" % flags, text, ids, expected)
theirs.encode_special_tokens = True
ours = parse(run("tokenizer", "encode", "--tokenizer", work / "template.json", "--null", "--specials-as-text", data=joined))
for text, ids in zip(texts, ours, strict=True):
    expected = theirs.encode(text, add_special_tokens=False).ids
    if ids != expected:
        fail("specials as text", text, ids, expected)
print("template and specials as text: equal")
