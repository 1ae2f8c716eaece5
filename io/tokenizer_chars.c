/* tokenizer_chars.c - UTF-8, the byte alphabet, flags of characters: a map for the code points in
 * use, a search for the rare planes. */
#include "io/tokenizer_chars.h"

#include "io/tokenizer_nfc.h"
#include "runtime/base/mem.h"

static int flags_of_kind(int kind)
{
    static const uint8_t flags[] = {
        [TERN_RANGE_UPPER] = TERN_CLASS_LETTER | TERN_CHAR_UPPER | TERN_CHAR_WORD,
        [TERN_RANGE_LOWER] = TERN_CLASS_LETTER | TERN_CHAR_LOWER | TERN_CHAR_WORD,
        [TERN_RANGE_TITLE] = TERN_CLASS_LETTER | TERN_CHAR_UPPER | TERN_CHAR_WORD,
        [TERN_RANGE_MODIFIER] =
            TERN_CLASS_LETTER | TERN_CHAR_UPPER | TERN_CHAR_LOWER | TERN_CHAR_WORD,
        [TERN_RANGE_LETTER] =
            TERN_CLASS_LETTER | TERN_CHAR_UPPER | TERN_CHAR_LOWER | TERN_CHAR_WORD,
        [TERN_RANGE_MARK] = TERN_CHAR_MARK | TERN_CHAR_UPPER | TERN_CHAR_LOWER | TERN_CHAR_WORD,
        [TERN_RANGE_WORD_NUMBER] = TERN_CLASS_NUMBER | TERN_CHAR_WORD,
        [TERN_RANGE_NUMBER] = TERN_CLASS_NUMBER,
        [TERN_RANGE_SPACE] = TERN_CLASS_SPACE,
        [TERN_RANGE_WORD] = TERN_CHAR_WORD,
    };
    return flags[kind];
}

tern_status tern_chars_init(struct tern_chars *chars)
{
    chars->map = tern_alloc_zero("tokenizer characters", TERN_CHARS_MAPPED, 1);
    if (chars->map == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %d bytes for the tokenizer's characters",
                         TERN_CHARS_MAPPED);
    }
    for (int i = 0; i < tern_class_range_count; i++) {
        const struct tern_class_range *range = &tern_class_ranges[i];
        for (uint32_t code = range->first; code <= range->last && code < TERN_CHARS_MAPPED;
             code++) {
            chars->map[code] = (uint8_t)flags_of_kind(range->kind);
        }
    }
    for (int i = 0; i < tern_nfc_check_count; i++) {
        const struct tern_nfc_range *range = &tern_nfc_checks[i];
        for (uint32_t code = range->first; code <= range->last && code < TERN_CHARS_MAPPED;
             code++) {
            chars->map[code] |= TERN_CHAR_NFC;
        }
    }
    return TERN_OK;
}

void tern_chars_fini(struct tern_chars *chars)
{
    tern_free(chars->map);
    chars->map = NULL;
}

static int flags_by_search(uint32_t code)
{
    int low = 0, high = tern_class_range_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (tern_class_ranges[middle].last < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool is_in = low < tern_class_range_count && tern_class_ranges[low].first <= code;
    int flags = is_in ? flags_of_kind(tern_class_ranges[low].kind) : 0;
    return flags |
           (tern_nfc_value(tern_nfc_checks, tern_nfc_check_count, code) != 0 ? TERN_CHAR_NFC : 0);
}

int tern_chars_of_code(const struct tern_chars *chars, uint32_t code)
{
    return code < TERN_CHARS_MAPPED ? chars->map[code] : flags_by_search(code);
}

int tern_chars_next(const struct tern_chars *chars,
                    const uint8_t *text,
                    size_t bytes,
                    int *length_out)
{
    uint32_t code = text[0];
    if (code < 0x80) {
        *length_out = 1;
        return chars->map[code];
    }
    int length = tern_utf8_decode(text, bytes, &code);
    *length_out = length == 0 ? 1 : length;
    return length == 0 ? TERN_CLASS_OTHER : tern_chars_of_code(chars, code);
}

int tern_chars_before(const struct tern_chars *chars,
                      const uint8_t *text,
                      size_t at,
                      int *length_out)
{
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && (text[start] & 0xc0) == 0x80) {
        start--;
    }
    for (; start < at; start++) {
        int flags = tern_chars_next(chars, text + start, at - start, length_out);
        if (start + (size_t)*length_out == at) {
            return flags;
        }
    }
    *length_out = 1;
    return TERN_CLASS_OTHER;
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
