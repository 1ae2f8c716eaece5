/* inproc.h - a world whose ranks are threads of this process, for the tests of everything that
 * communicates: messages arrive late in a seeded random order, and ranks die on demand. */
#ifndef TERN_COMM_INPROC_INPROC_H
#define TERN_COMM_INPROC_INPROC_H

#include "comm/comm.h"

enum {
    TERN_INPROC_RANKS_MAX = 64
};

enum tern_inproc_fate {
    TERN_INPROC_LIVES,
    TERN_INPROC_DIES,  /* gone: its peers are told at once, as by a closed connection */
    TERN_INPROC_STOPS, /* silent: its peers find out by the time limit */
};

struct tern_inproc_options {
    int ranks;
    uint64_t seed;
    int64_t
        delay_ns_max; /* each message becomes visible after a random delay up to this; 0: at once */
    double timeout_seconds; /* 0: 60 */
    /* What happens to fate_rank when it begins its fate_exchange-th exchange (from 1, counted from the
     * opening; the opening itself is exchange 1, or none in a world of one). */
    enum tern_inproc_fate fate;
    int fate_rank;
    int64_t fate_exchange;
};

/* comms_out (ranks): one a rank, all opened here; each is closed by its owner, in any order. */
TERN_MUST_CHECK tern_status tern_inproc_open(const struct tern_inproc_options *options,
                                             struct tern_comm **comms_out);
/* Lets a rank die or stop now, from any thread. */
void tern_inproc_doom(struct tern_comm *comm, enum tern_inproc_fate fate);

/* Opens a world, calls main(comm, arg) on a thread for each rank, closes, joins. statuses_out (ranks),
 * may be NULL. Returns the status and sentence of the lowest rank that failed. */
TERN_MUST_CHECK tern_status tern_inproc_run(const struct tern_inproc_options *options,
                                            tern_status (*main)(struct tern_comm *comm, void *arg),
                                            void *arg,
                                            tern_status *statuses_out);

#endif
