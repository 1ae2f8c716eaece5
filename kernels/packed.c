/* packed.c - rows of weights as codes and scales.
 *
 * Codes and scales come out of the one decoder there is (blocks.h): a block is decoded with all its scales replaced by
 * one, which gives its codes, and with all its codes replaced by one, and by zero, which gives scales and minima. */
#include "kernels/packed.h"

#include "kernels/blocks.h"
#include "runtime/base/check.h"

#include <math.h>

enum {
    GROUP = TERN_PACKED_GROUP,
    BLOCK_BYTES_MAX = 256,
    BLOCK_MAX = 256, /* elements */
    PATCHES_MAX = 6
};

const char *tern_packed_name(enum tern_packed packed)
{
    static const char *const names[TERN_PACKED_COUNT] = {"none", "f32", "bf16", "q8", "q6",
                                                         "q5",   "q5a", "q4",   "q4a"};
    return (unsigned)packed < TERN_PACKED_COUNT ? names[packed] : "unknown";
}

enum tern_packed tern_packed_for(enum tern_dtype dtype)
{
    switch (dtype) {
    case TERN_BF16:
    case TERN_Q2_K:
    case TERN_MXFP4:
        return TERN_PACKED_BF16;
    case TERN_Q4_0:
        return TERN_PACKED_Q4;
    case TERN_Q4_1:
    case TERN_Q4_K:
        return TERN_PACKED_Q4A;
    case TERN_Q5_0:
        return TERN_PACKED_Q5;
    case TERN_Q5_1:
    case TERN_Q5_K:
        return TERN_PACKED_Q5A;
    case TERN_Q8_0:
    case TERN_IQ4_NL:
    case TERN_IQ4_XS:
        return TERN_PACKED_Q8;
    case TERN_Q3_K:
    case TERN_Q6_K:
        return TERN_PACKED_Q6;
    default:
        return TERN_PACKED_F32;
    }
}

int tern_packed_zero(enum tern_packed packed)
{
    static const int zeros[TERN_PACKED_COUNT] = {
        [TERN_PACKED_Q8] = 128, [TERN_PACKED_Q6] = 32, [TERN_PACKED_Q5] = 16, [TERN_PACKED_Q4] = 8};
    return zeros[packed];
}

/* `count` bytes from `at` on become `value`. */
struct patch {
    uint8_t at, count, value;
};

/* What makes the scales of a block one and its minima zero; its codes one; its codes zero. */
struct anatomy {
    struct patch scales[PATCHES_MAX], ones[PATCHES_MAX], zeros[PATCHES_MAX];
    uint8_t min_at; /* of the f16 that multiplies minima; 0: none */
};

/* 1.0 in f16 */
#define F16_ONE(at) \
    {(at), 1, 0x00}, \
    { \
        (at) + 1, 1, 0x3c \
    }

static const struct anatomy *anatomy_of(enum tern_dtype dtype)
{
    static const struct anatomy q4_0 = {{F16_ONE(0)}, {{2, 16, 0x99}}, {{0}}, 0};
    static const struct anatomy q4_1 = {{F16_ONE(0), {2, 2, 0}}, {{4, 16, 0x11}}, {{4, 16, 0}}, 2};
    static const struct anatomy q5_0 = {{F16_ONE(0)}, {{2, 4, 0xff}, {6, 16, 0x11}}, {{0}}, 0};
    static const struct anatomy q5_1 = {
        {F16_ONE(0), {2, 2, 0}}, {{4, 4, 0}, {8, 16, 0x11}}, {{4, 20, 0}}, 2};
    static const struct anatomy q8_0 = {{F16_ONE(0)}, {{2, 32, 1}}, {{0}}, 0};
    static const struct anatomy q4_k = {{F16_ONE(0), {2, 2, 0}, {4, 4, 1}, {8, 4, 0}, {12, 4, 1}},
                                        {{16, 128, 0x11}},
                                        {{16, 128, 0}},
                                        2};
    static const struct anatomy q5_k = {{F16_ONE(0), {2, 2, 0}, {4, 4, 1}, {8, 4, 0}, {12, 4, 1}},
                                        {{16, 32, 0}, {48, 128, 0x11}},
                                        {{16, 160, 0}},
                                        2};
    static const struct anatomy q6_k = {
        {{192, 16, 1}, F16_ONE(208)}, {{0, 128, 0x11}, {128, 64, 0xaa}}, {{0}}, 0};
    static const struct anatomy q3_k = {
        {{96, 8, 0x11}, {104, 4, 0xaa}, F16_ONE(108)}, {{0, 32, 0xff}, {32, 64, 0x55}}, {{0}}, 0};
    static const struct anatomy iq4_nl = {{F16_ONE(0)}, {{2, 16, 0x88}}, {{0}}, 0};
    static const struct anatomy iq4_xs = {
        {F16_ONE(0), {2, 2, 0xaa}, {4, 4, 0x11}}, {{8, 128, 0x88}}, {{0}}, 0};
    switch (dtype) {
    case TERN_Q4_0:
        return &q4_0;
    case TERN_Q4_1:
        return &q4_1;
    case TERN_Q5_0:
        return &q5_0;
    case TERN_Q5_1:
        return &q5_1;
    case TERN_Q8_0:
        return &q8_0;
    case TERN_Q4_K:
        return &q4_k;
    case TERN_Q5_K:
        return &q5_k;
    case TERN_Q6_K:
        return &q6_k;
    case TERN_Q3_K:
        return &q3_k;
    case TERN_IQ4_NL:
        return &iq4_nl;
    case TERN_IQ4_XS:
        return &iq4_xs;
    default:
        return NULL;
    }
}

static void decode_patched(enum tern_dtype dtype,
                           const void *block,
                           const struct patch *patches,
                           int64_t elements,
                           float *out)
{
    uint8_t copy[BLOCK_BYTES_MAX];
    memcpy(copy, block, tern_dtype_bytes(dtype));
    for (int i = 0; i < PATCHES_MAX; i++) {
        memset(copy + patches[i].at, patches[i].value, patches[i].count);
    }
    tern_blocks_decode(dtype, copy, elements, out);
}

static float through_f16(float x)
{
    return tern_f16_to_f32(tern_f32_to_f16(x));
}

/* The groups of one block. */
static void block_groups(enum tern_dtype dtype,
                         enum tern_packed packed,
                         const void *block,
                         struct tern_packed_group *out)
{
    const struct anatomy *anatomy = anatomy_of(dtype);
    int64_t elements = tern_dtype_block_elements(dtype);
    float codes[BLOCK_MAX], scales[BLOCK_MAX], minima[BLOCK_MAX] = {0};
    decode_patched(dtype, block, anatomy->scales, elements, codes);
    if (anatomy->min_at != 0) {
        const struct patch no_min = {anatomy->min_at, 2, 0};
        struct patch ones[PATCHES_MAX] = {anatomy->ones[0], anatomy->ones[1], no_min};
        decode_patched(dtype, block, ones, elements, scales);
        decode_patched(dtype, block, anatomy->zeros, elements, minima);
    } else {
        decode_patched(dtype, block, anatomy->ones, elements, scales);
    }
    for (int64_t g = 0; g < elements / GROUP; g++) {
        const float *from = codes + g * GROUP;
        for (int i = 0; i < GROUP; i++) {
            out[g].q[i] = (uint8_t)((int)from[i] + tern_packed_zero(packed));
        }
        out[g].scale[0] = through_f16(scales[g * GROUP]);
        out[g].scale[1] = through_f16(scales[g * GROUP + GROUP / 2]);
        out[g].min = through_f16(minima[g * GROUP]);
    }
}

static const char *element_of(const struct tern_pack_args *args, const void *src, int64_t index)
{
    int64_t block = index / tern_dtype_block_elements(args->src_dtype);
    return (const char *)src + (size_t)block * tern_dtype_bytes(args->src_dtype);
}

void tern_packed_values(const struct tern_pack_args *args,
                        const void *src,
                        int64_t row,
                        int64_t first,
                        int64_t count,
                        float *out)
{
    if (!args->trans_src) {
        int64_t from = row * args->ld + first;
        tern_blocks_decode(args->src_dtype, element_of(args, src, from), count, out);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t from = (first + i) * args->ld + row;
        tern_blocks_decode(args->src_dtype, element_of(args, src, from), 1, out + i);
    }
}

tern_status tern_packed_groups(const struct tern_pack_args *args,
                               const void *src,
                               int64_t row,
                               int64_t first,
                               int64_t count,
                               struct tern_packed_group *out)
{
    float values[TERN_PACKED_PIECE];
    char encoded[TERN_PACKED_PIECE * 2];
    enum tern_dtype dtype = args->src_dtype;
    const char *from = encoded;
    if (tern_packed_for(dtype) == args->packed) {
        from = element_of(args, src, row * args->ld + first);
    } else {
        dtype = args->packed == TERN_PACKED_Q8 ? TERN_Q8_0 : TERN_Q4_0;
        tern_packed_values(args, src, row, first, count, values);
        TERN_RETURN_IF_ERR(tern_blocks_encode(dtype, values, 1, count, NULL, encoded));
    }
    int64_t elements = tern_dtype_block_elements(dtype);
    TERN_CHECK(anatomy_of(dtype) != NULL);
    for (int64_t at = 0; at < count; at += elements) {
        block_groups(dtype, args->packed, from, out + at / GROUP);
        from += tern_dtype_bytes(dtype);
    }
    return TERN_OK;
}

float tern_packed_round_group(const float a[TERN_PACKED_GROUP], int8_t codes_out[TERN_PACKED_GROUP])
{
    uint32_t most = 0; /* as bits: what is not finite is above all that is */
    for (int i = 0; i < GROUP; i++) {
        uint32_t bits = tern_f32_to_bits(a[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    float max = tern_bits_to_f32(most), inverse = 127.0F / max;
    bool is_zero = isinf(inverse);
    for (int i = 0; i < GROUP; i++) {
        float code = a[i] * inverse;
        codes_out[i] = (int8_t)(is_zero || !isfinite(code) ? 0 : (int)rintf(code));
    }
    return is_zero ? 0 : max / 127.0F;
}
