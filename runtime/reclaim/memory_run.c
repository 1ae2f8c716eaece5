/* memory_run.c - the id or name of a run, and the launches whose memory is its own. */
#include "runtime/reclaim/memory_run.h"

#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

enum {
    ID_DIGITS = TERN_MEMORY_ID_BYTES - 1,
    NAME_BYTES = 65,
    FILE_BYTES_MAX = 4096
};

/* ---- the key ---- */

/* "": it has none. Whatever else the file is counts as a name nobody gives. */
static tern_status read_name(const char *run_dir, char out[NAME_BYTES])
{
    char path[TERN_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    out[0] = '\0';
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "name"));
    tern_status status = tern_file_read(path, FILE_BYTES_MAX, &text, &bytes);
    if (status == TERN_OK) {
        size_t length = strcspn(text, "\n");
        bool is_name = length > 0 && length < NAME_BYTES;
        snprintf(out, NAME_BYTES, "%.*s", is_name ? (int)length : 1, is_name ? text : "?");
    }
    tern_free(text);
    return status == TERN_ERR_NOT_FOUND ? TERN_OK : status;
}

/* Of a run with a name: nothing that only its own host has. */
static tern_status named_key(const char *run_dir, const char *name, uint64_t *out)
{
    char text[NAME_BYTES + TERN_PATH_BYTES];
    char absolute[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_absolute(absolute, run_dir));
    int length = snprintf(text, sizeof text, "%s\n%s", name, absolute);
    *out = tern_hash_u64(text, (size_t)length, 1);
    return TERN_OK;
}

tern_status tern_memory_run_id(const char *run_dir, char out[TERN_MEMORY_ID_BYTES])
{
    char path[TERN_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "id"));
    TERN_RETURN_IF_ERR(tern_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    tern_status status = TERN_OK;
    if (bytes != ID_DIGITS + 1 || strspn(text, "0123456789abcdef") != ID_DIGITS) {
        status =
            tern_fail(TERN_ERR_CORRUPT, "'%s': expected %d hexadecimal digits", path, ID_DIGITS);
    } else {
        snprintf(out, TERN_MEMORY_ID_BYTES, "%.*s", ID_DIGITS, text);
    }
    tern_free(text);
    return status;
}

static tern_status id_key(const char *run_dir, uint64_t *out)
{
    char path[TERN_PATH_BYTES], id[TERN_MEMORY_ID_BYTES];
    struct stat info;
    TERN_RETURN_IF_ERR(tern_memory_run_id(run_dir, id));
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "id"));
    if (stat(path, &info) != 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot look at '%s'", path);
    }
    *out = tern_hash_u64(id, ID_DIGITS, (uint64_t)info.st_ino);
    return TERN_OK;
}

tern_status tern_memory_run_key(const char *run_dir, uint64_t *out)
{
    char name[NAME_BYTES];
    TERN_RETURN_IF_ERR(read_name(run_dir, name));
    return name[0] != '\0' ? named_key(run_dir, name, out) : id_key(run_dir, out);
}

/* ---- opening ---- */

tern_status tern_memory_run_adopt(const char *run_dir, const char *id)
{
    char path[TERN_PATH_BYTES], text[TERN_MEMORY_ID_BYTES + 1];
    snprintf(text, sizeof text, "%s\n", id);
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "id"));
    return tern_file_replace(path, text, ID_DIGITS + 1);
}

/* If there is none, or what no launch writes. */
static tern_status make_id(const char *run_dir)
{
    char id[TERN_MEMORY_ID_BYTES];
    uint64_t number;
    tern_status status = tern_memory_run_id(run_dir, id);
    if (status != TERN_ERR_NOT_FOUND && status != TERN_ERR_CORRUPT) {
        return status;
    }
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
        return tern_fail_errno(TERN_ERR_STATE, errno, "cannot draw an id for the run");
    }
    snprintf(id, sizeof id, "%016llx", (unsigned long long)number);
    return tern_memory_run_adopt(run_dir, id);
}

static tern_status check_name(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t length = strlen(name);
    return length > 0 && length < NAME_BYTES && strspn(name, good) == length
               ? TERN_OK
               : tern_fail(TERN_ERR_USAGE,
                           "--run-id: found '%.80s', expected 1 to %d letters, digits, '.', '_' "
                           "or '-'",
                           name, NAME_BYTES - 1);
}

/* A name is for good: what lies in memory has it. */
static tern_status take_name(const char *run_dir, const char *name, bool has_begun)
{
    char old[NAME_BYTES], path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(check_name(name));
    TERN_RETURN_IF_ERR(read_name(run_dir, old));
    if (strcmp(name, old) == 0) {
        return TERN_OK;
    }
    if (old[0] != '\0' || has_begun) {
        return tern_fail(TERN_ERR_USAGE,
                         "--run-id: found '%s', but the run in %s began %s%s; go on with it "
                         "without --run-id, or choose another --run-dir",
                         name, run_dir, old[0] != '\0' ? "as " : "without one", old);
    }
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "name"));
    return tern_file_replace(path, name, strlen(name));
}

/* The lines of RUN/memory. Whatever else it is: nobody is trusted. */
static void read_trusted(const char *run_dir, struct tern_memory_run *run)
{
    char path[TERN_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    if (tern_path_join(path, run_dir, "memory") != TERN_OK ||
        tern_file_read(path, FILE_BYTES_MAX, &text, &bytes) != TERN_OK) {
        return;
    }
    char *rest = text;
    for (int i = 0; i < TERN_MEMORY_TRUSTED_MAX && rest != NULL; i++) {
        const char *line = strsep(&rest, "\n");
        snprintf(run->trusted[i], sizeof run->trusted[i], "%s", line);
    }
    tern_free(text);
}

/* The key, and what goes with a name. */
static tern_status find_key(const char *run_dir,
                            const struct tern_memory_name *name,
                            struct tern_memory_run *out)
{
    char path[TERN_PATH_BYTES], own[NAME_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "memory"));
    bool has_begun = tern_file_exists(path);
    if (name->name != NULL) {
        TERN_RETURN_IF_ERR(take_name(run_dir, name->name, has_begun));
    }
    TERN_RETURN_IF_ERR(read_name(run_dir, own));
    if (own[0] != '\0') {
        out->key.config = name->config;
        out->is_lost = !has_begun;
    }
    TERN_RETURN_IF_ERR(make_id(run_dir)); /* of one with a name, too: a bucket knows it by the id */
    return tern_memory_run_key(run_dir, &out->key.run);
}

tern_status tern_memory_run_open(const char *run_dir,
                                 const char *launch,
                                 const struct tern_memory_name *name,
                                 struct tern_memory_run *out)
{
    char absolute[TERN_PATH_BYTES];
    *out = (struct tern_memory_run){0};
    TERN_RETURN_IF_ERR(find_key(run_dir, name, out));
    TERN_RETURN_IF_ERR(tern_path_absolute(absolute, run_dir));
    if (strlen(absolute) >= sizeof out->key.owner) {
        return tern_fail(TERN_ERR_USAGE, "--run-dir: its path has %zu bytes, expected at most %zu",
                         strlen(absolute), sizeof out->key.owner - 1);
    }
    snprintf(out->key.owner, sizeof out->key.owner, "%.*s", (int)sizeof out->key.owner - 1,
             absolute);
    snprintf(out->key.launch, sizeof out->key.launch, "%s", launch);
    read_trusted(run_dir, out);
    return TERN_OK;
}

tern_status tern_memory_run_begin(const char *run_dir, const char *launch, const char *source)
{
    char path[TERN_PATH_BYTES];
    char text[2 * TERN_SEGMENT_LAUNCH_BYTES + 2];
    int length = snprintf(text, sizeof text, "%s\n%s%s", launch, source != NULL ? source : "",
                          source != NULL ? "\n" : "");
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "memory"));
    return tern_file_replace(path, text, (size_t)length);
}

bool tern_memory_run_trusts(const struct tern_memory_run *run, const struct tern_segment_head *head)
{
    if (run->is_lost) {
        return head->config == run->key.config;
    }
    for (int i = 0; i < TERN_MEMORY_TRUSTED_MAX; i++) {
        if (run->trusted[i][0] != '\0' && strcmp(run->trusted[i], head->launch) == 0) {
            return true;
        }
    }
    return false;
}
