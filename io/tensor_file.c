/* tensor_file.c - a table of tensors over mapped files, and its names in order. */
#include "io/tensor_file_build.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAMES_BYTES_MAX = 32 << 20 /* of all tensors of a model */
};

struct mapped {
    struct tern_map map;
    char *path;
};

struct tern_tensor_file {
    char *path;
    struct mapped *maps;
    int64_t map_count;
    struct tern_stored_tensor *tensors;
    uint32_t *name_starts; /* in names, for each tensor */
    int64_t count, capacity;
    char *names;
    size_t names_bytes, names_capacity;
    const struct tern_stored_tensor **by_name; /* (count) sorted; NULL before finish */
};

static tern_status no_memory(const char *path)
{
    return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate its table of tensors", path);
}

tern_status tern_tensor_file_create(const char *path, struct tern_tensor_file **out)
{
    struct tern_tensor_file *file = tern_alloc_zero("tensor file", 1, sizeof *file);
    *out = file;
    if (file == NULL) {
        return no_memory(path);
    }
    file->path = tern_strdup("tensor file", path);
    return file->path != NULL ? TERN_OK : no_memory(path);
}

tern_status tern_tensor_file_map(struct tern_tensor_file *file,
                                 const char *path,
                                 struct tern_map *map_out,
                                 const char **path_out)
{
    size_t count = (size_t)file->map_count;
    struct mapped *maps = tern_realloc("tensor file", file->maps, (count + 1) * sizeof *maps);
    if (maps == NULL) {
        return no_memory(path);
    }
    file->maps = maps;
    struct mapped mapped = {.path = tern_strdup("tensor file", path)};
    if (mapped.path == NULL) {
        return no_memory(path);
    }
    tern_status status = tern_map_open(path, &mapped.map);
    if (status != TERN_OK) {
        tern_free(mapped.path);
        return status;
    }
    file->maps[file->map_count++] = mapped;
    *map_out = mapped.map;
    *path_out = mapped.path;
    return TERN_OK;
}

bool tern_stored_tensor_size(struct tern_stored_tensor *tensor)
{
    int64_t elements = 1;
    size_t bytes;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(elements, tensor->shape[i], &elements)) {
            return false;
        }
    }
    for (int i = tensor->rank; i < TERN_STORED_RANK_MAX; i++) {
        tensor->shape[i] = 1;
    }
    int64_t row = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
    if (row % tern_dtype_block_elements(tensor->dtype) != 0 ||
        !tern_dtype_row_bytes(tensor->dtype, elements, &bytes) || bytes > INT64_MAX) {
        return false;
    }
    tensor->elements = elements;
    tensor->bytes = bytes;
    return true;
}

const char *tern_stored_shape_text(const struct tern_stored_tensor *tensor,
                                   char out[TERN_STORED_SHAPE_BYTES])
{
    size_t used = (size_t)snprintf(out, TERN_STORED_SHAPE_BYTES, "[");
    for (int i = 0; i < tensor->rank; i++) {
        used += (size_t)snprintf(out + used, TERN_STORED_SHAPE_BYTES - used, "%s%lld",
                                 i > 0 ? ", " : "", (long long)tensor->shape[i]);
    }
    snprintf(out + used, TERN_STORED_SHAPE_BYTES - used, "]");
    return out;
}

static tern_status check_name(const struct tern_stored_tensor *tensor,
                              const char *name,
                              size_t name_bytes,
                              uint64_t name_offset)
{
    size_t bad = 0;
    while (bad < name_bytes && (unsigned char)name[bad] > ' ' && name[bad] != 0x7f) {
        bad++;
    }
    if (name_bytes > 0 && name_bytes < TERN_STORED_NAME_BYTES && bad == name_bytes) {
        return TERN_OK;
    }
    if (bad < name_bytes && name_bytes < TERN_STORED_NAME_BYTES) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %llu: the tensor name '%.*s...' has the character 0x%02x, "
                         "expected no blanks and no control characters",
                         tensor->file, (unsigned long long)(name_offset + bad), (int)bad, name,
                         (unsigned char)name[bad]);
    }
    return tern_fail(TERN_ERR_INPUT, "%s: byte %llu: a tensor name of %zu bytes, expected 1 to %d",
                     tensor->file, (unsigned long long)name_offset, name_bytes,
                     TERN_STORED_NAME_BYTES - 1);
}

static tern_status make_room(struct tern_tensor_file *file, size_t name_bytes)
{
    if (file->count == TERN_STORED_TENSORS_MAX ||
        file->names_bytes + name_bytes + 1 > NAMES_BYTES_MAX) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "%s: more than %d tensors, or more than %d bytes of tensor names",
                         file->path, TERN_STORED_TENSORS_MAX, NAMES_BYTES_MAX);
    }
    if (file->count == file->capacity) {
        int64_t capacity = file->capacity > 0 ? 2 * file->capacity : 256;
        size_t n = (size_t)capacity;
        void *tensors = tern_realloc("tensor file", file->tensors, n * sizeof *file->tensors);
        file->tensors = tensors != NULL ? tensors : file->tensors;
        void *starts = tern_realloc("tensor file", file->name_starts, n * sizeof(uint32_t));
        file->name_starts = starts != NULL ? starts : file->name_starts;
        if (tensors == NULL || starts == NULL) {
            return no_memory(file->path);
        }
        file->capacity = capacity;
    }
    if (file->names_bytes + name_bytes + 1 > file->names_capacity) {
        size_t capacity = 2 * (file->names_bytes + name_bytes + 1);
        char *names = tern_realloc("tensor file", file->names, capacity);
        if (names == NULL) {
            return no_memory(file->path);
        }
        file->names = names;
        file->names_capacity = capacity;
    }
    return TERN_OK;
}

tern_status tern_tensor_file_add(struct tern_tensor_file *file,
                                 const struct tern_stored_tensor *tensor,
                                 const char *name,
                                 size_t name_bytes,
                                 uint64_t name_offset)
{
    TERN_RETURN_IF_ERR(check_name(tensor, name, name_bytes, name_offset));
    TERN_RETURN_IF_ERR(make_room(file, name_bytes));
    file->name_starts[file->count] = (uint32_t)file->names_bytes;
    memcpy(file->names + file->names_bytes, name, name_bytes);
    file->names[file->names_bytes + name_bytes] = '\0';
    file->names_bytes += name_bytes + 1;
    file->tensors[file->count++] = *tensor;
    return TERN_OK;
}

struct tern_stored_tensor *tern_tensor_file_edit(struct tern_tensor_file *file, int64_t index)
{
    return &file->tensors[index];
}

static int compare_names(const void *a, const void *b)
{
    const struct tern_stored_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

tern_status tern_tensor_file_finish(struct tern_tensor_file *file)
{
    size_t n = (size_t)file->count;
    file->by_name = tern_alloc("tensor file", n * sizeof(const struct tern_stored_tensor *));
    if (file->by_name == NULL) {
        return no_memory(file->path);
    }
    for (size_t i = 0; i < n; i++) {
        file->tensors[i].name = file->names + file->name_starts[i];
        file->by_name[i] = &file->tensors[i];
    }
    qsort(file->by_name, n, sizeof(const struct tern_stored_tensor *), compare_names);
    for (size_t i = 1; i < n; i++) {
        const struct tern_stored_tensor *a = file->by_name[i - 1], *b = file->by_name[i];
        if (strcmp(a->name, b->name) == 0) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: tensor '%s' is there twice (data at byte %llu of %s and at byte "
                             "%llu of %s), expected once",
                             file->path, a->name, (unsigned long long)a->offset, a->file,
                             (unsigned long long)b->offset, b->file);
        }
    }
    return TERN_OK;
}

int64_t tern_tensor_file_count(const struct tern_tensor_file *file)
{
    return file->count;
}

const struct tern_stored_tensor *tern_tensor_file_at(const struct tern_tensor_file *file,
                                                     int64_t index)
{
    return &file->tensors[index];
}

static int compare_key(const void *key, const void *entry)
{
    const struct tern_stored_tensor *const *tensor = entry;
    return strcmp(key, (*tensor)->name);
}

const struct tern_stored_tensor *tern_tensor_file_find(const struct tern_tensor_file *file,
                                                       const char *name)
{
    const struct tern_stored_tensor **found =
        bsearch(name, file->by_name, (size_t)file->count, sizeof *found, compare_key);
    return found != NULL ? *found : NULL;
}

uint64_t tern_tensor_file_bytes(const struct tern_tensor_file *file)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < file->map_count; i++) {
        bytes += file->maps[i].map.bytes;
    }
    return bytes;
}

const char *tern_tensor_file_path(const struct tern_tensor_file *file)
{
    return file->path;
}

void tern_tensor_file_close(struct tern_tensor_file *file)
{
    if (file == NULL) {
        return;
    }
    for (int64_t i = 0; i < file->map_count; i++) {
        tern_map_close(&file->maps[i].map);
        tern_free(file->maps[i].path);
    }
    tern_free(file->maps);
    tern_free(file->tensors);
    tern_free(file->name_starts);
    tern_free(file->names);
    tern_free((void *)file->by_name);
    tern_free(file->path);
    tern_free(file);
}
