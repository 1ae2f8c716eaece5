/* jinja_access.c - a.name, a[b] and slices, as a sandboxed environment finds them. */
#include "runtime/chat/jinja_internal.h"

#include <string.h>

/* ---- loop ---- */

static bool loop_attribute(const struct jinja_loop *loop, const char *name, struct jinja_value *out)
{
    static const char *const names[] = {"index",  "index0", "revindex", "revindex0",
                                        "length", "depth",  "depth0"};
    const int64_t values[] = {loop->index + 1,
                              loop->index,
                              loop->count - loop->index,
                              loop->count - loop->index - 1,
                              loop->count,
                              loop->depth + 1,
                              loop->depth};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = tern_jinja_int(values[i]);
            return true;
        }
    }
    bool is_first = loop->index == 0, is_last = loop->index == loop->count - 1;
    if (strcmp(name, "first") == 0) {
        *out = tern_jinja_bool(is_first);
    } else if (strcmp(name, "last") == 0) {
        *out = tern_jinja_bool(is_last);
    } else if (strcmp(name, "previtem") == 0) {
        *out = is_first ? tern_jinja_undefined("previtem") : loop->items[loop->index - 1];
    } else if (strcmp(name, "nextitem") == 0) {
        *out = is_last ? tern_jinja_undefined("nextitem") : loop->items[loop->index + 1];
    } else {
        return false;
    }
    return true;
}

/* ---- attributes ---- */

static tern_status method_of(struct jinja_run *run,
                             struct jinja_value self,
                             const char *name,
                             struct jinja_value *out)
{
    struct jinja_method *method;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *method, &method));
    *method = (struct jinja_method){.self = self, .name = name};
    *out = (struct jinja_value){.kind = JINJA_METHOD, .method = method};
    return TERN_OK;
}

/* What Python's getattr gives; *found_out false: no such attribute. */
static tern_status get_attribute(struct jinja_run *run,
                                 struct jinja_value a,
                                 const char *name,
                                 bool *found_out,
                                 struct jinja_value *out)
{
    *found_out = true;
    if (tern_jinja_is_forbidden(a, name)) {
        *out = tern_jinja_undefined(name);
        return TERN_OK;
    }
    if (a.kind == JINJA_LOOP && loop_attribute(a.loop, name, out)) {
        return TERN_OK;
    }
    if (a.kind == JINJA_NAMESPACE) {
        const struct jinja_value *value = tern_jinja_dict_find(a.dict, name, strlen(name));
        *found_out = value != NULL;
        *out = value != NULL ? *value : tern_jinja_undefined(name);
        return tern_jinja_spend(run, a.dict->count / 16);
    }
    if (a.kind == JINJA_MACRO && strcmp(name, "name") == 0) {
        return tern_jinja_borrow(run, a.macro->node->name, strlen(a.macro->node->name), out);
    }
    if (tern_jinja_find_method(a, name) != NULL) {
        return method_of(run, a, name, out);
    }
    *found_out = false;
    return TERN_OK;
}

static tern_status of_undefined(struct jinja_run *run, struct jinja_value a)
{
    return tern_jinja_fail(run, "'%.64s' is undefined", a.missing != NULL ? a.missing : "a value");
}

tern_status tern_jinja_attribute(struct jinja_run *run,
                                 struct jinja_value a,
                                 const char *name,
                                 struct jinja_value *out)
{
    bool is_found;
    if (a.kind == JINJA_UNDEFINED) {
        return of_undefined(run, a);
    }
    TERN_RETURN_IF_ERR(get_attribute(run, a, name, &is_found, out));
    if (is_found) {
        return TERN_OK;
    }
    const struct jinja_value *item =
        a.kind == JINJA_DICT ? tern_jinja_dict_find(a.dict, name, strlen(name)) : NULL;
    *out = item != NULL ? *item : tern_jinja_undefined(name);
    return a.kind == JINJA_DICT ? tern_jinja_spend(run, a.dict->count / 16) : TERN_OK;
}

/* ---- items ---- */

static tern_status sequence_item(struct jinja_run *run,
                                 struct jinja_value a,
                                 int64_t index,
                                 struct jinja_value *out)
{
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_length(run, a, &count));
    index += index < 0 ? count : 0;
    if (index < 0 || index >= count) {
        *out = tern_jinja_undefined(NULL);
        return TERN_OK;
    }
    if (a.kind != JINJA_STRING) {
        *out = a.list->items[index];
        return TERN_OK;
    }
    int bytes;
    size_t at = tern_jinja_offset(a.string, index);
    tern_jinja_code(a.string->data + at, &bytes);
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)at / 256));
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, a.string->data + at, (size_t)bytes, out));
    out->is_safe = a.is_safe;
    return TERN_OK;
}

static bool is_sequence(struct jinja_value value)
{
    return value.kind == JINJA_STRING || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE ||
           value.kind == JINJA_RANGE;
}

tern_status tern_jinja_item(struct jinja_run *run,
                            struct jinja_value a,
                            struct jinja_value b,
                            struct jinja_value *out)
{
    bool is_found = false;
    if (a.kind == JINJA_UNDEFINED) {
        return of_undefined(run, a);
    }
    if (is_sequence(a) && tern_jinja_is_integer(b)) {
        return sequence_item(run, a, tern_jinja_integer(b), out);
    }
    if (a.kind == JINJA_DICT && b.kind != JINJA_LIST && b.kind != JINJA_DICT) {
        TERN_RETURN_IF_ERR(tern_jinja_dict_get(run, a.dict, b, &is_found, out));
    }
    if (is_found) {
        return TERN_OK;
    }
    if (b.kind != JINJA_STRING) {
        *out = tern_jinja_undefined(NULL);
        return TERN_OK;
    }
    char *name;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, b.string->bytes + 1, &name));
    memcpy(name, b.string->data, b.string->bytes);
    TERN_RETURN_IF_ERR(get_attribute(run, a, name, &is_found, out));
    if (!is_found) {
        *out = tern_jinja_undefined(name);
    }
    return TERN_OK;
}

/* ---- slices ---- */

/* Bounds as Python's slice.indices makes them. */
static tern_status slice_bounds(struct jinja_run *run,
                                const struct jinja_value bounds[3],
                                int64_t count,
                                int64_t *start,
                                int64_t *stop,
                                int64_t *step)
{
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind != JINJA_NONE && !tern_jinja_is_integer(bounds[i])) {
            return tern_jinja_fail(run, "found a slice bound of type %s; expected a whole number",
                                   tern_jinja_type(bounds[i]));
        }
    }
    *step = bounds[2].kind == JINJA_NONE ? 1 : tern_jinja_integer(bounds[2]);
    if (*step == 0) {
        return tern_jinja_fail(run, "found a slice step of 0");
    }
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? count - 1 : count;
    int64_t *const to[2] = {start, stop};
    for (int i = 0; i < 2; i++) {
        bool is_default = bounds[i].kind == JINJA_NONE;
        int64_t at = is_default ? 0 : tern_jinja_integer(bounds[i]);
        at += at < 0 ? count : 0;
        at = at < low ? low : at > high ? high : at;
        *to[i] = !is_default ? at : (i == 0) == (*step > 0) ? low : high;
    }
    return TERN_OK;
}

static tern_status slice_string(struct jinja_run *run,
                                struct jinja_value a,
                                int64_t start,
                                int64_t step,
                                int64_t count,
                                struct jinja_value *out)
{
    struct jinja_string *s = a.string;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)s->bytes / 256));
    if (step == 1) {
        size_t from = tern_jinja_offset(s, start), to = tern_jinja_offset(s, start + count);
        TERN_RETURN_IF_ERR(tern_jinja_borrow(run, s->data + from, to - from, out));
        out->is_safe = a.is_safe;
        return TERN_OK;
    }
    struct jinja_value *items;
    int64_t all;
    struct jinja_text text = {0};
    TERN_RETURN_IF_ERR(tern_jinja_items(run, a, &items, &all));
    for (int64_t i = 0; i < count; i++) {
        const struct jinja_string *c = items[start + i * step].string;
        TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, c->data, c->bytes));
    }
    TERN_RETURN_IF_ERR(tern_jinja_finish_text(run, &text, out));
    out->is_safe = a.is_safe;
    return TERN_OK;
}

tern_status tern_jinja_slice(struct jinja_run *run,
                             struct jinja_value a,
                             const struct jinja_value bounds[3],
                             struct jinja_value *out)
{
    int64_t all, start = 0, stop = 0, step = 1, count = 0;
    if (a.kind == JINJA_UNDEFINED) {
        return of_undefined(run, a);
    }
    if (!is_sequence(a)) {
        return tern_jinja_fail(run,
                               "found a slice of a value of type %s; expected a list or a string",
                               tern_jinja_type(a));
    }
    TERN_RETURN_IF_ERR(tern_jinja_length(run, a, &all));
    TERN_RETURN_IF_ERR(slice_bounds(run, bounds, all, &start, &stop, &step));
    if (step > 0 && stop > start) {
        count = (stop - start - 1) / step + 1;
    } else if (step < 0 && stop < start) {
        count = step == INT64_MIN ? 1 : (start - stop - 1) / -step + 1;
    }
    if (a.kind == JINJA_STRING) {
        return slice_string(run, a, start, step, count, out);
    }
    TERN_RETURN_IF_ERR(tern_jinja_list(run, (enum jinja_kind)a.kind, count, out));
    for (int64_t i = 0; i < count; i++) {
        out->list->items[i] = a.list->items[start + i * step];
    }
    return TERN_OK;
}
