/* safetensors.c - the header is scanned once; every range is checked before a tensor is believed. */
#include "io/safetensors.h"

#include "io/json_scan.h"
#include "io/safetensors_internal.h"
#include "runtime/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_BYTES_MAX = 100000000, /* the format's own limit */
    TEXT_BYTES = 1024             /* of a name, and of a value that is compared */
};

static const struct {
    const char *name;
    enum tern_dtype dtype;
} g_dtypes[] = {
    {"F32", TERN_F32},         {"BF16", TERN_BF16},       {"F16", TERN_F16},   {"F64", TERN_F64},
    {"I64", TERN_I64},         {"I32", TERN_I32},         {"I16", TERN_I16},   {"I8", TERN_I8},
    {"U64", TERN_U64},         {"U32", TERN_U32},         {"U16", TERN_U16},   {"U8", TERN_U8},
    {"F8_E4M3", TERN_F8_E4M3}, {"F8_E5M2", TERN_F8_E5M2}, {"BOOL", TERN_BOOL},
};

const char *tern_safetensors_dtype(enum tern_dtype dtype)
{
    for (size_t i = 0; i < sizeof g_dtypes / sizeof *g_dtypes; i++) {
        if (g_dtypes[i].dtype == dtype) {
            return g_dtypes[i].name;
        }
    }
    return NULL;
}

/* One file while its header is read. */
struct reading {
    struct tern_tensor_file *file;
    struct tern_json_scan scan;
    const char *path;
    const uint8_t *data; /* behind the header */
    uint64_t data_offset;
    int64_t data_bytes;
    int64_t first, count; /* its tensors in `file` */
};

/* One entry of the header as it is found. */
struct entry {
    char name[TEXT_BYTES];
    size_t name_bytes;
    uint64_t name_offset;
    struct tern_stored_tensor tensor;
    int64_t range[2];
    bool has_dtype, has_shape, has_range;
};

static tern_status read_dtype(struct reading *in, struct entry *entry)
{
    char text[TEXT_BYTES];
    size_t bytes;
    uint64_t offset = tern_json_scan_offset(&in->scan);
    TERN_RETURN_IF_ERR(tern_json_scan_string(&in->scan, text, sizeof text, &bytes));
    for (size_t i = 0; i < sizeof g_dtypes / sizeof *g_dtypes; i++) {
        if (strcmp(text, g_dtypes[i].name) == 0) {
            entry->tensor.dtype = g_dtypes[i].dtype;
            entry->has_dtype = true;
            return TERN_OK;
        }
    }
    return tern_fail(TERN_ERR_UNSUPPORTED,
                     "%s: byte %llu: tensor '%s' has dtype '%.40s', expected F32, BF16, F16, F64, "
                     "F8_E4M3, F8_E5M2, BOOL or I/U of 8 to 64 bits",
                     in->path, (unsigned long long)offset, entry->name, text);
}

static tern_status read_shape(struct reading *in, struct entry *entry)
{
    int64_t count = 0;
    bool more;
    uint64_t offset = tern_json_scan_offset(&in->scan);
    TERN_RETURN_IF_ERR(tern_json_scan_char(&in->scan, '['));
    for (;;) {
        TERN_RETURN_IF_ERR(tern_json_scan_more(&in->scan, ']', &count, &more));
        if (!more) {
            break;
        }
        if (count > TERN_STORED_RANK_MAX) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "%s: byte %llu: tensor '%s' has more than %d dimensions", in->path,
                             (unsigned long long)offset, entry->name, TERN_STORED_RANK_MAX);
        }
        TERN_RETURN_IF_ERR(tern_json_scan_count(&in->scan, &entry->tensor.shape[count - 1]));
    }
    entry->tensor.rank = (int)count - 1;
    entry->has_shape = true;
    return TERN_OK;
}

static tern_status read_range(struct reading *in, struct entry *entry)
{
    TERN_RETURN_IF_ERR(tern_json_scan_char(&in->scan, '['));
    TERN_RETURN_IF_ERR(tern_json_scan_count(&in->scan, &entry->range[0]));
    TERN_RETURN_IF_ERR(tern_json_scan_char(&in->scan, ','));
    TERN_RETURN_IF_ERR(tern_json_scan_count(&in->scan, &entry->range[1]));
    TERN_RETURN_IF_ERR(tern_json_scan_char(&in->scan, ']'));
    entry->has_range = true;
    return TERN_OK;
}

static tern_status read_field(struct reading *in, struct entry *entry)
{
    static const char *const names[] = {"dtype", "shape", "data_offsets"};
    char key[TEXT_BYTES];
    size_t bytes;
    uint64_t offset = tern_json_scan_offset(&in->scan);
    TERN_RETURN_IF_ERR(tern_json_scan_key(&in->scan, key, sizeof key, &bytes));
    tern_json_scan_peek(&in->scan);
    bool *const seen[] = {&entry->has_dtype, &entry->has_shape, &entry->has_range};
    for (int i = 0; i < 3; i++) {
        if (strcmp(key, names[i]) == 0) {
            if (*seen[i]) {
                return tern_fail(TERN_ERR_INPUT,
                                 "%s: byte %llu: tensor '%s' has '%s' twice, expected once",
                                 in->path, (unsigned long long)offset, entry->name, key);
            }
            return i == 0   ? read_dtype(in, entry)
                   : i == 1 ? read_shape(in, entry)
                            : read_range(in, entry);
        }
    }
    return tern_fail(TERN_ERR_INPUT,
                     "%s: byte %llu: tensor '%s' has the key '%.40s', expected dtype, shape and "
                     "data_offsets",
                     in->path, (unsigned long long)offset, entry->name, key);
}

/* Shape, type and range must say the same. */
static tern_status check_entry(const struct reading *in, struct entry *entry)
{
    struct tern_stored_tensor *tensor = &entry->tensor;
    char shape[TERN_STORED_SHAPE_BYTES];
    unsigned long long at = entry->name_offset;
    if (!entry->has_dtype || !entry->has_shape || !entry->has_range) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %llu: tensor '%s' has no %s, expected dtype, shape and "
                         "data_offsets",
                         in->path, at, entry->name,
                         !entry->has_dtype   ? "dtype"
                         : !entry->has_shape ? "shape"
                                             : "data_offsets");
    }
    if (!tern_stored_tensor_size(tensor)) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %llu: tensor '%s' of shape %s has more than 2^63 bytes, "
                         "expected less than the file's %lld",
                         in->path, at, entry->name, tern_stored_shape_text(tensor, shape),
                         (long long)in->data_bytes);
    }
    int64_t begin = entry->range[0], end = entry->range[1];
    if (begin > end || end > in->data_bytes) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %llu: tensor '%s' has data_offsets [%lld, %lld], expected a "
                         "range within the %lld bytes of data",
                         in->path, at, entry->name, (long long)begin, (long long)end,
                         (long long)in->data_bytes);
    }
    if (end - begin != (int64_t)tensor->bytes) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %llu: tensor '%s' has %lld bytes between its data_offsets, "
                         "expected %zu for shape %s of %s",
                         in->path, at, entry->name, (long long)(end - begin), tensor->bytes,
                         tern_stored_shape_text(tensor, shape), tern_dtype_name(tensor->dtype));
    }
    tensor->data = in->data + begin;
    tensor->file = in->path;
    tensor->offset = in->data_offset + (uint64_t)begin;
    return TERN_OK;
}

/* "name": {...}; "__metadata__" is an object of strings, which nothing here needs. */
static tern_status read_entry(struct reading *in)
{
    struct entry entry = {0};
    int64_t count = 0;
    bool more = true;
    entry.name_offset = tern_json_scan_offset(&in->scan);
    TERN_RETURN_IF_ERR(
        tern_json_scan_key(&in->scan, entry.name, sizeof entry.name, &entry.name_bytes));
    if (strcmp(entry.name, "__metadata__") == 0) {
        return tern_json_scan_skip(&in->scan);
    }
    TERN_RETURN_IF_ERR(tern_json_scan_char(&in->scan, '{'));
    for (;;) {
        TERN_RETURN_IF_ERR(tern_json_scan_more(&in->scan, '}', &count, &more));
        if (!more) {
            break;
        }
        TERN_RETURN_IF_ERR(read_field(in, &entry));
    }
    TERN_RETURN_IF_ERR(check_entry(in, &entry));
    in->count++;
    return tern_tensor_file_add(in->file, &entry.tensor, entry.name, entry.name_bytes,
                                entry.name_offset + 1);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct tern_stored_tensor *const *x = a, *const *y = b;
    uint64_t p = (*x)->offset, q = (*y)->offset;
    if (p != q) {
        return p < q ? -1 : 1;
    }
    return ((*x)->bytes > (*y)->bytes) - ((*x)->bytes < (*y)->bytes); /* empty ones first */
}

/* The tensors of one file cover its data: no overlap, no hole, nothing behind. */
static tern_status check_cover(const struct reading *in)
{
    size_t n = (size_t)in->count;
    const struct tern_stored_tensor **order =
        tern_alloc("safetensors", n * sizeof(const struct tern_stored_tensor *));
    if (order == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "%s: cannot sort %zu tensors", in->path, n);
    }
    for (size_t i = 0; i < n; i++) {
        order[i] = tern_tensor_file_at(in->file, in->first + (int64_t)i);
    }
    qsort(order, n, sizeof(const struct tern_stored_tensor *), compare_offsets);
    uint64_t at = in->data_offset, end = in->data_offset + (uint64_t)in->data_bytes;
    tern_status status = TERN_OK;
    for (size_t i = 0; i <= n && status == TERN_OK; i++) {
        uint64_t begin = i < n ? order[i]->offset : end;
        if (begin != at) {
            status = tern_fail(TERN_ERR_INPUT,
                               "%s: byte %llu: %s, expected the data of the %zu tensors to follow "
                               "each other to the end of the file (byte %llu)",
                               in->path, (unsigned long long)(begin < at ? begin : at),
                               begin < at ? "two tensors overlap here"
                                          : "no tensor has the bytes from here on",
                               n, (unsigned long long)end);
        }
        at = i < n ? begin + order[i]->bytes : end;
    }
    tern_free((void *)order);
    return status;
}

tern_status tern_safetensors_add(struct tern_tensor_file *file, const char *path)
{
    struct tern_map map;
    struct reading in = {.file = file, .first = tern_tensor_file_count(file)};
    int64_t count = 0;
    uint64_t header = 0;
    bool more;
    TERN_RETURN_IF_ERR(tern_tensor_file_map(file, path, &map, &in.path));
    if (map.bytes < LENGTH_BYTES) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 0: the file has %zu bytes, expected a safetensors file: 8 bytes "
                         "of length and a header",
                         path, map.bytes);
    }
    for (int i = LENGTH_BYTES; i-- > 0;) {
        header = header << 8 | map.data[i];
    }
    if (header > map.bytes - LENGTH_BYTES || header > HEADER_BYTES_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 0: the header has %llu bytes, expected at most %zu (the file "
                         "behind these 8) and at most %d: this is not a safetensors file, or it "
                         "is cut off",
                         path, (unsigned long long)header, map.bytes - LENGTH_BYTES,
                         HEADER_BYTES_MAX);
    }
    in.scan = (struct tern_json_scan){in.path, (const char *)map.data + LENGTH_BYTES,
                                      (size_t)header, 0, LENGTH_BYTES};
    in.data_offset = LENGTH_BYTES + header;
    in.data = map.data + in.data_offset;
    in.data_bytes = (int64_t)(map.bytes - in.data_offset);
    TERN_RETURN_IF_ERR(tern_json_scan_char(&in.scan, '{'));
    for (;;) {
        TERN_RETURN_IF_ERR(tern_json_scan_more(&in.scan, '}', &count, &more));
        if (!more) {
            break;
        }
        TERN_RETURN_IF_ERR(read_entry(&in));
    }
    TERN_RETURN_IF_ERR(tern_json_scan_end(&in.scan));
    return check_cover(&in);
}

bool tern_safetensors_is_folder(const char *folder)
{
    char path[TERN_PATH_BYTES];
    return (tern_path_join(path, folder, "model.safetensors") == TERN_OK &&
            tern_file_exists(path)) ||
           (tern_path_join(path, folder, "model.safetensors.index.json") == TERN_OK &&
            tern_file_exists(path));
}

static tern_status read_folder(struct tern_tensor_file *file, const char *folder)
{
    char single[TERN_PATH_BYTES], index[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(single, folder, "model.safetensors"));
    TERN_RETURN_IF_ERR(tern_path_join(index, folder, "model.safetensors.index.json"));
    if (tern_file_exists(single)) {
        TERN_RETURN_IF_ERR(tern_safetensors_add(file, single));
        return tern_tensor_file_finish(file);
    }
    if (!tern_file_exists(index)) {
        return tern_fail(TERN_ERR_NOT_FOUND,
                         "%s: found neither model.safetensors nor model.safetensors.index.json "
                         "in this folder, expected one of them",
                         folder);
    }
    TERN_RETURN_IF_ERR(tern_safetensors_add_shards(file, folder, index));
    TERN_RETURN_IF_ERR(tern_tensor_file_finish(file));
    return tern_safetensors_check_index(file, folder, index);
}

tern_status tern_safetensors_open(const char *path, struct tern_tensor_file **out)
{
    struct tern_tensor_file *file = NULL;
    tern_status status;
    *out = NULL;
    TERN_GOTO_IF_ERR(status, tern_tensor_file_create(path, &file), fail);
    if (tern_file_is_folder(path)) {
        TERN_GOTO_IF_ERR(status, read_folder(file, path), fail);
    } else {
        TERN_GOTO_IF_ERR(status, tern_safetensors_add(file, path), fail);
        TERN_GOTO_IF_ERR(status, tern_tensor_file_finish(file), fail);
    }
    *out = file;
    return TERN_OK;
fail:
    tern_tensor_file_close(file);
    return status;
}
