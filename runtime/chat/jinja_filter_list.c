/* jinja_filter_list.c - filters on what can be iterated over. */
#include "runtime/chat/jinja_internal.h"

#include <string.h>

/* ---- attributes of items ---- */

/* "a.b.0" of a value; no path: the value itself. Integers are positions. */
static tern_status get_path(struct jinja_run *run,
                            struct jinja_value value,
                            struct jinja_value path,
                            struct jinja_value fallback,
                            struct jinja_value *out)
{
    *out = value;
    if (path.kind == JINJA_NONE) {
        return TERN_OK;
    }
    if (path.kind != JINJA_STRING) {
        TERN_RETURN_IF_ERR(tern_jinja_item(run, value, path, out));
        *out = out->kind == JINJA_UNDEFINED && fallback.kind != JINJA_NONE ? fallback : *out;
        return TERN_OK;
    }
    const struct jinja_string *s = path.string;
    for (size_t at = 0; at <= s->bytes;) {
        const char *dot = memchr(s->data + at, '.', s->bytes - at);
        size_t end = dot != NULL ? (size_t)(dot - s->data) : s->bytes;
        struct jinja_value part;
        int64_t position = 0;
        size_t digits = at;
        while (digits < end && s->data[digits] >= '0' && s->data[digits] <= '9' &&
               position < INT64_MAX / 100) {
            position = position * 10 + (s->data[digits++] - '0');
        }
        if (digits == end && end > at) {
            part = tern_jinja_int(position);
        } else {
            TERN_RETURN_IF_ERR(tern_jinja_borrow(run, s->data + at, end - at, &part));
        }
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(tern_jinja_item(run, *out, part, out));
        *out = out->kind == JINJA_UNDEFINED && fallback.kind != JINJA_NONE ? fallback : *out;
        at = end + 1;
    }
    return TERN_OK;
}

static tern_status without_case(struct jinja_run *run,
                                bool is_case_sensitive,
                                struct jinja_value *value)
{
    return value->kind == JINJA_STRING && !is_case_sensitive ? tern_jinja_lower(run, *value, value)
                                                             : TERN_OK;
}

/* ---- first, last, list, items, join, reverse ---- */

static tern_status filter_first(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    struct jinja_value *items;
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "first", call, NULL, 0, 0, NULL));
    TERN_RETURN_IF_ERR(tern_jinja_items(run, self, &items, &count));
    if (self.kind == JINJA_GENERATOR && count > 0) {
        self.list->taken = self.list->count - count + 1;
    }
    *out = count > 0 ? items[0] : tern_jinja_undefined("the first of no items");
    return TERN_OK;
}

static tern_status filter_last(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    struct jinja_value *items;
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "last", call, NULL, 0, 0, NULL));
    if (self.kind == JINJA_GENERATOR) {
        return tern_jinja_fail(run, "last: found a generator; expected a list (| list makes one)");
    }
    TERN_RETURN_IF_ERR(tern_jinja_items(run, self, &items, &count));
    *out = count > 0 ? items[count - 1] : tern_jinja_undefined("the last of no items");
    return TERN_OK;
}

static tern_status copy_items(struct jinja_run *run,
                              struct jinja_value from,
                              enum jinja_kind kind,
                              struct jinja_value *out)
{
    struct jinja_value *items;
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_items(run, from, &items, &count));
    TERN_RETURN_IF_ERR(tern_jinja_list(run, kind, count, out));
    if (count > 0) {
        memcpy(out->list->items, items, (size_t)count * sizeof *items);
    }
    return TERN_OK;
}

static tern_status filter_list(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "list", call, NULL, 0, 0, NULL));
    return copy_items(run, self, JINJA_LIST, out);
}

static tern_status filter_reverse(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "reverse", call, NULL, 0, 0, NULL));
    if (self.kind == JINJA_STRING) {
        const struct jinja_value bounds[3] = {tern_jinja_none(), tern_jinja_none(),
                                              tern_jinja_int(-1)};
        return tern_jinja_slice(run, self, bounds, out);
    }
    /* what Python can walk backwards gives an iterator, the rest a list */
    enum jinja_kind kind = self.kind == JINJA_GENERATOR ? JINJA_LIST : JINJA_GENERATOR;
    TERN_RETURN_IF_ERR(copy_items(run, self, kind, out));
    struct jinja_value *items = out->list->items;
    for (int64_t i = 0, j = out->list->count - 1; i < j; i++, j--) {
        struct jinja_value one = items[i];
        items[i] = items[j];
        items[j] = one;
    }
    return TERN_OK;
}

static tern_status filter_items(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "items", call, NULL, 0, 0, NULL));
    if (self.kind == JINJA_UNDEFINED) {
        return tern_jinja_list(run, JINJA_GENERATOR, 0, out);
    }
    if (self.kind != JINJA_DICT) {
        return tern_jinja_fail(run, "items: found a value of type %s; expected a dict",
                               tern_jinja_type(self));
    }
    TERN_RETURN_IF_ERR(tern_jinja_find_method(self, "items")(run, self, call, out));
    out->kind = JINJA_GENERATOR;
    return TERN_OK;
}

static tern_status filter_join(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    struct jinja_value slots[2] = {[1] = tern_jinja_none()};
    struct jinja_value *items;
    struct jinja_text text = {0};
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, "", 0, &slots[0]));
    JINJA_ARGUMENTS(run, "join", call, 0, slots, "d", "attribute");
    TERN_RETURN_IF_ERR(tern_jinja_items(run, self, &items, &count));
    for (int64_t i = 0; i < count; i++) {
        struct jinja_value item;
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(get_path(run, items[i], slots[1], tern_jinja_none(), &item));
        if (i > 0) {
            TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, slots[0]));
        }
        TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, item));
    }
    return tern_jinja_finish_text(run, &text, out);
}

/* ---- map and select ---- */

/* The keyword argument of that name; NULL: none. */
static const struct jinja_value *keyword(const struct jinja_call *call, const char *name)
{
    for (int64_t i = 0; i < call->keyword_count; i++) {
        if (strcmp(call->names[i], name) == 0) {
            return &call->values[i];
        }
    }
    return NULL;
}

/* A name in a string, as an interned one would be: of a filter or test that is known. */
static tern_status name_in(struct jinja_run *run,
                           struct jinja_value value,
                           const char *what,
                           char out[64])
{
    if (value.kind != JINJA_STRING || value.string->bytes >= 64) {
        return tern_jinja_fail(run, "%s: expected the name of a filter or test", what);
    }
    memset(out, 0, 64);
    memcpy(out, value.string->data, value.string->bytes);
    return TERN_OK;
}

static struct jinja_call without_first(const struct jinja_call *call, int64_t count)
{
    struct jinja_call rest = *call;
    rest.items += count;
    rest.count -= count;
    return rest;
}

static tern_status map_attribute(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    struct jinja_value *items;
    int64_t count;
    const struct jinja_value *fallback = keyword(call, "default");
    if (call->keyword_count > 1 + (fallback != NULL)) {
        return tern_jinja_fail(run, "map: expected attribute and default alone");
    }
    TERN_RETURN_IF_ERR(tern_jinja_items(run, self, &items, &count));
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_GENERATOR, count, out));
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(get_path(run, items[i], *keyword(call, "attribute"),
                                    fallback != NULL ? *fallback : tern_jinja_none(),
                                    &out->list->items[i]));
    }
    return TERN_OK;
}

static tern_status filter_map(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    struct jinja_value *items;
    int64_t count;
    char name[64];
    if (!tern_jinja_truth(self)) {
        return tern_jinja_list(run, JINJA_GENERATOR, 0, out);
    }
    if (call->count == 0 && keyword(call, "attribute") != NULL) {
        return map_attribute(run, self, call, out);
    }
    if (call->count == 0) {
        return tern_jinja_fail(run, "map: expected the name of a filter, or attribute=");
    }
    TERN_RETURN_IF_ERR(name_in(run, call->items[0], "map", name));
    struct jinja_call rest = without_first(call, 1);
    TERN_RETURN_IF_ERR(tern_jinja_items(run, self, &items, &count));
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_GENERATOR, count, out));
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(
            tern_jinja_apply_filter(run, name, items[i], &rest, &out->list->items[i]));
    }
    return TERN_OK;
}

/* Items for which a test holds (or, rejecting, does not) of them or of an attribute of theirs. */
static tern_status select_by(struct jinja_run *run,
                             const char *what,
                             struct jinja_value self,
                             const struct jinja_call *call,
                             bool by_attribute,
                             bool is_rejecting,
                             struct jinja_value *out)
{
    struct jinja_value *items, path = tern_jinja_none();
    int64_t count, kept = 0;
    char name[64] = "";
    if (!tern_jinja_truth(self)) {
        return tern_jinja_list(run, JINJA_GENERATOR, 0, out);
    }
    if (call->count < by_attribute) {
        return tern_jinja_fail(run, "%s: expected the name of an attribute", what);
    }
    if (by_attribute) {
        path = call->items[0];
    }
    struct jinja_call rest = without_first(call, by_attribute);
    if (rest.count > 0) {
        TERN_RETURN_IF_ERR(name_in(run, rest.items[0], what, name));
        rest = without_first(&rest, 1);
    }
    TERN_RETURN_IF_ERR(tern_jinja_items(run, self, &items, &count));
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_GENERATOR, count, out));
    for (int64_t i = 0; i < count; i++) {
        struct jinja_value value;
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(get_path(run, items[i], path, tern_jinja_none(), &value));
        bool holds = tern_jinja_truth(value);
        if (name[0] != '\0') {
            TERN_RETURN_IF_ERR(tern_jinja_apply_test(run, name, value, &rest, &holds));
        }
        if (holds != is_rejecting) {
            out->list->items[kept++] = items[i];
        }
    }
    out->list->count = kept;
    return TERN_OK;
}

static tern_status filter_select(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    return select_by(run, "select", self, call, false, false, out);
}

static tern_status filter_reject(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    return select_by(run, "reject", self, call, false, true, out);
}

static tern_status filter_selectattr(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    return select_by(run, "selectattr", self, call, true, false, out);
}

static tern_status filter_rejectattr(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    return select_by(run, "rejectattr", self, call, true, true, out);
}

/* ---- order ---- */

struct keyed {
    struct jinja_value key, item;
};

/* Stable: those that are equal stay in order, also when the order is reversed. */
static tern_status merge_sort(struct jinja_run *run,
                              struct keyed *items,
                              struct keyed *spare,
                              int64_t count,
                              bool is_reversed)
{
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * width) {
            int64_t middle = begin + width < count ? begin + width : count;
            int64_t end = begin + 2 * width < count ? begin + 2 * width : count;
            int64_t a = begin, b = middle;
            for (int64_t to = begin; to < end; to++) {
                bool takes_b = a == middle;
                if (a < middle && b < end) {
                    struct keyed left = is_reversed ? items[a] : items[b];
                    struct keyed right = is_reversed ? items[b] : items[a];
                    TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
                    TERN_RETURN_IF_ERR(
                        tern_jinja_compare(run, OP_LESS, left.key, right.key, &takes_b));
                }
                spare[to] = takes_b ? items[b++] : items[a++];
            }
        }
        memcpy(items, spare, (size_t)count * sizeof *items);
    }
    return TERN_OK;
}

/* Items with their keys to a sorted list. */
static tern_status sorted(struct jinja_run *run,
                          struct keyed *items,
                          int64_t count,
                          bool is_reversed,
                          struct jinja_value *out)
{
    struct keyed *spare;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, (size_t)count * sizeof *spare, &spare));
    TERN_RETURN_IF_ERR(merge_sort(run, items, spare, count, is_reversed));
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_LIST, count, out));
    for (int64_t i = 0; i < count; i++) {
        out->list->items[i] = items[i].item;
    }
    return TERN_OK;
}

static tern_status keyed_items(struct jinja_run *run,
                               struct jinja_value self,
                               struct jinja_value path,
                               bool is_case_sensitive,
                               struct keyed **out,
                               int64_t *count_out)
{
    struct jinja_value *items;
    TERN_RETURN_IF_ERR(tern_jinja_items(run, self, &items, count_out));
    TERN_RETURN_IF_ERR(tern_jinja_new(run, (size_t)*count_out * sizeof **out, out));
    for (int64_t i = 0; i < *count_out; i++) {
        struct keyed *keyed = &(*out)[i];
        keyed->item = items[i];
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(get_path(run, items[i], path, tern_jinja_none(), &keyed->key));
        TERN_RETURN_IF_ERR(without_case(run, is_case_sensitive, &keyed->key));
    }
    return TERN_OK;
}

static tern_status filter_sort(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    struct jinja_value slots[3] = {tern_jinja_bool(false), tern_jinja_bool(false),
                                   tern_jinja_none()};
    struct keyed *items;
    int64_t count;
    JINJA_ARGUMENTS(run, "sort", call, 0, slots, "reverse", "case_sensitive", "attribute");
    if (slots[2].kind == JINJA_STRING &&
        memchr(slots[2].string->data, ',', slots[2].string->bytes) != NULL) {
        return tern_jinja_unsupported(run, "sort by several attributes is not supported");
    }
    TERN_RETURN_IF_ERR(
        keyed_items(run, self, slots[2], tern_jinja_truth(slots[1]), &items, &count));
    return sorted(run, items, count, tern_jinja_truth(slots[0]), out);
}

static tern_status filter_dictsort(struct jinja_run *run,
                                   struct jinja_value self,
                                   const struct jinja_call *call,
                                   struct jinja_value *out)
{
    struct jinja_value slots[3] = {tern_jinja_bool(false), [2] = tern_jinja_bool(false)};
    struct jinja_call none = {0};
    struct jinja_value pairs;
    struct keyed *items;
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, "key", 3, &slots[1]));
    JINJA_ARGUMENTS(run, "dictsort", call, 0, slots, "case_sensitive", "by", "reverse");
    if (self.kind != JINJA_DICT || slots[1].kind != JINJA_STRING) {
        return tern_jinja_fail(run, "dictsort: found a value of type %s; expected a dict",
                               tern_jinja_type(self));
    }
    bool by_key = tern_jinja_string_is(slots[1].string, "key", 3);
    if (!by_key && !tern_jinja_string_is(slots[1].string, "value", 5)) {
        return tern_jinja_fail(run, "dictsort: expected by='key' or by='value'");
    }
    TERN_RETURN_IF_ERR(tern_jinja_find_method(self, "items")(run, self, &none, &pairs));
    TERN_RETURN_IF_ERR(keyed_items(run, pairs, tern_jinja_int(by_key ? 0 : 1),
                                   tern_jinja_truth(slots[0]), &items, &count));
    return sorted(run, items, count, tern_jinja_truth(slots[2]), out);
}

/* The first of each kind. */
static tern_status filter_unique(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    struct jinja_value slots[2] = {tern_jinja_bool(false), tern_jinja_none()};
    struct jinja_value seen;
    struct keyed *items;
    int64_t count, kept = 0;
    JINJA_ARGUMENTS(run, "unique", call, 0, slots, "case_sensitive", "attribute");
    TERN_RETURN_IF_ERR(
        keyed_items(run, self, slots[1], tern_jinja_truth(slots[0]), &items, &count));
    TERN_RETURN_IF_ERR(tern_jinja_dict(run, JINJA_DICT, 0, &seen));
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_GENERATOR, count, out));
    for (int64_t i = 0; i < count; i++) {
        int64_t before = seen.dict->count;
        TERN_RETURN_IF_ERR(tern_jinja_dict_set(run, seen.dict, items[i].key, tern_jinja_none()));
        if (seen.dict->count > before) {
            out->list->items[kept++] = items[i].item;
        }
    }
    out->list->count = kept;
    return TERN_OK;
}

static tern_status extreme(struct jinja_run *run,
                           const char *what,
                           struct jinja_value self,
                           const struct jinja_call *call,
                           enum jinja_operator better,
                           struct jinja_value *out)
{
    struct jinja_value slots[2] = {tern_jinja_bool(false), tern_jinja_none()};
    struct keyed *items;
    int64_t count, best = 0;
    JINJA_ARGUMENTS(run, what, call, 0, slots, "case_sensitive", "attribute");
    TERN_RETURN_IF_ERR(
        keyed_items(run, self, slots[1], tern_jinja_truth(slots[0]), &items, &count));
    for (int64_t i = 1; i < count; i++) {
        bool is_better;
        TERN_RETURN_IF_ERR(
            tern_jinja_compare(run, better, items[i].key, items[best].key, &is_better));
        best = is_better ? i : best;
    }
    *out = count > 0 ? items[best].item : tern_jinja_undefined("an extreme of no items");
    return TERN_OK;
}

static tern_status filter_min(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    return extreme(run, "min", self, call, OP_LESS, out);
}

static tern_status filter_max(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    return extreme(run, "max", self, call, OP_GREATER, out);
}

static tern_status filter_sum(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    struct jinja_value slots[2] = {tern_jinja_none(), tern_jinja_int(0)};
    struct jinja_value *items;
    int64_t count;
    JINJA_ARGUMENTS(run, "sum", call, 0, slots, "attribute", "start");
    if (slots[1].kind == JINJA_STRING) {
        return tern_jinja_fail(run, "sum: strings are joined, not summed");
    }
    TERN_RETURN_IF_ERR(tern_jinja_items(run, self, &items, &count));
    *out = slots[1];
    for (int64_t i = 0; i < count; i++) {
        struct jinja_value item;
        TERN_RETURN_IF_ERR(get_path(run, items[i], slots[0], tern_jinja_none(), &item));
        TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_ADD, *out, item, out));
    }
    return TERN_OK;
}

jinja_builtin tern_jinja_find_list_filter(const char *name)
{
    static const struct jinja_function filters[] = {
        {"first", filter_first},
        {"last", filter_last},
        {"list", filter_list},
        {"reverse", filter_reverse},
        {"items", filter_items},
        {"join", filter_join},
        {"map", filter_map},
        {"select", filter_select},
        {"reject", filter_reject},
        {"selectattr", filter_selectattr},
        {"rejectattr", filter_rejectattr},
        {"sort", filter_sort},
        {"dictsort", filter_dictsort},
        {"unique", filter_unique},
        {"min", filter_min},
        {"max", filter_max},
        {"sum", filter_sum},
    };
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        if (strcmp(name, filters[i].name) == 0) {
            return filters[i].call;
        }
    }
    return NULL;
}
