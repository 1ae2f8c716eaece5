/* schedule.c - cosine, linear, constant and warm-up/stable/decay. */
#include "runtime/train/schedule.h"

#include <math.h>

/* Part of the decay that is done, 0 to 1, at `step` between `from` and `to`. */
static double progress(int64_t step, int64_t from, int64_t to)
{
    if (to <= from) {
        return step >= to ? 1 : 0;
    }
    double part = (double)(step - from) / (double)(to - from);
    return part < 0 ? 0 : part > 1 ? 1 : part;
}

double tern_schedule_lr(const struct tern_config_optimizer *optimizer, int64_t step, int64_t steps)
{
    int64_t warmup = optimizer->warmup_steps;
    if (step < warmup) {
        return optimizer->lr * (double)(step + 1) / (double)(warmup + 1);
    }
    double span = optimizer->lr - optimizer->lr_min;
    switch (optimizer->schedule) {
    case TERN_SCHEDULE_COSINE:
        return optimizer->lr_min + 0.5 * span * (1 + cos(M_PI * progress(step, warmup, steps)));
    case TERN_SCHEDULE_LINEAR:
        return optimizer->lr - span * progress(step, warmup, steps);
    case TERN_SCHEDULE_WSD: {
        int64_t decay = (int64_t)llround((double)steps * optimizer->decay_fraction);
        int64_t from = steps - decay > warmup ? steps - decay : warmup;
        return optimizer->lr - span * progress(step, from, steps);
    }
    case TERN_SCHEDULE_CONSTANT:
        break;
    }
    return optimizer->lr;
}
