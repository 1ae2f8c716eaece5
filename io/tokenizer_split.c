/* tokenizer_split.c - the patterns that model families split text with, by hand, in one pass.
 *
 * Each alternative of a pattern is a piece of code in the pattern's order; where a regular
 * expression would go back, the place to go back to was noted on the way. */
#include "io/tokenizer_split.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SIGNS        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const struct {
    const char *pattern;
    enum tern_split_kind kind;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     TERN_SPLIT_GPT2},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" SIGNS BLANKS, TERN_SPLIT_LLAMA3},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" SIGNS BLANKS, TERN_SPLIT_QWEN2},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
                  " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS,
     TERN_SPLIT_QWEN35},
    {"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
     "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS,
     TERN_SPLIT_TEKKEN},
    {"\\p{N}", TERN_SPLIT_DIGIT},
    {"\\p{N}+", TERN_SPLIT_DIGITS},
    {"\\p{N}{1,3}", TERN_SPLIT_DIGITS3},
};

const char tern_split_known[] =
    "the patterns of GPT-2, Llama 3, Qwen 2, Qwen 3.5, Mistral's Tekken, or \\p{N}";

enum tern_split_kind tern_split_by_pattern(const char *pattern)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(pattern, known[i].pattern) == 0) {
            return known[i].kind;
        }
    }
    return TERN_SPLIT_PATTERN_COUNT;
}

/* ---- pieces of patterns ---- */

static int class_of(int flags)
{
    return flags & TERN_CLASS_MASK;
}

/* The end of the run at text[at] of characters with any of the flags. */
static size_t run_of_flags(const struct tern_chars *chars,
                           const uint8_t *text,
                           size_t bytes,
                           size_t at,
                           int wanted)
{
    while (at < bytes) {
        int length;
        if ((tern_chars_next(chars, text + at, bytes - at, &length) & wanted) == 0) {
            break;
        }
        at += (size_t)length;
    }
    return at;
}

/* The same for a class (and marks, if they are taken for letters), at most `most` characters. */
static size_t run_of_class(const struct tern_chars *chars,
                           const uint8_t *text,
                           size_t bytes,
                           size_t at,
                           enum tern_class kind,
                           bool with_marks,
                           size_t most)
{
    for (size_t count = 0; at < bytes && count < most; count++) {
        int length;
        int flags = tern_chars_next(chars, text + at, bytes - at, &length);
        if (class_of(flags) != (int)kind && !(with_marks && (flags & TERN_CHAR_MARK))) {
            break;
        }
        at += (size_t)length;
    }
    return at;
}

/* 's 't 're 've 'm 'll 'd: bytes of the contraction at text, 0 if there is none. any_case: also in
 * capitals, and the long s, which folds to s. */
static size_t contraction(const uint8_t *text, size_t bytes, bool any_case)
{
    if (text[0] != '\'' || bytes < 2) {
        return 0;
    }
    int fold = any_case ? 0x20 : 0;
    int second = bytes > 2 ? text[2] | fold : 0;
    if (any_case && text[1] == 0xc5 && bytes > 2 && text[2] == 0xbf) {
        return 3;
    }
    switch (text[1] | fold) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return second == 'e' ? 3 : 0;
    case 'l':
        return second == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ or, without lines, \s+(?!\S)|\s+ at a space. */
static size_t blanks(const struct tern_chars *chars,
                     const uint8_t *text,
                     size_t bytes,
                     bool with_lines)
{
    size_t at = 0, last = 0, line_end = 0;
    while (at < bytes) {
        int length;
        int flags = tern_chars_next(chars, text + at, bytes - at, &length);
        if (class_of(flags) != TERN_CLASS_SPACE) {
            break;
        }
        last = at;
        at += (size_t)length;
        line_end = text[last] == '\r' || text[last] == '\n' ? at : line_end;
    }
    if (with_lines && line_end > 0) {
        return line_end;
    }
    return at < bytes && last > 0 ? last : at; /* the last space is left to the word */
}

/* ---- GPT-2 ---- */

static size_t split_gpt2(const struct tern_chars *chars, const uint8_t *text, size_t bytes)
{
    size_t found = contraction(text, bytes, false);
    if (found != 0) {
        return found;
    }
    int length;
    int kind = class_of(tern_chars_next(chars, text, bytes, &length));
    size_t at = (size_t)length;
    if (text[0] == ' ' && bytes > 1) {
        int next = class_of(tern_chars_next(chars, text + 1, bytes - 1, &length));
        if (next != TERN_CLASS_SPACE) {
            kind = next;
            at += (size_t)length;
        }
    }
    if (kind == TERN_CLASS_SPACE) {
        return blanks(chars, text, bytes, false);
    }
    return run_of_class(chars, text, bytes, at, (enum tern_class)kind, false, SIZE_MAX);
}

/* ---- Llama 3, Qwen 2, Qwen 3.5 ---- */

/* [^\r\n\p{L}\p{N}] */
static bool may_lead(const uint8_t *text, int flags)
{
    int kind = class_of(flags);
    return kind != TERN_CLASS_LETTER && kind != TERN_CLASS_NUMBER && text[0] != '\r' &&
           text[0] != '\n';
}

/* " ?" and a run of signs at text, then line ends (and slashes); 0 if there is no sign. */
static size_t signs(const struct tern_chars *chars,
                    const uint8_t *text,
                    size_t bytes,
                    bool marks_are_letters,
                    bool with_slashes)
{
    size_t at = text[0] == ' ' ? 1 : 0;
    size_t start = at;
    while (at < bytes) {
        int length;
        int flags = tern_chars_next(chars, text + at, bytes - at, &length);
        if (class_of(flags) != TERN_CLASS_OTHER ||
            (marks_are_letters && (flags & TERN_CHAR_MARK))) {
            break;
        }
        at += (size_t)length;
    }
    if (at == start) {
        return 0;
    }
    while (at < bytes &&
           (text[at] == '\r' || text[at] == '\n' || (with_slashes && text[at] == '/'))) {
        at++;
    }
    return at;
}

static size_t split_llama3(const struct tern_chars *chars,
                           const uint8_t *text,
                           size_t bytes,
                           size_t numbers,
                           bool with_marks)
{
    size_t found = contraction(text, bytes, true);
    if (found != 0) {
        return found;
    }
    int length;
    int flags = tern_chars_next(chars, text, bytes, &length);
    size_t first = (size_t)length;
    if (may_lead(text, flags)) {
        found = run_of_class(chars, text, bytes, first, TERN_CLASS_LETTER, with_marks, SIZE_MAX);
        if (found > first) {
            return found;
        }
    }
    found = run_of_class(chars, text, bytes, 0, TERN_CLASS_LETTER, with_marks, SIZE_MAX);
    if (found > 0) {
        return found;
    }
    if (class_of(flags) == TERN_CLASS_NUMBER) {
        return run_of_class(chars, text, bytes, 0, TERN_CLASS_NUMBER, false, numbers);
    }
    found = signs(chars, text, bytes, with_marks, false);
    return found > 0 ? found : blanks(chars, text, bytes, true);
}

/* ---- Tekken ---- */

/* UPPER*LOWER+ at text[at]: its end, `at` if it does not match. Where no LOWER follows the run of
 * UPPER, the run gives back down to its last character that is both. */
static size_t upper_lower(const struct tern_chars *chars,
                          const uint8_t *text,
                          size_t bytes,
                          size_t at)
{
    size_t both = at;
    while (at < bytes) {
        int length;
        int flags = tern_chars_next(chars, text + at, bytes - at, &length);
        if (!(flags & TERN_CHAR_UPPER)) {
            break;
        }
        at += (size_t)length;
        both = flags & TERN_CHAR_LOWER ? at : both;
    }
    size_t end = run_of_flags(chars, text, bytes, at, TERN_CHAR_LOWER);
    return end > at ? end : both;
}

/* UPPER+LOWER* likewise. */
static size_t upper_some(const struct tern_chars *chars,
                         const uint8_t *text,
                         size_t bytes,
                         size_t at)
{
    size_t end = run_of_flags(chars, text, bytes, at, TERN_CHAR_UPPER);
    return end > at ? run_of_flags(chars, text, bytes, end, TERN_CHAR_LOWER) : at;
}

static size_t split_tekken(const struct tern_chars *chars, const uint8_t *text, size_t bytes)
{
    int length;
    int flags = tern_chars_next(chars, text, bytes, &length);
    size_t lead = may_lead(text, flags) ? (size_t)length : 0;
    size_t found = upper_lower(chars, text, bytes, lead);
    if (found > lead) {
        return found;
    }
    found = lead > 0 ? upper_lower(chars, text, bytes, 0) : 0;
    if (found > 0) {
        return found;
    }
    found = upper_some(chars, text, bytes, lead);
    if (found > lead) {
        return found;
    }
    if (class_of(flags) == TERN_CLASS_NUMBER) {
        return (size_t)length;
    }
    found = signs(chars, text, bytes, false, true);
    return found > 0 ? found : blanks(chars, text, bytes, true);
}

/* ---- numbers apart ---- */

static size_t split_numbers(const struct tern_chars *chars,
                            const uint8_t *text,
                            size_t bytes,
                            size_t most)
{
    size_t at = run_of_class(chars, text, bytes, 0, TERN_CLASS_NUMBER, false, most);
    if (at > 0) {
        return at;
    }
    while (at < bytes) {
        int length;
        int flags = tern_chars_next(chars, text + at, bytes - at, &length);
        if (class_of(flags) == TERN_CLASS_NUMBER) {
            break;
        }
        at += (size_t)length;
    }
    return at;
}

size_t tern_split_next(const struct tern_chars *chars,
                       enum tern_split_kind kind,
                       const uint8_t *text,
                       size_t bytes)
{
    switch (kind) {
    case TERN_SPLIT_LLAMA3:
        return split_llama3(chars, text, bytes, 3, false);
    case TERN_SPLIT_QWEN2:
        return split_llama3(chars, text, bytes, 1, false);
    case TERN_SPLIT_QWEN35:
        return split_llama3(chars, text, bytes, 1, true);
    case TERN_SPLIT_TEKKEN:
        return split_tekken(chars, text, bytes);
    case TERN_SPLIT_DIGIT:
        return split_numbers(chars, text, bytes, 1);
    case TERN_SPLIT_DIGITS:
        return split_numbers(chars, text, bytes, SIZE_MAX);
    case TERN_SPLIT_DIGITS3:
        return split_numbers(chars, text, bytes, 3);
    default:
        return split_gpt2(chars, text, bytes);
    }
}
