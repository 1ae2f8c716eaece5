/* cpu_gemm.c - the matrix product, every variant that this machine can run, against its definition
 * in double: tile edges, all four forms, dtypes, epilogues, odd strides, chunks; and the same bits
 * on any number of threads. */
#include "kernels/cpu/gemm.h"
#include "kernels/tolerance.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

enum {
    SEED = 20240607,
    PAD = 64
};

static const float g_canary = 123.5f; /* exact in bf16 */

struct shape {
    int64_t m, n, k;
    bool trans_a, trans_b;
    enum tern_dtype a, b, d, bias, compute;
    enum tern_epilogue epilogue;
    bool accumulate;
    int64_t extra; /* added to every leading dimension; also shifts every pointer by one element */
};

/* A matrix in a block with canaries around it; `at` is not aligned when extra is odd. */
struct matrix {
    char *block;
    enum tern_dtype dtype;
    int64_t count;
    int64_t shift;
};

static double get(const struct matrix *x, int64_t i)
{
    const char *p = x->block + (i + PAD + x->shift) * (int64_t)tern_dtype_bytes(x->dtype);
    if (x->dtype == TERN_BF16) {
        tern_bf16 h;
        memcpy(&h, p, sizeof h);
        return tern_bf16_to_f32(h);
    }
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

static void put(struct matrix *x, int64_t i, float f)
{
    char *p = x->block + (i + PAD + x->shift) * (int64_t)tern_dtype_bytes(x->dtype);
    if (x->dtype == TERN_BF16) {
        tern_bf16 h = tern_f32_to_bf16(f);
        memcpy(p, &h, sizeof h);
    } else {
        memcpy(p, &f, sizeof f);
    }
}

static struct matrix make(enum tern_dtype dtype, int64_t count, int64_t shift)
{
    struct matrix x = {.dtype = dtype, .count = count, .shift = shift};
    x.block = tern_alloc("test", (size_t)(count + 2 * PAD + 1) * tern_dtype_bytes(dtype));
    assert_non_null(x.block);
    for (int64_t i = -PAD - shift; i < count + PAD; i++) {
        put(&x, i, g_canary);
    }
    return x;
}

static struct matrix make_random(enum tern_dtype dtype, int64_t count, int64_t shift, uint32_t sub)
{
    struct matrix x = make(dtype, count, shift);
    uint64_t stream = tern_random_stream_id(TERN_STREAM_TEST, sub);
    for (int64_t i = 0; i < count; i++) {
        put(&x, i, (float)(2 * tern_random_uniform(SEED, stream, (uint64_t)i) - 1));
    }
    return x;
}

static struct tern_dptr dptr(const struct matrix *x)
{
    char *p = x->block + (PAD + x->shift) * (int64_t)tern_dtype_bytes(x->dtype);
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

struct problem {
    struct tern_gemm_args args;
    struct matrix a, b, d, aux, bias, d_before;
};

static struct problem problem_make(const struct shape *s)
{
    int64_t lda = (s->trans_a ? s->m : s->k) + s->extra;
    int64_t ldb = (s->trans_b ? s->k : s->n) + s->extra;
    int64_t ldd = s->n + s->extra;
    int64_t shift = s->extra & 1;
    struct problem p = {0};
    p.a = make_random(s->a, (s->trans_a ? s->k : s->m) * lda, shift, 1);
    p.b = make_random(s->b, (s->trans_b ? s->n : s->k) * ldb, shift, 2);
    p.bias = make_random(s->bias, s->n, shift, 3);
    p.aux = make(s->d, s->m * ldd, shift);
    p.d = make(s->d, s->m * ldd, shift);
    p.d_before = make_random(s->d, s->m * ldd, 0, 4);
    for (int64_t i = 0; i < s->m; i++) {
        for (int64_t j = 0; j < s->n; j++) {
            int64_t to = i * ldd + j;
            put(&p.d, to, s->accumulate ? (float)get(&p.d_before, to) : NAN);
            put(&p.aux, to, NAN);
        }
    }
    p.args = (struct tern_gemm_args){.a = dptr(&p.a),
                                     .b = dptr(&p.b),
                                     .d = dptr(&p.d),
                                     .m = s->m,
                                     .n = s->n,
                                     .k = s->k,
                                     .lda = lda,
                                     .ldb = ldb,
                                     .ldd = ldd,
                                     .trans_a = s->trans_a,
                                     .trans_b = s->trans_b,
                                     .accumulate = s->accumulate,
                                     .epilogue = s->epilogue,
                                     .a_dtype = s->a,
                                     .b_dtype = s->b,
                                     .d_dtype = s->d,
                                     .bias_dtype = s->bias,
                                     .compute = s->compute};
    if (s->epilogue != TERN_EPILOGUE_NONE) {
        p.args.bias = dptr(&p.bias);
    }
    if (s->epilogue == TERN_EPILOGUE_BIAS_GELU) {
        p.args.aux = dptr(&p.aux);
    }
    return p;
}

static void problem_free(struct problem *p)
{
    tern_free(p->a.block);
    tern_free(p->b.block);
    tern_free(p->d.block);
    tern_free(p->aux.block);
    tern_free(p->bias.block);
    tern_free(p->d_before.block);
}

static double factor(const struct matrix *x, int64_t i, enum tern_dtype compute)
{
    double v = get(x, i);
    return compute == TERN_BF16 ? (double)tern_bf16_to_f32(tern_f32_to_bf16((float)v)) : v;
}

static double gelu(double x)
{
    double u = sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * u));
}

static void fail_at(const struct problem *p,
                    const char *variant,
                    int64_t i,
                    int64_t j,
                    const char *what,
                    double got,
                    double want,
                    double bound)
{
    const struct tern_gemm_args *g = &p->args;
    fail_msg(
        "%s: m %lld n %lld k %lld trans %d%d dtypes %s %s %s compute %s epilogue %d accumulate %d "
        "ld %lld %lld %lld seed %d: %s[%lld][%lld] is %.9g, expected %.9g within %.3g",
        variant, (long long)g->m, (long long)g->n, (long long)g->k, g->trans_a, g->trans_b,
        tern_dtype_name(g->a_dtype), tern_dtype_name(g->b_dtype), tern_dtype_name(g->d_dtype),
        tern_dtype_name(g->compute), (int)g->epilogue, g->accumulate, (long long)g->lda,
        (long long)g->ldb, (long long)g->ldd, SEED, what, (long long)i, (long long)j, got, want,
        bound);
}

static void check_near(const struct problem *p,
                       const char *variant,
                       int64_t i,
                       int64_t j,
                       const char *what,
                       double got,
                       struct tern_tolerance_element element)
{
    double bound = tern_tolerance_bound(TERN_OP_GEMM, p->args.d_dtype, p->args.k + 2, &element);
    if (!(fabs(got - element.want) <= bound)) {
        fail_at(p, variant, i, j, what, got, element.want, bound);
    }
}

/* One element against its definition. */
static void check_element(const struct problem *p, const char *variant, int64_t i, int64_t j)
{
    const struct tern_gemm_args *g = &p->args;
    double sum = 0, magnitude = 0;
    for (int64_t q = 0; q < g->k; q++) {
        double a = factor(&p->a, g->trans_a ? q * g->lda + i : i * g->lda + q, g->compute);
        double b = factor(&p->b, g->trans_b ? j * g->ldb + q : q * g->ldb + j, g->compute);
        sum += a * b;
        magnitude += fabs(a * b);
    }
    int64_t to = i * g->ldd + j;
    double added = g->epilogue != TERN_EPILOGUE_NONE ? get(&p->bias, j) : 0;
    added += g->accumulate ? get(&p->d_before, to) : 0;
    struct tern_tolerance_element e = {.want = sum + added, .magnitude = magnitude + fabs(added)};
    double d = get(&p->d, to);
    if (g->epilogue == TERN_EPILOGUE_BIAS_GELU) {
        double aux = get(&p->aux, to);
        check_near(p, variant, i, j, "aux", aux, e);
        /* d follows from aux as it was stored, so only gelu's own error is left. */
        struct tern_tolerance_element f = {.want = gelu(aux),
                                           .magnitude = fabs(aux) + fabs(gelu(aux))};
        check_near(p, variant, i, j, "d", d, f);
    } else {
        check_near(p, variant, i, j, "d", d, e);
    }
}

/* What lies around and between the rows must be as it was. */
static void check_canaries(const struct problem *p, const char *variant, const struct matrix *x)
{
    int64_t ldd = p->args.ldd;
    for (int64_t i = -PAD; i < x->count + PAD - x->shift; i++) {
        bool inside = i >= 0 && i < x->count && i % ldd < p->args.n;
        if (!inside && get(x, i) != (double)g_canary) {
            fail_at(p, variant, i / ldd, i % ldd, "outside", get(x, i), (double)g_canary, 0);
        }
    }
}

static bool can_run(enum tern_gemm_variant variant)
{
    static const enum tern_cpu_level needs[TERN_GEMM_VARIANT_COUNT] = {
        [TERN_GEMM_AVX2] = TERN_CPU_AVX2,
        [TERN_GEMM_AVX512] = TERN_CPU_AVX512,
        [TERN_GEMM_AVX512_DOT] = TERN_CPU_AVX512_BF16,
        [TERN_GEMM_AMX] = TERN_CPU_AMX,
        [TERN_GEMM_FEW_AVX2] = TERN_CPU_AVX2,
        [TERN_GEMM_FEW_AVX512] = TERN_CPU_AVX512,
    };
    return tern_cpu_gemm_level_checked(tern_cpu_level_found()) >= needs[variant];
}

static bool multiplies_bf16(enum tern_gemm_variant variant)
{
    return variant == TERN_GEMM_AVX512_DOT || variant == TERN_GEMM_AMX;
}

/* Whether this variant offers what the shape asks for. */
static bool applies(enum tern_gemm_variant variant, const struct shape *s)
{
    bool rounds_b = s->compute == TERN_BF16 && s->b == TERN_F32;
    if (variant >= TERN_GEMM_FEW_GENERIC) {
        return s->m <= TERN_GEMM_FEW_ROWS && !rounds_b;
    }
    return !multiplies_bf16(variant) || s->compute == TERN_BF16;
}

static struct tern_cpu_device *open_device(int threads)
{
    struct tern_device *device;
    assert_int_equal(tern_cpu_open(threads, &device), TERN_OK);
    return tern_cpu_device_of(device);
}

static void close_device(struct tern_cpu_device *device)
{
    device->base.ops->device->close(&device->base);
}

static struct tern_cpu_device *g_device;

static void run_shape(enum tern_gemm_variant variant, const struct shape *s)
{
    if (!applies(variant, s)) {
        return;
    }
    const char *name = tern_gemm_variant_name(variant);
    struct problem p = problem_make(s);
    assert_int_equal(tern_gemm_run(g_device, &p.args, variant), TERN_OK);
    /* Every element, or of a large product one in 211: a prime, so that every place in a tile gets its turn. */
    int64_t step = s->m * s->n * s->k > 1000000 ? 211 : 1;
    for (int64_t e = 0; e < s->m * s->n; e += step) {
        check_element(&p, name, e / s->n, e % s->n);
    }
    check_canaries(&p, name, &p.d);
    check_canaries(&p, name, &p.aux);
    problem_free(&p);
}

/* Calls f for every variant of this machine; those it lacks are named. */
static void each_variant(void (*f)(enum tern_gemm_variant))
{
    for (int v = 0; v < TERN_GEMM_VARIANT_COUNT; v++) {
        if (can_run((enum tern_gemm_variant)v)) {
            f((enum tern_gemm_variant)v);
        } else {
            print_message("not on this machine: %s\n",
                          tern_gemm_variant_name((enum tern_gemm_variant)v));
        }
    }
}

static struct shape plain_shape(enum tern_gemm_variant variant, int64_t m, int64_t n, int64_t k)
{
    enum tern_dtype dtype = multiplies_bf16(variant) ? TERN_BF16 : TERN_F32;
    return (struct shape){.m = m, .n = n, .k = k, .a = dtype, .b = dtype, .compute = dtype};
}

/* Every height and width of a tile up to two tiles and a bit, with and without accumulation. */
static void edges(enum tern_gemm_variant variant)
{
    for (int64_t m = 1; m <= 70; m++) {
        struct shape s = plain_shape(variant, m, 37, 19);
        s.extra = m % 3;
        s.accumulate = m % 2 != 0;
        run_shape(variant, &s);
    }
    for (int64_t n = 1; n <= 70; n++) {
        struct shape s = plain_shape(variant, 5, n, 21);
        s.extra = n % 3;
        s.trans_b = n % 2 != 0;
        s.accumulate = n % 4 < 2;
        run_shape(variant, &s);
    }
}

static void lengths(enum tern_gemm_variant variant)
{
    static const int64_t ks[] = {0,   1,   2,   3,   4,   7,   8,    15,   16,   17,   31,  32,
                                 33,  63,  64,  65,  95,  255, 256,  257,  383,  384,  385, 511,
                                 513, 767, 768, 769, 770, 900, 1023, 1024, 1025, 1537, 3072};
    for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
        for (int form = 0; form < 4; form++) {
            struct shape s = plain_shape(variant, 8, 33, ks[i]);
            s.trans_a = (form & 1) != 0;
            s.trans_b = (form & 2) != 0;
            s.extra = 1;
            run_shape(variant, &s);
        }
    }
}

/* All forms x dtypes x epilogues, on a shape with edges everywhere. */
static void combinations(enum tern_gemm_variant variant)
{
    for (int bits = 0; bits < 1 << 7; bits++) {
        for (int epilogue = 0; epilogue < 4; epilogue++) {
            struct shape s = {
                .m = variant >= TERN_GEMM_FEW_GENERIC ? 7 : 31, .n = 45, .k = 50, .extra = 3};
            s.trans_a = (bits & 1) != 0;
            s.trans_b = (bits & 2) != 0;
            s.a = (bits & 4) != 0 ? TERN_BF16 : TERN_F32;
            s.b = (bits & 8) != 0 ? TERN_BF16 : TERN_F32;
            s.d = (bits & 16) != 0 ? TERN_BF16 : TERN_F32;
            s.compute = (bits & 32) != 0 ? TERN_BF16 : TERN_F32;
            s.bias = (bits & 64) != 0 ? TERN_BF16 : TERN_F32;
            s.accumulate = epilogue == 3;
            s.epilogue = epilogue == 3 ? TERN_EPILOGUE_NONE : (enum tern_epilogue)epilogue;
            if (!(s.accumulate && s.d != TERN_F32)) {
                run_shape(variant, &s);
            }
        }
    }
}

/* More than the smallest workspace holds: several chunks of m, n and k, and f32 sums of a bf16
 * output. */
static void chunks(enum tern_gemm_variant variant)
{
    if (variant >= TERN_GEMM_FEW_GENERIC) {
        return;
    }
    for (int form = 0; form < 3; form++) {
        struct shape s = plain_shape(variant, 70, 160, 4200);
        s.d = form == 0 ? TERN_F32 : TERN_BF16;
        s.accumulate = form == 0;
        s.epilogue = form == 2 ? TERN_EPILOGUE_BIAS_GELU : TERN_EPILOGUE_NONE;
        s.trans_a = form == 1;
        s.extra = 5;
        run_shape(variant, &s);
    }
    struct shape wide = plain_shape(variant, 9, 9001, 65);
    run_shape(variant, &wide);
    wide.d = TERN_BF16;
    run_shape(variant, &wide);
    struct shape tall = plain_shape(variant, 9001, 9, 65);
    tall.trans_a = true;
    run_shape(variant, &tall);
}

static void test_edges(void **state)
{
    (void)state;
    each_variant(edges);
}

static void test_lengths(void **state)
{
    (void)state;
    each_variant(lengths);
}

static void test_combinations(void **state)
{
    (void)state;
    each_variant(combinations);
}

static void test_chunks(void **state)
{
    (void)state;
    each_variant(chunks);
}

/* d's bytes of one shape on a device. */
static struct matrix result(struct tern_cpu_device *device,
                            enum tern_gemm_variant variant,
                            const struct shape *s)
{
    struct problem p = problem_make(s);
    assert_int_equal(tern_gemm_run(device, &p.args, variant), TERN_OK);
    struct matrix d = p.d;
    p.d.block = NULL;
    problem_free(&p);
    return d;
}

static void same_bits(enum tern_gemm_variant variant)
{
    bool few = variant >= TERN_GEMM_FEW_GENERIC;
    static const struct tern_op_limits large = {.rows = 4096, .width = 4096, .vocab = 50257};
    for (int form = 0; form < 8; form++) {
        struct shape s = plain_shape(variant, few ? 5 : 203, 611, form < 4 ? 1000 : 4500);
        s.trans_a = (form & 1) != 0;
        s.trans_b = (form & 2) != 0;
        s.d = (form & 1) != 0 ? TERN_BF16 : TERN_F32;
        struct matrix want = {0};
        for (int threads = 1; threads <= 4; threads++) {
            struct tern_cpu_device *device = open_device(threads);
            if (threads == 4) { /* and with more workspace */
                size_t bytes;
                assert_int_equal(device->base.ops->prepare(&device->base, &large, &bytes), TERN_OK);
            }
            struct matrix got = result(device, variant, &s);
            close_device(device);
            if (threads == 1) {
                want = got;
                continue;
            }
            size_t bytes = (size_t)want.count * tern_dtype_bytes(want.dtype);
            int differs = memcmp((void *)(uintptr_t)dptr(&want).addr,
                                 (void *)(uintptr_t)dptr(&got).addr, bytes);
            if (differs != 0) {
                fail_msg("%s, form %d: %d threads give other bits than 1, seed %d",
                         tern_gemm_variant_name(variant), form, threads, SEED);
            }
            tern_free(got.block);
        }
        tern_free(want.block);
    }
}

static void test_same_bits_on_any_threads(void **state)
{
    (void)state;
    each_variant(same_bits);
}

/* gelu alone: a 1 x 1 factor, so that aux is exact and the error is gelu's. */
static void gelu_error(enum tern_gemm_variant variant)
{
    enum {
        COUNT = 4001
    };
    if (multiplies_bf16(variant)) {
        return; /* these finish by the AVX-512 function */
    }
    struct shape s = plain_shape(variant, 1, COUNT, 1);
    s.epilogue = TERN_EPILOGUE_BIAS_GELU;
    struct problem p = problem_make(&s);
    for (int j = 0; j < COUNT; j++) {
        put(&p.b, j, 0.0f);
        put(&p.bias, j, (float)(j - COUNT / 2) * (12.0f / (COUNT / 2)));
    }
    assert_int_equal(tern_gemm_run(g_device, &p.args, variant), TERN_OK);
    double worst = 0;
    for (int j = 0; j < COUNT; j++) {
        double x = get(&p.bias, j), want = gelu(x), got = get(&p.d, j);
        double u = 0.7978845608 * (x + 0.044715 * x * x * x);
        /* exp turns the rounding of its argument (of size 2u) into a relative error; below x times
         * the smallest normal number there are no relative errors. */
        double bound = ldexp(1, -24) * (8 + 8 * fabs(u)) * fabs(want) + ldexp(fabs(x), -126);
        assert_int_equal(get(&p.aux, j) == x, 1);
        if (!(fabs(got - want) <= bound)) {
            fail_at(&p, tern_gemm_variant_name(variant), 0, j, "gelu", got, want, bound);
        }
        double relative = want != 0 && fabs(x) < 4 ? fabs(got - want) / fabs(want) : 0;
        worst = relative > worst ? relative : worst;
    }
    print_message("%s: worst relative error of gelu in |x| < 4: %.2e\n",
                  tern_gemm_variant_name(variant), worst);
    problem_free(&p);
}

static void test_gelu_error(void **state)
{
    (void)state;
    each_variant(gelu_error);
}

/* NaN and infinity in a factor reach exactly their row. */
static void nan_spreads(enum tern_gemm_variant variant)
{
    struct shape s = plain_shape(variant, 6, 40, 33);
    struct problem p = problem_make(&s);
    put(&p.a, 2 * s.k + 7, NAN);
    assert_int_equal(tern_gemm_run(g_device, &p.args, variant), TERN_OK);
    for (int64_t i = 0; i < s.m; i++) {
        for (int64_t j = 0; j < s.n; j++) {
            assert_int_equal(isnan(get(&p.d, i * s.n + j)) != 0, i == 2);
        }
    }
    problem_free(&p);
}

static void test_nan_spreads(void **state)
{
    (void)state;
    each_variant(nan_spreads);
}

/* The packing loops of a level against those that define the format: AMX's can be checked without
 * AMX. */
static void check_packing(const struct tern_gemm_kernel *kernel, bool is_a)
{
    static const tern_gemm_pack_fn plain[] = {tern_gemm_pack_f32, tern_gemm_pack_pairs,
                                              tern_gemm_pack_rows};
    int width = is_a ? kernel->mr : kernel->nr, stride = is_a ? kernel->a_stride : kernel->b_stride;
    tern_gemm_pack_fn pack = is_a ? kernel->pack_a : kernel->pack_b;
    enum tern_gemm_format format = is_a ? kernel->a_format : kernel->b_format;
    enum {
        LONGEST = 70,
        LD = 75
    };
    static const int ks[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, LONGEST};
    struct matrix src[2] = {make_random(TERN_F32, LD * LD, 1, 5),
                            make_random(TERN_BF16, LD * LD, 1, 6)};
    char *got = tern_alloc("test", 4 * 96 * TERN_GEMM_LANES_MAX);
    char *want = tern_alloc("test", 4 * 96 * TERN_GEMM_LANES_MAX);
    put(&src[0], 3, NAN);
    for (size_t c = 0; c < sizeof ks / sizeof ks[0] * 8; c++) {
        struct tern_gemm_slice s = {.k = ks[c / 8], .round = (c & 1) != 0};
        const struct matrix *from = &src[c >> 1 & 1];
        s.src = (void *)(uintptr_t)dptr(from).addr;
        s.dtype = from->dtype;
        s.lane_stride = (c & 4) != 0 ? 1 : LD;
        s.k_stride = (c & 4) != 0 ? LD : 1;
        int64_t padded = (s.k + kernel->k_unit - 1) / kernel->k_unit * kernel->k_unit;
        size_t bytes = (size_t)(padded * stride) * (format == TERN_PANEL_F32 ? 4 : 2);
        for (s.lanes = 1; s.lanes <= width; s.lanes++) {
            memset(got, 0xee, bytes);
            memset(want, 0, bytes);
            plain[format](&s, stride, want);
            pack(&s, stride, got);
            if (memcmp(got, want, bytes) != 0) {
                fail_msg(
                    "format %d lanes %d of %d k %lld %s strides %lld %lld round %d: panels differ",
                    (int)format, s.lanes, width, (long long)s.k, tern_dtype_name(s.dtype),
                    (long long)s.lane_stride, (long long)s.k_stride, s.round);
            }
        }
    }
    tern_free(got);
    tern_free(want);
    tern_free(src[0].block);
    tern_free(src[1].block);
}

static void test_packing(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static const struct {
        const struct tern_gemm_kernel *kernel;
        enum tern_cpu_level needs;
    } rows[] = {
        {&tern_gemm_avx2, TERN_CPU_AVX2},
        {&tern_gemm_avx512, TERN_CPU_AVX512},
        {&tern_gemm_avx512_dot, TERN_CPU_AVX512_BF16},
        {&tern_gemm_amx, TERN_CPU_AVX512_BF16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (tern_cpu_level_found() >= rows[i].needs) {
            check_packing(rows[i].kernel, true);
            check_packing(rows[i].kernel, false);
        } else {
            print_message("not on this machine: packing of %s\n",
                          tern_cpu_level_name(rows[i].needs));
        }
    }
#endif
}

/* The op itself, at every level that the machine has. */
static void test_op_at_every_level(void **state)
{
    (void)state;
    for (int level = 0; level <= (int)tern_cpu_level_found(); level++) {
        setenv("TERN_CPU_ISA", tern_cpu_level_name((enum tern_cpu_level)level), 1);
        struct tern_cpu_device *device = open_device(2);
        unsetenv("TERN_CPU_ISA");
        static const int64_t ms[] = {1, 8, 9, 100};
        for (int i = 0; i < 16; i++) {
            enum tern_dtype dtype = (i & 4) != 0 ? TERN_BF16 : TERN_F32;
            struct shape s = {.m = ms[i % 4],
                              .n = 130,
                              .k = i < 8 ? 200 : 2000,
                              .a = dtype,
                              .b = dtype,
                              .d = dtype,
                              .compute = dtype,
                              .epilogue = TERN_EPILOGUE_BIAS};
            s.trans_b = i >= 8;
            struct problem p = problem_make(&s);
            assert_int_equal(tern_cpu_gemm(&device->base, &p.args), TERN_OK);
            for (int64_t e = 0; e < s.m * s.n; e++) {
                check_element(&p, tern_cpu_level_name((enum tern_cpu_level)level), e / s.n,
                              e % s.n);
            }
            problem_free(&p);
        }
        close_device(device);
    }
}

/* A few rows against a factor that does not fit into a small workspace still work. */
static void test_few_rows_beyond_the_workspace(void **state)
{
    (void)state;
    struct shape s = {.m = 8, .n = 3, .k = 90000, .extra = 1};
    struct problem p = problem_make(&s);
    assert_true((size_t)(s.m * s.k) * 4 > g_device->shared_bytes);
    assert_int_equal(tern_cpu_gemm(&g_device->base, &p.args), TERN_OK);
    for (int64_t e = 0; e < s.m * s.n; e++) {
        check_element(&p, "op", e / s.n, e % s.n);
    }
    problem_free(&p);
}

static int setup(void **state)
{
    (void)state;
    g_device = open_device(2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close_device(g_device);
    return tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_same_bits_on_any_threads),
        cmocka_unit_test(test_gelu_error),
        cmocka_unit_test(test_nan_spreads),
        cmocka_unit_test(test_op_at_every_level),
        cmocka_unit_test(test_few_rows_beyond_the_workspace),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
