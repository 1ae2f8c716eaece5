/* blocks_decode.c - block types to f32: plain loops over constant bounds, compiled once for any
 * processor and once for AVX2 (TERN_BLOCKS_LEVEL), which the compiler makes vector code of. */
#include "kernels/blocks_level.h"

#include <string.h>
#if defined(__F16C__)
#    include <immintrin.h>
#endif

#define LEVEL_(name, level) name##_##level
#define LEVEL(name, level)  LEVEL_(name, level)

/* Values of the 4-bit non-linear types. */
static const int8_t g_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
/* Twice the values of e2m1. */
static const int8_t g_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline float load_f16(const uint8_t *p)
{
    tern_f16 bits;
    memcpy(&bits, p, sizeof bits);
    return tern_f16_to_f32(bits);
}

/* 16 bytes of nibbles: the low ones to q[0..15], the high ones to q[16..31]. */
static inline void split_nibbles(const uint8_t *restrict qs, int16_t *restrict q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = qs[i] & 15;
        q[i + 16] = qs[i] >> 4;
    }
}

static inline void scale_32(const int16_t *restrict q, float d, float *restrict y)
{
    for (int i = 0; i < 32; i++) {
        y[i] = d * (float)q[i];
    }
}

static inline void scale_add_32(const int16_t *restrict q, float d, float m, float *restrict y)
{
    for (int i = 0; i < 32; i++) {
        y[i] = d * (float)q[i] + m;
    }
}

static void decode_q4_0(const uint8_t *restrict x, float *restrict y)
{
    int16_t q[32];
    split_nibbles(x + 2, q);
    for (int i = 0; i < 32; i++) {
        q[i] = (int16_t)(q[i] - 8);
    }
    scale_32(q, load_f16(x), y);
}

static void decode_q4_1(const uint8_t *restrict x, float *restrict y)
{
    int16_t q[32];
    split_nibbles(x + 4, q);
    scale_add_32(q, load_f16(x), load_f16(x + 2), y);
}

/* Bit i of the four bytes goes to bit 4 of q[i]. */
static inline void add_fifth_bits(const uint8_t *restrict qh, int16_t *restrict q)
{
    uint32_t bits =
        (uint32_t)qh[0] | (uint32_t)qh[1] << 8 | (uint32_t)qh[2] << 16 | (uint32_t)qh[3] << 24;
    for (int i = 0; i < 32; i++) {
        q[i] = (int16_t)(q[i] | (int16_t)((bits >> i & 1) << 4));
    }
}

static void decode_q5_0(const uint8_t *restrict x, float *restrict y)
{
    int16_t q[32];
    split_nibbles(x + 6, q);
    add_fifth_bits(x + 2, q);
    for (int i = 0; i < 32; i++) {
        q[i] = (int16_t)(q[i] - 16);
    }
    scale_32(q, load_f16(x), y);
}

static void decode_q5_1(const uint8_t *restrict x, float *restrict y)
{
    int16_t q[32];
    split_nibbles(x + 8, q);
    add_fifth_bits(x + 4, q);
    scale_add_32(q, load_f16(x), load_f16(x + 2), y);
}

static void decode_q8_0(const uint8_t *restrict x, float *restrict y)
{
    float d = load_f16(x);
    const int8_t *q = (const int8_t *)x + 2;
    for (int i = 0; i < 32; i++) {
        y[i] = d * (float)q[i];
    }
}

static void decode_iq4_nl(const uint8_t *restrict x, float *restrict y)
{
    float d = load_f16(x);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)g_iq4[x[2 + i] & 15];
        y[i + 16] = d * (float)g_iq4[x[2 + i] >> 4];
    }
}

static void decode_mxfp4(const uint8_t *restrict x, float *restrict y)
{
    /* half of 2^(e - 127), for the doubled table; subnormal for e < 2 */
    uint32_t bits = x[0] < 2 ? UINT32_C(0x00200000) << x[0] : (uint32_t)(x[0] - 1) << 23;
    float d = tern_bits_to_f32(bits);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)g_e2m1[x[1 + i] & 15];
        y[i + 16] = d * (float)g_e2m1[x[1 + i] >> 4];
    }
}

static void decode_q2_k(const uint8_t *restrict x, float *restrict y)
{
    const uint8_t *scales = x, *qs = x + 16;
    float d = load_f16(x + 80), m = load_f16(x + 82);
    for (int group = 0; group < 16; group++) {
        float scale = d * (float)(scales[group] & 15), min = m * (float)(scales[group] >> 4);
        const uint8_t *from = qs + group / 8 * 32 + group % 2 * 16;
        int shift = group % 8 / 2 * 2;
        for (int i = 0; i < 16; i++) {
            y[group * 16 + i] = scale * (float)(from[i] >> shift & 3) - min;
        }
    }
}

static void decode_q3_k(const uint8_t *restrict x, float *restrict y)
{
    const uint8_t *third = x, *qs = x + 32, *scales = x + 96;
    float d = load_f16(x + 108);
    for (int group = 0; group < 16; group++) {
        int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
        int high = scales[8 + group % 4] >> group / 4 * 2 & 3;
        float scale = d * (float)((low | high << 4) - 32);
        const uint8_t *from = qs + group / 8 * 32 + group % 2 * 16;
        const uint8_t *bits = third + group % 2 * 16;
        int shift = group % 8 / 2 * 2, bit = group / 2;
        for (int i = 0; i < 16; i++) {
            int q = (from[i] >> shift & 3) - (~bits[i] >> bit & 1) * 4;
            y[group * 16 + i] = scale * (float)q;
        }
    }
}

/* Scale and min of 32 elements from the 12 bytes of q4_k and q5_k. */
static inline void load_scale_min(const uint8_t *packed, int group, int *scale_out, int *min_out)
{
    if (group < 4) {
        *scale_out = packed[group] & 63;
        *min_out = packed[group + 4] & 63;
    } else {
        *scale_out = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
        *min_out = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
    }
}

static void decode_q4_k(const uint8_t *restrict x, float *restrict y)
{
    float d = load_f16(x), m = load_f16(x + 2);
    for (int group = 0; group < 8; group++) {
        int scale, min;
        load_scale_min(x + 4, group, &scale, &min);
        float factor = d * (float)scale, offset = m * (float)min;
        const uint8_t *from = x + 16 + group / 2 * 32;
        int shift = group % 2 * 4;
        for (int i = 0; i < 32; i++) {
            y[group * 32 + i] = factor * (float)(from[i] >> shift & 15) - offset;
        }
    }
}

static void decode_q5_k(const uint8_t *restrict x, float *restrict y)
{
    float d = load_f16(x), m = load_f16(x + 2);
    const uint8_t *fifth = x + 16;
    for (int group = 0; group < 8; group++) {
        int scale, min;
        load_scale_min(x + 4, group, &scale, &min);
        float factor = d * (float)scale, offset = m * (float)min;
        const uint8_t *from = x + 48 + group / 2 * 32;
        int shift = group % 2 * 4;
        for (int i = 0; i < 32; i++) {
            int q = (from[i] >> shift & 15) | (fifth[i] >> group & 1) << 4;
            y[group * 32 + i] = factor * (float)q - offset;
        }
    }
}

static void decode_q6_k(const uint8_t *restrict x, float *restrict y)
{
    const int8_t *scales = (const int8_t *)x + 192;
    float d = load_f16(x + 208);
    for (int group = 0; group < 16; group++) {
        float scale = d * (float)scales[group];
        int quarter = group % 8 / 2; /* of 128 elements: 32 each */
        const uint8_t *low = x + group / 8 * 64 + quarter % 2 * 32 + group % 2 * 16;
        const uint8_t *high = x + 128 + group / 8 * 32 + group % 2 * 16;
        int shift_low = quarter / 2 * 4, shift_high = quarter * 2;
        for (int i = 0; i < 16; i++) {
            int q = (low[i] >> shift_low & 15) | (high[i] >> shift_high & 3) << 4;
            y[group * 16 + i] = scale * (float)(q - 32);
        }
    }
}

static void decode_iq4_xs(const uint8_t *restrict x, float *restrict y)
{
    float d = load_f16(x);
    unsigned high = (unsigned)(x[2] | x[3] << 8);
    for (int group = 0; group < 8; group++) {
        int low = x[4 + group / 2] >> group % 2 * 4 & 15;
        float scale = d * (float)((low | (int)(high >> 2 * group & 3) << 4) - 32);
        const uint8_t *from = x + 8 + group * 16;
        for (int i = 0; i < 16; i++) {
            y[group * 32 + i] = scale * (float)g_iq4[from[i] & 15];
            y[group * 32 + i + 16] = scale * (float)g_iq4[from[i] >> 4];
        }
    }
}

static void decode_f16(const uint8_t *restrict x, int64_t n, float *restrict y)
{
    int64_t i = 0;
#if defined(__F16C__)
    /* The instruction makes signalling NaNs quiet: what is infinite or no number keeps its bits instead. */
    __m256i top = _mm256_set1_epi32(0x7c00), mantissa = _mm256_set1_epi32(0x7fff);
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(x + 2 * i));
        __m256i bits = _mm256_cvtepu16_epi32(half), size = _mm256_and_si256(bits, mantissa);
        __m256i sign = _mm256_slli_epi32(_mm256_andnot_si256(mantissa, bits), 16);
        __m256i special =
            _mm256_or_si256(_mm256_slli_epi32(size, 13), _mm256_set1_epi32(0x7f800000));
        __m256i is_special = _mm256_cmpgt_epi32(size, _mm256_sub_epi32(top, _mm256_set1_epi32(1)));
        __m256i value = _mm256_castps_si256(_mm256_cvtph_ps(half));
        value = _mm256_blendv_epi8(value, _mm256_or_si256(sign, special), is_special);
        _mm256_storeu_si256((__m256i *)(void *)(y + i), value);
    }
#endif
    for (; i < n; i++) {
        y[i] = load_f16(x + 2 * i);
    }
}

static void decode_bf16(const uint8_t *restrict x, int64_t n, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        tern_bf16 bits;
        memcpy(&bits, x + 2 * i, sizeof bits);
        y[i] = tern_bf16_to_f32(bits);
    }
}

static void decode_f64(const uint8_t *restrict x, int64_t n, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, x + 8 * i, sizeof value);
        y[i] = (float)value;
    }
}

static void (*decode_block(enum tern_dtype dtype))(const uint8_t *restrict, float *restrict)
{
    switch (dtype) {
    case TERN_Q4_0:
        return decode_q4_0;
    case TERN_Q4_1:
        return decode_q4_1;
    case TERN_Q5_0:
        return decode_q5_0;
    case TERN_Q5_1:
        return decode_q5_1;
    case TERN_Q8_0:
        return decode_q8_0;
    case TERN_Q2_K:
        return decode_q2_k;
    case TERN_Q3_K:
        return decode_q3_k;
    case TERN_Q4_K:
        return decode_q4_k;
    case TERN_Q5_K:
        return decode_q5_k;
    case TERN_Q6_K:
        return decode_q6_k;
    case TERN_IQ4_NL:
        return decode_iq4_nl;
    case TERN_IQ4_XS:
        return decode_iq4_xs;
    case TERN_MXFP4:
        return decode_mxfp4;
    default:
        return NULL;
    }
}

bool LEVEL(tern_blocks_decode,
           TERN_BLOCKS_LEVEL)(enum tern_dtype dtype, const void *src, int64_t n, float *dst)
{
    const uint8_t *x = src;
    int64_t elements = tern_dtype_block_elements(dtype);
    size_t bytes = tern_dtype_bytes(dtype);
    void (*decode)(const uint8_t *restrict, float *restrict) = decode_block(dtype);
    if (decode != NULL) {
        for (int64_t at = 0; at < n; at += elements, x += bytes) {
            decode(x, dst + at);
        }
    } else if (dtype == TERN_F32) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
    } else if (dtype == TERN_F16) {
        decode_f16(x, n, dst);
    } else if (dtype == TERN_BF16) {
        decode_bf16(x, n, dst);
    } else if (dtype == TERN_F64) {
        decode_f64(x, n, dst);
    } else {
        return false;
    }
    return true;
}
