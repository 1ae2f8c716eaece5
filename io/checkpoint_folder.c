/* checkpoint_folder.c - the folder of checkpoints: which there are, which is the newest good one,
 * what may go. */
#include "io/checkpoint_parts.h"
#include "io/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TRUSTED_MAX = 256,
    KEEP_MIN = 2,
    LATEST_BYTES = 48
};

/* ---- names ---- */

tern_status tern_ckpt_root(const char *run_dir, char out[TERN_PATH_BYTES])
{
    return tern_path_join(out, run_dir, "ckpt");
}

tern_status tern_ckpt_folder(const char *run_dir, int64_t step, char out[TERN_PATH_BYTES])
{
    char name[48];
    snprintf(name, sizeof name, "ckpt/step-%08lld", (long long)step);
    return tern_path_join(out, run_dir, name);
}

tern_status tern_ckpt_folder_new(const char *run_dir, int64_t step, char out[TERN_PATH_BYTES])
{
    TERN_RETURN_IF_ERR(tern_ckpt_folder(run_dir, step, out));
    if (!tern_ckpt_is_committed(out)) {
        return TERN_OK;
    }
    char name[48];
    snprintf(name, sizeof name, "ckpt/step-%08lld.new", (long long)step);
    return tern_path_join(out, run_dir, name);
}

int64_t tern_ckpt_step_of(const char *name)
{
    char again[48];
    if (strncmp(name, "step-", 5) != 0 || strlen(name) > 24) {
        return -1;
    }
    char *end;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    snprintf(again, sizeof again, "step-%08lld", step);
    return errno == 0 && step >= 0 && strcmp(again, name) == 0 ? (int64_t)step : -1;
}

bool tern_ckpt_is_committed(const char *ckpt_dir)
{
    char path[TERN_PATH_BYTES];
    return tern_path_join(path, ckpt_dir, TERN_CKPT_MANIFEST) == TERN_OK && tern_file_exists(path);
}

tern_status tern_ckpt_fault(enum tern_fault_point point, const char *run_dir, int64_t step)
{
    int error = tern_file_fault(point);
    return error == 0 ? TERN_OK
                      : tern_fail_errno(TERN_ERR_IO, error,
                                        "'%s': checkpoint of step %lld (fault point %s)", run_dir,
                                        (long long)step, tern_fault_point_name(point));
}

tern_status tern_ckpt_lock(const char *run_dir, struct tern_lock *out)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "lock"));
    tern_status status = tern_lock_take(path, out);
    if (status == TERN_ERR_BUSY) {
        return tern_fail_prefix(
            status, "run directory '%s' is in use; stop that run or choose another directory",
            run_dir);
    }
    return status;
}

/* ---- files ---- */

/* Files that this process has hashed: found again by identity, so that finding a checkpoint and
 * opening it reads it once. */
static struct trusted {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified, changed;
    char xxh3[TERN_HASH_HEX_BYTES];
} g_trusted[TRUSTED_MAX];
static int g_trusted_next;
static pthread_mutex_t g_trusted_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_same(const struct trusted *entry, const struct stat *info, const char *xxh3)
{
    return entry->device == info->st_dev && entry->inode == info->st_ino &&
           entry->bytes == info->st_size &&
           memcmp(&entry->modified, &info->st_mtim, sizeof info->st_mtim) == 0 &&
           memcmp(&entry->changed, &info->st_ctim, sizeof info->st_ctim) == 0 &&
           strcmp(entry->xxh3, xxh3) == 0;
}

static bool is_trusted(const struct stat *info, const char *xxh3)
{
    bool found = false;
    pthread_mutex_lock(&g_trusted_lock);
    for (int i = 0; i < TRUSTED_MAX && !found; i++) {
        found = is_same(&g_trusted[i], info, xxh3);
    }
    pthread_mutex_unlock(&g_trusted_lock);
    return found;
}

static void trust(const struct stat *info, const char *xxh3)
{
    pthread_mutex_lock(&g_trusted_lock);
    struct trusted *entry = &g_trusted[g_trusted_next++ % TRUSTED_MAX];
    *entry = (struct trusted){info->st_dev,  info->st_ino,  info->st_size,
                              info->st_mtim, info->st_ctim, ""};
    snprintf(entry->xxh3, sizeof entry->xxh3, "%s", xxh3);
    pthread_mutex_unlock(&g_trusted_lock);
}

/* Existence and size. */
static tern_status stat_file(const char *path, const struct tern_ckpt_file *file, struct stat *info)
{
    if (stat(path, info) != 0) {
        return errno == ENOENT ? tern_fail(TERN_ERR_CORRUPT, "'%s' is missing", path)
                               : tern_fail_errno(TERN_ERR_IO, errno, "cannot read '%s'", path);
    }
    if (info->st_size != file->bytes) {
        return tern_fail(TERN_ERR_CORRUPT, "'%s' has %lld bytes, expected %lld", path,
                         (long long)info->st_size, (long long)file->bytes);
    }
    return TERN_OK;
}

tern_status tern_ckpt_check_file(const char *ckpt_dir,
                                 const struct tern_ckpt_file *file,
                                 bool may_trust)
{
    char path[TERN_PATH_BYTES], found[TERN_HASH_HEX_BYTES];
    struct stat info;
    TERN_RETURN_IF_ERR(tern_path_join(path, ckpt_dir, file->name));
    TERN_RETURN_IF_ERR(stat_file(path, file, &info));
    if (may_trust && is_trusted(&info, file->xxh3)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_hash_file(path, found));
    if (strcmp(found, file->xxh3) != 0) {
        return tern_fail(TERN_ERR_CORRUPT, "'%s' is damaged: its XXH3-128 is %s, expected %s", path,
                         found, file->xxh3);
    }
    trust(&info, file->xxh3);
    return TERN_OK;
}

/* ---- which there are ---- */

static int compare_steps(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

/* Steps of committed checkpoints, ascending; tern_free. None when there is no folder. */
static tern_status committed_steps(const char *run_dir, int64_t **steps_out, int *count_out)
{
    char root[TERN_PATH_BYTES], folder[TERN_PATH_BYTES];
    char **names = NULL;
    int count = 0, kept = 0;
    TERN_RETURN_IF_ERR(tern_ckpt_root(run_dir, root));
    tern_status status = tern_file_list(root, &names, &count);
    if (status != TERN_OK && status != TERN_ERR_NOT_FOUND) {
        return status;
    }
    int64_t *steps = tern_alloc("checkpoint list", ((size_t)count + 1) * sizeof *steps);
    if (steps == NULL) {
        tern_free(names);
        return tern_fail(TERN_ERR_MEMORY, "no memory to list '%s'", root);
    }
    for (int i = 0; i < count; i++) {
        if (tern_ckpt_step_of(names[i]) >= 0 && tern_path_join(folder, root, names[i]) == TERN_OK &&
            tern_ckpt_is_committed(folder)) {
            steps[kept++] = tern_ckpt_step_of(names[i]);
        }
    }
    tern_free(names);
    qsort(steps, (size_t)kept, sizeof *steps, compare_steps);
    *steps_out = steps;
    *count_out = kept;
    return TERN_OK;
}

/* Manifest and sizes. */
static void describe(const char *run_dir, int64_t step, struct tern_ckpt_entry *entry)
{
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    struct tern_ckpt_manifest manifest = {0};
    *entry = (struct tern_ckpt_entry){.step = step};
    tern_status status = tern_ckpt_folder(run_dir, step, folder);
    if (status == TERN_OK) {
        status = tern_ckpt_manifest_read(folder, &manifest);
    }
    for (int i = 0; i < manifest.file_count && status == TERN_OK; i++) {
        struct stat info;
        status = tern_path_join(path, folder, manifest.files[i].name);
        if (status == TERN_OK) {
            status = stat_file(path, &manifest.files[i], &info);
        }
        entry->bytes += manifest.files[i].bytes;
    }
    entry->ranks = manifest.ranks;
    entry->is_good = status == TERN_OK;
    snprintf(entry->time, sizeof entry->time, "%s", manifest.time);
    snprintf(entry->fault, sizeof entry->fault, "%.*s", (int)sizeof entry->fault - 1,
             status == TERN_OK ? "" : tern_detail());
    tern_ckpt_manifest_fini(&manifest);
}

tern_status tern_ckpt_list(const char *run_dir,
                           struct tern_ckpt_entry *entries,
                           int capacity,
                           int *count_out)
{
    int64_t *steps;
    int count;
    TERN_RETURN_IF_ERR(committed_steps(run_dir, &steps, &count));
    for (int i = 0; i < count && i < capacity; i++) {
        describe(run_dir, steps[i], &entries[i]);
    }
    tern_free(steps);
    *count_out = count;
    return TERN_OK;
}

/* The newest of steps[0, count) that verifies: its index, or -1. Damaged ones are named. Only a
 * lack of memory is an error: whatever else keeps a checkpoint from being read makes it not good.
 */
static tern_status newest_good(const char *run_dir, const int64_t *steps, int count, int *index_out)
{
    char folder[TERN_PATH_BYTES];
    *index_out = -1;
    for (int i = count - 1; i >= 0; i--) {
        TERN_RETURN_IF_ERR(tern_ckpt_folder(run_dir, steps[i], folder));
        tern_status status = tern_ckpt_verify(folder);
        if (status == TERN_OK) {
            *index_out = i;
            return TERN_OK;
        }
        if (status == TERN_ERR_MEMORY) {
            return status;
        }
        tern_log_warn("checkpoint of step %lld is damaged and skipped: %s", (long long)steps[i],
                      tern_detail());
    }
    return TERN_OK;
}

tern_status tern_ckpt_find(const char *run_dir,
                           char path_out[TERN_CKPT_PATH_BYTES],
                           int64_t *step_out)
{
    int64_t *steps;
    int count, index;
    TERN_RETURN_IF_ERR(committed_steps(run_dir, &steps, &count));
    tern_status status = newest_good(run_dir, steps, count, &index);
    if (status == TERN_OK && index >= 0) {
        *step_out = steps[index];
        status = tern_ckpt_folder(run_dir, steps[index], path_out);
    } else if (status == TERN_OK && count == 0) {
        status = tern_fail(TERN_ERR_NOT_FOUND, "'%s' has no checkpoint", run_dir);
    } else if (status == TERN_OK) {
        status = tern_fail(TERN_ERR_CORRUPT, "'%s' has %d checkpoint%s and none is good", run_dir,
                           count, count == 1 ? "" : "s");
    }
    tern_free(steps);
    return status;
}

/* ---- what may go ---- */

/* First the manifest, durably: half a folder is a leftover, never a checkpoint. */
static tern_status remove_checkpoint(const char *run_dir, int64_t step)
{
    char folder[TERN_PATH_BYTES], manifest[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_ckpt_fault(TERN_FAULT_CKPT_PRUNE, run_dir, step));
    TERN_RETURN_IF_ERR(tern_ckpt_folder(run_dir, step, folder));
    TERN_RETURN_IF_ERR(tern_path_join(manifest, folder, TERN_CKPT_MANIFEST));
    TERN_RETURN_IF_ERR(tern_file_remove(manifest));
    TERN_RETURN_IF_ERR(tern_file_sync_folder(folder));
    return tern_file_remove_tree(folder);
}

/* Removes all of steps[0, count) but the last keep and the good one. */
static tern_status remove_all_but(const char *run_dir,
                                  const int64_t *steps,
                                  int count,
                                  int keep,
                                  int64_t good_step,
                                  int *removed_out)
{
    keep = keep < KEEP_MIN ? KEEP_MIN : keep;
    *removed_out = 0;
    for (int i = 0; i < count - keep; i++) {
        if (steps[i] != good_step) {
            TERN_RETURN_IF_ERR(remove_checkpoint(run_dir, steps[i]));
            ++*removed_out;
        }
    }
    return TERN_OK;
}

tern_status tern_ckpt_prune(const char *run_dir, int keep, int *removed_out)
{
    int64_t *steps;
    int count, good = -1;
    *removed_out = 0;
    TERN_RETURN_IF_ERR(committed_steps(run_dir, &steps, &count));
    tern_status status = TERN_OK;
    if (count > (keep < KEEP_MIN ? KEEP_MIN : keep)) {
        status = newest_good(run_dir, steps, count, &good);
        if (status == TERN_OK && good < 0) {
            status = tern_fail(TERN_ERR_CORRUPT,
                               "'%s': none of %d checkpoints is good, nothing is removed", run_dir,
                               count);
        }
        if (status == TERN_OK) {
            status = remove_all_but(run_dir, steps, count, keep, steps[good], removed_out);
        }
    }
    tern_free(steps);
    return status;
}

tern_status tern_ckpt_prune_behind(const char *run_dir,
                                   int64_t good_step,
                                   int keep,
                                   int *removed_out)
{
    int64_t *steps;
    int count, older = 0;
    *removed_out = 0;
    TERN_RETURN_IF_ERR(committed_steps(run_dir, &steps, &count));
    while (older < count && steps[older] <= good_step) {
        older++;
    }
    tern_status status = remove_all_but(run_dir, steps, older, keep, good_step, removed_out);
    tern_free(steps);
    return status;
}

/* ---- leftovers ---- */

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), tail = strlen(suffix);
    return length >= tail && strcmp(name + length - tail, suffix) == 0;
}

/* Temporary files inside a committed checkpoint. */
static tern_status clean_committed(const char *folder)
{
    char path[TERN_PATH_BYTES];
    char **names;
    int count;
    TERN_RETURN_IF_ERR(tern_file_list(folder, &names, &count));
    tern_status status = TERN_OK;
    for (int i = 0; i < count && status == TERN_OK; i++) {
        if (ends_with(names[i], ".tmp")) {
            status = tern_path_join(path, folder, names[i]);
            if (status == TERN_OK) {
                status = tern_file_remove(path);
            }
        }
    }
    tern_free(names);
    return status;
}

/* "step-N.new" never became step N; "step-N.old" was step N, and still is when a crash came between
 * the two renames that replace a checkpoint where folders cannot be exchanged. */
static tern_status clean_swapped(const char *root, const char *name, const char *path)
{
    char base[64], target[TERN_PATH_BYTES];
    snprintf(base, sizeof base, "%.*s", (int)(strlen(name) - 4), name);
    TERN_RETURN_IF_ERR(tern_path_join(target, root, base));
    if (ends_with(name, ".old") && tern_ckpt_is_committed(path) &&
        !tern_ckpt_is_committed(target)) {
        TERN_RETURN_IF_ERR(tern_file_remove_tree(target));
        return tern_file_rename(path, target);
    }
    return tern_file_remove_tree(path);
}

static tern_status clean_entry(const char *root, const char *name, int64_t below)
{
    char path[TERN_PATH_BYTES], base[64];
    bool is_swapped =
        strlen(name) < sizeof base && (ends_with(name, ".new") || ends_with(name, ".old"));
    snprintf(base, sizeof base, "%.*s", is_swapped ? (int)(strlen(name) - 4) : (int)sizeof base - 1,
             name);
    int64_t step = tern_ckpt_step_of(base);
    TERN_RETURN_IF_ERR(tern_path_join(path, root, name));
    if (step >= 0 && step < below && tern_file_is_folder(path)) {
        if (is_swapped) {
            return clean_swapped(root, name, path);
        }
        return tern_ckpt_is_committed(path) ? clean_committed(path) : tern_file_remove_tree(path);
    }
    return step < 0 && ends_with(name, ".tmp") && below == INT64_MAX ? tern_file_remove(path)
                                                                     : TERN_OK;
}

tern_status tern_ckpt_clean_below(const char *run_dir, int64_t step)
{
    char root[TERN_PATH_BYTES];
    char **names;
    int count;
    TERN_RETURN_IF_ERR(tern_ckpt_root(run_dir, root));
    tern_status status = tern_file_list(root, &names, &count);
    if (status != TERN_OK) {
        return status == TERN_ERR_NOT_FOUND ? TERN_OK : status;
    }
    for (int i = 0; i < count && status == TERN_OK; i++) {
        status = clean_entry(root, names[i], step);
    }
    tern_free(names);
    return status;
}

/* ---- the newest by name ---- */

/* "step-00001200\n": what LATEST holds for a step. */
static int latest_line(int64_t step, char out[LATEST_BYTES])
{
    return snprintf(out, LATEST_BYTES, "step-%08lld\n", (long long)step);
}

static tern_status latest_path(const char *run_dir, char out[TERN_PATH_BYTES])
{
    TERN_RETURN_IF_ERR(tern_ckpt_root(run_dir, out));
    return tern_path_join(out, out, TERN_CKPT_LATEST);
}

tern_status tern_ckpt_point_latest(const char *run_dir, int64_t step)
{
    char path[TERN_PATH_BYTES], line[LATEST_BYTES];
    TERN_RETURN_IF_ERR(tern_ckpt_fault(TERN_FAULT_CKPT_LATEST, run_dir, step));
    TERN_RETURN_IF_ERR(latest_path(run_dir, path));
    int length = latest_line(step, line);
    return tern_file_replace(path, line, (size_t)length);
}

/* A commit whose last write failed left LATEST behind the checkpoint that it made. */
static tern_status mend_latest(const char *run_dir)
{
    char path[TERN_PATH_BYTES], line[LATEST_BYTES];
    char *found = NULL;
    size_t bytes;
    int64_t *steps;
    int count;
    TERN_RETURN_IF_ERR(latest_path(run_dir, path));
    TERN_RETURN_IF_ERR(committed_steps(run_dir, &steps, &count));
    int64_t newest = count > 0 ? steps[count - 1] : -1;
    tern_free(steps);
    if (newest < 0) {
        return tern_file_remove(path);
    }
    latest_line(newest, line);
    bool is_right =
        tern_file_read(path, LATEST_BYTES, &found, &bytes) == TERN_OK && strcmp(found, line) == 0;
    tern_free(found);
    return is_right ? TERN_OK : tern_ckpt_point_latest(run_dir, newest);
}

tern_status tern_ckpt_clean(const char *run_dir)
{
    TERN_RETURN_IF_ERR(tern_ckpt_clean_below(run_dir, INT64_MAX));
    return mend_latest(run_dir);
}
