/* sampler.c - temperature, top-k, top-p, min-p, one draw. */
#include "runtime/generate/sampler.h"

#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    double weight; /* exp((logit - best) / temperature): 1 for the best */
    int32_t id;
};

struct tern_sampler {
    int64_t vocab;
    struct candidate *candidates;
};

tern_status tern_sampler_create(int64_t vocab, struct tern_sampler **out)
{
    struct tern_sampler *sampler = tern_alloc_zero("sampler", 1, sizeof *sampler);
    struct candidate *candidates = tern_alloc("sampler", (size_t)vocab * sizeof *candidates);
    if (sampler == NULL || candidates == NULL) {
        tern_free(sampler);
        tern_free(candidates);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a sampler of %lld tokens",
                         (long long)vocab);
    }
    *sampler = (struct tern_sampler){.vocab = vocab, .candidates = candidates};
    *out = sampler;
    return TERN_OK;
}

void tern_sampler_destroy(struct tern_sampler *sampler)
{
    if (sampler != NULL) {
        tern_free(sampler->candidates);
        tern_free(sampler);
    }
}

static int32_t best_of(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return (int32_t)best;
}

/* Heaviest first; equal weights by id, so that the order is total. */
static int by_weight(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->weight != y->weight) {
        return x->weight < y->weight ? 1 : -1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

/* How many of the sorted candidates the nucleus keeps: at least one. */
static int64_t nucleus(const struct candidate *candidates, int64_t count, double top_p)
{
    double total = 0;
    for (int64_t i = 0; i < count; i++) {
        total += candidates[i].weight;
    }
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += candidates[i].weight;
        if (sum >= top_p * total) {
            return i + 1;
        }
    }
    return count;
}

int32_t tern_sampler_pick(struct tern_sampler *sampler,
                          const float *logits,
                          const struct tern_sampling *sampling,
                          int64_t position)
{
    int32_t best = best_of(logits, sampler->vocab);
    if (sampling->temperature <= 0) {
        return best;
    }
    struct candidate *candidates = sampler->candidates;
    int64_t count = 0;
    for (int64_t i = 0; i < sampler->vocab; i++) {
        double weight = exp(((double)logits[i] - logits[best]) / sampling->temperature);
        if (weight > 0) { /* NaN and underflow can never be drawn */
            candidates[count++] = (struct candidate){.weight = weight, .id = (int32_t)i};
        }
    }
    qsort(candidates, (size_t)count, sizeof *candidates, by_weight);
    if (sampling->top_k > 0 && sampling->top_k < count) {
        count = sampling->top_k;
    }
    if (sampling->top_p < 1) {
        count = nucleus(candidates, count, sampling->top_p);
    }
    while (count > 1 && candidates[count - 1].weight < sampling->min_p) {
        count--;
    }
    double total = 0;
    for (int64_t i = 0; i < count; i++) {
        total += candidates[i].weight;
    }
    double draw =
        total * tern_random_uniform(sampling->seed, tern_random_stream_id(TERN_STREAM_SAMPLE, 0),
                                    (uint64_t)position);
    for (int64_t i = 0; i < count; i++) {
        draw -= candidates[i].weight;
        if (draw < 0) {
            return candidates[i].id;
        }
    }
    return candidates[count - 1].id;
}
