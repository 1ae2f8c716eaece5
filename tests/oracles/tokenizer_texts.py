"""tokenizer_texts.py - what the tokenizer oracles share: random texts, running tern, comparing with `tokenizers`."""
import random
import re
import subprocess
import sys

from tokenizers import Tokenizer

SEED = 20240611
SPECIALS = ["<|endoftext|>", "<|user|>", "<|user|>x", "<|a b|>"]
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>$")


def run(tern, *arguments, data=None):
    done = subprocess.run([tern, *map(str, arguments)], input=data, capture_output=True)
    if done.returncode != 0:
        sys.exit("tern %s: status %d: %s" % (" ".join(map(str, arguments)), done.returncode, done.stderr.decode()))
    return done.stdout


def parse(output):
    lines = output.decode().split("\n")
    assert lines.pop() == ""
    return [[int(word) for word in line.split()] for line in lines]


def read_book():
    return subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True,
                          check=True).stdout.decode()


def random_character(rng):
    kind = rng.randrange(12)
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
    if kind == 5:  # what composes: Latin with marks, Hangul, Indic vowels, singletons, exclusions
        return rng.choice(["e\u0301", "a\u0323\u0302", "a\u0302\u0323", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u1161",
                           "\u0915\u093c", "\u212b", "\u2126", "\u0344", "\u0f43", "q\u0307\u0323", "\u0cc6\u0cc2\u0cd5",
                           chr(rng.randrange(0x300, 0x370)), chr(rng.randrange(0x1100, 0x1200)), "\u3046\u3099"])
    if kind == 6:
        return rng.choice("ſǅʰªªºßﬆİıﬁΣςАбВЖчшABCxyzÀéÎØñ")
    while True:
        code = rng.randrange(0x110000)
        if not 0xD800 <= code < 0xE000 and code != 0:
            return chr(code)


def random_string(rng, book, specials=SPECIALS):
    kind = rng.randrange(11)
    length = rng.choice([1, 2, 3, 5, 8, 20, 60, 200])
    if kind == 0:
        return "".join(random_character(rng) for _ in range(length))
    if kind == 1:
        return "".join(chr(rng.randrange(1, 128)) for _ in range(length))
    if kind == 2:
        blanks = " \t\n\r\v\f\u00a0\u2003\u3000\u2028\u1680\x85"
        return "".join(rng.choice(blanks if rng.random() < 0.8 else "ab1!/") for _ in range(length))
    if kind == 3:
        return "".join(rng.choice("0123456789 .,-") for _ in range(length))
    if kind == 4:
        parts = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'", "I", " he", "don", "\u2019s", " '", "'l", "'r",
                 "'ſ", "'LL", "'Re", "'vE", "'M"]
        return "".join(rng.choice(parts) for _ in range(length))
    if kind == 5:
        at = rng.randrange(len(book) - 400)
        return book[at : at + length * 2]
    if kind == 6:
        parts = specials + ["<|", "|>", "<|user", " ", "x", "<|endoftext", "b|>", "  ", "\n", "é", "_", "1", "\u3000"]
        return "".join(rng.choice(parts) for _ in range(length // 3 + 1))
    if kind == 7:
        return rng.choice(["a", " ", "\n", "the", "é", "ab ", "'", "1", "\u3000", "🙂", "▁", "\u0301", "Aa", "中A"]) * length
    if kind == 8:
        words = ["the ", "God", " LORD", "camelCase", "HTTPServer", "x=1", "//", "/\n", "!\r\n", "▁", " ▁", "中文", "e\u0301",
                 "…", "\t", "  ", "\n\n", "3.14", "٣٤٥٦", "naïve", "<0x41>", "<unk>", "<s>"]
        return "".join(rng.choice(words) for _ in range(length // 2 + 1))
    if kind == 9:
        return "".join(rng.choice("AaBbÀéǅʰªⅧ中\u0301 1_'-") for _ in range(length))
    return "".join(random_string(rng, book, specials) for _ in range(3)) if length < 20 else random_character(rng) * length


def random_texts(count, book, specials=SPECIALS):
    rng = random.Random(SEED)
    texts = []
    while len(texts) < count:
        text = random_string(rng, book, specials)
        if "\0" not in text:
            texts.append(text)
    return texts


def fail(what, text, ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    print("%s differs at token %d of %d / %d\n  text   %r\n  tern   %r\n  oracle %r"
          % (what, at, len(ours), len(theirs), text[:400], ours[max(0, at - 3) : at + 5], theirs[max(0, at - 3) : at + 5]))
    sys.exit(1)


def has_half_characters(tokens):
    """A run of byte tokens that is no UTF-8: theirs shows U+FFFD for each byte, ours gives the bytes."""
    run_bytes = bytearray()
    for token in [*tokens, ""]:
        found = BYTE_TOKEN.match(token)
        if found:
            run_bytes.append(int(found[1], 16))
            continue
        try:
            run_bytes.decode()
        except UnicodeDecodeError:
            return True
        run_bytes.clear()
    return False


def compare(tern, name, path, texts, decodes=True):
    """Ids and decoded bytes of texts, each by both. Ours gets NUL-separated records."""
    theirs = Tokenizer.from_file(str(path))
    joined = b"".join(text.encode() + b"\0" for text in texts)
    ours = parse(run(tern, "tokenizer", "encode", "--tokenizer", path, "--null", data=joined))
    assert len(ours) == len(texts), (len(ours), len(texts))
    for text, ids in zip(texts, ours):
        expected = theirs.encode(text, add_special_tokens=False).ids
        if ids != expected:
            fail(name, text, ids, expected)
    decoded = compare_decoding(tern, name, path, theirs, ours) if decodes else 0
    print("%s: %d texts, %d ids equal; %d decoded texts equal" % (name, len(texts), sum(map(len, ours)), decoded), flush=True)


def compare_decoding(tern, name, path, theirs, ids_lists):
    # Any ids, not only those of a text: half characters become U+FFFD in theirs, as in Python's "replace".
    rng = random.Random(SEED + 1)
    texts = {i: theirs.decode([i], skip_special_tokens=False) for i in range(theirs.get_vocab_size())}
    usable = [i for i, text in texts.items() if "\0" not in text]  # NUL ends a record
    lists = ids_lists + [[rng.choice(usable) for _ in range(rng.randrange(1, 40))] for _ in range(2000)]
    # Theirs keeps a special token that is normalized into something else, as its set of special ones has it as written.
    kept = {i for i, token in theirs.get_added_tokens_decoder().items() if token.special and theirs.id_to_token(i) != token.content}
    compared = 0
    for flags, skip in (([], False), (["--skip-special"], True)):
        lines = "".join(" ".join(map(str, ids)) + "\n" for ids in lists).encode()
        decoded = run(tern, "tokenizer", "decode", "--tokenizer", path, "--null", *flags, data=lines).split(b"\0")
        assert len(decoded) == len(lists) + 1
        for ids, text in zip(lists, decoded):
            if has_half_characters([theirs.id_to_token(i) for i in ids]) or (skip and kept.intersection(ids)):
                continue
            compared += 1
            expected = theirs.decode(ids, skip_special_tokens=skip)
            if text.decode("utf-8", "replace") != expected:
                print("%s: decode %s differs\n  ids    %r\n  tern   %r\n  oracle %r" % (name, flags, ids, text, expected))
                sys.exit(1)
    return compared
