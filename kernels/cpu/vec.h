/* vec.h - one thin layer of float vectors, so that a kernel is written once and compiled once a
 * level.
 *
 * `vf` holds VF_LANES floats: 16 with AVX-512 (F, BW, DQ, VL), 8 with AVX2 + FMA, 4 otherwise (the
 * compiler's own vectors). Which one follows from the flags the file is compiled with;
 * TERN_CPU_SUFFIX names the level in the symbols. bf16 is loaded and stored here and computed on as
 * f32; stores round to nearest even by integer arithmetic, because the instruction that does it
 * (vcvtneps2bf16) flushes denormals. NaN comes through everything: vf_min(a, b) and vf_max(a, b)
 * return b when either is NaN, and the clamps below rely on it. */
#ifndef TERN_KERNELS_CPU_VEC_H
#define TERN_KERNELS_CPU_VEC_H

#include "runtime/base/dtype.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#    define VF_AVX512 1
#    define VF_AVX2   0
#    include <immintrin.h>
#elif defined(__AVX2__) && defined(__FMA__)
#    define VF_AVX512 0
#    define VF_AVX2   1
#    include <immintrin.h>
#else
#    define VF_AVX512 0
#    define VF_AVX2   0
#    if defined(__SSE2__)
#        include <emmintrin.h>
#    endif
#endif

#ifndef TERN_CPU_SUFFIX
#    define TERN_CPU_SUFFIX generic
#endif
#define TERN_CPU_JOIN_(a, b) a##_##b
#define TERN_CPU_JOIN(a, b)  TERN_CPU_JOIN_(a, b)
/* TERN_CPU_LEVEL(norm_fwd) is tern_cpu_norm_fwd_avx2, say. */
#define TERN_CPU_LEVEL(name) TERN_CPU_JOIN(tern_cpu_##name, TERN_CPU_SUFFIX)

#define VF_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#    define VF_UNROLL _Pragma("clang loop unroll(full)")
#else
#    define VF_UNROLL _Pragma("GCC unroll 32")
#endif

#if VF_AVX512
typedef __m512 vf;
enum {
    VF_LANES = 16
};

VF_INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
VF_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VF_INLINE void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VF_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
VF_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
VF_INLINE vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
VF_INLINE vf vf_round(vf a) /* to nearest even integer */
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VF_INLINE vf vf_scale2(vf a, vf n) /* a * 2^n for integral n in [-200, 200], rounded once */
{
    return _mm512_scalef_ps(a, n);
}
/* yes where a < b, else no. */
VF_INLINE vf vf_if_less(vf a, vf b, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
/* The first n lanes, n in [0, VF_LANES]; the others load 0 and are not stored. */
VF_INLINE __mmask16 vf_mask(int n)
{
    return (__mmask16)((1u << n) - 1u);
}
VF_INLINE vf vf_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(vf_mask(n), p);
}
VF_INLINE void vf_store_part(float *p, vf v, int n)
{
    _mm512_mask_storeu_ps(p, vf_mask(n), v);
}
VF_INLINE vf vf_from_bf16_bits(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
VF_INLINE __m256i vf_to_bf16_bits(vf v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
VF_INLINE vf vf_load_bf16(const tern_bf16 *p)
{
    return vf_from_bf16_bits(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
VF_INLINE void vf_store_bf16(tern_bf16 *p, vf v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, vf_to_bf16_bits(v));
}
VF_INLINE vf vf_load_bf16_part(const tern_bf16 *p, int n)
{
    return vf_from_bf16_bits(_mm256_maskz_loadu_epi16(vf_mask(n), p));
}
VF_INLINE void vf_store_bf16_part(tern_bf16 *p, vf v, int n)
{
    _mm256_mask_storeu_epi16(p, vf_mask(n), vf_to_bf16_bits(v));
}
VF_INLINE vf vf_round_bf16(vf v)
{
    return vf_from_bf16_bits(vf_to_bf16_bits(v));
}
VF_INLINE vf vf_load_i8(const int8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

#elif VF_AVX2
typedef __m256 vf;
enum {
    VF_LANES = 8
};

VF_INLINE vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
VF_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VF_INLINE void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
VF_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
VF_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
VF_INLINE vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
VF_INLINE vf vf_round(vf a) /* to nearest even integer */
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for integral n in [-200, 200]: two factors, so that a denormal result is rounded once. */
VF_INLINE vf vf_scale2(vf a, vf n)
{
    __m256i e = _mm256_cvtps_epi32(n);
    __m256i half = _mm256_srai_epi32(e, 1);
    __m256i rest = _mm256_sub_epi32(e, half);
    __m256i bias = _mm256_set1_epi32(127);
    __m256i f1 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i f2 = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    return a * _mm256_castsi256_ps(f1) * _mm256_castsi256_ps(f2);
}
/* yes where a < b, else no. */
VF_INLINE vf vf_if_less(vf a, vf b, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
/* The first n lanes, n in [0, VF_LANES]; the others load 0 and are not stored. */
VF_INLINE __m256i vf_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VF_INLINE vf vf_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, vf_mask(n));
}
VF_INLINE void vf_store_part(float *p, vf v, int n)
{
    _mm256_maskstore_ps(p, vf_mask(n), v);
}
VF_INLINE vf vf_from_bf16_bits(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
VF_INLINE __m128i vf_to_bf16_bits(vf v)
{
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    up = _mm256_blendv_epi8(up, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    up = _mm256_srli_epi32(up, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(up), _mm256_extracti128_si256(up, 1));
}
VF_INLINE vf vf_load_bf16(const tern_bf16 *p)
{
    return vf_from_bf16_bits(_mm_loadu_si128((const __m128i *)(const void *)p));
}
VF_INLINE void vf_store_bf16(tern_bf16 *p, vf v)
{
    _mm_storeu_si128((__m128i *)(void *)p, vf_to_bf16_bits(v));
}
VF_INLINE vf vf_load_bf16_part(const tern_bf16 *p, int n)
{
    tern_bf16 lanes[8] = {0};
    memcpy(lanes, p, (size_t)n * sizeof lanes[0]);
    return vf_load_bf16(lanes);
}
VF_INLINE void vf_store_bf16_part(tern_bf16 *p, vf v, int n)
{
    tern_bf16 lanes[8];
    vf_store_bf16(lanes, v);
    memcpy(p, lanes, (size_t)n * sizeof lanes[0]);
}
VF_INLINE vf vf_round_bf16(vf v)
{
    return vf_from_bf16_bits(vf_to_bf16_bits(v));
}
VF_INLINE vf vf_load_i8(const int8_t *p)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

#else
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
enum {
    VF_LANES = 4
};

VF_INLINE vf vf_set1(float x)
{
    return (vf){x, x, x, x};
}
VF_INLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
VF_INLINE void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}
VF_INLINE vf vf_fma(vf a, vf b, vf c) /* rounded twice: a fused one would be a library call */
{
    return a * b + c;
}
VF_INLINE vf vf_pick(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
/* yes where a < b, else no. */
VF_INLINE vf vf_if_less(vf a, vf b, vf yes, vf no)
{
    return vf_pick((vi)(a < b), yes, no);
}
VF_INLINE vf vf_max(vf a, vf b)
{
    return vf_pick((vi)(a > b), a, b);
}
VF_INLINE vf vf_min(vf a, vf b)
{
    return vf_pick((vi)(a < b), a, b);
}
VF_INLINE vf vf_sqrt(vf a)
{
    return (vf){__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]), __builtin_sqrtf(a[2]),
                __builtin_sqrtf(a[3])};
}
VF_INLINE vf vf_round(vf a) /* to nearest even integer, for |a| < 2^22 */
{
    vf magic = vf_set1(12582912.0f);
    return (a + magic) - magic;
}
/* a * 2^n for integral n in [-200, 200]: two factors, so that a denormal result is rounded once. */
VF_INLINE vf vf_scale2(vf a, vf n)
{
    vi e = {(int32_t)n[0], (int32_t)n[1], (int32_t)n[2], (int32_t)n[3]};
    vi half = e >> 1;
    vi rest = e - half;
    return a * (vf)((half + 127) << 23) * (vf)((rest + 127) << 23);
}
/* The first n lanes, n in [0, VF_LANES]; the others load 0 and are not stored. */
VF_INLINE vf vf_load_part(const float *p, int n)
{
    float lanes[4] = {0};
    memcpy(lanes, p, (size_t)n * sizeof lanes[0]);
    return vf_load(lanes);
}
VF_INLINE void vf_store_part(float *p, vf v, int n)
{
    memcpy(p, &v, (size_t)n * sizeof(float));
}
VF_INLINE vf vf_load_bf16_part(const tern_bf16 *p, int n)
{
    vf v = vf_set1(0);
    for (int i = 0; i < n; i++) {
        v[i] = tern_bf16_to_f32(p[i]);
    }
    return v;
}
VF_INLINE vf vf_load_bf16(const tern_bf16 *p)
{
    return vf_load_bf16_part(p, 4);
}
VF_INLINE void vf_store_bf16_part(tern_bf16 *p, vf v, int n)
{
    for (int i = 0; i < n; i++) {
        p[i] = tern_f32_to_bf16(v[i]);
    }
}
VF_INLINE void vf_store_bf16(tern_bf16 *p, vf v)
{
    vf_store_bf16_part(p, v, 4);
}
VF_INLINE vf vf_round_bf16(vf v)
{
    tern_bf16 lanes[4];
    vf_store_bf16(lanes, v);
    return vf_load_bf16(lanes);
}
VF_INLINE vf vf_load_i8(const int8_t *p)
{
    return (vf){(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
}
#endif

VF_INLINE vf vf_zero(void)
{
    return vf_set1(0.0f);
}

/* Lane i added to lane i + half, halving until one is left: the same order with every compiler. */
VF_INLINE float vf_sum(vf v)
{
#if VF_AVX512 || VF_AVX2
#    if VF_AVX512
    __m256 half = _mm512_castps512_ps256(v) + _mm512_extractf32x8_ps(v, 1);
#    else
    __m256 half = v;
#    endif
    __m128 x = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
#else
    return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

VF_INLINE float vf_reduce_max(vf v)
{
    float lanes[VF_LANES];
    vf_store(lanes, v);
    float m = lanes[0];
    for (int i = 1; i < VF_LANES; i++) {
        m = lanes[i] > m ? lanes[i] : m;
    }
    return m;
}

/* Lane numbers as floats: 0, 1, ... */
VF_INLINE vf vf_iota(void)
{
    static const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return vf_load(lanes);
}

/* Element i of a tensor in f32 or bf16, VF_LANES elements or the first n of them. `bf16` is a
 * constant wherever these are inlined. */
VF_INLINE vf vf_get(const void *p, int64_t i, bool bf16)
{
    return bf16 ? vf_load_bf16((const tern_bf16 *)p + i) : vf_load((const float *)p + i);
}
VF_INLINE void vf_put(void *p, int64_t i, vf v, bool bf16)
{
    if (bf16) {
        vf_store_bf16((tern_bf16 *)p + i, v);
    } else {
        vf_store((float *)p + i, v);
    }
}
VF_INLINE vf vf_get_n(const void *p, int64_t i, int n, bool bf16)
{
    if (n == VF_LANES) {
        return vf_get(p, i, bf16);
    }
    return bf16 ? vf_load_bf16_part((const tern_bf16 *)p + i, n)
                : vf_load_part((const float *)p + i, n);
}
VF_INLINE void vf_put_n(void *p, int64_t i, vf v, int n, bool bf16)
{
    if (n == VF_LANES) {
        vf_put(p, i, v, bf16);
    } else if (bf16) {
        vf_store_bf16_part((tern_bf16 *)p + i, v, n);
    } else {
        vf_store_part((float *)p + i, v, n);
    }
}
/* v as it will read back after a store. */
VF_INLINE vf vf_rounded(vf v, bool bf16)
{
    return bf16 ? vf_round_bf16(v) : v;
}

/* Runs STEP(i, n) over [0, count): whole vectors with n == VF_LANES known to the compiler, then one
 * tail. */
#define VF_EACH(count, STEP) \
    do { \
        int64_t vf_i_ = 0, vf_count_ = (count); \
        for (; vf_i_ + VF_LANES <= vf_count_; vf_i_ += VF_LANES) { \
            STEP(vf_i_, VF_LANES); \
        } \
        if (vf_i_ < vf_count_) { \
            STEP(vf_i_, (int)(vf_count_ - vf_i_)); \
        } \
    } while (0)

/* out (count) = [out +] the sum of `rows` rows of f32, `stride` floats apart, added in order. */
VF_INLINE void vf_add_rows(float *out,
                           const float *from,
                           int64_t count,
                           int64_t rows,
                           int64_t stride,
                           bool accumulate)
{
    for (int64_t i = 0; i < count; i += VF_LANES) {
        int n = count - i < VF_LANES ? (int)(count - i) : VF_LANES;
        vf sum = vf_zero();
        for (int64_t row = 0; row < rows; row++) {
            sum = sum + vf_get_n(from, row * stride + i, n, false);
        }
        if (accumulate) {
            sum = vf_get_n(out, i, n, false) + sum;
        }
        vf_put_n(out, i, sum, n, false);
    }
}

/* 2^x: x = n + r, |r| <= 1/2, a minimax polynomial of degree 6 in r (2.6e-9 before rounding;
 * measured within 1.5 units in the last place). 0 below -151, NaN stays NaN. vf_exp2_capped is for
 * x < 140, which the softmaxes know; vf_exp2 gives infinity from 128 on. */
VF_INLINE vf vf_exp2_capped(vf x)
{
    x = vf_max(vf_set1(-160.0f), x);
    vf n = vf_round(x);
    vf r = x - n;
    vf p = vf_set1(0x1.470b4ap-13f);
    p = vf_fma(p, r, vf_set1(0x1.5f7276p-10f));
    p = vf_fma(p, r, vf_set1(0x1.3b270ep-7f));
    p = vf_fma(p, r, vf_set1(0x1.c6ae72p-5f));
    p = vf_fma(p, r, vf_set1(0x1.ebfbe2p-3f));
    p = vf_fma(p, r, vf_set1(0x1.62e432p-1f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_scale2(p, n);
}

VF_INLINE vf vf_exp2(vf x)
{
    return vf_exp2_capped(vf_min(vf_set1(140.0f), x));
}

/* e^x: x = n ln 2 + r, ln 2 in two parts so that r is exact to a rounding; as accurate as
 * vf_exp2. */
VF_INLINE vf vf_exp(vf x)
{
    x = vf_max(vf_set1(-110.0f), x);
    x = vf_min(vf_set1(97.0f), x);
    vf n = vf_round(x * vf_set1(0x1.715476p+0f));
    vf r = vf_fma(n, vf_set1(-0x1.62e4p-1f), x);
    r = vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), r);
    vf p = vf_set1(0x1.709b64p-10f);
    p = vf_fma(p, r, vf_set1(0x1.12903ep-7f));
    p = vf_fma(p, r, vf_set1(0x1.55515ep-5f));
    p = vf_fma(p, r, vf_set1(0x1.5553c2p-3f));
    p = vf_fma(p, r, vf_set1(0x1.000002p-1f));
    p = vf_fma(p, r, vf_set1(0x1.0p+0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_scale2(p, n);
}

/* tanh x: below 0.55 x + x^3 p(x^2), a minimax polynomial of degree 4 (5e-9 relative before rounding), from there on
 * 1 - 2 / (e^2|x| + 1): both ends keep their relative precision. Measured within 2 units in the last place. */
VF_INLINE vf vf_tanh(vf x)
{
    vf zero = vf_zero(), size = vf_max(x, zero - x), x2 = x * x;
    vf p = vf_set1(-0x1.9bba6ap-8f);
    p = vf_fma(p, x2, vf_set1(0x1.595686p-6f));
    p = vf_fma(p, x2, vf_set1(-0x1.b92bbap-5f));
    p = vf_fma(p, x2, vf_set1(0x1.110d3cp-3f));
    p = vf_fma(p, x2, vf_set1(-0x1.55554cp-2f));
    vf low = vf_fma(x * x2, p, x);
    vf high = vf_set1(1.0f) - vf_set1(2.0f) / (vf_exp(size + size) + vf_set1(1.0f));
    high = vf_if_less(x, zero, zero - high, high);
    return vf_if_less(size, vf_set1(0.55f), low, high);
}

#endif
