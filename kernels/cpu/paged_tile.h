/* paged_tile.h - the register tiles of paged attention: scores of a few rows with the keys of blocks, and the sum of
 * their values by weight.
 *
 * One score is one chain of fused multiply-adds over D in ascending order, one element of an output one over the keys of
 * its segment in ascending order, whatever the tile: so a row's bits do not depend on the rows beside it. */
#ifndef TERN_KERNELS_CPU_PAGED_TILE_H
#define TERN_KERNELS_CPU_PAGED_TILE_H

#include "kernels/cpu/kv.h"
#include "kernels/cpu/vec.h"

enum {
    /* Keys that are weighed at once, at fixed positions of a sequence; what they give is then added to what came before. */
    SEGMENT = 128,
    SEGMENT_BLOCKS = SEGMENT / TERN_KV_BLOCK,
    BLOCK_VECTORS = TERN_KV_BLOCK / VF_LANES,
    AHEAD = 4,  /* blocks that memory is asked for before they are used */
    WIDE = 128, /* heads */
};
#if VF_AVX512
enum {
    TILE_ROWS = 8,
    TILE_BLOCKS = 2, /* of keys, for a score */
    TILE_VECTORS = 2 /* of values */
};
#elif VF_AVX2
enum {
    TILE_ROWS = 4,
    TILE_BLOCKS = 1,
    TILE_VECTORS = 2
};
#else
enum {
    TILE_ROWS = 2,
    TILE_BLOCKS = 1,
    TILE_VECTORS = 2
};
#endif

/* VF_LANES elements of what is kept as `kept`, from element i on. */
VF_INLINE vf kept_load(const void *p, int64_t i, enum tern_dtype kept)
{
    return kept == TERN_F32    ? vf_load((const float *)p + i)
           : kept == TERN_BF16 ? vf_load_bf16((const tern_bf16 *)p + i)
                               : vf_load_i8((const int8_t *)p + i);
}

/* Asks for the line that `count` elements of what is kept begin a part of, or end. */
VF_INLINE void fetch(const char *p, int64_t i, int64_t count, enum tern_dtype kept)
{
    int64_t bytes = kept == TERN_F32 ? 4 : kept == TERN_BF16 ? 2 : 1;
    if (i * bytes % 64 == 0 || count * bytes > 64) {
        __builtin_prefetch(p + i * bytes);
    }
    if (count * bytes > 64) {
        __builtin_prefetch(p + i * bytes + 64);
    }
}

/* p[r * SEGMENT + key] = q[r * dp ..] . key, for `rows` rows and the keys of `blocks` blocks. fetches: rows so few that
 * they would wait for memory ask for the keys of AHEAD blocks on, and of wide heads, whose values are read in more passes
 * than leave time for it, for the values. */
VF_INLINE void score_tile(int rows,
                          int blocks,
                          const float *q,
                          int64_t dp,
                          const char *const *keys,
                          const char *const *values,
                          int64_t d,
                          float *p,
                          bool fetches,
                          enum tern_dtype kept)
{
    vf acc[TILE_ROWS][2 * BLOCK_VECTORS];
    VF_UNROLL for (int r = 0; r < rows; r++)
    {
        VF_UNROLL for (int v = 0; v < blocks * BLOCK_VECTORS; v++)
        {
            acc[r][v] = vf_zero();
        }
    }
    for (int64_t i = 0; i < d; i++) {
        for (int b = 0; fetches && b < blocks; b++) {
            fetch(keys[b + AHEAD], i * TERN_KV_BLOCK, TERN_KV_BLOCK, kept);
            if (d >= WIDE) {
                fetch(values[b + AHEAD], i * TERN_KV_BLOCK, TERN_KV_BLOCK, kept);
            }
        }
        vf key[2 * BLOCK_VECTORS];
        VF_UNROLL for (int v = 0; v < blocks * BLOCK_VECTORS; v++)
        {
            key[v] = kept_load(keys[v / BLOCK_VECTORS],
                               i * TERN_KV_BLOCK + v % BLOCK_VECTORS * VF_LANES, kept);
        }
        VF_UNROLL for (int r = 0; r < rows; r++)
        {
            vf x = vf_set1(q[r * dp + i]);
            VF_UNROLL for (int v = 0; v < blocks * BLOCK_VECTORS; v++)
            {
                acc[r][v] = vf_fma(x, key[v], acc[r][v]);
            }
        }
    }
    VF_UNROLL for (int r = 0; r < rows; r++)
    {
        VF_UNROLL for (int v = 0; v < blocks * BLOCK_VECTORS; v++)
        {
            vf_store(p + r * SEGMENT + v * VF_LANES, acc[r][v]);
        }
    }
}

/* total[r * dp ..] = total * old[r] + new[r] * the sum over blocks [from, to) of p[r * SEGMENT + key] * values, for `rows`
 * rows and `vectors` vectors of D. */
VF_INLINE void value_tile(int rows,
                          int vectors,
                          const float *p,
                          const char *const *values,
                          int64_t at,
                          int64_t from,
                          int64_t to,
                          int64_t dp,
                          float *total,
                          const float *old_factor,
                          const float *new_factor,
                          bool fetches,
                          enum tern_dtype kept)
{
    vf acc[TILE_ROWS][TILE_VECTORS];
    VF_UNROLL for (int r = 0; r < rows; r++)
    {
        VF_UNROLL for (int v = 0; v < vectors; v++)
        {
            acc[r][v] = vf_zero();
        }
    }
    for (int64_t block = from / TERN_KV_BLOCK; block * TERN_KV_BLOCK < to; block++) {
        int64_t first = block * TERN_KV_BLOCK;
        int64_t begin = from > first ? from : first;
        int64_t end = to < first + TERN_KV_BLOCK ? to : first + TERN_KV_BLOCK;
        for (int64_t key = begin; key < end; key++) {
            vf value[TILE_VECTORS];
            if (fetches) {
                fetch(values[block + AHEAD], (key - first) * dp + at, vectors * VF_LANES, kept);
            }
            VF_UNROLL for (int v = 0; v < vectors; v++)
            {
                value[v] = kept_load(values[block], (key - first) * dp + at + v * VF_LANES, kept);
            }
            VF_UNROLL for (int r = 0; r < rows; r++)
            {
                vf weight = vf_set1(p[r * SEGMENT + key]);
                VF_UNROLL for (int v = 0; v < vectors; v++)
                {
                    acc[r][v] = vf_fma(weight, value[v], acc[r][v]);
                }
            }
        }
    }
    VF_UNROLL for (int r = 0; r < rows; r++)
    {
        VF_UNROLL for (int v = 0; v < vectors; v++)
        {
            float *t = total + r * dp + at + v * VF_LANES;
            vf_store(
                t, vf_fma(acc[r][v], vf_set1(new_factor[r]), vf_load(t) * vf_set1(old_factor[r])));
        }
    }
}

#endif
