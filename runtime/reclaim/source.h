/* source.h - what every source of notices about the machine can do, and which there are.
 *
 * A source is asked from the watcher's thread alone. It tells what stands at this moment: an event
 * that is no longer there has been called off or is over. */
#ifndef TERN_RUNTIME_RECLAIM_SOURCE_H
#define TERN_RUNTIME_RECLAIM_SOURCE_H

#include "runtime/reclaim/metadata.h"
#include "runtime/reclaim/notice.h"

enum {
    TERN_STANDING_MAX = 16 /* events of one source at one moment; more are not looked at */
};

struct tern_standing {
    struct tern_notice_info items[TERN_STANDING_MAX];
    int count;
};

struct tern_source_ops {
    const char *name;      /* in reclaim.notices */
    double period_seconds; /* between two polls */
    double given_seconds;  /* that its shortest notice leaves; 0: announced well ahead */
    bool is_of_job;        /* says the same on every host: rank 0 asks; else one rank a host */
    /* metadata outlives it. Owned: close. */
    TERN_MUST_CHECK tern_status (*open)(struct tern_metadata *metadata, void **out);
    void (*close)(void *self);
    /* May wait for news, at most wait_seconds. TERN_ERR_AGAIN: nothing has changed. Otherwise a
     * failure says what the service did wrong; it is asked again later. */
    TERN_MUST_CHECK tern_status (*poll)(void *self, double wait_seconds, struct tern_standing *out);
    /* The work is done: the event may begin. NULL: it cannot be told. */
    TERN_MUST_CHECK tern_status (*approve)(void *self, const struct tern_notice_info *info);
};

extern const struct tern_source_ops tern_source_aws;
extern const struct tern_source_ops tern_source_azure;
extern const struct tern_source_ops tern_source_gcp;
/* Opens only inside a Slurm job: SLURM_JOB_ID. */
extern const struct tern_source_ops tern_source_slurm;

/* Appends; NULL when there is no more room. Text may be anything: it is made printable. */
struct tern_notice_info *tern_standing_add(struct tern_standing *events,
                                           enum tern_notice kind,
                                           double deadline,
                                           const char *id,
                                           const char *text);

#endif
