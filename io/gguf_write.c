/* gguf_write.c - the head of a GGUF file grows in memory, the data goes straight to storage. */
#include "io/gguf_write.h"

#include "io/direct.h"
#include "io/gguf_internal.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <string.h>

enum {
    MAGIC = 0x46554747,
    VERSION = 3,
    ALIGNMENT = 32
};

struct tern_gguf_writer {
    struct tern_text keys, table; /* as they will be in the file */
    uint64_t key_count, tensor_count;
    uint64_t next; /* offset of the next tensor's data */
    size_t *sizes; /* (tensor_count): bytes of each */
    uint64_t capacity;
    tern_status status; /* the first failure */
    /* What is being written. */
    char path[TERN_PATH_BYTES];
    struct tern_direct *file;
    uint64_t tensor;
    size_t tensor_bytes;
};

tern_status tern_gguf_create(struct tern_gguf_writer **out)
{
    struct tern_gguf_writer *writer = tern_alloc_zero("gguf", 1, sizeof *writer);
    if (writer == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a writer of GGUF");
    }
    tern_text_init(&writer->keys);
    tern_text_init(&writer->table);
    *out = writer;
    return TERN_OK;
}

static void put_bytes(struct tern_gguf_writer *writer,
                      struct tern_text *text,
                      const void *data,
                      size_t bytes)
{
    if (writer->status == TERN_OK) {
        writer->status = tern_text_append(text, data, bytes);
    }
}

static void put_number(struct tern_gguf_writer *writer,
                       struct tern_text *text,
                       uint64_t value,
                       size_t bytes)
{
    uint8_t data[8];
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(value >> 8 * i);
    }
    put_bytes(writer, text, data, bytes);
}

static void put_text(struct tern_gguf_writer *writer,
                     struct tern_text *out,
                     const char *text,
                     size_t bytes)
{
    put_number(writer, out, bytes, 8);
    put_bytes(writer, out, text, bytes);
}

static void put_key(struct tern_gguf_writer *writer, const char *key, enum tern_gguf_type type)
{
    put_text(writer, &writer->keys, key, strlen(key));
    put_number(writer, &writer->keys, (uint64_t)type, 4);
    writer->key_count++;
}

void tern_gguf_put_u32(struct tern_gguf_writer *writer, const char *key, uint32_t value)
{
    put_key(writer, key, TERN_GGUF_U32);
    put_number(writer, &writer->keys, value, 4);
}

void tern_gguf_put_f32(struct tern_gguf_writer *writer, const char *key, float value)
{
    put_key(writer, key, TERN_GGUF_F32);
    put_number(writer, &writer->keys, tern_f32_to_bits(value), 4);
}

void tern_gguf_put_bool(struct tern_gguf_writer *writer, const char *key, bool value)
{
    put_key(writer, key, TERN_GGUF_BOOL);
    put_number(writer, &writer->keys, value, 1);
}

void tern_gguf_put_string(struct tern_gguf_writer *writer,
                          const char *key,
                          const char *text,
                          size_t bytes)
{
    put_key(writer, key, TERN_GGUF_STRING);
    put_text(writer, &writer->keys, text, bytes);
}

void tern_gguf_put_array(struct tern_gguf_writer *writer,
                         const char *key,
                         enum tern_gguf_type type,
                         int64_t count)
{
    put_key(writer, key, TERN_GGUF_ARRAY);
    put_number(writer, &writer->keys, (uint64_t)type, 4);
    put_number(writer, &writer->keys, (uint64_t)count, 8);
}

void tern_gguf_put_element_string(struct tern_gguf_writer *writer, const char *text, size_t bytes)
{
    put_text(writer, &writer->keys, text, bytes);
}

void tern_gguf_put_element_f32(struct tern_gguf_writer *writer, float value)
{
    put_number(writer, &writer->keys, tern_f32_to_bits(value), 4);
}

void tern_gguf_put_element_i32(struct tern_gguf_writer *writer, int32_t value)
{
    put_number(writer, &writer->keys, (uint32_t)value, 4);
}

void tern_gguf_put_element_bool(struct tern_gguf_writer *writer, bool value)
{
    put_number(writer, &writer->keys, value, 1);
}

void tern_gguf_put_copy(struct tern_gguf_writer *writer,
                        const struct tern_gguf *gguf,
                        int64_t index)
{
    size_t bytes;
    const void *data = tern_gguf_entry_bytes(gguf, index, &bytes);
    put_bytes(writer, &writer->keys, data, bytes);
    writer->key_count++;
}

static bool grow_sizes(struct tern_gguf_writer *writer)
{
    if (writer->tensor_count == writer->capacity) {
        uint64_t capacity = writer->capacity > 0 ? 2 * writer->capacity : 64;
        void *sizes = tern_realloc("gguf", writer->sizes, capacity * sizeof *writer->sizes);
        if (sizes == NULL) {
            return false;
        }
        writer->sizes = sizes;
        writer->capacity = capacity;
    }
    return true;
}

void tern_gguf_put_tensor(struct tern_gguf_writer *writer, const struct tern_stored_tensor *tensor)
{
    struct tern_stored_tensor sized = *tensor;
    uint32_t type;
    if (writer->status == TERN_OK && (!tern_gguf_dtype_id(tensor->dtype, &type) ||
                                      !tern_stored_tensor_size(&sized) || tensor->rank < 1)) {
        writer->status = tern_fail(TERN_ERR_UNSUPPORTED,
                                   "tensor '%s' of type %s cannot be stored in GGUF in its shape",
                                   tensor->name, tern_dtype_name(tensor->dtype));
    }
    if (writer->status == TERN_OK && !grow_sizes(writer)) {
        writer->status = tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of tensors");
    }
    if (writer->status != TERN_OK) {
        return;
    }
    put_text(writer, &writer->table, tensor->name, strlen(tensor->name));
    put_number(writer, &writer->table, (uint64_t)tensor->rank, 4);
    for (int d = tensor->rank; d-- > 0;) { /* fastest first */
        put_number(writer, &writer->table, (uint64_t)tensor->shape[d], 8);
    }
    put_number(writer, &writer->table, type, 4);
    put_number(writer, &writer->table, writer->next, 8);
    writer->sizes[writer->tensor_count++] = sized.bytes;
    writer->next = (writer->next + sized.bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

/* Zeros up to the alignment. */
static void pad(struct tern_direct *file)
{
    int64_t beyond = tern_direct_position(file) % ALIGNMENT;
    if (beyond != 0) {
        tern_direct_append(file, NULL, ALIGNMENT - beyond);
    }
}

tern_status tern_gguf_begin(struct tern_gguf_writer *writer, const char *path)
{
    struct tern_text head;
    tern_text_init(&head);
    put_number(writer, &head, MAGIC, 4);
    put_number(writer, &head, VERSION, 4);
    put_number(writer, &head, writer->tensor_count, 8);
    put_number(writer, &head, writer->key_count, 8);
    snprintf(writer->path, sizeof writer->path, "%s", path);
    if (writer->status == TERN_OK) {
        writer->status = tern_direct_create(path, false, &writer->file);
    }
    if (writer->status == TERN_OK) {
        tern_direct_append(writer->file, head.data, (int64_t)head.length);
        tern_direct_append(writer->file, writer->keys.data, (int64_t)writer->keys.length);
        tern_direct_append(writer->file, writer->table.data, (int64_t)writer->table.length);
        pad(writer->file);
    }
    tern_text_fini(&head);
    return writer->status;
}

tern_status tern_gguf_append(struct tern_gguf_writer *writer, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        TERN_CHECK(writer->tensor < writer->tensor_count);
        size_t left = writer->sizes[writer->tensor] - writer->tensor_bytes;
        size_t step = bytes < left ? bytes : left;
        tern_direct_append(writer->file, from, (int64_t)step);
        from += step;
        bytes -= step;
        writer->tensor_bytes += step;
        if (step == left) {
            pad(writer->file);
            writer->tensor++;
            writer->tensor_bytes = 0;
        }
    }
    int error = tern_direct_error(writer->file);
    return error == 0 ? TERN_OK
                      : tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s'", writer->path);
}

tern_status tern_gguf_finish(struct tern_gguf_writer *writer)
{
    struct tern_direct *file = writer->file;
    TERN_CHECK(file != NULL && writer->tensor == writer->tensor_count);
    writer->file = NULL;
    tern_status status = tern_direct_finish(file, tern_direct_position(file), NULL, NULL);
    tern_gguf_abandon(writer);
    return status;
}

void tern_gguf_abandon(struct tern_gguf_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    tern_direct_abandon(writer->file);
    tern_text_fini(&writer->keys);
    tern_text_fini(&writer->table);
    tern_free(writer->sizes);
    tern_free(writer);
}
