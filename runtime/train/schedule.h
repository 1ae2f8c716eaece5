/* schedule.h - the learning rate of a step: a pure function of the config and the step number. */
#ifndef TERN_RUNTIME_TRAIN_SCHEDULE_H
#define TERN_RUNTIME_TRAIN_SCHEDULE_H

#include "runtime/train/config.h"

/* step counts from 0; steps is the length of the whole run. Warm-up: lr * (step + 1) / (warmup +
 * 1). */
double tern_schedule_lr(const struct tern_config_optimizer *optimizer, int64_t step, int64_t steps);

#endif
