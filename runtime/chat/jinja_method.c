/* jinja_method.c - the methods of strings. */
#include "runtime/chat/jinja_internal.h"

#include <string.h>

/* What is cut from a safe string is safe. */
static tern_status part_of(struct jinja_run *run,
                           struct jinja_value self,
                           size_t begin,
                           size_t end,
                           struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, self.string->data + begin, end - begin, out));
    out->is_safe = self.is_safe;
    return TERN_OK;
}

static tern_status need_string(struct jinja_run *run, const char *what, struct jinja_value value)
{
    return value.kind == JINJA_STRING
               ? TERN_OK
               : tern_jinja_fail(run, "%s: found a value of type %s; expected a string", what,
                                 tern_jinja_type(value));
}

static tern_status no_arguments(struct jinja_run *run,
                                const char *what,
                                const struct jinja_call *call)
{
    return tern_jinja_arguments(run, what, call, NULL, 0, 0, NULL);
}

/* Arguments by position alone, as Python's own methods take them. */
static tern_status positional(struct jinja_run *run,
                              const char *what,
                              const struct jinja_call *call,
                              int64_t least,
                              int64_t most)
{
    return call->keyword_count == 0 && call->count >= least && call->count <= most
               ? TERN_OK
               : tern_jinja_fail(run, "%s: found %lld arguments; expected %lld to %lld", what,
                                 (long long)(call->count + call->keyword_count), (long long)least,
                                 (long long)most);
}

/* ---- case ---- */

static tern_status string_upper(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, "upper", call));
    return tern_jinja_upper(run, self, out);
}

static tern_status string_lower(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, "lower", call));
    return tern_jinja_lower(run, self, out);
}

static tern_status string_title(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, "title", call));
    return tern_jinja_title(run, self, false, out);
}

static tern_status string_capitalize(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, "capitalize", call));
    return tern_jinja_title(run, self, true, out);
}

/* ---- stripping ---- */

static bool strips(struct jinja_value set, const char *at, int bytes, uint32_t code)
{
    return set.kind == JINJA_NONE
               ? tern_jinja_is_space(code)
               : memmem(set.string->data, set.string->bytes, at, (size_t)bytes) != NULL;
}

static tern_status strip(struct jinja_run *run,
                         const char *what,
                         struct jinja_value self,
                         const struct jinja_call *call,
                         bool at_begin,
                         bool at_end,
                         struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(positional(run, what, call, 0, 1));
    struct jinja_value set = call->count == 1 ? call->items[0] : tern_jinja_none();
    if (set.kind != JINJA_NONE) {
        TERN_RETURN_IF_ERR(need_string(run, what, set));
    }
    size_t begin = 0, end = self.string->bytes;
    const char *data = self.string->data;
    int bytes;
    while (at_begin && begin < end) {
        uint32_t code = tern_jinja_code(data + begin, &bytes);
        if (!strips(set, data + begin, bytes, code)) {
            break;
        }
        begin += (size_t)bytes;
    }
    while (at_end && end > begin) {
        size_t last = end - 1;
        while (last > begin && (data[last] & 0xC0) == 0x80) {
            last--;
        }
        uint32_t code = tern_jinja_code(data + last, &bytes);
        if (!strips(set, data + last, bytes, code)) {
            break;
        }
        end = last;
    }
    int64_t width = set.kind == JINJA_NONE ? 1 : 1 + (int64_t)set.string->bytes / 16;
    TERN_RETURN_IF_ERR(
        tern_jinja_spend(run, (int64_t)(self.string->bytes - (end - begin)) / 16 * width));
    return part_of(run, self, begin, end, out);
}

static tern_status string_strip(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return strip(run, "strip", self, call, true, true, out);
}

static tern_status string_lstrip(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    return strip(run, "lstrip", self, call, true, false, out);
}

static tern_status string_rstrip(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    return strip(run, "rstrip", self, call, false, true, out);
}

/* ---- begins and ends ---- */

static bool has_affix(const struct jinja_string *s, const struct jinja_string *affix, bool at_end)
{
    return affix->bytes <= s->bytes && memcmp(at_end ? s->data + s->bytes - affix->bytes : s->data,
                                              affix->data, affix->bytes) == 0;
}

/* One string or a tuple of them. */
static tern_status affix_test(struct jinja_run *run,
                              const char *what,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              bool at_end,
                              struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(positional(run, what, call, 1, 1));
    struct jinja_value *items = call->items;
    int64_t count = 1;
    bool holds = false;
    if (items[0].kind == JINJA_TUPLE) {
        count = items[0].list->count;
        items = items[0].list->items;
    }
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(need_string(run, what, items[i]));
        holds = holds || has_affix(self.string, items[i].string, at_end);
    }
    *out = tern_jinja_bool(holds);
    return tern_jinja_spend(run, 1 + count / 16);
}

static tern_status string_startswith(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    return affix_test(run, "startswith", self, call, false, out);
}

static tern_status string_endswith(struct jinja_run *run,
                                   struct jinja_value self,
                                   const struct jinja_call *call,
                                   struct jinja_value *out)
{
    return affix_test(run, "endswith", self, call, true, out);
}

static tern_status string_removeprefix(struct jinja_run *run,
                                       struct jinja_value self,
                                       const struct jinja_call *call,
                                       struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(positional(run, "removeprefix", call, 1, 1));
    TERN_RETURN_IF_ERR(need_string(run, "removeprefix", call->items[0]));
    size_t cut =
        has_affix(self.string, call->items[0].string, false) ? call->items[0].string->bytes : 0;
    return part_of(run, self, cut, self.string->bytes, out);
}

static tern_status string_removesuffix(struct jinja_run *run,
                                       struct jinja_value self,
                                       const struct jinja_call *call,
                                       struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(positional(run, "removesuffix", call, 1, 1));
    TERN_RETURN_IF_ERR(need_string(run, "removesuffix", call->items[0]));
    size_t cut =
        has_affix(self.string, call->items[0].string, true) ? call->items[0].string->bytes : 0;
    return part_of(run, self, 0, self.string->bytes - cut, out);
}

/* ---- finding ---- */

/* The last place of a part in the first `bytes` bytes; NULL: none. */
static tern_status find_last(struct jinja_run *run,
                             const struct jinja_string *s,
                             size_t bytes,
                             const struct jinja_string *part,
                             const char **out)
{
    *out = NULL;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)bytes / 16));
    if (part->bytes == 0) {
        *out = s->data + bytes;
        return TERN_OK;
    }
    for (size_t left = part->bytes <= bytes ? bytes - part->bytes + 1 : 0; left > 0; left--) {
        const char *at = s->data + left - 1;
        if (*at != part->data[0]) {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1 + (int64_t)part->bytes / 64));
        if (memcmp(at, part->data, part->bytes) == 0) {
            *out = at;
            return TERN_OK;
        }
    }
    return TERN_OK;
}

static tern_status find(struct jinja_run *run,
                        const char *what,
                        struct jinja_value self,
                        const struct jinja_call *call,
                        bool from_end,
                        bool must_be_there,
                        struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(positional(run, what, call, 1, 3));
    TERN_RETURN_IF_ERR(need_string(run, what, call->items[0]));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)self.string->bytes / 64));
    struct jinja_value part = call->items[0], where = self;
    int64_t skipped = 0, all = tern_jinja_characters(self.string);
    if (call->count > 1) {
        struct jinja_value bounds[3] = {call->items[1], tern_jinja_none(), tern_jinja_none()};
        bounds[1] = call->count > 2 ? call->items[2] : bounds[1];
        TERN_RETURN_IF_ERR(tern_jinja_slice(run, self, bounds, &where));
        skipped = bounds[0].kind == JINJA_NONE ? 0 : tern_jinja_integer(bounds[0]);
        skipped += skipped < 0 ? all : 0;
        skipped = skipped < 0 ? 0 : skipped;
    }
    const struct jinja_string *s = where.string;
    const char *found = memmem(s->data, s->bytes, part.string->data, part.string->bytes);
    if (from_end) {
        TERN_RETURN_IF_ERR(find_last(run, s, s->bytes, part.string, &found));
    }
    found = skipped > all ? NULL : found;
    if (found == NULL && must_be_there) {
        return tern_jinja_fail(run, "%s: the string does not have that part", what);
    }
    int64_t index = -1;
    if (found != NULL) {
        struct jinja_string before = {s->data, (size_t)(found - s->data), SIZE_MAX};
        index = skipped + tern_jinja_characters(&before);
    }
    *out = tern_jinja_int(index);
    return TERN_OK;
}

static tern_status string_find(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    return find(run, "find", self, call, false, false, out);
}

static tern_status string_rfind(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return find(run, "rfind", self, call, true, false, out);
}

static tern_status string_index(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return find(run, "index", self, call, false, true, out);
}

static tern_status string_count(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(positional(run, "count", call, 1, 1));
    TERN_RETURN_IF_ERR(need_string(run, "count", call->items[0]));
    const struct jinja_string *s = self.string, *part = call->items[0].string;
    int64_t count = 0;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)s->bytes / 16));
    if (part->bytes == 0) {
        *out = tern_jinja_int(tern_jinja_characters(self.string) + 1);
        return TERN_OK;
    }
    for (size_t at = 0; at < s->bytes; count++) {
        const char *found = memmem(s->data + at, s->bytes - at, part->data, part->bytes);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - s->data) + part->bytes;
    }
    *out = tern_jinja_int(count);
    return TERN_OK;
}

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
    return part_of(parts->run, parts->self, begin, end, &parts->items[parts->count++]);
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
                TERN_RETURN_IF_ERR(part_of(parts->run, parts->self, begin, end, &rest));
                TERN_RETURN_IF_ERR(string_rstrip(parts->run, rest, &none, &rest));
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
        TERN_RETURN_IF_ERR(find_last(parts->run, s, end, separator, &found));
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
    TERN_RETURN_IF_ERR(need_string(run, what, slots[0]));
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
    TERN_RETURN_IF_ERR(positional(run, what, call, 1, 1));
    TERN_RETURN_IF_ERR(need_string(run, what, call->items[0]));
    const struct jinja_string *s = self.string, *part = call->items[0].string;
    if (part->bytes == 0) {
        return tern_jinja_fail(run, "%s: found an empty separator", what);
    }
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)s->bytes / 64));
    const char *found = memmem(s->data, s->bytes, part->data, part->bytes);
    if (from_end) {
        TERN_RETURN_IF_ERR(find_last(run, s, s->bytes, part, &found));
    }
    size_t at = found != NULL ? (size_t)(found - s->data) : from_end ? 0 : s->bytes;
    size_t length = found != NULL ? part->bytes : 0;
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_TUPLE, 3, out));
    TERN_RETURN_IF_ERR(part_of(run, self, 0, at, &out->list->items[0]));
    TERN_RETURN_IF_ERR(part_of(run, self, at, at + length, &out->list->items[1]));
    return part_of(run, self, at + length, s->bytes, &out->list->items[2]);
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
    TERN_RETURN_IF_ERR(positional(run, "replace", call, 2, 3));
    TERN_RETURN_IF_ERR(refuse_safe(run, "replace", self));
    for (int i = 0; i < 2; i++) {
        TERN_RETURN_IF_ERR(need_string(run, "replace", call->items[i]));
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
    TERN_RETURN_IF_ERR(positional(run, "join", call, 1, 1));
    TERN_RETURN_IF_ERR(refuse_safe(run, "join", self));
    TERN_RETURN_IF_ERR(tern_jinja_items(run, call->items[0], &items, &count));
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(need_string(run, "join", items[i]));
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
    TERN_RETURN_IF_ERR(positional(run, "zfill", call, 1, 1));
    if (!tern_jinja_is_integer(call->items[0])) {
        return tern_jinja_fail(run, "zfill: expected a whole number");
    }
    int64_t missing = tern_jinja_integer(call->items[0]) - tern_jinja_characters(self.string);
    struct jinja_value zeros, sign, rest;
    bool has_sign = self.string->bytes > 0 && strchr("+-", self.string->data[0]) != NULL &&
                    self.string->data[0] != '\0';
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, "0", 1, &zeros));
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_MULTIPLY, zeros, tern_jinja_int(missing), &zeros));
    TERN_RETURN_IF_ERR(part_of(run, self, 0, has_sign, &sign));
    TERN_RETURN_IF_ERR(part_of(run, self, has_sign, self.string->bytes, &rest));
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_ADD, sign, zeros, &zeros));
    return tern_jinja_binary(run, OP_ADD, zeros, rest, out);
}

/* ---- what characters are ---- */

static tern_status all_characters(struct jinja_run *run,
                                  const char *what,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  bool (*holds)(uint32_t code),
                                  struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, what, call));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)self.string->bytes / 16));
    bool all = self.string->bytes > 0;
    for (size_t at = 0; at < self.string->bytes && all;) {
        int bytes;
        all = holds(tern_jinja_code(self.string->data + at, &bytes));
        at += (size_t)bytes;
    }
    *out = tern_jinja_bool(all);
    return TERN_OK;
}

static tern_status string_isdigit(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return all_characters(run, "isdigit", self, call, tern_jinja_is_digit, out);
}

static tern_status string_isalpha(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return all_characters(run, "isalpha", self, call, tern_jinja_is_alpha, out);
}

static tern_status string_isspace(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return all_characters(run, "isspace", self, call, tern_jinja_is_space, out);
}

static tern_status string_case_is(struct jinja_run *run,
                                  const char *test,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    bool holds;
    TERN_RETURN_IF_ERR(tern_jinja_apply_test(run, test, self, call, &holds));
    *out = tern_jinja_bool(holds);
    return TERN_OK;
}

static tern_status string_isupper(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return string_case_is(run, "upper", self, call, out);
}

static tern_status string_islower(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return string_case_is(run, "lower", self, call, out);
}

jinja_builtin tern_jinja_find_string_method(const char *name)
{
    static const struct jinja_function methods[] = {
        {"upper", string_upper},
        {"lower", string_lower},
        {"title", string_title},
        {"capitalize", string_capitalize},
        {"strip", string_strip},
        {"lstrip", string_lstrip},
        {"rstrip", string_rstrip},
        {"startswith", string_startswith},
        {"endswith", string_endswith},
        {"removeprefix", string_removeprefix},
        {"removesuffix", string_removesuffix},
        {"find", string_find},
        {"rfind", string_rfind},
        {"index", string_index},
        {"count", string_count},
        {"split", string_split},
        {"rsplit", string_rsplit},
        {"splitlines", string_splitlines},
        {"partition", string_partition},
        {"rpartition", string_rpartition},
        {"replace", string_replace},
        {"join", string_join},
        {"format", string_format},
        {"zfill", string_zfill},
        {"isdigit", string_isdigit},
        {"isalpha", string_isalpha},
        {"isspace", string_isspace},
        {"isupper", string_isupper},
        {"islower", string_islower},
    };
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(name, methods[i].name) == 0) {
            return methods[i].call;
        }
    }
    return NULL;
}
