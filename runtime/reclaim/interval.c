/* interval.c - Young (1974): the first-order optimum of the time between checkpoints. */
#include "runtime/reclaim/interval.h"

#include <math.h>

static const double SHARE_MAX = 0.01;
static const double STEPS_MAX = 0x1p40;
static const double MEMORY = 0.75; /* of the old value in a smoothed one */

enum {
    FIRST_STEPS = 2
};

int64_t tern_interval_steps(double cost, double step, double mtbf)
{
    if (!(cost > 0) || !(step > 0) || !(mtbf > 0)) {
        return 1;
    }
    double young = sqrt(2 * cost * mtbf) / step;
    double least = cost / (SHARE_MAX * step);
    double steps = round(young > least ? young : least);
    return steps < 1 ? 1 : steps > STEPS_MAX ? (int64_t)STEPS_MAX : (int64_t)steps;
}

bool tern_interval_is_due(const struct tern_interval *interval, int64_t next)
{
    if (interval->every >= 0) {
        return interval->every > 0 && next % interval->every == 0;
    }
    int64_t steps = interval->cost > 0
                        ? tern_interval_steps(interval->cost, interval->step, interval->mtbf)
                        : FIRST_STEPS;
    return next - interval->last >= steps;
}

static double smooth(double old, double value)
{
    return old > 0 ? MEMORY * old + (1 - MEMORY) * value : value;
}

void tern_interval_note_step(struct tern_interval *interval, double seconds)
{
    interval->step = smooth(interval->step, seconds);
}

void tern_interval_note_snapshot(struct tern_interval *interval, int64_t step, double seconds)
{
    interval->last = step > interval->last ? step : interval->last;
    interval->cost = seconds > 0 ? smooth(interval->cost, seconds) : interval->cost;
}
