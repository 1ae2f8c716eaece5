/* remote.c - a checkpoint's files in a store: pushed, committed, found, pulled, pruned. */
#include "io/remote.h"

#include "io/checkpoint_parts.h"
#include "io/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OBJECTS_MAX = 4 << 20, /* in one listing: ranks times checkpoints, with room */
    MANIFEST_BYTES_MAX = 256 << 20,
    PIECE_BYTES = 8 << 20
};

/* One object of the layout. */
struct object {
    int64_t step;
    int64_t bytes;
    char name[96]; /* behind "step-N/" */
};

struct objects {
    struct object *rows; /* by step, then name, once sorted */
    int64_t count, capacity;
};

/* ---- names ---- */

static void name_of(const struct tern_ckpt_file *file, char out[96])
{
    snprintf(out, 96, "%s.%s", file->name, file->xxh3);
}

static void key_of(int64_t step, const char *name, char out[TERN_STORE_KEY_BYTES])
{
    snprintf(out, TERN_STORE_KEY_BYTES, "step-%08" PRId64 "/%s", step, name);
}

/* ---- what there is ---- */

static tern_status keep_object(void *context, const char *key, const struct tern_store_info *info)
{
    struct objects *objects = context;
    const char *slash = strchr(key, '/');
    char folder[32];
    if (slash == NULL || (size_t)(slash - key) >= sizeof folder || strlen(slash + 1) >= 96) {
        return TERN_OK; /* not ours */
    }
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - key), key);
    int64_t step = tern_ckpt_step_of(folder);
    if (step < 0) {
        return TERN_OK;
    }
    if (objects->count == objects->capacity) {
        int64_t capacity = objects->capacity > 0 ? objects->capacity * 2 : 64;
        struct object *rows =
            capacity > OBJECTS_MAX
                ? NULL
                : tern_realloc("remote list", objects->rows, (size_t)capacity * sizeof *rows);
        if (rows == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "more than %" PRId64 " objects in the store",
                             objects->count);
        }
        objects->rows = rows;
        objects->capacity = capacity;
    }
    struct object *object = &objects->rows[objects->count++];
    *object = (struct object){.step = step, .bytes = info->bytes};
    strcpy(object->name, slash + 1);
    return TERN_OK;
}

static int compare_objects(const void *a, const void *b)
{
    const struct object *left = a, *right = b;
    return left->step != right->step ? (left->step < right->step ? -1 : 1)
                                     : strcmp(left->name, right->name);
}

/* prefix: "step-" or of one step. Fini also after a failure. */
static tern_status list_objects(struct tern_store *store, const char *prefix, struct objects *out)
{
    *out = (struct objects){0};
    TERN_RETURN_IF_ERR(tern_store_list(store, prefix, keep_object, out));
    if (out->count > 0) {
        qsort(out->rows, (size_t)out->count, sizeof *out->rows, compare_objects);
    }
    return TERN_OK;
}

static void objects_fini(struct objects *objects)
{
    tern_free(objects->rows);
    *objects = (struct objects){0};
}

static const struct object *find_object(const struct objects *objects,
                                        int64_t step,
                                        const char *name)
{
    struct object key = {.step = step};
    snprintf(key.name, sizeof key.name, "%s", name);
    return objects->count == 0 ? NULL
                               : bsearch(&key, objects->rows, (size_t)objects->count,
                                         sizeof *objects->rows, compare_objects);
}

/* Index of the first object of the next step. */
static int64_t end_of_step(const struct objects *objects, int64_t first)
{
    int64_t end = first;
    while (end < objects->count && objects->rows[end].step == objects->rows[first].step) {
        end++;
    }
    return end;
}

static tern_status check_sizes(const struct tern_store *store,
                               const struct objects *objects,
                               const struct tern_ckpt_manifest *manifest,
                               int file_count)
{
    for (int i = 0; i < file_count; i++) {
        const struct tern_ckpt_file *file = &manifest->files[i];
        char name[96];
        name_of(file, name);
        const struct object *object = find_object(objects, manifest->step, name);
        if (object == NULL || object->bytes != file->bytes) {
            return tern_fail(TERN_ERR_CORRUPT,
                             "%s/step-%08" PRId64 "/%s %s%" PRId64 " bytes, expected %" PRId64,
                             tern_store_url(store), manifest->step, name,
                             object == NULL ? "is missing: " : "has ",
                             object == NULL ? 0 : object->bytes, file->bytes);
        }
    }
    return TERN_OK;
}

/* The manifest of a step, checked; text_out, if not NULL, gets its bytes (tern_free). */
static tern_status get_manifest(struct tern_store *store,
                                int64_t step,
                                struct tern_ckpt_manifest *out,
                                char **text_out,
                                size_t *bytes_out)
{
    char key[TERN_STORE_KEY_BYTES], name[TERN_STORE_URL_BYTES + 64];
    char *text, *copy = NULL;
    size_t bytes;
    *out = (struct tern_ckpt_manifest){0};
    key_of(step, TERN_CKPT_MANIFEST, key);
    snprintf(name, sizeof name, "%s/%s", tern_store_url(store), key);
    TERN_RETURN_IF_ERR(tern_store_get_all(store, key, MANIFEST_BYTES_MAX, &text, &bytes));
    if (text_out != NULL) {
        copy = tern_alloc("remote manifest", bytes + 1);
        if (copy == NULL) {
            tern_free(text);
            return tern_fail(TERN_ERR_MEMORY, "no memory for a manifest of %zu bytes", bytes);
        }
        memcpy(copy, text, bytes);
        *bytes_out = bytes;
    }
    tern_status status = tern_ckpt_manifest_parse(name, text, bytes, out);
    if (status == TERN_OK && out->step != step) {
        status = tern_fail(TERN_ERR_CORRUPT, "'%s' is of step %" PRId64, name, out->step);
    }
    tern_free(text);
    if (status != TERN_OK) {
        tern_ckpt_manifest_fini(out);
        tern_free(copy);
        return status;
    }
    if (text_out != NULL) {
        *text_out = copy;
    }
    return TERN_OK;
}

/* Manifest and sizes; TERN_ERR_CORRUPT where they are not right, other statuses where the store
 * could not be asked. */
static tern_status describe(struct tern_store *store,
                            const struct objects *objects,
                            int64_t step,
                            struct tern_ckpt_entry *entry)
{
    struct tern_ckpt_manifest manifest;
    *entry = (struct tern_ckpt_entry){.step = step};
    tern_status status = get_manifest(store, step, &manifest, NULL, NULL);
    if (status == TERN_OK) {
        status = check_sizes(store, objects, &manifest, manifest.file_count);
    }
    for (int i = 0; i < manifest.file_count; i++) {
        entry->bytes += manifest.files[i].bytes;
    }
    entry->ranks = manifest.ranks;
    entry->is_good = status == TERN_OK;
    snprintf(entry->time, sizeof entry->time, "%s", manifest.time);
    snprintf(entry->fault, sizeof entry->fault, "%.*s", (int)sizeof entry->fault - 1,
             status == TERN_OK ? "" : tern_detail());
    tern_ckpt_manifest_fini(&manifest);
    return status;
}

static bool is_bad_content(tern_status status)
{
    return status == TERN_ERR_CORRUPT || status == TERN_ERR_NOT_FOUND;
}

tern_status tern_remote_list(struct tern_store *store,
                             struct tern_ckpt_entry *entries,
                             int capacity,
                             int *count_out)
{
    struct objects objects;
    int count = 0;
    tern_status status = list_objects(store, "step-", &objects);
    for (int64_t i = 0; i < objects.count && status == TERN_OK; i = end_of_step(&objects, i)) {
        int64_t step = objects.rows[i].step;
        if (find_object(&objects, step, TERN_CKPT_MANIFEST) == NULL) {
            continue;
        }
        if (count < capacity) {
            status = describe(store, &objects, step, &entries[count]);
            status = is_bad_content(status) ? TERN_OK : status;
        }
        count++;
    }
    objects_fini(&objects);
    *count_out = count;
    return status;
}

tern_status tern_remote_find(struct tern_store *store, int64_t *step_out)
{
    struct objects objects;
    struct tern_ckpt_entry entry;
    int damaged = 0;
    bool is_found = false;
    tern_status status = list_objects(store, "step-", &objects);
    for (int64_t i = objects.count - 1; i >= 0 && status == TERN_OK && !is_found; i--) {
        if (strcmp(objects.rows[i].name, TERN_CKPT_MANIFEST) != 0) {
            continue;
        }
        status = describe(store, &objects, objects.rows[i].step, &entry);
        is_found = status == TERN_OK;
        if (is_bad_content(status)) {
            tern_log_warn("passed over: %s", entry.fault);
            damaged++;
            status = TERN_OK;
        }
    }
    objects_fini(&objects);
    TERN_RETURN_IF_ERR(status);
    if (is_found) {
        *step_out = entry.step;
        return TERN_OK;
    }
    return damaged > 0
               ? tern_fail(TERN_ERR_CORRUPT, "none of the %d checkpoints in %s is good", damaged,
                           tern_store_url(store))
               : tern_fail(TERN_ERR_NOT_FOUND, "%s holds no checkpoint", tern_store_url(store));
}

/* ---- up ---- */

tern_status tern_remote_push(struct tern_store *store,
                             int64_t step,
                             const char *path,
                             const struct tern_ckpt_file *file,
                             int64_t *sent_out)
{
    char key[TERN_STORE_KEY_BYTES], name[96];
    struct tern_store_info info;
    int64_t bytes;
    name_of(file, name);
    key_of(step, name, key);
    if (sent_out != NULL) {
        *sent_out = 0;
    }
    TERN_RETURN_IF_ERR(tern_file_size(path, &bytes));
    if (bytes != file->bytes) {
        return tern_fail(TERN_ERR_CORRUPT, "'%s' has %" PRId64 " bytes, expected %" PRId64, path,
                         bytes, file->bytes);
    }
    tern_status status = tern_store_head(store, key, &info);
    if (status == TERN_OK && info.bytes == file->bytes) {
        return TERN_OK;
    }
    if (status != TERN_OK && status != TERN_ERR_NOT_FOUND) {
        return status;
    }
    TERN_RETURN_IF_ERR(tern_store_put_file(store, key, path));
    if (sent_out != NULL) {
        *sent_out = bytes;
    }
    return TERN_OK;
}

static tern_status check_there(struct tern_store *store, const struct tern_ckpt_manifest *manifest)
{
    char prefix[TERN_STORE_KEY_BYTES];
    struct objects objects;
    key_of(manifest->step, "", prefix);
    tern_status status = list_objects(store, prefix, &objects);
    if (status == TERN_OK) {
        status = check_sizes(store, &objects, manifest, manifest->file_count);
    }
    objects_fini(&objects);
    return status;
}

tern_status tern_remote_commit(struct tern_store *store,
                               int64_t step,
                               const char *folder,
                               int64_t *bytes_out)
{
    char path[TERN_PATH_BYTES], key[TERN_STORE_KEY_BYTES];
    struct tern_ckpt_manifest manifest;
    char *text = NULL;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_ckpt_manifest_read(folder, &manifest));
    tern_status status;
    const struct tern_ckpt_file *view = &manifest.files[manifest.ranks];
    TERN_GOTO_IF_ERR(status, tern_path_join(path, folder, view->name), out);
    TERN_GOTO_IF_ERR(status, tern_remote_push(store, step, path, view, NULL), out);
    TERN_GOTO_IF_ERR(status, check_there(store, &manifest), out);
    TERN_GOTO_IF_ERR(status, tern_path_join(path, folder, TERN_CKPT_MANIFEST), out);
    TERN_GOTO_IF_ERR(status, tern_file_read(path, MANIFEST_BYTES_MAX, &text, &bytes), out);
    TERN_GOTO_IF_ERR(status,
                     tern_ckpt_fault(TERN_FAULT_STORE_MANIFEST, tern_store_url(store), step), out);
    key_of(step, TERN_CKPT_MANIFEST, key);
    status = tern_store_put(store, key, text, bytes, true);
    *bytes_out = 0;
    for (int i = 0; i < manifest.file_count; i++) {
        *bytes_out += manifest.files[i].bytes;
    }
out:
    tern_free(text);
    tern_ckpt_manifest_fini(&manifest);
    return status;
}

/* ---- down ---- */

static tern_status pull_file(struct tern_store *store,
                             int64_t step,
                             const char *folder,
                             const struct tern_ckpt_file *file)
{
    char path[TERN_PATH_BYTES], key[TERN_STORE_KEY_BYTES], name[96];
    name_of(file, name);
    key_of(step, name, key);
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, file->name));
    if (tern_file_exists(path) && tern_ckpt_check_file(folder, file, true) == TERN_OK) {
        return TERN_OK; /* of an earlier pull */
    }
    TERN_RETURN_IF_ERR(tern_store_get_file(store, key, path, NULL));
    return tern_ckpt_check_file(folder, file, false);
}

/* The folder to pull into: there, and not a checkpoint. *is_done_out: a good one is there. */
static tern_status make_room(const char *run_dir,
                             int64_t step,
                             char folder[TERN_PATH_BYTES],
                             bool *is_done_out)
{
    TERN_RETURN_IF_ERR(tern_ckpt_folder(run_dir, step, folder));
    *is_done_out = false;
    if (tern_ckpt_is_committed(folder)) {
        *is_done_out = tern_ckpt_verify(folder) == TERN_OK;
        if (*is_done_out) {
            return TERN_OK;
        }
        tern_log_warn("'%s' is damaged and is replaced: %s", folder, tern_detail());
        TERN_RETURN_IF_ERR(tern_file_remove_tree(folder));
    }
    return tern_file_make_folder(folder);
}

tern_status tern_remote_pull(struct tern_store *store,
                             int64_t step,
                             const char *run_dir,
                             int64_t *bytes_out)
{
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    struct tern_ckpt_manifest manifest;
    char *text = NULL;
    size_t bytes = 0;
    bool is_done;
    *bytes_out = 0;
    TERN_RETURN_IF_ERR(make_room(run_dir, step, folder, &is_done));
    if (is_done) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(get_manifest(store, step, &manifest, &text, &bytes));
    tern_status status = TERN_OK;
    for (int i = 0; i < manifest.file_count && status == TERN_OK; i++) {
        status = pull_file(store, step, folder, &manifest.files[i]);
        *bytes_out += manifest.files[i].bytes;
    }
    if (status == TERN_OK) {
        status = tern_path_join(path, folder, TERN_CKPT_MANIFEST);
    }
    if (status == TERN_OK) {
        status = tern_file_replace(path, text, bytes);
    }
    if (status == TERN_OK) {
        status = tern_ckpt_point_latest(run_dir, step);
    }
    tern_free(text);
    tern_ckpt_manifest_fini(&manifest);
    return status;
}

/* ---- verify ---- */

static tern_status hash_object(struct tern_store *store,
                               const char *key,
                               const struct tern_ckpt_file *file,
                               struct tern_hash *hash,
                               char *buffer)
{
    char found[TERN_HASH_HEX_BYTES];
    struct tern_store_info info;
    TERN_RETURN_IF_ERR(tern_store_head(store, key, &info));
    if (info.bytes != file->bytes) {
        return tern_fail(TERN_ERR_CORRUPT, "%s/%s has %" PRId64 " bytes, expected %" PRId64,
                         tern_store_url(store), key, info.bytes, file->bytes);
    }
    tern_hash_reset(hash);
    for (int64_t at = 0; at < info.bytes;) {
        int64_t left = info.bytes - at;
        size_t bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        TERN_RETURN_IF_ERR(tern_store_get(store, key, at, bytes, info.etag, buffer));
        tern_hash_update(hash, buffer, bytes);
        at += (int64_t)bytes;
    }
    tern_hash_hex(hash, found);
    return strcmp(found, file->xxh3) == 0
               ? TERN_OK
               : tern_fail(TERN_ERR_CORRUPT, "%s/%s is damaged: its XXH3-128 is %s, expected %s",
                           tern_store_url(store), key, found, file->xxh3);
}

tern_status tern_remote_verify(struct tern_store *store, int64_t step)
{
    struct tern_ckpt_manifest manifest;
    struct tern_hash *hash = NULL;
    TERN_RETURN_IF_ERR(get_manifest(store, step, &manifest, NULL, NULL));
    char *buffer = tern_alloc("remote verify", PIECE_BYTES);
    tern_status status = buffer != NULL ? tern_hash_create(&hash)
                                        : tern_fail(TERN_ERR_MEMORY, "no memory to verify");
    for (int i = 0; i < manifest.file_count && status == TERN_OK; i++) {
        char key[TERN_STORE_KEY_BYTES], name[96];
        name_of(&manifest.files[i], name);
        key_of(step, name, key);
        status = hash_object(store, key, &manifest.files[i], hash, buffer);
    }
    tern_hash_destroy(hash);
    tern_free(buffer);
    tern_ckpt_manifest_fini(&manifest);
    return status;
}

/* ---- what may go ---- */

static tern_status remove_object(struct tern_store *store, const struct object *object)
{
    char key[TERN_STORE_KEY_BYTES];
    key_of(object->step, object->name, key);
    return tern_store_remove(store, key);
}

/* Objects [first, end) of one step; the manifest first: from then on there is no checkpoint. */
static tern_status remove_step(struct tern_store *store,
                               const struct objects *objects,
                               int64_t first,
                               int64_t end)
{
    const struct object *manifest =
        find_object(objects, objects->rows[first].step, TERN_CKPT_MANIFEST);
    if (manifest != NULL) {
        TERN_RETURN_IF_ERR(remove_object(store, manifest));
    }
    for (int64_t i = first; i < end; i++) {
        if (&objects->rows[i] != manifest) {
            TERN_RETURN_IF_ERR(remove_object(store, &objects->rows[i]));
        }
    }
    return TERN_OK;
}

tern_status tern_remote_prune(struct tern_store *store, int keep, int *removed_out)
{
    struct objects objects;
    int good = 0;
    *removed_out = 0;
    tern_status status = list_objects(store, "step-", &objects);
    for (int64_t end = objects.count; end > 0 && status == TERN_OK;) {
        int64_t first = end - 1;
        int64_t step = objects.rows[first].step;
        while (first > 0 && objects.rows[first - 1].step == step) {
            first--;
        }
        if (find_object(&objects, step, TERN_CKPT_MANIFEST) == NULL) {
            end = first;
            continue; /* under way, or clean's business */
        }
        if (good >= keep) {
            status = remove_step(store, &objects, first, end);
            *removed_out += status == TERN_OK;
        } else {
            struct tern_ckpt_entry entry;
            status = describe(store, &objects, step, &entry);
            good += status == TERN_OK;
            status = is_bad_content(status) ? TERN_OK : status;
        }
        end = first;
    }
    objects_fini(&objects);
    return status;
}

/* Of a committed step: what its manifest does not name. */
static tern_status remove_strangers(struct tern_store *store,
                                    const struct objects *objects,
                                    int64_t first,
                                    int64_t end,
                                    int *removed)
{
    struct tern_ckpt_manifest manifest;
    tern_status status = get_manifest(store, objects->rows[first].step, &manifest, NULL, NULL);
    if (is_bad_content(status)) {
        return TERN_OK; /* damaged: prune's business */
    }
    TERN_RETURN_IF_ERR(status);
    for (int64_t i = first; i < end && status == TERN_OK; i++) {
        bool is_ours = strcmp(objects->rows[i].name, TERN_CKPT_MANIFEST) == 0;
        for (int k = 0; k < manifest.file_count && !is_ours; k++) {
            char name[96];
            name_of(&manifest.files[k], name);
            is_ours = strcmp(objects->rows[i].name, name) == 0;
        }
        if (!is_ours) {
            status = remove_object(store, &objects->rows[i]);
            *removed += status == TERN_OK;
        }
    }
    tern_ckpt_manifest_fini(&manifest);
    return status;
}

tern_status tern_remote_clean(struct tern_store *store, int64_t below, int *removed_out)
{
    struct objects objects;
    int uploads = 0;
    *removed_out = 0;
    tern_status status = list_objects(store, "step-", &objects);
    for (int64_t i = 0; i < objects.count && status == TERN_OK;) {
        int64_t end = end_of_step(&objects, i);
        int64_t step = objects.rows[i].step;
        if (step < below && find_object(&objects, step, TERN_CKPT_MANIFEST) == NULL) {
            status = remove_step(store, &objects, i, end);
            *removed_out += (int)(end - i);
        } else if (step < below) {
            status = remove_strangers(store, &objects, i, end, removed_out);
        }
        i = end;
    }
    objects_fini(&objects);
    if (status == TERN_OK && below == INT64_MAX) {
        status = tern_store_remove_uploads(store, "step-", &uploads);
        *removed_out += uploads;
    }
    return status;
}
