/* softmax.c - which instructions, and the walk over a vocabulary. */
#include "runtime/generate/softmax.h"

#include "runtime/base/mem.h"
#include "runtime/generate/softmax_level.h"

#include <math.h>

enum {
    BEST_BLOCK = 4096 /* logits between two looks at the best so far */
};

static const struct tern_softmax_level *level(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return &tern_softmax_avx512;
    }
    if (__builtin_cpu_supports("avx2")) {
        return &tern_softmax_avx2;
    }
#endif
    return &tern_softmax_generic;
}

tern_status tern_softmax_init(struct tern_softmax *softmax, int64_t vocab)
{
    int64_t blocks = (vocab + TERN_SOFTMAX_BLOCK - 1) / TERN_SOFTMAX_BLOCK;
    size_t count = (size_t)blocks;
    *softmax = (struct tern_softmax){
        .vocab = vocab,
        .blocks = blocks,
        .weights = tern_alloc_zero("softmax", count * TERN_SOFTMAX_BLOCK, sizeof(float)),
        .block_best = tern_alloc("softmax", count * sizeof(float)),
        .block_sum = tern_alloc("softmax", count * sizeof(float)),
    };
    if (softmax->weights == NULL || softmax->block_best == NULL || softmax->block_sum == NULL) {
        tern_softmax_fini(softmax);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate weights of %lld tokens",
                         (long long)vocab);
    }
    return TERN_OK;
}

void tern_softmax_fini(struct tern_softmax *softmax)
{
    tern_free(softmax->weights);
    tern_free(softmax->block_best);
    tern_free(softmax->block_sum);
    *softmax = (struct tern_softmax){0};
}

int32_t tern_softmax_best(const float *logits, int64_t vocab)
{
    const struct tern_softmax_level *loops = level();
    float best = -INFINITY;
    int64_t from = 0; /* the block that has it first */
    for (int64_t at = 0; at < vocab; at += BEST_BLOCK) {
        int64_t n = vocab - at < BEST_BLOCK ? vocab - at : BEST_BLOCK;
        float one = loops->largest(logits + at, n);
        if (one > best) {
            best = one;
            from = at;
        }
    }
    for (int64_t i = from; i < vocab; i++) {
        if (logits[i] == best) {
            return (int32_t)i;
        }
    }
    return 0; /* nothing but NaN */
}

void tern_softmax_run(struct tern_softmax *softmax,
                      const float *logits,
                      int32_t best,
                      double temperature)
{
    const struct tern_softmax_level *loops = level();
    float scale = (float)(1 / temperature);
    float last[TERN_SOFTMAX_BLOCK]; /* the end, made whole */
    softmax->sum = 0;
    for (int64_t block = 0; block < softmax->blocks; block++) {
        int64_t from = block * TERN_SOFTMAX_BLOCK;
        const float *part = logits + from;
        if (from + TERN_SOFTMAX_BLOCK > softmax->vocab) {
            for (int64_t i = 0; i < TERN_SOFTMAX_BLOCK; i++) {
                last[i] = from + i < softmax->vocab ? part[i] : -INFINITY;
            }
            part = last;
        }
        loops->block(part, logits[best], scale, softmax->weights + from,
                     &softmax->block_best[block], &softmax->block_sum[block]);
        softmax->sum += softmax->block_sum[block];
    }
}
