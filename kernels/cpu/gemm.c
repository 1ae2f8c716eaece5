/* gemm.c - the matrix product: blocks, packing and tiles spread over the pool.
 *
 * Sums: k is cut into blocks whose length depends on k and the variant alone; inside a block one
 * accumulator an element, blocks added in ascending order in f32. m and n may be cut anywhere, so
 * neither the thread count nor the size of the workspace shows in a result.
 *
 * A chunk (m_chunk, n_chunk, k_chunk) is what fits into the workspace when packed. For each chunk
 * the pool packs both factors (once each, never again for the same chunk), then works through tiles
 * of the output that fit into L2. Stored weights are decoded to f32 on the way into their panels, or, for a few
 * rows of a, some rows at a time in L2. */
#include "kernels/cpu/gemm.h"

#include "kernels/blocks.h"
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/packed.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"

#include <string.h>

enum {
    PACK_BYTES_MAX =
        12 << 20, /* of one packed factor: two of them fit in the L3 of small machines */
    PACK_BYTES_MIN = 1 << 20,
    SUMS_BYTES_MAX =
        4 << 20, /* f32 sums of a chunk whose output is bf16 and whose k has several chunks */
    SUMS_BYTES_MIN = 256 << 10,
    TILE_M_PANELS = 12, /* a tile of the output: up to 12 * 14 rows by 8 * 32 columns */
    TILE_N_PANELS = 8,
    TILE_BYTES = 12 * 32 * 8 * 32 * 4, /* the widest variant's tile in f32 */
    K_CHUNK_MAX = 4096,
    PACK_PANELS = 4, /* panels a packing task */
    TASKS_A_THREAD = 12,
    FEW_COLUMNS = 512, /* columns a task of the few-rows variants */
    DECODED_ROWS = 8,  /* of stored weights, for a few rows of a */
};

struct gemm_job {
    const struct tern_gemm_args *args;
    const struct tern_gemm_kernel *kernel;
    char *a_pack, *b_pack;
    float *sums; /* f32 (m_chunk, n_chunk), or NULL */
    struct tern_cpu_device *device;
    int64_t k_block;
    bool uses_d; /* sums are kept in d itself */
    /* The present chunk. */
    int64_t m0, n0, k0;
    int64_t m, n, k;
    bool pack_a, pack_b, is_first, is_last;
    int64_t tile_m, tile_n; /* multiples of mr, nr */
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int element_bytes(enum tern_gemm_format format)
{
    return format == TERN_PANEL_F32 ? 4 : 2;
}

/* Bytes of one panel of k elements. */
static int64_t a_panel_bytes(const struct tern_gemm_kernel *kernel, int64_t k)
{
    return k * kernel->a_stride * element_bytes(kernel->a_format);
}

static int64_t b_panel_bytes(const struct tern_gemm_kernel *kernel, int64_t k)
{
    return k * kernel->b_stride * element_bytes(kernel->b_format);
}

static const char *at(const void *base, int64_t index, enum tern_dtype dtype)
{
    return (const char *)base + index * (int64_t)tern_dtype_bytes(dtype);
}

int64_t tern_gemm_decode(const struct tern_gemm_args *args,
                         int64_t row,
                         int lanes,
                         int64_t first,
                         int64_t k,
                         float *dst,
                         int64_t *skip_out)
{
    int64_t block = tern_dtype_block_elements(args->b_dtype), start = first / block * block;
    int64_t count = round_up(first + k, block) - start;
    size_t bytes = tern_dtype_bytes(args->b_dtype);
    const char *src = tern_cpu_ptr(args->b);
    for (int lane = 0; lane < lanes; lane++) {
        int64_t at_block = ((row + lane) * args->ldb + start) / block;
        tern_blocks_decode(args->b_dtype, src + (size_t)at_block * bytes, count,
                           dst + lane * count);
    }
    *skip_out = first - start;
    return count;
}

/* Packs some panels of one block of k. Panels of block kb start at kb * k_block * panels * stride.
 */
static void pack_panels(const struct gemm_job *job,
                        bool is_a,
                        int64_t kb,
                        int64_t group,
                        float *scratch)
{
    const struct tern_gemm_args *g = job->args;
    const struct tern_gemm_kernel *kernel = job->kernel;
    int width = is_a ? kernel->mr : kernel->nr;
    int64_t lanes = is_a ? job->m : job->n;
    int64_t lane0 = is_a ? job->m0 : job->n0;
    bool lanes_outer = is_a ? !g->trans_a : g->trans_b; /* k is contiguous */
    int64_t ld = is_a ? g->lda : g->ldb;
    int64_t panels = ceil_div(lanes, width);
    int64_t k_first = kb * job->k_block;
    int64_t k = min_i64(job->k_block, job->k - k_first);
    int64_t k_padded = round_up(k, kernel->k_unit);
    struct tern_gemm_slice slice = {.dtype = is_a ? g->a_dtype : g->b_dtype,
                                    .lane_stride = lanes_outer ? ld : 1,
                                    .k_stride = lanes_outer ? 1 : ld,
                                    .k = k,
                                    .round = g->compute == TERN_BF16};
    const void *src = tern_cpu_ptr(is_a ? g->a : g->b);
    int64_t bytes = is_a ? a_panel_bytes(kernel, k_padded) : b_panel_bytes(kernel, k_padded);
    int64_t block =
        is_a ? a_panel_bytes(kernel, job->k_block) : b_panel_bytes(kernel, job->k_block);
    char *dst = (is_a ? job->a_pack : job->b_pack) + kb * panels * block;
    int64_t end = min_i64(panels, (group + 1) * PACK_PANELS);
    bool is_stored = !is_a && tern_dtype_is_stored(g->b_dtype);
    for (int64_t panel = group * PACK_PANELS; panel < end; panel++) {
        int64_t lane = panel * width;
        slice.lanes = (int)min_i64(width, lanes - lane);
        int64_t first = job->k0 + k_first;
        if (is_stored) {
            int64_t skip;
            slice.dtype = TERN_F32;
            slice.lane_stride =
                tern_gemm_decode(g, lane0 + lane, slice.lanes, first, k, scratch, &skip);
            slice.src = scratch + skip;
        } else {
            slice.src =
                at(src, (lane0 + lane) * slice.lane_stride + first * slice.k_stride, slice.dtype);
        }
        (is_a ? kernel->pack_a : kernel->pack_b)(&slice, is_a ? kernel->a_stride : kernel->b_stride,
                                                 dst + panel * bytes);
    }
}

static int64_t pack_groups(int64_t lanes, int width)
{
    return ceil_div(ceil_div(lanes, width), PACK_PANELS);
}

static void pack_task(void *arg, int64_t task, int thread)
{
    const struct gemm_job *job = arg;
    int64_t blocks = ceil_div(job->k, job->k_block);
    int64_t a_groups = pack_groups(job->m, job->kernel->mr);
    int64_t a_tasks = job->pack_a ? a_groups * blocks : 0;
    float *scratch = tern_cpu_scratch(job->device, thread);
    if (task < a_tasks) {
        pack_panels(job, true, task / a_groups, task % a_groups, scratch);
    } else {
        int64_t b_groups = pack_groups(job->n, job->kernel->nr);
        pack_panels(job, false, (task - a_tasks) / b_groups, (task - a_tasks) % b_groups, scratch);
    }
}

/* All micro-tiles of one tile, one block of k. c is at the tile's first element. */
static void multiply_block(const struct gemm_job *job,
                           int64_t kb,
                           int64_t i0,
                           int64_t j0,
                           int64_t m,
                           int64_t n,
                           float *c,
                           int64_t ldc,
                           bool add)
{
    const struct tern_gemm_kernel *kernel = job->kernel;
    int64_t k = round_up(min_i64(job->k_block, job->k - kb * job->k_block), kernel->k_unit);
    int64_t a_bytes = a_panel_bytes(kernel, k), b_bytes = b_panel_bytes(kernel, k);
    const char *a = job->a_pack +
                    kb * ceil_div(job->m, kernel->mr) * a_panel_bytes(kernel, job->k_block) +
                    i0 / kernel->mr * a_bytes;
    const char *b = job->b_pack +
                    kb * ceil_div(job->n, kernel->nr) * b_panel_bytes(kernel, job->k_block) +
                    j0 / kernel->nr * b_bytes;
    for (int64_t i = 0; i < m; i += kernel->mr) {
        int rows = (int)min_i64(kernel->mr, m - i);
        for (int64_t j = 0; j < n; j += kernel->nr) {
            int columns = (int)min_i64(kernel->nr, n - j);
            kernel->tile(k, a + i / kernel->mr * a_bytes, b + j / kernel->nr * b_bytes,
                         c + i * ldc + j, ldc, rows, columns, add);
        }
    }
}

void tern_gemm_finish_tile(const struct tern_gemm_args *g,
                           void (*finish)(const struct tern_gemm_finish *),
                           const float *c,
                           int64_t ldc,
                           int64_t i,
                           int64_t j,
                           int64_t m,
                           int64_t n,
                           bool accumulate)
{
    struct tern_gemm_finish f = {.c = c,
                                 .ldc = ldc,
                                 .ldd = g->ldd,
                                 .d_dtype = g->d_dtype,
                                 .bias_dtype = g->bias_dtype,
                                 .accumulate = accumulate,
                                 .m = m,
                                 .n = n};
    f.d = tern_cpu_ptr(tern_dptr_at(g->d, i * g->ldd + j, g->d_dtype));
    if (g->epilogue != TERN_EPILOGUE_NONE) {
        f.bias = tern_cpu_ptr(tern_dptr_at(g->bias, j, g->bias_dtype));
    }
    if (g->epilogue == TERN_EPILOGUE_BIAS_GELU) {
        f.aux = tern_cpu_ptr(tern_dptr_at(g->aux, i * g->ldd + j, g->d_dtype));
    }
    finish(&f);
}

static void tile_task(void *arg, int64_t task, int thread)
{
    const struct gemm_job *job = arg;
    const struct tern_gemm_args *g = job->args;
    int64_t m_tiles = ceil_div(job->m, job->tile_m);
    int64_t i0 = task % m_tiles * job->tile_m;
    int64_t j0 = task / m_tiles * job->tile_n;
    int64_t m = min_i64(job->tile_m, job->m - i0);
    int64_t n = min_i64(job->tile_n, job->n - j0);
    float *c;
    int64_t ldc;
    if (job->uses_d) {
        ldc = g->ldd;
        c = (float *)tern_cpu_ptr(g->d) + (job->m0 + i0) * ldc + job->n0 + j0;
    } else if (job->sums != NULL) {
        ldc = job->n;
        c = job->sums + i0 * ldc + j0;
    } else {
        ldc = job->tile_n;
        c = tern_cpu_scratch(job->device, thread);
    }
    int64_t blocks = ceil_div(job->k, job->k_block);
    for (int64_t kb = 0; kb < blocks; kb++) {
        bool add = !job->is_first || kb > 0 || g->accumulate;
        multiply_block(job, kb, i0, j0, m, n, c, ldc, add);
    }
    if (job->is_last && !(job->uses_d && g->epilogue == TERN_EPILOGUE_NONE)) {
        tern_gemm_finish_tile(g, job->kernel->finish, c, ldc, job->m0 + i0, job->n0 + j0, m, n,
                              false);
    }
}

/* Tiles as large as L2 likes, but enough of them that the last one to finish does not matter. */
static void choose_tiles(struct gemm_job *job)
{
    int mr = job->kernel->mr, nr = job->kernel->nr;
    int64_t m_panels = TILE_M_PANELS, n_panels = TILE_N_PANELS;
    int64_t wanted = job->device->threads > 1 ? (int64_t)TASKS_A_THREAD * job->device->threads : 1;
    while (m_panels * n_panels > 4 &&
           ceil_div(job->m, m_panels * mr) * ceil_div(job->n, n_panels * nr) < wanted) {
        if (m_panels > n_panels) {
            m_panels = ceil_div(m_panels, 2);
        } else {
            n_panels = ceil_div(n_panels, 2);
        }
    }
    job->tile_m = m_panels * mr;
    job->tile_n = n_panels * nr;
}

static void run_chunk(struct gemm_job *job)
{
    int64_t blocks = ceil_div(job->k, job->k_block);
    int64_t packs = 0;
    packs += job->pack_a ? blocks * pack_groups(job->m, job->kernel->mr) : 0;
    packs += job->pack_b ? blocks * pack_groups(job->n, job->kernel->nr) : 0;
    tern_cpu_parallel(job->device, packs, pack_task, job);
    choose_tiles(job);
    int64_t tiles = ceil_div(job->m, job->tile_m) * ceil_div(job->n, job->tile_n);
    tern_cpu_parallel(job->device, tiles, tile_task, job);
}

/* Length of a block of k: equal blocks, none longer than the variant's; of stored weights whole blocks, so that none is
 * decoded twice. Depends on k, the variant and the type of b only. */
static int64_t block_length(const struct tern_gemm_args *g, const struct tern_gemm_kernel *kernel)
{
    int64_t stored = tern_dtype_block_elements(g->b_dtype);
    int64_t unit = max_i64(kernel->k_unit, stored);
    int64_t longest = max_i64(unit, kernel->k_block / stored * stored);
    return round_up(ceil_div(g->k, ceil_div(g->k, longest)), unit);
}

/* Workspace: [packed a | packed b | sums]. */
static int64_t sums_bytes(const struct tern_cpu_device *device)
{
    return min_i64(SUMS_BYTES_MAX, max_i64(SUMS_BYTES_MIN, (int64_t)device->shared_bytes / 8));
}

static int64_t pack_bytes(const struct tern_cpu_device *device)
{
    int64_t bytes = ((int64_t)device->shared_bytes - sums_bytes(device)) / 2;
    return min_i64(PACK_BYTES_MAX, bytes) / 64 * 64;
}

static void run_packed(struct tern_cpu_device *device,
                       const struct tern_gemm_args *g,
                       const struct tern_gemm_kernel *kernel)
{
    struct gemm_job job = {.args = g, .kernel = kernel, .device = device};
    int64_t pack = pack_bytes(device);
    job.k_block = block_length(g, kernel);
    /* The longest k chunk with room for a tile's panels on both sides. */
    int64_t side = max_i64(a_panel_bytes(kernel, 1) * 4, b_panel_bytes(kernel, 1) * 4);
    int64_t k_max = min_i64(K_CHUNK_MAX, pack / side);
    int64_t k_chunk =
        min_i64(round_up(g->k, kernel->k_unit), max_i64(1, k_max / job.k_block) * job.k_block);
    int64_t m_chunk = pack / a_panel_bytes(kernel, k_chunk) * kernel->mr;
    int64_t n_chunk = pack / b_panel_bytes(kernel, k_chunk) * kernel->nr;
    TERN_CHECK(m_chunk > 0 && n_chunk > 0);
    m_chunk = min_i64(m_chunk, round_up(g->m, kernel->mr));
    n_chunk = min_i64(n_chunk, round_up(g->n, kernel->nr));
    job.a_pack = device->shared;
    job.b_pack = job.a_pack + pack;
    job.uses_d = g->d_dtype == TERN_F32;
    if (!job.uses_d && k_chunk < g->k) {
        int64_t room = sums_bytes(device) / 4;
        job.sums = (float *)(job.b_pack + pack);
        n_chunk = min_i64(n_chunk, max_i64(1, room / kernel->mr / kernel->nr) * kernel->nr);
        m_chunk = min_i64(m_chunk, room / n_chunk / kernel->mr * kernel->mr);
        TERN_CHECK(m_chunk > 0);
    }
    int64_t packed_a[2] = {-1, -1}, packed_b[2] = {-1, -1};
    for (job.m0 = 0; job.m0 < g->m; job.m0 += m_chunk) {
        job.m = min_i64(m_chunk, g->m - job.m0);
        for (job.n0 = 0; job.n0 < g->n; job.n0 += n_chunk) {
            job.n = min_i64(n_chunk, g->n - job.n0);
            for (job.k0 = 0; job.k0 < g->k; job.k0 += k_chunk) {
                job.k = min_i64(k_chunk, g->k - job.k0);
                job.is_first = job.k0 == 0;
                job.is_last = job.k0 + job.k == g->k;
                job.pack_a = packed_a[0] != job.m0 || packed_a[1] != job.k0;
                job.pack_b = packed_b[0] != job.n0 || packed_b[1] != job.k0;
                packed_a[0] = job.m0, packed_a[1] = job.k0;
                packed_b[0] = job.n0, packed_b[1] = job.k0;
                run_chunk(&job);
            }
        }
    }
}

/* Whether codes go straight into sums: bf16 would have weights rounded. */
static bool is_fused(const struct tern_gemm_args *g)
{
    return g->compute != TERN_BF16 && tern_cpu_stored_has(g->b_dtype);
}

int64_t tern_gemm_few_rows(const struct tern_gemm_args *args)
{
    return is_fused(args) ? TERN_GEMM_FEW_ROWS_STORED : TERN_GEMM_FEW_ROWS;
}

/* Rows of k decoded values that fit in a thread's scratch behind its sums. */
static int64_t decoded_rows(int64_t k)
{
    return (TILE_BYTES / 4 - TERN_GEMM_FEW_ROWS * FEW_COLUMNS) / k;
}

struct few_job {
    const struct tern_gemm_args *args;
    const struct tern_gemm_few_kernel *kernel;
    const float *a; /* f32 (m, k) */
    struct tern_cpu_device *device;
    int64_t columns; /* a task */
};

/* Rows of stored weights against a as it is, where there is a kernel for that. False: there is none. */
static bool run_fused_few(const struct few_job *job, const struct tern_gemm_few *few, int64_t first)
{
    const struct tern_gemm_args *g = job->args;
    size_t row_bytes;
    if (!is_fused(g) || !tern_dtype_row_bytes(g->b_dtype, g->ldb, &row_bytes)) {
        return false;
    }
    const struct tern_stored_rows rows = {.x = job->a,
                                          .sums = job->a + g->m * g->k,
                                          .ld = g->k,
                                          .ld_sums = g->k / TERN_CPU_STORED_GROUP};
    const char *b = tern_cpu_ptr(g->b);
    for (int64_t j = 0; j < few->n; j++) {
        if (!tern_cpu_stored_few(job->device, g->b_dtype, b + (size_t)(first + j) * row_bytes, g->k,
                                 &rows, g->m, few->c + j, few->ldc)) {
            return false;
        }
    }
    return true;
}

/* Some rows of stored weights at a time, decoded behind the sums in a thread's scratch. */
static void run_stored_few(const struct few_job *job, struct tern_gemm_few few, int64_t first)
{
    const struct tern_gemm_args *g = job->args;
    float *c = few.c, *rows = c + TERN_GEMM_FEW_ROWS * FEW_COLUMNS;
    int64_t count = few.n, most = min_i64(DECODED_ROWS, decoded_rows(g->k)), skip;
    few.b = rows;
    few.b_dtype = TERN_F32;
    for (int64_t j = 0; j < count; j += most) {
        few.n = min_i64(most, count - j);
        few.ldb = tern_gemm_decode(g, first + j, (int)few.n, 0, g->k, rows, &skip);
        for (int64_t i = 0; g->compute == TERN_BF16 && i < few.n * few.ldb; i++) {
            rows[i] = tern_bf16_to_f32(tern_f32_to_bf16(rows[i]));
        }
        few.c = c + j;
        job->kernel->run(&few);
    }
}

static void few_task(void *arg, int64_t task, int thread)
{
    const struct few_job *job = arg;
    const struct tern_gemm_args *g = job->args;
    int64_t j = task * job->columns;
    struct tern_gemm_few few = {.a = job->a,
                                .lda = g->k,
                                .ldb = g->ldb,
                                .b_dtype = g->b_dtype,
                                .b_trans = g->trans_b,
                                .c = tern_cpu_scratch(job->device, thread),
                                .ldc = job->columns,
                                .m = g->m,
                                .n = min_i64(job->columns, g->n - j),
                                .k = g->k};
    if (tern_dtype_is_stored(g->b_dtype)) {
        if (!run_fused_few(job, &few, j)) {
            run_stored_few(job, few, j);
        }
    } else {
        few.b = at(tern_cpu_ptr(g->b), g->trans_b ? j * g->ldb : j, g->b_dtype);
        job->kernel->run(&few);
    }
    tern_gemm_finish_tile(g, job->kernel->finish, few.c, few.ldc, 0, j, few.m, few.n,
                          g->accumulate);
}

/* a as f32 (m, k), rounded to bf16 when that is what is computed in. */
static void unpack_rows(const struct tern_gemm_args *g, float *dst)
{
    const void *a = tern_cpu_ptr(g->a);
    bool is_bf16 = g->a_dtype == TERN_BF16;
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t p = 0; p < g->k; p++) {
            int64_t from = g->trans_a ? p * g->lda + i : i * g->lda + p;
            float x =
                is_bf16 ? tern_bf16_to_f32(((const tern_bf16 *)a)[from]) : ((const float *)a)[from];
            dst[i * g->k + p] =
                g->compute == TERN_BF16 && !is_bf16 ? tern_bf16_to_f32(tern_f32_to_bf16(x)) : x;
        }
    }
}

/* Behind the rows of a the sums of every 32 of its elements, which minima of blocks are multiplied by. */
static void sum_groups(const struct tern_gemm_args *g, float *a)
{
    int64_t groups = g->m * (g->k / TERN_CPU_STORED_GROUP);
    float *sums = a + g->m * g->k;
    for (int64_t i = 0; i < groups; i++) {
        float sum = 0;
        for (int j = 0; j < TERN_CPU_STORED_GROUP; j++) {
            sum += a[i * TERN_CPU_STORED_GROUP + j];
        }
        sums[i] = sum;
    }
}

static void run_few(struct tern_cpu_device *device,
                    const struct tern_gemm_args *g,
                    const struct tern_gemm_few_kernel *kernel)
{
    struct few_job job = {.args = g, .kernel = kernel, .a = device->shared, .device = device};
    unpack_rows(g, device->shared);
    if (tern_dtype_block_elements(g->b_dtype) > 1) {
        sum_groups(g, device->shared);
    }
    /* At least four tasks a thread, in whole vectors. */
    int64_t columns = round_up(ceil_div(g->n, (int64_t)device->threads * 4), 64);
    job.columns = min_i64(columns, FEW_COLUMNS);
    tern_cpu_parallel(device, ceil_div(g->n, job.columns), few_task, &job);
}

/* An empty sum: d = [d +] 0 with its epilogue. */
static void run_empty(struct tern_cpu_device *device, const struct tern_gemm_args *g)
{
    float *zeros = tern_cpu_scratch(device, 0);
    memset(zeros, 0, FEW_COLUMNS * sizeof *zeros);
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j += FEW_COLUMNS) {
            tern_gemm_finish_tile(g, tern_gemm_generic.finish, zeros, 0, i, j, 1,
                                  min_i64(FEW_COLUMNS, g->n - j), g->accumulate);
        }
    }
}

static const struct tern_gemm_kernel *const g_kernels[] = {
    [TERN_GEMM_GENERIC] = &tern_gemm_generic,
#if defined(__x86_64__)
    [TERN_GEMM_AVX2] = &tern_gemm_avx2,
    [TERN_GEMM_AVX512] = &tern_gemm_avx512,
    [TERN_GEMM_AVX512_DOT] = &tern_gemm_avx512_dot,
    [TERN_GEMM_AMX] = &tern_gemm_amx,
#endif
};

static const struct tern_gemm_few_kernel *few_kernel(enum tern_gemm_variant variant)
{
#if defined(__x86_64__)
    if (variant == TERN_GEMM_FEW_AVX2) {
        return &tern_gemm_few_avx2;
    }
    if (variant == TERN_GEMM_FEW_AVX512) {
        return &tern_gemm_few_avx512;
    }
#endif
    (void)variant;
    return &tern_gemm_few_generic;
}

void (*tern_gemm_finish_of(const struct tern_cpu_device *device))(const struct tern_gemm_finish *)
{
    enum tern_cpu_level level = device->level;
    return few_kernel(level >= TERN_CPU_AVX512 ? TERN_GEMM_FEW_AVX512
                      : level >= TERN_CPU_AVX2 ? TERN_GEMM_FEW_AVX2
                                               : TERN_GEMM_FEW_GENERIC)
        ->finish;
}

const char *tern_gemm_variant_name(enum tern_gemm_variant variant)
{
    static const char *const names[TERN_GEMM_VARIANT_COUNT] = {
        "generic", "avx2", "avx512", "avx512_dot", "amx", "few_generic", "few_avx2", "few_avx512",
    };
    return (unsigned)variant < TERN_GEMM_VARIANT_COUNT ? names[variant] : "unknown";
}

static enum tern_gemm_variant packed_variant(const struct tern_gemm_args *g,
                                             enum tern_cpu_level level,
                                             bool dot_is_fast)
{
    if (g->compute == TERN_BF16 && level >= TERN_CPU_AMX) {
        return TERN_GEMM_AMX;
    }
    if (g->compute == TERN_BF16 && level >= TERN_CPU_AVX512_BF16 && dot_is_fast) {
        return TERN_GEMM_AVX512_DOT;
    }
    return level >= TERN_CPU_AVX512 ? TERN_GEMM_AVX512
           : level >= TERN_CPU_AVX2 ? TERN_GEMM_AVX2
                                    : TERN_GEMM_GENERIC;
}

enum tern_gemm_variant tern_gemm_pick_variant(const struct tern_gemm_args *g,
                                              enum tern_cpu_level level,
                                              bool dot_is_fast)
{
    /* The few-rows kernels read b as stored, so they cannot round it. */
    bool rounds_b = g->compute == TERN_BF16 && g->b_dtype == TERN_F32;
    if (g->m <= tern_gemm_few_rows(g) && !rounds_b) {
        return level >= TERN_CPU_AVX512 ? TERN_GEMM_FEW_AVX512
               : level >= TERN_CPU_AVX2 ? TERN_GEMM_FEW_AVX2
                                        : TERN_GEMM_FEW_GENERIC;
    }
    return packed_variant(g, level, dot_is_fast);
}

/* The few-rows variants keep a whole as f32 in the workspace. */
static bool few_fits(const struct tern_cpu_device *device, const struct tern_gemm_args *g)
{
    bool is_stored = tern_dtype_is_stored(g->b_dtype);
    int64_t sums = is_stored ? g->m * (g->k / TERN_CPU_STORED_GROUP) : 0;
    return (size_t)(g->m * g->k + sums) * sizeof(float) <= device->shared_bytes &&
           (!is_stored || decoded_rows(g->k) > 0);
}

tern_status tern_gemm_run(struct tern_cpu_device *device,
                          const struct tern_gemm_args *args,
                          enum tern_gemm_variant variant)
{
    if (args->m == 0 || args->n == 0) {
        return TERN_OK;
    }
    if (args->k == 0) {
        run_empty(device, args);
    } else if (variant >= TERN_GEMM_FEW_GENERIC) {
        TERN_CHECK(args->m <= tern_gemm_few_rows(args) && few_fits(device, args));
        run_few(device, args, few_kernel(variant));
    } else {
        run_packed(device, args, g_kernels[variant]);
    }
    return TERN_OK;
}

/* d = d * gelu'(aux) */
static tern_status multiply_slopes(struct tern_device *device, const struct tern_gemm_args *args)
{
    bool is_flat = args->ldd == args->n;
    for (int64_t i = 0; i < (is_flat ? 1 : args->m); i++) {
        struct tern_dptr d = tern_dptr_at(args->d, i * args->ldd, args->d_dtype);
        const struct tern_act_args act = {
            .x = tern_dptr_at(args->aux, i * args->ldd, args->d_dtype),
            .dy = d,
            .dx = d,
            .n = is_flat ? args->m * args->n : args->n,
            .act = TERN_ACT_GELU_TANH,
            .dtype = args->d_dtype,
        };
        TERN_RETURN_IF_ERR(tern_cpu_act_bwd(device, &act));
    }
    return TERN_OK;
}

tern_status tern_cpu_gemm(struct tern_device *base, const struct tern_gemm_args *args)
{
    struct tern_cpu_device *device = tern_cpu_device_of(base);
    if (args->b_packed != TERN_PACKED_NONE) {
        return tern_cpu_gemm_packed(device, args);
    }
    if (args->epilogue == TERN_EPILOGUE_DGELU) { /* a pass of its own: backward only */
        struct tern_gemm_args product = *args;
        product.epilogue = TERN_EPILOGUE_NONE;
        TERN_RETURN_IF_ERR(tern_cpu_gemm(base, &product));
        return multiply_slopes(base, args);
    }
    bool dot_is_fast = tern_cpu_bf16_dot_is_fast();
    enum tern_gemm_variant variant = tern_gemm_pick_variant(args, device->level, dot_is_fast);
    if (variant >= TERN_GEMM_FEW_GENERIC && !few_fits(device, args)) {
        variant =
            packed_variant(args, device->level, dot_is_fast); /* beyond the limits prepared for */
    }
    return tern_gemm_run(device, args, variant);
}

void tern_cpu_gemm_needs(const struct tern_op_limits *limits,
                         int threads,
                         size_t *shared,
                         size_t *scratch)
{
    /* Packed, a factor has at most long * wide elements; padding of a small one stays below
     * PACK_BYTES_MIN. */
    int64_t longest = max_i64(limits->rows, max_i64(limits->width, limits->vocab));
    int64_t wide = max_i64(limits->rows, limits->width);
    int64_t elements = min_i64(longest, PACK_BYTES_MAX) * min_i64(wide, PACK_BYTES_MAX);
    int64_t pack = min_i64(PACK_BYTES_MAX, max_i64(PACK_BYTES_MIN, round_up(elements * 5, 64)));
    int64_t sums = min_i64(SUMS_BYTES_MAX, max_i64(SUMS_BYTES_MIN, pack / 3));
    int64_t few = TERN_GEMM_FEW_ROWS * (longest * 4 + longest / 8 + 64);
    (void)threads;
    *shared = (size_t)max_i64(2 * pack + sums, few);
    *scratch = TILE_BYTES;
}
