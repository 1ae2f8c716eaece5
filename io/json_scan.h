/* json_scan.h - reads JSON from front to back without building anything: for headers of untrusted
 * files, which a tree of values would blow up to many times their size.
 *
 * Every function that fails answers TERN_ERR_INPUT, and names the file and the byte. */
#ifndef TERN_IO_JSON_SCAN_H
#define TERN_IO_JSON_SCAN_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_json_scan {
    const char *file;
    const char *text;
    size_t bytes, at;
    uint64_t base; /* of text in the file, for messages */
};

/* The position that messages give. */
uint64_t tern_json_scan_offset(const struct tern_json_scan *scan);
/* Passes blanks and exactly this character. */
TERN_MUST_CHECK tern_status tern_json_scan_char(struct tern_json_scan *scan, char expected);
/* The next character that is no blank, without passing it; '\0' at the end. */
char tern_json_scan_peek(struct tern_json_scan *scan);
/* Inside of {...} or [...] before an entry, `close` being } or ]: passes a comma (none before the
 * first, *count == 0) and counts, or passes `close` and sets *more_out to false. */
TERN_MUST_CHECK tern_status tern_json_scan_more(struct tern_json_scan *scan,
                                                char close,
                                                int64_t *count,
                                                bool *more_out);
/* A string with its escapes resolved, NUL-terminated in out; more than capacity - 1 bytes, and
 * U+0000, are refused. */
TERN_MUST_CHECK tern_status tern_json_scan_string(struct tern_json_scan *scan,
                                                  char *out,
                                                  size_t capacity,
                                                  size_t *bytes_out);
/* A string and the colon behind it. */
TERN_MUST_CHECK tern_status tern_json_scan_key(struct tern_json_scan *scan,
                                               char *out,
                                               size_t capacity,
                                               size_t *bytes_out);
/* A whole number, 0 to 2^63 - 1. */
TERN_MUST_CHECK tern_status tern_json_scan_count(struct tern_json_scan *scan, int64_t *value_out);
/* Any value; at most 32 levels of nesting. */
TERN_MUST_CHECK tern_status tern_json_scan_skip(struct tern_json_scan *scan);
/* Only blanks are left. */
TERN_MUST_CHECK tern_status tern_json_scan_end(struct tern_json_scan *scan);

#endif
