/* reach.c - a line of shell for each host, through the same door as mpirun. */
#include "runtime/supervise/reach.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/supervise/process.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    UNDER_WAY_MAX = 64,
    SCRIPT_BYTES = 1024,
    SHELL_BYTES = 1024,
    SHELL_WORDS_MAX = 64
};

struct tern_errand {
    int host; /* index */
    enum tern_errand_kind kind;
    pid_t pid; /* 0: not begun, or over */
    double started;
};

/* What every rank has in its environment names its launch. The signal is one that no process can put off; a process that
 * is there after five seconds all the same hangs in the kernel, and the host is not to be used. No single quotes. */
static const char g_fence[] =
    "printf x | grep -qzx x || exit 4; n=0; while :; do left=; "
    "for f in $(grep -lzxE \"TERN_LAUNCH_ID=[^=]*-%s-[0-9]+\" /proc/[0-9]*/environ 2>/dev/null); "
    "do "
    "if grep -qzx \"TERN_LAUNCH_ID=%s\" $f 2>/dev/null; then continue; fi; "
    "p=${f#/proc/}; p=${p%%/environ}; [ -e /proc/$p ] || continue; "
    "kill -KILL $p 2>/dev/null; left=1; done; "
    "[ -z \"$left\" ] && exit 0; n=$((n+1)); [ $n -lt 50 ] || exit 3; sleep 0.1; done";

tern_status tern_errands_begin(const struct tern_reach *reach,
                               const struct tern_hosts *hosts,
                               enum tern_errand_kind (*kind_of)(const struct tern_host *),
                               struct tern_errands *out)
{
    *out = (struct tern_errands){.reach = reach};
    out->items = tern_alloc_zero("errands", (size_t)hosts->count + 1, sizeof *out->items);
    if (out->items == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate errands to %d hosts", hosts->count);
    }
    for (int i = 0; i < hosts->count; i++) {
        enum tern_errand_kind kind = kind_of(&hosts->items[i]);
        if (kind != TERN_ERRAND_NONE) {
            out->items[out->count++] = (struct tern_errand){.host = i, .kind = kind};
        }
    }
    return TERN_OK;
}

static void note(struct tern_host *host, enum tern_errand_kind kind, bool is_well)
{
    if (is_well) {
        host->answers++;
        host->misses = 0;
    } else {
        host->missing_at = host->misses == 0 ? tern_clock_seconds() : host->missing_at;
        host->misses++;
        host->answers = 0;
        if (host->misses >= TERN_HOST_GONE_MISSES && host->leaves_until > 0) {
            host->leaves_until = 0; /* what comes back is another machine */
            tern_log_info("host %s is gone, as was announced", host->name);
        }
    }
    if (kind == TERN_ERRAND_FENCE) {
        host->is_up = is_well;
    }
}

static tern_status start(const struct tern_reach *reach,
                         struct tern_errand *errand,
                         const struct tern_host *host)
{
    char script[SCRIPT_BYTES] = ":";
    char quoted[SCRIPT_BYTES + 16];
    char shell[SHELL_BYTES];
    const char *words[SHELL_WORDS_MAX + 4] = {"sh", "-c", script};
    if (errand->kind == TERN_ERRAND_FENCE) {
        snprintf(script, sizeof script, g_fence, reach->tag,
                 reach->launch_id[0] != '\0' ? reach->launch_id : "none");
    }
    if (!host->is_local) {
        int count = 0;
        char *rest = NULL;
        snprintf(shell, sizeof shell, "%s", reach->shell);
        for (char *word = strtok_r(shell, " \t", &rest); word != NULL && count < SHELL_WORDS_MAX;
             word = strtok_r(NULL, " \t", &rest)) {
            words[count++] = word;
        }
        snprintf(quoted, sizeof quoted, "sh -c '%s'", script);
        words[count++] = host->name;
        words[count++] = quoted;
        words[count] = NULL;
    }
    errand->started = tern_clock_seconds();
    return tern_process_start(
        &(struct tern_process_options){.argv = words, .is_quiet = true, .death_signal = SIGKILL},
        &errand->pid);
}

/* True when it is over. */
static bool is_over(const struct tern_errands *errands,
                    struct tern_errand *errand,
                    struct tern_host *host)
{
    int code;
    if (!tern_process_poll(errand->pid, &code)) {
        if (tern_clock_seconds() - errand->started > errands->reach->seconds_max) {
            tern_process_kill(errand->pid); /* polled again until it is gone */
        }
        return false;
    }
    errand->pid = 0;
    note(host, errand->kind, code == 0);
    return true;
}

bool tern_errands_poll(struct tern_errands *errands, struct tern_hosts *hosts)
{
    for (int i = 0; i < errands->begun; i++) {
        struct tern_errand *errand = &errands->items[i];
        if (errand->pid != 0 && is_over(errands, errand, &hosts->items[errand->host])) {
            errands->under_way--;
            errands->done++;
        }
    }
    while (errands->begun < errands->count && errands->under_way < UNDER_WAY_MAX) {
        struct tern_errand *errand = &errands->items[errands->begun++];
        struct tern_host *host = &hosts->items[errand->host];
        if (start(errands->reach, errand, host) == TERN_OK) {
            errands->under_way++;
        } else {
            note(host, errand->kind, false);
            errands->done++;
        }
    }
    return errands->done == errands->count;
}

void tern_errands_end(struct tern_errands *errands)
{
    int code;
    for (int i = 0; i < errands->begun; i++) {
        pid_t pid = errands->items[i].pid;
        if (pid == 0) {
            continue;
        }
        tern_process_kill(pid);
        while (!tern_process_poll(pid, &code)) {
            tern_clock_sleep_ns(1000000);
        }
    }
    tern_free(errands->items);
    *errands = (struct tern_errands){0};
}
