/* gguf_value.c - metadata by key, checked for its type. */
#include "io/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} g_types[TERN_GGUF_TYPE_COUNT] = {
    [TERN_GGUF_U8] = {"u8", 1},         [TERN_GGUF_I8] = {"i8", 1},
    [TERN_GGUF_U16] = {"u16", 2},       [TERN_GGUF_I16] = {"i16", 2},
    [TERN_GGUF_U32] = {"u32", 4},       [TERN_GGUF_I32] = {"i32", 4},
    [TERN_GGUF_F32] = {"f32", 4},       [TERN_GGUF_BOOL] = {"bool", 1},
    [TERN_GGUF_STRING] = {"string", 0}, [TERN_GGUF_ARRAY] = {"array", 0},
    [TERN_GGUF_U64] = {"u64", 8},       [TERN_GGUF_I64] = {"i64", 8},
    [TERN_GGUF_F64] = {"f64", 8},
};

size_t tern_gguf_type_bytes(enum tern_gguf_type type)
{
    return g_types[type].bytes;
}

const char *tern_gguf_type_name(enum tern_gguf_type type)
{
    return g_types[type].name;
}

const char *tern_gguf_path(const struct tern_gguf *gguf)
{
    return tern_tensor_file_path(gguf->tensors);
}

const struct tern_tensor_file *tern_gguf_tensors(const struct tern_gguf *gguf)
{
    return gguf->tensors;
}

static int compare_key(const void *key, const void *entry)
{
    const struct tern_gguf_entry *const *candidate = entry;
    return strcmp(key, (*candidate)->key);
}

const struct tern_gguf_entry *tern_gguf_find(const struct tern_gguf *gguf, const char *key)
{
    struct tern_gguf_entry **found =
        bsearch(key, gguf->by_key, (size_t)gguf->count, sizeof *found, compare_key);
    return found != NULL ? *found : NULL;
}

bool tern_gguf_has(const struct tern_gguf *gguf, const char *key)
{
    return tern_gguf_find(gguf, key) != NULL;
}

const char *tern_gguf_key(const struct tern_gguf *gguf,
                          int64_t index,
                          enum tern_gguf_type *type_out)
{
    if (index < 0 || index >= gguf->count) {
        return NULL;
    }
    if (type_out != NULL) {
        *type_out = gguf->entries[index].type;
    }
    return gguf->entries[index].key;
}

const void *tern_gguf_entry_bytes(const struct tern_gguf *gguf, int64_t index, size_t *bytes_out)
{
    *bytes_out = gguf->entries[index].bytes;
    return gguf->entries[index].data;
}

static bool is_integer(enum tern_gguf_type type)
{
    return type <= TERN_GGUF_I32 || type == TERN_GGUF_U64 || type == TERN_GGUF_I64;
}

static bool is_signed(enum tern_gguf_type type)
{
    return type == TERN_GGUF_I8 || type == TERN_GGUF_I16 || type == TERN_GGUF_I32 ||
           type == TERN_GGUF_I64;
}

static bool is_float(enum tern_gguf_type type)
{
    return type == TERN_GGUF_F32 || type == TERN_GGUF_F64;
}

/* Sign-extended where the type has a sign. */
static uint64_t load_integer(const struct tern_gguf_array *array, int64_t index)
{
    size_t bytes = g_types[array->type].bytes;
    uint64_t value = tern_gguf_load(array->data + (size_t)index * bytes, bytes);
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return is_signed(array->type) ? (uint64_t)((int64_t)(value << unused) >> unused) : value;
}

static double load_float(const struct tern_gguf_array *array, int64_t index)
{
    size_t bytes = g_types[array->type].bytes;
    uint64_t bits = tern_gguf_load(array->data + (size_t)index * bytes, bytes);
    double value;
    if (array->type == TERN_GGUF_F32) {
        return (double)tern_bits_to_f32((uint32_t)bits);
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static tern_status missing(const struct tern_gguf *gguf, const char *key, const char *expected)
{
    return tern_fail(TERN_ERR_INPUT, "%s: found no key '%s', expected %s", tern_gguf_path(gguf),
                     key, expected);
}

static tern_status wrong(const struct tern_gguf *gguf,
                         const struct tern_gguf_entry *entry,
                         const char *expected)
{
    bool is_array = entry->type == TERN_GGUF_ARRAY;
    return tern_fail(TERN_ERR_INPUT, "%s: byte %llu: key '%s' is %s%s, expected %s",
                     tern_gguf_path(gguf), (unsigned long long)entry->offset, entry->key,
                     is_array ? "an array of " : "a value of type ",
                     tern_gguf_type_name(entry->array.type), expected);
}

/* An entry of any integer type; its value, sign-extended, and whether it has a sign. */
static tern_status get_integer(const struct tern_gguf *gguf,
                               const char *key,
                               const struct tern_gguf_entry **entry_out,
                               uint64_t *value_out)
{
    const struct tern_gguf_entry *entry = tern_gguf_find(gguf, key);
    if (entry == NULL) {
        return missing(gguf, key, "an integer");
    }
    if (!is_integer(entry->type)) {
        return wrong(gguf, entry, "an integer");
    }
    *entry_out = entry;
    *value_out = load_integer(&entry->array, 0);
    return TERN_OK;
}

tern_status tern_gguf_i64(const struct tern_gguf *gguf, const char *key, int64_t *value_out)
{
    const struct tern_gguf_entry *entry;
    uint64_t value;
    TERN_RETURN_IF_ERR(get_integer(gguf, key, &entry, &value));
    if (!is_signed(entry->type) && value > INT64_MAX) {
        return tern_fail(TERN_ERR_INPUT, "%s: byte %llu: key '%s' is %llu, expected less than 2^63",
                         tern_gguf_path(gguf), (unsigned long long)entry->offset, key,
                         (unsigned long long)value);
    }
    *value_out = (int64_t)value;
    return TERN_OK;
}

tern_status tern_gguf_u64(const struct tern_gguf *gguf, const char *key, uint64_t *value_out)
{
    const struct tern_gguf_entry *entry;
    uint64_t value;
    TERN_RETURN_IF_ERR(get_integer(gguf, key, &entry, &value));
    if (is_signed(entry->type) && (int64_t)value < 0) {
        return tern_fail(TERN_ERR_INPUT, "%s: byte %llu: key '%s' is %lld, expected 0 or more",
                         tern_gguf_path(gguf), (unsigned long long)entry->offset, key,
                         (long long)value);
    }
    *value_out = value;
    return TERN_OK;
}

tern_status tern_gguf_f64(const struct tern_gguf *gguf, const char *key, double *value_out)
{
    const struct tern_gguf_entry *entry = tern_gguf_find(gguf, key);
    if (entry == NULL) {
        return missing(gguf, key, "a number");
    }
    if (is_float(entry->type)) {
        *value_out = load_float(&entry->array, 0);
        return TERN_OK;
    }
    if (!is_integer(entry->type)) {
        return wrong(gguf, entry, "a number");
    }
    uint64_t bits = load_integer(&entry->array, 0);
    bool is_negative = is_signed(entry->type) && (int64_t)bits < 0;
    uint64_t magnitude = is_negative ? 0 - bits : bits;
    if (magnitude > UINT64_C(1) << 53) {
        return wrong(gguf, entry, "a number that a double holds exactly");
    }
    *value_out = is_negative ? -(double)magnitude : (double)magnitude;
    return TERN_OK;
}

tern_status tern_gguf_bool(const struct tern_gguf *gguf, const char *key, bool *value_out)
{
    const struct tern_gguf_entry *entry = tern_gguf_find(gguf, key);
    if (entry == NULL) {
        return missing(gguf, key, "a bool");
    }
    if (entry->type != TERN_GGUF_BOOL) {
        return wrong(gguf, entry, "a bool");
    }
    *value_out = entry->array.data[0] != 0;
    return TERN_OK;
}

tern_status tern_gguf_string(const struct tern_gguf *gguf,
                             const char *key,
                             const char **text_out,
                             size_t *bytes_out)
{
    const struct tern_gguf_entry *entry = tern_gguf_find(gguf, key);
    if (entry == NULL) {
        return missing(gguf, key, "a string");
    }
    if (entry->type != TERN_GGUF_STRING) {
        return wrong(gguf, entry, "a string");
    }
    *text_out = tern_gguf_array_string(&entry->array, 0, bytes_out);
    return TERN_OK;
}

bool tern_gguf_string_is(const struct tern_gguf *gguf, const char *key, const char *text)
{
    const struct tern_gguf_entry *entry = tern_gguf_find(gguf, key);
    size_t bytes;
    if (entry == NULL || entry->type != TERN_GGUF_STRING) {
        return false;
    }
    const char *found = tern_gguf_array_string(&entry->array, 0, &bytes);
    return bytes == strlen(text) && memcmp(found, text, bytes) == 0;
}

tern_status tern_gguf_array(const struct tern_gguf *gguf,
                            const char *key,
                            enum tern_gguf_elements elements,
                            struct tern_gguf_array *out)
{
    static const char *const expected[] = {"an array of integers", "an array of floats",
                                           "an array of bools", "an array of strings"};
    const struct tern_gguf_entry *entry = tern_gguf_find(gguf, key);
    if (entry == NULL) {
        return missing(gguf, key, expected[elements]);
    }
    enum tern_gguf_type type = entry->array.type;
    bool fits = (elements == TERN_GGUF_INTEGERS && is_integer(type)) ||
                (elements == TERN_GGUF_FLOATS && is_float(type)) ||
                (elements == TERN_GGUF_BOOLS && type == TERN_GGUF_BOOL) ||
                (elements == TERN_GGUF_STRINGS && type == TERN_GGUF_STRING);
    if (entry->type != TERN_GGUF_ARRAY || !fits) {
        return wrong(gguf, entry, expected[elements]);
    }
    *out = entry->array;
    return TERN_OK;
}

int64_t tern_gguf_array_i64(const struct tern_gguf_array *array, int64_t index)
{
    uint64_t value = load_integer(array, index);
    return !is_signed(array->type) && value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

double tern_gguf_array_f64(const struct tern_gguf_array *array, int64_t index)
{
    return load_float(array, index);
}

bool tern_gguf_array_bool(const struct tern_gguf_array *array, int64_t index)
{
    return array->data[index] != 0;
}

const char *tern_gguf_array_string(const struct tern_gguf_array *array,
                                   int64_t index,
                                   size_t *bytes_out)
{
    const uint8_t *string = array->data + array->strings[index];
    *bytes_out = (size_t)tern_gguf_load(string, 8);
    return (const char *)string + 8;
}
