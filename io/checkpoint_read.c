/* checkpoint_read.c - back from disk: rows of any tensor from whichever shards hold them,
 * verification. */
#include "io/checkpoint_parts.h"
#include "io/json.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tern_ckpt_reader {
    char dir[TERN_PATH_BYTES];
    struct tern_ckpt_manifest manifest;
    struct tern_h5_reader **shards; /* opened, and their hash checked, when first needed */
    char *state;
};

/* ---- opening ---- */

/* Checks the hash, then lets HDF5 open it. */
static tern_status open_file(const char *dir,
                             const struct tern_ckpt_file *file,
                             struct tern_h5_reader **out)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_ckpt_check_file(dir, file, true));
    TERN_RETURN_IF_ERR(tern_path_join(path, dir, file->name));
    return tern_h5_open(path, out);
}

static tern_status read_state(const char *dir, const struct tern_ckpt_file *view, char **state_out)
{
    struct tern_h5_reader *file;
    size_t bytes;
    TERN_RETURN_IF_ERR(open_file(dir, view, &file));
    tern_status status = tern_h5_read_bytes(file, TERN_CKPT_STATE, state_out, &bytes);
    tern_h5_close(file);
    return status;
}

tern_status tern_ckpt_open(const char *ckpt_dir, struct tern_ckpt_reader **out)
{
    int error = tern_file_fault(TERN_FAULT_CKPT_RESTORE);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot read checkpoint '%s'", ckpt_dir);
    }
    struct tern_ckpt_reader *reader = tern_alloc_zero("checkpoint reader", 1, sizeof *reader);
    if (reader == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to read checkpoint '%s'", ckpt_dir);
    }
    tern_status status = tern_path_join(reader->dir, "", ckpt_dir);
    if (status == TERN_OK) {
        status = tern_ckpt_manifest_read(ckpt_dir, &reader->manifest);
    }
    if (status == TERN_OK) {
        reader->shards = tern_alloc_zero("checkpoint reader", (size_t)reader->manifest.ranks,
                                         sizeof *reader->shards);
        if (reader->shards == NULL) {
            status = tern_fail(TERN_ERR_MEMORY, "no memory to read checkpoint '%s'", ckpt_dir);
        }
    }
    if (status == TERN_OK) {
        status =
            read_state(ckpt_dir, &reader->manifest.files[reader->manifest.ranks], &reader->state);
    }
    if (status != TERN_OK) {
        tern_ckpt_close(reader);
        return status;
    }
    *out = reader;
    return TERN_OK;
}

void tern_ckpt_close(struct tern_ckpt_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    for (int i = 0; reader->shards != NULL && i < reader->manifest.ranks; i++) {
        tern_h5_close(reader->shards[i]);
    }
    tern_free(reader->shards);
    tern_free(reader->state);
    tern_ckpt_manifest_fini(&reader->manifest);
    tern_free(reader);
}

const struct tern_ckpt_manifest *tern_ckpt_reader_manifest(const struct tern_ckpt_reader *reader)
{
    return &reader->manifest;
}

int64_t tern_ckpt_step(const struct tern_ckpt_reader *reader)
{
    return reader->manifest.step;
}

const char *tern_ckpt_state_json(const struct tern_ckpt_reader *reader)
{
    return reader->state;
}

const char *tern_ckpt_tensor(const struct tern_ckpt_reader *reader,
                             const char *group,
                             int64_t index,
                             int *rank_out,
                             int64_t shape_out[TERN_CKPT_RANK_MAX],
                             enum tern_dtype *dtype_out)
{
    const struct tern_ckpt_manifest *manifest = &reader->manifest;
    for (int64_t i = 0; i < manifest->tensor_count && index >= 0; i++) {
        const struct tern_ckpt_tensor *tensor = &manifest->tensors[i];
        if (strcmp(tensor->group, group) != 0 || index-- > 0) {
            continue;
        }
        *rank_out = tensor->rank;
        memcpy(shape_out, tensor->shape, sizeof tensor->shape);
        *dtype_out = tensor->dtype;
        return tensor->name;
    }
    return NULL;
}

/* ---- rows ---- */

static bool is_shape(const struct tern_h5_shape *found, const struct tern_h5_shape *expected)
{
    return found->dtype == expected->dtype && found->rank == expected->rank && found->has_place &&
           memcmp(found->dims, expected->dims, sizeof found->dims) == 0 &&
           memcmp(found->global_dims, expected->global_dims, sizeof found->global_dims) == 0 &&
           memcmp(found->offset, expected->offset, sizeof found->offset) == 0;
}

/* The shard's dataset is what the manifest says. */
static tern_status check_dataset(struct tern_h5_reader *shard,
                                 const char *file,
                                 const char *dataset,
                                 const struct tern_ckpt_tensor *tensor,
                                 const struct tern_ckpt_place *place)
{
    struct tern_h5_shape found,
        expected = tern_ckpt_shape(tensor, place->row_offset, place->row_count);
    TERN_RETURN_IF_ERR(tern_h5_stat(shard, dataset, &found));
    if (!is_shape(&found, &expected)) {
        return tern_fail(
            TERN_ERR_CORRUPT,
            "'%s': dataset '%s' has another type, shape or place than the manifest says", file,
            dataset);
    }
    return TERN_OK;
}

static tern_status read_place(struct tern_ckpt_reader *reader,
                              const struct tern_ckpt_tensor *tensor,
                              const struct tern_ckpt_place *place,
                              int64_t row_offset,
                              int64_t row_count,
                              void *dst)
{
    const struct tern_ckpt_file *file = &reader->manifest.files[place->rank];
    struct tern_h5_reader **shard = &reader->shards[place->rank];
    char dataset[TERN_CKPT_DATASET_BYTES];
    if (*shard == NULL) {
        TERN_RETURN_IF_ERR(open_file(reader->dir, file, shard));
    }
    TERN_RETURN_IF_ERR(tern_ckpt_dataset(dataset, tensor->group, tensor->name));
    TERN_RETURN_IF_ERR(check_dataset(*shard, file->name, dataset, tensor, place));
    return tern_h5_read_rows(*shard, dataset, row_offset - place->row_offset, row_count, dst);
}

static int64_t row_bytes_of(const struct tern_ckpt_tensor *tensor)
{
    int64_t bytes = (int64_t)tern_dtype_bytes(tensor->dtype);
    for (int i = 1; i < tensor->rank; i++) {
        bytes *= tensor->shape[i];
    }
    return bytes;
}

static tern_status read_rows(struct tern_ckpt_reader *reader,
                             const struct tern_ckpt_tensor *tensor,
                             int64_t row_offset,
                             int64_t row_count,
                             void *dst)
{
    int64_t end = row_offset + row_count;
    uint8_t *to = dst;
    for (int64_t i = 0; i < tensor->place_count; i++) {
        const struct tern_ckpt_place *place = &reader->manifest.places[tensor->first_place + i];
        int64_t first = place->row_offset > row_offset ? place->row_offset : row_offset;
        int64_t stop =
            place->row_offset + place->row_count < end ? place->row_offset + place->row_count : end;
        if (first >= stop) {
            continue;
        }
        tern_status status = read_place(reader, tensor, place, first, stop - first, to);
        if (status != TERN_OK) {
            return tern_fail_prefix(status, "tensor '%s', rows %lld to %lld", tensor->name,
                                    (long long)first, (long long)stop - 1);
        }
        to += (stop - first) * row_bytes_of(tensor);
    }
    return TERN_OK;
}

tern_status tern_ckpt_read(struct tern_ckpt_reader *reader,
                           const char *group,
                           const char *name,
                           int64_t row_offset,
                           int64_t row_count,
                           void *dst)
{
    const struct tern_ckpt_tensor *tensor = tern_ckpt_manifest_find(&reader->manifest, group, name);
    if (tensor == NULL) {
        return tern_fail(TERN_ERR_NOT_FOUND, "checkpoint '%s' has no tensor '%s' in group '%s'",
                         reader->dir, name, group);
    }
    if (row_offset < 0 || row_count < 0 || row_offset > tensor->shape[0] - row_count) {
        return tern_fail(TERN_ERR_ARGUMENT, "tensor '%s' has %lld rows, asked for %lld from %lld",
                         name, (long long)tensor->shape[0], (long long)row_count,
                         (long long)row_offset);
    }
    return read_rows(reader, tensor, row_offset, row_count, dst);
}

/* ---- verification ---- */

/* Every dataset of every shard, and every virtual one of the view, against the manifest. */
static tern_status check_shards(const char *dir, const struct tern_ckpt_manifest *manifest)
{
    tern_status status = TERN_OK;
    for (int rank = 0; rank < manifest->ranks && status == TERN_OK; rank++) {
        struct tern_h5_reader *shard;
        const char *file = manifest->files[rank].name;
        status = open_file(dir, &manifest->files[rank], &shard);
        if (status != TERN_OK) {
            break;
        }
        for (int64_t i = 0; i < manifest->tensor_count && status == TERN_OK; i++) {
            const struct tern_ckpt_tensor *tensor = &manifest->tensors[i];
            char dataset[TERN_CKPT_DATASET_BYTES];
            status = tern_ckpt_dataset(dataset, tensor->group, tensor->name);
            for (int64_t k = 0; k < tensor->place_count && status == TERN_OK; k++) {
                const struct tern_ckpt_place *place = &manifest->places[tensor->first_place + k];
                if (place->rank == rank) {
                    status = check_dataset(shard, file, dataset, tensor, place);
                }
            }
        }
        tern_h5_close(shard);
    }
    return status;
}

static tern_status check_view_tensor(struct tern_h5_reader *view,
                                     const struct tern_ckpt_manifest *manifest,
                                     const struct tern_ckpt_tensor *tensor)
{
    char dataset[TERN_CKPT_DATASET_BYTES];
    struct tern_h5_shape shape = tern_ckpt_shape(tensor, 0, tensor->shape[0]);
    TERN_RETURN_IF_ERR(tern_ckpt_dataset(dataset, tensor->group, tensor->name));
    struct tern_h5_part *parts =
        tern_alloc("checkpoint view", (size_t)tensor->place_count * sizeof *parts);
    if (parts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to check %lld parts",
                         (long long)tensor->place_count);
    }
    for (int64_t i = 0; i < tensor->place_count; i++) {
        const struct tern_ckpt_place *place = &manifest->places[tensor->first_place + i];
        parts[i] = (struct tern_h5_part){manifest->files[place->rank].name, place->row_offset,
                                         place->row_count};
    }
    tern_status status = tern_h5_check_virtual(view, dataset, &shape, parts, tensor->place_count);
    tern_free(parts);
    return status;
}

static tern_status check_view(const char *dir, const struct tern_ckpt_manifest *manifest)
{
    struct tern_h5_reader *view;
    char *state;
    size_t bytes;
    TERN_RETURN_IF_ERR(open_file(dir, &manifest->files[manifest->ranks], &view));
    tern_status status = tern_h5_read_bytes(view, TERN_CKPT_STATE, &state, &bytes);
    if (status == TERN_OK) {
        struct tern_json *document = NULL;
        if (tern_json_parse(TERN_CKPT_STATE, state, bytes, &document) != TERN_OK) {
            status = tern_fail_prefix(TERN_ERR_CORRUPT, "'%s/%s'", dir, TERN_CKPT_VIEW);
        }
        tern_json_close(document);
        tern_free(state);
    }
    for (int64_t i = 0; i < manifest->tensor_count && status == TERN_OK; i++) {
        status = check_view_tensor(view, manifest, &manifest->tensors[i]);
    }
    tern_h5_close(view);
    return status;
}

tern_status tern_ckpt_verify(const char *ckpt_dir)
{
    struct tern_ckpt_manifest manifest;
    TERN_RETURN_IF_ERR(tern_ckpt_manifest_read(ckpt_dir, &manifest));
    tern_status status = TERN_OK;
    for (int i = 0; i < manifest.file_count && status == TERN_OK; i++) {
        status = tern_ckpt_check_file(ckpt_dir, &manifest.files[i], false);
    }
    if (status == TERN_OK) {
        status = check_shards(ckpt_dir, &manifest);
    }
    if (status == TERN_OK) {
        status = check_view(ckpt_dir, &manifest);
    }
    tern_ckpt_manifest_fini(&manifest);
    return status;
}
