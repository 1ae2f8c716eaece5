/* json_scan.c - one pass over JSON text. */
#include "io/json_scan.h"

#include <stdio.h>
#include <string.h>

enum {
    NESTING_MAX = 32,
    FOUND_BYTES = 32
};

uint64_t tern_json_scan_offset(const struct tern_json_scan *scan)
{
    return scan->base + scan->at;
}

/* What is at the position, for a message. */
static const char *found(const struct tern_json_scan *scan, char out[FOUND_BYTES])
{
    unsigned char c = scan->at < scan->bytes ? (unsigned char)scan->text[scan->at] : 0;
    if (scan->at >= scan->bytes) {
        snprintf(out, FOUND_BYTES, "the end");
    } else if (c > ' ' && c < 0x7f) {
        snprintf(out, FOUND_BYTES, "'%c'", c);
    } else {
        snprintf(out, FOUND_BYTES, "the byte 0x%02x", c);
    }
    return out;
}

static tern_status refuse(const struct tern_json_scan *scan, const char *expected)
{
    char what[FOUND_BYTES];
    return tern_fail(TERN_ERR_INPUT, "%s: byte %llu: found %s, expected %s", scan->file,
                     (unsigned long long)tern_json_scan_offset(scan), found(scan, what), expected);
}

char tern_json_scan_peek(struct tern_json_scan *scan)
{
    while (scan->at < scan->bytes && scan->text[scan->at] != '\0' &&
           strchr(" \t\r\n", scan->text[scan->at]) != NULL) {
        scan->at++;
    }
    return scan->at < scan->bytes ? scan->text[scan->at] : '\0';
}

tern_status tern_json_scan_char(struct tern_json_scan *scan, char expected)
{
    char quoted[] = {'\'', expected, '\'', '\0'};
    if (tern_json_scan_peek(scan) != expected || scan->at >= scan->bytes) {
        return refuse(scan, quoted);
    }
    scan->at++;
    return TERN_OK;
}

tern_status tern_json_scan_more(struct tern_json_scan *scan,
                                char close,
                                int64_t *count,
                                bool *more_out)
{
    char next = tern_json_scan_peek(scan);
    *more_out = next != close;
    if (next == close) {
        scan->at++;
    } else if (*count > 0) {
        TERN_RETURN_IF_ERR(tern_json_scan_char(scan, ','));
        tern_json_scan_peek(scan);
    }
    *count += 1;
    return TERN_OK;
}

/* Four hexadecimal digits. */
static tern_status scan_unit(struct tern_json_scan *scan, unsigned *unit_out)
{
    *unit_out = 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdefABCDEF";
        char c = scan->at < scan->bytes ? scan->text[scan->at] : '\0';
        const char *digit = c != '\0' ? strchr(digits, c) : NULL;
        if (digit == NULL) {
            return refuse(scan, "four hexadecimal digits behind \\u");
        }
        unsigned value = (unsigned)(digit - digits);
        *unit_out = *unit_out * 16 + (value < 16 ? value : value - 6);
        scan->at++;
    }
    return TERN_OK;
}

/* The rest of \uXXXX or \uXXXX\uXXXX, as UTF-8. */
static tern_status scan_code_point(struct tern_json_scan *scan, char utf8[4], int *bytes_out)
{
    unsigned code, low;
    TERN_RETURN_IF_ERR(scan_unit(scan, &code));
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || scan->bytes - scan->at < 2 || scan->text[scan->at] != '\\' ||
            scan->text[scan->at + 1] != 'u') {
            return refuse(scan, "a pair of surrogates");
        }
        scan->at += 2;
        TERN_RETURN_IF_ERR(scan_unit(scan, &low));
        if (low < 0xdc00 || low >= 0xe000) {
            return refuse(scan, "the low half of a pair of surrogates before this");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    int tail = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0x00, 0xc0, 0xe0, 0xf0};
    utf8[0] = (char)(lead[tail] | code >> 6 * tail);
    for (int i = 1; i <= tail; i++) {
        utf8[i] = (char)(0x80 | (code >> 6 * (tail - i) & 0x3f));
    }
    *bytes_out = tail + 1;
    return TERN_OK;
}

static tern_status scan_escape(struct tern_json_scan *scan, char utf8[4], int *bytes_out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = scan->at < scan->bytes ? scan->text[scan->at] : '\0';
    const char *name = c != '\0' ? strchr(names, c) : NULL;
    if (c == 'u') {
        scan->at++;
        return scan_code_point(scan, utf8, bytes_out);
    }
    if (name == NULL) {
        return refuse(scan, "an escape: one of \" \\ / b f n r t u");
    }
    scan->at++;
    utf8[0] = values[name - names];
    *bytes_out = 1;
    return TERN_OK;
}

tern_status tern_json_scan_string(struct tern_json_scan *scan,
                                  char *out,
                                  size_t capacity,
                                  size_t *bytes_out)
{
    size_t used = 0;
    TERN_RETURN_IF_ERR(tern_json_scan_char(scan, '"'));
    uint64_t start = tern_json_scan_offset(scan);
    for (;;) {
        char utf8[4];
        int bytes = 1;
        unsigned char c = scan->at < scan->bytes ? (unsigned char)scan->text[scan->at] : 0;
        if (c < ' ') {
            return refuse(scan, "a character of a string, or '\"'");
        }
        scan->at++;
        if (c == '"') {
            break;
        }
        utf8[0] = (char)c;
        if (c == '\\') {
            TERN_RETURN_IF_ERR(scan_escape(scan, utf8, &bytes));
        }
        if (utf8[0] == '\0' || used + (size_t)bytes >= capacity) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: byte %llu: found a string of %s, expected at most %zu bytes "
                             "and no U+0000",
                             scan->file, (unsigned long long)start,
                             utf8[0] == '\0' ? "NUL characters" : "more", capacity - 1);
        }
        memcpy(out + used, utf8, (size_t)bytes);
        used += (size_t)bytes;
    }
    out[used] = '\0';
    *bytes_out = used;
    return TERN_OK;
}

tern_status tern_json_scan_key(struct tern_json_scan *scan,
                               char *out,
                               size_t capacity,
                               size_t *bytes_out)
{
    TERN_RETURN_IF_ERR(tern_json_scan_string(scan, out, capacity, bytes_out));
    return tern_json_scan_char(scan, ':');
}

static bool is_digit(const struct tern_json_scan *scan)
{
    return scan->at < scan->bytes && scan->text[scan->at] >= '0' && scan->text[scan->at] <= '9';
}

tern_status tern_json_scan_count(struct tern_json_scan *scan, int64_t *value_out)
{
    int64_t value = 0;
    tern_json_scan_peek(scan);
    if (!is_digit(scan)) {
        return refuse(scan, "a whole number, 0 or more");
    }
    size_t start = scan->at;
    for (; is_digit(scan); scan->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, scan->text[scan->at] - '0', &value)) {
            scan->at = start;
            return refuse(scan, "a number below 2^63 here");
        }
    }
    if (scan->at < scan->bytes && strchr(".eE", scan->text[scan->at]) != NULL &&
        scan->text[scan->at] != '\0') {
        return refuse(scan, "a whole number");
    }
    *value_out = value;
    return TERN_OK;
}

/* Passes a string of any length. */
static tern_status skip_string(struct tern_json_scan *scan)
{
    for (scan->at++; scan->at < scan->bytes; scan->at++) {
        unsigned char c = (unsigned char)scan->text[scan->at];
        if (c == '"') {
            scan->at++;
            return TERN_OK;
        }
        if (c < ' ') {
            break;
        }
        scan->at += c == '\\';
    }
    scan->at = scan->at < scan->bytes ? scan->at : scan->bytes;
    return refuse(scan, "a character of a string, or '\"'");
}

/* Passes a number, true, false or null. */
static tern_status skip_word(struct tern_json_scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t left = scan->bytes - scan->at, length = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t bytes = strlen(words[i]);
        if (left >= bytes && memcmp(scan->text + scan->at, words[i], bytes) == 0) {
            scan->at += bytes;
            return TERN_OK;
        }
    }
    while (length < left && scan->text[scan->at + length] != '\0' &&
           strchr("+-.0123456789eE", scan->text[scan->at + length]) != NULL) {
        length++;
    }
    if (length == 0) {
        return refuse(scan, "a value");
    }
    scan->at += length;
    return TERN_OK;
}

tern_status tern_json_scan_skip(struct tern_json_scan *scan)
{
    char closes[NESTING_MAX];
    int64_t counts[NESTING_MAX];
    int depth = 0;
    do {
        bool more = true;
        if (depth > 0) {
            TERN_RETURN_IF_ERR(
                tern_json_scan_more(scan, closes[depth - 1], &counts[depth - 1], &more));
        }
        char next = tern_json_scan_peek(scan);
        if (!more) {
            depth--;
            continue;
        }
        if (depth > 0 && closes[depth - 1] == '}') {
            if (next != '"') {
                return refuse(scan, "'\"'");
            }
            TERN_RETURN_IF_ERR(skip_string(scan));
            TERN_RETURN_IF_ERR(tern_json_scan_char(scan, ':'));
            next = tern_json_scan_peek(scan);
        }
        if (next == '{' || next == '[') {
            if (depth == NESTING_MAX) {
                return refuse(scan, "at most 32 levels of nesting");
            }
            closes[depth] = next == '{' ? '}' : ']';
            counts[depth++] = 0;
            scan->at++;
        } else {
            TERN_RETURN_IF_ERR(next == '"' ? skip_string(scan) : skip_word(scan));
        }
    } while (depth > 0);
    return TERN_OK;
}

tern_status tern_json_scan_end(struct tern_json_scan *scan)
{
    tern_json_scan_peek(scan);
    return scan->at < scan->bytes ? refuse(scan, "the end") : TERN_OK;
}
