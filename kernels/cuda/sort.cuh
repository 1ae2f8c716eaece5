/* sort.cuh - rows ordered by token id, stably: a radix sort of (id, row) pairs, 8 bits a pass, lowest first.
 *
 * A pass is two kernels. Tiles of rows are cut by the count alone, at most SORT_TILES_MAX; a block has a tile, a warp an
 * eighth of it. First the digits of every tile are counted; then each block adds up the counts of the digits and tiles
 * before its own, and every pair goes to its place: the count of smaller digits, of the same digit in earlier tiles and
 * warps, and of the same digit in earlier lanes. No atomics: the order is that of the rows. */
#ifndef TERN_KERNELS_CUDA_SORT_CUH
#define TERN_KERNELS_CUDA_SORT_CUH

#include "kernels/cuda/vec.cuh"

enum {
    SORT_THREADS = 256,
    SORT_WARPS = SORT_THREADS / TERN_WARP,
    SORT_BITS = 8,
    SORT_DIGITS = 1 << SORT_BITS, /* one a thread where blocks add up counts */
    SORT_TILE_MIN = 1024,
    SORT_TILES_MAX = 256
};

static_assert(SORT_DIGITS == SORT_THREADS, "a thread has a digit");

struct sort_pass {
    const int32_t *ids;                /* first pass: (n), of which keys are made */
    const uint32_t *keys_in, *rows_in; /* later passes: (n) */
    uint32_t *keys_out, *rows_out;     /* (n) */
    uint32_t *counts;                  /* (tiles, SORT_DIGITS) */
    int64_t n, tile;                   /* tile: a multiple of SORT_TILE_MIN */
    uint32_t v;                        /* ids outside [0, v) have this key */
    int shift;
};

TERN_DEVICE uint32_t sort_key(const struct sort_pass &a, int64_t at)
{
    if (a.ids == nullptr) {
        return a.keys_in[at];
    }
    int32_t id = a.ids[at];
    return id >= 0 && (uint32_t)id < a.v ? (uint32_t)id : a.v;
}

/* The lanes whose digit is this lane's; all lanes of the warp call it, those that are not live count for none. */
TERN_DEVICE unsigned sort_peers(unsigned digit, bool is_live)
{
    unsigned peers = __ballot_sync(TERN_WARP_ALL, is_live);
    TERN_UNROLL
    for (int bit = 0; bit < SORT_BITS; bit++) {
        bool is_set = (digit >> bit & 1) != 0;
        unsigned others = __ballot_sync(TERN_WARP_ALL, is_set);
        peers &= is_set ? others : ~others;
    }
    return peers;
}

/* counts[warp][digit] of the block's tile; ends with a barrier. */
TERN_DEVICE void sort_count_tile(const struct sort_pass &a, unsigned (*counts)[SORT_DIGITS])
{
    int warp = (int)threadIdx.x / TERN_WARP, lane = (int)threadIdx.x % TERN_WARP;
    int64_t share = a.tile / SORT_WARPS, begin = (int64_t)blockIdx.x * a.tile + warp * share;
    for (int digit = lane; digit < SORT_DIGITS; digit += TERN_WARP) {
        counts[warp][digit] = 0;
    }
    __syncwarp();
    for (int64_t first = begin; first < begin + share; first += TERN_WARP) {
        bool is_live = first + lane < a.n;
        unsigned digit = is_live ? sort_key(a, first + lane) >> a.shift & (SORT_DIGITS - 1) : 0;
        unsigned peers = sort_peers(digit, is_live);
        if (is_live && (peers & ((1u << lane) - 1)) == 0) {
            counts[warp][digit] += (unsigned)__popc(peers);
        }
        __syncwarp();
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(SORT_THREADS) sort_count_kernel(struct sort_pass a)
{
    TERN_SHARED(unsigned, counts, [SORT_WARPS][SORT_DIGITS]);
    sort_count_tile(a, &counts[0]);
    unsigned total = 0;
    for (int warp = 0; warp < SORT_WARPS; warp++) {
        total += counts[warp][threadIdx.x];
    }
    a.counts[(int64_t)blockIdx.x * SORT_DIGITS + threadIdx.x] = total;
}

/* Sum of x over the threads before this one. */
TERN_DEVICE unsigned sort_scan(unsigned x, unsigned *scratch)
{
    unsigned mine = x;
    int thread = (int)threadIdx.x;
    scratch[thread] = x;
    __syncthreads();
    for (int offset = 1; offset < SORT_THREADS; offset *= 2) {
        unsigned before = thread >= offset ? scratch[thread - offset] : 0;
        __syncthreads();
        x += before;
        scratch[thread] = x;
        __syncthreads();
    }
    return x - mine;
}

static __global__ void __launch_bounds__(SORT_THREADS) sort_move_kernel(struct sort_pass a)
{
    TERN_SHARED(unsigned, place, [SORT_WARPS][SORT_DIGITS]);
    TERN_SHARED(unsigned, scratch, [SORT_THREADS]);
    int warp = (int)threadIdx.x / TERN_WARP, lane = (int)threadIdx.x % TERN_WARP;
    sort_count_tile(a, &place[0]);
    unsigned before = 0, all = 0; /* of the digit threadIdx.x: in earlier tiles, in all */
    for (unsigned tile = 0; tile < gridDim.x; tile++) {
        unsigned count = a.counts[(int64_t)tile * SORT_DIGITS + threadIdx.x];
        before += tile < blockIdx.x ? count : 0;
        all += count;
    }
    unsigned next = sort_scan(all, &scratch[0]) + before;
    for (int w = 0; w < SORT_WARPS; w++) {
        unsigned count = place[w][threadIdx.x];
        place[w][threadIdx.x] = next;
        next += count;
    }
    __syncthreads();
    int64_t share = a.tile / SORT_WARPS, begin = (int64_t)blockIdx.x * a.tile + warp * share;
    for (int64_t first = begin; first < begin + share; first += TERN_WARP) {
        int64_t at = first + lane;
        bool is_live = at < a.n;
        uint32_t key = is_live ? sort_key(a, at) : 0;
        unsigned digit = key >> a.shift & (SORT_DIGITS - 1);
        unsigned peers = sort_peers(digit, is_live);
        unsigned earlier = (unsigned)__popc(peers & ((1u << lane) - 1));
        unsigned to = place[warp][digit] + earlier;
        __syncwarp();
        if (is_live && earlier == 0) {
            place[warp][digit] = to + (unsigned)__popc(peers);
        }
        if (is_live) {
            a.keys_out[to] = key;
            a.rows_out[to] = a.ids != nullptr ? (uint32_t)at : a.rows_in[at];
        }
        __syncwarp();
    }
}

/* Where a sort of n pairs lives in a workspace: two lots of (keys, rows), and the counts. */
struct sort_space {
    uint32_t *keys[2], *rows[2], *counts;
};

static inline size_t sort_space_bytes(int64_t n)
{
    size_t vector = (size_t)tern_div_up(n * (int64_t)sizeof(uint32_t), TERN_CUDA_ALIGN);
    return 4 * vector * TERN_CUDA_ALIGN + (size_t)SORT_TILES_MAX * SORT_DIGITS * sizeof(uint32_t);
}

static inline struct sort_space sort_space_at(char *block, int64_t n)
{
    size_t vector = (size_t)tern_div_up(n * (int64_t)sizeof(uint32_t), TERN_CUDA_ALIGN);
    struct sort_space space;
    for (int i = 0; i < 2; i++) {
        space.keys[i] = (uint32_t *)(void *)(block + (size_t)(2 * i) * vector * TERN_CUDA_ALIGN);
        space.rows[i] =
            (uint32_t *)(void *)(block + (size_t)(2 * i + 1) * vector * TERN_CUDA_ALIGN);
    }
    space.counts = (uint32_t *)(void *)(block + 4 * vector * TERN_CUDA_ALIGN);
    return space;
}

/* Sorts rows [0, n) by ids; returns which of the two lots has the result. n below 2^31; ids outside [0, v) come last,
 * as v. */
static inline int sort_run(const struct tern_cuda_device *cuda,
                           const struct sort_space &space,
                           const int32_t *ids,
                           int64_t n,
                           int64_t v)
{
    int64_t tile = SORT_TILE_MIN * tern_div_up(n, (int64_t)SORT_TILE_MIN * SORT_TILES_MAX);
    int to = 0;
    struct sort_pass pass = {ids,          nullptr, nullptr, space.keys[0], space.rows[0],
                             space.counts, n,       tile,    (uint32_t)v,   0};
    for (; pass.shift == 0 || v >> pass.shift > 0; pass.shift += SORT_BITS) {
        unsigned tiles = (unsigned)tern_div_up(n, tile);
        tern_launch(sort_count_kernel, tiles, SORT_THREADS, 0, cuda->stream, pass);
        tern_launch(sort_move_kernel, tiles, SORT_THREADS, 0, cuda->stream, pass);
        pass.ids = nullptr;
        pass.keys_in = space.keys[to];
        pass.rows_in = space.rows[to];
        to ^= 1;
        pass.keys_out = space.keys[to];
        pass.rows_out = space.rows[to];
    }
    return to ^ 1;
}

#endif
