/* attention_plan.h - which tiles the tensor-core attention kernels are built with, which of them fit a GPU, and in what
 * order blocks are worked off. Host only, no CUDA: tests/kernels checks it. */
#ifndef TERN_KERNELS_CUDA_ATTENTION_PLAN_H
#define TERN_KERNELS_CUDA_ATTENTION_PLAN_H

#include <stddef.h>
#include <stdint.h>

enum tern_attention_pass {
    TERN_ATTENTION_FWD, /* a block owns query rows and walks over tiles of keys */
    TERN_ATTENTION_DQ,  /* the same, backward */
    TERN_ATTENTION_DKV  /* a block owns keys and walks over tiles of query rows */
};

enum {
    TERN_ATTENTION_WARPS = 4, /* of every block */
    TERN_ATTENTION_PAD =
        8, /* 16-bit values after each row of a tile in shared memory: rows are an odd
                                   * number of 16-byte chunks, so that ldmatrix meets no bank conflict */
    TERN_ATTENTION_STAT_ROWS =
        64 /* query rows of a tile at most; the statistics of a head are padded to it */
};

/* Instances: pass, head width, rows that a warp owns, rows of a tile, blocks that a multiprocessor has registers for (so
 * that one computes while another waits). For one pass and width the better comes first. */
#define TERN_ATTENTION_TILES_64(X) \
    X(TERN_ATTENTION_FWD, 64, 32, 48, 3) \
    X(TERN_ATTENTION_DQ, 64, 32, 64, 2) \
    X(TERN_ATTENTION_DKV, 64, 32, 64, 2)
#define TERN_ATTENTION_TILES_80(X) \
    X(TERN_ATTENTION_FWD, 80, 32, 64, 2) \
    X(TERN_ATTENTION_DQ, 80, 32, 32, 2) \
    X(TERN_ATTENTION_DKV, 80, 32, 32, 2)
#define TERN_ATTENTION_TILES_96(X) \
    X(TERN_ATTENTION_FWD, 96, 32, 64, 2) \
    X(TERN_ATTENTION_DQ, 96, 32, 32, 2) \
    X(TERN_ATTENTION_DKV, 96, 32, 32, 2)
#define TERN_ATTENTION_TILES_128(X) \
    X(TERN_ATTENTION_FWD, 128, 32, 64, 2) \
    X(TERN_ATTENTION_DQ, 128, 32, 32, 2) \
    X(TERN_ATTENTION_DQ, 128, 16, 32, 2) \
    X(TERN_ATTENTION_DKV, 128, 32, 32, 2)
#define TERN_ATTENTION_TILES_256(X) \
    X(TERN_ATTENTION_FWD, 256, 16, 64, 2) \
    X(TERN_ATTENTION_DQ, 256, 16, 16, 2) \
    X(TERN_ATTENTION_DKV, 256, 16, 32, 2) \
    X(TERN_ATTENTION_DKV, 256, 16, 16, 2)
#define TERN_ATTENTION_TILES(X) \
    TERN_ATTENTION_TILES_64(X) \
    TERN_ATTENTION_TILES_80(X) \
    TERN_ATTENTION_TILES_96(X) \
    TERN_ATTENTION_TILES_128(X) \
    TERN_ATTENTION_TILES_256(X)

struct tern_attention_tile {
    enum tern_attention_pass pass;
    int width, warp_rows, tile_rows, blocks;
};

/* Rows that a block owns: those of its warps; in DKV two warps share their rows, one for dk and one for dv. */
int tern_attention_block_rows(const struct tern_attention_tile *tile);
/* Dynamic shared memory of a block. */
size_t tern_attention_shared_bytes(const struct tern_attention_tile *tile);

/* The instance for heads of `width` on a GPU where a block may have shared_bytes_max: the first of which two blocks fit
 * the shared memory of a multiprocessor, else the first of which one fits, else NULL. */
const struct tern_attention_tile *tern_attention_pick(enum tern_attention_pass pass,
                                                      int64_t width,
                                                      size_t shared_bytes_max);

/* How many of `items` (heads of sequences) are worked off together: within such a section the longest blocks of all
 * items come first, so that short ones fill the end; what its blocks share stays in the L2 cache. A section is whole
 * groups of `group` items, which read the same bytes_a_group. */
int64_t tern_attention_section(int64_t items, int64_t group, int64_t bytes_a_group);

#endif
