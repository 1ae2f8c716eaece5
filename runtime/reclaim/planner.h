/* planner.h - how long it takes from "stop" to a checkpoint that outlives the machine, as measured.
 *
 * The training thread notes what steps, commits and uploads took; the watcher asks how early it has
 * to begin; rank 0 keeps the figures in RUN/planner.json, so that the next launch knows before its
 * first checkpoint whether a notice will give it enough time. */
#ifndef TERN_RUNTIME_RECLAIM_PLANNER_H
#define TERN_RUNTIME_RECLAIM_PLANNER_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TERN_PLANNER_LAST = 4, /* measurements of a kind that count: the worst of them */
    TERN_PLANNER_TEXT_BYTES = 512
};

enum tern_planner_kind {
    TERN_PLANNER_STEP,   /* bytes: 0 */
    TERN_PLANNER_COMMIT, /* from the snapshot to the checkpoint on disk; bytes of all shards */
    TERN_PLANNER_UPLOAD, /* from the commit to the manifest in the bucket; bytes sent */
    TERN_PLANNER_KINDS
};

struct tern_planner_series {
    double seconds[TERN_PLANNER_LAST];
    int64_t bytes[TERN_PLANNER_LAST];
    int64_t count;        /* of all measurements so far */
    _Atomic double worst; /* seconds, of the last ones; 0 none yet */
};

struct tern_planner {
    struct tern_planner_series series[TERN_PLANNER_KINDS];
    double kept[TERN_PLANNER_KINDS]; /* what the file says */
    _Atomic double heard;            /* seconds that another rank needs */
};

/* One thread notes; any thread asks. Seconds below 0 or not finite are not noted. */
void tern_planner_note(struct tern_planner *planner,
                       enum tern_planner_kind kind,
                       double seconds,
                       int64_t bytes);
/* Worst of the last ones, seconds; 0 when there is none. */
double tern_planner_worst(const struct tern_planner *planner, enum tern_planner_kind kind);
/* From a notice to the end: the step under way and the one that carries the notice, a commit, an
 * upload, each as bad as lately and a quarter more, and a second. */
double tern_planner_need_seconds(const struct tern_planner *planner);
/* What rank 0 needs, which alone sees commits: needed here too. */
void tern_planner_hear(struct tern_planner *planner, double need_seconds);

/* What a notice must leave time for. */
struct tern_planner_case {
    const char *source;   /* "azure" */
    double given_seconds; /* its notice before the machine is gone */
    bool has_remote;      /* the checkpoint is to be in a bucket, too */
    double remote_rate;   /* bytes a second at most; 0 no limit */
    int64_t state_bytes;  /* of a checkpoint, raw */
};

/* False: as far as is known there is time enough. True: text says what does not fit, with the
 * figures and what helps. Before anything was measured only the rate limit says something. */
bool tern_planner_is_short(const struct tern_planner *planner,
                           const struct tern_planner_case *what,
                           char text[TERN_PLANNER_TEXT_BYTES]);

/* RUN/planner.json: what an earlier launch measured counts as one measurement each. A file that is
 * missing or no such file is none. */
void tern_planner_load(struct tern_planner *planner, const char *run_dir);
/* Writes the file when a figure differs from it by more than half. Rank 0. */
TERN_MUST_CHECK tern_status tern_planner_keep(struct tern_planner *planner, const char *run_dir);

#endif
