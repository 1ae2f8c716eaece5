/* checkpoint_commit.c - from durable shards to a checkpoint: the view, the manifest, LATEST, and
 * what may go. */
#include "io/checkpoint_parts.h"
#include "io/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TERN_VERSION
#    error "TERN_VERSION comes from the build"
#endif

/* One row of a shard's table of contents. */
struct record {
    struct tern_ckpt_tensor tensor; /* its first_place is the order of first appearance */
    struct tern_ckpt_place place;
};

struct records {
    struct record *rows;
    int64_t count, capacity;
};

/* ---- what the shards hold ---- */

static tern_status add_record(struct records *records, const struct record *record)
{
    if (records->count == records->capacity) {
        int64_t capacity = records->capacity > 0 ? records->capacity * 2 : 256;
        struct record *rows =
            tern_realloc("checkpoint contents", records->rows, (size_t)capacity * sizeof *rows);
        if (rows == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory for the contents of %lld slabs",
                             (long long)capacity);
        }
        records->rows = rows;
        records->capacity = capacity;
    }
    records->rows[records->count++] = *record;
    return TERN_OK;
}

/* [group, name, dtype, shape, row offset, row count] */
static bool parse_record(const struct tern_json *row, struct record *out)
{
    const char *group = tern_json_string(tern_json_item(row, 0), NULL);
    const char *name = tern_json_string(tern_json_item(row, 1), NULL);
    const char *dtype = tern_json_string(tern_json_item(row, 2), NULL);
    const struct tern_json *shape = tern_json_item(row, 3);
    if (tern_json_count(row) != 6 || group == NULL || name == NULL || dtype == NULL ||
        !tern_ckpt_is_group(group) || !tern_ckpt_is_name(name) ||
        tern_ckpt_dtype(dtype) == TERN_DTYPE_CKPT_COUNT || tern_json_count(shape) < 1 ||
        tern_json_count(shape) > TERN_CKPT_RANK_MAX) {
        return false;
    }
    struct tern_ckpt_tensor *tensor = &out->tensor;
    strcpy(tensor->group, group);
    strcpy(tensor->name, name);
    tensor->dtype = tern_ckpt_dtype(dtype);
    tensor->rank = (int)tern_json_count(shape);
    bool ok = tern_json_i64(tern_json_item(row, 4), &out->place.row_offset) &&
              tern_json_i64(tern_json_item(row, 5), &out->place.row_count);
    for (int i = 0; i < tensor->rank && ok; i++) {
        ok = tern_json_i64(tern_json_item(shape, i), &tensor->shape[i]);
    }
    return ok;
}

static tern_status parse_contents(const char *path,
                                  int rank,
                                  const char *text,
                                  size_t bytes,
                                  struct records *records)
{
    struct tern_json *rows;
    TERN_RETURN_IF_ERR(tern_json_parse(path, text, bytes, &rows));
    tern_status status = TERN_OK;
    for (int64_t i = 0; i < tern_json_count(rows) && status == TERN_OK; i++) {
        struct record record = {.place.rank = rank};
        record.tensor.first_place = records->count;
        status = parse_record(tern_json_item(rows, i), &record)
                     ? add_record(records, &record)
                     : tern_fail(TERN_ERR_CORRUPT,
                                 "'%s': row %lld of its table of contents is malformed", path,
                                 (long long)i);
    }
    tern_json_close(rows);
    return status;
}

/* state_out: rank 0's, tern_alloc'd. */
static tern_status read_shard(const char *folder,
                              const struct tern_ckpt_file *file,
                              int rank,
                              struct records *records,
                              char **state_out)
{
    char path[TERN_PATH_BYTES];
    int64_t found;
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, file->name));
    TERN_RETURN_IF_ERR(tern_file_size(path, &found));
    if (found != file->bytes) {
        return tern_fail(TERN_ERR_CORRUPT, "'%s' has %lld bytes, its writer said %lld", path,
                         (long long)found, (long long)file->bytes);
    }
    struct tern_h5_reader *reader;
    char *text = NULL;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_h5_open(path, &reader));
    tern_status status = tern_h5_read_bytes(reader, TERN_CKPT_SLABS, &text, &bytes);
    if (status == TERN_OK) {
        status = parse_contents(path, rank, text, bytes, records);
    }
    if (status == TERN_OK && rank == 0) {
        status = tern_h5_read_bytes(reader, TERN_CKPT_STATE, state_out, &bytes);
    }
    tern_free(text);
    tern_h5_close(reader);
    return status;
}

/* ---- tensors from records ---- */

static int compare_records(const void *a, const void *b)
{
    const struct record *left = a, *right = b;
    int order = strcmp(left->tensor.group, right->tensor.group);
    order = order != 0 ? order : strcmp(left->tensor.name, right->tensor.name);
    if (order != 0) {
        return order;
    }
    int64_t x = left->place.row_offset, y = right->place.row_offset;
    return x != y ? (x < y ? -1 : 1) : left->place.rank - right->place.rank;
}

static int compare_first(const void *a, const void *b)
{
    int64_t x = ((const struct tern_ckpt_tensor *)a)->first_place;
    int64_t y = ((const struct tern_ckpt_tensor *)b)->first_place;
    return x < y ? -1 : x > y;
}

static bool is_same_tensor(const struct tern_ckpt_tensor *a, const struct tern_ckpt_tensor *b)
{
    return strcmp(a->group, b->group) == 0 && strcmp(a->name, b->name) == 0;
}

/* Sorted records to tensors in the order of first appearance, each with its places in row order. */
static tern_status gather(struct records *records, struct tern_ckpt_manifest *manifest)
{
    size_t count = (size_t)records->count;
    manifest->tensors = tern_alloc("manifest", count * sizeof *manifest->tensors);
    manifest->places = tern_alloc("manifest", count * sizeof *manifest->places);
    if (manifest->tensors == NULL || manifest->places == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a manifest of %zu slabs", count);
    }
    if (count > 0) {
        qsort(records->rows, count, sizeof *records->rows, compare_records);
    }
    for (int64_t i = 0; i < records->count; i++) {
        const struct record *row = &records->rows[i];
        if (i == 0 || !is_same_tensor(&row->tensor, &row[-1].tensor)) {
            manifest->tensors[manifest->tensor_count++] = row->tensor;
        }
        struct tern_ckpt_tensor *tensor = &manifest->tensors[manifest->tensor_count - 1];
        if (tensor->dtype != row->tensor.dtype || tensor->rank != row->tensor.rank ||
            memcmp(tensor->shape, row->tensor.shape, sizeof tensor->shape) != 0) {
            return tern_fail(TERN_ERR_STATE,
                             "tensor '%s/%s': rank %d has another type or shape than another rank",
                             tensor->group, tensor->name, row->place.rank);
        }
        tensor->place_count++;
        if (row->tensor.first_place < tensor->first_place) {
            tensor->first_place = row->tensor.first_place;
        }
    }
    /* Places follow the tensors' order; records are still sorted by name, so each tensor's are
     * found there. */
    if (manifest->tensor_count > 0) {
        qsort(manifest->tensors, (size_t)manifest->tensor_count, sizeof *manifest->tensors,
              compare_first);
    }
    return TERN_OK;
}

static void fill_places(const struct records *records, struct tern_ckpt_manifest *manifest)
{
    for (int64_t i = 0; i < manifest->tensor_count; i++) {
        struct tern_ckpt_tensor *tensor = &manifest->tensors[i];
        struct record key = {.tensor = *tensor, .place = {-1, -1, 0}};
        int64_t low = 0, high = records->count; /* first record not below the key */
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (compare_records(&records->rows[middle], &key) < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        tensor->first_place = manifest->place_count;
        for (int64_t k = 0; k < tensor->place_count; k++) {
            manifest->places[manifest->place_count++] = records->rows[low + k].place;
        }
    }
}

static tern_status read_shards(const char *folder,
                               struct tern_ckpt_manifest *manifest,
                               char **state_out)
{
    struct records records = {0};
    tern_status status = TERN_OK;
    for (int i = 0; i < manifest->ranks && status == TERN_OK; i++) {
        status = read_shard(folder, &manifest->files[i], i, &records, state_out);
    }
    if (status == TERN_OK) {
        status = gather(&records, manifest);
    }
    if (status == TERN_OK) {
        fill_places(&records, manifest);
    }
    tern_free(records.rows);
    return status;
}

/* ---- the view ---- */

static tern_status put_view(struct tern_h5_writer *view,
                            const struct tern_ckpt_manifest *manifest,
                            const char *state)
{
    int64_t parts_max = 1;
    for (int64_t i = 0; i < manifest->tensor_count; i++) {
        int64_t count = manifest->tensors[i].place_count;
        parts_max = count > parts_max ? count : parts_max;
    }
    struct tern_h5_part *parts = tern_alloc("checkpoint view", (size_t)parts_max * sizeof *parts);
    if (parts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a view of %lld parts",
                         (long long)parts_max);
    }
    tern_status status = tern_h5_put_bytes(view, TERN_CKPT_STATE, state, strlen(state));
    for (int64_t i = 0; i < manifest->tensor_count && status == TERN_OK; i++) {
        const struct tern_ckpt_tensor *tensor = &manifest->tensors[i];
        char dataset[TERN_CKPT_DATASET_BYTES];
        struct tern_h5_shape shape = tern_ckpt_shape(tensor, 0, tensor->shape[0]);
        for (int64_t k = 0; k < tensor->place_count; k++) {
            const struct tern_ckpt_place *place = &manifest->places[tensor->first_place + k];
            parts[k] = (struct tern_h5_part){manifest->files[place->rank].name, place->row_offset,
                                             place->row_count};
        }
        status = tern_ckpt_dataset(dataset, tensor->group, tensor->name);
        if (status == TERN_OK) {
            status = tern_h5_put_virtual(view, dataset, &shape, parts, tensor->place_count);
        }
    }
    tern_free(parts);
    return status;
}

static tern_status write_view(const char *folder,
                              struct tern_ckpt_manifest *manifest,
                              const char *state)
{
    char path[TERN_PATH_BYTES], temporary[TERN_PATH_BYTES];
    struct tern_h5_writer *view;
    struct tern_h5_file made = {0};
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, TERN_CKPT_VIEW));
    TERN_RETURN_IF_ERR(tern_path_join(temporary, folder, TERN_CKPT_VIEW ".tmp"));
    TERN_RETURN_IF_ERR(tern_h5_create(temporary, TERN_H5_BORROW, &view));
    tern_status status = put_view(view, manifest, state);
    if (status != TERN_OK) {
        tern_h5_abandon(view);
        return status;
    }
    TERN_RETURN_IF_ERR(tern_h5_finish(view, &made));
    TERN_RETURN_IF_ERR(tern_file_rename(temporary, path));
    struct tern_ckpt_file *file = &manifest->files[manifest->ranks];
    *file = (struct tern_ckpt_file){
        .name = TERN_CKPT_VIEW, .bytes = made.bytes, .raw_bytes = made.bytes};
    snprintf(file->xxh3, sizeof file->xxh3, "%s", made.xxh3);
    return TERN_OK;
}

/* ---- commit ---- */

/* Whatever an earlier attempt at this step left: shards of more ranks, temporary files. */
static tern_status remove_strangers(const char *folder, const struct tern_ckpt_manifest *manifest)
{
    char **names;
    int count;
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_file_list(folder, &names, &count));
    tern_status status = TERN_OK;
    for (int i = 0; i < count && status == TERN_OK; i++) {
        bool is_ours = false;
        for (int k = 0; k < manifest->file_count && !is_ours; k++) {
            is_ours = strcmp(names[i], manifest->files[k].name) == 0;
        }
        if (!is_ours) {
            status = tern_path_join(path, folder, names[i]);
            if (status == TERN_OK) {
                status = tern_file_remove_tree(path);
            }
        }
    }
    tern_free(names);
    return status;
}

/* Puts a new checkpoint of a step in the place of the one that is there; at each moment one of them
 * is whole. */
static tern_status swap_in(const char *run_dir, int64_t step, const char *fresh)
{
    char root[TERN_PATH_BYTES], place[TERN_PATH_BYTES], old[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_ckpt_root(run_dir, root));
    TERN_RETURN_IF_ERR(tern_ckpt_folder(run_dir, step, place));
    int error = tern_file_fault(TERN_FAULT_FILE_RENAME);
    if (error == 0 && renameat2(AT_FDCWD, fresh, AT_FDCWD, place, RENAME_EXCHANGE) == 0) {
        TERN_RETURN_IF_ERR(tern_file_sync_folder(root));
        return tern_file_remove_tree(fresh); /* the old one, by now */
    }
    error = error != 0 ? error : errno;
    if (error != EINVAL && error != ENOSYS) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot put '%s' in the place of '%s'", fresh,
                               place);
    }
    /* No exchange here. A crash between the two renames leaves "step-N.old", which clean puts back.
     */
    if (snprintf(old, sizeof old, "%s.old", place) >= (int)sizeof old) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is too long", place);
    }
    TERN_RETURN_IF_ERR(tern_file_remove_tree(old));
    TERN_RETURN_IF_ERR(tern_file_rename(place, old));
    TERN_RETURN_IF_ERR(tern_file_rename(fresh, place));
    return tern_file_remove_tree(old);
}

static tern_status init_manifest(struct tern_ckpt_manifest *manifest,
                                 int64_t step,
                                 const struct tern_ckpt_file *files,
                                 int ranks,
                                 const char *config_digest)
{
    if (step < 0 || ranks < 1 || ranks > TERN_CKPT_RANKS_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "checkpoint: step %lld of %d ranks is out of range",
                         (long long)step, ranks);
    }
    const char *digest = config_digest != NULL ? config_digest : "";
    if (strlen(digest) >= sizeof manifest->config_digest) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "checkpoint: the config digest has %zu bytes, expected at most %zu",
                         strlen(digest), sizeof manifest->config_digest - 1);
    }
    manifest->step = step;
    manifest->ranks = ranks;
    snprintf(manifest->version, sizeof manifest->version, "%s", TERN_VERSION);
    snprintf(manifest->config_digest, sizeof manifest->config_digest, "%s", digest);
    manifest->files = tern_alloc_zero("manifest", (size_t)ranks + 1, sizeof *manifest->files);
    if (manifest->files == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a manifest of %d ranks", ranks);
    }
    manifest->file_count = ranks + 1;
    memcpy(manifest->files, files, (size_t)ranks * sizeof *files);
    return TERN_OK;
}

/* The view and the manifest: afterwards the checkpoint exists. */
static tern_status seal(const char *run_dir,
                        const char *folder,
                        struct tern_ckpt_manifest *manifest)
{
    char *state = NULL;
    tern_status status = tern_ckpt_fault(TERN_FAULT_CKPT_VIEW, run_dir, manifest->step);
    if (status == TERN_OK) {
        status = read_shards(folder, manifest, &state);
    }
    if (status == TERN_OK) {
        status = write_view(folder, manifest, state);
    }
    tern_free(state);
    if (status == TERN_OK) {
        status = tern_ckpt_manifest_check(manifest);
    }
    if (status == TERN_OK) {
        status = remove_strangers(folder, manifest);
    }
    if (status == TERN_OK) {
        status = tern_ckpt_fault(TERN_FAULT_CKPT_MANIFEST, run_dir, manifest->step);
    }
    tern_clock_rfc3339(manifest->time);
    return status == TERN_OK ? tern_ckpt_manifest_write(folder, manifest) : status;
}

tern_status tern_ckpt_commit(const char *run_dir,
                             int64_t step,
                             const struct tern_ckpt_file *files,
                             int ranks,
                             const char *config_digest,
                             int keep)
{
    char folder[TERN_PATH_BYTES], place[TERN_PATH_BYTES];
    struct tern_ckpt_manifest manifest = {0};
    TERN_RETURN_IF_ERR(tern_ckpt_folder(run_dir, step, place));
    TERN_RETURN_IF_ERR(tern_ckpt_folder_new(run_dir, step, folder));
    tern_status status = init_manifest(&manifest, step, files, ranks, config_digest);
    if (status == TERN_OK) {
        status = seal(run_dir, folder, &manifest);
    }
    tern_ckpt_manifest_fini(&manifest);
    if (status == TERN_OK && strcmp(folder, place) != 0) {
        status = swap_in(run_dir, step, folder);
    }
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "checkpoint of step %lld is not committed",
                                (long long)step);
    }
    /* It is committed. What follows is tidying: a failure there must not be taken for one of the
     * checkpoint. */
    int removed;
    if (tern_ckpt_point_latest(run_dir, step) != TERN_OK) {
        tern_log_warn("checkpoint of step %lld is committed, but LATEST is not: %s",
                      (long long)step, tern_detail());
    }
    if (tern_ckpt_prune_behind(run_dir, step, keep, &removed) != TERN_OK ||
        tern_ckpt_clean_below(run_dir, step) != TERN_OK) {
        tern_log_warn("checkpoint of step %lld is committed, but older ones were not removed: %s",
                      (long long)step, tern_detail());
    }
    return TERN_OK;
}
