/* text.h - bounded string building, number parsing that names what is wrong, nearest-name suggestions. */
#ifndef TERN_RUNTIME_BASE_TEXT_H
#define TERN_RUNTIME_BASE_TEXT_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing byte string; data is always NUL-terminated once anything was added. */
struct tern_text {
    char *data;
    size_t length;
    size_t capacity;
};

void tern_text_init(struct tern_text *text);
void tern_text_fini(struct tern_text *text);
TERN_MUST_CHECK tern_status tern_text_append(struct tern_text *text,
                                             const void *bytes,
                                             size_t length);
TERN_MUST_CHECK tern_status tern_text_printf(struct tern_text *text, const char *format, ...)
    TERN_PRINTF(2, 3);

/* How many of the next `length` (>= 1) bytes belong together: a whole UTF-8 character; the beginning of one
 * whose rest is not there (CUT: all that is left); or bytes that can begin none, to be shown as one U+FFFD
 * (WRONG; the maximal subparts of the Unicode standard, 3.9). U+0000 is a whole character. */
enum tern_utf8 {
    TERN_UTF8_WHOLE,
    TERN_UTF8_CUT,
    TERN_UTF8_WRONG
};
size_t tern_utf8_next(const char *text, size_t length, enum tern_utf8 *kind_out);
/* Appends text with what is no UTF-8 replaced by U+FFFD. */
TERN_MUST_CHECK tern_status tern_text_append_utf8(struct tern_text *text,
                                                  const char *bytes,
                                                  size_t length);

/* The name with the smallest edit distance to `word`; names[0] if all are far. count > 0. */
const char *tern_text_nearest(const char *word, const char *const *names, size_t count);

/* Whole-string parsers; false on junk, overflow or an empty string. Integers take 10e9 and 1_000_000 too when the
 * value is whole; sizes take K, M, G, T (and Ki, Mi, ...: the same powers of 1024). */
bool tern_text_to_i64(const char *text, int64_t *value_out);
bool tern_text_to_f64(const char *text, double *value_out);
bool tern_text_to_bytes(const char *text, int64_t *bytes_out);
/* "1.5 GiB", "312 KiB". Returns out. */
enum {
    TERN_TEXT_BYTES_BYTES = 32
};
const char *tern_text_bytes(int64_t bytes, char out[TERN_TEXT_BYTES_BYTES]);
/* "124,439,808". Returns out. */
const char *tern_text_commas(int64_t value, char out[TERN_TEXT_BYTES_BYTES]);
/* "hh:mm:ss". Returns out. */
const char *tern_text_duration(double seconds, char out[TERN_TEXT_BYTES_BYTES]);

#endif
