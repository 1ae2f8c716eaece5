/* stored.c - a row of weights in GGUF's blocks times a few rows of f32: the codes go straight from their bytes into
 * vectors, and no row of decoded values is written anywhere.
 *
 * Every format is seen as groups of 32 codes q with value = scale q + min, scale being of 16 codes: a group adds
 * scale (q . a) lane by lane, and min times the sum of the 32 a, which is taken once for all rows of weights. Two
 * running sums a row of a (lanes; minima), in the order of k: one row's bits depend on nothing else. */
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

struct group {
    int8_t q[TERN_CPU_STORED_GROUP];
    float scale[2]; /* of the first and the second half */
    float min;
};

static inline float load_f16(const uint8_t *p)
{
    tern_f16 bits;
    memcpy(&bits, p, sizeof bits);
    return tern_f16_to_f32(bits);
}

/* The compiler's own vectors: what it does not find in loops over bytes. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));

/* 16 bytes: the low nibbles, then the high ones, less `zero`. */
VF_INLINE void split_nibbles(struct group *g, const uint8_t *from, int zero)
{
    bytes16 x;
    memcpy(&x, from, sizeof x);
    bytes16 low = (x & 15) - (uint8_t)zero, high = (x >> 4) - (uint8_t)zero;
    memcpy(g->q, &low, sizeof low);
    memcpy(g->q + 16, &high, sizeof high);
}

/* Bit i of four bytes counts 16 in code i. */
VF_INLINE void add_fifth_bits(struct group *g, const uint8_t *from)
{
    static const bytes16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    for (int half = 0; half < 2; half++) {
        const uint64_t spread[2] = {from[2 * half] * UINT64_C(0x0101010101010101),
                                    from[2 * half + 1] * UINT64_C(0x0101010101010101)};
        bytes16 x, q;
        memcpy(&x, spread, sizeof x);
        memcpy(&q, g->q + 16 * half, sizeof q);
        q += (bytes16)((x & bit) == bit) & 16;
        memcpy(g->q + 16 * half, &q, sizeof q);
    }
}

VF_INLINE void set_scale(struct group *g, float scale, float min)
{
    g->scale[0] = scale;
    g->scale[1] = scale;
    g->min = min;
}

VF_INLINE void expand_q4_0(const uint8_t *x, int number, struct group *g)
{
    (void)number;
    split_nibbles(g, x + 2, 8);
    set_scale(g, load_f16(x), 0);
}

VF_INLINE void expand_q4_1(const uint8_t *x, int number, struct group *g)
{
    (void)number;
    split_nibbles(g, x + 4, 0);
    set_scale(g, load_f16(x), load_f16(x + 2));
}

VF_INLINE void expand_q5_0(const uint8_t *x, int number, struct group *g)
{
    (void)number;
    split_nibbles(g, x + 6, 16);
    add_fifth_bits(g, x + 2);
    set_scale(g, load_f16(x), 0);
}

VF_INLINE void expand_q5_1(const uint8_t *x, int number, struct group *g)
{
    (void)number;
    split_nibbles(g, x + 8, 0);
    add_fifth_bits(g, x + 4);
    set_scale(g, load_f16(x), load_f16(x + 2));
}

VF_INLINE void expand_q8_0(const uint8_t *x, int number, struct group *g)
{
    (void)number;
    memcpy(g->q, x + 2, sizeof g->q);
    set_scale(g, load_f16(x), 0);
}

/* Scale and min of group `number` from the 12 bytes of q4_k and q5_k. */
VF_INLINE void set_packed_scale(const uint8_t *x, int number, struct group *g)
{
    const uint8_t *packed = x + 4;
    int scale = packed[number] & 63, min = packed[number + 4] & 63;
    if (number >= 4) {
        scale = (packed[number + 4] & 15) | packed[number - 4] >> 6 << 4;
        min = packed[number + 4] >> 4 | packed[number] >> 6 << 4;
    }
    set_scale(g, load_f16(x) * (float)scale, -(load_f16(x + 2) * (float)min));
}

VF_INLINE void expand_q4_k(const uint8_t *x, int number, struct group *g)
{
    const uint8_t *from = x + 16 + number / 2 * 32;
    int shift = number % 2 * 4;
    for (int i = 0; i < TERN_CPU_STORED_GROUP; i++) {
        g->q[i] = (int8_t)(from[i] >> shift & 15);
    }
    set_packed_scale(x, number, g);
}

VF_INLINE void expand_q5_k(const uint8_t *x, int number, struct group *g)
{
    const uint8_t *from = x + 48 + number / 2 * 32, *fifth = x + 16;
    int shift = number % 2 * 4;
    for (int i = 0; i < TERN_CPU_STORED_GROUP; i++) {
        g->q[i] = (int8_t)((from[i] >> shift & 15) | (fifth[i] >> number & 1) << 4);
    }
    set_packed_scale(x, number, g);
}

VF_INLINE void expand_q6_k(const uint8_t *x, int number, struct group *g)
{
    const int8_t *scales = (const int8_t *)x + 192 + 2 * number;
    int quarter = number % 4, shift_low = quarter / 2 * 4, shift_high = quarter * 2;
    const uint8_t *low = x + number / 4 * 64 + quarter % 2 * 32, *high = x + 128 + number / 4 * 32;
    for (int i = 0; i < TERN_CPU_STORED_GROUP; i++) {
        g->q[i] = (int8_t)(((low[i] >> shift_low & 15) | (high[i] >> shift_high & 3) << 4) - 32);
    }
    float d = load_f16(x + 208);
    g->scale[0] = d * (float)scales[0];
    g->scale[1] = d * (float)scales[1];
    g->min = 0;
}

/* One group of codes into the sums of `rows` rows of a. */
VF_INLINE void add_group(const struct group *g,
                         const struct tern_stored_rows *a,
                         int64_t k,
                         int rows,
                         vf *sum,
                         float *minima)
{
    enum {
        VECTORS = TERN_CPU_STORED_GROUP / VF_LANES
    };
    vf q[VECTORS];
    VF_UNROLL for (int v = 0; v < VECTORS; v++)
    {
        vf scale = vf_set1(g->scale[v * VF_LANES / (TERN_CPU_STORED_GROUP / 2)]);
        q[v] = vf_load_i8(g->q + v * VF_LANES) * scale;
    }
    VF_UNROLL for (int r = 0; r < rows; r++)
    {
        const float *x = a->x + r * a->ld + k;
        VF_UNROLL for (int v = 0; v < VECTORS; v++)
        {
            sum[r] = vf_fma(q[v], vf_load(x + v * VF_LANES), sum[r]);
        }
        minima[r] += g->min * a->sums[r * a->ld_sums + k / TERN_CPU_STORED_GROUP];
    }
}

/* c[r * ldc] = the row of weights times rows [first, first + rows) of a. */
#define DOT(type, groups) \
    VF_INLINE void dot_##type(const uint8_t *row, int64_t k, const struct tern_stored_rows *a, \
                              int rows, size_t block_bytes, float *c, int64_t ldc) \
    { \
        vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}; \
        float minima[4] = {0, 0, 0, 0}; \
        for (int64_t at = 0; at < k; row += block_bytes) { \
            for (int number = 0; number < (groups); number++) { \
                struct group g; \
                expand_##type(row, number, &g); \
                add_group(&g, a, at, rows, sum, minima); \
                at += TERN_CPU_STORED_GROUP; \
            } \
        } \
        VF_UNROLL for (int r = 0; r < rows; r++) \
        { \
            c[r * ldc] = vf_sum(sum[r]) + minima[r]; \
        } \
    } \
    static void few_##type(const uint8_t *row, int64_t k, const struct tern_stored_rows *a, \
                           int64_t m, size_t block_bytes, float *c, int64_t ldc) \
    { \
        struct tern_stored_rows part = *a; \
        for (int64_t r = 0; r < m; r++) { \
            int take = m - r >= 4 ? 4 : m - r >= 2 ? 2 : 1; \
            part.x = a->x + r * a->ld; \
            part.sums = a->sums + r * a->ld_sums; \
            if (take == 4) { \
                dot_##type(row, k, &part, 4, block_bytes, c + r * ldc, ldc); \
            } else if (take == 2) { \
                dot_##type(row, k, &part, 2, block_bytes, c + r * ldc, ldc); \
            } else { \
                dot_##type(row, k, &part, 1, block_bytes, c + r * ldc, ldc); \
            } \
            r += take - 1; \
        } \
    }
DOT(q4_0, 1)
DOT(q4_1, 1)
DOT(q5_0, 1)
DOT(q5_1, 1)
DOT(q8_0, 1)
DOT(q4_k, 8)
DOT(q5_k, 8)
DOT(q6_k, 8)

bool TERN_CPU_LEVEL(stored_few)(enum tern_dtype dtype,
                                const void *row,
                                int64_t k,
                                const struct tern_stored_rows *a,
                                int64_t m,
                                float *c,
                                int64_t ldc)
{
    size_t bytes = tern_dtype_bytes(dtype);
    switch (dtype) {
    case TERN_Q4_0:
        few_q4_0(row, k, a, m, bytes, c, ldc);
        return true;
    case TERN_Q4_1:
        few_q4_1(row, k, a, m, bytes, c, ldc);
        return true;
    case TERN_Q5_0:
        few_q5_0(row, k, a, m, bytes, c, ldc);
        return true;
    case TERN_Q5_1:
        few_q5_1(row, k, a, m, bytes, c, ldc);
        return true;
    case TERN_Q8_0:
        few_q8_0(row, k, a, m, bytes, c, ldc);
        return true;
    case TERN_Q4_K:
        few_q4_k(row, k, a, m, bytes, c, ldc);
        return true;
    case TERN_Q5_K:
        few_q5_k(row, k, a, m, bytes, c, ldc);
        return true;
    case TERN_Q6_K:
        few_q6_k(row, k, a, m, bytes, c, ldc);
        return true;
    default:
        return false;
    }
}
