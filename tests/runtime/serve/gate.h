/* gate.h - the engine's steps, let through one by one. */
#ifndef TERN_TESTS_RUNTIME_SERVE_GATE_H
#define TERN_TESTS_RUNTIME_SERVE_GATE_H

#include "tests/runtime/serve/fake_pass.h"

#include <pthread.h>

enum {
    GATE_PARTS = 32
};

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t arrived, passed; /* steps that came to the gate, and that may pass */
    bool is_open;            /* all may pass */
    /* Of the step that waits. */
    struct tern_infer_part parts[GATE_PARTS];
    int64_t count;
    tern_status ends_with; /* the next step, TERN_OK: well */
};

/* fake.before, its context a gate. */
static inline tern_status gate_step(struct fake *fake,
                                    const struct tern_infer_part *parts,
                                    int64_t count)
{
    struct gate *gate = fake->context;
    pthread_mutex_lock(&gate->lock);
    gate->count = count < GATE_PARTS ? count : GATE_PARTS;
    memcpy(gate->parts, parts, (size_t)gate->count * sizeof *parts);
    gate->arrived++;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->is_open && gate->passed < gate->arrived) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    tern_status status = gate->ends_with;
    gate->ends_with = TERN_OK;
    pthread_mutex_unlock(&gate->lock);
    return status != TERN_OK ? tern_fail(status, "made to fail") : TERN_OK;
}

static inline void gate_init(struct gate *gate, struct fake *fake)
{
    *gate = (struct gate){0};
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    fake->before = gate_step;
    fake->context = gate;
}

/* Waits until the n-th step (from 1) is at the gate; it stays there. */
static inline void gate_await(struct gate *gate, int64_t n)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->arrived < n) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    pthread_mutex_unlock(&gate->lock);
}

/* Lets the step at the gate pass, which ends so, and waits for the next one. */
static inline void gate_pass(struct gate *gate, tern_status status, bool has_next)
{
    pthread_mutex_lock(&gate->lock);
    gate->ends_with = status;
    gate->passed++;
    int64_t next = gate->passed + 1;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
    if (has_next) {
        gate_await(gate, next);
    }
}

static inline void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

#endif
