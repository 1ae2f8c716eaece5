/* supervise_hosts.c - before a launch: which hosts are there, and is nothing of an earlier launch left on them. */
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/supervise/supervisor.h"

#include <stdio.h>
#include <string.h>

enum {
    HOSTFILE_BYTES_MAX = 1 << 20,
    NAMES_BYTES = 200
};

bool tern_host_is_leaving(const struct tern_host *host)
{
    return host->leaves_until > tern_clock_seconds();
}

/* Where the list of hosts stands now; both empty: there is none. */
static tern_status read_hosts(const struct tern_supervisor *supervisor, struct tern_hosts *out)
{
    const struct tern_launch_command *command = &supervisor->command;
    const char *path = supervisor->options->hostfile;
    char *text = NULL;
    size_t bytes;
    *out = (struct tern_hosts){0};
    if (path == NULL && command->hosts_at >= 0) {
        path = command->argv[command->hosts_at];
        if (command->is_host_list) {
            return tern_fail_prefix(tern_hosts_parse_list(path, out), "mpirun --host");
        }
    }
    if (path == NULL) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_file_read(path, HOSTFILE_BYTES_MAX, &text, &bytes));
    tern_status status = tern_hosts_parse(path, text, bytes, out);
    tern_free(text);
    return status;
}

/* A hostfile that is being rewritten just now, or is gone, leaves the hosts as they were. */
static tern_status reread_hosts(struct tern_supervisor *supervisor)
{
    struct tern_hosts now;
    tern_status status = read_hosts(supervisor, &now);
    if (status != TERN_OK) {
        if (supervisor->hosts.count == 0) {
            return status;
        }
        tern_log_warn("%s; the hosts stay as they were", tern_detail());
        return TERN_OK;
    }
    tern_hosts_remember(&now, &supervisor->hosts);
    tern_hosts_fini(&supervisor->hosts);
    supervisor->hosts = now;
    return TERN_OK;
}

static enum tern_errand_kind fence_all(const struct tern_host *host)
{
    return tern_host_is_leaving(host) ? TERN_ERRAND_PROBE : TERN_ERRAND_FENCE;
}

/* Who was silent a moment ago is not waited for again: the watch asks on, and takes it back. */
static enum tern_errand_kind fence_others(const struct tern_host *host)
{
    return host->misses >= TERN_HOST_GONE_MISSES ? TERN_ERRAND_NONE : fence_all(host);
}

/* is_last: whatever is asked of the supervisor meanwhile. */
static tern_status ask(struct tern_supervisor *supervisor,
                       struct tern_hosts *hosts,
                       enum tern_errand_kind (*kind_of)(const struct tern_host *),
                       bool is_last)
{
    struct tern_errands errands;
    for (int i = 0; i < hosts->count; i++) {
        hosts->items[i].is_up = false;
    }
    TERN_RETURN_IF_ERR(tern_errands_begin(&supervisor->reach, hosts, kind_of, &errands));
    while (!tern_errands_poll(&errands, hosts) && (is_last || !tern_supervise_is_asked())) {
        tern_clock_sleep_ns(10000000);
    }
    tern_errands_end(&errands);
    return TERN_OK;
}

static void say_missing(const struct tern_hosts *hosts)
{
    char names[NAMES_BYTES] = "";
    size_t used = 0;
    int missing = 0;
    for (int i = 0; i < hosts->count; i++) {
        const struct tern_host *host = &hosts->items[i];
        if (host->is_up) {
            continue;
        }
        missing++;
        if (used < sizeof names) {
            used += (size_t)snprintf(
                names + used, sizeof names - used, "%s%s (%s)", used > 0 ? ", " : "", host->name,
                tern_host_is_leaving(host) ? "is being taken away" : "does not answer");
        }
    }
    if (missing > 0) {
        tern_log_info("%d of %d hosts left out: %s", missing, hosts->count, names);
    }
}

/* Without hosts: what an earlier launch left on this machine. */
static tern_status fence_here(struct tern_supervisor *supervisor, bool is_last)
{
    struct tern_host here = {.name = "localhost", .is_local = true};
    struct tern_hosts hosts = {&here, 1};
    TERN_RETURN_IF_ERR(ask(supervisor, &hosts, fence_all, is_last));
    if (!here.is_up && !tern_supervise_is_asked()) {
        return tern_fail(TERN_ERR_STATE,
                         "processes of an earlier launch of %s do not end on this machine: they "
                         "hang in the kernel",
                         supervisor->run_dir);
    }
    return TERN_OK;
}

tern_status tern_supervise_gather(struct tern_supervisor *supervisor)
{
    const struct tern_supervise_options *options = supervisor->options;
    double started = tern_clock_seconds();
    enum tern_errand_kind (*kind_of)(const struct tern_host *) = fence_others;
    supervisor->reach.launch_id = "";
    for (;; kind_of = fence_all) {
        TERN_RETURN_IF_ERR(reread_hosts(supervisor));
        if (supervisor->hosts.count == 0) {
            TERN_RETURN_IF_ERR(fence_here(supervisor, false));
        } else {
            TERN_RETURN_IF_ERR(ask(supervisor, &supervisor->hosts, kind_of, false));
        }
        if (tern_supervise_is_asked()) {
            return tern_fail(TERN_ERR_CANCELLED, "asked to stop");
        }
        int up = tern_hosts_up(&supervisor->hosts);
        if (supervisor->hosts.count == 0 || up >= options->hosts_min) {
            say_missing(&supervisor->hosts);
            return TERN_OK;
        }
        if (tern_clock_seconds() - started >= options->wait_seconds) {
            return tern_fail(
                TERN_ERR_TIMEOUT, "%d of %d hosts answered within %g s, expected at least %lld", up,
                supervisor->hosts.count, options->wait_seconds, (long long)options->hosts_min);
        }
        say_missing(&supervisor->hosts);
        supervisor->journal.state = "waiting";
        tern_supervise_note(supervisor);
        tern_supervise_sleep(options->probe_seconds);
    }
}

void tern_supervise_clear(struct tern_supervisor *supervisor)
{
    supervisor->reach.launch_id = "";
    tern_status status = supervisor->hosts.count == 0
                             ? fence_here(supervisor, true)
                             : ask(supervisor, &supervisor->hosts, fence_all, true);
    if (status != TERN_OK) {
        tern_log_warn("%s", tern_detail());
    }
    for (int i = 0; i < supervisor->hosts.count; i++) {
        if (!supervisor->hosts.items[i].is_up) {
            tern_log_warn("host %s does not answer: processes of the run may be left on it",
                          supervisor->hosts.items[i].name);
        }
    }
}
