/* sampler.c - penalties, bias, masks; temperature, top-k, top-p, min-p, one draw. */
#include "runtime/generate/sampler.h"

#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

struct candidate {
    double weight; /* exp((logit - best) / temperature): 1 for the best */
    int32_t id;
};

struct tern_sampler {
    int64_t vocab;
    struct candidate *candidates;
    float *adjusted; /* (V) */
    int32_t *seen;   /* (V) how often each id was counted; zeros between calls */
};

tern_status tern_sampler_create(int64_t vocab, struct tern_sampler **out)
{
    struct tern_sampler *sampler = tern_alloc_zero("sampler", 1, sizeof *sampler);
    if (sampler != NULL) {
        *sampler = (struct tern_sampler){
            .vocab = vocab,
            .candidates = tern_alloc("sampler", (size_t)vocab * sizeof *sampler->candidates),
            .adjusted = tern_alloc("sampler", (size_t)vocab * sizeof *sampler->adjusted),
            .seen = tern_alloc_zero("sampler", (size_t)vocab, sizeof *sampler->seen),
        };
    }
    if (sampler == NULL || sampler->candidates == NULL || sampler->adjusted == NULL ||
        sampler->seen == NULL) {
        tern_sampler_destroy(sampler);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a sampler of %lld tokens",
                         (long long)vocab);
    }
    *out = sampler;
    return TERN_OK;
}

void tern_sampler_destroy(struct tern_sampler *sampler)
{
    if (sampler != NULL) {
        tern_free(sampler->candidates);
        tern_free(sampler->adjusted);
        tern_free(sampler->seen);
        tern_free(sampler);
    }
}

/* Takes from the logits of text's tokens what `frequency` and `presence` say. */
static void penalize_text(struct tern_sampler *sampler,
                          const struct tern_sampling *sampling,
                          const int32_t *text,
                          int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        sampler->seen[text[i]]++;
    }
    for (int64_t i = 0; i < count; i++) {
        int32_t times = sampler->seen[text[i]];
        if (times > 0) { /* once an id */
            sampler->adjusted[text[i]] -= (float)(sampling->frequency * times + sampling->presence);
            sampler->seen[text[i]] = 0;
        }
    }
}

static void penalize_repetition(struct tern_sampler *sampler,
                                float repetition,
                                const int32_t *ids,
                                int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float *logit = &sampler->adjusted[ids[i]];
        if (sampler->seen[ids[i]]++ == 0) {
            *logit = *logit > 0 ? *logit / repetition : *logit * repetition;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        sampler->seen[ids[i]] = 0;
    }
}

/* Whether an id that is not banned could be picked. */
static bool has_other(const struct tern_sampler *sampler, const struct tern_logit_rules *rules)
{
    for (int64_t id = 0; id < sampler->vocab; id++) {
        bool is_banned = false;
        for (int i = 0; i < rules->banned_count; i++) {
            is_banned |= rules->banned[i] == id;
        }
        if (!is_banned && sampler->adjusted[id] > -INFINITY) {
            return true;
        }
    }
    return false;
}

static void apply_mask(float *logits, int64_t vocab, const uint32_t *allowed)
{
    for (int64_t id = 0; id < vocab; id++) {
        if ((allowed[id / 32] >> (id % 32) & 1) == 0) {
            logits[id] = -INFINITY;
        }
    }
}

const float *tern_sampler_adjust(struct tern_sampler *sampler,
                                 const float *logits,
                                 const struct tern_sampling *sampling,
                                 const struct tern_logit_rules *rules)
{
    bool repeats = sampling->repetition > 0 && sampling->repetition != 1;
    bool counts = (sampling->frequency != 0 || sampling->presence != 0) && rules->text_count > 0;
    if (!repeats && !counts && rules->bias_count == 0 && rules->banned_count == 0 &&
        rules->allowed == NULL) {
        return logits;
    }
    float *adjusted = sampler->adjusted;
    memcpy(adjusted, logits, (size_t)sampler->vocab * sizeof *adjusted);
    if (repeats) {
        penalize_repetition(sampler, (float)sampling->repetition, rules->ids,
                            rules->prompt_count + rules->text_count);
    }
    if (counts) {
        penalize_text(sampler, sampling, rules->ids + rules->prompt_count, rules->text_count);
    }
    for (int64_t i = 0; i < rules->bias_count; i++) {
        adjusted[rules->bias[i].id] += rules->bias[i].value;
    }
    if (rules->allowed != NULL) {
        apply_mask(adjusted, sampler->vocab, rules->allowed);
    }
    if (rules->banned_count > 0 && has_other(sampler, rules)) {
        for (int i = 0; i < rules->banned_count; i++) {
            adjusted[rules->banned[i]] = -INFINITY;
        }
    }
    return adjusted;
}

/* The lowest id among the largest; NaN is never the largest. */
static int32_t best_of(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++) {
        if (logits[i] > logits[best] || isnan(logits[best])) {
            best = i;
        }
    }
    return (int32_t)best;
}

/* Heavier first; equal weights by id, so that the order is total. */
static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->weight != b->weight ? a->weight > b->weight : a->id < b->id;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate kept = *a;
    *a = *b;
    *b = kept;
}

/* The candidates in order, as far as they are asked for: a heap in front, those popped behind it,
 * the first of all last. A nucleus is a few of many: k pops cost less than sorting a vocabulary for
 * each token. */
struct queue {
    struct candidate *items;
    int64_t count, popped;
};

/* Lets the item at `at` sink to its place in the heap of n. */
static void sink(struct candidate *heap, int64_t n, int64_t at)
{
    for (;;) {
        int64_t first = at;
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++) {
            first = comes_before(&heap[child], &heap[first]) ? child : first;
        }
        if (first == at) {
            return;
        }
        swap(&heap[at], &heap[first]);
        at = first;
    }
}

/* The nth in order, from 0. */
static const struct candidate *nth(struct queue *queue, int64_t n)
{
    for (; queue->popped <= n; queue->popped++) {
        int64_t last = queue->count - 1 - queue->popped;
        swap(&queue->items[0], &queue->items[last]);
        sink(queue->items, last, 0);
    }
    return &queue->items[queue->count - 1 - n];
}

/* Everything that may be drawn at all, by id; returns how many. */
static int64_t gather(struct tern_sampler *sampler,
                      const float *logits,
                      int32_t best,
                      double temperature)
{
    int64_t count = 0;
    for (int64_t i = 0; i < sampler->vocab; i++) {
        double weight = exp(((double)logits[i] - logits[best]) / temperature);
        if (weight > 0) { /* NaN and underflow can never be drawn */
            sampler->candidates[count++] = (struct candidate){.weight = weight, .id = (int32_t)i};
        }
    }
    return count;
}

static double sum_of(const struct candidate *items, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += items[i].weight;
    }
    return sum;
}

/* Moves what top-k, top-p and min-p keep to the back of the items; returns how many, at least
 * one. */
static int64_t keep_likely(struct candidate *items,
                           int64_t count,
                           const struct tern_sampling *sampling)
{
    struct queue queue = {.items = items, .count = count};
    for (int64_t i = count / 2; i-- > 0;) {
        sink(items, count, i);
    }
    int64_t most = count;
    if (sampling->top_k > 0 && sampling->top_k < count) {
        most = sampling->top_k;
        nth(&queue, most - 1);
    }
    double enough = INFINITY;
    if (sampling->top_p < 1) { /* a share of what top-k left */
        enough = sampling->top_p * sum_of(items + (count - most), most);
    }
    int64_t kept = 0;
    double sum = 0;
    do {
        sum += nth(&queue, kept++)->weight;
    } while (kept < most && sum < enough && nth(&queue, kept)->weight >= sampling->min_p);
    return kept;
}

int32_t tern_sampler_pick(struct tern_sampler *sampler,
                          const float *logits,
                          const struct tern_sampling *sampling,
                          int64_t position)
{
    int32_t best = best_of(logits, sampler->vocab);
    int64_t count =
        sampling->temperature > 0 ? gather(sampler, logits, best, sampling->temperature) : 0;
    if (count == 0) { /* greedy, or nothing but infinities and NaN */
        return best;
    }
    bool takes_all = sampling->top_k <= 0 && sampling->top_p >= 1 && sampling->min_p <= 0;
    int64_t kept = takes_all ? count : keep_likely(sampler->candidates, count, sampling);
    const struct candidate *items = sampler->candidates + (count - kept);
    double draw = sum_of(items, kept) *
                  tern_random_uniform(sampling->seed,
                                      tern_random_stream_id(TERN_STREAM_SAMPLE, sampling->choice),
                                      (uint64_t)position);
    int64_t i = 0;
    for (; i + 1 < kept && draw >= items[i].weight; i++) {
        draw -= items[i].weight;
    }
    return items[i].id;
}
