/* safetensors_write.c - a header that says where everything will lie, then the bytes. */
#include "io/safetensors_write.h"

#include "io/direct.h"
#include "io/json.h"
#include "io/safetensors_internal.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_ALIGN = 8, /* so that data begins aligned */
    FILE_NAME_BYTES = 64
};

struct tern_safetensors_writer {
    char folder[TERN_PATH_BYTES];
    struct tern_stored_tensor *tensors; /* (count); offset: within the data of its shard */
    int *shards;                        /* (count): which one */
    int64_t count;
    int shard_count;
    uint64_t total_bytes;
    /* What is being written. */
    int64_t tensor;      /* the next to begin, or begun */
    size_t tensor_bytes; /* of it that are written */
    int shard;           /* -1: none yet */
    struct tern_direct *file;
};

static void file_name(const struct tern_safetensors_writer *writer,
                      int shard,
                      char out[FILE_NAME_BYTES])
{
    if (writer->shard_count == 1) {
        snprintf(out, FILE_NAME_BYTES, "model.safetensors");
    } else {
        snprintf(out, FILE_NAME_BYTES, "model-%05d-of-%05d.safetensors", shard + 1,
                 writer->shard_count);
    }
}

/* Which tensor goes where: in order, a new shard when the next one no longer fits. */
static tern_status plan(struct tern_safetensors_writer *writer, int64_t shard_bytes)
{
    uint64_t used = 0;
    writer->shard_count = 1;
    for (int64_t i = 0; i < writer->count; i++) {
        struct tern_stored_tensor *tensor = &writer->tensors[i];
        if (tern_safetensors_dtype(tensor->dtype) == NULL || !tern_stored_tensor_size(tensor)) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "%s: tensor '%s' of type %s cannot be stored in safetensors",
                             writer->folder, tensor->name, tern_dtype_name(tensor->dtype));
        }
        if (used > 0 && used + tensor->bytes > (uint64_t)shard_bytes) {
            writer->shard_count++;
            used = 0;
        }
        tensor->offset = used;
        writer->shards[i] = writer->shard_count - 1;
        used += tensor->bytes;
        writer->total_bytes += tensor->bytes;
    }
    return TERN_OK;
}

static tern_status print_entry(const struct tern_stored_tensor *tensor, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_append(out, ",", 1));
    TERN_RETURN_IF_ERR(tern_json_quote(out, tensor->name, strlen(tensor->name)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ":{\"dtype\":\"%s\",\"shape\":[",
                                        tern_safetensors_dtype(tensor->dtype)));
    for (int d = 0; d < tensor->rank; d++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s%" PRId64, d > 0 ? "," : "", tensor->shape[d]));
    }
    return tern_text_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->offset,
                            tensor->offset + tensor->bytes);
}

static tern_status print_header(const struct tern_safetensors_writer *writer,
                                int shard,
                                struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (int64_t i = 0; i < writer->count; i++) {
        if (writer->shards[i] == shard) {
            TERN_RETURN_IF_ERR(print_entry(&writer->tensors[i], out));
        }
    }
    TERN_RETURN_IF_ERR(tern_text_append(out, "}", 1));
    while ((LENGTH_BYTES + out->length) % HEADER_ALIGN != 0) {
        TERN_RETURN_IF_ERR(tern_text_append(out, " ", 1));
    }
    return TERN_OK;
}

static tern_status begin_shard(struct tern_safetensors_writer *writer, int shard)
{
    char name[FILE_NAME_BYTES], path[TERN_PATH_BYTES];
    uint8_t length[LENGTH_BYTES];
    struct tern_text header;
    tern_status status;
    tern_text_init(&header);
    file_name(writer, shard, name);
    TERN_GOTO_IF_ERR(status, tern_path_join(path, writer->folder, name), out);
    TERN_GOTO_IF_ERR(status, print_header(writer, shard, &header), out);
    TERN_GOTO_IF_ERR(status, tern_direct_create(path, false, &writer->file), out);
    for (int i = 0; i < LENGTH_BYTES; i++) {
        length[i] = (uint8_t)((uint64_t)header.length >> 8 * i);
    }
    tern_direct_append(writer->file, length, LENGTH_BYTES);
    tern_direct_append(writer->file, header.data, (int64_t)header.length);
    writer->shard = shard;
out:
    tern_text_fini(&header);
    return status;
}

static tern_status end_shard(struct tern_safetensors_writer *writer)
{
    struct tern_direct *file = writer->file;
    if (file == NULL) {
        return TERN_OK;
    }
    writer->file = NULL;
    return tern_direct_finish(file, tern_direct_position(file), NULL, NULL);
}

tern_status tern_safetensors_create(const char *folder,
                                    const struct tern_stored_tensor *tensors,
                                    int64_t count,
                                    int64_t shard_bytes,
                                    struct tern_safetensors_writer **out)
{
    struct tern_safetensors_writer *writer = tern_alloc_zero("safetensors", 1, sizeof *writer);
    tern_status status;
    if (writer == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate a writer", folder);
    }
    writer->count = count;
    writer->shard = -1;
    writer->tensors = tern_alloc("safetensors", (size_t)count * sizeof *tensors);
    writer->shards = tern_alloc("safetensors", (size_t)count * sizeof *writer->shards);
    if (writer->tensors == NULL || writer->shards == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate a table of %lld tensors", folder,
                           (long long)count);
        goto fail;
    }
    memcpy(writer->tensors, tensors, (size_t)count * sizeof *tensors);
    TERN_GOTO_IF_ERR(status, tern_path_join(writer->folder, folder, "."), fail);
    TERN_GOTO_IF_ERR(status, plan(writer, shard_bytes), fail);
    TERN_GOTO_IF_ERR(status, begin_shard(writer, 0), fail);
    *out = writer;
    return TERN_OK;
fail:
    tern_safetensors_abandon(writer);
    return status;
}

tern_status tern_safetensors_append(struct tern_safetensors_writer *writer,
                                    const void *data,
                                    size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        TERN_CHECK(writer->tensor < writer->count);
        size_t left = writer->tensors[writer->tensor].bytes - writer->tensor_bytes;
        size_t step = bytes < left ? bytes : left;
        if (writer->shards[writer->tensor] != writer->shard && step > 0) {
            TERN_RETURN_IF_ERR(end_shard(writer));
            TERN_RETURN_IF_ERR(begin_shard(writer, writer->shards[writer->tensor]));
        }
        tern_direct_append(writer->file, from, (int64_t)step);
        from += step;
        bytes -= step;
        writer->tensor_bytes += step;
        if (step == left) {
            writer->tensor++;
            writer->tensor_bytes = 0;
        }
    }
    int error = tern_direct_error(writer->file);
    return error == 0 ? TERN_OK
                      : tern_fail_errno(TERN_ERR_IO, error, "cannot write the weights into '%s'",
                                        writer->folder);
}

static tern_status write_index(const struct tern_safetensors_writer *writer)
{
    struct tern_text text;
    char name[FILE_NAME_BYTES], path[TERN_PATH_BYTES];
    tern_status status;
    tern_text_init(&text);
    TERN_GOTO_IF_ERR(status,
                     tern_text_printf(&text,
                                      "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64
                                      "\n  },\n  \"weight_map\": {",
                                      writer->total_bytes),
                     out);
    for (int64_t i = 0; i < writer->count; i++) {
        const char *tensor = writer->tensors[i].name;
        file_name(writer, writer->shards[i], name);
        TERN_GOTO_IF_ERR(status, tern_text_printf(&text, "%s\n    ", i > 0 ? "," : ""), out);
        TERN_GOTO_IF_ERR(status, tern_json_quote(&text, tensor, strlen(tensor)), out);
        TERN_GOTO_IF_ERR(status, tern_text_printf(&text, ": \"%s\"", name), out);
    }
    TERN_GOTO_IF_ERR(status, tern_text_printf(&text, "\n  }\n}\n"), out);
    TERN_GOTO_IF_ERR(status, tern_path_join(path, writer->folder, "model.safetensors.index.json"),
                     out);
    status = tern_file_replace(path, text.data, text.length);
out:
    tern_text_fini(&text);
    return status;
}

tern_status tern_safetensors_finish(struct tern_safetensors_writer *writer)
{
    while (writer->tensor < writer->count && writer->tensors[writer->tensor].bytes == 0) {
        writer->tensor++;
    }
    TERN_CHECK(writer->tensor == writer->count);
    tern_status status = end_shard(writer);
    if (status == TERN_OK && writer->shard_count > 1) {
        status = write_index(writer);
    }
    tern_safetensors_abandon(writer);
    return status;
}

void tern_safetensors_abandon(struct tern_safetensors_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    tern_direct_abandon(writer->file);
    tern_free(writer->tensors);
    tern_free(writer->shards);
    tern_free(writer);
}
