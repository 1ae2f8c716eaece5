/* reach.h - errands to hosts: does it answer, and is nothing of an earlier launch left on it? Many at once, each with a
 * deadline, over ssh or what mpirun uses instead. */
#ifndef TERN_RUNTIME_SUPERVISE_REACH_H
#define TERN_RUNTIME_SUPERVISE_REACH_H

#include "runtime/base/status.h"
#include "runtime/base/text.h"
#include "runtime/supervise/hosts.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    TERN_TAG_BYTES =
        9 /* eight hexadecimal digits: of the supervisor of a run, in all its launch ids */
};

enum tern_errand_kind {
    TERN_ERRAND_NONE,
    TERN_ERRAND_PROBE, /* it answers */
    TERN_ERRAND_FENCE /* and nothing of an earlier launch of this run is left: what there was is killed */
};

struct tern_reach {
    const char *shell; /* "ssh -F FILE": words at blanks */
    char tag[TERN_TAG_BYTES];
    const char *launch_id; /* of the launch that is to live, "" if there is none */
    double seconds_max;    /* an errand may take */
};

/* One a host, in turn with at most so many under way. Owned: tern_errands_end. */
struct tern_errands {
    const struct tern_reach *reach;
    struct tern_errand *items;
    int count, begun, done, under_way;
};

/* To each host the errand that kind_of says. Nothing is started yet. */
TERN_MUST_CHECK tern_status
tern_errands_begin(const struct tern_reach *reach,
                   const struct tern_hosts *hosts,
                   enum tern_errand_kind (*kind_of)(const struct tern_host *),
                   struct tern_errands *out);
/* Starts and ends what can be; notes answers and misses of each host. True when all are done. Never blocks. */
bool tern_errands_poll(struct tern_errands *errands, struct tern_hosts *hosts);
void tern_errands_end(struct tern_errands *errands);

#endif
