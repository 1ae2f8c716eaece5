/* json.c - jansson behind a few functions. */
#include "io/json.h"

#include <jansson.h>
#include <stdio.h>

static json_t *inside(const struct tern_json *value)
{
    return (json_t *)(uintptr_t)value; /* jansson's readers take non-const pointers */
}

tern_status tern_json_parse(const char *name,
                            const char *text,
                            size_t bytes,
                            struct tern_json **out)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    *out = (struct tern_json *)root;
    if (root == NULL) {
        return tern_fail(TERN_ERR_INPUT, "%s: line %d, column %d (byte %d): %s; expected JSON",
                         name, error.line, error.column, error.position, error.text);
    }
    return TERN_OK;
}

void tern_json_close(struct tern_json *document)
{
    json_decref(inside(document));
}

enum tern_json_kind tern_json_kind_of(const struct tern_json *value)
{
    if (value == NULL) {
        return TERN_JSON_MISSING;
    }
    switch (json_typeof(inside(value))) {
    case JSON_OBJECT:
        return TERN_JSON_OBJECT;
    case JSON_ARRAY:
        return TERN_JSON_ARRAY;
    case JSON_STRING:
        return TERN_JSON_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return TERN_JSON_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return TERN_JSON_BOOL;
    default:
        return TERN_JSON_NULL;
    }
}

const char *tern_json_kind_name(enum tern_json_kind kind)
{
    static const char *const names[] = {"nothing",  "null",     "a boolean", "a number",
                                        "a string", "an array", "an object"};
    return names[kind];
}

const struct tern_json *tern_json_get(const struct tern_json *object, const char *key)
{
    return (const struct tern_json *)json_object_get(inside(object), key);
}

int64_t tern_json_count(const struct tern_json *value)
{
    json_t *json = inside(value);
    return (int64_t)(json_is_array(json) ? json_array_size(json) : json_object_size(json));
}

const struct tern_json *tern_json_item(const struct tern_json *array, int64_t index)
{
    return (const struct tern_json *)json_array_get(inside(array), (size_t)index);
}

const char *tern_json_string(const struct tern_json *value, size_t *bytes_out)
{
    json_t *json = inside(value);
    if (bytes_out != NULL) {
        *bytes_out = json_string_length(json);
    }
    return json_string_value(json);
}

bool tern_json_bool(const struct tern_json *value, bool fallback)
{
    json_t *json = inside(value);
    return json_is_boolean(json) ? json_is_true(json) : fallback;
}

bool tern_json_i64(const struct tern_json *value, int64_t *value_out)
{
    json_t *json = inside(value);
    *value_out = json_integer_value(json);
    return json_is_integer(json);
}

bool tern_json_f64(const struct tern_json *value, double *value_out)
{
    json_t *json = inside(value);
    *value_out = json_number_value(json);
    return json_is_number(json);
}

tern_status tern_json_each(const struct tern_json *object,
                           tern_status (*visit)(void *context,
                                                const char *key,
                                                size_t key_bytes,
                                                const struct tern_json *value),
                           void *context)
{
    json_t *json = inside(object);
    for (void *at = json_object_iter(json); at != NULL; at = json_object_iter_next(json, at)) {
        const char *key = json_object_iter_key(at);
        size_t key_bytes = json_object_iter_key_len(at);
        const struct tern_json *value = (const struct tern_json *)json_object_iter_value(at);
        TERN_RETURN_IF_ERR(visit(context, key, key_bytes, value));
    }
    return TERN_OK;
}

static int append_some(const char *bytes, size_t count, void *out)
{
    return tern_text_append(out, bytes, count) == TERN_OK ? 0 : -1;
}

tern_status tern_json_write(struct tern_text *out, const struct tern_json *value)
{
    if (value == NULL) {
        return TERN_OK;
    }
    if (json_dump_callback(inside(value), append_some, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
        return tern_fail(TERN_ERR_MEMORY, "cannot write a JSON value");
    }
    return TERN_OK;
}

tern_status tern_json_quote(struct tern_text *out, const char *text, size_t bytes)
{
    TERN_RETURN_IF_ERR(tern_text_append(out, "\"", 1));
    size_t start = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_text_append_utf8(out, text + start, i - start));
        char escape[8];
        int length = c < 0x20 ? snprintf(escape, sizeof escape, "\\u%04x", c)
                              : snprintf(escape, sizeof escape, "\\%c", c);
        TERN_RETURN_IF_ERR(tern_text_append(out, escape, (size_t)length));
        start = i + 1;
    }
    TERN_RETURN_IF_ERR(tern_text_append_utf8(out, text + start, bytes - start));
    return tern_text_append(out, "\"", 1);
}
