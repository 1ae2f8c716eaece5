/* pulse.h - who holds a training run up, from what the ranks said of themselves; and who is slower than the others. Pure: no
 * sockets, no clock. */
#ifndef TERN_RUNTIME_RECLAIM_PULSE_H
#define TERN_RUNTIME_RECLAIM_PULSE_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum tern_phase {
    TERN_PHASE_START,      /* before the first step */
    TERN_PHASE_DATA,       /* waits for its batch */
    TERN_PHASE_COMPUTE,    /* forward and backward */
    TERN_PHASE_REDUCE,     /* waits for the other ranks */
    TERN_PHASE_CHECKPOINT, /* copies its state, or waits for a save */
    TERN_PHASE_EVALUATE,
    TERN_PHASE_DRAIN, /* the last checkpoint */
    TERN_PHASE_COUNT
};

enum {
    TERN_PULSE_HOST_BYTES = 64,
    TERN_PULSE_SENTENCE_BYTES = 800
};

/* Where a rank is; travels as bytes. */
struct tern_pulse {
    int32_t phase; /* enum tern_phase */
    int32_t has_left;
    int64_t step;      /* being done: steps done + 1 */
    int64_t phase_ns;  /* in this phase so far, by the rank's own clock */
    int64_t step_ns;   /* in this step so far; 0 outside of steps */
    int64_t exchanges; /* with other ranks since the start: which one it is in, or was in last */
    int64_t bytes;     /* sent and received so far */
};

/* A rank as the judge sees it. */
struct tern_pulse_view {
    struct tern_pulse pulse;
    bool is_watched;   /* there was a connection to it */
    int64_t silent_ns; /* since it was last heard */
    int64_t lost_ns;   /* since its connection broke; -1: it is there */
    const char *host;
};

const char *tern_phase_name(enum tern_phase phase); /* "forward and backward" */

struct tern_pulse_verdict {
    tern_status status; /* PEER_LOST or TIMEOUT */
    char sentence[TERN_PULSE_SENTENCE_BYTES];
};

/* True when the run can't go on: a rank is gone or silent for limit_ns, or a step takes limit_ns and five times the usual
 * (usual_ns 0: not known yet, and then no step is too long). */
bool tern_pulse_judge(const struct tern_pulse_view *views,
                      int size,
                      int64_t limit_ns,
                      int64_t usual_ns,
                      struct tern_pulse_verdict *out);
/* True while a step takes more than five times the usual, and a second: who holds it up, without ending anything. */
bool tern_pulse_is_late(const struct tern_pulse_view *views,
                        int size,
                        int64_t usual_ns,
                        char sentence[TERN_PULSE_SENTENCE_BYTES]);

/* Slow ranks, from the seconds that each rank computed in a step, a lane: means that forget. */
struct tern_stragglers {
    double
        *means; /* (size), seconds; the three are owned by whoever made them, and begin as zeros */
    double *sorted;  /* (size): scratch */
    int *slow_steps; /* (size): for how many steps in a row it has been slow */
    int size;
    int64_t steps; /* seen */
};

/* seconds (size): of this step; 0 of any rank: not known, and nothing is learned. Returns the rank to name now, and how
 * many times the median of all ranks it takes; -1: none. *is_over_out: it was named, and is slow no more. */
int tern_stragglers_add(struct tern_stragglers *stragglers,
                        const double *seconds,
                        double *factor_out,
                        bool *is_over_out);

#endif
