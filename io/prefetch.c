/* prefetch.c - a thread that makes the next step's batch in one buffer while the other is in
 * use. */
#include "io/tokens.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct batch {
    int32_t *inputs, *targets, *starts; /* (count, T); starts NULL unless packed */
    bool is_full;
    tern_status status;
    char detail[TERN_DETAIL_BYTES];
};

struct tern_prefetch {
    const struct tern_tokens *tokens;
    int64_t global_batch, first, count, sequence_length;
    int64_t next_step; /* that take may ask for */
    struct batch batches[2];
    bool is_stopping;
    bool has_given; /* the batch before next_step is in the caller's hands */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static tern_status fill(const struct tern_prefetch *prefetch, int64_t step, struct batch *batch)
{
    for (int64_t i = 0; i < prefetch->count; i++) {
        int64_t k = step * prefetch->global_batch + prefetch->first + i;
        int64_t at = i * prefetch->sequence_length;
        TERN_RETURN_IF_ERR(tern_tokens_sample(prefetch->tokens, k, batch->inputs + at,
                                              batch->targets + at,
                                              batch->starts != NULL ? batch->starts + at : NULL));
    }
    return TERN_OK;
}

static void *work(void *argument)
{
    struct tern_prefetch *prefetch = argument;
    pthread_mutex_lock(&prefetch->lock);
    for (int64_t step = prefetch->next_step;; step++) {
        struct batch *batch = &prefetch->batches[step & 1];
        while (batch->is_full && !prefetch->is_stopping) {
            pthread_cond_wait(&prefetch->changed, &prefetch->lock);
        }
        if (prefetch->is_stopping) {
            break;
        }
        pthread_mutex_unlock(&prefetch->lock);
        tern_status status = fill(prefetch, step, batch);
        pthread_mutex_lock(&prefetch->lock);
        batch->status = status;
        if (status != TERN_OK) {
            snprintf(batch->detail, sizeof batch->detail, "%s", tern_detail());
        }
        batch->is_full = true;
        pthread_cond_broadcast(&prefetch->changed);
    }
    pthread_mutex_unlock(&prefetch->lock);
    return NULL;
}

static tern_status allocate(struct tern_prefetch *prefetch)
{
    size_t ids = (size_t)prefetch->count * (size_t)prefetch->sequence_length;
    for (int i = 0; i < 2; i++) {
        prefetch->batches[i].inputs = tern_alloc("batch inputs", ids * sizeof(int32_t));
        prefetch->batches[i].targets = tern_alloc("batch targets", ids * sizeof(int32_t));
        bool is_packed = tern_tokens_is_packed(prefetch->tokens);
        if (is_packed) {
            prefetch->batches[i].starts = tern_alloc("batch starts", ids * sizeof(int32_t));
        }
        if (prefetch->batches[i].inputs == NULL || prefetch->batches[i].targets == NULL ||
            (is_packed && prefetch->batches[i].starts == NULL)) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate two batches of %" PRId64 " samples",
                             prefetch->count);
        }
    }
    return TERN_OK;
}

static void release(struct tern_prefetch *prefetch)
{
    for (int i = 0; i < 2; i++) {
        tern_free(prefetch->batches[i].inputs);
        tern_free(prefetch->batches[i].targets);
        tern_free(prefetch->batches[i].starts);
    }
    tern_free(prefetch);
}

tern_status tern_prefetch_start(const struct tern_tokens *tokens,
                                int64_t global_batch,
                                int64_t first,
                                int64_t count,
                                int64_t first_step,
                                struct tern_prefetch **out)
{
    *out = NULL;
    if (count < 1 || first < 0 || first + count > global_batch || first_step < 0) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "samples [%" PRId64 ", %" PRId64 ") of a global batch of %" PRId64
                         " from step %" PRId64 "; expected a part of it and a step of 0 or more",
                         first, first + count, global_batch, first_step);
    }
    struct tern_prefetch *prefetch = tern_alloc_zero("prefetch", 1, sizeof *prefetch);
    if (prefetch == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the prefetch");
    }
    prefetch->tokens = tokens;
    prefetch->global_batch = global_batch;
    prefetch->first = first;
    prefetch->count = count;
    prefetch->sequence_length = tern_tokens_sequence_length(tokens);
    prefetch->next_step = first_step;
    tern_status status = allocate(prefetch);
    if (status != TERN_OK) {
        release(prefetch);
        return status;
    }
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->changed, NULL);
    int error = pthread_create(&prefetch->thread, NULL, work, prefetch);
    if (error != 0) {
        pthread_cond_destroy(&prefetch->changed);
        pthread_mutex_destroy(&prefetch->lock);
        release(prefetch);
        return tern_fail_errno(TERN_ERR_MEMORY, error, "cannot start the prefetch thread");
    }
    *out = prefetch;
    return TERN_OK;
}

tern_status tern_prefetch_take(struct tern_prefetch *prefetch,
                               int64_t step,
                               const int32_t **inputs_out,
                               const int32_t **targets_out,
                               const int32_t **starts_out)
{
    *inputs_out = NULL;
    *targets_out = NULL;
    *starts_out = NULL;
    pthread_mutex_lock(&prefetch->lock);
    if (step != prefetch->next_step) {
        int64_t expected = prefetch->next_step;
        pthread_mutex_unlock(&prefetch->lock);
        return tern_fail(TERN_ERR_ARGUMENT,
                         "batch of step %" PRId64 "; expected step %" PRId64 ": they ascend by 1",
                         step, expected);
    }
    if (prefetch->has_given) {
        prefetch->batches[(step - 1) & 1].is_full = false;
        pthread_cond_broadcast(&prefetch->changed);
    }
    struct batch *batch = &prefetch->batches[step & 1];
    while (!batch->is_full) {
        pthread_cond_wait(&prefetch->changed, &prefetch->lock);
    }
    tern_status status = batch->status;
    prefetch->has_given = true;
    prefetch->next_step++;
    pthread_mutex_unlock(&prefetch->lock);
    if (status != TERN_OK) {
        tern_detail_set(batch->detail);
        return status;
    }
    *inputs_out = batch->inputs;
    *targets_out = batch->targets;
    *starts_out = batch->starts;
    return TERN_OK;
}

void tern_prefetch_stop(struct tern_prefetch *prefetch)
{
    if (prefetch == NULL) {
        return;
    }
    pthread_mutex_lock(&prefetch->lock);
    prefetch->is_stopping = true;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->lock);
    pthread_join(prefetch->thread, NULL);
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->lock);
    release(prefetch);
}
