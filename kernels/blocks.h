/* blocks.h - GGUF's block types: rows of 32 or 256 elements that share scales, to f32 and from it.
 *
 * Layouts (little-endian, no padding, any alignment; d, m: f16 unless said otherwise):
 *   q4_0    d, 16 bytes of nibbles                       d (q - 8)
 *   q4_1    d, m, nibbles                                d q + m
 *   q5_0    d, 4 bytes of fifth bits, nibbles            d (q - 16)
 *   q5_1    d, m, fifth bits, nibbles                    d q + m
 *   q8_0    d, 32 signed bytes                           d q
 *   q2_k    16 bytes (scale, min: 4 bits each, of 16 elements), 64 bytes of 2 bits, d, m
 *                                                        d s q - m min
 *   q3_k    32 bytes of third bits, 64 bytes of 2 bits, 12 bytes (16 scales of 6 bits), d
 *                                                        d (s - 32) q
 *   q4_k    d, m, 12 bytes (8 scales, 8 mins of 6 bits, of 32 elements), 128 bytes of nibbles
 *   q5_k    as q4_k, with 32 bytes of fifth bits before the nibbles
 *                                                        d s q - m min
 *   q6_k    128 bytes of nibbles, 64 bytes of upper 2 bits, 16 signed scales, d
 *                                                        d s (q - 32)
 *   iq4_nl  d, nibbles                                   d table[q]
 *   iq4_xs  d, 8 scales of 6 bits (upper 2 bits first), 128 bytes of nibbles
 *                                                        d (s - 32) table[q]
 *   mxfp4   one byte e, nibbles                          2^(e - 127) e2m1[q]
 * Within 32 elements (64 for q4_k to q6_k) the low nibbles are the first half. */
#ifndef TERN_KERNELS_BLOCKS_H
#define TERN_KERNELS_BLOCKS_H

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether tern_blocks_decode takes it: the block types, and f32, bf16, f16, f64. */
bool tern_blocks_can_decode(enum tern_dtype dtype);
/* n elements, whole blocks, from src (any alignment) to dst. Each value is the formula above in f32, products
 * and sums rounded one by one: the same on every machine. dtype must be one that can be decoded. */
void tern_blocks_decode(enum tern_dtype dtype, const void *src, int64_t n, float *dst);

/* Whether tern_blocks_encode takes it: q4_0, q5_0, q8_0, q4_k, q5_k, q6_k, f32, bf16, f16. */
bool tern_blocks_can_encode(enum tern_dtype dtype);
/* rows * width values to rows of `dtype`, one behind the other in dst; width whole blocks. Scales are searched
 * for the least squared error; importance (width, finite, 0 or more) weighs the columns, NULL: all the same.
 * The same bits on every machine. TERN_ERR_NONFINITE: a value is no finite number, or beyond what f16 holds
 * when that is the type; the message gives row and column. */
TERN_MUST_CHECK tern_status tern_blocks_encode(enum tern_dtype dtype,
                                               const float *src,
                                               int64_t rows,
                                               int64_t width,
                                               const float *importance,
                                               void *dst);

#endif
