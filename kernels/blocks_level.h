/* blocks_level.h - blocks_decode.c as it is compiled once a level. Internal to kernels/. */
#ifndef TERN_KERNELS_BLOCKS_LEVEL_H
#define TERN_KERNELS_BLOCKS_LEVEL_H

#include "kernels/blocks.h"

/* False: no such type. Both give the same bits. */
bool tern_blocks_decode_generic(enum tern_dtype dtype, const void *src, int64_t n, float *dst);
bool tern_blocks_decode_avx2(enum tern_dtype dtype, const void *src, int64_t n, float *dst);

#endif
