/* jinja_method_make.c - the methods of strings that make lists of parts, or other strings. */
#include "runtime/chat/jinja_method.h"

#include <string.h>

/* ---- splitting ---- */

/* A growing list of parts. */
struct parts {
    struct jinja_run *run;
    struct jinja_value self;
    struct jinja_value *items;
    int64_t count, capacity;
};

static tern_status add_part(struct parts *parts, size_t begin, size_t end)
{
    TERN_RETURN_IF_ERR(tern_jinja_spend(parts->run, 1));
    if (parts->count == parts->capacity) {
        int64_t capacity = parts->capacity * 2 + 4;
        struct jinja_value *grown;
        TERN_RETURN_IF_ERR(tern_jinja_new(parts->run, (size_t)capacity * sizeof *grown, &grown));
        if (parts->count > 0) {
            memcpy(grown, parts->items, (size_t)parts->count * sizeof *grown);
        }
        parts->items = grown;
        parts->capacity = capacity;
    }
    return tern_jinja_part(parts->run, parts->self, begin, end, &parts->items[parts->count++]);
}

static tern_status finish_parts(struct parts *parts, bool is_reversed, struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_list(parts->run, JINJA_LIST, parts->count, out));
    for (int64_t i = 0; i < parts->count; i++) {
        out->list->items[is_reversed ? parts->count - 1 - i : i] = parts->items[i];
    }
    return TERN_OK;
}

/* At white space, at most `most` times (negative: no limit); none at the edges. */
static tern_status split_space(struct parts *parts, int64_t most)
{
    const struct jinja_string *s = parts->self.string;
    size_t begin = 0;
    bool is_inside = false;
    for (size_t at = 0; at < s->bytes;) {
        int bytes;
        bool is_space = tern_jinja_is_space(tern_jinja_code(s->data + at, &bytes));
        if (is_inside && is_space) {
            TERN_RETURN_IF_ERR(add_part(parts, begin, at));
        } else if (!is_inside && !is_space) {
            begin = at;
            if (parts->count == most) { /* the rest as it is */
                size_t end = s->bytes;
                struct jinja_value rest;
                struct jinja_call none = {0};
                TERN_RETURN_IF_ERR(tern_jinja_part(parts->run, parts->self, begin, end, &rest));
                TERN_RETURN_IF_ERR(
                    tern_jinja_find_string_method("rstrip")(parts->run, rest, &none, &rest));
                return add_part(parts, begin, begin + rest.string->bytes);
            }
        }
        is_inside = !is_space;
        at += (size_t)bytes;
    }
    return is_inside ? add_part(parts, begin, s->bytes) : TERN_OK;
}

static tern_status split_at(struct parts *parts, const struct jinja_string *separator, int64_t most)
{
    const struct jinja_string *s = parts->self.string;
    size_t at = 0;
    while (most < 0 || parts->count < most) {
        const char *found = memmem(s->data + at, s->bytes - at, separator->data, separator->bytes);
        if (found == NULL) {
            break;
        }
        TERN_RETURN_IF_ERR(add_part(parts, at, (size_t)(found - s->data)));
        at = (size_t)(found - s->data) + separator->bytes;
    }
    return add_part(parts, at, s->bytes);
}

/* From the end; parts come last first. */
static tern_status split_at_from_end(struct parts *parts,
                                     const struct jinja_string *separator,
                                     int64_t most)
{
    const struct jinja_string *s = parts->self.string;
    size_t end = s->bytes;
    while (most < 0 || parts->count < most) {
        const char *found;
        TERN_RETURN_IF_ERR(tern_jinja_find_last(parts->run, s, end, separator, &found));
        if (found == NULL) {
            break;
        }
        size_t at = (size_t)(found - s->data);
        TERN_RETURN_IF_ERR(add_part(parts, at + separator->bytes, end));
        end = at;
    }
    return add_part(parts, 0, end);
}

static tern_status split(struct jinja_run *run,
                         const char *what,
                         struct jinja_value self,
                         const struct jinja_call *call,
                         bool from_end,
                         struct jinja_value *out)
{
    struct jinja_value slots[2] = {tern_jinja_none(), tern_jinja_int(-1)};
    JINJA_ARGUMENTS(run, what, call, 0, slots, "sep", "maxsplit");
    if (!tern_jinja_is_integer(slots[1])) {
        return tern_jinja_fail(run, "%s: expected a whole number as maxsplit", what);
    }
    struct parts parts = {.run = run, .self = self};
    int64_t most = tern_jinja_integer(slots[1]);
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)self.string->bytes / 32));
    if (slots[0].kind == JINJA_NONE) {
        if (from_end && most >= 0) {
            return tern_jinja_unsupported(run, "rsplit at blanks with a limit is not supported");
        }
        TERN_RETURN_IF_ERR(split_space(&parts, most));
        return finish_parts(&parts, false, out);
    }
    TERN_RETURN_IF_ERR(tern_jinja_need_string(run, what, slots[0]));
    if (slots[0].string->bytes == 0) {
        return tern_jinja_fail(run, "%s: found an empty separator", what);
    }
    TERN_RETURN_IF_ERR(from_end ? split_at_from_end(&parts, slots[0].string, most)
                                : split_at(&parts, slots[0].string, most));
    return finish_parts(&parts, from_end, out);
}

static tern_status string_split(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return split(run, "split", self, call, false, out);
}

static tern_status string_rsplit(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    return split(run, "rsplit", self, call, true, out);
}

static bool ends_line(uint32_t code)
{
    return (code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

static tern_status string_splitlines(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    struct jinja_value slots[1] = {tern_jinja_bool(false)};
    JINJA_ARGUMENTS(run, "splitlines", call, 0, slots, "keepends");
    struct parts parts = {.run = run, .self = self};
    const struct jinja_string *s = self.string;
    size_t begin = 0;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)s->bytes / 16));
    for (size_t at = 0; at < s->bytes;) {
        int bytes;
        uint32_t code = tern_jinja_code(s->data + at, &bytes);
        size_t end = at + (size_t)bytes;
        if (ends_line(code)) {
            end += code == '\r' && end < s->bytes && s->data[end] == '\n';
            TERN_RETURN_IF_ERR(add_part(&parts, begin, tern_jinja_truth(slots[0]) ? end : at));
            begin = end;
        }
        at = end;
    }
    if (begin < s->bytes) {
        TERN_RETURN_IF_ERR(add_part(&parts, begin, s->bytes));
    }
    return finish_parts(&parts, false, out);
}

static tern_status partition(struct jinja_run *run,
                             const char *what,
                             struct jinja_value self,
                             const struct jinja_call *call,
                             bool from_end,
                             struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, what, call, 1, 1));
    TERN_RETURN_IF_ERR(tern_jinja_need_string(run, what, call->items[0]));
    const struct jinja_string *s = self.string, *part = call->items[0].string;
    if (part->bytes == 0) {
        return tern_jinja_fail(run, "%s: found an empty separator", what);
    }
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)s->bytes / 64));
    const char *found = memmem(s->data, s->bytes, part->data, part->bytes);
    if (from_end) {
        TERN_RETURN_IF_ERR(tern_jinja_find_last(run, s, s->bytes, part, &found));
    }
    size_t at = found != NULL ? (size_t)(found - s->data) : from_end ? 0 : s->bytes;
    size_t length = found != NULL ? part->bytes : 0;
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_TUPLE, 3, out));
    TERN_RETURN_IF_ERR(tern_jinja_part(run, self, 0, at, &out->list->items[0]));
    TERN_RETURN_IF_ERR(tern_jinja_part(run, self, at, at + length, &out->list->items[1]));
    return tern_jinja_part(run, self, at + length, s->bytes, &out->list->items[2]);
}

static tern_status string_partition(struct jinja_run *run,
                                    struct jinja_value self,
                                    const struct jinja_call *call,
                                    struct jinja_value *out)
{
    return partition(run, "partition", self, call, false, out);
}

static tern_status string_rpartition(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    return partition(run, "rpartition", self, call, true, out);
}

/* ---- building ---- */

static tern_status refuse_safe(struct jinja_run *run, const char *what, struct jinja_value self)
{
    return self.is_safe
               ? tern_jinja_unsupported(run, "%s of what `safe` marked is not supported", what)
               : TERN_OK;
}

static tern_status string_replace(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, "replace", call, 2, 3));
    TERN_RETURN_IF_ERR(refuse_safe(run, "replace", self));
    for (int i = 0; i < 2; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_need_string(run, "replace", call->items[i]));
    }
    if (call->count == 3 && !tern_jinja_is_integer(call->items[2])) {
        return tern_jinja_fail(run, "replace: expected a whole number as count");
    }
    const struct jinja_string *s = self.string;
    const struct jinja_string *old = call->items[0].string, *new = call->items[1].string;
    int64_t left = call->count == 3 ? tern_jinja_integer(call->items[2]) : -1;
    struct jinja_text text = {0};
    size_t at = 0;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)s->bytes / 32));
    for (; left != 0; left--) {
        const char *found =
            at <= s->bytes ? memmem(s->data + at, s->bytes - at, old->data, old->bytes) : NULL;
        if (found == NULL) {
            break;
        }
        size_t end = (size_t)(found - s->data);
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, s->data + at, end - at));
        TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, new->data, new->bytes));
        at = end + old->bytes;
        if (old->bytes == 0) { /* between all characters */
            int bytes = 1;
            if (at < s->bytes) {
                tern_jinja_code(s->data + at, &bytes);
                TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, s->data + at, (size_t)bytes));
            }
            at += (size_t)bytes;
        }
    }
    if (at < s->bytes) {
        TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, s->data + at, s->bytes - at));
    }
    return tern_jinja_finish_text(run, &text, out);
}

static tern_status string_join(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    struct jinja_value *items;
    struct jinja_text text = {0};
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, "join", call, 1, 1));
    TERN_RETURN_IF_ERR(refuse_safe(run, "join", self));
    TERN_RETURN_IF_ERR(tern_jinja_items(run, call->items[0], &items, &count));
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_need_string(run, "join", items[i]));
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        if (i > 0) {
            TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, self));
        }
        TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, items[i]));
    }
    return tern_jinja_finish_text(run, &text, out);
}

/* The value that {name}, {2} or {} means. */
static tern_status format_value(struct jinja_run *run,
                                const char *field,
                                size_t bytes,
                                const struct jinja_call *call,
                                int64_t *next,
                                struct jinja_value *out)
{
    int64_t index = 0;
    size_t digits = 0;
    while (digits < bytes && field[digits] >= '0' && field[digits] <= '9' && index < 100000) {
        index = index * 10 + (field[digits++] - '0');
    }
    for (int64_t i = 0; i < call->keyword_count; i++) {
        if (strlen(call->names[i]) == bytes && memcmp(call->names[i], field, bytes) == 0) {
            *out = call->values[i];
            return TERN_OK;
        }
    }
    if (digits < bytes) {
        return tern_jinja_unsupported(
            run, "format: found {%.*s}; expected {}, {0} or the name of an argument",
            (int)(bytes < 64 ? bytes : 64), field);
    }
    index = bytes == 0 ? (*next)++ : index;
    if (index >= call->count) {
        return tern_jinja_fail(run, "format: found %lld values; expected more",
                               (long long)call->count);
    }
    *out = call->items[index];
    return TERN_OK;
}

static tern_status string_format(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    struct jinja_text text = {0};
    const struct jinja_string *s = self.string;
    int64_t next = 0;
    TERN_RETURN_IF_ERR(refuse_safe(run, "format", self));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)s->bytes / 16));
    for (size_t at = 0; at < s->bytes; at++) {
        char c = s->data[at];
        bool is_double = at + 1 < s->bytes && s->data[at + 1] == c;
        if (c != '{' && c != '}') {
            TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, &c, 1));
            continue;
        }
        if (is_double) {
            TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, &c, 1));
            at++;
            continue;
        }
        const char *end = c == '{' ? memchr(s->data + at, '}', s->bytes - at) : NULL;
        if (end == NULL) {
            return tern_jinja_fail(run, "format: found a single '%c'", c);
        }
        struct jinja_value value;
        size_t bytes = (size_t)(end - s->data) - at - 1;
        TERN_RETURN_IF_ERR(format_value(run, s->data + at + 1, bytes, call, &next, &value));
        TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, value));
        at += bytes + 1;
    }
    return tern_jinja_finish_text(run, &text, out);
}

static tern_status string_zfill(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, "zfill", call, 1, 1));
    if (!tern_jinja_is_integer(call->items[0])) {
        return tern_jinja_fail(run, "zfill: expected a whole number");
    }
    int64_t missing = tern_jinja_integer(call->items[0]) - tern_jinja_characters(self.string);
    struct jinja_value zeros, sign, rest;
    bool has_sign = self.string->bytes > 0 && strchr("+-", self.string->data[0]) != NULL &&
                    self.string->data[0] != '\0';
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, "0", 1, &zeros));
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_MULTIPLY, zeros, tern_jinja_int(missing), &zeros));
    TERN_RETURN_IF_ERR(tern_jinja_part(run, self, 0, has_sign, &sign));
    TERN_RETURN_IF_ERR(tern_jinja_part(run, self, has_sign, self.string->bytes, &rest));
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_ADD, sign, zeros, &zeros));
    return tern_jinja_binary(run, OP_ADD, zeros, rest, out);
}

static const struct jinja_function g_methods[] = {
    {"split", string_split},
    {"rsplit", string_rsplit},
    {"splitlines", string_splitlines},
    {"partition", string_partition},
    {"rpartition", string_rpartition},
    {"replace", string_replace},
    {"join", string_join},
    {"format", string_format},
    {"zfill", string_zfill},
};

jinja_builtin tern_jinja_find_string_maker(const char *name)
{
    for (size_t i = 0; i < sizeof g_methods / sizeof g_methods[0]; i++) {
        if (strcmp(name, g_methods[i].name) == 0) {
            return g_methods[i].call;
        }
    }
    return NULL;
}
