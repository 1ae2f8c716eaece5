/* blocks.c - which types there are, and which code converts them here. */
#include "kernels/blocks.h"

#include "kernels/blocks_level.h"
#include "runtime/base/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

bool tern_blocks_can_decode(enum tern_dtype dtype)
{
    return tern_dtype_block_elements(dtype) > 1 || dtype == TERN_F32 || dtype == TERN_BF16 ||
           dtype == TERN_F16 || dtype == TERN_F64;
}

bool tern_blocks_can_encode(enum tern_dtype dtype)
{
    return dtype == TERN_Q4_0 || dtype == TERN_Q5_0 || dtype == TERN_Q8_0 || dtype == TERN_Q4_K ||
           dtype == TERN_Q5_K || dtype == TERN_Q6_K || dtype == TERN_F32 || dtype == TERN_BF16 ||
           dtype == TERN_F16;
}

static bool has_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports(
        "avx2"); /* every such processor has F16C, which clang 14 has no word for */
#else
    return false;
#endif
}

#if !defined(__x86_64__)
#    define tern_blocks_decode_avx2 tern_blocks_decode_generic
#    define tern_blocks_encode_avx2 tern_blocks_encode_generic
#endif

void tern_blocks_decode(enum tern_dtype dtype, const void *src, int64_t n, float *dst)
{
    TERN_CHECK(n % tern_dtype_block_elements(dtype) == 0);
    TERN_CHECK(has_avx2() ? tern_blocks_decode_avx2(dtype, src, n, dst)
                          : tern_blocks_decode_generic(dtype, src, n, dst));
}

/* What the type can hold: f16 overflows to infinity, and blocks have f16 scales. */
static tern_status check_row(enum tern_dtype dtype, const float *src, int64_t row, int64_t width)
{
    float limit = dtype == TERN_F16 ? 65519.0f : FLT_MAX;
    for (int64_t i = 0; i < width; i++) {
        if (!(fabsf(src[i]) <= limit)) {
            return tern_fail(TERN_ERR_NONFINITE,
                             "row %lld, column %lld: the value %g cannot become %s, expected a "
                             "finite number of at most %g",
                             (long long)row, (long long)i, (double)src[i], tern_dtype_name(dtype),
                             (double)limit);
        }
    }
    return TERN_OK;
}

static void encode_row(enum tern_dtype dtype,
                       const float *src,
                       int64_t width,
                       const float *importance,
                       void *dst)
{
    uint16_t *halves = dst;
    switch (dtype) {
    case TERN_F32:
        memcpy(dst, src, (size_t)width * sizeof *src);
        break;
    case TERN_BF16:
        for (int64_t i = 0; i < width; i++) {
            halves[i] = tern_f32_to_bf16(src[i]);
        }
        break;
    case TERN_F16:
        for (int64_t i = 0; i < width; i++) {
            halves[i] = tern_f32_to_f16(src[i]);
        }
        break;
    default:
        TERN_CHECK(has_avx2() ? tern_blocks_encode_avx2(dtype, src, width, importance, dst)
                              : tern_blocks_encode_generic(dtype, src, width, importance, dst));
    }
}

tern_status tern_blocks_encode(enum tern_dtype dtype,
                               const float *src,
                               int64_t rows,
                               int64_t width,
                               const float *importance,
                               void *dst)
{
    size_t row_bytes;
    TERN_CHECK(tern_dtype_row_bytes(dtype, width, &row_bytes));
    for (int64_t row = 0; row < rows; row++) {
        const float *from = src + row * width;
        TERN_RETURN_IF_ERR(check_row(dtype, from, row, width));
        encode_row(dtype, from, width, importance, (char *)dst + (size_t)row * row_bytes);
    }
    return TERN_OK;
}
