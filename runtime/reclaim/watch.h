/* watch.h - one thread that asks what will become of this machine, and turns the answers into
 * notices (notice.h) when it is time to act on them.
 *
 * A source says what stands and until when. An interruption is acted on at once; what is announced
 * well ahead (maintenance, the end of an allocation) when its kind's lead or the planner's need
 * before the deadline is reached, whichever is earlier. Advice asks for one checkpoint. The training
 * thread only polls flags. */
#ifndef TERN_RUNTIME_RECLAIM_WATCH_H
#define TERN_RUNTIME_RECLAIM_WATCH_H

#include "runtime/base/status.h"
#include "runtime/reclaim/planner.h"

#include <stdbool.h>

struct tern_watch_options {
    const char *const
        *names; /* reclaim.notices: auto, aws, azure, gcp, slurm; others passed over */
    int name_count;
    double end_unix;              /* reclaim.end_time, seconds since 1970; 0 none */
    bool is_first, is_host_first; /* rank 0; the first rank of this host */
    const char *root;             /* "/" unless a test has a machine of its own */
    const char *metadata_url;     /* NULL: see metadata.h */
    double poll_seconds;          /* between two polls; 0: as each source has it */
    const struct tern_planner *planner;
    /* On the watcher's thread: the time to stop has come. May be called again. NULL: nothing is done. */
    void (*noticed)(void *context);
    /* On the watcher's thread, once: a source's own deadline is here (or, when it left less, some
     * seconds after the notice), and nobody has said tern_watch_hear. NULL: nothing is done. */
    void (*late)(void *context, const char *sentence);
    void *context; /* of both */
};

struct tern_watch;

/* *out NULL: there is nothing that this rank has to watch. The options' pointers outlive it. A
 * source that was named and cannot be is a failure. Owned: stop. */
TERN_MUST_CHECK tern_status tern_watch_start(const struct tern_watch_options *options,
                                             struct tern_watch **out);
void tern_watch_stop(struct tern_watch *watch); /* ends a request under way; NULL is fine */
/* The run heads for its end, at a step's boundary: `late` is not called any more. NULL is fine. */
void tern_watch_hear(struct tern_watch *watch);
/* The work is done and nothing of this run needs the machine any more: tells those sources that
 * can be told that what they announced may begin. Once; NULL is fine. */
void tern_watch_approve(struct tern_watch *watch);

/* The shortest notice that the sources of `names` give, and whose: 0 and "" when none gives any.
 * signal counts with deadline_seconds. auto: as in start. */
double tern_watch_given_seconds(const struct tern_watch_options *options,
                                double deadline_seconds,
                                const char **source_out);

#endif
