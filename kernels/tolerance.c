/* tolerance.c - error bounds by op, dtype and reduction length. */
#include "kernels/tolerance.h"

#include <float.h>
#include <math.h>

/* Rounding operations in fp32 on the way from inputs to one output, besides the sums: each costs
 * one epsilon of the magnitude. A vectorised exp or tanh is allowed four. 0: the result is exact
 * before it is stored. */
static const double g_steps[TERN_OP_COUNT] = {
    [TERN_OP_EMBED_FWD] = 2,      /* scale, one addition */
    [TERN_OP_EMBED_BWD] = 2,      /* scale, and the sum */
    [TERN_OP_NORM_FWD] = 8,       /* mean, centre, square, mean, root, two products, addition */
    [TERN_OP_NORM_BWD] = 10,      /* hat 2, g 1, two means, three products, two additions */
    [TERN_OP_GEMM] = 2,           /* bias, accumulate */
    [TERN_OP_BIAS_BWD] = 1,       /* accumulate */
    [TERN_OP_GEMM_BIAS_BWD] = 2,  /* accumulate */
    [TERN_OP_ATTENTION_FWD] = 10, /* scale, cap, exp 4, rescales of a running maximum, division */
    [TERN_OP_ATTENTION_BWD] = 14, /* scale, cap, exp 4, delta, difference, products */
    [TERN_OP_KV_WRITE] = 14,      /* seen through paged_attention */
    [TERN_OP_PAGED_ATTENTION] = 14, /* as attention, scales of codes, segments joined */
    [TERN_OP_ROPE] = 3,           /* two products, one addition */
    [TERN_OP_ACT_FWD] = 12,       /* polynomial 4, exp or tanh 4, division, products */
    [TERN_OP_ACT_BWD] = 16,       /* as forward, and the slope */
    [TERN_OP_GLU_FWD] = 13,       /* act and one product */
    [TERN_OP_GLU_BWD] = 18,       /* slope and two products */
    [TERN_OP_ADD] = 1,            /* the product, where it is not fused with the addition */
    [TERN_OP_CROSS_ENTROPY] = 12, /* difference, exp 4, log 4, division */
    [TERN_OP_ADAMW] = 10,         /* two moments, root, divisions, decay */
    [TERN_OP_SUMSQ] = 0,          /* in double throughout */
    [TERN_OP_CLIP] = 0,           /* the same */
    [TERN_OP_CAST] = 0,
    [TERN_OP_SOFTCAP] = 8,     /* two products, tanh 4 */
    [TERN_OP_MOE_ROUTE] = 12,  /* difference, exp 4, sum, division */
    [TERN_OP_MOE_COMBINE] = 1, /* the sum only */
    [TERN_OP_PACK] = 2,
};

/* Errors of a sum of `length` terms grow like its root when they are independent, and a few
 * times that when the terms are alike; never faster than the length. */
static double growth(int64_t length)
{
    double n = (double)length;
    return fmin(n, 4 * sqrt(n));
}

double tern_tolerance_bound(enum tern_op op,
                            enum tern_dtype storage,
                            int64_t length,
                            const struct tern_tolerance_element *element)
{
    double stored = tern_dtype_epsilon(storage);
    if (op == TERN_OP_CAST) {
        return 0;
    }
    if (op == TERN_OP_SUMSQ || op == TERN_OP_CLIP) {
        return stored * growth(length) * element->magnitude;
    }
    double computed = storage == TERN_F64 ? stored : tern_dtype_epsilon(TERN_F32);
    double steps = g_steps[op] + (op == TERN_OP_ADD ? 0 : growth(length));
    /* Twice the half-ulp of storing: both sides round, and may fall on different sides of a tie. */
    double bound =
        stored * (fabs(element->want) + element->rounded) + computed * steps * element->magnitude;
    /* A rounded factor changes its term by half an epsilon at most, each term on its own: together
     * they stay within four times the root of the sum of squares, or the sum if that is less. */
    double term = tern_dtype_epsilon(TERN_BF16) / 2;
    bound += term * fmin(element->terms, 4 * sqrt(element->squares));
    /* Results below the smallest normal number may be flushed to zero; an exp may stop at the power
     * of two above it, where its argument is clamped. */
    return bound + (double)FLT_MIN * (1 + 2 * element->underflow);
}

double tern_tolerance_step(void)
{
    return cbrt(tern_dtype_epsilon(TERN_F64));
}

double tern_tolerance_gradient(void)
{
    /* Truncation is step^2 times a third derivative, here up to a few hundred times the
     * gradient. */
    return 1024 * tern_tolerance_step() * tern_tolerance_step();
}
