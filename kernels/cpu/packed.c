/* packed.c - products of packed weights: rows of the left factor packed once, strips spread over the pool.
 *
 * Where m is small a task is some strips with all rows; else a tile's strips with as many rows as lie in L2 when
 * packed. Neither shows in a result: every output is one chain over k (packed.h). */
#include "kernels/cpu/packed.h"

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/ops_level.h"

enum {
    GROUP = TERN_PACKED_GROUP,
    ROWS_BYTES = 320 << 10, /* of packed rows that a task of a product of many rows goes through */
    TASKS_A_THREAD = 8,
    STRIPS_MAX = 32, /* of a task of a product of few rows */
    SERIAL_ELEMENTS =
        6144, /* of the left factor, up to which waking others costs more than packing it alone */
    ROWS_MAX = 1024, /* of a task */
    SUMS_BYTES = ROWS_MAX * TERN_TILE_STRIPS_MAX * TERN_STRIP * 4,
};

struct job {
    const struct tern_gemm_args *args;
    const struct tern_packed_level *level;
    struct tern_cpu_device *device;
    void (*finish)(const struct tern_gemm_finish *);
    char *rows; /* packed, in groups of mr */
    int64_t group_bytes;
    int mr;
    int64_t first, m;          /* the rows of a that are packed */
    int64_t task_rows, strips; /* of a task */
    bool is_direct;            /* sums go straight into d */
};

const struct tern_packed_level *tern_packed_level_of(const struct tern_cpu_device *device)
{
#if defined(__x86_64__)
    if (device->level >= TERN_CPU_AVX512 && tern_cpu_has_vnni()) {
        return &tern_packed_vnni;
    }
    if (device->level >= TERN_CPU_AVX2) {
        return &tern_packed_avx2;
    }
#endif
    (void)device;
    return &tern_packed_generic;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Bytes of one packed row of the left factor. */
static int64_t row_bytes(enum tern_packed packed, int64_t k)
{
    return tern_packed_is_codes(packed) ? k / GROUP * TERN_ROW_GROUP_BYTES : k * 4;
}

static void row_task(void *arg, int64_t task, int thread)
{
    const struct job *job = arg;
    const struct tern_gemm_args *g = job->args;
    (void)thread;
    struct tern_packed_row row = {.a_dtype = g->a_dtype,
                                  .packed = g->b_packed,
                                  .is_rounded = g->compute == TERN_BF16,
                                  .k = g->k,
                                  .mr = job->mr,
                                  .lane = (int)(task % job->mr),
                                  .group = job->rows + task / job->mr * job->group_bytes};
    if (task < job->m) {
        row.a = tern_cpu_ptr(tern_dptr_at(g->a, (job->first + task) * g->lda, g->a_dtype));
    }
    job->level->pack_row(&row);
}

static void pack_rows(struct job *job)
{
    int64_t rows = ceil_div(job->m, job->mr) * job->mr;
    if (job->m * job->args->k > SERIAL_ELEMENTS) {
        tern_cpu_parallel(job->device, rows, row_task, job);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        row_task(job, i, 0);
    }
}

static void strip_task(void *arg, int64_t task, int thread)
{
    const struct job *job = arg;
    const struct tern_gemm_args *g = job->args;
    int64_t columns = job->strips * TERN_STRIP, tasks = ceil_div(g->n, columns);
    int64_t i = task / tasks * job->task_rows, j = task % tasks * columns;
    bool is_many = job->m > TERN_FEW_ROWS;
    char *scratch = tern_cpu_scratch(job->device, thread);
    struct tern_packed_block block = {
        .packed = g->b_packed,
        .b =
            (const char *)tern_cpu_ptr(g->b) + j / TERN_STRIP * tern_strip_bytes(g->b_packed, g->k),
        .k = g->k,
        .m = min_i64(job->task_rows, job->m - i),
        .n = min_i64(columns, g->n - j),
        .mr = job->mr,
        .rows = job->rows + i / job->mr * job->group_bytes,
        .c = (float *)(void *)scratch,
        .ldc = columns,
        .expanded = is_many ? scratch + SUMS_BYTES : NULL,
    };
    if (job->is_direct) {
        block.c = (float *)tern_cpu_ptr(g->d) + (job->first + i) * g->ldd + j;
        block.ldc = g->ldd;
    }
    job->level->multiply(&block);
    if (!job->is_direct) {
        tern_gemm_finish_tile(g, job->finish, block.c, block.ldc, job->first + i, j, block.m,
                              block.n, false);
    }
}

/* Tasks of a tile's strips, with an equal share of the rows, whole groups. */
static void split_many(struct job *job)
{
    int64_t bytes = row_bytes(job->args->b_packed, job->args->k);
    int64_t most = min_i64(ROWS_MAX, ROWS_BYTES / bytes) / job->mr * job->mr;
    most = most > job->mr ? most : job->mr;
    int64_t parts = ceil_div(job->m, most);
    job->task_rows = ceil_div(ceil_div(job->m, parts), job->mr) * job->mr;
    job->strips = job->level->strips;
}

static void split_few(struct job *job)
{
    int64_t strips = ceil_div(job->args->n, TERN_STRIP);
    int64_t tile = job->level->strips;
    int64_t wanted = strips / ((int64_t)job->device->threads * TASKS_A_THREAD) / tile * tile;
    job->strips = wanted < tile ? tile : min_i64(wanted, STRIPS_MAX);
    job->task_rows = job->m;
}

tern_status tern_cpu_gemm_packed(struct tern_cpu_device *device, const struct tern_gemm_args *args)
{
    struct job job = {.args = args,
                      .level = tern_packed_level_of(device),
                      .device = device,
                      .finish = tern_gemm_finish_of(device),
                      .rows = device->shared,
                      .is_direct =
                          args->d_dtype == TERN_F32 && args->epilogue == TERN_EPILOGUE_NONE};
    int64_t bytes = row_bytes(args->b_packed, args->k);
    int64_t room = (int64_t)device->shared_bytes / bytes / 48 * 48; /* whole groups of any size */
    size_t expanded =
        (size_t)(ceil_div(args->k, GROUP) * TERN_EXPANDED_BYTES * TERN_TILE_STRIPS_MAX);
    TERN_RETURN_IF_ERR(tern_cpu_need(device, "gemm", (size_t)(48 * bytes), SUMS_BYTES + expanded));
    for (job.first = 0; job.first < args->m; job.first += job.m) {
        job.m = min_i64(room, args->m - job.first);
        job.mr = job.level->group_rows(args->b_packed, job.m);
        job.group_bytes = job.mr * bytes;
        if (job.m > TERN_FEW_ROWS) {
            split_many(&job);
        } else {
            split_few(&job);
        }
        pack_rows(&job);
        int64_t tasks = ceil_div(args->n, job.strips * TERN_STRIP) * ceil_div(job.m, job.task_rows);
        tern_cpu_parallel(device, tasks, strip_task, &job);
    }
    return TERN_OK;
}

void tern_cpu_packed_needs(const struct tern_op_limits *limits, size_t *shared, size_t *scratch)
{
    int64_t groups = ceil_div(limits->width, GROUP);
    *shared = (size_t)(48 * limits->width * 4);
    *scratch = SUMS_BYTES + (size_t)(groups * TERN_EXPANDED_BYTES * TERN_TILE_STRIPS_MAX);
}
