/* gguf_meta.c - metadata of a GGUF file: keys, types, and where the values lie. */
#include "io/gguf_internal.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_BYTES_MAX = 255,
    STRINGS_MAX = 4 << 20, /* in arrays of one model: vocabularies and merges take a million */
    ALIGNMENT_MAX = 1 << 20
};

static tern_status no_memory(const struct tern_gguf_reading *in)
{
    return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate its tables", in->path);
}

static tern_status check_bools(const struct tern_gguf_reading *in,
                               const struct tern_gguf_entry *entry,
                               const struct tern_gguf_array *array)
{
    for (int64_t i = 0; array->type == TERN_GGUF_BOOL && i < array->count; i++) {
        if (array->data[i] > 1) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: byte %zu: key '%s' has the boolean %u, expected 0 or 1", in->path,
                             (size_t)(array->data + i - in->data), entry->key, array->data[i]);
        }
    }
    return TERN_OK;
}

static tern_status take_strings(struct tern_gguf_reading *in,
                                struct tern_gguf_entry *entry,
                                struct tern_gguf_array *array)
{
    uint64_t count = (uint64_t)array->count;
    if (count > (in->bytes - in->at) / 8 ||
        count > (uint64_t)(STRINGS_MAX - in->gguf->string_count)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: key '%s' has %" PRIu64
                         " strings, expected at most %zu (what the file has room for) and at most "
                         "%d in all",
                         in->path, in->at, entry->key, count, (in->bytes - in->at) / 8,
                         STRINGS_MAX);
    }
    uint32_t *strings = tern_alloc("gguf", (size_t)count * sizeof *strings);
    if (strings == NULL) {
        return no_memory(in);
    }
    array->data = in->data + in->at;
    array->strings = strings;
    in->gguf->string_count += array->count;
    for (uint64_t i = 0; i < count; i++) {
        const char *text;
        uint64_t bytes;
        size_t start = in->at - (size_t)(array->data - in->data);
        if (start > UINT32_MAX) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "%s: byte %zu: key '%s' has more than 4 GiB of strings", in->path,
                             in->at, entry->key);
        }
        strings[i] = (uint32_t)start;
        TERN_RETURN_IF_ERR(tern_gguf_take_string(in, "a string of an array", &text, &bytes));
    }
    return TERN_OK;
}

/* The values of an array, or the one value of an entry that is none. */
static tern_status take_values(struct tern_gguf_reading *in, struct tern_gguf_entry *entry)
{
    struct tern_gguf_array *array = &entry->array;
    uint64_t bytes;
    if (array->type == TERN_GGUF_STRING) {
        return take_strings(in, entry, array);
    }
    if (__builtin_mul_overflow((uint64_t)array->count, tern_gguf_type_bytes(array->type), &bytes)) {
        bytes = UINT64_MAX; /* take says how much is left */
    }
    TERN_RETURN_IF_ERR(tern_gguf_take(in, bytes, entry->key, &array->data));
    return check_bools(in, entry, array);
}

static tern_status take_type(struct tern_gguf_reading *in,
                             const char *key,
                             enum tern_gguf_type *out)
{
    uint64_t type;
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 4, "a type", &type));
    if (type >= TERN_GGUF_TYPE_COUNT) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: key '%s' has type %" PRIu64 ", expected 0 to %d", in->path,
                         in->at - 4, key, type, TERN_GGUF_TYPE_COUNT - 1);
    }
    *out = (enum tern_gguf_type)type;
    return TERN_OK;
}

static tern_status take_entry(struct tern_gguf_reading *in, struct tern_gguf_entry *entry)
{
    uint64_t count = 1;
    TERN_RETURN_IF_ERR(take_type(in, entry->key, &entry->type));
    entry->array.type = entry->type;
    if (entry->type == TERN_GGUF_ARRAY) {
        TERN_RETURN_IF_ERR(take_type(in, entry->key, &entry->array.type));
        if (entry->array.type == TERN_GGUF_ARRAY) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "%s: byte %zu: key '%s' is an array of arrays, expected single values",
                             in->path, in->at - 4, entry->key);
        }
        TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 8, "the length of an array", &count));
    }
    if (count > INT64_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: key '%s' has %" PRIu64 " elements, expected fewer than the "
                         "file has bytes",
                         in->path, in->at - 8, entry->key, count);
    }
    entry->array.count = (int64_t)count;
    return take_values(in, entry);
}

static tern_status take_key(struct tern_gguf_reading *in, char **key_out)
{
    const char *text;
    uint64_t bytes;
    size_t start = in->at;
    TERN_RETURN_IF_ERR(tern_gguf_take_string(in, "a key", &text, &bytes));
    uint64_t good = 0;
    while (good < bytes && text[good] > ' ' && text[good] < 0x7f) {
        good++;
    }
    if (bytes == 0 || bytes > KEY_BYTES_MAX || good < bytes) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: a key of %" PRIu64
                         " bytes that begins with '%.*s', expected 1 to %d printable ASCII "
                         "characters",
                         in->path, start, bytes, (int)(good < 40 ? good : 40), text, KEY_BYTES_MAX);
    }
    *key_out = tern_alloc("gguf", (size_t)bytes + 1);
    if (*key_out == NULL) {
        return no_memory(in);
    }
    memcpy(*key_out, text, (size_t)bytes);
    (*key_out)[bytes] = '\0';
    return TERN_OK;
}

void tern_gguf_free_entry(struct tern_gguf_entry *entry)
{
    tern_free(entry->key);
    tern_free((void *)entry->array.strings);
}

static tern_status grow_entries(struct tern_gguf_reading *in)
{
    struct tern_gguf *gguf = in->gguf;
    if (gguf->count < gguf->capacity) {
        return TERN_OK;
    }
    int64_t capacity = gguf->capacity > 0 ? 2 * gguf->capacity : 64;
    void *entries = tern_realloc("gguf", gguf->entries, (size_t)capacity * sizeof *gguf->entries);
    if (entries == NULL) {
        return no_memory(in);
    }
    gguf->entries = entries;
    gguf->capacity = capacity;
    return TERN_OK;
}

/* `general.alignment` counts for each file by itself, and must be known before the tensors are. */
static tern_status note_alignment(struct tern_gguf_reading *in, const struct tern_gguf_entry *entry)
{
    if (strcmp(entry->key, "general.alignment") != 0) {
        return TERN_OK;
    }
    uint64_t value = entry->type == TERN_GGUF_U32 ? tern_gguf_load(entry->array.data, 4) : 0;
    if (value == 0 || value > ALIGNMENT_MAX || (value & (value - 1)) != 0) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %" PRIu64 ": key 'general.alignment' is %" PRIu64
                         " (%s), expected a power of two up to %d (u32)",
                         in->path, entry->offset, value, tern_gguf_type_name(entry->type),
                         ALIGNMENT_MAX);
    }
    in->alignment = value;
    return TERN_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const struct tern_gguf_entry *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static tern_status sort_entries(struct tern_gguf_reading *in)
{
    struct tern_gguf *gguf = in->gguf;
    size_t n = (size_t)gguf->count;
    gguf->by_key = tern_alloc("gguf", n * sizeof(struct tern_gguf_entry *));
    if (gguf->by_key == NULL) {
        return no_memory(in);
    }
    for (size_t i = 0; i < n; i++) {
        gguf->by_key[i] = &gguf->entries[i];
    }
    qsort(gguf->by_key, n, sizeof(struct tern_gguf_entry *), compare_entries);
    for (size_t i = 1; i < n; i++) {
        const struct tern_gguf_entry *a = gguf->by_key[i - 1], *b = gguf->by_key[i];
        if (strcmp(a->key, b->key) == 0) {
            uint64_t second = a->offset > b->offset ? a->offset : b->offset;
            return tern_fail(TERN_ERR_INPUT,
                             "%s: byte %" PRIu64 ": key '%s' is there twice, expected once",
                             in->path, second, a->key);
        }
    }
    return TERN_OK;
}

tern_status tern_gguf_read_entries(struct tern_gguf_reading *in, uint64_t count)
{
    struct tern_gguf *gguf = in->gguf;
    for (uint64_t i = 0; i < count; i++) {
        struct tern_gguf_entry entry = {.offset = in->at};
        tern_status status;
        TERN_GOTO_IF_ERR(status, take_key(in, &entry.key), fail);
        TERN_GOTO_IF_ERR(status, take_entry(in, &entry), fail);
        TERN_GOTO_IF_ERR(status, note_alignment(in, &entry), fail);
        entry.data = in->data + entry.offset;
        entry.bytes = in->at - (size_t)entry.offset;
        if (!in->is_first) {
            gguf->string_count -= entry.array.strings != NULL ? entry.array.count : 0;
            tern_gguf_free_entry(&entry);
            continue;
        }
        TERN_GOTO_IF_ERR(status, grow_entries(in), fail);
        gguf->entries[gguf->count++] = entry;
        continue;
    fail:
        tern_gguf_free_entry(&entry);
        return status;
    }
    return in->is_first ? sort_entries(in) : TERN_OK;
}
