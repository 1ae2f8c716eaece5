/* text.c - strings with bounds. */
#include "runtime/base/text.h"

#include "runtime/base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tern_text_init(struct tern_text *text)
{
    *text = (struct tern_text){0};
}

void tern_text_fini(struct tern_text *text)
{
    tern_free(text->data);
    *text = (struct tern_text){0};
}

static tern_status reserve(struct tern_text *text, size_t extra)
{
    if (extra < text->capacity - text->length && text->data != NULL) {
        return TERN_OK;
    }
    size_t wanted = (text->length + extra + 1) * 2;
    char *grown = tern_realloc("text", text->data, wanted);
    if (grown == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot grow a string to %zu bytes", wanted);
    }
    text->data = grown;
    text->capacity = wanted;
    return TERN_OK;
}

tern_status tern_text_append(struct tern_text *text, const void *bytes, size_t length)
{
    TERN_RETURN_IF_ERR(reserve(text, length + 1));
    if (length > 0) { /* bytes may be NULL */
        memcpy(text->data + text->length, bytes, length);
    }
    text->length += length;
    text->data[text->length] = '\0';
    return TERN_OK;
}

size_t tern_utf8_next(const char *text, size_t length, enum tern_utf8 *kind_out)
{
    const unsigned char *c = (const unsigned char *)text;
    unsigned char lead = c[0];
    size_t size = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (size == 0 || lead > 0xF4) {
        *kind_out = TERN_UTF8_WRONG;
        return 1;
    }
    for (size_t i = 1; i < size && i < length; i++) {
        /* the second byte keeps out overlong forms, surrogates and what lies beyond U+10FFFF */
        unsigned char low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned char high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (c[i] < low || c[i] > high) {
            *kind_out = TERN_UTF8_WRONG;
            return i;
        }
    }
    *kind_out = size <= length ? TERN_UTF8_WHOLE : TERN_UTF8_CUT;
    return size <= length ? size : length;
}

tern_status tern_text_append_utf8(struct tern_text *text, const char *bytes, size_t length)
{
    size_t start = 0;
    for (size_t at = 0; at < length;) {
        enum tern_utf8 kind;
        size_t size = tern_utf8_next(bytes + at, length - at, &kind);
        if (kind != TERN_UTF8_WHOLE) {
            TERN_RETURN_IF_ERR(tern_text_append(text, bytes + start, at - start));
            TERN_RETURN_IF_ERR(tern_text_append(text, "\xEF\xBF\xBD", 3));
            start = at + size;
        }
        at += size;
    }
    return tern_text_append(text, bytes + start, length - start);
}

tern_status tern_text_printf(struct tern_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int needed = vsnprintf(NULL, 0, format, args);
    va_end(args);
    tern_status status = reserve(text, (size_t)needed + 1);
    if (status == TERN_OK) {
        vsnprintf(text->data + text->length, (size_t)needed + 1, format, again);
        text->length += (size_t)needed;
    }
    va_end(again);
    return status;
}

/* Levenshtein distance, both words cut at 63 characters. */
static int edit_distance(const char *a, const char *b)
{
    enum {
        WORD_MAX = 63
    };
    int row[WORD_MAX + 1];
    int a_length = (int)strnlen(a, WORD_MAX);
    int b_length = (int)strnlen(b, WORD_MAX);
    for (int j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (int i = 1; i <= a_length; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int above = row[j];
            int change =
                diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            int best = above + 1 < row[j - 1] + 1 ? above + 1 : row[j - 1] + 1;
            row[j] = change < best ? change : best;
            diagonal = above;
        }
    }
    return row[b_length];
}

const char *tern_text_nearest(const char *word, const char *const *names, size_t count)
{
    size_t best = 0;
    int best_distance = 1 << 20;
    for (size_t i = 0; i < count; i++) {
        int distance = edit_distance(word, names[i]);
        if (distance < best_distance) {
            best_distance = distance;
            best = i;
        }
    }
    return names[best];
}

bool tern_text_to_f64(const char *text, double *value_out)
{
    char digits[64];
    size_t used = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '_' && c != text && c[1] != '\0') {
            continue;
        }
        if (used == sizeof digits - 1 ||
            (!isdigit((unsigned char)*c) && strchr("+-.eE", *c) == NULL)) {
            return false;
        }
        digits[used++] = *c;
    }
    digits[used] = '\0';
    if (used == 0) {
        return false;
    }
    errno = 0;
    char *end;
    double value = strtod(digits, &end);
    if (*end != '\0' || !isfinite(value)) {
        return false;
    }
    *value_out = value;
    return true;
}

bool tern_text_to_i64(const char *text, int64_t *value_out)
{
    errno = 0;
    char *end;
    long long whole = strtoll(text, &end, 10);
    if (text[0] != '\0' && !isspace((unsigned char)text[0]) && *end == '\0') {
        *value_out = whole;
        return errno == 0;
    }
    double value;
    if (!tern_text_to_f64(text, &value) || value != floor(value) || fabs(value) > 9.0e15) {
        return false;
    }
    *value_out = (int64_t)value;
    return true;
}

bool tern_text_to_bytes(const char *text, int64_t *bytes_out)
{
    char number[64];
    size_t length = strlen(text);
    if (length == 0 || length >= sizeof number) {
        return false;
    }
    strcpy(number, text);
    if (length > 1 && (number[length - 1] == 'B' || number[length - 1] == 'b')) {
        number[--length] = '\0';
    }
    if (length > 1 && number[length - 1] == 'i') {
        number[--length] = '\0';
    }
    static const char units[] = "KMGT";
    double scale = 1;
    const char *unit =
        length > 0 ? strchr(units, toupper((unsigned char)number[length - 1])) : NULL;
    if (unit != NULL && *unit != '\0') {
        scale = pow(1024, (double)(unit - units + 1));
        number[--length] = '\0';
    }
    double value;
    if (!tern_text_to_f64(number, &value) || value < 0 || value * scale > 9.0e18) {
        return false;
    }
    *bytes_out = (int64_t)(value * scale);
    return true;
}

const char *tern_text_bytes(int64_t bytes, char out[TERN_TEXT_BYTES_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, TERN_TEXT_BYTES_BYTES, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
    return out;
}

const char *tern_text_commas(int64_t value, char out[TERN_TEXT_BYTES_BYTES])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)value);
    int used = 0;
    for (int i = 0; i < length; i++) {
        out[used++] = digits[i];
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-') {
            out[used++] = ',';
        }
    }
    out[used] = '\0';
    return out;
}

const char *tern_text_duration(double seconds, char out[TERN_TEXT_BYTES_BYTES])
{
    if (!(seconds >= 0) || seconds > 3.6e8) {
        snprintf(out, TERN_TEXT_BYTES_BYTES, "--:--:--");
        return out;
    }
    long whole = lround(seconds);
    snprintf(out, TERN_TEXT_BYTES_BYTES, "%02ld:%02ld:%02ld", whole / 3600, whole / 60 % 60,
             whole % 60);
    return out;
}
