/* blas.c - the matrix product: cut into pieces, each one cuBLASLt call with a plan of its own.
 *
 * Nearly every call is one piece. Cuts are made along m and n only, so they do not show in a result. Nothing is
 * allocated by a call, and the library is asked for an algorithm once a shape. */
#include "kernels/cuda/blas_lt.h"
#include "runtime/base/mem.h"

#include <stdio.h>

/* All that are open, one a GPU. */
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tern_cuda_blas *g_first;

/* ---- open and close ---- */

static tern_status read_machine(int ordinal, struct tern_blas_machine *machine)
{
    struct cudaDeviceProp properties;
    int driver = 0;
    TERN_RETURN_IF_ERR(
        tern_cuda_status(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties"));
    TERN_RETURN_IF_ERR(tern_cuda_status(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
    snprintf(machine->gpu, sizeof machine->gpu, "%s", properties.name);
    machine->capability = 10 * properties.major + properties.minor;
    machine->multiprocessors = properties.multiProcessorCount;
    machine->driver = driver;
    return TERN_OK;
}

static void destroy(struct tern_cuda_blas *blas)
{
    tern_blas_library_close(blas->handle);
    tern_blas_table_destroy(blas->table);
    pthread_mutex_destroy(&blas->lock);
    tern_free(blas);
}

static tern_status create(int ordinal, struct tern_cuda_blas **out)
{
    struct tern_cuda_blas *blas = tern_alloc_zero("matrix products", 1, sizeof *blas);
    if (blas == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cuda: no memory for matrix products");
    }
    tern_status status = TERN_OK;
    pthread_mutex_init(&blas->lock, NULL);
    blas->ordinal = ordinal;
    blas->table = tern_blas_table_create();
    if (blas->table == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cuda: no memory for the plans of matrix products");
        goto fail;
    }
    TERN_GOTO_IF_ERR(status, read_machine(ordinal, &blas->machine), fail);
    TERN_GOTO_IF_ERR(status, tern_blas_library_open(&blas->handle, &blas->machine.library), fail);
    blas->has_path = tern_blas_cache_path(&blas->machine, blas->path, &blas->is_path_given);
    *out = blas;
    return TERN_OK;
fail:
    destroy(blas);
    return status;
}

tern_status tern_cuda_blas_open(struct tern_cuda_device *device, struct tern_cuda_blas **out)
{
    tern_status status = TERN_OK;
    *out = NULL;
    pthread_mutex_lock(&g_lock);
    struct tern_cuda_blas *blas = g_first;
    while (blas != NULL && blas->ordinal != device->ordinal) {
        blas = blas->next;
    }
    if (blas == NULL) {
        status = create(device->ordinal, &blas);
        if (status == TERN_OK) {
            blas->next = g_first;
            g_first = blas;
        }
    }
    if (status == TERN_OK) {
        blas->users++;
        *out = blas;
    }
    pthread_mutex_unlock(&g_lock);
    return status;
}

void tern_cuda_blas_close(struct tern_cuda_blas *blas)
{
    if (blas == NULL) {
        return;
    }
    pthread_mutex_lock(&g_lock);
    if (--blas->users == 0) {
        struct tern_cuda_blas **link = &g_first;
        while (*link != blas) {
            link = &(*link)->next;
        }
        *link = blas->next;
        destroy(blas);
    }
    pthread_mutex_unlock(&g_lock);
}

size_t tern_cuda_blas_workspace(const struct tern_cuda_device *device,
                                const struct tern_op_limits *limits)
{
    return tern_blas_library_bytes(device->capability) + tern_blas_scratch_bytes(limits);
}

/* ---- a call ---- */

static void *at(struct tern_dptr p)
{
    return (void *)(uintptr_t)p.addr; /* NOLINT(performance-no-int-to-ptr) */
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A call being worked off. */
struct job {
    struct tern_cuda_device *device;
    const struct tern_gemm_args *args;
    struct tern_blas_cut cut;
    struct tern_dptr a_copy, b_copy, sums; /* in the scratch */
    int64_t m0, n0, m, n;                  /* the present piece */
};

static tern_status begin(struct job *job,
                         struct tern_cuda_device *device,
                         const struct tern_gemm_args *args,
                         bool must_finish)
{
    size_t taken = tern_blas_library_bytes(device->capability);
    size_t scratch = device->workspace_bytes > taken ? device->workspace_bytes - taken : 0;
    *job = (struct job){.device = device, .args = args};
    if (device->blas == NULL || device->workspace_bytes < taken ||
        !tern_blas_cut(args, must_finish, scratch, &job->cut)) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "gemm: m=%lld n=%lld k=%lld does not fit into the device's workspace of "
                         "%zu bytes: call tern_device_prepare with this shape",
                         (long long)args->m, (long long)args->n, (long long)args->k,
                         device->workspace_bytes);
    }
    job->a_copy.addr = (uint64_t)(uintptr_t)device->workspace + taken;
    job->b_copy.addr = job->a_copy.addr + job->cut.a_bytes;
    job->sums.addr = job->b_copy.addr + job->cut.b_bytes;
    return TERN_OK;
}

/* The part of a factor that the present piece needs, as the library takes it: where it is, or converted. rows and
 * columns are those of what is stored. */
static tern_status take_factor(const struct job *job,
                               struct tern_dptr copy,
                               int64_t rows,
                               int64_t columns,
                               bool has_copy,
                               bool is_fresh,
                               struct tern_dptr *p,
                               int64_t *stride,
                               enum tern_dtype *dtype)
{
    struct tern_blas_finish_args convert = {
        .in = at(*p),
        .d = at(copy),
        .rows = rows,
        .columns = columns,
        .ld_in = *stride,
        .ldd = tern_blas_scratch_stride(columns),
        .in_dtype = *dtype,
        .d_dtype = job->cut.factor,
    };
    if (!has_copy) {
        return TERN_OK;
    }
    *p = copy;
    *stride = convert.ldd;
    *dtype = job->cut.factor;
    return is_fresh ? tern_blas_finish(job->device, &convert) : TERN_OK;
}

/* The present piece as a product of its own. */
static tern_status cut_piece(const struct job *job, struct tern_gemm_args *piece)
{
    const struct tern_gemm_args *args = job->args;
    *piece = *args;
    piece->m = job->m;
    piece->n = job->n;
    piece->a = tern_dptr_at(args->a, args->trans_a ? job->m0 : job->m0 * args->lda, args->a_dtype);
    piece->b = tern_dptr_at(args->b, args->trans_b ? job->n0 * args->ldb : job->n0, args->b_dtype);
    int64_t corner = job->m0 * args->ldd + job->n0;
    piece->d = tern_dptr_at(args->d, corner, args->d_dtype);
    if (tern_epilogue_has_bias(args->epilogue)) {
        piece->bias = tern_dptr_at(args->bias, job->n0, args->bias_dtype);
    }
    if (tern_epilogue_has_aux(args->epilogue)) {
        piece->aux = tern_dptr_at(args->aux, corner, args->d_dtype);
    }
    /* columns of pieces outside, rows inside: a copy of b serves all rows, one of a that is whole serves all columns */
    TERN_RETURN_IF_ERR(take_factor(job, job->a_copy, args->trans_a ? args->k : job->m,
                                   args->trans_a ? job->m : args->k, job->cut.copy_a,
                                   job->n0 == 0 || job->cut.m < args->m, &piece->a, &piece->lda,
                                   &piece->a_dtype));
    return take_factor(job, job->b_copy, args->trans_b ? job->n : args->k,
                       args->trans_b ? args->k : job->n, job->cut.copy_b, job->m0 == 0, &piece->b,
                       &piece->ldb, &piece->b_dtype);
}

/* *must_finish_out: the library does not have it as asked, so that f32 sums are needed. */
static tern_status run_piece(const struct job *job, bool *must_finish_out)
{
    struct tern_gemm_args piece;
    struct tern_blas_plan plan;
    TERN_RETURN_IF_ERR(cut_piece(job, &piece));
    struct tern_blas_key key = tern_blas_key_of(&piece, job->cut.has_sums);
    struct tern_blas_operands operands = {
        .a = at(piece.a),
        .b = at(piece.b),
        .d = at(piece.d),
        .bias = at(piece.bias),
        .aux = at(piece.aux),
        .sums = at(job->sums),
    };
    TERN_RETURN_IF_ERR(tern_blas_plan_find(job->device, &key, &operands, &plan));
    if (plan.route == TERN_BLAS_FINISH && key.d_dtype == TERN_BF16 && !key.is_finish) {
        *must_finish_out = true;
        return TERN_OK;
    }
    return tern_blas_run(job->device, &plan, &operands);
}

static tern_status run(struct tern_cuda_device *device,
                       const struct tern_gemm_args *args,
                       bool *must_finish)
{
    struct job job;
    bool is_refused = false;
    TERN_RETURN_IF_ERR(begin(&job, device, args, *must_finish));
    for (job.n0 = 0; job.n0 < args->n; job.n0 += job.cut.n) {
        job.n = min_i64(job.cut.n, args->n - job.n0);
        for (job.m0 = 0; job.m0 < args->m; job.m0 += job.cut.m) {
            job.m = min_i64(job.cut.m, args->m - job.m0);
            TERN_RETURN_IF_ERR(run_piece(&job, &is_refused));
            if (is_refused) {
                *must_finish = true;
                return TERN_OK;
            }
        }
    }
    *must_finish = false;
    return TERN_OK;
}

tern_status tern_cuda_gemm(struct tern_device *base, const struct tern_gemm_args *args)
{
    struct tern_cuda_device *device = tern_cuda_device_of(base);
    bool must_finish = false;
    TERN_RETURN_IF_ERR(tern_cuda_status(cudaSetDevice(device->ordinal), "cudaSetDevice"));
    TERN_RETURN_IF_ERR(run(device, args, &must_finish));
    /* from the start: what the pieces before it wrote is written again (d in bf16 is never added to) */
    return must_finish ? run(device, args, &must_finish) : TERN_OK;
}

/* ---- with the gradient of a bias ---- */

/* The sums are made in the product's epilogue (BGRADA, BGRADB: it stores them, whatever beta does to d), beside where they
 * go when they are to be added or their place is not aligned. Where the library has no such product, or the call would
 * have to be cut or converted, they are made apart. The library's promise of equal bits for equal calls holds for the
 * epilogue as well; the split sums that would break it are masked out for both (blas_lt.c). */
static tern_status run_with_sums(struct tern_cuda_device *device,
                                 const struct tern_gemm_bias_bwd_args *args,
                                 bool *is_apart_out)
{
    struct job job;
    struct tern_blas_plan plan;
    const struct tern_gemm_args *gemm = &args->gemm;
    int64_t n = args->is_of_a ? gemm->m : gemm->n;
    TERN_RETURN_IF_ERR(begin(&job, device, gemm, false));
    size_t used = (size_t)(job.a_copy.addr - (uint64_t)(uintptr_t)device->workspace);
    *is_apart_out = job.cut.copy_a || job.cut.copy_b || gemm->d_dtype != TERN_F32 ||
                    job.cut.m < gemm->m || job.cut.n < gemm->n ||
                    device->workspace_bytes - used < (size_t)n * sizeof(float);
    if (*is_apart_out) {
        return TERN_OK;
    }
    bool is_beside = gemm->accumulate || args->dbias.addr % TERN_BLAS_ALIGN != 0;
    struct tern_dptr sums = is_beside ? job.a_copy : args->dbias; /* no factor is copied */
    struct tern_blas_key key = tern_blas_key_of(gemm, false);
    key.epilogue = args->is_of_a ? TERN_BLAS_SUMS_OF_A : TERN_BLAS_SUMS_OF_B;
    key.bias_dtype = TERN_F32;
    struct tern_blas_operands operands = {
        .a = at(gemm->a), .b = at(gemm->b), .d = at(gemm->d), .bias = at(sums)};
    TERN_RETURN_IF_ERR(tern_blas_plan_find(device, &key, &operands, &plan));
    *is_apart_out = plan.route == TERN_BLAS_APART;
    TERN_RETURN_IF_ERR(*is_apart_out ? TERN_OK : tern_blas_run(device, &plan, &operands));
    return is_beside && !*is_apart_out
               ? tern_blas_add_bias(device, at(args->dbias), at(sums), n, gemm->accumulate)
               : TERN_OK;
}

tern_status tern_cuda_gemm_bias_bwd(struct tern_device *base,
                                    const struct tern_gemm_bias_bwd_args *args)
{
    struct tern_cuda_device *device = tern_cuda_device_of(base);
    struct tern_bias_bwd_args half = tern_gemm_bias_bwd_half(args);
    bool is_apart;
    TERN_RETURN_IF_ERR(tern_cuda_status(cudaSetDevice(device->ordinal), "cudaSetDevice"));
    TERN_RETURN_IF_ERR(run_with_sums(device, args, &is_apart));
    if (!is_apart) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_cuda_gemm(base, &args->gemm));
    return tern_cuda_bias_bwd(base, &half);
}
