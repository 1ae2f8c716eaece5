"""jinja_unicode.py - writes jinja_unicode.c: what Python's str methods know of characters.

Run by hand when Unicode grows: python3 runtime/chat/jinja_unicode.py > runtime/chat/jinja_unicode.c
"""
import sys
import unicodedata

ALL = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def ranges(name, test):
    found = []
    for code in ALL:
        if not test(chr(code)):
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    table(f"static const struct span {name}[] = {{", ["{0x%x,0x%x}" % tuple(item) for item in found])


def table(head, items):
    print(head)
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            print(line)
            line = "   "
        line += " " + item + ","
    print(line)
    print("};")


def mapping(name, change):
    """Runs of characters that move by the same distance, every one or every other; what does not fit, one by one."""
    runs, odd = [], []
    for code in ALL:
        to = [ord(c) for c in change(chr(code))]
        if to == [code]:
            continue
        if len(to) > 1:
            odd.append((code, to + [0] * (3 - len(to))))
            continue
        shift = to[0] - code
        last = runs[-1] if runs else None
        if last and last[2] == shift and code - last[1] in (1, 2) and last[3] in (0, code - last[1]):
            last[3] = code - last[1]
            last[1] = code
        else:
            runs.append([code, code, shift, 0])
    table(f"static const struct shift {name}_shifts[] = {{",
          ["{0x%x,0x%x,%d,%d}" % (first, last, shift, step or 1) for first, last, shift, step in runs])
    table(f"static const struct change {name}_changes[] = {{",
          ["{0x%x,{0x%x,0x%x,0x%x}}" % (code, *to) for code, to in odd])


def is_cased(c):
    return c.lower() != c or c.upper() != c or c.title() != c or unicodedata.category(c) in ("Lu", "Ll", "Lt") \
        or c.islower() or c.isupper()


def is_case_ignorable(c):
    """As Python decides the final sigma: a c between a letter and a capital sigma changes nothing."""
    return ("A" + c + "\u03a3").lower().endswith("\u03c2") and not ("1" + c + "\u03a3").lower().endswith("\u03c2")


print("/* jinja_unicode.c - characters of Unicode %s as Python %d.%d sees them; made by jinja_unicode.py. */"
      % (unicodedata.unidata_version, *sys.version_info[:2]))
print('#include "runtime/chat/jinja_internal.h"\n')
print("struct span {\n    uint32_t first, last;\n};")
print("struct shift {\n    uint32_t first, last;\n    int32_t by;\n    uint8_t step;\n};")
print("struct change {\n    uint32_t code, to[3];\n};\n")
print("/* clang-format off */")
ranges("printable", str.isprintable)
ranges("alpha", str.isalpha)
ranges("digit", str.isdigit)
ranges("cased", is_cased)
ranges("lower", str.islower)
ranges("upper", str.isupper)
ranges("title", lambda c: unicodedata.category(c) == "Lt")
ranges("ignorable", is_case_ignorable)
mapping("upper", str.upper)
mapping("lower", str.lower)
mapping("title", str.title)
print("""/* clang-format on */

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* The first of `count` records of `size` bytes, ascending, whose u32 at `offset` is not below code; count: none. */
static size_t first_not_below(const void *records, size_t count, size_t size, size_t offset, uint32_t code)
{
    size_t low = 0, left = count;
    while (left > 0) {
        size_t half = left / 2;
        const char *at = (const char *)records + (low + half) * size + offset;
        if (*(const uint32_t *)(const void *)at < code) {
            low += half + 1;
            left -= half + 1;
        } else {
            left = half;
        }
    }
    return low;
}

static bool is_in(const struct span *spans, size_t count, uint32_t code)
{
    size_t at = first_not_below(spans, count, sizeof *spans, offsetof(struct span, last), code);
    return at < count && spans[at].first <= code;
}

static int change(const struct shift *shifts,
                  size_t shift_count,
                  const struct change *changes,
                  size_t change_count,
                  uint32_t code,
                  uint32_t out[3])
{
    size_t at = first_not_below(changes, change_count, sizeof *changes,
                                offsetof(struct change, code), code);
    out[0] = code;
    if (at < change_count && changes[at].code == code) {
        out[0] = changes[at].to[0];
        out[1] = changes[at].to[1];
        out[2] = changes[at].to[2];
        return out[2] != 0 ? 3 : 2;
    }
    at = first_not_below(shifts, shift_count, sizeof *shifts, offsetof(struct shift, last), code);
    if (at < shift_count && shifts[at].first <= code &&
        (code - shifts[at].first) % shifts[at].step == 0) {
        out[0] = (uint32_t)((int32_t)code + shifts[at].by);
    }
    return 1;
}

bool tern_jinja_is_space(uint32_t code)
{
    return (code >= 0x9 && code <= 0xd) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool tern_jinja_is_printable(uint32_t code)
{
    return code < 0x80 ? code >= 0x20 && code < 0x7f : is_in(printable, COUNT(printable), code);
}

bool tern_jinja_is_alpha(uint32_t code)
{
    return is_in(alpha, COUNT(alpha), code);
}

bool tern_jinja_is_digit(uint32_t code)
{
    return is_in(digit, COUNT(digit), code);
}

bool tern_jinja_is_cased(uint32_t code)
{
    return is_in(cased, COUNT(cased), code);
}

bool tern_jinja_has_case(uint32_t code, enum jinja_case of)
{
    return of == CASE_LOWER   ? is_in(lower, COUNT(lower), code)
           : of == CASE_UPPER ? is_in(upper, COUNT(upper), code)
                              : is_in(title, COUNT(title), code);
}

bool tern_jinja_is_case_ignorable(uint32_t code)
{
    return is_in(ignorable, COUNT(ignorable), code);
}

int tern_jinja_case(uint32_t code, enum jinja_case to, uint32_t out[3])
{
    if (code < 0x80) {
        bool is_lower = code >= 'a' && code <= 'z';
        bool is_upper = code >= 'A' && code <= 'Z';
        out[0] = to != CASE_LOWER && is_lower ? code - 32 : to == CASE_LOWER && is_upper ? code + 32 : code;
        return 1;
    }
    switch (to) {
    case CASE_UPPER:
        return change(upper_shifts, COUNT(upper_shifts), upper_changes, COUNT(upper_changes), code, out);
    case CASE_LOWER:
        return change(lower_shifts, COUNT(lower_shifts), lower_changes, COUNT(lower_changes), code, out);
    default:
        return change(title_shifts, COUNT(title_shifts), title_changes, COUNT(title_changes), code, out);
    }
}""")
