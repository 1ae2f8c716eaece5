/* gguf.c - one pass over a GGUF file's head: metadata, then tensors, every size checked against
 * what is left. */
#include "io/gguf_internal.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MAGIC = 0x46554747,
    ENTRIES_MAX = 64 * 1024,
    ALIGNMENT = 32,
    SPLITS_MAX = 1024
};

uint64_t tern_gguf_load(const uint8_t *data, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) {
        value = value << 8 | data[i];
    }
    return value;
}

tern_status tern_gguf_take(struct tern_gguf_reading *in,
                           uint64_t bytes,
                           const char *what,
                           const uint8_t **data_out)
{
    *data_out = NULL;
    if (bytes > in->bytes - in->at) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: %s takes %" PRIu64
                         " bytes, expected at most the %zu that are left of the file: it is cut "
                         "off or broken",
                         in->path, in->at, what, bytes, in->bytes - in->at);
    }
    *data_out = in->data + in->at;
    in->at += (size_t)bytes;
    return TERN_OK;
}

tern_status tern_gguf_take_number(struct tern_gguf_reading *in,
                                  size_t bytes,
                                  const char *what,
                                  uint64_t *out)
{
    const uint8_t *data;
    *out = 0;
    TERN_RETURN_IF_ERR(tern_gguf_take(in, bytes, what, &data));
    *out = tern_gguf_load(data, bytes);
    return TERN_OK;
}

tern_status tern_gguf_take_string(struct tern_gguf_reading *in,
                                  const char *what,
                                  const char **text_out,
                                  uint64_t *bytes_out)
{
    const uint8_t *data;
    *text_out = NULL;
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 8, what, bytes_out));
    TERN_RETURN_IF_ERR(tern_gguf_take(in, *bytes_out, what, &data));
    *text_out = (const char *)data;
    return TERN_OK;
}

static tern_status take_head(struct tern_gguf_reading *in,
                             uint64_t *tensors_out,
                             uint64_t *entries_out)
{
    uint64_t magic, version;
    *tensors_out = *entries_out = 0;
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 4, "the mark GGUF", &magic));
    if (magic != MAGIC) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 0: found 0x%08" PRIx64 ", expected the mark 0x%08x ('GGUF')",
                         in->path, magic, MAGIC);
    }
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 4, "the version", &version));
    if (version != 2 && version != 3) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "%s: byte 4: the version is %" PRIu64 "%s, expected 2 or 3", in->path,
                         version, version % 65536 == 0 ? " (a big-endian file)" : "");
    }
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 8, "the count of tensors", tensors_out));
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 8, "the count of keys", entries_out));
    if (*tensors_out > TERN_STORED_TENSORS_MAX || *entries_out > ENTRIES_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 8: found %" PRIu64 " tensors and %" PRIu64
                         " keys, expected at most %d and %d",
                         in->path, *tensors_out, *entries_out, TERN_STORED_TENSORS_MAX,
                         ENTRIES_MAX);
    }
    return TERN_OK;
}

static tern_status read_file(struct tern_gguf *gguf, const char *path, bool is_first)
{
    struct tern_gguf_reading in = {.gguf = gguf, .is_first = is_first, .alignment = ALIGNMENT};
    struct tern_map map;
    uint64_t tensors, entries;
    TERN_RETURN_IF_ERR(tern_tensor_file_map(gguf->tensors, path, &map, &in.path));
    in.data = map.data;
    in.bytes = map.bytes;
    TERN_RETURN_IF_ERR(take_head(&in, &tensors, &entries));
    TERN_RETURN_IF_ERR(tern_gguf_read_entries(&in, entries));
    return tern_gguf_read_tensors(&in, tensors);
}

/* The other files of a split model. */
static tern_status read_splits(struct tern_gguf *gguf, const char *path)
{
    uint64_t count = 0, number = 0;
    char ending[48], other[TERN_PATH_BYTES];
    if (!tern_gguf_has(gguf, "split.count")) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_gguf_u64(gguf, "split.count", &count));
    if (count > 1) {
        TERN_RETURN_IF_ERR(tern_gguf_u64(gguf, "split.no", &number));
    }
    if (count <= 1) {
        return TERN_OK;
    }
    snprintf(ending, sizeof ending, "-00001-of-%05" PRIu64 ".gguf", count);
    size_t length = strlen(path), end = strlen(ending);
    if (number != 0 || count > SPLITS_MAX || length < end ||
        strcmp(path + length - end, ending) != 0) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: this is part %" PRIu64 " of %" PRIu64
                         ", expected the first of at most %d, named NAME-00001-of-%05" PRIu64
                         ".gguf",
                         path, number + 1, count, SPLITS_MAX, count);
    }
    for (uint64_t i = 2; i <= count; i++) {
        int used = snprintf(other, sizeof other, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf",
                            (int)(length - end), path, i, count);
        if (used >= (int)sizeof other) {
            return tern_fail(TERN_ERR_ARGUMENT, "%s: the path is too long", path);
        }
        TERN_RETURN_IF_ERR(read_file(gguf, other, false));
    }
    return TERN_OK;
}

tern_status tern_gguf_open(const char *path, struct tern_gguf **out)
{
    tern_status status;
    *out = NULL;
    struct tern_gguf *gguf = tern_alloc_zero("gguf", 1, sizeof *gguf);
    if (gguf == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate its tables", path);
    }
    TERN_GOTO_IF_ERR(status, tern_tensor_file_create(path, &gguf->tensors), fail);
    TERN_GOTO_IF_ERR(status, read_file(gguf, path, true), fail);
    TERN_GOTO_IF_ERR(status, read_splits(gguf, path), fail);
    TERN_GOTO_IF_ERR(status, tern_tensor_file_finish(gguf->tensors), fail);
    *out = gguf;
    return TERN_OK;
fail:
    tern_gguf_close(gguf);
    return status;
}

void tern_gguf_close(struct tern_gguf *gguf)
{
    if (gguf == NULL) {
        return;
    }
    for (int64_t i = 0; i < gguf->count; i++) {
        tern_gguf_free_entry(&gguf->entries[i]);
    }
    tern_free(gguf->entries);
    tern_free((void *)gguf->by_key);
    tern_tensor_file_close(gguf->tensors);
    tern_free(gguf);
}

bool tern_gguf_is_file(const char *path)
{
    struct tern_map map;
    if (tern_file_is_folder(path) || tern_map_open(path, &map) != TERN_OK) {
        return false;
    }
    bool is_gguf = map.bytes >= 4 && tern_gguf_load(map.data, 4) == MAGIC;
    tern_map_close(&map);
    return is_gguf;
}
