/* tokenizer_split.c - text into words as GPT-2's pattern does, by hand, in one pass:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * Invalid UTF-8 counts as characters that are neither letter, number nor space, one a byte. */
#include "io/tokenizer_internal.h"
#include "runtime/base/mem.h"

#include <string.h>

tern_status tern_splitter_init(struct tern_splitter *splitter)
{
    splitter->map = tern_alloc_zero("tokenizer classes", TERN_CLASS_MAP_BYTES, 1);
    if (splitter->map == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %d bytes for the tokenizer's classes",
                         TERN_CLASS_MAP_BYTES);
    }
    for (int i = 0; i < tern_class_range_count; i++) {
        const struct tern_class_range *range = &tern_class_ranges[i];
        for (uint32_t code = range->first; code <= range->last; code++) {
            splitter->map[code >> 2] |= (uint8_t)(range->kind << (code & 3) * 2);
        }
    }
    return TERN_OK;
}

void tern_splitter_fini(struct tern_splitter *splitter)
{
    tern_free(splitter->map);
    splitter->map = NULL;
}

int tern_utf8_decode(const uint8_t *text, size_t bytes, uint32_t *code_out)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t first = text[0];
    if (first < 0x80) {
        *code_out = first;
        return 1;
    }
    int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || (size_t)length > bytes) {
        return 0;
    }
    uint32_t code = first & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (text[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (code < smallest[length] || code >= TERN_CODE_POINTS || is_surrogate) {
        return 0;
    }
    *code_out = code;
    return length;
}

int tern_utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)((0xf00u >> length & 0xffu) | code);
    return length;
}

enum tern_class tern_split_class(const struct tern_splitter *splitter,
                                 const uint8_t *text,
                                 size_t bytes,
                                 int *length_out)
{
    uint32_t code = text[0];
    int length = 1;
    if (code >= 0x80) {
        length = tern_utf8_decode(text, bytes, &code);
        if (length == 0) {
            *length_out = 1;
            return TERN_CLASS_OTHER;
        }
    }
    *length_out = length;
    return (enum tern_class)(splitter->map[code >> 2] >> (code & 3) * 2 & 3);
}

/* 's 't 're 've 'm 'll 'd: bytes of the contraction at text, 0 if there is none. */
static size_t contraction(const uint8_t *text, size_t bytes)
{
    if (text[0] != '\'' || bytes < 2) {
        return 0;
    }
    switch (text[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return bytes > 2 && text[2] == 'e' ? 3 : 0;
    case 'l':
        return bytes > 2 && text[2] == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

static size_t split_pattern(const struct tern_splitter *splitter, const uint8_t *text, size_t bytes)
{
    size_t short_word = contraction(text, bytes);
    if (short_word != 0) {
        return short_word;
    }
    int length;
    enum tern_class kind = tern_split_class(splitter, text, bytes, &length);
    size_t at = (size_t)length;
    if (text[0] == ' ' && bytes > 1) {
        enum tern_class next = tern_split_class(splitter, text + 1, bytes - 1, &length);
        if (next != TERN_CLASS_SPACE) {
            kind = next;
            at += (size_t)length;
        } else {
            length = 1;
        }
    }
    int last = length;
    while (at < bytes) {
        int step;
        if (tern_split_class(splitter, text + at, bytes - at, &step) != kind) {
            break;
        }
        at += (size_t)step;
        last = step;
    }
    bool leaves_last = kind == TERN_CLASS_SPACE && at < bytes && at > (size_t)last;
    return leaves_last ? at - (size_t)last : at; /* \s+(?!\S) leaves the last space to the word */
}

size_t tern_split_next(const struct tern_splitter *splitter,
                       const uint8_t *text,
                       size_t bytes,
                       size_t at,
                       size_t *stretch_end)
{
    if (!splitter->split_digits) {
        return split_pattern(splitter, text + at, bytes - at);
    }
    if (at >= *stretch_end) {
        int length;
        enum tern_class first = tern_split_class(splitter, text + at, bytes - at, &length);
        bool is_number = first == TERN_CLASS_NUMBER;
        size_t end = at + (size_t)length;
        while (end < bytes && !(is_number && splitter->digits_alone)) {
            enum tern_class next = tern_split_class(splitter, text + end, bytes - end, &length);
            if ((next == TERN_CLASS_NUMBER) != is_number) {
                break;
            }
            end += (size_t)length;
        }
        *stretch_end = end;
    }
    return split_pattern(splitter, text + at, *stretch_end - at);
}

/* Bytes that print stand for themselves; the other 68 are, in order, U+0100, U+0101, ... */
static bool is_plain(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           (byte >= 0xae && byte <= 0xff);
}

uint32_t tern_byte_to_code(uint8_t byte)
{
    if (is_plain(byte)) {
        return byte;
    }
    /* below 0x21: 33 of them; 0x7f to 0xa0: 34; 0xad */
    return byte < 0x21 ? 0x100u + byte : byte == 0xad ? 0x143u : 0x121u + (byte - 0x7fu);
}

int tern_code_to_byte(uint32_t code)
{
    if (code < 0x100) {
        return is_plain(code) ? (int)code : -1;
    }
    if (code < 0x121) {
        return (int)(code - 0x100);
    }
    if (code < 0x143) {
        return (int)(code - 0x121 + 0x7f);
    }
    return code == 0x143 ? 0xad : -1;
}
