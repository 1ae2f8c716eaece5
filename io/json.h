/* json.h - the one owner of jansson: parse a text, walk its values. Values are borrowed from the
 * document. */
#ifndef TERN_IO_JSON_H
#define TERN_IO_JSON_H

#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_json;

enum tern_json_kind {
    TERN_JSON_MISSING, /* a NULL value */
    TERN_JSON_NULL,
    TERN_JSON_BOOL,
    TERN_JSON_NUMBER,
    TERN_JSON_STRING,
    TERN_JSON_ARRAY,
    TERN_JSON_OBJECT,
};

/* Parses one JSON text (strings may hold U+0000; the last of two equal keys wins).
 * TERN_ERR_INPUT names `name`, line, column and byte. Owned: close. */
TERN_MUST_CHECK tern_status tern_json_parse(const char *name,
                                            const char *text,
                                            size_t bytes,
                                            struct tern_json **out);
void tern_json_close(struct tern_json *document);

enum tern_json_kind tern_json_kind_of(const struct tern_json *value);
const char *tern_json_kind_name(enum tern_json_kind kind); /* "an object" */
/* Member of an object; NULL if there is none or it is no object. */
const struct tern_json *tern_json_get(const struct tern_json *object, const char *key);
/* Entries of an array or object, 0 for others; entry `index` of an array, NULL past its end. */
int64_t tern_json_count(const struct tern_json *value);
const struct tern_json *tern_json_item(const struct tern_json *array, int64_t index);
/* UTF-8 of a string, NUL-terminated; NULL if it is no string. bytes_out may be NULL. */
const char *tern_json_string(const struct tern_json *value, size_t *bytes_out);
/* `fallback` when it is no boolean. */
bool tern_json_bool(const struct tern_json *value, bool fallback);
/* False when it is no whole number. */
bool tern_json_i64(const struct tern_json *value, int64_t *value_out);
/* False when it is no number. */
bool tern_json_f64(const struct tern_json *value, double *value_out);
/* Calls visit for each member in file order, until one fails. */
TERN_MUST_CHECK tern_status tern_json_each(const struct tern_json *object,
                                           tern_status (*visit)(void *context,
                                                                const char *key,
                                                                size_t key_bytes,
                                                                const struct tern_json *value),
                                           void *context);
/* Appends a value as compact JSON, members in file order; nothing of a NULL value. */
TERN_MUST_CHECK tern_status tern_json_write(struct tern_text *out, const struct tern_json *value);
/* Appends a string literal, quotes and escapes included; what is no UTF-8 becomes U+FFFD. */
TERN_MUST_CHECK tern_status tern_json_quote(struct tern_text *out, const char *text, size_t bytes);

#endif
