/* checkpoint_manifest.c - MANIFEST.json: what a checkpoint consists of, sealed by its own hash. */
#include "io/checkpoint_parts.h"
#include "io/hash.h"
#include "io/json.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last member is the hash of the whole text with zeros in place of its digits. */
static const char SEAL_HEAD[] = "\"xxh3\":\"";
static const char SEAL_TAIL[] = "\"}\n";
enum {
    DIGITS = TERN_HASH_HEX_BYTES - 1,
    SEAL_BYTES = sizeof SEAL_HEAD - 1 + DIGITS + sizeof SEAL_TAIL - 1
};
static const int64_t MANIFEST_BYTES_MAX = (int64_t)256 << 20;
static const int64_t TENSORS_MAX = (int64_t)1 << 22;
static const int64_t TENSOR_BYTES_MAX = (int64_t)1 << 46;

/* ---- names ---- */

bool tern_ckpt_is_name(const char *name)
{
    size_t length = strlen(name);
    bool ok = length > 0 && length < TERN_CKPT_NAME_BYTES && strcmp(name, ".") != 0 &&
              strcmp(name, "..") != 0;
    for (size_t i = 0; i < length && ok; i++) {
        ok = name[i] > ' ' && name[i] < 0x7f && strchr("/%\"\\", name[i]) == NULL;
    }
    return ok;
}

bool tern_ckpt_is_group(const char *group)
{
    size_t length = strlen(group);
    bool ok = length > 0 && length < TERN_CKPT_NAME_BYTES && group[0] != '/' &&
              group[length - 1] != '/' && strstr(group, "//") == NULL &&
              strcmp(group, "state") != 0 && strncmp(group, "state/", 6) != 0;
    for (size_t i = 0; i < length && ok; i++) {
        ok = strchr("abcdefghijklmnopqrstuvwxyz0123456789_/", group[i]) != NULL;
    }
    return ok;
}

enum tern_dtype tern_ckpt_dtype(const char *name)
{
    int i = 0;
    while (i < TERN_DTYPE_CKPT_COUNT && strcmp(name, tern_dtype_name((enum tern_dtype)i)) != 0) {
        i++;
    }
    return (enum tern_dtype)i;
}

tern_status tern_ckpt_dataset(char out[2 * TERN_CKPT_NAME_BYTES + 2],
                              const char *group,
                              const char *name)
{
    int length = snprintf(out, TERN_CKPT_DATASET_BYTES, "/%s/%s", group, name);
    if (length >= TERN_CKPT_DATASET_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "tensor name '%.64s...' is too long", name);
    }
    return TERN_OK;
}

struct tern_h5_shape tern_ckpt_shape(const struct tern_ckpt_tensor *tensor,
                                     int64_t row_offset,
                                     int64_t row_count)
{
    struct tern_h5_shape shape = {.dtype = tensor->dtype, .rank = tensor->rank, .has_place = true};
    for (int i = 0; i < tensor->rank; i++) {
        shape.dims[i] = shape.global_dims[i] = tensor->shape[i];
    }
    shape.dims[0] = row_count;
    shape.offset[0] = row_offset;
    return shape;
}

void tern_ckpt_shard_name(int rank, char out[32])
{
    snprintf(out, 32, "rank-%04d.h5", rank);
}

/* ---- checks ---- */

static tern_status check_files(const struct tern_ckpt_manifest *manifest)
{
    if (manifest->ranks < 1 || manifest->ranks > TERN_CKPT_RANKS_MAX || manifest->step < 0) {
        return tern_fail(TERN_ERR_CORRUPT, "manifest: step %lld of %d ranks is out of range",
                         (long long)manifest->step, manifest->ranks);
    }
    if (manifest->file_count != manifest->ranks + 1) {
        return tern_fail(
            TERN_ERR_CORRUPT, "manifest: lists %d files, expected %d (%d shards and %s)",
            manifest->file_count, manifest->ranks + 1, manifest->ranks, TERN_CKPT_VIEW);
    }
    for (int i = 0; i < manifest->file_count; i++) {
        const struct tern_ckpt_file *file = &manifest->files[i];
        char expected[32] = TERN_CKPT_VIEW;
        if (i < manifest->ranks) {
            tern_ckpt_shard_name(i, expected);
        }
        if (strcmp(file->name, expected) != 0) {
            return tern_fail(TERN_ERR_CORRUPT, "manifest: file %d is '%s', expected '%s'", i,
                             file->name, expected);
        }
        if (file->bytes < 0 || file->raw_bytes < 0 || strlen(file->xxh3) != DIGITS ||
            strspn(file->xxh3, "0123456789abcdef") != DIGITS) {
            return tern_fail(TERN_ERR_CORRUPT, "manifest: size or hash of '%s' is malformed",
                             file->name);
        }
    }
    return TERN_OK;
}

static tern_status check_tensor(const struct tern_ckpt_manifest *manifest,
                                const struct tern_ckpt_tensor *tensor)
{
    bool ok = tern_ckpt_is_group(tensor->group) && tern_ckpt_is_name(tensor->name) &&
              (unsigned)tensor->dtype < TERN_DTYPE_CKPT_COUNT && tensor->rank >= 1 &&
              tensor->rank <= TERN_CKPT_RANK_MAX;
    int64_t bytes = ok ? (int64_t)tern_dtype_bytes(tensor->dtype) : 0;
    for (int i = 0; i < tensor->rank && ok; i++) {
        ok = tensor->shape[i] > 0 && !__builtin_mul_overflow(bytes, tensor->shape[i], &bytes);
    }
    if (!ok || bytes > TENSOR_BYTES_MAX) {
        return tern_fail(TERN_ERR_CORRUPT,
                         "tensor '%s/%s': its name, type or shape is out of range", tensor->group,
                         tensor->name);
    }
    int64_t row = 0;
    for (int64_t i = 0; i < tensor->place_count; i++) {
        const struct tern_ckpt_place *place = &manifest->places[tensor->first_place + i];
        if (place->rank < 0 || place->rank >= manifest->ranks || place->row_count <= 0 ||
            place->row_offset < 0 || place->row_offset > tensor->shape[0] - place->row_count) {
            return tern_fail(TERN_ERR_CORRUPT,
                             "tensor '%s/%s': %lld rows from %lld in shard %d are out of range",
                             tensor->group, tensor->name, (long long)place->row_count,
                             (long long)place->row_offset, place->rank);
        }
        if (place->row_offset != row) {
            return tern_fail(TERN_ERR_CORRUPT, "tensor '%s/%s': row %lld is in %s", tensor->group,
                             tensor->name,
                             (long long)(place->row_offset > row ? row : place->row_offset),
                             place->row_offset > row ? "no shard" : "two shards");
        }
        row += place->row_count;
    }
    if (row != tensor->shape[0]) {
        return tern_fail(TERN_ERR_CORRUPT, "tensor '%s/%s': row %lld of %lld is in no shard",
                         tensor->group, tensor->name, (long long)row, (long long)tensor->shape[0]);
    }
    return TERN_OK;
}

static int compare_keys(const char *group, const char *name, const struct tern_ckpt_tensor *tensor)
{
    int order = strcmp(group, tensor->group);
    return order != 0 ? order : strcmp(name, tensor->name);
}

static int compare_tensors(const void *a, const void *b, void *context)
{
    const struct tern_ckpt_manifest *manifest = context;
    const struct tern_ckpt_tensor *left = &manifest->tensors[*(const int64_t *)a];
    return compare_keys(left->group, left->name, &manifest->tensors[*(const int64_t *)b]);
}

tern_status tern_ckpt_manifest_check(struct tern_ckpt_manifest *manifest)
{
    TERN_RETURN_IF_ERR(check_files(manifest));
    int64_t count = manifest->tensor_count;
    tern_free(manifest->sorted);
    manifest->sorted = tern_alloc("manifest", (size_t)count * sizeof *manifest->sorted);
    if (manifest->sorted == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "manifest: no memory for %lld tensors", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(check_tensor(manifest, &manifest->tensors[i]));
        manifest->sorted[i] = i;
    }
    qsort_r(manifest->sorted, (size_t)count, sizeof *manifest->sorted, compare_tensors, manifest);
    for (int64_t i = 1; i < count; i++) {
        if (compare_tensors(&manifest->sorted[i - 1], &manifest->sorted[i], manifest) == 0) {
            const struct tern_ckpt_tensor *tensor = &manifest->tensors[manifest->sorted[i]];
            return tern_fail(TERN_ERR_CORRUPT, "tensor '%s/%s' is listed twice", tensor->group,
                             tensor->name);
        }
    }
    return TERN_OK;
}

const struct tern_ckpt_tensor *tern_ckpt_manifest_find(const struct tern_ckpt_manifest *manifest,
                                                       const char *group,
                                                       const char *name)
{
    int64_t low = 0, high = manifest->tensor_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const struct tern_ckpt_tensor *tensor = &manifest->tensors[manifest->sorted[middle]];
        int order = compare_keys(group, name, tensor);
        if (order == 0) {
            return tensor;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

void tern_ckpt_manifest_fini(struct tern_ckpt_manifest *manifest)
{
    tern_free(manifest->files);
    tern_free(manifest->tensors);
    tern_free(manifest->places);
    tern_free(manifest->sorted);
    *manifest = (struct tern_ckpt_manifest){0};
}

/* ---- writing ---- */

/* Names were checked to need no escape. */
static tern_status print_tensor(const struct tern_ckpt_manifest *manifest,
                                int64_t index,
                                struct tern_text *text)
{
    const struct tern_ckpt_tensor *tensor = &manifest->tensors[index];
    TERN_RETURN_IF_ERR(tern_text_printf(
        text, "%s{\"group\":\"%s\",\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[",
        index > 0 ? ",\n" : "", tensor->group, tensor->name, tern_dtype_name(tensor->dtype)));
    for (int i = 0; i < tensor->rank; i++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(text, "%s%lld", i > 0 ? "," : "", (long long)tensor->shape[i]));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(text, "],\"slabs\":["));
    for (int64_t i = 0; i < tensor->place_count; i++) {
        const struct tern_ckpt_place *place = &manifest->places[tensor->first_place + i];
        TERN_RETURN_IF_ERR(tern_text_printf(text, "%s[%d,%lld,%lld]", i > 0 ? "," : "", place->rank,
                                            (long long)place->row_offset,
                                            (long long)place->row_count));
    }
    return tern_text_printf(text, "]}");
}

static tern_status print_manifest(const struct tern_ckpt_manifest *manifest, struct tern_text *text)
{
    tern_status status =
        tern_text_printf(text,
                         "{\"format\":\"tern-checkpoint\",\"version\":%d,\"step\":%lld,"
                         "\"ranks\":%d,\n\"time\":\"%s\",\"tern\":\"%s\",\"config_digest\":",
                         TERN_CKPT_VERSION, (long long)manifest->step, manifest->ranks,
                         manifest->time, manifest->version);
    if (status == TERN_OK) {
        status = tern_json_quote(text, manifest->config_digest, strlen(manifest->config_digest));
    }
    if (status == TERN_OK) {
        status = tern_text_printf(text, ",\n\"files\":[\n");
    }
    for (int i = 0; i < manifest->file_count && status == TERN_OK; i++) {
        const struct tern_ckpt_file *file = &manifest->files[i];
        status = tern_text_printf(
            text, "%s{\"name\":\"%s\",\"bytes\":%lld,\"raw_bytes\":%lld,\"xxh3\":\"%s\"}",
            i > 0 ? ",\n" : "", file->name, (long long)file->bytes, (long long)file->raw_bytes,
            file->xxh3);
    }
    if (status == TERN_OK) {
        status = tern_text_printf(text, "],\n\"tensors\":[\n");
    }
    for (int64_t i = 0; i < manifest->tensor_count && status == TERN_OK; i++) {
        status = print_tensor(manifest, i, text);
    }
    if (status == TERN_OK) {
        status = tern_text_printf(text, "],\n%s%0*d%s", SEAL_HEAD, DIGITS, 0, SEAL_TAIL);
    }
    return status;
}

tern_status tern_ckpt_manifest_write(const char *ckpt_dir,
                                     const struct tern_ckpt_manifest *manifest)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(path, ckpt_dir, TERN_CKPT_MANIFEST));
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = print_manifest(manifest, &text);
    if (status == TERN_OK) {
        char digits[TERN_HASH_HEX_BYTES];
        tern_hash_bytes(text.data, text.length, digits);
        memcpy(text.data + text.length - (sizeof SEAL_TAIL - 1) - DIGITS, digits, DIGITS);
        status = tern_file_replace(path, text.data, text.length);
    }
    tern_text_fini(&text);
    return status;
}

/* ---- reading ---- */

/* The text's own hash; turns its digits to zeros. */
static tern_status check_seal(const char *path, char *text, size_t bytes)
{
    if (bytes < SEAL_BYTES ||
        memcmp(text + bytes - SEAL_BYTES, SEAL_HEAD, sizeof SEAL_HEAD - 1) != 0 ||
        memcmp(text + bytes - (sizeof SEAL_TAIL - 1), SEAL_TAIL, sizeof SEAL_TAIL - 1) != 0) {
        return tern_fail(TERN_ERR_CORRUPT, "'%s' is damaged: it does not end as a manifest ends",
                         path);
    }
    char found[TERN_HASH_HEX_BYTES] = {0};
    char expected[TERN_HASH_HEX_BYTES];
    char *digits = text + bytes - (sizeof SEAL_TAIL - 1) - DIGITS;
    memcpy(expected, digits, DIGITS);
    expected[DIGITS] = '\0';
    memset(digits, '0', DIGITS);
    tern_hash_bytes(text, bytes, found);
    if (strcmp(found, expected) != 0) {
        return tern_fail(TERN_ERR_CORRUPT,
                         "'%s' is damaged: its content has hash %s, not the one that it states",
                         path, found);
    }
    return TERN_OK;
}

static bool copy_string(const struct tern_json *object, const char *key, char *out, size_t capacity)
{
    size_t bytes = 0;
    const char *value = tern_json_string(tern_json_get(object, key), &bytes);
    if (value == NULL || bytes >= capacity || strlen(value) != bytes) {
        return false;
    }
    memcpy(out, value, bytes + 1);
    return true;
}

static bool copy_integer(const struct tern_json *object, const char *key, int64_t *out)
{
    return tern_json_i64(tern_json_get(object, key), out);
}

static bool parse_head(const struct tern_json *root, struct tern_ckpt_manifest *out)
{
    int64_t ranks, version;
    char format[32];
    bool ok = copy_string(root, "format", format, sizeof format) &&
              strcmp(format, "tern-checkpoint") == 0 && copy_integer(root, "version", &version) &&
              version == TERN_CKPT_VERSION && copy_integer(root, "step", &out->step) &&
              copy_integer(root, "ranks", &ranks) && ranks > 0 && ranks <= TERN_CKPT_RANKS_MAX &&
              copy_string(root, "time", out->time, sizeof out->time) &&
              copy_string(root, "tern", out->version, sizeof out->version) &&
              copy_string(root, "config_digest", out->config_digest, sizeof out->config_digest);
    out->ranks = ok ? (int)ranks : 0;
    return ok;
}

static bool parse_files(const struct tern_json *files, struct tern_ckpt_manifest *out)
{
    int64_t count = tern_json_count(files);
    if (tern_json_kind_of(files) != TERN_JSON_ARRAY || count == 0 ||
        count > TERN_CKPT_RANKS_MAX + 1) {
        return false;
    }
    out->files = tern_alloc_zero("manifest", (size_t)count, sizeof *out->files);
    if (out->files == NULL) {
        return false;
    }
    out->file_count = (int)count;
    bool ok = true;
    for (int64_t i = 0; i < count && ok; i++) {
        const struct tern_json *row = tern_json_item(files, i);
        struct tern_ckpt_file *file = &out->files[i];
        ok = copy_string(row, "name", file->name, sizeof file->name) &&
             copy_integer(row, "bytes", &file->bytes) &&
             copy_integer(row, "raw_bytes", &file->raw_bytes) &&
             copy_string(row, "xxh3", file->xxh3, sizeof file->xxh3);
    }
    return ok;
}

static bool parse_places(const struct tern_json *slabs,
                         struct tern_ckpt_manifest *out,
                         struct tern_ckpt_tensor *tensor)
{
    tensor->first_place = out->place_count;
    tensor->place_count = tern_json_count(slabs);
    bool ok = tern_json_kind_of(slabs) == TERN_JSON_ARRAY && tensor->place_count > 0;
    for (int64_t i = 0; i < tensor->place_count && ok; i++) {
        const struct tern_json *row = tern_json_item(slabs, i);
        int64_t values[3];
        ok = tern_json_kind_of(row) == TERN_JSON_ARRAY && tern_json_count(row) == 3;
        for (int k = 0; k < 3 && ok; k++) {
            ok = tern_json_i64(tern_json_item(row, k), &values[k]);
        }
        ok = ok && values[0] >= 0 && values[0] < out->ranks;
        if (ok) {
            out->places[out->place_count++] =
                (struct tern_ckpt_place){(int)values[0], values[1], values[2]};
        }
    }
    return ok;
}

static bool parse_tensor(const struct tern_json *row,
                         struct tern_ckpt_manifest *out,
                         struct tern_ckpt_tensor *tensor)
{
    char dtype[16];
    const struct tern_json *shape = tern_json_get(row, "shape");
    bool ok = copy_string(row, "group", tensor->group, sizeof tensor->group) &&
              copy_string(row, "name", tensor->name, sizeof tensor->name) &&
              copy_string(row, "dtype", dtype, sizeof dtype) &&
              tern_json_kind_of(shape) == TERN_JSON_ARRAY && tern_json_count(shape) >= 1 &&
              tern_json_count(shape) <= TERN_CKPT_RANK_MAX;
    if (!ok) {
        return false;
    }
    tensor->dtype = tern_ckpt_dtype(dtype);
    tensor->rank = (int)tern_json_count(shape);
    for (int i = 0; i < tensor->rank && ok; i++) {
        ok = tern_json_i64(tern_json_item(shape, i), &tensor->shape[i]);
    }
    return ok && parse_places(tern_json_get(row, "slabs"), out, tensor);
}

static bool parse_tensors(const struct tern_json *tensors, struct tern_ckpt_manifest *out)
{
    int64_t count = tern_json_count(tensors), places = 0;
    if (tern_json_kind_of(tensors) != TERN_JSON_ARRAY || count > TENSORS_MAX) {
        return false;
    }
    for (int64_t i = 0; i < count; i++) {
        places += tern_json_count(tern_json_get(tern_json_item(tensors, i), "slabs"));
    }
    out->tensors = tern_alloc_zero("manifest", (size_t)count, sizeof *out->tensors);
    out->places = tern_alloc_zero("manifest", (size_t)places, sizeof *out->places);
    bool ok = out->tensors != NULL && out->places != NULL;
    for (int64_t i = 0; i < count && ok; i++) {
        ok = parse_tensor(tern_json_item(tensors, i), out, &out->tensors[i]);
        out->tensor_count++;
    }
    return ok;
}

static tern_status parse(const char *path,
                         const char *text,
                         size_t bytes,
                         struct tern_ckpt_manifest *out)
{
    struct tern_json *document = NULL;
    tern_status status = tern_json_parse(path, text, bytes, &document);
    if (status != TERN_OK) {
        return status == TERN_ERR_INPUT ? TERN_ERR_CORRUPT : status;
    }
    const char *bad = !parse_head(document, out)                                ? "head"
                      : !parse_files(tern_json_get(document, "files"), out)     ? "files"
                      : !parse_tensors(tern_json_get(document, "tensors"), out) ? "tensors"
                                                                                : NULL;
    tern_json_close(document);
    if (bad != NULL) {
        return tern_fail(TERN_ERR_CORRUPT,
                         "'%s': its %s are not those of a version %d checkpoint manifest", path,
                         bad, TERN_CKPT_VERSION);
    }
    status = tern_ckpt_manifest_check(out);
    return status == TERN_OK ? status : tern_fail_prefix(status, "'%s'", path);
}

tern_status tern_ckpt_manifest_parse(const char *name,
                                     char *text,
                                     size_t bytes,
                                     struct tern_ckpt_manifest *out)
{
    *out = (struct tern_ckpt_manifest){0};
    tern_status status = check_seal(name, text, bytes);
    if (status == TERN_OK) {
        status = parse(name, text, bytes, out);
    }
    if (status != TERN_OK) {
        tern_ckpt_manifest_fini(out);
    }
    return status;
}

tern_status tern_ckpt_manifest_read(const char *ckpt_dir, struct tern_ckpt_manifest *out)
{
    *out = (struct tern_ckpt_manifest){0};
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_path_join(path, ckpt_dir, TERN_CKPT_MANIFEST));
    TERN_RETURN_IF_ERR(tern_file_read(path, MANIFEST_BYTES_MAX, &text, &bytes));
    tern_status status = tern_ckpt_manifest_parse(path, text, bytes, out);
    tern_free(text);
    return status;
}
