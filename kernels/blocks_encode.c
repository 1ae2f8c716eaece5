/* blocks_encode.c - f32 to block types, by least squares.
 *
 * Every type stores x as scale * q (+ offset) with few bits for q. For given scales the best q is the nearest, so
 * what is searched is the scales: a ladder of candidates around the one that just reaches the largest value,
 * each improved by the scale that is best for its q (a quotient of two sums, or two unknowns where there is an
 * offset). Then, for types with two levels, the integers of the sub-blocks are tried one up and one down against
 * the rounded block scale, which is fitted again to what they became. Errors are compared as they will be
 * after rounding to f16, weighted by the importance of each column where that is given.
 *
 * Compiled once a level as blocks_decode.c is. Sums run over 8 lanes and no multiply-add is fused, so each
 * level gives the same bits. */
#include "kernels/blocks_level.h"

#include <math.h>
#include <string.h>

#define LEVEL_(name, level) name##_##level
#define LEVEL(name, level)  LEVEL_(name, level)

enum {
    LANES = 8,
    SUPER = 256, /* elements of a k-block */
    LADDER = 9,  /* candidates to each side */
    ROUNDS = 2   /* of fitting the block scale again */
};

/* Below this a block counts as zeros: no f16 scale could show it. */
static const float g_tiny = 1e-20f;

static inline float sum_lanes(const float lanes[LANES])
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* Nearest integer within [low, high]; |low|, |high| < 2^22. */
static inline float nearest(float value, float low, float high)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: its spacing is 1 */
    value = value < low ? low : value;
    value = value > high ? high : value;
    return (value + magic) - magic;
}

/* The f16 that stores a scale, finite. */
static inline float half(float value)
{
    float limit = 65504.0f;
    value = value > limit ? limit : value < -limit ? -limit : value;
    return tern_f16_to_f32(tern_f32_to_f16(value));
}

static inline float inverse(float value)
{
    return value != 0 ? 1 / value : 0;
}

static inline void store_f16(uint8_t *p, float value)
{
    tern_f16 bits = tern_f32_to_f16(value);
    memcpy(p, &bits, sizeof bits);
}

/* ---- x = scale * q ---- */

/* Nearest q for a scale, and the weighted squared error they leave. */
static inline float try_scale(const float *x,
                              const float *w,
                              int n,
                              float scale,
                              float low,
                              float high,
                              float *q)
{
    float error[LANES] = {0}, to = inverse(scale);
    for (int i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            q[i + l] = nearest(to * x[i + l], low, high);
            float rest = x[i + l] - scale * q[i + l];
            error[l] += w[i + l] * rest * rest;
        }
    }
    return sum_lanes(error);
}

/* The scale that is best for the q of `to` = 1 / scale; *gain_out is how much of sum w x^2 it explains. */
static inline float fit_scale(const float *x,
                              const float *w,
                              int n,
                              float to,
                              float low,
                              float high,
                              float *gain_out)
{
    float xq[LANES] = {0}, qq[LANES] = {0};
    for (int i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            float q = nearest(to * x[i + l], low, high);
            xq[l] += w[i + l] * x[i + l] * q;
            qq[l] += w[i + l] * q * q;
        }
    }
    float top = sum_lanes(xq), bottom = sum_lanes(qq);
    *gain_out = bottom > 0 ? top * top / bottom : 0;
    return bottom > 0 ? top / bottom : 0;
}

/* Of largest magnitude, with its sign. */
static inline float extreme(const float *x, int n)
{
    float high = x[0], low = x[0];
    for (int i = 1; i < n; i++) {
        high = x[i] > high ? x[i] : high;
        low = x[i] < low ? x[i] : low;
    }
    return high > -low ? high : low;
}

/* A good scale for q in [-range, range - 1], not rounded. */
static inline float find_scale(const float *x, const float *w, int n, float range)
{
    float peak = extreme(x, n), best = 0, most = 0, gain;
    if (fabsf(peak) < g_tiny) {
        return 0;
    }
    for (int step = -LADDER; step <= LADDER; step++) {
        float scale =
            fit_scale(x, w, n, -(range + 0.1f * (float)step) / peak, -range, range - 1, &gain);
        if (gain > most) {
            most = gain;
            best = scale;
        }
    }
    for (int step = 0; step < 2; step++) {
        float scale = fit_scale(x, w, n, inverse(best), -range, range - 1, &gain);
        if (gain > most) {
            most = gain;
            best = scale;
        }
    }
    return best != 0 ? best : -peak / range;
}

/* 32 elements by one f16 scale: q in [-range, range - 1]. The plain scale is tried as well: searching must not
 * do worse than it. */
static inline float choose_half_scale(const float *x, const float *w, float range, float *q)
{
    float other[32];
    float plain = half(extreme(x, 32) / -range), found = half(find_scale(x, w, 32, range));
    float error_plain = try_scale(x, w, 32, plain, -range, range - 1, q);
    float error_found = try_scale(x, w, 32, found, -range, range - 1, other);
    if (error_found < error_plain) {
        memcpy(q, other, sizeof other);
        return found;
    }
    return plain;
}

static void encode_q4_0(const float *x, const float *w, uint8_t *y)
{
    float q[32];
    store_f16(y, choose_half_scale(x, w, 8, q));
    for (int i = 0; i < 16; i++) {
        y[2 + i] = (uint8_t)((int)q[i] + 8) | (uint8_t)((int)q[i + 16] + 8) << 4;
    }
}

static void encode_q5_0(const float *x, const float *w, uint8_t *y)
{
    float q[32];
    uint32_t fifth = 0;
    store_f16(y, choose_half_scale(x, w, 16, q));
    for (int i = 0; i < 16; i++) {
        unsigned low = (unsigned)((int)q[i] + 16), high = (unsigned)((int)q[i + 16] + 16);
        y[6 + i] = (uint8_t)((low & 15) | (high & 15) << 4);
        fifth |= low >> 4 << i | high >> 4 << (i + 16);
    }
    memcpy(y + 2, &fifth, sizeof fifth);
}

/* So many levels that a ladder of scales gains little: the plain scale, and the best for its q. */
static void encode_q8_0(const float *x, const float *w, uint8_t *y)
{
    float q[32], other[32], gain;
    float scale = half(extreme(x, 32) / 127);
    float error = try_scale(x, w, 32, scale, -128, 127, q);
    float fitted = half(fit_scale(x, w, 32, inverse(scale), -128, 127, &gain));
    if (try_scale(x, w, 32, fitted, -128, 127, other) < error) {
        memcpy(q, other, sizeof q);
        scale = fitted;
    }
    store_f16(y, scale);
    for (int i = 0; i < 32; i++) {
        y[2 + i] = (uint8_t)(int8_t)q[i];
    }
}

/* ---- q6_k: 16 sub-blocks of 16, x = d * s * q ---- */

enum {
    SUBS_6 = 16,
    SUB_6 = 16
};

struct q6 {
    float d;
    float s[SUBS_6]; /* whole numbers */
    float q[SUPER];
    float error;
};

/* For a block scale: the best whole-numbered scale of each sub-block near the wanted one. */
static void try_q6(const float *x,
                   const float *w,
                   float d,
                   const float wanted[SUBS_6],
                   struct q6 *out)
{
    float to = inverse(d), q[SUB_6];
    out->d = d;
    out->error = 0;
    for (int sub = 0; sub < SUBS_6; sub++) {
        const float *xs = x + sub * SUB_6, *ws = w + sub * SUB_6;
        float middle = nearest(to * wanted[sub], -128, 127), best = INFINITY;
        for (int step = -1; step <= 1; step++) {
            float s = nearest(middle + (float)step, -128, 127);
            float error = try_scale(xs, ws, SUB_6, d * s, -32, 31, q);
            if (error < best || step == -1) {
                best = error;
                out->s[sub] = s;
                memcpy(out->q + sub * SUB_6, q, sizeof q);
            }
        }
        out->error += best;
    }
}

/* The block scale that is best for the s and q there are. */
static float refit_q6(const float *x, const float *w, const struct q6 *now)
{
    float xa[LANES] = {0}, aa[LANES] = {0};
    for (int i = 0; i < SUPER; i += LANES) {
        float s = now->s[i / SUB_6];
        for (int l = 0; l < LANES; l++) {
            float a = s * now->q[i + l];
            xa[l] += w[i + l] * x[i + l] * a;
            aa[l] += w[i + l] * a * a;
        }
    }
    float bottom = sum_lanes(aa);
    return bottom > 0 ? sum_lanes(xa) / bottom : 0;
}

static void pack_q6(const struct q6 *from, uint8_t *y)
{
    for (int part = 0; part < 2; part++) {
        const float *q = from->q + part * 128;
        for (int i = 0; i < 32; i++) {
            unsigned a = (unsigned)((int)q[i] + 32), b = (unsigned)((int)q[i + 32] + 32);
            unsigned c = (unsigned)((int)q[i + 64] + 32), d = (unsigned)((int)q[i + 96] + 32);
            y[part * 64 + i] = (uint8_t)((a & 15) | (c & 15) << 4);
            y[part * 64 + i + 32] = (uint8_t)((b & 15) | (d & 15) << 4);
            y[128 + part * 32 + i] = (uint8_t)(a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6);
        }
    }
    for (int sub = 0; sub < SUBS_6; sub++) {
        y[192 + sub] = (uint8_t)(int8_t)from->s[sub];
    }
    store_f16(y + 208, from->d);
}

static void encode_q6_k(const float *x, const float *w, uint8_t *y)
{
    float wanted[SUBS_6];
    struct q6 best, other;
    for (int sub = 0; sub < SUBS_6; sub++) {
        wanted[sub] = find_scale(x + sub * SUB_6, w + sub * SUB_6, SUB_6, 32);
    }
    try_q6(x, w, half(extreme(wanted, SUBS_6) / -128), wanted, &best);
    for (int round = 0; round < ROUNDS; round++) {
        try_q6(x, w, half(refit_q6(x, w, &best)), wanted, &other);
        if (!(other.error < best.error)) {
            break;
        }
        best = other;
    }
    pack_q6(&best, y);
}

/* ---- q4_k and q5_k: 8 sub-blocks of 32, x = d * s * q - m * o, q in [0, top] ---- */

enum {
    SUBS_4 = 8,
    SUB_4 = 32
};

/* Nearest q for a scale and an offset, and the error they leave. */
static inline float try_affine(const float *x,
                               const float *w,
                               float scale,
                               float offset,
                               float top,
                               float *q)
{
    float error[LANES] = {0}, to = inverse(scale);
    for (int i = 0; i < SUB_4; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            q[i + l] = nearest(to * (x[i + l] + offset), 0, top);
            float rest = x[i + l] - (scale * q[i + l] - offset);
            error[l] += w[i + l] * rest * rest;
        }
    }
    return sum_lanes(error);
}

/* Scale and offset (0 or more) that are best for q, by the normal equations of both. False if q does not say. */
static inline bool fit_affine(const float *x,
                              const float *w,
                              const float *q,
                              float *scale_out,
                              float *offset_out)
{
    float lanes[5][LANES] = {{0}};
    for (int i = 0; i < SUB_4; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            float wq = w[i + l] * q[i + l], wx = w[i + l] * x[i + l];
            lanes[0][l] += w[i + l];
            lanes[1][l] += wx;
            lanes[2][l] += wq;
            lanes[3][l] += wq * q[i + l];
            lanes[4][l] += wx * q[i + l];
        }
    }
    float sw = sum_lanes(lanes[0]), sx = sum_lanes(lanes[1]), sq = sum_lanes(lanes[2]);
    float sqq = sum_lanes(lanes[3]), sxq = sum_lanes(lanes[4]);
    float determinant = sw * sqq - sq * sq;
    if (!(determinant > 0) || !(sqq > 0)) {
        return false;
    }
    *scale_out = (sw * sxq - sx * sq) / determinant;
    *offset_out = (sq * sxq - sqq * sx) / determinant;
    if (*offset_out < 0) {
        *offset_out = 0;
        *scale_out = sxq / sqq;
    }
    return *scale_out > 0;
}

/* A good scale and offset, not rounded. */
static inline void find_affine(const float *x,
                               const float *w,
                               float top,
                               float *scale_out,
                               float *offset_out)
{
    float low = x[0], high = x[0], q[SUB_4], scale, offset, unused[SUB_4];
    for (int i = 1; i < SUB_4; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    low = low > 0 ? 0 : low;
    *offset_out = -low;
    *scale_out = (high - low) / top;
    if (!(high - low > g_tiny)) {
        *scale_out = 0;
        return;
    }
    float best = try_affine(x, w, *scale_out, -low, top, q);
    for (int step = -LADDER - 1; step <= LADDER; step++) {
        (void)try_affine(x, w, (high - low) / (top + 0.1f * (float)step), -low, top, q);
        for (int again = 0; again < 2 && fit_affine(x, w, q, &scale, &offset); again++) {
            float error = try_affine(x, w, scale, offset, top, again == 0 ? q : unused);
            if (error < best) {
                best = error;
                *scale_out = scale;
                *offset_out = offset;
            }
        }
    }
}

struct q45 {
    float top;
    float d, m;
    float s[SUBS_4], o[SUBS_4]; /* whole numbers, 0 to 63 */
    float q[SUPER];
    float error;
};

/* For block scales: the best whole numbers of each sub-block near the wanted ones. */
static void try_q45(const float *x,
                    const float *w,
                    float d,
                    float m,
                    const float scales[SUBS_4],
                    const float offsets[SUBS_4],
                    struct q45 *out)
{
    float q[SUB_4];
    out->d = d;
    out->m = m;
    out->error = 0;
    for (int sub = 0; sub < SUBS_4; sub++) {
        const float *xs = x + sub * SUB_4, *ws = w + sub * SUB_4;
        float s_middle = nearest(inverse(d) * scales[sub], 0, 63), best = INFINITY;
        float o_middle = nearest(inverse(m) * offsets[sub], 0, 63);
        for (int step = 0; step < 9; step++) {
            float s = nearest(s_middle + (float)(step / 3 - 1), 0, 63);
            float o = nearest(o_middle + (float)(step % 3 - 1), 0, 63);
            float error = try_affine(xs, ws, d * s, m * o, out->top, q);
            if (error < best || step == 0) {
                best = error;
                out->s[sub] = s;
                out->o[sub] = o;
                memcpy(out->q + sub * SUB_4, q, sizeof q);
            }
        }
        out->error += best;
    }
}

/* Block scales that are best for what there is: x = d a - m b, a = s q, b = o. */
static bool refit_q45(const float *x, const float *w, const struct q45 *now, float *d, float *m)
{
    float lanes[5][LANES] = {{0}};
    for (int i = 0; i < SUPER; i += LANES) {
        float s = now->s[i / SUB_4], b = now->o[i / SUB_4];
        for (int l = 0; l < LANES; l++) {
            float a = s * now->q[i + l], wx = w[i + l] * x[i + l];
            lanes[0][l] += w[i + l] * a * a;
            lanes[1][l] += w[i + l] * a * b;
            lanes[2][l] += w[i + l] * b * b;
            lanes[3][l] += wx * a;
            lanes[4][l] += wx * b;
        }
    }
    double aa = (double)sum_lanes(lanes[0]), ab = (double)sum_lanes(lanes[1]);
    double bb = (double)sum_lanes(lanes[2]), xa = (double)sum_lanes(lanes[3]);
    double xb = (double)sum_lanes(lanes[4]), determinant = aa * bb - ab * ab;
    if (bb == 0 && aa > 0) {
        *d = half((float)(xa / aa));
        return true;
    }
    if (!(determinant > 1e-9 * aa * bb)) {
        return false;
    }
    *d = half((float)((xa * bb - xb * ab) / determinant));
    *m = half((float)((xa * ab - xb * aa) / determinant));
    return *d >= 0 && *m >= 0;
}

static void pack_scales(const struct q45 *from, uint8_t *y)
{
    store_f16(y, from->d);
    store_f16(y + 2, from->m);
    for (int sub = 0; sub < 4; sub++) {
        unsigned s = (unsigned)from->s[sub], o = (unsigned)from->o[sub];
        unsigned s4 = (unsigned)from->s[sub + 4], o4 = (unsigned)from->o[sub + 4];
        y[4 + sub] = (uint8_t)(s | s4 >> 4 << 6);
        y[8 + sub] = (uint8_t)(o | o4 >> 4 << 6);
        y[12 + sub] = (uint8_t)((s4 & 15) | (o4 & 15) << 4);
    }
}

static void pack_nibbles(const struct q45 *from, uint8_t *y)
{
    for (int i = 0; i < 128; i++) {
        const float *q = from->q + i / 32 * 64 + i % 32;
        y[i] = (uint8_t)(((unsigned)q[0] & 15) | ((unsigned)q[32] & 15) << 4);
    }
}

static void find_q45(const float *x, const float *w, float top, struct q45 *best)
{
    float scales[SUBS_4], offsets[SUBS_4];
    struct q45 other = {.top = top};
    for (int sub = 0; sub < SUBS_4; sub++) {
        find_affine(x + sub * SUB_4, w + sub * SUB_4, top, &scales[sub], &offsets[sub]);
    }
    float d = half(extreme(scales, SUBS_4) / 63), m = half(extreme(offsets, SUBS_4) / 63);
    best->top = top;
    try_q45(x, w, d, m, scales, offsets, best);
    for (int round = 0; round < ROUNDS && refit_q45(x, w, best, &d, &m); round++) {
        try_q45(x, w, d, m, scales, offsets, &other);
        if (!(other.error < best->error)) {
            break;
        }
        *best = other;
    }
}

static void encode_q4_k(const float *x, const float *w, uint8_t *y)
{
    struct q45 found;
    find_q45(x, w, 15, &found);
    pack_scales(&found, y);
    pack_nibbles(&found, y + 16);
}

static void encode_q5_k(const float *x, const float *w, uint8_t *y)
{
    struct q45 found;
    find_q45(x, w, 31, &found);
    pack_scales(&found, y);
    memset(y + 16, 0, SUB_4);
    for (int i = 0; i < SUPER; i++) {
        y[16 + i % SUB_4] |= (uint8_t)((unsigned)found.q[i] >> 4 << i / SUB_4);
    }
    pack_nibbles(&found, y + 48);
}

/* ---- rows ---- */

static void (*encode_block(enum tern_dtype dtype))(const float *, const float *, uint8_t *)
{
    switch (dtype) {
    case TERN_Q4_0:
        return encode_q4_0;
    case TERN_Q5_0:
        return encode_q5_0;
    case TERN_Q8_0:
        return encode_q8_0;
    case TERN_Q4_K:
        return encode_q4_k;
    case TERN_Q5_K:
        return encode_q5_k;
    case TERN_Q6_K:
        return encode_q6_k;
    default:
        return NULL;
    }
}

bool LEVEL(tern_blocks_encode, TERN_BLOCKS_LEVEL)(enum tern_dtype dtype,
                                                  const float *src,
                                                  int64_t width,
                                                  const float *importance,
                                                  void *dst)
{
    void (*encode)(const float *, const float *, uint8_t *) = encode_block(dtype);
    int64_t elements = tern_dtype_block_elements(dtype);
    uint8_t *y = dst;
    float ones[SUPER];
    if (encode == NULL) {
        return false;
    }
    for (int i = 0; i < SUPER; i++) {
        ones[i] = 1;
    }
    for (int64_t at = 0; at < width; at += elements, y += tern_dtype_bytes(dtype)) {
        encode(src + at, importance != NULL ? importance + at : ones, y);
    }
    return true;
}
