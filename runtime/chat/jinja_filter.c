/* jinja_filter.c - filters on any value: default, length, tojson, numbers; and which filters there are. */
#include "runtime/chat/jinja_internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tern_status filter_default(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    struct jinja_value slots[2];
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, "", 0, &slots[0]));
    slots[1] = tern_jinja_bool(false);
    JINJA_ARGUMENTS(run, "default", call, 0, slots, "default_value", "boolean");
    bool is_missing =
        self.kind == JINJA_UNDEFINED || (tern_jinja_truth(slots[1]) && !tern_jinja_truth(self));
    *out = is_missing ? slots[0] : self;
    return TERN_OK;
}

static tern_status filter_length(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "length", call, NULL, 0, 0, NULL));
    TERN_RETURN_IF_ERR(tern_jinja_length(run, self, &count));
    *out = tern_jinja_int(count);
    return TERN_OK;
}

/* separators: a pair of strings, or none. */
static tern_status separators(struct jinja_run *run,
                              struct jinja_value pair,
                              struct jinja_dump *dump)
{
    if (pair.kind == JINJA_NONE) {
        return TERN_OK;
    }
    struct jinja_value *items = tern_jinja_is_list(pair) ? pair.list->items : NULL;
    if (items == NULL || pair.list->count != 2 || items[0].kind != JINJA_STRING ||
        items[1].kind != JINJA_STRING) {
        return tern_jinja_fail(run, "tojson: expected two strings as separators");
    }
    dump->item_separator = items[0].string;
    dump->key_separator = items[1].string;
    return TERN_OK;
}

static tern_status indentation(struct jinja_run *run,
                               struct jinja_value indent,
                               struct jinja_dump *dump)
{
    if (indent.kind == JINJA_NONE) {
        return TERN_OK;
    }
    if (tern_jinja_is_integer(indent)) {
        struct jinja_value blank;
        TERN_RETURN_IF_ERR(tern_jinja_borrow(run, " ", 1, &blank));
        TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_MULTIPLY, blank, indent, &indent));
    }
    if (indent.kind != JINJA_STRING) {
        return tern_jinja_fail(run,
                               "tojson: found an indent of type %s; expected a number or a string",
                               tern_jinja_type(indent));
    }
    dump->indent = indent.string;
    return TERN_OK;
}

static tern_status filter_tojson(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    static const struct jinja_string comma_blank = {", ", 2, 2}, comma = {",", 1, 1},
                                     colon = {": ", 2, 2};
    struct jinja_value slots[4] = {tern_jinja_bool(false), tern_jinja_none(), tern_jinja_none(),
                                   tern_jinja_bool(false)};
    JINJA_ARGUMENTS(run, "tojson", call, 0, slots, "ensure_ascii", "indent", "separators",
                    "sort_keys");
    struct jinja_text text = {0};
    struct jinja_dump dump = {.ensure_ascii = tern_jinja_truth(slots[0]),
                              .sort_keys = tern_jinja_truth(slots[3]),
                              .key_separator = &colon};
    TERN_RETURN_IF_ERR(indentation(run, slots[1], &dump));
    dump.item_separator = dump.indent != NULL ? &comma : &comma_blank;
    TERN_RETURN_IF_ERR(separators(run, slots[2], &dump));
    TERN_RETURN_IF_ERR(tern_jinja_dump(run, &text, &dump, self));
    return tern_jinja_finish_text(run, &text, out);
}

/* ---- numbers ---- */

/* A number as int() or float() reads one: white space around it, single underscores between its digits. */
static bool number_text(const struct jinja_string *string, char out[64])
{
    size_t begin = 0, end = string->bytes, length = 0;
    while (begin < end && isspace((unsigned char)string->data[begin])) {
        begin++;
    }
    while (end > begin && isspace((unsigned char)string->data[end - 1])) {
        end--;
    }
    for (size_t at = begin; at < end; at++) {
        char c = string->data[at];
        bool is_between = at > begin && at + 1 < end &&
                          isdigit((unsigned char)string->data[at - 1]) &&
                          isdigit((unsigned char)string->data[at + 1]);
        if (c == '_' && is_between) {
            continue;
        }
        if (length == 63 || c == '\0' || c == 'x' || c == 'X' || c == '(' ||
            isspace((unsigned char)c)) {
            return false;
        }
        out[length++] = c;
    }
    out[length] = '\0';
    return length > 0;
}

static bool float_of(struct jinja_value value, double *out)
{
    char text[64];
    if (tern_jinja_is_number(value)) {
        *out = tern_jinja_real(value);
        return true;
    }
    if (value.kind != JINJA_STRING || !number_text(value.string, text)) {
        return false;
    }
    char *end;
    *out = strtod(text, &end);
    return *end == '\0';
}

static bool int_of(struct jinja_value value, int base, int64_t *out)
{
    char text[64];
    if (tern_jinja_is_integer(value)) {
        *out = tern_jinja_integer(value);
        return true;
    }
    if (value.kind == JINJA_STRING && number_text(value.string, text)) {
        char *end;
        errno = 0;
        *out = strtoll(text, &end, base);
        if (*end == '\0' && errno == 0) {
            return true;
        }
    }
    double real;
    if (!float_of(value, &real) || !(fabs(real) < 9.2e18)) {
        return false;
    }
    *out = (int64_t)real;
    return true;
}

static tern_status filter_int(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    struct jinja_value slots[2] = {tern_jinja_int(0), tern_jinja_int(10)};
    JINJA_ARGUMENTS(run, "int", call, 0, slots, "default", "base");
    int64_t integer;
    if (self.kind == JINJA_UNDEFINED) {
        return tern_jinja_fail(run, "'%.64s' is undefined",
                               self.missing != NULL ? self.missing : "a value");
    }
    if (!tern_jinja_is_integer(slots[1]) || tern_jinja_integer(slots[1]) != 10) {
        return tern_jinja_unsupported(run, "int: a base other than 10 is not supported");
    }
    *out = int_of(self, 10, &integer) ? tern_jinja_int(integer) : slots[0];
    return TERN_OK;
}

static tern_status filter_float(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    struct jinja_value slots[1] = {tern_jinja_float(0)};
    double real;
    JINJA_ARGUMENTS(run, "float", call, 0, slots, "default");
    if (self.kind == JINJA_UNDEFINED) {
        return tern_jinja_fail(run, "'%.64s' is undefined",
                               self.missing != NULL ? self.missing : "a value");
    }
    *out = float_of(self, &real) ? tern_jinja_float(real) : slots[0];
    return TERN_OK;
}

static tern_status filter_abs(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    struct jinja_value positive;
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "abs", call, NULL, 0, 0, NULL));
    TERN_RETURN_IF_ERR(tern_jinja_negate(run, self, &positive));
    bool is_negative = tern_jinja_real(self) < 0;
    *out = is_negative                ? positive
           : self.kind == JINJA_FLOAT ? tern_jinja_float(fabs(self.real))
                                      : tern_jinja_int(tern_jinja_integer(self));
    return TERN_OK;
}

/* round() to even for halves, on the decimal digits of the number as Python does it. */
static tern_status filter_round(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    struct jinja_value slots[2] = {tern_jinja_int(0)};
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, "common", 6, &slots[1]));
    JINJA_ARGUMENTS(run, "round", call, 0, slots, "precision", "method");
    if (!tern_jinja_is_number(self) || !tern_jinja_is_integer(slots[0]) ||
        slots[1].kind != JINJA_STRING) {
        return tern_jinja_fail(run, "round: expected a number, and a precision that is whole");
    }
    int64_t digits = tern_jinja_integer(slots[0]);
    if (digits < 0 || digits > 15) {
        return tern_jinja_unsupported(run,
                                      "round: a precision other than 0 to 15 is not supported");
    }
    const struct jinja_string *method = slots[1].string;
    double value = tern_jinja_real(self), scale = pow(10, (double)digits);
    if (tern_jinja_string_is(method, "floor", 5)) {
        *out = tern_jinja_float(floor(value * scale) / scale);
    } else if (tern_jinja_string_is(method, "ceil", 4)) {
        *out = tern_jinja_float(ceil(value * scale) / scale);
    } else if (tern_jinja_string_is(method, "common", 6)) {
        char text[400];
        snprintf(text, sizeof text, "%.*f", (int)digits, value); /* rounds the exact value */
        *out = tern_jinja_is_integer(self) ? self : tern_jinja_float(strtod(text, NULL));
    } else {
        return tern_jinja_fail(run, "round: expected common, ceil or floor");
    }
    return TERN_OK;
}

/* ---- strings that need no escaping ---- */

static tern_status filter_string(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "string", call, NULL, 0, 0, NULL));
    return tern_jinja_to_string(run, self, out);
}

static tern_status filter_safe(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "safe", call, NULL, 0, 0, NULL));
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, self, out));
    out->is_safe = true;
    return TERN_OK;
}

static tern_status filter_escape(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "escape", call, NULL, 0, 0, NULL));
    return tern_jinja_escape(run, self, out);
}

static tern_status filter_attr(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    struct jinja_value slots[1] = {tern_jinja_none()};
    JINJA_ARGUMENTS(run, "attr", call, 1, slots, "name");
    if (slots[0].kind != JINJA_STRING) {
        return tern_jinja_fail(run, "attr: expected a name");
    }
    if (self.kind == JINJA_DICT) { /* an attribute only, never an item */
        TERN_RETURN_IF_ERR(tern_jinja_dict(run, JINJA_DICT, 0, &self));
    }
    return tern_jinja_item(run, self, slots[0], out);
}

/* ---- which there are ---- */

static const struct jinja_function g_filters[] = {
    {"default", filter_default}, {"d", filter_default},     {"length", filter_length},
    {"count", filter_length},    {"tojson", filter_tojson}, {"int", filter_int},
    {"float", filter_float},     {"abs", filter_abs},       {"round", filter_round},
    {"string", filter_string},   {"safe", filter_safe},     {"escape", filter_escape},
    {"e", filter_escape},        {"attr", filter_attr},
};

jinja_builtin tern_jinja_find_filter(const char *name)
{
    for (size_t i = 0; i < sizeof g_filters / sizeof g_filters[0]; i++) {
        if (strcmp(name, g_filters[i].name) == 0) {
            return g_filters[i].call;
        }
    }
    jinja_builtin filter = tern_jinja_find_string_filter(name);
    return filter != NULL ? filter : tern_jinja_find_list_filter(name);
}

tern_status tern_jinja_apply_filter(struct jinja_run *run,
                                    const char *name,
                                    struct jinja_value value,
                                    const struct jinja_call *call,
                                    struct jinja_value *out)
{
    jinja_builtin filter = tern_jinja_find_filter(name);
    if (filter == NULL) {
        return tern_jinja_unsupported(run, "the filter '%.64s' is not supported", name);
    }
    return filter(run, value, call, out);
}
