/* softmax_level.c - sixteen logits at a time, whatever the machine's registers hold. */
#include "runtime/generate/softmax_level.h"

#include "runtime/generate/softmax.h"

#include <math.h>

enum {
    LANES = 16
};

typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));

/* a where the mask has ones, else b. */
#define PICK(mask, a, b) ((floats)(((ints)(a) & (mask)) | ((ints)(b) & ~(mask))))
#define SPLAT(value)     ((value) - (floats){0})
/* Lanes i + n beside lanes i. */
#define FOLD_8(v) \
    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0)
#define FOLD_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

static inline float largest_lane(const floats *lanes)
{
    floats v = *lanes;
    floats w = FOLD_8(v);
    v = PICK(w > v, w, v);
    w = FOLD_4(v);
    v = PICK(w > v, w, v);
    float best = v[0];
    for (int i = 1; i < 4; i++) {
        best = v[i] > best ? v[i] : best;
    }
    return best;
}

static float largest(const float *logits, int64_t n)
{
    floats best[2] = {SPLAT(-INFINITY), SPLAT(-INFINITY)};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        floats a = *(const floats *)(logits + i);
        floats b = *(const floats *)(logits + i + LANES);
        best[0] = PICK(a > best[0], a, best[0]); /* never of NaN */
        best[1] = PICK(b > best[1], b, best[1]);
    }
    best[0] = PICK(best[1] > best[0], best[1], best[0]);
    float one = largest_lane(best);
    for (; i < n; i++) {
        one = logits[i] > one ? logits[i] : one;
    }
    return one;
}

/* exp(x) of x <= 0: 2^n 2^f with n whole and f in [-1/2, 1/2], the latter by its series (the terms
 * left out are below 2^-27). 0 below -44, and of NaN. */
static inline void exp_of(const floats *from, floats *to)
{
    const float round = 12582912; /* 1.5 2^23: what is added to it becomes whole */
    floats x = *from;
    ints is_there = x >= SPLAT(-44.0F);
    floats t = PICK(is_there, x, SPLAT(0.0F)) * 1.44269504F;
    floats whole = t + round;
    floats f = (t - (whole - round)) * 0.693147181F;
    floats p = f * (1.0F / 5040) + 1.0F / 720;
    p = p * f + 1.0F / 120;
    p = p * f + 1.0F / 24;
    p = p * f + 1.0F / 6;
    p = p * f + 0.5F;
    p = p * f + 1;
    p = p * f + 1;
    words exponent = (words)whole << 23; /* its low bits are n */
    *to = (floats)(((words)p + exponent) & (words)is_there);
}

static void block(const float *logits,
                  float best,
                  float scale,
                  float *weights,
                  float *largest_out,
                  float *sum_out)
{
    floats sum = SPLAT(0.0F);
    floats most = SPLAT(0.0F);
    for (int i = 0; i < TERN_SOFTMAX_BLOCK; i += LANES) {
        floats x = (*(const floats *)(logits + i) - best) * scale;
        floats weight;
        exp_of(&x, &weight);
        *(floats *)(weights + i) = weight;
        sum += weight;
        most = PICK(weight > most, weight, most);
    }
    sum += FOLD_8(sum);
    sum += FOLD_4(sum);
    *sum_out = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    *largest_out = largest_lane(&most);
}

#define NAME_OF(suffix) tern_softmax_##suffix
#define NAME(suffix)    NAME_OF(suffix)
const struct tern_softmax_level NAME(TERN_SOFTMAX_SUFFIX) = {largest, block};
