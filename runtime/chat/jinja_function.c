/* jinja_function.c - global functions, and the methods of dicts, lists and loops. */
#include "runtime/chat/jinja_internal.h"

#include <string.h>
#include <time.h>

enum {
    RANGE_MAX = 100000, /* as jinja's sandbox has it */
    TIME_BYTES_MAX = 4096
};

/* ---- global functions ---- */

static tern_status global_range(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    (void)self;
    int64_t numbers[3] = {0, 0, 1};
    if (call->count < 1 || call->count > 3 || call->keyword_count > 0) {
        return tern_jinja_fail(run, "range: expected one to three numbers");
    }
    for (int64_t i = 0; i < call->count; i++) {
        if (!tern_jinja_is_integer(call->items[i])) {
            return tern_jinja_fail(run, "range: found a value of type %s; expected a whole number",
                                   tern_jinja_type(call->items[i]));
        }
        numbers[call->count == 1 ? 1 : i] = tern_jinja_integer(call->items[i]);
    }
    int64_t step = numbers[2];
    if (step == 0) {
        return tern_jinja_fail(run, "range: found a step of 0");
    }
    __int128 distance = (__int128)numbers[1] - numbers[0];
    __int128 count = step > 0 ? (distance + step - 1) / step : (distance + step + 1) / step;
    count = (step > 0) == (distance > 0) && distance != 0 ? count : 0;
    if (count > RANGE_MAX) {
        return tern_jinja_fail(run, "range: more than %d numbers", RANGE_MAX);
    }
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_RANGE, (int64_t)count, out));
    for (int64_t i = 0; i < (int64_t)count; i++) {
        out->list->items[i] = tern_jinja_int(numbers[0] + i * step);
    }
    return TERN_OK;
}

/* dict(), dict(a=1), dict(other, a=1); namespace() the same. */
static tern_status make_dict(struct jinja_run *run,
                             const char *what,
                             const struct jinja_call *call,
                             enum jinja_kind kind,
                             struct jinja_value *out)
{
    if (call->count > 1) {
        return tern_jinja_fail(run, "%s: expected at most one dict, and names", what);
    }
    TERN_RETURN_IF_ERR(tern_jinja_dict(run, kind, 4, out));
    bool is_dict = call->count == 1 && call->items[0].kind == JINJA_DICT;
    const struct jinja_dict *from = is_dict ? call->items[0].dict : NULL;
    for (int64_t i = 0; is_dict && i < from->count; i++) {
        TERN_RETURN_IF_ERR(
            tern_jinja_dict_set(run, out->dict, from->entries[i].key, from->entries[i].value));
    }
    struct jinja_value *pairs = NULL;
    int64_t count = 0;
    if (call->count == 1 && !is_dict) {
        TERN_RETURN_IF_ERR(tern_jinja_items(run, call->items[0], &pairs, &count));
    }
    for (int64_t i = 0; i < count; i++) {
        if (!tern_jinja_is_list(pairs[i]) || pairs[i].list->count != 2) {
            return tern_jinja_fail(run, "%s: expected a dict or a list of pairs", what);
        }
        TERN_RETURN_IF_ERR(
            tern_jinja_dict_set(run, out->dict, pairs[i].list->items[0], pairs[i].list->items[1]));
    }
    for (int64_t i = 0; i < call->keyword_count; i++) {
        struct jinja_value key;
        TERN_RETURN_IF_ERR(tern_jinja_borrow(run, call->names[i], strlen(call->names[i]), &key));
        TERN_RETURN_IF_ERR(tern_jinja_dict_set(run, out->dict, key, call->values[i]));
    }
    return TERN_OK;
}

static tern_status global_dict(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    (void)self;
    return make_dict(run, "dict", call, JINJA_DICT, out);
}

static tern_status global_namespace(struct jinja_run *run,
                                    struct jinja_value self,
                                    const struct jinja_call *call,
                                    struct jinja_value *out)
{
    (void)self;
    TERN_RETURN_IF_ERR(make_dict(run, "namespace", call, JINJA_NAMESPACE, out));
    for (int64_t i = 0; i < out->dict->count; i++) {
        struct jinja_value key = out->dict->entries[i].key;
        if (key.kind == JINJA_STRING && key.string->bytes > 0 && key.string->data[0] == '_') {
            return tern_jinja_fail(run,
                                   "namespace: expected names without an underscore before them");
        }
    }
    return TERN_OK;
}

static tern_status global_raise(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    (void)self;
    struct jinja_value slots[1];
    *out = tern_jinja_none();
    JINJA_ARGUMENTS(run, "raise_exception", call, 1, slots, "message");
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, slots[0], &slots[0]));
    return tern_jinja_fail(run, "the template refuses this conversation: %.*s",
                           (int)(slots[0].string->bytes < 1024 ? slots[0].string->bytes : 1024),
                           slots[0].string->data);
}

static tern_status global_strftime(struct jinja_run *run,
                                   struct jinja_value self,
                                   const struct jinja_call *call,
                                   struct jinja_value *out)
{
    (void)self;
    struct jinja_value slots[1];
    char format[256] = "", text[TIME_BYTES_MAX];
    JINJA_ARGUMENTS(run, "strftime_now", call, 1, slots, "format");
    if (slots[0].kind != JINJA_STRING || slots[0].string->bytes >= sizeof format - 1) {
        return tern_jinja_fail(run, "strftime_now: expected a format of at most 254 bytes");
    }
    memcpy(format, slots[0].string->data, slots[0].string->bytes);
    strcat(format, "."); /* so that an empty text is told from one that does not fit */
    time_t now = (time_t)run->now;
    struct tm local;
    if (localtime_r(&now, &local) == NULL) {
        return tern_jinja_fail(run, "strftime_now: the time %lld is no date", (long long)run->now);
    }
    size_t length = strftime(text, sizeof text, format, &local);
    if (length == 0) {
        return tern_jinja_fail(run, "strftime_now: the text is too long");
    }
    return tern_jinja_copy(run, text, length - 1, out);
}

const struct jinja_function *tern_jinja_find_function(const char *name)
{
    static const struct jinja_function functions[] = {
        {"range", global_range},           {"dict", global_dict},
        {"namespace", global_namespace},   {"raise_exception", global_raise},
        {"strftime_now", global_strftime},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(name, functions[i].name) == 0) {
            return &functions[i];
        }
    }
    return NULL;
}

/* ---- methods of dicts ---- */

static tern_status dict_view(struct jinja_run *run,
                             const char *what,
                             struct jinja_value self,
                             const struct jinja_call *call,
                             struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, what, call, NULL, 0, 0, NULL));
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_VIEW, self.dict->count, out));
    for (int64_t i = 0; i < self.dict->count; i++) {
        const struct jinja_entry *entry = &self.dict->entries[i];
        struct jinja_value *to = &out->list->items[i];
        *to = strcmp(what, "keys") == 0 ? entry->key : entry->value;
        if (strcmp(what, "items") == 0) {
            TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_TUPLE, 2, to));
            to->list->items[0] = entry->key;
            to->list->items[1] = entry->value;
        }
    }
    return TERN_OK;
}

static tern_status dict_items(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    return dict_view(run, "items", self, call, out);
}

static tern_status dict_keys(struct jinja_run *run,
                             struct jinja_value self,
                             const struct jinja_call *call,
                             struct jinja_value *out)
{
    return dict_view(run, "keys", self, call, out);
}

static tern_status dict_values(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    return dict_view(run, "values", self, call, out);
}

/* Python's dict.get takes its arguments by position only. */
static tern_status dict_get(struct jinja_run *run,
                            struct jinja_value self,
                            const struct jinja_call *call,
                            struct jinja_value *out)
{
    bool is_found;
    if (call->count < 1 || call->count > 2 || call->keyword_count > 0) {
        return tern_jinja_fail(run, "get: expected a key, and a default if there is one");
    }
    TERN_RETURN_IF_ERR(tern_jinja_dict_get(run, self.dict, call->items[0], &is_found, out));
    if (!is_found) {
        *out = call->count == 2 ? call->items[1] : tern_jinja_none();
    }
    return TERN_OK;
}

static tern_status copy_of(struct jinja_run *run,
                           struct jinja_value self,
                           const struct jinja_call *call,
                           struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_arguments(run, "copy", call, NULL, 0, 0, NULL));
    *out = self; /* nothing changes a list or a dict */
    return TERN_OK;
}

/* ---- methods of lists ---- */

static tern_status list_count(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    int64_t count = 0;
    if (call->count != 1 || call->keyword_count > 0) {
        return tern_jinja_fail(run, "count: expected one value");
    }
    for (int64_t i = 0; i < self.list->count; i++) {
        bool is_equal;
        TERN_RETURN_IF_ERR(tern_jinja_equal(run, self.list->items[i], call->items[0], &is_equal));
        count += is_equal;
    }
    *out = tern_jinja_int(count);
    return TERN_OK;
}

static tern_status list_index(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    if (call->count != 1 || call->keyword_count > 0) {
        return tern_jinja_fail(run, "index: expected one value");
    }
    for (int64_t i = 0; i < self.list->count; i++) {
        bool is_equal;
        TERN_RETURN_IF_ERR(tern_jinja_equal(run, self.list->items[i], call->items[0], &is_equal));
        if (is_equal) {
            *out = tern_jinja_int(i);
            return TERN_OK;
        }
    }
    return tern_jinja_fail(run, "index: the list does not have that value");
}

/* ---- methods of loops ---- */

static tern_status loop_cycle(struct jinja_run *run,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              struct jinja_value *out)
{
    if (call->count < 1 || call->keyword_count > 0) {
        return tern_jinja_fail(run, "cycle: expected values");
    }
    *out = call->items[self.loop->index % call->count];
    return TERN_OK;
}

static tern_status loop_changed(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    struct jinja_value now;
    bool is_same = false;
    TERN_RETURN_IF_ERR(tern_jinja_list(run, JINJA_TUPLE, call->count, &now));
    for (int64_t i = 0; i < call->count; i++) {
        now.list->items[i] = call->items[i];
    }
    if (self.loop->changed.kind == JINJA_TUPLE) {
        TERN_RETURN_IF_ERR(tern_jinja_equal(run, self.loop->changed, now, &is_same));
    }
    self.loop->changed = now;
    *out = tern_jinja_bool(!is_same);
    return TERN_OK;
}

/* ---- which there are ---- */

static const struct jinja_function g_dict[] = {{"items", dict_items},   {"keys", dict_keys},
                                               {"values", dict_values}, {"get", dict_get},
                                               {"copy", copy_of},       {NULL, NULL}};
static const struct jinja_function g_list[] = {{"count", list_count},
                                               {"index", list_index},
                                               {"copy", copy_of},
                                               {NULL, NULL}};
static const struct jinja_function g_loop[] = {{"cycle", loop_cycle},
                                               {"changed", loop_changed},
                                               {NULL, NULL}};

jinja_builtin tern_jinja_find_method(struct jinja_value self, const char *name)
{
    const struct jinja_function *table = NULL;
    switch (self.kind) {
    case JINJA_STRING:
        return tern_jinja_find_string_method(name);
    case JINJA_DICT:
        table = g_dict;
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
        table = self.kind != JINJA_LIST && strcmp(name, "copy") == 0 ? NULL : g_list;
        break;
    case JINJA_LOOP:
        table = g_loop;
        break;
    default:
        break;
    }
    for (; table != NULL && table->name != NULL; table++) {
        if (strcmp(name, table->name) == 0) {
            return table->call;
        }
    }
    return NULL;
}

/* The sandbox keeps what changes a list or a dict; and what begins with an underscore, where it is no item. */
bool tern_jinja_is_forbidden(struct jinja_value self, const char *name)
{
    static const char *const changes_dict[] = {"clear",  "pop",      "popitem", "setdefault",
                                               "update", "fromkeys", NULL};
    static const char *const changes_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                               "sort",   "extend", "remove", NULL};
    if (strncmp(name, "__", 2) == 0) {
        return true;
    }
    const char *const *names = self.kind == JINJA_DICT   ? changes_dict
                               : self.kind == JINJA_LIST ? changes_list
                                                         : NULL;
    for (; names != NULL && *names != NULL; names++) {
        if (strcmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}
