/* hosts.h - the machines that a run may use: read from a hostfile or a list as mpirun takes them, and how many ranks they
 * hold. Whether they answer is reach.h's business. */
#ifndef TERN_RUNTIME_SUPERVISE_HOSTS_H
#define TERN_RUNTIME_SUPERVISE_HOSTS_H

#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TERN_HOSTS_MAX = 4096,
    TERN_HOST_NAME_BYTES = 254, /* a DNS name and its NUL */
    TERN_HOST_SLOTS_MAX = 4096,
    TERN_HOST_GONE_MISSES = 2 /* probes in a row without an answer */
};

struct tern_host {
    char name[TERN_HOST_NAME_BYTES];
    int64_t slots;       /* ranks that it holds; 0: not said */
    bool is_local;       /* this machine: reached without a network */
    bool is_up;          /* answers, and no process of an earlier launch is left on it */
    bool is_used;        /* by the launch that runs */
    int misses;          /* probes in a row that failed */
    int answers;         /* and that did not */
    double missing_at;   /* clock of the first of the misses */
    double leaves_until; /* clock up to which it is about to be taken away; 0: not announced */
};

/* Owned: tern_hosts_fini. */
struct tern_hosts {
    struct tern_host *items;
    int count;
};

/* Lines "NAME [slots=N] [max_slots=N]" or "NAME:N", '#' begins a comment; a host named twice has the slots of both lines.
 * TERN_ERR_INPUT names file, line, what was found and what was expected. */
TERN_MUST_CHECK tern_status tern_hosts_parse(const char *path,
                                             const char *text,
                                             size_t bytes,
                                             struct tern_hosts *out);
/* "a:2,b", as mpirun's --host has it: a name without a number is one slot. */
TERN_MUST_CHECK tern_status tern_hosts_parse_list(const char *list, struct tern_hosts *out);
void tern_hosts_fini(struct tern_hosts *hosts);
/* What was known of hosts that are in both goes from `old` to `hosts`. */
void tern_hosts_remember(struct tern_hosts *hosts, const struct tern_hosts *old);
/* How many ranks those that are up hold, at most `wanted` (0: no wish; then 0 where a host does not say). A host that says
 * nothing takes its even share of `wanted`. */
int64_t tern_hosts_ranks(const struct tern_hosts *hosts, int64_t wanted);
/* The host of that name, whatever domain either is given with; NULL: there is none. */
struct tern_host *tern_hosts_find(const struct tern_hosts *hosts, const char *name);
/* That name is this machine's. */
bool tern_host_is_here(const char *name);
int tern_hosts_up(const struct tern_hosts *hosts);
/* Appends those that are up as a hostfile (is_list: as a list for --host). */
TERN_MUST_CHECK tern_status tern_hosts_write(const struct tern_hosts *hosts,
                                             int64_t wanted,
                                             bool is_list,
                                             struct tern_text *out);

#endif
