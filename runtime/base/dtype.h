/* dtype.h - element types and conversions. bf16 rounds to nearest even and keeps NaN a NaN. */
#ifndef TERN_RUNTIME_BASE_DTYPE_H
#define TERN_RUNTIME_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum tern_dtype {
    TERN_F32,
    TERN_BF16,
    TERN_F64,
    TERN_I32,
    TERN_I64,
    TERN_U16,
    TERN_U8,
    TERN_DTYPE_COUNT
};

typedef uint16_t tern_bf16; /* storage only: convert to compute */

size_t tern_dtype_bytes(enum tern_dtype dtype);
const char *tern_dtype_name(enum tern_dtype dtype); /* "f32", "bf16", ... */
/* Unit roundoff spacing at 1: 2^-23, 2^-7, 2^-52; 0 for integers. */
double tern_dtype_epsilon(enum tern_dtype dtype);

static inline float tern_bf16_to_f32(tern_bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline tern_bf16 tern_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (tern_bf16)(bits >> 16 | 0x40u);
    }
    return (tern_bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
