/* cuda_gemm_test.c - the CUDA matrix product on the simulated CUDA: any dtypes, strides and addresses, products that are
 * cut, plans and their file, graphs, refusals, and the same bits whatever the schedule. */
#include "kernels/open.h"
#include "kernels/tolerance.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

enum {
    OPERANDS = 5, /* a, b, bias, d, aux */
    A = 0,
    B,
    BIAS,
    D,
    AUX,
    GUARD = 16,   /* elements behind an operand that nobody may touch */
    LONGEST = 40, /* side that the device is prepared for: longer m and n are cut */
    SHAPES = 250,
};

/* One buffer on two devices: `shift` elements, the operand, GUARD elements. */
struct block {
    enum tern_dtype dtype;
    int64_t shift, count; /* count: of all */
    double *value;        /* as stored */
};

struct product {
    struct tern_gemm_args args; /* without addresses */
    struct block blocks[OPERANDS];
};

static uint64_t g_seed = 1;
static uint64_t g_index;

static int64_t below(int64_t n)
{
    uint64_t stream = tern_random_stream_id(TERN_STREAM_TEST, 31);
    return (int64_t)(tern_random_u64(g_seed, stream, g_index++) % (uint64_t)n);
}

static double stored(enum tern_dtype dtype, double x)
{
    return dtype == TERN_BF16 ? (double)tern_bf16_to_f32(tern_f32_to_bf16((float)x))
                              : (double)(float)x;
}

static void make_block(struct block *block, enum tern_dtype dtype, int64_t shift, int64_t size)
{
    uint64_t stream = tern_random_stream_id(TERN_STREAM_TEST, 32);
    *block = (struct block){.dtype = dtype, .shift = shift, .count = shift + size + GUARD};
    block->value = tern_alloc("test", (size_t)block->count * sizeof *block->value);
    assert_non_null(block->value);
    for (int64_t i = 0; i < block->count; i++) {
        block->value[i] = stored(dtype, tern_random_normal(g_seed, stream, g_index++));
    }
}

static void make_blocks(struct product *p, bool is_shifted)
{
    const struct tern_gemm_args *args = &p->args;
    int64_t shifts[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        shifts[i] = is_shifted ? below(9) : 0;
    }
    make_block(&p->blocks[A], args->a_dtype, shifts[A],
               (args->trans_a ? args->k : args->m) * args->lda);
    make_block(&p->blocks[B], args->b_dtype, shifts[B],
               (args->trans_b ? args->n : args->k) * args->ldb);
    make_block(&p->blocks[BIAS], args->bias_dtype, shifts[BIAS], args->n);
    make_block(&p->blocks[D], args->d_dtype, shifts[D], args->m * args->ldd);
    make_block(&p->blocks[AUX], args->d_dtype, shifts[AUX], args->m * args->ldd);
}

static void free_product(struct product *p)
{
    for (int i = 0; i < OPERANDS; i++) {
        tern_free(p->blocks[i].value);
    }
}

static void random_product(struct product *p)
{
    int64_t k = 1 + below(LONGEST);
    int64_t longest = below(3) == 0 ? 4 * LONGEST : LONGEST;
    int64_t pad = below(2) == 0 ? 0 : below(17);
    *p = (struct product){
        .args = {.m = 1 + below(longest),
                 .n = 1 + below(longest),
                 .k = k,
                 .trans_a = below(2) != 0,
                 .trans_b = below(2) != 0,
                 .epilogue = (enum tern_epilogue)below(4),
                 .a_dtype = (enum tern_dtype)below(2),
                 .b_dtype = (enum tern_dtype)below(2),
                 .d_dtype = (enum tern_dtype)below(2),
                 .bias_dtype = (enum tern_dtype)below(2),
                 .compute = (enum tern_dtype)below(2)},
    };
    struct tern_gemm_args *args = &p->args;
    if (below(2) == 0) { /* as models have them: whole vectors */
        args->n = (args->n + 7) / 8 * 8;
        args->k = (args->k + 7) / 8 * 8;
        pad = 0;
    }
    args->accumulate =
        args->epilogue == TERN_EPILOGUE_NONE && args->d_dtype == TERN_F32 && below(2) == 0;
    args->lda = (args->trans_a ? args->m : args->k) + pad;
    args->ldb = (args->trans_b ? args->k : args->n) + 2 * pad;
    args->ldd = args->n + pad;
    make_blocks(p, below(2) == 0);
}

/* ---- running ---- */

static struct tern_device *g_cuda, *g_ref;

static void upload(struct tern_device *device, const struct block *block, struct tern_dptr *out)
{
    size_t bytes = (size_t)block->count * tern_dtype_bytes(block->dtype);
    char *host = tern_alloc("test", bytes);
    assert_non_null(host);
    for (int64_t i = 0; i < block->count; i++) {
        float x = (float)block->value[i];
        if (block->dtype == TERN_BF16) {
            ((tern_bf16 *)(void *)host)[i] = tern_f32_to_bf16(x);
        } else {
            ((float *)(void *)host)[i] = x;
        }
    }
    const struct tern_device_table *table = device->ops->device;
    assert_int_equal(table->alloc(device, "test", bytes, out), TERN_OK);
    assert_int_equal(table->upload(device, *out, host, bytes), TERN_OK);
    tern_free(host);
}

static double *download(struct tern_device *device, const struct block *block, struct tern_dptr p)
{
    size_t bytes = (size_t)block->count * tern_dtype_bytes(block->dtype);
    char *host = tern_alloc("test", bytes);
    double *out = tern_alloc("test", (size_t)block->count * sizeof *out);
    assert_true(host != NULL && out != NULL);
    assert_int_equal(device->ops->device->download(device, host, p, bytes), TERN_OK);
    for (int64_t i = 0; i < block->count; i++) {
        out[i] = block->dtype == TERN_BF16
                     ? (double)tern_bf16_to_f32(((const tern_bf16 *)(const void *)host)[i])
                     : (double)((const float *)(const void *)host)[i];
    }
    tern_free(host);
    return out;
}

/* A product on a device: operands there, and what came of it. */
struct run {
    struct tern_device *device;
    struct tern_gemm_args args;
    struct tern_dptr base[OPERANDS];
};

static void place(struct run *run, struct tern_device *device, const struct product *p)
{
    *run = (struct run){.device = device, .args = p->args};
    struct tern_dptr *const slots[OPERANDS] = {&run->args.a, &run->args.b, &run->args.bias,
                                               &run->args.d, &run->args.aux};
    for (int i = 0; i < OPERANDS; i++) {
        upload(device, &p->blocks[i], &run->base[i]);
        *slots[i] = tern_dptr_at(run->base[i], p->blocks[i].shift, p->blocks[i].dtype);
    }
}

static void unplace(struct run *run)
{
    for (int i = 0; i < OPERANDS; i++) {
        run->device->ops->device->free(run->device, run->base[i]);
    }
}

static void require(tern_status status)
{
    if (status != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
}

static double magnitude(const struct product *p, int64_t i, int64_t j)
{
    const struct tern_gemm_args *args = &p->args;
    const double *a = p->blocks[A].value + p->blocks[A].shift;
    const double *b = p->blocks[B].value + p->blocks[B].shift;
    double sum = tern_epilogue_has_bias(args->epilogue)
                     ? fabs(p->blocks[BIAS].value[p->blocks[BIAS].shift + j])
                     : 0;
    sum += args->accumulate ? fabs(p->blocks[D].value[p->blocks[D].shift + i * args->ldd + j]) : 0;
    for (int64_t q = 0; q < args->k; q++) {
        double x = args->trans_a ? a[q * args->lda + i] : a[i * args->lda + q];
        double y = args->trans_b ? b[j * args->ldb + q] : b[q * args->ldb + j];
        sum += fabs(stored(args->compute, x) * stored(args->compute, y));
    }
    return sum;
}

static void describe(const struct product *p, char out[256])
{
    const struct tern_gemm_args *g = &p->args;
    snprintf(out, 256,
             "seed %llu: m=%lld n=%lld k=%lld ld %lld %lld %lld trans %d %d acc %d epilogue %d "
             "dtypes a %s b %s d %s bias %s compute %s, shifts %lld %lld %lld %lld %lld",
             (unsigned long long)g_seed, (long long)g->m, (long long)g->n, (long long)g->k,
             (long long)g->lda, (long long)g->ldb, (long long)g->ldd, g->trans_a, g->trans_b,
             g->accumulate, (int)g->epilogue, tern_dtype_name(g->a_dtype),
             tern_dtype_name(g->b_dtype), tern_dtype_name(g->d_dtype),
             tern_dtype_name(g->bias_dtype), tern_dtype_name(g->compute),
             (long long)p->blocks[A].shift, (long long)p->blocks[B].shift,
             (long long)p->blocks[BIAS].shift, (long long)p->blocks[D].shift,
             (long long)p->blocks[AUX].shift);
}

/* Elements of d or aux against the reference; all others unchanged. */
static void compare(const struct product *p,
                    const struct run *want,
                    const struct run *got,
                    int which)
{
    const struct tern_gemm_args *args = &p->args;
    const struct block *block = &p->blocks[which];
    double *wanted = download(want->device, block, want->base[which]);
    double *found = download(got->device, block, got->base[which]);
    double *aux = download(want->device, &p->blocks[AUX], want->base[AUX]);
    bool has_gelu = args->epilogue == TERN_EPILOGUE_BIAS_GELU;
    char name[256];
    describe(p, name);
    for (int64_t i = 0; i < block->count; i++) {
        int64_t at = i - block->shift;
        bool is_output = at >= 0 && at < args->m * args->ldd && at % args->ldd < args->n &&
                         (which == D || has_gelu);
        double bound = 0;
        if (is_output) {
            double sum = magnitude(p, at / args->ldd, at % args->ldd);
            struct tern_tolerance_element element = {.want = wanted[i], .magnitude = sum};
            if (has_gelu && which == D) {
                element.rounded = 1.13 * fabs(aux[p->blocks[AUX].shift + at]);
                element.magnitude = 1.13 * sum + element.rounded;
            } else if (args->epilogue == TERN_EPILOGUE_DGELU) { /* normal aux: slopes below 1.13 */
                element.rounded = 1.13 * sum;
                element.magnitude = 8 * sum;
            }
            bound = tern_tolerance_bound(TERN_OP_GEMM, args->d_dtype, args->k, &element);
        }
        if (!(fabs(found[i] - wanted[i]) <= bound)) {
            fail_msg("%s: %s[%lld][%lld] is %.9g, expected %.9g +- %.3g", name,
                     which == D ? "d" : "aux", (long long)(at / args->ldd),
                     (long long)(at % args->ldd), found[i], wanted[i], bound);
        }
    }
    tern_free(wanted);
    tern_free(found);
    tern_free(aux);
}

static void check_product(const struct product *p)
{
    struct run want, got;
    place(&want, g_ref, p);
    place(&got, g_cuda, p);
    require(tern_op_gemm(g_ref, &want.args));
    require(tern_op_gemm(g_cuda, &got.args));
    compare(p, &want, &got, D);
    compare(p, &want, &got, AUX);
    unplace(&want);
    unplace(&got);
}

static void open_cuda(bool may_tune)
{
    const struct tern_op_limits limits = {.rows = LONGEST, .width = LONGEST, .may_tune = may_tune};
    size_t bytes;
    require(tern_device_open("cuda", 1, &g_cuda));
    require(tern_device_prepare(g_cuda, &limits, &bytes));
}

static void close_cuda(void)
{
    tern_device_close(g_cuda);
    g_cuda = NULL;
}

/* ---- tests ---- */

static void test_any_product(void **state)
{
    (void)state;
    open_cuda(false);
    for (g_seed = 1; g_seed <= SHAPES; g_seed++) {
        struct product p;
        g_index = 0;
        random_product(&p);
        check_product(&p);
        free_product(&p);
    }
    close_cuda();
}

static void bf16_product(struct product *p, int64_t m, int64_t n, int64_t k);

/* All that the library's GELU needs, and then one operand after another less aligned than it wants. */
static void test_shifted_operand(void **state)
{
    (void)state;
    static const int64_t shifts[] = {1, 2, 4, 8};
    open_cuda(false);
    g_seed = 11;
    for (int i = -1; i < OPERANDS * (int)(sizeof shifts / sizeof shifts[0]); i++) {
        struct product p;
        bf16_product(&p, 16, 32, 40);
        if (i >= 0) {
            struct block *block = &p.blocks[i % OPERANDS];
            int64_t size = block->count - GUARD;
            tern_free(block->value);
            make_block(block, TERN_BF16, shifts[i / OPERANDS], size);
        }
        check_product(&p);
        free_product(&p);
    }
    close_cuda();
}

/* Rows further apart than they are long, by whole vectors: the library's GELU takes d and aux so. */
static void test_padded_rows(void **state)
{
    (void)state;
    open_cuda(false);
    g_seed = 12;
    for (int epilogue = TERN_EPILOGUE_BIAS_GELU; epilogue <= TERN_EPILOGUE_DGELU; epilogue++) {
        struct product p;
        bf16_product(&p, 16, 32, 40);
        free_product(&p);
        p.args.epilogue = (enum tern_epilogue)epilogue;
        p.args.ldd = 40;
        make_blocks(&p, false);
        check_product(&p);
        free_product(&p);
    }
    close_cuda();
}

/* Both factors are converted, sums are f32 in the scratch: cut along m and along n. */
static void test_cut_both_ways(void **state)
{
    (void)state;
    struct product p = {.args = {.m = 150,
                                 .n = 150,
                                 .k = 40,
                                 .lda = 40,
                                 .ldb = 150,
                                 .ldd = 150,
                                 .epilogue = TERN_EPILOGUE_BIAS,
                                 .a_dtype = TERN_F32,
                                 .b_dtype = TERN_F32,
                                 .d_dtype = TERN_BF16,
                                 .bias_dtype = TERN_F32,
                                 .compute = TERN_BF16}};
    open_cuda(false);
    g_seed = 13;
    g_index = 0;
    make_blocks(&p, false);
    check_product(&p);
    free_product(&p);
    close_cuda();
}

/* After the first call of a shape nothing is allocated, neither here nor in the plugin. */
static void test_no_allocation(void **state)
{
    (void)state;
    struct product p;
    struct run run;
    g_seed = 7;
    g_index = 0;
    open_cuda(false);
    random_product(&p);
    place(&run, g_cuda, &p);
    require(tern_op_gemm(g_cuda, &run.args));
    int64_t blocks = tern_mem_stats().total_blocks;
    for (int i = 0; i < 3; i++) {
        require(tern_op_gemm(g_cuda, &run.args));
    }
    assert_int_equal(tern_mem_stats().total_blocks, blocks);
    require(g_cuda->ops->device->sync(g_cuda));
    unplace(&run);
    free_product(&p);
    close_cuda();
}

static void bf16_product(struct product *p, int64_t m, int64_t n, int64_t k)
{
    *p = (struct product){
        .args = {.m = m,
                 .n = n,
                 .k = k,
                 .lda = k,
                 .ldb = n,
                 .ldd = n,
                 .epilogue = TERN_EPILOGUE_BIAS_GELU,
                 .a_dtype = TERN_BF16,
                 .b_dtype = TERN_BF16,
                 .d_dtype = TERN_BF16,
                 .bias_dtype = TERN_BF16,
                 .compute = TERN_BF16},
    };
    g_index = 0;
    make_blocks(p, false);
}

static void test_refusals(void **state)
{
    (void)state;
    struct product p;
    struct run run;
    void *graph = NULL;
    require(tern_device_open("cuda", 1, &g_cuda));
    bf16_product(&p, 16, 24, 32);
    place(&run, g_cuda, &p);
    assert_int_equal(tern_op_gemm(g_cuda, &run.args), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "call tern_device_prepare with this shape"));
    unplace(&run);
    close_cuda();

    open_cuda(false);
    const struct tern_device_table *table = g_cuda->ops->device;
    place(&run, g_cuda, &p);
    require(table->record_begin(g_cuda));
    assert_int_equal(tern_op_gemm(g_cuda, &run.args), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "m=16 n=24 k=32 is met for the first time while a graph "
                                          "is recorded"));
    require(table->record_end(g_cuda, &graph));
    table->forget(g_cuda, graph);
    unplace(&run);
    free_product(&p);

    p = (struct product){
        .args = {.m = 1, .n = 1, .k = 5000, .lda = 5000, .ldb = 1, .ldd = 1, .compute = TERN_BF16}};
    make_blocks(&p, false);
    place(&run, g_cuda, &p);
    assert_int_equal(tern_op_gemm(g_cuda, &run.args), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "k=5000 does not fit into the device's workspace"));
    unplace(&run);
    free_product(&p);
    close_cuda();
}

/* A shape that is known is recorded, and a replay computes it anew. */
static void test_graph(void **state)
{
    (void)state;
    struct product p;
    struct run want, got;
    void *graph = NULL;
    open_cuda(false);
    g_seed = 3;
    bf16_product(&p, 20, 32, 40);
    place(&want, g_ref, &p);
    place(&got, g_cuda, &p);
    const struct tern_device_table *table = g_cuda->ops->device;
    require(tern_op_gemm(g_ref, &want.args));
    require(tern_op_gemm(g_cuda, &got.args));
    require(table->record_begin(g_cuda));
    require(tern_op_gemm(g_cuda, &got.args));
    require(table->record_end(g_cuda, &graph));
    require(table->zero(g_cuda, got.args.d, (size_t)(20 * 32) * sizeof(tern_bf16)));
    require(table->replay(g_cuda, graph));
    compare(&p, &want, &got, D);
    compare(&p, &want, &got, AUX);
    table->forget(g_cuda, graph);
    unplace(&want);
    unplace(&got);
    free_product(&p);
    close_cuda();
}

/* ---- plans by time, and their file ---- */

static char g_folder[64];
static char g_path[96];

static int64_t file_bytes(void)
{
    struct stat info;
    return stat(g_path, &info) == 0 ? (int64_t)info.st_size : -1;
}

static void run_small(bool may_tune)
{
    open_cuda(may_tune);
    for (g_seed = 1; g_seed <= 3; g_seed++) {
        struct product p;
        bf16_product(&p, 8, 16, 24 + 8 * (int64_t)g_seed);
        check_product(&p);
        free_product(&p);
    }
    /* what is added to d is added once, however often it was tried */
    struct product sum = {.args = {.m = 8,
                                   .n = 16,
                                   .k = 24,
                                   .lda = 24,
                                   .ldb = 16,
                                   .ldd = 16,
                                   .accumulate = true,
                                   .a_dtype = TERN_BF16,
                                   .b_dtype = TERN_BF16,
                                   .compute = TERN_BF16}};
    make_blocks(&sum, false);
    check_product(&sum);
    free_product(&sum);
    close_cuda();
}

static void test_file(void **state)
{
    (void)state;
    setenv("TERN_CUDA_CACHE", g_path, 1);
    unlink(g_path);
    run_small(false); /* nothing is timed, nothing written */
    assert_int_equal(file_bytes(), -1);
    run_small(true);
    int64_t bytes = file_bytes();
    print_message("four timed plans: %lld bytes\n", (long long)bytes);
    assert_in_range(bytes, 300, 3000);
    struct stat before, after;
    assert_int_equal(stat(g_path, &before), 0);
    run_small(true); /* all known: not timed, so not written again */
    assert_int_equal(stat(g_path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    FILE *file = fopen(g_path, "wb"); /* broken: replaced by new measurements */
    assert_non_null(file);
    fprintf(file, "tern-cuda-plans 1\ngpu simu");
    fclose(file);
    run_small(true);
    assert_in_range(file_bytes(), 300, 3000);
    setenv("TERN_CUDA_CACHE", "off", 1);
    unlink(g_path);
    run_small(true);
    assert_int_equal(file_bytes(), -1);
    unsetenv("TERN_CUDA_CACHE");
}

/* Changes the second word of every algorithm in the file: cuBLASLt will not know it. */
static void spoil_algorithms(void)
{
    enum {
        SPOILED_FIELD = 24 /* of a line, its first word not counted */
    };
    char text[4096];
    FILE *file = fopen(g_path, "rb");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    char *end = strstr(text, "\nend ");
    assert_non_null(end);
    for (char *line = strstr(text, "\nplan "); line != NULL; line = strstr(line + 1, "\nplan ")) {
        char *at = line;
        for (int i = 0; i < SPOILED_FIELD; i++) {
            at = strchr(at + 1, ' ');
        }
        at[1] = at[1] == '1' ? '2' : '1';
    }
    uint64_t sum = 0xcbf29ce484222325u;
    for (const char *c = text; c <= end; c++) {
        sum = (sum ^ (unsigned char)*c) * 0x100000001b3u;
    }
    file = fopen(g_path, "wb");
    assert_non_null(file);
    fprintf(file, "%.*send 4 %llx\n", (int)(end + 1 - text), text, (unsigned long long)sum);
    fclose(file);
}

/* A plan whose algorithm the library does not know is chosen anew, not run. */
static void test_stale_plan(void **state)
{
    (void)state;
    setenv("TERN_CUDA_CACHE", g_path, 1);
    unlink(g_path);
    run_small(true);
    spoil_algorithms();
    run_small(false);
    unsetenv("TERN_CUDA_CACHE");
}

/* ---- the same bits in every process ---- */

/* Prints a digest of many products; for a child process. */
static int print_digest(void)
{
    uint64_t digest = 0xcbf29ce484222325u;
    open_cuda(false);
    for (g_seed = 1; g_seed <= 40; g_seed++) {
        struct product p;
        struct run run;
        g_index = 0;
        random_product(&p);
        place(&run, g_cuda, &p);
        if (tern_op_gemm(g_cuda, &run.args) != TERN_OK) {
            print_error("%s\n", tern_detail());
            return 1;
        }
        double *found = download(g_cuda, &p.blocks[D], run.base[D]);
        for (size_t i = 0; i < (size_t)p.blocks[D].count * sizeof *found; i++) {
            digest = (digest ^ ((const unsigned char *)found)[i]) * 0x100000001b3u;
        }
        tern_free(found);
        unplace(&run);
        free_product(&p);
    }
    close_cuda();
    printf("%016llx\n", (unsigned long long)digest);
    return 0;
}

static void child_digest(const char *environment, char out[64])
{
    char program[512];
    char command[800];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    snprintf(command, sizeof command, "%s %s digest", environment, program);
    FILE *child = popen(command, "r"); /* NOLINT(cert-env33-c) */
    assert_non_null(child);
    assert_non_null(fgets(out, 64, child));
    assert_int_equal(pclose(child), 0);
}

static void test_same_bits(void **state)
{
    (void)state;
    char first[64], other[64], environment[128];
    child_digest("CUSIM_SEED=1", first);
    for (int seed = 2; seed <= 5; seed++) {
        snprintf(environment, sizeof environment, "CUSIM_SEED=%d", seed);
        child_digest(environment, other);
        print_message("seed %d: %s", seed, other);
        assert_string_equal(other, first);
    }
}

static int open_all(void **state)
{
    (void)state;
    snprintf(g_folder, sizeof g_folder, "/tmp/tern-gemm-XXXXXX");
    if (mkdtemp(g_folder) == NULL || tern_device_open("ref", 1, &g_ref) != TERN_OK) {
        return -1;
    }
    snprintf(g_path, sizeof g_path, "%s/plans", g_folder);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    tern_device_close(g_ref);
    unlink(g_path);
    rmdir(g_folder);
    int64_t live = tern_mem_stats().live_blocks;
    if (live != 0) {
        print_error("%lld blocks are still allocated\n", (long long)live);
    }
    return live == 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "digest") == 0) {
        return print_digest();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_product),   cmocka_unit_test(test_shifted_operand),
        cmocka_unit_test(test_padded_rows),   cmocka_unit_test(test_cut_both_ways),
        cmocka_unit_test(test_no_allocation), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_graph),         cmocka_unit_test(test_file),
        cmocka_unit_test(test_stale_plan),    cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests_name("kernels_cuda_gemm", tests, open_all, close_all);
}
