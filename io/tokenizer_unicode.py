"""tokenizer_unicode.py - writes tokenizer_unicode.c (classes of characters) and tokenizer_nfc_tables.c (canonical
composition).

Run by hand when Unicode grows, from the root of the tree: python3 io/tokenizer_unicode.py
Needs Unicode 16 and its Alphabetic property (pip install unicodedata2==16.0.0 regex).

Which version decides is a question of equal ids, and Hugging Face's `tokenizers` has two: its regular expressions know
Unicode 16, its NFC knows Unicode 9. So the classes are those of 16, and what was given a combining class or a
decomposition after 9 (NEWER) composes with nothing. Both compared with it over all 1,112,064 code points: equal.
"""
import pathlib

import regex
import unicodedata2

SPACE = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
WORD = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]")
LETTERS = {"Lu": "LU", "Ll": "LL", "Lt": "LT", "Lm": "LM", "Lo": "LO"}
# Of the code points with a combining class or a canonical decomposition, those assigned after Unicode 9.
NEWER = [(0x7FD, 0x7FD), (0x897, 0x8D3), (0x9FE, 0x9FE), (0xC3C, 0xC3C), (0xD3B, 0xD3C), (0xEBA, 0xEBA),
         (0x1715, 0x1715), (0x1ABF, 0x1ACE), (0x1DF6, 0x1DFA), (0xA82C, 0xA82C), (0x105C9, 0x105E4), (0x10D24, 0x10F85),
         (0x11070, 0x11070), (0x1133B, 0x1133B), (0x11383, 0x113D0), (0x1145E, 0x1145E), (0x11839, 0x1183A),
         (0x11938, 0x11943), (0x119E0, 0x119E0), (0x11A34, 0x11A99), (0x11D42, 0x11D97), (0x11F41, 0x11F42),
         (0x16121, 0x16128), (0x1612F, 0x1612F), (0x16D68, 0x16D6A), (0x16FF0, 0x16FF1), (0x1E08F, 0x1E08F),
         (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF), (0x1E5EE, 0x1E5EF)]
HANGUL_FIRST, HANGUL_LAST = 0xAC00, 0xD7A3
FOLDER = pathlib.Path(__file__).parent


def kind(code):
    character = chr(code)
    category = unicodedata2.category(character)
    if code in SPACE:
        return "S"
    if category == "Cn":
        return None
    if category in LETTERS:
        return LETTERS[category]
    is_word = WORD.match(character) is not None
    if category[0] == "N":
        return "NW" if is_word else "NO"
    if category[0] == "M":
        return "M"
    return "W" if is_word else None


def is_newer(code):
    return any(first <= code <= last for first, last in NEWER)


def combining(code):
    return 0 if is_newer(code) else unicodedata2.combining(chr(code))


def ranges_of(value):
    """[first, last, value(code)] of all code points whose value is true."""
    out = []
    for code in range(0x110000):
        v = value(code)
        if not v:
            continue
        if out and out[-1][1] == code - 1 and out[-1][2] == v:
            out[-1][1] = code
        else:
            out.append([code, code, v])
    return out


def table(head, items):
    lines, line = [head + " = {"], "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            lines.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join(lines + [line, "};"])


def count_line(one, many):
    line = "const int %s_count = (int)(sizeof %s / sizeof %s[0]);" % (one, many, many)
    return line if len(line) <= 100 else line.replace("= ", "=\n    ", 1)


def write_classes():
    body = table("const struct tern_class_range tern_class_ranges[]",
                 ["{0x%x,0x%x,%s}" % tuple(entry) for entry in ranges_of(kind)])
    names = {"LU": "UPPER", "LL": "LOWER", "LT": "TITLE", "LM": "MODIFIER", "LO": "LETTER", "M": "MARK",
             "NW": "WORD_NUMBER", "NO": "NUMBER", "S": "SPACE", "W": "WORD"}
    (FOLDER / "tokenizer_unicode.c").write_text("\n".join([
        "/* tokenizer_unicode.c - classes of characters, Unicode %s; made by tokenizer_unicode.py. */"
        % unicodedata2.unidata_version,
        '#include "io/tokenizer_chars.h"', "", "/* clang-format off */",
        *["#define %s TERN_RANGE_%s" % pair for pair in names.items()], body, "/* clang-format on */",
        count_line("tern_class_range", "tern_class_ranges"), ""]))


def decomposition(code):
    """The two or one code points of the canonical decomposition, one level deep; None without."""
    text = unicodedata2.decomposition(chr(code))
    if not text or text.startswith("<") or is_newer(code):
        return None
    return [int(part, 16) for part in text.split()]


def full(code):
    parts = decomposition(code)
    return [code] if parts is None else [c for part in parts for c in full(part)]


def write_nfc():
    decomposed = [code for code in range(0x110000) if decomposition(code)]
    pool, entries = [], []
    for code in decomposed:
        parts = full(code)
        entries.append("{0x%x,%d,%d}" % (code, len(pool), len(parts)))
        pool += parts
    pairs = []
    for code in decomposed:
        parts = decomposition(code)
        # What NFC composes is what it leaves as it is: exclusions and singletons do not come back.
        if len(parts) == 2 and unicodedata2.normalize("NFC", chr(code)) == chr(code):
            pairs.append((parts[0], parts[1], code))
    seconds = {second for _, second, _ in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))

    def is_involved(code):
        if HANGUL_FIRST <= code <= HANGUL_LAST:
            return False
        changes = decomposition(code) is not None and unicodedata2.normalize("NFC", chr(code)) != chr(code)
        return combining(code) != 0 or code in seconds or changes

    (FOLDER / "tokenizer_nfc_tables.c").write_text("\n".join([
        "/* tokenizer_nfc_tables.c - canonical decomposition, order and composition; made by tokenizer_unicode.py. */",
        '#include "io/tokenizer_nfc.h"', "", "/* clang-format off */",
        table("const uint32_t tern_nfc_pool[]", ["0x%x" % c for c in pool]),
        table("const struct tern_nfc_decomposition tern_nfc_decompositions[]", entries),
        table("const struct tern_nfc_pair tern_nfc_pairs[]", ["{0x%x,0x%x,0x%x}" % pair for pair in sorted(pairs)]),
        table("const struct tern_nfc_range tern_nfc_classes[]", ["{0x%x,0x%x,%d}" % tuple(e) for e in ranges_of(combining)]),
        table("const struct tern_nfc_range tern_nfc_checks[]",
              ["{0x%x,0x%x,1}" % tuple(e[:2]) for e in ranges_of(is_involved)]),
        "/* clang-format on */",
        *[count_line("tern_nfc_" + one, "tern_nfc_" + many)
          for one, many in (("decomposition", "decompositions"), ("pair", "pairs"), ("class", "classes"),
                            ("check", "checks"))], ""]))


write_classes()
write_nfc()
