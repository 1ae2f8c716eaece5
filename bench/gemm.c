/* gemm.c - the matrix products of a GPT-2 124M training step: rate, share of the machine's own peak
 * measured in the same run, and the ratio to oneDNN where it is installed, interleaved.
 *
 *   bench_gemm [--threads N] [--rounds N] [--rows N] [--only TEXT] */
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/peak_loops.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if TERN_BENCH_DNNL
#    include <omp.h>
#    include <oneapi/dnnl/dnnl.h>
#endif

struct bench_case {
    const char *name;
    int64_t m, n, k; /* 0: the number of rows */
    bool trans_a, trans_b;
    bool accumulate;
};

static const struct bench_case g_cases[] = {
    {"qkv fwd", 0, 2304, 768, false, false, false},
    {"proj fwd", 0, 768, 768, false, false, false},
    {"fc fwd", 0, 3072, 768, false, false, false},
    {"fcproj fwd", 0, 768, 3072, false, false, false},
    {"qkv dX", 0, 768, 2304, false, true, false},
    {"proj dX", 0, 768, 768, false, true, false},
    {"fc dX", 0, 768, 3072, false, true, false},
    {"fcproj dX", 0, 3072, 768, false, true, false},
    {"qkv dW", 768, 2304, 0, true, false, true},
    {"proj dW", 768, 768, 0, true, false, true},
    {"fc dW", 768, 3072, 0, true, false, true},
    {"fcproj dW", 3072, 768, 0, true, false, true},
    {"head fwd", 512, 50257, 768, false, true, false},
    {"head dX", 512, 768, 50257, false, false, false},
    {"head dW", 50257, 768, 512, true, false, true},
    {"generate 1", 1, 3072, 768, false, false, false},
    {"generate 8", 8, 768, 3072, false, true, false},
    {"head 1", 1, 50257, 768, false, true, false},
};

/* Which dtypes: fp32 all through; bf16 factors with the output the training step has. */
struct bench_mode {
    const char *name;
    enum tern_dtype stored, compute;
};

static const struct bench_mode g_modes[] = {
    {"f32", TERN_F32, TERN_F32},
    {"bf16", TERN_BF16, TERN_BF16},
};

struct options {
    int threads, rounds;
    int64_t rows;
    const char *only;
};

static void *fill(enum tern_dtype dtype, int64_t count)
{
    char *p = tern_alloc("bench", (size_t)count * tern_dtype_bytes(dtype));
    if (p == NULL) {
        fprintf(stderr, "bench_gemm: no memory for %lld elements\n", (long long)count);
        exit(1);
    }
    for (int64_t i = 0; i < count; i++) {
        float x = (float)((i * 2654435761u >> 8 & 0xffff) / 65536.0 - 0.5);
        if (dtype == TERN_BF16) {
            ((tern_bf16 *)(void *)p)[i] = tern_f32_to_bf16(x);
        } else {
            ((float *)(void *)p)[i] = x;
        }
    }
    return p;
}

static struct tern_dptr dptr(void *p)
{
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

static struct tern_gemm_args make_args(const struct bench_case *c,
                                       const struct bench_mode *mode,
                                       int64_t rows)
{
    struct tern_gemm_args g = {.m = c->m ? c->m : rows,
                               .n = c->n,
                               .k = c->k ? c->k : rows,
                               .trans_a = c->trans_a,
                               .trans_b = c->trans_b,
                               .accumulate = c->accumulate,
                               .compute = mode->compute};
    g.lda = g.trans_a ? g.m : g.k;
    g.ldb = g.trans_b ? g.k : g.n;
    g.ldd = g.n;
    g.a_dtype = g.b_dtype = mode->stored;
    bool head = g.m == 50257 || g.k == 50257 || g.n == 50257;
    g.d_dtype = c->accumulate || (head && g.n == 50257) ? TERN_F32 : mode->stored;
    if (head && g.n != 50257) {
        g.a_dtype = TERN_F32; /* gradients of logits */
    }
    g.a = dptr(fill(g.a_dtype, g.m * g.k));
    g.b = dptr(fill(g.b_dtype, g.k * g.n));
    g.d = dptr(fill(g.d_dtype, g.m * g.n));
    return g;
}

static void free_args(struct tern_gemm_args *g)
{
    tern_free(tern_cpu_ptr(g->a));
    tern_free(tern_cpu_ptr(g->b));
    tern_free(tern_cpu_ptr(g->d));
}

#if TERN_BENCH_DNNL
struct peer {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
};

static dnnl_data_type_t peer_dtype(enum tern_dtype dtype)
{
    return dtype == TERN_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_memory_desc_t peer_matrix(int64_t rows,
                                      int64_t columns,
                                      int64_t ld,
                                      bool trans,
                                      enum tern_dtype dtype)
{
    dnnl_memory_desc_t desc;
    dnnl_dims_t dims = {rows, columns};
    dnnl_dims_t strides = {trans ? 1 : ld, trans ? ld : 1};
    dnnl_memory_desc_init_by_strides(&desc, 2, dims, peer_dtype(dtype), strides);
    return desc;
}

/* A matmul primitive of the same product; false when oneDNN has none (mixed dtypes). */
static bool peer_make(struct peer *p, const struct tern_gemm_args *g)
{
    dnnl_memory_desc_t a = peer_matrix(g->m, g->k, g->lda, g->trans_a, g->a_dtype);
    dnnl_memory_desc_t b = peer_matrix(g->k, g->n, g->ldb, g->trans_b, g->b_dtype);
    dnnl_memory_desc_t d = peer_matrix(g->m, g->n, g->ldd, false, g->d_dtype);
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t found = NULL;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t sum;
    dnnl_primitive_attr_create(&attr);
    dnnl_post_ops_create(&sum);
    if (g->accumulate) {
        dnnl_post_ops_append_sum(sum, 1.0f);
        dnnl_primitive_attr_set_post_ops(attr, sum);
    }
    bool ok =
        dnnl_engine_create(&p->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) == dnnl_success &&
        dnnl_matmul_desc_init(&desc, &a, &b, NULL, &d) == dnnl_success &&
        dnnl_primitive_desc_create(&found, &desc, attr, p->engine, NULL) == dnnl_success &&
        dnnl_primitive_create(&p->primitive, found) == dnnl_success;
    dnnl_post_ops_destroy(sum);
    dnnl_primitive_attr_destroy(attr);
    if (!ok) {
        return false;
    }
    dnnl_primitive_desc_destroy(found);
    dnnl_memory_create(&p->memory[0], &a, p->engine, tern_cpu_ptr(g->a));
    dnnl_memory_create(&p->memory[1], &b, p->engine, tern_cpu_ptr(g->b));
    dnnl_memory_create(&p->memory[2], &d, p->engine, tern_cpu_ptr(g->d));
    return true;
}

static void peer_run(struct peer *p)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->memory[0]},
                              {DNNL_ARG_WEIGHTS, p->memory[1]},
                              {DNNL_ARG_DST, p->memory[2]}};
    dnnl_primitive_execute(p->primitive, p->stream, 3, args);
    dnnl_stream_wait(p->stream);
}

static void peer_free(struct peer *p)
{
    for (int i = 0; i < 3; i++) {
        dnnl_memory_destroy(p->memory[i]);
    }
    dnnl_primitive_destroy(p->primitive);
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
}
#else
struct peer {
    int unused;
};

static bool peer_make(struct peer *p, const struct tern_gemm_args *g)
{
    (void)p;
    (void)g;
    return false;
}

static void peer_run(struct peer *p)
{
    (void)p;
}

static void peer_free(struct peer *p)
{
    (void)p;
}
#endif

/* One thread is timed by its own CPU time, which a neighbour on the same core does not spoil;
 * several by the wall. */
static double now(int threads)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void bench_one(struct tern_cpu_device *device,
                      const struct bench_case *c,
                      const struct bench_mode *mode,
                      const struct options *o)
{
    struct tern_gemm_args g = make_args(c, mode, o->rows);
    struct peer peer;
    bool has_peer = peer_make(&peer, &g);
    double ours = 1e30, theirs = 1e30, peak = 0;
    enum tern_gemm_variant variant =
        tern_gemm_pick_variant(&g, device->level, tern_cpu_bf16_dot_is_fast());
    enum tern_peak_kind kind = variant == TERN_GEMM_AVX512_DOT    ? TERN_PEAK_DOT_BF16
                               : device->level >= TERN_CPU_AVX512 ? TERN_PEAK_FMA_AVX512
                                                                  : TERN_PEAK_FMA_AVX2;
    for (int round = 0; round < o->rounds; round++) {
        double rate = tern_peak_flops(device, kind, 1);
        peak = rate > peak ? rate : peak;
        for (int turn = 0; turn < 2; turn++) {
            double start = now(device->threads);
            if (tern_cpu_gemm(&device->base, &g) != TERN_OK) {
                fprintf(stderr, "bench_gemm: %s\n", tern_detail());
                exit(1);
            }
            double seconds = now(device->threads) - start;
            ours = seconds < ours ? seconds : ours;
        }
        for (int turn = 0; turn < 2 && has_peer; turn++) {
            double start = now(device->threads);
            peer_run(&peer);
            double seconds = now(device->threads) - start;
            theirs = seconds < theirs ? seconds : theirs;
        }
        tern_clock_sleep_ns(3000000); /* lets the peer's threads stop spinning */
    }
    double flops = 2.0 * (double)g.m * (double)g.n * (double)g.k;
    double bytes = (double)(g.k * g.n) * (double)tern_dtype_bytes(g.b_dtype);
    printf("%-4s %-11s %6lld %6lld %6lld  %-12s %8.3f ms %7.1f Gflop/s %5.1f%% of peak %6.1f GB/s "
           "of b",
           mode->name, c->name, (long long)g.m, (long long)g.n, (long long)g.k,
           tern_gemm_variant_name(variant), ours * 1e3, flops / ours * 1e-9,
           100 * flops / ours / peak, bytes / ours * 1e-9);
    if (has_peer) {
        printf("  oneDNN %8.3f ms, we are %.2fx", theirs * 1e3, theirs / ours);
        peer_free(&peer);
    }
    printf("\n");
    fflush(stdout);
    free_args(&g);
}

static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0) {
            o->threads = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            o->rounds = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--rows") == 0) {
            o->rows = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--only") == 0) {
            o->only = argv[i + 1];
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && o->rounds > 0 && o->rows > 0 && o->threads >= 0;
}

int main(int argc, char **argv)
{
    struct options o = {.threads = 0, .rounds = 5, .rows = 1024};
    struct tern_device *device;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: bench_gemm [--threads N] [--rounds N] [--rows N] [--only TEXT]\n");
        return TERN_EXIT_USAGE;
    }
    tern_status status = tern_cpu_open(o.threads, &device);
    if (status != TERN_OK) {
        fprintf(stderr, "bench_gemm: %s\n", tern_detail());
        return tern_status_exit_code(status);
    }
    struct tern_cpu_device *cpu = tern_cpu_device_of(device);
    const struct tern_op_limits limits = {.rows = o.rows, .width = 3072, .vocab = 50257};
    size_t bytes;
    if (device->ops->prepare(device, &limits, &bytes) != TERN_OK) {
        fprintf(stderr, "bench_gemm: %s\n", tern_detail());
        return 1;
    }
#if TERN_BENCH_DNNL
    omp_set_num_threads(cpu->threads);
#endif
    printf("%d thread(s), level %s, workspace %.1f MiB\n", cpu->threads,
           tern_cpu_level_name(cpu->level), (double)bytes / (1 << 20));
    for (size_t mode = 0; mode < sizeof g_modes / sizeof g_modes[0]; mode++) {
        for (size_t i = 0; i < sizeof g_cases / sizeof g_cases[0]; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s %s", g_modes[mode].name, g_cases[i].name);
            if (o.only == NULL || strstr(name, o.only) != NULL) {
                bench_one(cpu, &g_cases[i], &g_modes[mode], &o);
            }
        }
    }
    device->ops->device->close(device);
    return 0;
}
