/* ops.c - how fast each op of the case table is, on every backend: GFLOP/s, GB/s, share of what
 * this machine does.
 *
 * usage: bench_ops [--backend NAME] [--threads N] [--op NAME] [--dtype f32|bf16] [--case NAME]
 * [--seconds S] [--tune] [--json]
 *
 * The peaks are measured here, in the same process: multiply-adds by the best of the backend's own
 * large products, bandwidth by adding two arrays that no cache holds; of a GPU, multiply-adds are the data sheet's. A
 * share is the larger of the two demands (a roofline); a share of memory above 100 % says that the operands came from a
 * cache. On a GPU so many calls are timed at once that waiting for them is no part of it. */
#include "kernels/cost.h"
#include "kernels/open.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "tests/kernels/instance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS_MIN = 3,
    NAMES_MAX = 32,
    CALLS_MAX = 1000 /* timed at once */
};

static const double BATCH_SECONDS = 0.02; /* of calls timed at once: a wait costs some 10 us */

struct options {
    const char *backend, *op, *dtype;
    const char *names[NAMES_MAX];
    int name_count;
    int threads;
    double seconds;
    bool tune, json;
};

struct peaks {
    double flops, bytes; /* a second */
};

struct bench {
    struct tern_device *device;
    struct tern_instance in;
    union tern_args args;
    struct tern_dptr blocks[TERN_TENSORS_MAX];
    struct tern_dptr packed; /* weights; null: none */
};

static int usage(void)
{
    fprintf(stderr,
            "usage: bench_ops [--backend NAME] [--threads N] [--op NAME] [--dtype f32|bf16]\n"
            "                 [--case NAME] [--seconds S] [--tune] [--json]\n"
            "  --backend NAME  ref, cpu, cuda (default: auto)\n"
            "  --threads N     compute threads (default: one a core)\n"
            "  --op NAME       only this op, such as gemm\n"
            "  --dtype D       f32 or bf16 (default: both)\n"
            "  --case NAME     this case, such as 'gemm m=64 n=64 k=64', not the table's; may be "
            "repeated\n"
            "  --seconds S     time for each case (default: 0.3)\n"
            "  --tune          choose algorithms by time, as with deterministic: false\n"
            "  --json          one JSON object a line; with --case no peaks are measured\n");
    return 2;
}

static bool parse(int argc, char **argv, struct options *out)
{
    *out = (struct options){.backend = "auto", .seconds = 0.3};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--json") == 0) {
            out->json = true;
            continue;
        }
        if (strcmp(argv[i], "--tune") == 0) {
            out->tune = true;
            continue;
        }
        if (value == NULL) {
            return false;
        }
        i++;
        if (strcmp(argv[i - 1], "--backend") == 0) {
            out->backend = value;
        } else if (strcmp(argv[i - 1], "--op") == 0) {
            out->op = value;
        } else if (strcmp(argv[i - 1], "--dtype") == 0) {
            out->dtype = value;
        } else if (strcmp(argv[i - 1], "--case") == 0 && out->name_count < NAMES_MAX) {
            out->names[out->name_count++] = value;
        } else if (strcmp(argv[i - 1], "--threads") == 0) {
            out->threads = atoi(value);
        } else if (strcmp(argv[i - 1], "--seconds") == 0) {
            out->seconds = atof(value);
        } else {
            return false;
        }
    }
    return out->seconds > 0;
}

/* Uploads a tensor as its dtype. */
static tern_status send(struct bench *bench, int i)
{
    const struct tern_tensor *t = &bench->in.tensors[i];
    int64_t count = tern_tensor_elements(t);
    size_t size = tern_dtype_bytes(t->dtype), bytes = (size_t)count * size;
    char *image = tern_alloc_zero("bench", 1, bytes);
    if (image == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for %zu bytes of %s", bytes, t->name);
    }
    tern_tensor_encode(t, image);
    const struct tern_device_table *table = bench->device->ops->device;
    tern_status status = table->alloc(bench->device, "bench", bytes, &bench->blocks[i]);
    if (status == TERN_OK) {
        status = table->upload(bench->device, bench->blocks[i], image, bytes);
    }
    tern_free(image);
    return status;
}

static void bench_fini(struct bench *bench)
{
    for (int i = 0; i < bench->in.tensor_count; i++) {
        if (!tern_dptr_is_null(bench->blocks[i])) {
            bench->device->ops->device->free(bench->device, bench->blocks[i]);
        }
    }
    if (!tern_dptr_is_null(bench->packed)) {
        bench->device->ops->device->free(bench->device, bench->packed);
    }
    tern_instance_fini(&bench->in);
}

/* Derived inputs (lse, rstd, out) come from the forward op on the same device, which is quick. */
static tern_status bench_init(struct bench *bench,
                              struct tern_device *device,
                              const struct tern_case *c,
                              enum tern_dtype dtype,
                              bool may_tune)
{
    size_t bytes;
    *bench = (struct bench){.device = device};
    tern_instance_build(&bench->in, c, dtype);
    bench->in.limits.may_tune = may_tune;
    TERN_RETURN_IF_ERR(tern_device_prepare(device, &bench->in.limits, &bytes));
    TERN_RETURN_IF_ERR(tern_instance_derive(&bench->in, device));
    bench->args = bench->in.args;
    for (int i = 0; i < bench->in.tensor_count; i++) {
        TERN_RETURN_IF_ERR(send(bench, i));
    }
    for (int i = 0; i < bench->in.slot_count; i++) {
        const struct tern_slot *slot = &bench->in.slots[i];
        struct tern_dptr p = tern_dptr_at(bench->blocks[slot->tensor], slot->element,
                                          bench->in.tensors[slot->tensor].dtype);
        memcpy((char *)&bench->args + slot->offset, &p, sizeof p);
    }
    return tern_instance_pack(c->op, &bench->args, device, &bench->packed);
}

/* Calls one after the other, and one wait. */
static tern_status run_calls(struct bench *bench, int calls, double *seconds_out)
{
    int64_t begin = tern_clock_ns();
    for (int i = 0; i < calls; i++) {
        TERN_RETURN_IF_ERR(tern_instance_call(bench->in.c.op, &bench->args, bench->device));
    }
    TERN_RETURN_IF_ERR(bench->device->ops->device->sync(bench->device));
    *seconds_out = (double)(tern_clock_ns() - begin) * 1e-9;
    return TERN_OK;
}

/* Whether calls return before their work is done. */
static bool is_queue(struct tern_device *device)
{
    return device->ops->device->native(device) != NULL;
}

/* Best time of one call; the first, which warms caches and pages, is not counted. */
static tern_status bench_time(struct bench *bench, double seconds, double *best_out)
{
    double took, spent = 0, best = INFINITY;
    int calls = 1;
    TERN_RETURN_IF_ERR(run_calls(bench, 1, &took));
    if (is_queue(bench->device)) {
        TERN_RETURN_IF_ERR(run_calls(bench, 1, &took));
        double wanted = BATCH_SECONDS / took;
        calls = wanted < 1 ? 1 : wanted > CALLS_MAX ? CALLS_MAX : (int)wanted;
    }
    for (int round = 0; round < ROUNDS_MIN || spent < seconds; round++) {
        TERN_RETURN_IF_ERR(run_calls(bench, calls, &took));
        spent += took;
        best = fmin(best, took / calls);
    }
    *best_out = best;
    return TERN_OK;
}

static struct tern_cost cost_of(const struct bench *bench)
{
    const union tern_args *a = &bench->args;
    switch (bench->in.c.op) {
    case TERN_OP_EMBED_FWD:
        return tern_cost_embed_fwd(&a->embed_fwd);
    case TERN_OP_EMBED_BWD:
        return tern_cost_embed_bwd(&a->embed_bwd);
    case TERN_OP_NORM_FWD:
        return tern_cost_norm_fwd(&a->norm_fwd);
    case TERN_OP_NORM_BWD:
        return tern_cost_norm_bwd(&a->norm_bwd);
    case TERN_OP_GEMM:
        return tern_cost_gemm(&a->gemm);
    case TERN_OP_BIAS_BWD:
        return tern_cost_bias_bwd(&a->bias_bwd);
    case TERN_OP_GEMM_BIAS_BWD:
        return tern_cost_gemm_bias_bwd(&a->gemm_bias_bwd);
    case TERN_OP_ATTENTION_FWD:
        return tern_cost_attention_fwd(&a->attention);
    case TERN_OP_ATTENTION_BWD:
        return tern_cost_attention_bwd(&a->attention);
    case TERN_OP_PAGED_ATTENTION: { /* cases of one sequence; the write before it is not counted */
        const struct tern_paged_attention_args *paged = &a->paged.attend;
        double pairs = tern_cost_attention_pairs(paged->n, paged->longest, paged->window);
        return tern_cost_paged_attention(paged, pairs, (double)paged->longest);
    }
    case TERN_OP_ROPE:
        return tern_cost_rope(&a->rope);
    case TERN_OP_ACT_FWD:
        return tern_cost_act_fwd(&a->act);
    case TERN_OP_ACT_BWD:
        return tern_cost_act_bwd(&a->act);
    case TERN_OP_GLU_FWD:
        return tern_cost_glu_fwd(&a->glu);
    case TERN_OP_GLU_BWD:
        return tern_cost_glu_bwd(&a->glu);
    case TERN_OP_ADD:
        return tern_cost_add(&a->add);
    case TERN_OP_CROSS_ENTROPY:
        return tern_cost_cross_entropy(&a->cross_entropy);
    case TERN_OP_ADAMW:
        return tern_cost_adamw(&a->adamw);
    case TERN_OP_SUMSQ:
        return tern_cost_sumsq(&a->sumsq, bench->in.c.dim[SUMSQ_N]);
    case TERN_OP_CLIP:
        return tern_cost_clip(&a->clip);
    case TERN_OP_PACK:
        return tern_cost_pack(&a->pack.pack);
    default:
        return tern_cost_cast(&a->cast);
    }
}

/* Time and cost of one case by name. */
static tern_status measure(struct tern_device *device,
                           const struct tern_case *c,
                           enum tern_dtype dtype,
                           const struct options *options,
                           double *best_out,
                           struct tern_cost *cost_out)
{
    struct bench bench;
    tern_status status = bench_init(&bench, device, c, dtype, options->tune);
    if (status == TERN_OK) {
        status = bench_time(&bench, options->seconds, best_out);
        *cost_out = cost_of(&bench);
    }
    bench_fini(&bench);
    return status;
}

static tern_status find_peaks(struct tern_device *device,
                              const struct options *options,
                              struct peaks *out)
{
    static const char *const products[] = {"gemm m=960 n=960 k=960", "gemm m=512 n=1920 k=768 tb=1",
                                           "gemm m=1920 n=768 k=768"};
    struct tern_case c;
    struct tern_cost cost;
    double best;
    *out = (struct peaks){0};
    if (is_queue(device)) {
        out->flops = tern_device_peak_flops(device, TERN_BF16);
    }
    bool is_known = out->flops > 0;
    for (int i = 0; i < 6 && !is_known; i++) {
        tern_case_parse(products[i / 2], &c);
        enum tern_dtype dtype = i % 2 == 0 ? TERN_F32 : TERN_BF16;
        TERN_RETURN_IF_ERR(measure(device, &c, dtype, options, &best, &cost));
        out->flops = cost.flops / best > out->flops ? cost.flops / best : out->flops;
    }
    tern_case_parse("add n=33554432", &c);
    TERN_RETURN_IF_ERR(measure(device, &c, TERN_F32, options, &best, &cost));
    out->bytes = cost.bytes / best;
    return TERN_OK;
}

static void print_case(const struct options *options,
                       struct tern_device *device,
                       const struct tern_case *c,
                       enum tern_dtype dtype,
                       double best,
                       struct tern_cost cost,
                       struct peaks peaks)
{
    char name[TERN_CASE_NAME_BYTES];
    double flops = cost.flops / best, bytes = cost.bytes / best;
    double compute = flops / peaks.flops, memory = bytes / peaks.bytes;
    double share = compute > memory ? compute : memory;
    tern_case_name(c, name);
    if (options->json) {
        printf("{\"case\":\"%s\",\"dtype\":\"%s\",\"backend\":\"%s\",\"isa\":\"%s\",\"threads\":%d,"
               "\"seconds\":%.9g,\"gflops\":%.6g,\"gbytes\":%.6g",
               name, tern_dtype_name(dtype), device->ops->device->name, tern_device_isa(device),
               tern_device_threads(device), best, flops * 1e-9, bytes * 1e-9);
        printf(peaks.flops > 0 ? ",\"share_of_peak\":%.4g}\n" : "}\n", share);
    } else {
        printf("%-74s %-4s %10.3f %9.1f %8.1f  %5.1f%% %s\n", name, tern_dtype_name(dtype),
               best * 1e3, flops * 1e-9, bytes * 1e-9, 100 * share,
               compute > memory ? "compute" : "memory");
    }
    fflush(stdout);
}

static bool is_chosen(const struct options *options,
                      const struct tern_case *c,
                      enum tern_dtype dtype)
{
    return (options->name_count > 0 || c->use == TERN_USE_BENCH) &&
           tern_case_has_storage(c, dtype) &&
           (options->op == NULL || strcmp(options->op, tern_op_name(c->op)) == 0) &&
           (options->dtype == NULL || strcmp(options->dtype, tern_dtype_name(dtype)) == 0);
}

static tern_status run_cases(const struct options *options,
                             struct tern_device *device,
                             struct peaks peaks)
{
    static const enum tern_dtype dtypes[2] = {TERN_F32, TERN_BF16};
    struct tern_case named[NAMES_MAX];
    int count = options->name_count;
    const struct tern_case *cases = named;
    for (int i = 0; i < options->name_count; i++) {
        if (!tern_case_parse(options->names[i], &named[i])) {
            return tern_fail(TERN_ERR_USAGE, "'%s' is not the name of a case, such as 'add n=1000'",
                             options->names[i]);
        }
    }
    if (count == 0) {
        cases = tern_cases_build(&count);
    }
    for (int i = 0; i < 2 * count; i++) {
        const struct tern_case *c = &cases[i / 2];
        double best;
        struct tern_cost cost;
        if (is_chosen(options, c, dtypes[i % 2])) {
            TERN_RETURN_IF_ERR(measure(device, c, dtypes[i % 2], options, &best, &cost));
            print_case(options, device, c, dtypes[i % 2], best, cost, peaks);
        }
    }
    return TERN_OK;
}

int main(int argc, char **argv)
{
    struct options options;
    struct tern_device *device = NULL;
    struct peaks peaks = {0};
    if (!parse(argc, argv, &options)) {
        return usage();
    }
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_device_open(options.backend, options.threads, &device), out);
    bool is_asked = options.json && options.name_count > 0; /* for those cases and nothing else */
    if (!is_asked) {
        TERN_GOTO_IF_ERR(status, find_peaks(device, &options, &peaks), out);
    }
    if (!options.json) {
        printf("backend %s, %s, %d threads (CPU: %s)\n", device->ops->device->name,
               tern_device_isa(device), tern_device_threads(device), tern_cpu_features());
        printf("peaks: %.1f GFLOP/s (%s), %.1f GB/s (add, measured here)\n", peaks.flops * 1e-9,
               is_queue(device) ? "data sheet or best product" : "best large product, here",
               peaks.bytes * 1e-9);
        printf("%-74s %-4s %10s %9s %8s  %6s\n", "case", "type", "ms", "GFLOP/s", "GB/s", "share");
    }
    status = run_cases(&options, device, peaks);
out:
    tern_device_close(device);
    tern_cases_free();
    if (status != TERN_OK) {
        fprintf(stderr, "bench_ops: error: %s\n", tern_detail());
    }
    return tern_status_exit_code(status);
}
