/* jinja_value.c - what a template computes with: strings, lists, dicts; truth, equality, iteration. */
#include "runtime/chat/jinja_internal.h"

#include <string.h>

const char *tern_jinja_type(struct jinja_value value)
{
    static const char *const names[] = {[JINJA_UNDEFINED] = "Undefined", [JINJA_NONE] = "NoneType",
                                        [JINJA_BOOL] = "bool",           [JINJA_INT] = "int",
                                        [JINJA_FLOAT] = "float",         [JINJA_STRING] = "str",
                                        [JINJA_LIST] = "list",           [JINJA_TUPLE] = "tuple",
                                        [JINJA_RANGE] = "range",         [JINJA_VIEW] = "dict view",
                                        [JINJA_GENERATOR] = "generator", [JINJA_DICT] = "dict",
                                        [JINJA_NAMESPACE] = "Namespace", [JINJA_MACRO] = "Macro",
                                        [JINJA_FUNCTION] = "function",   [JINJA_METHOD] = "method",
                                        [JINJA_LOOP] = "LoopContext"};
    return names[value.kind];
}

bool tern_jinja_truth(struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return value.truth;
    case JINJA_INT:
        return value.integer != 0;
    case JINJA_FLOAT:
        return value.real != 0;
    case JINJA_STRING:
        return value.string->bytes > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        return value.list->count > 0;
    case JINJA_DICT:
        return value.dict->count > 0;
    default: /* objects: a generator is true even if it gives nothing */
        return true;
    }
}

/* ---- strings ---- */

tern_status tern_jinja_borrow(struct jinja_run *run,
                              const char *data,
                              size_t bytes,
                              struct jinja_value *out)
{
    struct jinja_string *string;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *string, &string));
    *string = (struct jinja_string){.data = data, .bytes = bytes, .characters = SIZE_MAX};
    *out = (struct jinja_value){.kind = JINJA_STRING, .string = string};
    return TERN_OK;
}

tern_status tern_jinja_copy(struct jinja_run *run,
                            const char *data,
                            size_t bytes,
                            struct jinja_value *out)
{
    struct jinja_text text = {0};
    TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, data, bytes));
    return tern_jinja_finish_text(run, &text, out);
}

int64_t tern_jinja_characters(struct jinja_string *string)
{
    if (string->characters == SIZE_MAX) {
        size_t count = 0;
        for (size_t i = 0; i < string->bytes; i++) {
            count += (string->data[i] & 0xC0) != 0x80;
        }
        string->characters = count;
    }
    return (int64_t)string->characters;
}

size_t tern_jinja_offset(struct jinja_string *string, int64_t index)
{
    if (tern_jinja_characters(string) == (int64_t)string->bytes) {
        return (size_t)index;
    }
    size_t at = 0;
    for (int64_t i = 0; i <= index && at < string->bytes; at++) {
        i += (string->data[at] & 0xC0) != 0x80;
        if (i > index) {
            break;
        }
    }
    return at;
}

/* ---- lists and dicts ---- */

tern_status tern_jinja_list(struct jinja_run *run,
                            enum jinja_kind kind,
                            int64_t count,
                            struct jinja_value *out)
{
    struct jinja_list *list;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1 + count / 16));
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *list, &list));
    TERN_RETURN_IF_ERR(tern_jinja_new(run, (size_t)count * sizeof *list->items, &list->items));
    list->count = count;
    *out = (struct jinja_value){.kind = (uint8_t)kind, .list = list};
    return TERN_OK;
}

tern_status tern_jinja_dict(struct jinja_run *run,
                            enum jinja_kind kind,
                            int64_t capacity,
                            struct jinja_value *out)
{
    struct jinja_dict *dict;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *dict, &dict));
    TERN_RETURN_IF_ERR(
        tern_jinja_new(run, (size_t)capacity * sizeof *dict->entries, &dict->entries));
    dict->capacity = capacity;
    *out = (struct jinja_value){.kind = (uint8_t)kind, .dict = dict};
    return TERN_OK;
}

static uint32_t hash_bytes(uint32_t hash, const void *data, size_t bytes)
{
    const unsigned char *c = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ c[i]) * 16777619U;
    }
    return hash;
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. */
static tern_status hash_of(struct jinja_run *run, struct jinja_value value, uint32_t *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
    *out = 2166136261U ^ value.kind;
    double real;
    switch (value.kind) {
    case JINJA_STRING:
        *out = hash_bytes(*out, value.string->data, value.string->bytes);
        return tern_jinja_spend(run, (int64_t)value.string->bytes / 256);
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
        real = tern_jinja_real(value);
        *out = hash_bytes(2166136261U, &real, sizeof real);
        return TERN_OK;
    case JINJA_TUPLE:
        TERN_RETURN_IF_ERR(tern_jinja_enter(run));
        for (int64_t i = 0; i < value.list->count; i++) {
            uint32_t item;
            TERN_RETURN_IF_ERR(hash_of(run, value.list->items[i], &item));
            *out = hash_bytes(*out, &item, sizeof item);
        }
        run->depth--;
        return TERN_OK;
    case JINJA_LIST:
    case JINJA_DICT:
        return tern_jinja_fail(
            run, "found a %s as the key of a dict; expected a value that cannot change",
            tern_jinja_type(value));
    default:
        return TERN_OK;
    }
}

static tern_status find_entry(struct jinja_run *run,
                              const struct jinja_dict *dict,
                              struct jinja_value key,
                              uint32_t hash,
                              struct jinja_entry **out)
{
    *out = NULL;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, dict->count / 16));
    for (int64_t i = 0; i < dict->count; i++) {
        bool is_equal = false;
        if (dict->entries[i].hash == hash) {
            TERN_RETURN_IF_ERR(tern_jinja_equal(run, dict->entries[i].key, key, &is_equal));
        }
        if (is_equal) {
            *out = &dict->entries[i];
            return TERN_OK;
        }
    }
    return TERN_OK;
}

tern_status tern_jinja_dict_set(struct jinja_run *run,
                                struct jinja_dict *dict,
                                struct jinja_value key,
                                struct jinja_value value)
{
    uint32_t hash;
    struct jinja_entry *entry;
    TERN_RETURN_IF_ERR(hash_of(run, key, &hash));
    TERN_RETURN_IF_ERR(find_entry(run, dict, key, hash, &entry));
    if (entry != NULL) {
        entry->value = value;
        return TERN_OK;
    }
    if (dict->count == dict->capacity) {
        struct jinja_entry *grown;
        int64_t capacity = dict->capacity * 2 + 4;
        TERN_RETURN_IF_ERR(tern_jinja_new(run, (size_t)capacity * sizeof *grown, &grown));
        if (dict->count > 0) {
            memcpy(grown, dict->entries, (size_t)dict->count * sizeof *grown);
        }
        dict->entries = grown;
        dict->capacity = capacity;
    }
    dict->entries[dict->count++] = (struct jinja_entry){.key = key, .value = value, .hash = hash};
    return TERN_OK;
}

tern_status tern_jinja_dict_get(struct jinja_run *run,
                                const struct jinja_dict *dict,
                                struct jinja_value key,
                                bool *found_out,
                                struct jinja_value *out)
{
    uint32_t hash;
    struct jinja_entry *entry;
    TERN_RETURN_IF_ERR(hash_of(run, key, &hash));
    TERN_RETURN_IF_ERR(find_entry(run, dict, key, hash, &entry));
    *found_out = entry != NULL;
    *out = entry != NULL ? entry->value : tern_jinja_undefined(NULL);
    return TERN_OK;
}

const struct jinja_value *tern_jinja_dict_find(const struct jinja_dict *dict,
                                               const char *key,
                                               size_t bytes)
{
    for (int64_t i = 0; i < dict->count; i++) {
        const struct jinja_value *at = &dict->entries[i].key;
        if (at->kind == JINJA_STRING && tern_jinja_string_is(at->string, key, bytes)) {
            return &dict->entries[i].value;
        }
    }
    return NULL;
}

/* ---- equality ---- */

static tern_status equal_lists(struct jinja_run *run,
                               const struct jinja_list *a,
                               const struct jinja_list *b,
                               bool *out)
{
    *out = a->count == b->count;
    for (int64_t i = 0; i < a->count && *out; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_equal(run, a->items[i], b->items[i], out));
    }
    return TERN_OK;
}

static tern_status equal_dicts(struct jinja_run *run,
                               const struct jinja_dict *a,
                               const struct jinja_dict *b,
                               bool *out)
{
    *out = a->count == b->count;
    for (int64_t i = 0; i < a->count && *out; i++) {
        struct jinja_value other;
        TERN_RETURN_IF_ERR(tern_jinja_dict_get(run, b, a->entries[i].key, out, &other));
        if (*out) {
            TERN_RETURN_IF_ERR(tern_jinja_equal(run, a->entries[i].value, other, out));
        }
    }
    return TERN_OK;
}

static bool equal_numbers(struct jinja_value a, struct jinja_value b)
{
    return tern_jinja_is_integer(a) && tern_jinja_is_integer(b)
               ? tern_jinja_integer(a) == tern_jinja_integer(b)
               : tern_jinja_real(a) == tern_jinja_real(b);
}

tern_status tern_jinja_equal(struct jinja_run *run,
                             struct jinja_value a,
                             struct jinja_value b,
                             bool *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
    *out = false;
    if (tern_jinja_is_number(a) && tern_jinja_is_number(b)) {
        *out = equal_numbers(a, b);
        return TERN_OK;
    }
    if (a.kind != b.kind) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    tern_status status = TERN_OK;
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *out = true;
        break;
    case JINJA_STRING:
        *out = tern_jinja_string_is(a.string, b.string->data, b.string->bytes);
        status = tern_jinja_spend(run, (int64_t)a.string->bytes / 256);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
        status = equal_lists(run, a.list, b.list, out);
        break;
    case JINJA_DICT:
        status = equal_dicts(run, a.dict, b.dict, out);
        break;
    default:
        *out = a.list == b.list; /* whatever the object is: the same one */
        break;
    }
    run->depth--;
    return status;
}

/* ---- iteration ---- */

static tern_status string_items(struct jinja_run *run,
                                struct jinja_string *string,
                                struct jinja_value **items_out,
                                int64_t *count_out)
{
    int64_t count = tern_jinja_characters(string);
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, count));
    TERN_RETURN_IF_ERR(tern_jinja_new(run, (size_t)count * sizeof **items_out, items_out));
    size_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        int bytes;
        tern_jinja_code(string->data + at, &bytes);
        TERN_RETURN_IF_ERR(
            tern_jinja_borrow(run, string->data + at, (size_t)bytes, &(*items_out)[i]));
        at += (size_t)bytes;
    }
    *count_out = count;
    return TERN_OK;
}

tern_status tern_jinja_items(struct jinja_run *run,
                             struct jinja_value value,
                             struct jinja_value **items_out,
                             int64_t *count_out)
{
    *items_out = NULL;
    *count_out = 0;
    switch (value.kind) {
    case JINJA_UNDEFINED:
        return TERN_OK;
    case JINJA_STRING:
        return string_items(run, value.string, items_out, count_out);
    case JINJA_GENERATOR:
        *items_out = value.list->items + value.list->taken;
        *count_out = value.list->count - value.list->taken;
        value.list->taken = value.list->count;
        return TERN_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        *items_out = value.list->items;
        *count_out = value.list->count;
        return TERN_OK;
    case JINJA_DICT:
        TERN_RETURN_IF_ERR(
            tern_jinja_new(run, (size_t)value.dict->count * sizeof **items_out, items_out));
        for (int64_t i = 0; i < value.dict->count; i++) {
            (*items_out)[i] = value.dict->entries[i].key;
        }
        *count_out = value.dict->count;
        return tern_jinja_spend(run, value.dict->count / 4);
    default:
        return tern_jinja_fail(
            run,
            "found a value of type %s where items are wanted; expected a list, a dict or a string",
            tern_jinja_type(value));
    }
}

tern_status tern_jinja_length(struct jinja_run *run, struct jinja_value value, int64_t *out)
{
    *out = 0;
    switch (value.kind) {
    case JINJA_UNDEFINED:
        return TERN_OK;
    case JINJA_STRING:
        *out = tern_jinja_characters(value.string);
        return tern_jinja_spend(run, (int64_t)value.string->bytes / 256);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        *out = value.list->count;
        return TERN_OK;
    case JINJA_DICT:
        *out = value.dict->count;
        return TERN_OK;
    case JINJA_LOOP:
        *out = value.loop->count;
        return TERN_OK;
    default:
        return tern_jinja_fail(run, "a value of type %s has no length", tern_jinja_type(value));
    }
}
