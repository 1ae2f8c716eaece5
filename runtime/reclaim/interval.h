/* interval.h - how many steps lie between two snapshots. */
#ifndef TERN_RUNTIME_RECLAIM_INTERVAL_H
#define TERN_RUNTIME_RECLAIM_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

/* What is known of a run's pace. Rank 0 keeps it; all in seconds. */
struct tern_interval {
    int64_t every; /* as configured: steps; 0 never, -1 auto */
    double mtbf;   /* mean time between losses of a machine */
    double cost;   /* of a snapshot: smoothed; 0 none made yet */
    double step;   /* of a step: smoothed; 0 none done yet */
    int64_t last;  /* step of the newest snapshot, or of the start */
};

/* Young's interval: sqrt(2 cost mtbf), in steps; long enough that snapshots take at most a hundredth of the time. At least
 * 1, at most 2^40. */
int64_t tern_interval_steps(double cost, double step, double mtbf);
/* Whether the state after `next` steps is to be snapshotted. The first one of auto, which says what they cost, is the
 * second step's: pages and caches are warm then. */
bool tern_interval_is_due(const struct tern_interval *interval, int64_t next);
void tern_interval_note_step(struct tern_interval *interval, double seconds);
/* A snapshot of `step` was made: what it kept the step waiting for, and what a thread worked for it. */
void tern_interval_note_snapshot(struct tern_interval *interval, int64_t step, double seconds);

#endif
