/* blocks.c - which types there are, and which code decodes them here. */
#include "kernels/blocks.h"

#include "kernels/blocks_level.h"
#include "runtime/base/check.h"

bool tern_blocks_can_decode(enum tern_dtype dtype)
{
    return tern_dtype_block_elements(dtype) > 1 || dtype == TERN_F32 || dtype == TERN_BF16 ||
           dtype == TERN_F16 || dtype == TERN_F64;
}

void tern_blocks_decode(enum tern_dtype dtype, const void *src, int64_t n, float *dst)
{
    TERN_CHECK(n % tern_dtype_block_elements(dtype) == 0);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        TERN_CHECK(tern_blocks_decode_avx2(dtype, src, n, dst));
        return;
    }
#endif
    TERN_CHECK(tern_blocks_decode_generic(dtype, src, n, dst));
}
