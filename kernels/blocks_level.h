/* blocks_level.h - blocks_decode.c and blocks_encode.c as they are compiled once a level. Internal
 * to kernels/. */
#ifndef TERN_KERNELS_BLOCKS_LEVEL_H
#define TERN_KERNELS_BLOCKS_LEVEL_H

#include "kernels/blocks.h"

/* False: no such type. Both levels give the same bits. */
bool tern_blocks_decode_generic(enum tern_dtype dtype, const void *src, int64_t n, float *dst);
bool tern_blocks_decode_avx2(enum tern_dtype dtype, const void *src, int64_t n, float *dst);
/* One row of a block type: finite values, importance (width) or NULL. False: no such type. */
bool tern_blocks_encode_generic(enum tern_dtype dtype,
                                const float *src,
                                int64_t width,
                                const float *importance,
                                void *dst);
bool tern_blocks_encode_avx2(enum tern_dtype dtype,
                             const float *src,
                             int64_t width,
                             const float *importance,
                             void *dst);

#endif
