/* jinja_text.c - values as text: str() and repr() as Python has them, escapes, upper and lower case. */
#include "runtime/chat/jinja_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tern_status tern_jinja_write(struct jinja_run *run,
                             struct jinja_text *text,
                             const char *bytes,
                             size_t count)
{
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)(count / 64)));
    if (count == 0) {
        return TERN_OK;
    }
    char *data = text->data;
    if (count > text->capacity - text->length) {
        size_t spare = text->capacity - text->length;
        size_t more = count > text->length ? count : text->length; /* doubles */
        run->characters.limit_bytes = run->memory_bytes - run->objects.used_bytes;
        if (text->capacity == 0) {
            more = count;
        }
        data = tern_jinja_pool_extend(&run->characters, text->data, text->capacity, more);
        if (data == NULL) {
            return tern_jinja_fail(run, "the template's memory, %zu MiB, is used up",
                                   run->memory_bytes >> 20);
        }
        text->capacity = text->length + spare + more;
        text->data = data;
    }
    memcpy(text->data + text->length, bytes, count);
    text->length += count;
    return TERN_OK;
}

tern_status tern_jinja_finish_text(struct jinja_run *run,
                                   const struct jinja_text *text,
                                   struct jinja_value *out)
{
    struct jinja_pool *pool = &run->characters;
    if (text->data != NULL && text->data + text->capacity == pool->next) {
        pool->next = text->data +
                     text->length; /* so that what is added to this string finds room behind it */
    }
    return tern_jinja_borrow(run, text->data != NULL ? text->data : "", text->length, out);
}

static tern_status write_string(struct jinja_run *run, struct jinja_text *text, const char *string)
{
    return tern_jinja_write(run, text, string, strlen(string));
}

/* ---- numbers ---- */

void tern_jinja_float_text(double value, char out[JINJA_FLOAT_BYTES])
{
    if (!isfinite(value)) {
        strcpy(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    char digits[32];
    int precision = 0;
    do { /* the shortest that reads back */
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    } while (strtod(digits, NULL) != value && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        snprintf(out, JINJA_FLOAT_BYTES, "%.*f", precision > exponent ? precision - exponent : 1,
                 value);
        return;
    }
    char *mark = strchr(digits, 'e');
    *mark = '\0';
    snprintf(out, JINJA_FLOAT_BYTES, "%.24se%c%02d", digits, exponent < 0 ? '-' : '+',
             abs(exponent));
}

/* ---- repr ---- */

static tern_status write_escaped(struct jinja_run *run,
                                 struct jinja_text *text,
                                 uint32_t code,
                                 const char *bytes,
                                 int count)
{
    char escape[16];
    switch (code) {
    case '\n':
        return write_string(run, text, "\\n");
    case '\r':
        return write_string(run, text, "\\r");
    case '\t':
        return write_string(run, text, "\\t");
    case '\\':
        return write_string(run, text, "\\\\");
    default:
        break;
    }
    if (tern_jinja_is_printable(code)) {
        return tern_jinja_write(run, text, bytes, (size_t)count);
    }
    snprintf(escape, sizeof escape,
             code < 0x100     ? "\\x%02x"
             : code < 0x10000 ? "\\u%04x"
                              : "\\U%08x",
             code);
    return write_string(run, text, escape);
}

static tern_status repr_string(struct jinja_run *run,
                               struct jinja_text *text,
                               const struct jinja_string *string)
{
    bool has_single = memchr(string->data, '\'', string->bytes) != NULL;
    bool has_double = memchr(string->data, '"', string->bytes) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    TERN_RETURN_IF_ERR(tern_jinja_write(run, text, &quote, 1));
    for (size_t at = 0; at < string->bytes;) {
        int count;
        uint32_t code = tern_jinja_code(string->data + at, &count);
        if (code == (uint32_t)quote) {
            TERN_RETURN_IF_ERR(write_string(run, text, "\\'"));
        } else {
            TERN_RETURN_IF_ERR(write_escaped(run, text, code, string->data + at, count));
        }
        at += (size_t)count;
    }
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)string->bytes / 16));
    return tern_jinja_write(run, text, &quote, 1);
}

static tern_status repr_list(struct jinja_run *run,
                             struct jinja_text *text,
                             struct jinja_value value)
{
    bool is_tuple = value.kind == JINJA_TUPLE;
    TERN_RETURN_IF_ERR(write_string(run, text, is_tuple ? "(" : "["));
    for (int64_t i = 0; i < value.list->count; i++) {
        TERN_RETURN_IF_ERR(write_string(run, text, i > 0 ? ", " : ""));
        TERN_RETURN_IF_ERR(tern_jinja_write_repr(run, text, value.list->items[i]));
    }
    return write_string(run, text, !is_tuple ? "]" : value.list->count == 1 ? ",)" : ")");
}

static tern_status repr_dict(struct jinja_run *run,
                             struct jinja_text *text,
                             const struct jinja_dict *dict)
{
    TERN_RETURN_IF_ERR(write_string(run, text, "{"));
    for (int64_t i = 0; i < dict->count; i++) {
        TERN_RETURN_IF_ERR(write_string(run, text, i > 0 ? ", " : ""));
        TERN_RETURN_IF_ERR(tern_jinja_write_repr(run, text, dict->entries[i].key));
        TERN_RETURN_IF_ERR(write_string(run, text, ": "));
        TERN_RETURN_IF_ERR(tern_jinja_write_repr(run, text, dict->entries[i].value));
    }
    return write_string(run, text, "}");
}

static tern_status repr_number(struct jinja_run *run,
                               struct jinja_text *text,
                               struct jinja_value value)
{
    char number[JINJA_FLOAT_BYTES];
    if (value.kind == JINJA_FLOAT) {
        tern_jinja_float_text(value.real, number);
    } else {
        snprintf(number, sizeof number, "%" PRId64, value.integer);
    }
    return write_string(run, text, number);
}

tern_status tern_jinja_write_repr(struct jinja_run *run,
                                  struct jinja_text *text,
                                  struct jinja_value value)
{
    tern_status status;
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
    switch (value.kind) {
    case JINJA_UNDEFINED:
        status = write_string(run, text, "Undefined");
        break;
    case JINJA_NONE:
        status = write_string(run, text, "None");
        break;
    case JINJA_BOOL:
        status = write_string(run, text, value.truth ? "True" : "False");
        break;
    case JINJA_INT:
    case JINJA_FLOAT:
        status = repr_number(run, text, value);
        break;
    case JINJA_STRING:
        if (value.is_safe) {
            TERN_RETURN_IF_ERR(write_string(run, text, "Markup("));
        }
        TERN_RETURN_IF_ERR(repr_string(run, text, value.string));
        status = value.is_safe ? write_string(run, text, ")") : TERN_OK;
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        status = repr_list(run, text, value);
        break;
    case JINJA_DICT:
        status = repr_dict(run, text, value.dict);
        break;
    default:
        status = tern_jinja_unsupported(run, "writing a value of type %s is not supported",
                                        tern_jinja_type(value));
        break;
    }
    run->depth--;
    return status;
}

tern_status tern_jinja_write_value(struct jinja_run *run,
                                   struct jinja_text *text,
                                   struct jinja_value value)
{
    if (value.kind == JINJA_STRING) {
        return tern_jinja_write(run, text, value.string->data, value.string->bytes);
    }
    return value.kind == JINJA_UNDEFINED ? TERN_OK : tern_jinja_write_repr(run, text, value);
}

tern_status tern_jinja_to_string(struct jinja_run *run,
                                 struct jinja_value value,
                                 struct jinja_value *out)
{
    if (value.kind == JINJA_STRING) {
        *out = value;
        return TERN_OK;
    }
    struct jinja_text text = {0};
    TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, value));
    return tern_jinja_finish_text(run, &text, out);
}

tern_status tern_jinja_escape(struct jinja_run *run,
                              struct jinja_value value,
                              struct jinja_value *out)
{
    static const char special[] = "&<>'\"";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct jinja_value string;
    struct jinja_text text = {0};
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, value, &string));
    if (!string.is_safe) {
        for (size_t at = 0; at < string.string->bytes; at++) {
            char c = string.string->data[at];
            const char *found = c != '\0' ? strchr(special, c) : NULL;
            TERN_RETURN_IF_ERR(found != NULL ? write_string(run, &text, escapes[found - special])
                                             : tern_jinja_write(run, &text, &c, 1));
        }
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)string.string->bytes / 16));
        TERN_RETURN_IF_ERR(tern_jinja_finish_text(run, &text, &string));
        string.is_safe = true;
    }
    *out = string;
    return TERN_OK;
}

/* ---- characters ---- */

uint32_t tern_jinja_code(const char *text, int *bytes_out)
{
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80) {
        *bytes_out = 1;
        return c[0];
    }
    int count = c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : 4;
    uint32_t code = c[0] & (0xFFU >> (count + 1));
    for (int i = 1; i < count; i++) {
        code = code << 6 | (c[i] & 0x3F);
    }
    *bytes_out = count;
    return code;
}

int tern_jinja_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = count - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)((0xF00 >> count & 0xFF) | code);
    return count;
}

/* Whether the capital sigma at `at` ends a word: a cased character before it, none after it, others ignored. */
static bool is_final_sigma(const struct jinja_string *s, size_t at)
{
    int bytes;
    size_t before = at;
    bool is_after_letter = false;
    while (before > 0) {
        do {
            before--;
        } while (before > 0 && (s->data[before] & 0xC0) == 0x80);
        uint32_t code = tern_jinja_code(s->data + before, &bytes);
        if (!tern_jinja_is_case_ignorable(code)) {
            is_after_letter = tern_jinja_is_cased(code);
            break;
        }
    }
    for (size_t after = at + 2; after < s->bytes; after += (size_t)bytes) {
        uint32_t code = tern_jinja_code(s->data + after, &bytes);
        if (!tern_jinja_is_case_ignorable(code)) {
            return is_after_letter && !tern_jinja_is_cased(code);
        }
    }
    return is_after_letter;
}

static tern_status write_case(struct jinja_run *run,
                              struct jinja_text *text,
                              const struct jinja_string *string,
                              size_t at,
                              uint32_t code,
                              enum jinja_case to)
{
    uint32_t codes[3];
    int count = tern_jinja_case(code, to, codes);
    if (code == 0x3A3 && to == CASE_LOWER && is_final_sigma(string, at)) {
        codes[0] = 0x3C2;
    }
    char bytes[12];
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        length += (size_t)tern_jinja_encode(codes[i], bytes + length);
    }
    return tern_jinja_write(run, text, bytes, length);
}

static tern_status change_case(struct jinja_run *run,
                               struct jinja_value value,
                               enum jinja_case to,
                               struct jinja_value *out)
{
    struct jinja_text text = {0};
    const struct jinja_string *string = value.string;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)string->bytes / 8));
    for (size_t at = 0; at < string->bytes;) {
        int bytes;
        uint32_t code = tern_jinja_code(string->data + at, &bytes);
        TERN_RETURN_IF_ERR(write_case(run, &text, string, at, code, to));
        at += (size_t)bytes;
    }
    TERN_RETURN_IF_ERR(tern_jinja_finish_text(run, &text, out));
    out->is_safe = value.is_safe;
    return TERN_OK;
}

tern_status tern_jinja_upper(struct jinja_run *run,
                             struct jinja_value string,
                             struct jinja_value *out)
{
    return change_case(run, string, CASE_UPPER, out);
}

tern_status tern_jinja_lower(struct jinja_run *run,
                             struct jinja_value string,
                             struct jinja_value *out)
{
    return change_case(run, string, CASE_LOWER, out);
}

tern_status tern_jinja_title(struct jinja_run *run,
                             struct jinja_value value,
                             bool is_one_word,
                             struct jinja_value *out)
{
    struct jinja_text text = {0};
    const struct jinja_string *string = value.string;
    bool is_inside = false;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)string->bytes / 8));
    for (size_t at = 0; at < string->bytes;) {
        int bytes;
        uint32_t code = tern_jinja_code(string->data + at, &bytes);
        TERN_RETURN_IF_ERR(
            write_case(run, &text, string, at, code, is_inside ? CASE_LOWER : CASE_TITLE));
        is_inside = is_one_word || tern_jinja_is_cased(code);
        at += (size_t)bytes;
    }
    TERN_RETURN_IF_ERR(tern_jinja_finish_text(run, &text, out));
    out->is_safe = value.is_safe;
    return TERN_OK;
}
