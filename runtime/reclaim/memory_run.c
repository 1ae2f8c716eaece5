/* memory_run.c - the id of a run, and the launches whose memory is its own. */
#include "runtime/reclaim/memory_run.h"

#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

enum {
    ID_DIGITS = 16,
    FILE_BYTES_MAX = 4096
};

tern_status tern_memory_run_key(const char *run_dir, uint64_t *out)
{
    char path[TERN_PATH_BYTES];
    struct stat info;
    char *id = NULL;
    size_t bytes = 0;
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "id"));
    TERN_RETURN_IF_ERR(tern_file_read(path, FILE_BYTES_MAX, &id, &bytes));
    tern_status status = TERN_OK;
    if (bytes != ID_DIGITS + 1 || strspn(id, "0123456789abcdef") != ID_DIGITS) {
        status =
            tern_fail(TERN_ERR_CORRUPT, "'%s': expected %d hexadecimal digits", path, ID_DIGITS);
    } else if (stat(path, &info) != 0) {
        status = tern_fail_errno(TERN_ERR_IO, errno, "cannot look at '%s'", path);
    } else {
        *out = tern_hash_u64(id, ID_DIGITS, (uint64_t)info.st_ino);
    }
    tern_free(id);
    return status;
}

static tern_status make_id(const char *run_dir)
{
    char path[TERN_PATH_BYTES];
    char text[ID_DIGITS + 2];
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
        return tern_fail_errno(TERN_ERR_STATE, errno, "cannot draw an id for the run");
    }
    snprintf(text, sizeof text, "%016llx\n", (unsigned long long)number);
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "id"));
    return tern_file_replace(path, text, ID_DIGITS + 1);
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

tern_status tern_memory_run_open(const char *run_dir,
                                 const char *launch,
                                 struct tern_memory_run *out)
{
    char absolute[TERN_PATH_BYTES];
    *out = (struct tern_memory_run){0};
    tern_status status = tern_memory_run_key(run_dir, &out->key.run);
    if (status == TERN_ERR_NOT_FOUND || status == TERN_ERR_CORRUPT) {
        TERN_RETURN_IF_ERR(make_id(run_dir));
        status = tern_memory_run_key(run_dir, &out->key.run);
    }
    TERN_RETURN_IF_ERR(status);
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

bool tern_memory_run_trusts(const struct tern_memory_run *run, const char *launch)
{
    for (int i = 0; i < TERN_MEMORY_TRUSTED_MAX; i++) {
        if (run->trusted[i][0] != '\0' && strcmp(run->trusted[i], launch) == 0) {
            return true;
        }
    }
    return false;
}
