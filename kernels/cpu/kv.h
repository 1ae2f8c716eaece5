/* kv.h - how keys and values lie in a block of the pool on this backend.
 *
 * A block is its K heads one after another, each a multiple of 64 bytes: keys (D, TERN_KV_BLOCK), so that a vector's lanes
 * are tokens and a score needs no sum across lanes; values (TERN_KV_BLOCK, DP), DP being D padded with zeros to whole
 * vectors, so that lanes are elements; and of i8 the scales of keys f32 (TERN_KV_BLOCK), and of values. */
#ifndef TERN_KERNELS_CPU_KV_H
#define TERN_KERNELS_CPU_KV_H

#include "kernels/cpu/ops_level.h"

struct tern_cpu_kv {
    int64_t d, dp;
    size_t value_bytes; /* from a head's keys to its values */
    size_t scale_bytes; /* from a head's keys to their scales */
    size_t head_bytes, block_bytes;
};

static inline struct tern_cpu_kv tern_cpu_kv_layout(int64_t kv_heads,
                                                    int64_t d,
                                                    enum tern_dtype kv_dtype)
{
    size_t bytes = tern_dtype_bytes(kv_dtype);
    struct tern_cpu_kv kv = {.d = d, .dp = tern_cpu_round_up(d, TERN_CPU_ATTN_PAD)};
    kv.value_bytes = (size_t)(d * TERN_KV_BLOCK) * bytes;
    kv.scale_bytes = kv.value_bytes + (size_t)(kv.dp * TERN_KV_BLOCK) * bytes;
    size_t scales = kv_dtype == TERN_I8 ? 2 * TERN_KV_BLOCK * sizeof(float) : 0;
    kv.head_bytes = (kv.scale_bytes + scales + 63) / 64 * 64;
    kv.block_bytes = (size_t)kv_heads * kv.head_bytes;
    return kv;
}

#endif
