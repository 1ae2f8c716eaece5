/* jinja_json.c - JSON to values, and values to JSON as Python's json.dumps writes it. */
#include "runtime/chat/jinja_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- from JSON ---- */

struct filling {
    struct jinja_run *run;
    struct jinja_dict *dict;
};

static tern_status add_member(void *context,
                              const char *key,
                              size_t key_bytes,
                              const struct tern_json *value)
{
    struct filling *filling = context;
    struct jinja_value name, item;
    TERN_RETURN_IF_ERR(tern_jinja_copy(filling->run, key, key_bytes, &name));
    TERN_RETURN_IF_ERR(tern_jinja_from_json(filling->run, value, &item));
    return tern_jinja_dict_set(filling->run, filling->dict, name, item);
}

static tern_status from_array(struct jinja_run *run,
                              const struct tern_json *json,
                              struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_LIST, tern_json_count(json), out));
    for (int64_t i = 0; i < out->list->count; i++) {
        TERN_RETURN_IF_ERR(
            tern_jinja_from_json(run, tern_json_item(json, i), &out->list->items[i]));
    }
    return TERN_OK;
}

static tern_status from_object(struct jinja_run *run,
                               const struct tern_json *json,
                               struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_dict(run, JINJA_DICT, tern_json_count(json), out));
    struct filling filling = {run, out->dict};
    return tern_json_each(json, add_member, &filling);
}

static tern_status from_number(const struct tern_json *json, struct jinja_value *out)
{
    int64_t integer;
    double real = 0;
    if (tern_json_i64(json, &integer)) {
        *out = tern_jinja_int(integer);
    } else {
        tern_json_f64(json, &real);
        *out = tern_jinja_float(real);
    }
    return TERN_OK;
}

tern_status tern_jinja_from_json(struct jinja_run *run,
                                 const struct tern_json *json,
                                 struct jinja_value *out)
{
    size_t bytes;
    const char *string;
    tern_status status = TERN_OK;
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    switch (tern_json_kind_of(json)) {
    case TERN_JSON_BOOL:
        *out = tern_jinja_bool(tern_json_bool(json, false));
        break;
    case TERN_JSON_NUMBER:
        status = from_number(json, out);
        break;
    case TERN_JSON_STRING:
        string = tern_json_string(json, &bytes);
        status = tern_jinja_copy(run, string, bytes, out);
        break;
    case TERN_JSON_ARRAY:
        status = from_array(run, json, out);
        break;
    case TERN_JSON_OBJECT:
        status = from_object(run, json, out);
        break;
    default:
        *out = tern_jinja_none();
        break;
    }
    run->depth--;
    return status;
}

/* ---- to JSON ---- */

struct dumper {
    struct jinja_run *run;
    struct jinja_text *text;
    const struct jinja_dump *dump;
    int level;
};

static tern_status write(struct dumper *d, const char *string)
{
    return tern_jinja_write(d->run, d->text, string, strlen(string));
}

static tern_status write_string(struct dumper *d, const struct jinja_string *string)
{
    return tern_jinja_write(d->run, d->text, string->data, string->bytes);
}

static tern_status dump_code(struct dumper *d, uint32_t code, const char *bytes, int count)
{
    static const char special[] = "\"\\\n\r\t\f\b";
    static const char *const escapes[] = {"\\\"", "\\\\", "\\n", "\\r", "\\t", "\\f", "\\b"};
    const char *found = code > 0 && code < 0x80 ? strchr(special, (int)code) : NULL;
    char escape[16];
    if (found != NULL) {
        return write(d, escapes[found - special]);
    }
    if (code >= 0x20 && (!d->dump->ensure_ascii || code < 0x80)) {
        return tern_jinja_write(d->run, d->text, bytes, (size_t)count);
    }
    if (code >= 0x10000) { /* a pair of surrogates */
        uint32_t rest = code - 0x10000;
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + (rest >> 10),
                 0xDC00 + (rest & 0x3FF));
    } else {
        snprintf(escape, sizeof escape, "\\u%04x", code);
    }
    return write(d, escape);
}

static tern_status dump_string(struct dumper *d, const struct jinja_string *string)
{
    TERN_RETURN_IF_ERR(write(d, "\""));
    size_t plain = 0; /* begin of what needs no escape */
    for (size_t at = 0; at < string->bytes;) {
        int count;
        uint32_t code = tern_jinja_code(string->data + at, &count);
        if (code < 0x20 || code == '"' || code == '\\' || (code >= 0x80 && d->dump->ensure_ascii)) {
            TERN_RETURN_IF_ERR(tern_jinja_write(d->run, d->text, string->data + plain, at - plain));
            TERN_RETURN_IF_ERR(dump_code(d, code, string->data + at, count));
            plain = at + (size_t)count;
        }
        at += (size_t)count;
    }
    TERN_RETURN_IF_ERR(tern_jinja_spend(d->run, (int64_t)string->bytes / 32));
    TERN_RETURN_IF_ERR(
        tern_jinja_write(d->run, d->text, string->data + plain, string->bytes - plain));
    return write(d, "\"");
}

static tern_status dump_value(struct dumper *d, struct jinja_value value);

/* What stands before item `index` of a list or dict, or (index < 0) before its end. */
static tern_status dump_break(struct dumper *d, int64_t index)
{
    if (index > 0) {
        TERN_RETURN_IF_ERR(write_string(d, d->dump->item_separator));
    }
    if (d->dump->indent == NULL) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(write(d, "\n"));
    for (int i = 0; i < d->level; i++) {
        TERN_RETURN_IF_ERR(write_string(d, d->dump->indent));
    }
    return TERN_OK;
}

static tern_status dump_list(struct dumper *d, const struct jinja_list *list)
{
    if (list->count == 0) {
        return write(d, "[]");
    }
    TERN_RETURN_IF_ERR(write(d, "["));
    d->level++;
    for (int64_t i = 0; i < list->count; i++) {
        TERN_RETURN_IF_ERR(dump_break(d, i));
        TERN_RETURN_IF_ERR(dump_value(d, list->items[i]));
    }
    d->level--;
    TERN_RETURN_IF_ERR(dump_break(d, -1));
    return write(d, "]");
}

/* Keys are strings; what json.dumps makes strings of is written like that. */
static tern_status dump_key(struct dumper *d, struct jinja_value key)
{
    if (key.kind == JINJA_STRING) {
        return dump_string(d, key.string);
    }
    if (key.kind != JINJA_NONE && !tern_jinja_is_number(key)) {
        return tern_jinja_fail(d->run,
                               "tojson: found a key of type %s; expected a string or a number",
                               tern_jinja_type(key));
    }
    TERN_RETURN_IF_ERR(write(d, "\""));
    TERN_RETURN_IF_ERR(dump_value(d, key));
    return write(d, "\"");
}

static int by_key(const void *a, const void *b)
{
    const struct jinja_string *x = ((const struct jinja_entry *)a)->key.string;
    const struct jinja_string *y = ((const struct jinja_entry *)b)->key.string;
    size_t least = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = least > 0 ? memcmp(x->data, y->data, least) : 0;
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static tern_status sorted_entries(struct dumper *d,
                                  const struct jinja_dict *dict,
                                  const struct jinja_entry **out)
{
    struct jinja_entry *entries;
    size_t bytes = (size_t)dict->count * sizeof *entries;
    TERN_RETURN_IF_ERR(tern_jinja_new(d->run, bytes, &entries));
    memcpy(entries, dict->entries, bytes);
    for (int64_t i = 0; i < dict->count; i++) {
        if (entries[i].key.kind != JINJA_STRING) {
            return tern_jinja_unsupported(
                d->run, "tojson: sorting keys that are no strings is not supported");
        }
    }
    qsort(entries, (size_t)dict->count, sizeof *entries, by_key);
    *out = entries;
    return TERN_OK;
}

static tern_status dump_dict(struct dumper *d, const struct jinja_dict *dict)
{
    const struct jinja_entry *entries = dict->entries;
    if (dict->count == 0) {
        return write(d, "{}");
    }
    if (d->dump->sort_keys) {
        TERN_RETURN_IF_ERR(sorted_entries(d, dict, &entries));
    }
    TERN_RETURN_IF_ERR(write(d, "{"));
    d->level++;
    for (int64_t i = 0; i < dict->count; i++) {
        TERN_RETURN_IF_ERR(dump_break(d, i));
        TERN_RETURN_IF_ERR(dump_key(d, entries[i].key));
        TERN_RETURN_IF_ERR(write_string(d, d->dump->key_separator));
        TERN_RETURN_IF_ERR(dump_value(d, entries[i].value));
    }
    d->level--;
    TERN_RETURN_IF_ERR(dump_break(d, -1));
    return write(d, "}");
}

static tern_status dump_float(struct dumper *d, double real)
{
    char number[JINJA_FLOAT_BYTES];
    if (!isfinite(real)) {
        return write(d, isnan(real) ? "NaN" : real < 0 ? "-Infinity" : "Infinity");
    }
    tern_jinja_float_text(real, number);
    return write(d, number);
}

static tern_status dump_value(struct dumper *d, struct jinja_value value)
{
    char number[JINJA_FLOAT_BYTES];
    tern_status status;
    TERN_RETURN_IF_ERR(tern_jinja_enter(d->run));
    TERN_RETURN_IF_ERR(tern_jinja_spend(d->run, 1));
    switch (value.kind) {
    case JINJA_NONE:
        status = write(d, "null");
        break;
    case JINJA_BOOL:
        status = write(d, value.truth ? "true" : "false");
        break;
    case JINJA_INT:
        snprintf(number, sizeof number, "%" PRId64, value.integer);
        status = write(d, number);
        break;
    case JINJA_FLOAT:
        status = dump_float(d, value.real);
        break;
    case JINJA_STRING:
        status = dump_string(d, value.string);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        status = dump_list(d, value.list);
        break;
    case JINJA_DICT:
        status = dump_dict(d, value.dict);
        break;
    default:
        status =
            tern_jinja_fail(d->run, "tojson: found a value of type %s; expected what JSON can hold",
                            tern_jinja_type(value));
        break;
    }
    d->run->depth--;
    return status;
}

tern_status tern_jinja_dump(struct jinja_run *run,
                            struct jinja_text *text,
                            const struct jinja_dump *dump,
                            struct jinja_value value)
{
    struct dumper dumper = {.run = run, .text = text, .dump = dump};
    return dump_value(&dumper, value);
}
