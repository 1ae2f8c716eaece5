/* sampler.c - penalties, bias, masks; temperature, top-k, top-p, min-p, one draw. */
#include "runtime/generate/sampler.h"

#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    DIGITS = 4096 /* values of a digit, at most */
};

struct candidate {
    float weight; /* 1 for the best */
    int32_t id;
};

struct tern_sampler {
    int64_t vocab;
    struct tern_softmax softmax;
    struct candidate *candidates; /* (V) */
    struct candidate *rest;       /* (V + 1) of those, the ones that a cut goes through */
    float *adjusted;              /* (V) */
    int32_t *seen;                /* (V) how often each id was counted; zeros between calls */
};

tern_status tern_sampler_create(int64_t vocab, struct tern_sampler **out)
{
    struct tern_sampler *sampler = tern_alloc_zero("sampler", 1, sizeof *sampler);
    if (sampler != NULL) {
        *sampler = (struct tern_sampler){
            .vocab = vocab,
            .candidates = tern_alloc("sampler", (size_t)vocab * sizeof *sampler->candidates),
            .rest = tern_alloc("sampler", ((size_t)vocab + 1) * sizeof *sampler->rest),
            .adjusted = tern_alloc("sampler", (size_t)vocab * sizeof *sampler->adjusted),
            .seen = tern_alloc_zero("sampler", (size_t)vocab, sizeof *sampler->seen),
        };
    }
    if (sampler == NULL || sampler->candidates == NULL || sampler->rest == NULL ||
        sampler->adjusted == NULL || sampler->seen == NULL) {
        tern_sampler_destroy(sampler);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a sampler of %lld tokens",
                         (long long)vocab);
    }
    tern_status status = tern_softmax_init(&sampler->softmax, vocab);
    if (status != TERN_OK) {
        tern_sampler_destroy(sampler);
        return status;
    }
    *out = sampler;
    return TERN_OK;
}

void tern_sampler_destroy(struct tern_sampler *sampler)
{
    if (sampler != NULL) {
        tern_softmax_fini(&sampler->softmax);
        tern_free(sampler->candidates);
        tern_free(sampler->rest);
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

/* Ids of at least this weight, into the candidates; returns how many. */
static int64_t gather(struct tern_sampler *sampler, float least)
{
    const struct tern_softmax *softmax = &sampler->softmax;
    int64_t count = 0;
    for (int64_t block = 0; block < softmax->blocks; block++) {
        int64_t from = block * TERN_SOFTMAX_BLOCK;
        if (softmax->block_best[block] < least || softmax->block_best[block] == 0) {
            continue;
        }
        for (int64_t i = from; i < from + TERN_SOFTMAX_BLOCK; i++) {
            float weight = softmax->weights[i];
            if (weight >= least && weight > 0) {
                sampler->candidates[count++] = (struct candidate){weight, (int32_t)i};
            }
        }
    }
    return count;
}

static uint32_t key_of(const struct candidate *item)
{
    uint32_t key;
    memcpy(&key, &item->weight, sizeof key);
    return key;
}

static double sum_of(const struct candidate *items, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += items[i].weight;
    }
    return sum;
}

/* Gathers enough to be sure of what top-k, top-p and min-p keep: the likely ones, if they will
 * do. Returns how many. */
static int64_t gather_likely(struct tern_sampler *sampler, const struct tern_sampling *sampling)
{
    static const float least[] = {0x1p-10F, 0x1p-14F, 0x1p-18F, 0x1p-24F, 0};
    int64_t count = 0;
    for (size_t i = 0; i < sizeof least / sizeof least[0]; i++) {
        count = gather(sampler, least[i]);
        bool has_k = sampling->top_k > 0 && count >= sampling->top_k;
        bool has_p = sampling->top_k <= 0 && sampling->top_p < 1 &&
                     sum_of(sampler->candidates, count) >= sampling->top_p * sampler->softmax.sum;
        if (has_k || has_p ||
            (sampling->min_p > 0 && sampling->min_p >= least[i] && sampling->top_k <= 0 &&
             sampling->top_p >= 1)) {
            break;
        }
    }
    return count;
}

/* Where the likeliest end that are as few as `most` or, if that is fewer, weigh `enough`. */
struct cut {
    uint32_t
        key; /* the bits of the last one's weight: positive floats are ordered as their bits are */
    int64_t ties;    /* so many of that weight belong to them, by id */
    int64_t counted; /* heavier ones */
    double weighed;
};

/* Narrows a cut by one digit of the keys, `bits` above `shift`, of items that agree with it in
 * those before: counts and weighs each digit's items and takes those of the largest ones, as
 * long as they are too few. */
static void narrow(struct cut *cut,
                   const struct candidate *items,
                   int64_t count,
                   int shift,
                   int bits,
                   int64_t most,
                   double enough)
{
    int64_t counts[DIGITS] = {0};
    double sums[DIGITS] = {0};
    uint32_t digits = 1U << bits;
    for (int64_t i = 0; i < count; i++) {
        uint32_t digit = key_of(&items[i]) >> shift & (digits - 1);
        counts[digit]++;
        sums[digit] += items[i].weight;
    }
    uint32_t digit = digits - 1;
    for (; digit > 0 && (counts[digit] == 0 || (cut->counted + counts[digit] < most &&
                                                cut->weighed + sums[digit] < enough));
         digit--) {
        cut->counted += counts[digit];
        cut->weighed += sums[digit];
    }
    cut->key |= digit << shift;
}

/* Items of the same leading digits as the cut has, into `rest`; returns how many. */
static int64_t agree(const struct cut *cut,
                     const struct candidate *items,
                     int64_t count,
                     int shift,
                     struct candidate *rest)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        rest[kept] = items[i];
        kept += key_of(&items[i]) >> shift == cut->key >> shift;
    }
    return kept;
}

/* Digit by digit from the highest, with no regard to the order of items. rest: room for count +
 * 1. */
static struct cut find_cut(const struct candidate *items,
                           int64_t count,
                           int64_t most,
                           double enough,
                           struct candidate *rest)
{
    struct cut cut = {0};
    narrow(&cut, items, count, 20, 12, most, enough); /* exponent and three bits more */
    count = agree(&cut, items, count, 20, rest);
    narrow(&cut, rest, count, 10, 10, most, enough);
    count = agree(&cut, rest, count, 10, rest);
    narrow(&cut, rest, count, 0, 10, most, enough);
    float weight;
    memcpy(&weight, &cut.key, sizeof weight);
    do {
        cut.ties++;
        cut.weighed += weight;
    } while (cut.counted + cut.ties < most && cut.weighed < enough);
    return cut;
}

/* Leaves those before the cut, in the order of their ids; returns how many. */
static int64_t keep_before(struct tern_sampler *sampler, int64_t count, int64_t most, double enough)
{
    if (most >= count && enough == INFINITY) {
        return count;
    }
    struct candidate *items = sampler->candidates;
    struct cut cut = find_cut(items, count, most, enough, sampler->rest);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t key = key_of(&items[i]);
        if (key > cut.key || (key == cut.key && cut.ties-- > 0)) {
            items[kept++] = items[i];
        }
    }
    return kept;
}

/* Leaves what top-k, top-p and min-p keep; returns how many, at least one. */
static int64_t keep_likely(struct tern_sampler *sampler,
                           int64_t count,
                           const struct tern_sampling *sampling)
{
    struct candidate *items = sampler->candidates;
    double all = sampler->softmax.sum;
    if (sampling->top_k > 0) {
        count = keep_before(sampler, count, sampling->top_k, INFINITY);
        all = sum_of(items, count); /* top-p is a share of what top-k left */
    }
    if (sampling->top_p < 1) {
        count = keep_before(sampler, count, count, sampling->top_p * all);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < count && sampling->min_p > 0; i++) {
        if (items[i].weight >= sampling->min_p) {
            items[kept++] = items[i];
        }
    }
    return sampling->min_p > 0 ? kept : count;
}

/* The id where a draw in [0, 1) falls, of the candidates from items on. */
static int32_t draw_candidate(const struct candidate *items, int64_t count, double uniform)
{
    double draw = sum_of(items, count) * uniform;
    int64_t i = 0;
    for (; i + 1 < count && draw >= items[i].weight; i++) {
        draw -= items[i].weight;
    }
    return items[i].id;
}

/* The same of the whole vocabulary, by blocks and then by ids. */
static int32_t draw_any(const struct tern_softmax *softmax, double uniform)
{
    double draw = softmax->sum * uniform;
    int64_t last = 0; /* the latest block with anything in it */
    for (int64_t block = 0; block < softmax->blocks; block++) {
        double sum = softmax->block_sum[block];
        if (sum > 0) {
            last = block;
            if (draw < sum) {
                break;
            }
            draw -= sum;
        }
    }
    int64_t at = last * TERN_SOFTMAX_BLOCK;
    int64_t found = at;
    for (int64_t i = at; i < at + TERN_SOFTMAX_BLOCK; i++) {
        double weight = softmax->weights[i];
        if (weight > 0) {
            found = i;
            if (draw < weight) {
                break;
            }
            draw -= weight;
        }
    }
    return (int32_t)found;
}

int32_t tern_sampler_pick(struct tern_sampler *sampler,
                          const float *logits,
                          const struct tern_sampling *sampling,
                          int64_t position)
{
    int32_t best = tern_softmax_best(logits, sampler->vocab);
    if (!(sampling->temperature > 0)) {
        return best;
    }
    tern_softmax_run(&sampler->softmax, logits, best, sampling->temperature);
    if (!(sampler->softmax.sum > 0)) { /* nothing but infinities and NaN */
        return best;
    }
    double uniform = tern_random_uniform(
        sampling->seed, tern_random_stream_id(TERN_STREAM_SAMPLE, sampling->choice),
        (uint64_t)position);
    if (sampling->top_k <= 0 && sampling->top_p >= 1 && sampling->min_p <= 0) {
        return draw_any(&sampler->softmax, uniform);
    }
    int64_t count = keep_likely(sampler, gather_likely(sampler, sampling), sampling);
    return draw_candidate(sampler->candidates, count, uniform);
}

const struct tern_softmax *tern_sampler_weights(struct tern_sampler *sampler, const float *logits)
{
    int32_t best = tern_softmax_best(logits, sampler->vocab);
    tern_softmax_run(&sampler->softmax, logits, best, 1);
    return &sampler->softmax;
}

double tern_sampler_log_sum(struct tern_sampler *sampler, const float *logits)
{
    double sum = tern_sampler_weights(sampler, logits)->sum;
    return sum > 0 ? logits[tern_softmax_best(logits, sampler->vocab)] + log(sum) : NAN;
}
