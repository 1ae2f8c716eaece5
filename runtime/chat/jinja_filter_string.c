/* jinja_filter_string.c - filters that give strings. */
#include "runtime/chat/jinja_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* str() of a value, then a method of strings on it. */
static tern_status through_method(struct jinja_run *run,
                                  struct jinja_value self,
                                  const char *method,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    struct jinja_value string;
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, self, &string));
    return tern_jinja_find_string_method(method)(run, string, call, out);
}

static tern_status filter_upper(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return through_method(run, self, "upper", call, out);
}

static tern_status filter_lower(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return through_method(run, self, "lower", call, out);
}

static tern_status filter_capitalize(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    return through_method(run, self, "capitalize", call, out);
}

static tern_status filter_trim(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    struct jinja_value slots[1] = {tern_jinja_none()};
    JINJA_ARGUMENTS(run, "trim", call, 0, slots, "chars");
    struct jinja_call strip = {.items = slots, .count = 1};
    return through_method(run, self, "strip", &strip, out);
}

static tern_status filter_replace(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    struct jinja_value slots[3] = {[2] = tern_jinja_none()};
    JINJA_ARGUMENTS(run, "replace", call, 2, slots, "old", "new", "count");
    for (int i = 0; i < 2; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_to_string(run, slots[i], &slots[i]));
        slots[i].is_safe = false;
    }
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, self, &self));
    self.is_safe = false;
    struct jinja_call replace = {.items = slots, .count = slots[2].kind == JINJA_NONE ? 2 : 3};
    return through_method(run, self, "replace", &replace, out);
}

/* jinja's own idea of words: they begin after blanks, hyphens and opening brackets. */
static tern_status filter_title(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    struct jinja_text text = {0};
    struct jinja_value string;
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "title", call, NULL, 0, 0, NULL));
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, self, &string));
    const struct jinja_string *s = string.string;
    for (size_t at = 0; at < s->bytes;) {
        size_t end = at;
        bool is_word = false, is_separator = false;
        int bytes;
        do { /* a stretch of separators or of others */
            uint32_t code = tern_jinja_code(s->data + end, &bytes);
            bool is_mark = code < 0x80 && code > 0 && strchr("-({[<", (int)code) != NULL;
            is_separator = is_mark || tern_jinja_is_space(code);
            if (end == at) {
                is_word = !is_separator;
            }
            end += is_word != is_separator ? (size_t)bytes : 0;
        } while (is_word != is_separator && end < s->bytes);
        struct jinja_value part, first, rest;
        tern_jinja_code(s->data + at, &bytes);
        TERN_RETURN_IF_ERR(tern_jinja_borrow(run, s->data + at, (size_t)bytes, &part));
        TERN_RETURN_IF_ERR(tern_jinja_upper(run, part, &first));
        TERN_RETURN_IF_ERR(
            tern_jinja_borrow(run, s->data + at + bytes, end - at - (size_t)bytes, &part));
        TERN_RETURN_IF_ERR(tern_jinja_lower(run, part, &rest));
        TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, first));
        TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, rest));
        at = end;
    }
    return tern_jinja_finish_text(run, &text, out);
}

/* Lines of a text that ends with a newline, each with the indentation before it, but the first and the empty ones. */
static tern_status filter_indent(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    struct jinja_value slots[3] = {tern_jinja_int(4), tern_jinja_bool(false),
                                   tern_jinja_bool(false)};
    JINJA_ARGUMENTS(run, "indent", call, 0, slots, "width", "first", "blank");
    if (slots[0].kind != JINJA_STRING) {
        struct jinja_value blank;
        TERN_RETURN_IF_ERR(tern_jinja_borrow(run, " ", 1, &blank));
        TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_MULTIPLY, blank, slots[0], &slots[0]));
    }
    if (self.kind != JINJA_STRING) {
        return tern_jinja_fail(run, "indent: found a value of type %s; expected a string",
                               tern_jinja_type(self));
    }
    if (self.is_safe) {
        return tern_jinja_unsupported(run, "indent of what `safe` marked is not supported");
    }
    struct jinja_value newline, lines;
    struct jinja_text text = {0};
    struct jinja_call none = {0};
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, "\n", 1, &newline));
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_ADD, self, newline, &self));
    TERN_RETURN_IF_ERR(tern_jinja_find_string_method("splitlines")(run, self, &none, &lines));
    for (int64_t i = 0; i < lines.list->count; i++) {
        const struct jinja_string *line = lines.list->items[i].string;
        bool is_indented =
            i == 0 ? tern_jinja_truth(slots[1]) : line->bytes > 0 || tern_jinja_truth(slots[2]);
        TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, "\n", i > 0));
        if (is_indented) {
            TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, slots[0]));
        }
        TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, line->data, line->bytes));
    }
    return tern_jinja_finish_text(run, &text, out);
}

static tern_status filter_urlencode(struct jinja_run *run,
                                    struct jinja_value self,
                                    const struct jinja_call *call,
                                    struct jinja_value *out)
{
    struct jinja_text text = {0};
    struct jinja_value string;
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "urlencode", call, NULL, 0, 0, NULL));
    if (self.kind == JINJA_DICT || tern_jinja_is_list(self)) {
        return tern_jinja_unsupported(run, "urlencode of a %s is not supported",
                                      tern_jinja_type(self));
    }
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, self, &string));
    for (size_t i = 0; i < string.string->bytes; i++) {
        unsigned char c = (unsigned char)string.string->data[i];
        char escape[4];
        bool is_plain = c < 0x80 && (isalnum(c) || (c != '\0' && strchr("_.-~/", c) != NULL));
        snprintf(escape, sizeof escape, is_plain ? "%c" : "%%%02X", c);
        TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, escape, strlen(escape)));
    }
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)string.string->bytes / 16));
    return tern_jinja_finish_text(run, &text, out);
}

/* Runs of word characters, as the pattern \w+ finds them. */
static tern_status filter_wordcount(struct jinja_run *run,
                                    struct jinja_value self,
                                    const struct jinja_call *call,
                                    struct jinja_value *out)
{
    struct jinja_value string;
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "wordcount", call, NULL, 0, 0, NULL));
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, self, &string));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)string.string->bytes / 16));
    int64_t count = 0;
    bool is_inside = false;
    for (size_t at = 0; at < string.string->bytes;) {
        int bytes;
        uint32_t code = tern_jinja_code(string.string->data + at, &bytes);
        bool is_word = code == '_' || tern_jinja_is_alpha(code) || tern_jinja_is_digit(code);
        count += is_word && !is_inside;
        is_inside = is_word;
        at += (size_t)bytes;
    }
    *out = tern_jinja_int(count);
    return TERN_OK;
}

/* ---- format, which is also % on strings ---- */

struct conversion {
    char flags[8];
    int width, precision; /* -1: none */
    char kind;
};

/* The conversion at *at, behind its %. */
static tern_status read_conversion(struct jinja_run *run,
                                   const struct jinja_string *format,
                                   size_t *at,
                                   struct conversion *out)
{
    size_t flags = 0;
    *out = (struct conversion){.width = -1, .precision = -1};
    while (*at < format->bytes && flags < sizeof out->flags - 1 && format->data[*at] != '\0' &&
           strchr("-+ 0#", format->data[*at]) != NULL) {
        out->flags[flags++] = format->data[(*at)++];
    }
    for (int part = 0; part < 2; part++) {
        int *number = part == 0 ? &out->width : &out->precision;
        if (part == 1) {
            if (*at >= format->bytes || format->data[*at] != '.') {
                break;
            }
            (*at)++;
            *number = 0;
        }
        while (*at < format->bytes && isdigit((unsigned char)format->data[*at])) {
            *number = (*number < 0 ? 0 : *number) * 10 + (format->data[(*at)++] - '0');
            if (*number > 4096) {
                return tern_jinja_unsupported(run, "format: a width above 4096 is not supported");
            }
        }
    }
    if (*at >= format->bytes || strchr("sridxXofFeEgGc", format->data[*at]) == NULL ||
        format->data[*at] == '\0') {
        return tern_jinja_unsupported(
            run, "format: expected one of %%s %%r %%d %%i %%x %%X %%o %%f %%e %%g %%c");
    }
    out->kind = format->data[(*at)++];
    return TERN_OK;
}

static tern_status write_number(struct jinja_run *run,
                                struct jinja_text *text,
                                const struct conversion *conversion,
                                struct jinja_value value)
{
    char format[32], out[8300];
    bool is_real = strchr("fFeEgG", conversion->kind) != NULL;
    if (!tern_jinja_is_number(value) ||
        (!is_real && !tern_jinja_is_integer(value) && strchr("di", conversion->kind) == NULL)) {
        return tern_jinja_fail(run, "format: found a value of type %s; expected a number for %%%c",
                               tern_jinja_type(value), conversion->kind);
    }
    int length = snprintf(format, sizeof format, "%%%s", conversion->flags);
    if (conversion->width >= 0) {
        length +=
            snprintf(format + length, sizeof format - (size_t)length, "%d", conversion->width);
    }
    if (conversion->precision >= 0) {
        length +=
            snprintf(format + length, sizeof format - (size_t)length, ".%d", conversion->precision);
    }
    if (is_real) {
        snprintf(format + length, sizeof format - (size_t)length, "%c", conversion->kind);
        length = snprintf(out, sizeof out, format, tern_jinja_real(value));
    } else {
        int64_t integer =
            value.kind == JINJA_FLOAT ? (int64_t)value.real : tern_jinja_integer(value);
        if (integer < 0 && strchr("di", conversion->kind) == NULL) {
            return tern_jinja_unsupported(
                run, "format: a negative number for %%%c is not supported", conversion->kind);
        }
        snprintf(format + length, sizeof format - (size_t)length, "ll%c", conversion->kind);
        length = snprintf(out, sizeof out, format, (long long)integer);
    }
    return tern_jinja_write(run, text, out, (size_t)length < sizeof out ? (size_t)length : 0);
}

static tern_status write_text(struct jinja_run *run,
                              struct jinja_text *text,
                              const struct conversion *conversion,
                              struct jinja_value value)
{
    struct jinja_text own = {0};
    TERN_RETURN_IF_ERR(conversion->kind == 'r' ? tern_jinja_write_repr(run, &own, value)
                                               : tern_jinja_write_value(run, &own, value));
    struct jinja_value string;
    TERN_RETURN_IF_ERR(tern_jinja_finish_text(run, &own, &string));
    int64_t count = tern_jinja_characters(string.string);
    if (conversion->precision >= 0 && count > conversion->precision) {
        count = conversion->precision;
        string.string->bytes = tern_jinja_offset(string.string, count);
    }
    bool is_left = strchr(conversion->flags, '-') != NULL;
    for (int64_t i = count; i < conversion->width && !is_left; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_write(run, text, " ", 1));
    }
    TERN_RETURN_IF_ERR(tern_jinja_write_value(run, text, string));
    for (int64_t i = count; i < conversion->width && is_left; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_write(run, text, " ", 1));
    }
    return TERN_OK;
}

/* "%(name)s": the value of that key, from the one argument that is a dict, or the keywords. */
static tern_status named_value(struct jinja_run *run,
                               const struct jinja_string *format,
                               size_t *at,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    size_t begin = *at + 1, end = begin;
    while (end < format->bytes && format->data[end] != ')') {
        end++;
    }
    const struct jinja_value *value = NULL;
    if (call->count == 1 && call->items[0].kind == JINJA_DICT) {
        value = tern_jinja_dict_find(call->items[0].dict, format->data + begin, end - begin);
    }
    for (int64_t i = 0; i < call->keyword_count; i++) {
        bool is_it = strlen(call->names[i]) == end - begin &&
                     memcmp(call->names[i], format->data + begin, end - begin) == 0;
        value = is_it ? &call->values[i] : value;
    }
    if (value == NULL || end >= format->bytes) {
        return tern_jinja_fail(run, "format: found no value for %%(%.*s)",
                               (int)(end - begin < 64 ? end - begin : 64), format->data + begin);
    }
    *at = end + 1;
    *out = *value;
    return TERN_OK;
}

static tern_status write_conversion(struct jinja_run *run,
                                    struct jinja_text *text,
                                    const struct jinja_string *format,
                                    size_t *at,
                                    const struct jinja_call *call,
                                    int64_t *used)
{
    struct jinja_value value = tern_jinja_none();
    struct conversion conversion;
    bool is_named = *at < format->bytes && format->data[*at] == '(';
    if (is_named) {
        TERN_RETURN_IF_ERR(named_value(run, format, at, call, &value));
    }
    TERN_RETURN_IF_ERR(read_conversion(run, format, at, &conversion));
    if (!is_named) {
        if (*used >= call->count) {
            return tern_jinja_fail(run, "format: found %lld values; expected more",
                                   (long long)call->count);
        }
        value = call->items[(*used)++];
    }
    bool is_text = strchr("src", conversion.kind) != NULL;
    if (conversion.kind == 'c' && value.kind != JINJA_STRING) {
        return tern_jinja_unsupported(run, "format: %%c of a number is not supported");
    }
    return is_text ? write_text(run, text, &conversion, value)
                   : write_number(run, text, &conversion, value);
}

tern_status tern_jinja_format(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              bool may_be_left,
                              struct jinja_value *out)
{
    struct jinja_text text = {0};
    struct jinja_value string;
    int64_t used = 0;
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, self, &string));
    if (string.is_safe) {
        return tern_jinja_unsupported(run, "format of what `safe` marked is not supported");
    }
    const struct jinja_string *format = string.string;
    for (size_t at = 0; at < format->bytes;) {
        const char *percent = memchr(format->data + at, '%', format->bytes - at);
        size_t end = percent != NULL ? (size_t)(percent - format->data) : format->bytes;
        TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, format->data + at, end - at));
        at = end + 1;
        if (at < format->bytes && format->data[at] == '%') {
            TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, "%", 1));
            at++;
        } else if (end < format->bytes) {
            TERN_RETURN_IF_ERR(write_conversion(run, &text, format, &at, call, &used));
        }
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
    }
    if (used < call->count && !may_be_left) {
        return tern_jinja_fail(run, "format: found %lld values; expected %lld",
                               (long long)call->count, (long long)used);
    }
    return tern_jinja_finish_text(run, &text, out);
}

static tern_status filter_format(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    return tern_jinja_format(run, self, call, false, out);
}

jinja_builtin tern_jinja_find_string_filter(const char *name)
{
    static const struct jinja_function filters[] = {
        {"upper", filter_upper},           {"lower", filter_lower},
        {"capitalize", filter_capitalize}, {"trim", filter_trim},
        {"replace", filter_replace},       {"title", filter_title},
        {"indent", filter_indent},         {"urlencode", filter_urlencode},
        {"wordcount", filter_wordcount},   {"format", filter_format},
    };
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        if (strcmp(name, filters[i].name) == 0) {
            return filters[i].call;
        }
    }
    return NULL;
}
