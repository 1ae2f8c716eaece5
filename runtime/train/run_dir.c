/* run_dir.c - lock and launch records. */
#include "runtime/train/run_dir.h"

#include "io/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    RECORD_BYTES_MAX = 64 << 10,
    ROOM_BELOW_BYTES = 256 /* for names inside the run directory */
};

/* "20260131T235959.123Z-4711" */
static void invent_id(char out[TERN_LAUNCH_ID_BYTES])
{
    struct timespec now;
    struct tm utc;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y%m%dT%H%M%S", &utc);
    snprintf(out, TERN_LAUNCH_ID_BYTES, "%s.%03ldZ-%d", seconds, now.tv_nsec / 1000000,
             (int)getpid());
}

static bool is_record(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".json") == 0;
}

/* What a rank left that was killed while it wrote a record. */
static tern_status clean_launches(const char *folder)
{
    char path[TERN_PATH_BYTES];
    char **names;
    int count;
    TERN_RETURN_IF_ERR(tern_file_list(folder, &names, &count));
    tern_status status = TERN_OK;
    for (int i = 0; i < count && status == TERN_OK; i++) {
        if (!is_record(names[i])) {
            status = tern_path_join(path, folder, names[i]);
            status = status == TERN_OK ? tern_file_remove(path) : status;
        }
    }
    tern_free(names);
    return status;
}

tern_status tern_run_dir_open(struct tern_run_dir *run, const char *path, int ranks)
{
    *run = (struct tern_run_dir){.ranks = ranks};
    if (path[0] == '\0' || strlen(path) >= sizeof run->path - ROOM_BELOW_BYTES) {
        return tern_fail(TERN_ERR_USAGE, "--run-dir: found %zu bytes, expected 1 to %zu",
                         strlen(path), sizeof run->path - ROOM_BELOW_BYTES - 1);
    }
    char launches[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(launches, path, "launches"));
    tern_status status = tern_file_make_folder(launches);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "--run-dir '%s' cannot be used", path);
    }
    TERN_RETURN_IF_ERR(tern_ckpt_lock(path, &run->lock));
    run->is_locked = true;
    strcpy(run->path, path);
    invent_id(run->launch_id);
    return clean_launches(launches);
}

void tern_run_dir_close(struct tern_run_dir *run)
{
    if (run->is_locked) {
        tern_lock_drop(&run->lock);
        run->is_locked = false;
    }
}

static tern_status compose(const struct tern_run_dir *run,
                           const char *state,
                           int64_t step,
                           const char *reason,
                           struct tern_text *json)
{
    char time_text[TERN_RFC3339_BYTES];
    TERN_RETURN_IF_ERR(tern_text_printf(
        json, "{\"id\":\"%s\",\"state\":\"%s\",\"step\":%lld,\"ranks\":%d,\"reason\":",
        run->launch_id, state, (long long)step, run->ranks));
    TERN_RETURN_IF_ERR(tern_json_quote(json, reason, strlen(reason)));
    if (run->leaving[0] != '\0') {
        TERN_RETURN_IF_ERR(tern_text_printf(json, ",\"leaving\":"));
        TERN_RETURN_IF_ERR(tern_json_quote(json, run->leaving, strlen(run->leaving)));
    }
    return tern_text_printf(json, ",\"time\":\"%s\"}\n", tern_clock_rfc3339(time_text));
}

static tern_status record_path(const struct tern_run_dir *run, const char *end, char *out)
{
    char name[TERN_LAUNCH_ID_BYTES + 64];
    snprintf(name, sizeof name, "launches/%s%s", run->launch_id, end);
    return tern_path_join(out, run->path, name);
}

/* Ranks that lose the same peer write at the same moment: each makes the record under a name of its
 * own. */
static tern_status publish(const struct tern_run_dir *run, int rank, const struct tern_text *json)
{
    char path[TERN_PATH_BYTES];
    char own[TERN_PATH_BYTES];
    char end[32];
    snprintf(end, sizeof end, ".rank-%04d", rank);
    TERN_RETURN_IF_ERR(record_path(run, ".json", path));
    if (run->ranks == 1) {
        return tern_file_replace(path, json->data, json->length);
    }
    TERN_RETURN_IF_ERR(record_path(run, end, own));
    TERN_RETURN_IF_ERR(tern_file_replace(own, json->data, json->length));
    return tern_file_rename(own, path);
}

tern_status tern_run_dir_record(const struct tern_run_dir *run,
                                int rank,
                                const char *state,
                                int64_t step,
                                const char *reason)
{
    int error = tern_file_fault(TERN_FAULT_LAUNCH_RECORD);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s/launches/%s.json'", run->path,
                               run->launch_id);
    }
    struct tern_text json;
    tern_text_init(&json);
    tern_status status = compose(run, state, step, reason, &json);
    status = status == TERN_OK ? publish(run, rank, &json) : status;
    tern_text_fini(&json);
    return status;
}

tern_status tern_run_dir_name(struct tern_run_dir *run, const char *id)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char path[TERN_PATH_BYTES];
    size_t length = strlen(id);
    if (length == 0 || length >= sizeof run->launch_id || strspn(id, good) != length ||
        id[0] == '.') {
        return tern_fail(TERN_ERR_USAGE,
                         "environment TERN_LAUNCH_ID: found '%.80s', expected 1 to %zu letters, "
                         "digits, '.', '_' or '-'",
                         id, sizeof run->launch_id - 1);
    }
    memcpy(run->launch_id, id, length + 1);
    TERN_RETURN_IF_ERR(record_path(run, ".json", path));
    return tern_file_exists(path)
               ? tern_fail(
                     TERN_ERR_USAGE,
                     "environment TERN_LAUNCH_ID: found '%s', expected one that has no record "
                     "in %s/launches yet",
                     id, run->path)
               : TERN_OK;
}

bool tern_run_dir_is_running(const struct tern_run_dir *run)
{
    char path[TERN_PATH_BYTES];
    char *text = NULL;
    size_t bytes;
    struct tern_json *json = NULL;
    bool has_ended = false;
    if (record_path(run, ".json", path) == TERN_OK &&
        tern_file_read(path, RECORD_BYTES_MAX, &text, &bytes) == TERN_OK &&
        tern_json_parse(path, text, bytes, &json) == TERN_OK) {
        const struct tern_json *root = (const struct tern_json *)json;
        const char *state = tern_json_string(tern_json_get(root, "state"), NULL);
        has_ended = state != NULL && strcmp(state, "running") != 0;
    }
    tern_json_close(json);
    tern_free(text);
    return !has_ended;
}
