/* vec16.h - vectors for products of packed weights: one strip of TERN_PACKED_ROWS outputs is always one vector, whatever
 * the processor's are. v16f: 16 floats; v16i: 16 int32; v64b: 64 bytes, byte 4 r + b belonging to lane r.
 *
 * v16_dot adds to each lane the four products of its codes (0 to 63, unsigned) with four signed bytes, the same for all
 * lanes; v16_dot_wide takes codes of all eight bits, of which V16_WIDE_ZERO stands for 0. Both are exact: AVX2 adds
 * pairs of products in 16 bits, where 2 * 63 * 127 fits; of wide codes it takes the distance from 128, with the sign
 * moved to the other factor, and 2 * 128 * 127 fits as well. */
#ifndef TERN_KERNELS_CPU_VEC16_H
#define TERN_KERNELS_CPU_VEC16_H

#include "kernels/cpu/vec.h"

#if VF_AVX512 && defined(__AVX512VNNI__)

enum {
    V16_WIDE_ZERO = 128,
    /* Rows and strips of a tile of sums: of codes expanded beforehand, of floats. */
    V16_MANY_ROWS = 6,
    V16_MANY_STRIPS = 2,
    V16_FLOAT_ROWS = 12,
    V16_FLOAT_STRIPS = 2,
};
#    define V16_HAS_BATCH 1 /* 16 sums and what they are made of fit in registers */
typedef __m512 v16f;
typedef __m512i v16i;
typedef __m512i v64b;

VF_INLINE v16f v16_set1(float x)
{
    return _mm512_set1_ps(x);
}
VF_INLINE v16f v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VF_INLINE void v16_store(float *p, v16f v)
{
    _mm512_storeu_ps(p, v);
}
VF_INLINE void v16_store_part(float *p, v16f v, int n)
{
    _mm512_mask_storeu_ps(p, vf_mask(n), v);
}
VF_INLINE v16f v16_mul(v16f a, v16f b)
{
    return _mm512_mul_ps(a, b);
}
VF_INLINE v16f v16_fma(v16f a, v16f b, v16f c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VF_INLINE v16f v16_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
VF_INLINE v16f v16_load_bf16(const void *p)
{
    return vf_load_bf16(p);
}
VF_INLINE v16f v16_float(v16i v)
{
    return _mm512_cvtepi32_ps(v);
}
VF_INLINE v16i v16_set1_int(int x)
{
    return _mm512_set1_epi32(x);
}
VF_INLINE v64b v64_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
VF_INLINE void v64_store(void *p, v64b v)
{
    _mm512_storeu_si512(p, v);
}
VF_INLINE v64b v64_and(v64b a, int byte)
{
    return _mm512_and_si512(a, _mm512_set1_epi8((char)byte));
}
VF_INLINE v64b v64_or(v64b a, v64b b)
{
    return _mm512_or_si512(a, b);
}
/* Bits cross from byte to byte: mask them. n positive: to the left. */
VF_INLINE v64b v64_shift(v64b a, int n)
{
    return n >= 0 ? _mm512_slli_epi16(a, (unsigned)n) : _mm512_srli_epi16(a, (unsigned)-n);
}
VF_INLINE v16i v16_dot(v16i sum, v64b codes, int x)
{
    return _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(x));
}
VF_INLINE v16i v16_dot_wide(v16i sum, v64b codes, int x)
{
    return v16_dot(sum, codes, x);
}

#elif VF_AVX2

enum {
    V16_WIDE_ZERO = 0,
    V16_MANY_ROWS = 4,
    V16_MANY_STRIPS = 1,
    V16_FLOAT_ROWS = 6,
    V16_FLOAT_STRIPS = 1,
};
#    define V16_HAS_BATCH 0
typedef struct {
    __m256 v[2];
} v16f;
typedef struct {
    __m256i v[2];
} v16i;
typedef v16i v64b;

VF_INLINE v16f v16_set1(float x)
{
    __m256 v = _mm256_set1_ps(x);
    return (v16f){{v, v}};
}
VF_INLINE v16f v16_load(const float *p)
{
    return (v16f){{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}};
}
VF_INLINE void v16_store(float *p, v16f v)
{
    _mm256_storeu_ps(p, v.v[0]);
    _mm256_storeu_ps(p + 8, v.v[1]);
}
VF_INLINE void v16_store_part(float *p, v16f v, int n)
{
    float all[16];
    v16_store(all, v);
    memcpy(p, all, (size_t)n * sizeof *p);
}
VF_INLINE v16f v16_mul(v16f a, v16f b)
{
    return (v16f){{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}};
}
VF_INLINE v16f v16_fma(v16f a, v16f b, v16f c)
{
    return (v16f){
        {_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
}
VF_INLINE v16f v16_load_f16(const void *p)
{
    const __m128i *half = p;
    return (v16f){
        {_mm256_cvtph_ps(_mm_loadu_si128(half)), _mm256_cvtph_ps(_mm_loadu_si128(half + 1))}};
}
VF_INLINE v16f v16_load_bf16(const void *p)
{
    const tern_bf16 *half = p;
    return (v16f){{vf_load_bf16(half), vf_load_bf16(half + 8)}};
}
VF_INLINE v16f v16_float(v16i v)
{
    return (v16f){{_mm256_cvtepi32_ps(v.v[0]), _mm256_cvtepi32_ps(v.v[1])}};
}
VF_INLINE v16i v16_set1_int(int x)
{
    __m256i v = _mm256_set1_epi32(x);
    return (v16i){{v, v}};
}
VF_INLINE v64b v64_load(const void *p)
{
    const __m256i *half = p;
    return (v64b){{_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)}};
}
VF_INLINE void v64_store(void *p, v64b v)
{
    __m256i *half = p;
    _mm256_storeu_si256(half, v.v[0]);
    _mm256_storeu_si256(half + 1, v.v[1]);
}
VF_INLINE v64b v64_and(v64b a, int byte)
{
    __m256i mask = _mm256_set1_epi8((char)byte);
    return (v64b){{_mm256_and_si256(a.v[0], mask), _mm256_and_si256(a.v[1], mask)}};
}
VF_INLINE v64b v64_or(v64b a, v64b b)
{
    return (v64b){{_mm256_or_si256(a.v[0], b.v[0]), _mm256_or_si256(a.v[1], b.v[1])}};
}
VF_INLINE v64b v64_shift(v64b a, int n)
{
    return n >= 0 ? (v64b){{_mm256_slli_epi16(a.v[0], n), _mm256_slli_epi16(a.v[1], n)}}
                  : (v64b){{_mm256_srli_epi16(a.v[0], -n), _mm256_srli_epi16(a.v[1], -n)}};
}
VF_INLINE __m256i v16_dot_half(__m256i sum, __m256i codes, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(codes, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
VF_INLINE v16i v16_dot(v16i sum, v64b codes, int x)
{
    __m256i all = _mm256_set1_epi32(x);
    return (v16i){
        {v16_dot_half(sum.v[0], codes.v[0], all), v16_dot_half(sum.v[1], codes.v[1], all)}};
}
VF_INLINE __m256i v16_dot_wide_half(__m256i sum, __m256i codes, __m256i x)
{
    __m256i distance = _mm256_xor_si256(codes, _mm256_set1_epi8((char)0x80));
    return v16_dot_half(sum, _mm256_abs_epi8(distance), _mm256_sign_epi8(x, distance));
}
VF_INLINE v16i v16_dot_wide(v16i sum, v64b codes, int x)
{
    __m256i all = _mm256_set1_epi32(x);
    return (v16i){{v16_dot_wide_half(sum.v[0], codes.v[0], all),
                   v16_dot_wide_half(sum.v[1], codes.v[1], all)}};
}

#else

enum {
    V16_WIDE_ZERO = 128,
    V16_MANY_ROWS = 4,
    V16_MANY_STRIPS = 1,
    V16_FLOAT_ROWS = 4,
    V16_FLOAT_STRIPS = 1,
};
#    define V16_HAS_BATCH 0
typedef struct {
    float v[16];
} v16f;
typedef struct {
    int32_t v[16];
} v16i;
typedef struct {
    uint8_t v[64];
} v64b;

#    define V16_EACH(i) for (int i = 0; i < 16; i++)
#    define V64_EACH(i) for (int i = 0; i < 64; i++)

VF_INLINE v16f v16_set1(float x)
{
    v16f out;
    V16_EACH(i) out.v[i] = x;
    return out;
}
VF_INLINE v16f v16_load(const float *p)
{
    v16f out;
    memcpy(&out, p, sizeof out);
    return out;
}
VF_INLINE void v16_store(float *p, v16f v)
{
    memcpy(p, &v, sizeof v);
}
VF_INLINE void v16_store_part(float *p, v16f v, int n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}
VF_INLINE v16f v16_mul(v16f a, v16f b)
{
    V16_EACH(i) a.v[i] *= b.v[i];
    return a;
}
VF_INLINE v16f v16_fma(v16f a, v16f b, v16f c)
{
    V16_EACH(i) c.v[i] += a.v[i] * b.v[i];
    return c;
}
VF_INLINE v16f v16_load_f16(const void *p)
{
    tern_f16 half[16];
    v16f out;
    memcpy(half, p, sizeof half);
    V16_EACH(i) out.v[i] = tern_f16_to_f32(half[i]);
    return out;
}
VF_INLINE v16f v16_load_bf16(const void *p)
{
    tern_bf16 half[16];
    v16f out;
    memcpy(half, p, sizeof half);
    V16_EACH(i) out.v[i] = tern_bf16_to_f32(half[i]);
    return out;
}
VF_INLINE v16f v16_float(v16i v)
{
    v16f out;
    V16_EACH(i) out.v[i] = (float)v.v[i];
    return out;
}
VF_INLINE v16i v16_set1_int(int x)
{
    v16i out;
    V16_EACH(i) out.v[i] = x;
    return out;
}
VF_INLINE v64b v64_load(const void *p)
{
    v64b out;
    memcpy(&out, p, sizeof out);
    return out;
}
VF_INLINE void v64_store(void *p, v64b v)
{
    memcpy(p, &v, sizeof v);
}
VF_INLINE v64b v64_and(v64b a, int byte)
{
    V64_EACH(i) a.v[i] &= (uint8_t)byte;
    return a;
}
VF_INLINE v64b v64_or(v64b a, v64b b)
{
    V64_EACH(i) a.v[i] |= b.v[i];
    return a;
}
VF_INLINE v64b v64_shift(v64b a, int n)
{
    V64_EACH(i) a.v[i] = (uint8_t)(n >= 0 ? a.v[i] << n : a.v[i] >> -n);
    return a;
}
VF_INLINE v16i v16_dot(v16i sum, v64b codes, int x)
{
    int8_t bytes[4];
    memcpy(bytes, &x, sizeof bytes);
    V16_EACH(i)
    {
        const uint8_t *q = codes.v + 4 * i;
        sum.v[i] += q[0] * bytes[0] + q[1] * bytes[1] + q[2] * bytes[2] + q[3] * bytes[3];
    }
    return sum;
}
VF_INLINE v16i v16_dot_wide(v16i sum, v64b codes, int x)
{
    return v16_dot(sum, codes, x);
}

#endif

#endif
