"""tokenizer_unicode.py - writes tokenizer_unicode.c: which code points are letters, numbers, white space.

Run by hand when Unicode grows: python3 io/tokenizer_unicode.py > io/tokenizer_unicode.c
Needs Unicode 16 (pip install unicodedata2==16.0.0): the Oniguruma inside Hugging Face's `tokenizers` has that
version, and whichever is used decides how such letters are split. Compared with it over all 1,112,064 code points: equal.
"""
import unicodedata2

SPACE = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def kind(code):
    if code in SPACE:
        return "S"
    major = unicodedata2.category(chr(code))[0]
    return major if major in "LN" else "O"


ranges = []
for code in range(0x110000):
    k = kind(code)
    if k == "O":
        continue
    if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == k:
        ranges[-1][1] = code
    else:
        ranges.append([code, code, k])

print("/* tokenizer_unicode.c - letters, numbers and white space of Unicode %s; made by tokenizer_unicode.py. */"
      % unicodedata2.unidata_version)
print('#include "io/tokenizer_internal.h"\n')
print("/* clang-format off */")
print("#define L TERN_CLASS_LETTER\n#define N TERN_CLASS_NUMBER\n#define S TERN_CLASS_SPACE")
print("const struct tern_class_range tern_class_ranges[] = {")
line = "   "
for first, last, k in ranges:
    item = " {0x%x,0x%x,%s}," % (first, last, k)
    if len(line) + len(item) > 100:
        print(line)
        line = "   "
    line += item
print(line)
print("};\n/* clang-format on */")
print("const int tern_class_range_count = (int)(sizeof tern_class_ranges / sizeof tern_class_ranges[0]);")
