/* run_dir.c - lock and launch records. */
#include "runtime/train/run_dir.h"

#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

tern_status tern_run_dir_open(struct tern_run_dir *run, const char *path, int ranks)
{
    *run = (struct tern_run_dir){.ranks = ranks};
    if (strlen(path) >= sizeof run->path - 256) {
        return tern_fail(TERN_ERR_USAGE, "--run-dir: longer than %zu bytes",
                         sizeof run->path - 256);
    }
    strcpy(run->path, path);
    char name[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_file_make_folder(path));
    TERN_RETURN_IF_ERR(tern_path_join(name, path, "launches"));
    TERN_RETURN_IF_ERR(tern_file_make_folder(name));
    TERN_RETURN_IF_ERR(tern_path_join(name, path, "lock"));
    TERN_RETURN_IF_ERR(tern_lock_take(name, &run->lock));
    run->is_locked = true;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char seconds[24];
    strftime(seconds, sizeof seconds, "%Y%m%dT%H%M%S", &utc);
    snprintf(run->launch_id, sizeof run->launch_id, "%s.%03ldZ-%d", seconds, now.tv_nsec / 1000000,
             (int)getpid());
    return TERN_OK;
}

void tern_run_dir_close(struct tern_run_dir *run)
{
    if (run->is_locked) {
        tern_lock_drop(&run->lock);
        run->is_locked = false;
    }
}

/* JSON string body: quotes, backslashes and control characters escaped. */
static tern_status append_escaped(struct tern_text *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "\\%c", *c));
        } else if (*c < 0x20) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "\\u%04x", *c));
        } else {
            TERN_RETURN_IF_ERR(tern_text_append(out, c, 1));
        }
    }
    return TERN_OK;
}

tern_status tern_run_dir_record(const struct tern_run_dir *run,
                                const char *state,
                                int64_t step,
                                const char *reason)
{
    switch (tern_fault_pass(TERN_FAULT_LAUNCH_RECORD)) {
    case TERN_FAULT_ENOSPC:
        return tern_fail_errno(TERN_ERR_IO, ENOSPC, "%s/launches/%s.json", run->path,
                               run->launch_id);
    case TERN_FAULT_EIO:
        return tern_fail_errno(TERN_ERR_IO, EIO, "%s/launches/%s.json", run->path, run->launch_id);
    default:
        break;
    }
    char time_text[TERN_RFC3339_BYTES];
    char path[TERN_PATH_BYTES + 64];
    struct tern_text json;
    tern_text_init(&json);
    snprintf(path, sizeof path, "%s/launches/%s.json", run->path, run->launch_id);
    tern_status status;
    TERN_GOTO_IF_ERR(
        status,
        tern_text_printf(&json,
                         "{\"id\":\"%s\",\"state\":\"%s\",\"step\":%lld,\"ranks\":%d,\"reason\":\"",
                         run->launch_id, state, (long long)step, run->ranks),
        out);
    TERN_GOTO_IF_ERR(status, append_escaped(&json, reason), out);
    TERN_GOTO_IF_ERR(
        status, tern_text_printf(&json, "\",\"time\":\"%s\"}\n", tern_clock_rfc3339(time_text)),
        out);
    status = tern_file_replace(path, json.data, json.length);
out:
    tern_text_fini(&json);
    return status;
}
