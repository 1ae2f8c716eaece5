/* dtype.h - element types and conversions. bf16 and f16 round to nearest even and keep NaN a NaN. */
#ifndef TERN_RUNTIME_BASE_DTYPE_H
#define TERN_RUNTIME_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum tern_dtype {
    /* What activations, gradients and checkpoints are made of. */
    TERN_F32,
    TERN_BF16,
    TERN_F64,
    TERN_I32,
    TERN_I64,
    TERN_U16,
    TERN_U8,
    TERN_DTYPE_CKPT_COUNT,
    /* What model files store besides: plain elements, ... */
    TERN_F16 = TERN_DTYPE_CKPT_COUNT,
    TERN_I8,
    TERN_I16,
    TERN_U32,
    TERN_U64,
    TERN_BOOL,
    TERN_F8_E4M3,
    TERN_F8_E5M2,
    /* ... and GGUF's blocks of 32 or 256 consecutive elements of a row (kernels/blocks.h). */
    TERN_Q4_0,
    TERN_Q4_1,
    TERN_Q5_0,
    TERN_Q5_1,
    TERN_Q8_0,
    TERN_Q2_K,
    TERN_Q3_K,
    TERN_Q4_K,
    TERN_Q5_K,
    TERN_Q6_K,
    TERN_IQ4_NL,
    TERN_IQ4_XS,
    TERN_MXFP4,
    TERN_DTYPE_COUNT
};

typedef uint16_t tern_bf16; /* storage only: convert to compute */
typedef uint16_t tern_f16;  /* IEEE binary16; likewise */

/* Bytes of one element, or of one block where tern_dtype_block_elements is more than 1. */
size_t tern_dtype_bytes(enum tern_dtype dtype);
/* 1, or 32 or 256 for GGUF's block types. */
int64_t tern_dtype_block_elements(enum tern_dtype dtype);
/* Bytes of n consecutive elements; false when they are no whole number of blocks, n < 0, or the product
 * overflows. */
bool tern_dtype_row_bytes(enum tern_dtype dtype, int64_t n, size_t *bytes_out);
const char *tern_dtype_name(enum tern_dtype dtype); /* "f32", "bf16", "q4_k", ... */
/* Unit roundoff spacing at 1: 2^-23, 2^-7, 2^-52; 0 for integers and blocks. */
double tern_dtype_epsilon(enum tern_dtype dtype);

static inline float tern_bits_to_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t tern_f32_to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float tern_bf16_to_f32(tern_bf16 x)
{
    return tern_bits_to_f32((uint32_t)x << 16);
}

static inline tern_bf16 tern_f32_to_bf16(float f)
{
    uint32_t bits = tern_f32_to_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (tern_bf16)(bits >> 16 | 0x40u);
    }
    return (tern_bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Exact. Without branches, so that a loop over it becomes vector code: an exponent field too small by 112
 * is repaired by a product with 2^112, which makes subnormals right as well; infinity and NaN get all ones. */
static inline float tern_f16_to_f32(tern_f16 x)
{
    uint32_t magnitude = (uint32_t)(x & 0x7fffu) << 13;
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t finite = tern_f32_to_bits(tern_bits_to_f32(magnitude) * 0x1p112f);
    uint32_t special = magnitude | 0x7f800000u;
    return tern_bits_to_f32(sign | (magnitude >= 0x0f800000u ? special : finite));
}

/* To nearest, ties to even; from 65520 on infinity. */
static inline tern_f16 tern_f32_to_f16(float f)
{
    uint32_t bits = tern_f32_to_bits(f);
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (tern_f16)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    }
    if (magnitude >= 0x477ff000u) { /* 65520 */
        return (tern_f16)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 leaves multiples of 2^-24 */
        return (tern_f16)(sign |
                          (tern_f32_to_bits(tern_bits_to_f32(magnitude) + 0.5f) - 0x3f000000u));
    }
    return (tern_f16)(sign | ((magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13));
}

#endif
