/* gradient_test.c - every backward op of the reference, in double, against central differences
 * of its forward. */
#include "kernels/open.h"
#include "kernels/tolerance.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/kernels/instance.h"
#include "tests/kernels/runners.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

enum {
    PAIRS_MAX = 6,
    DENSE_DIRECTIONS = 2,
    DIRECTIONS = 8,
    SHOWN = 10
};

/* What belongs to what between a forward op and its backward op. */
struct relation {
    enum tern_op op;
    const char
        *outputs[PAIRS_MAX][2];       /* forward output, its gradient among the backward's inputs */
    const char *inputs[PAIRS_MAX][2]; /* forward input, its gradient among the backward's outputs */
};

static const struct relation g_relations[] = {
    {TERN_OP_EMBED_BWD, {{"out", "dout"}}, {{"wte", "dwte"}, {"wpe", "dwpe"}}},
    {TERN_OP_NORM_BWD,
     {{"out", "dy"}, {"sum", "dresidual"}},
     {{"x", "dx"}, {"residual", "dx"}, {"gamma", "dgamma"}, {"beta", "dbeta"}}},
    {TERN_OP_ATTENTION_BWD,
     {{"out", "dout"}},
     {{"q", "dq"}, {"k", "dk"}, {"v", "dv"}, {"qkv", "dqkv"}, {"kv", "dkv"}}},
    {TERN_OP_ROPE, {{"x", "x"}}, {{"x", "x"}}},
    {TERN_OP_ACT_BWD, {{"y", "dy"}}, {{"x", "dx"}}},
    {TERN_OP_GLU_BWD, {{"out", "dout"}}, {{"gate_up", "dgate_up"}}},
    {TERN_OP_CROSS_ENTROPY, {{"nll", NULL}}, {{"logits", "logits"}}},
};
enum {
    RELATION_COUNT = sizeof g_relations / sizeof g_relations[0]
};

static struct tern_device *g_ref;
static int g_failures, g_checks;
static double g_worst;

/* One case: both directions, in f64. */
struct probe {
    const struct relation *relation;
    struct tern_instance fwd, bwd;
    struct tern_result grads;
};

static void run(const struct tern_instance *in, struct tern_result *result)
{
    char problem[TERN_PROBLEM_BYTES];
    if (tern_instance_run(in, g_ref, result, problem) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    if (problem[0] != '\0') {
        fail_msg("%s", problem);
    }
}

/* In-place variants keep a gradient under the name of the operand it shares. */
static int find_or(const struct tern_instance *in, const char *name, const char *other)
{
    int i = tern_instance_find(in, name);
    return i >= 0 ? i : tern_instance_find(in, other);
}

/* The gradient with respect to one element of a forward output; 1 where the op defines it so. */
static double cotangent(const struct probe *probe, int pair, int64_t i)
{
    const char *name = probe->relation->outputs[pair][1];
    if (name == NULL) {
        return 1;
    }
    int t = find_or(&probe->bwd, name, strcmp(name, "dresidual") == 0 ? "dx" : name);
    return probe->bwd.tensors[t].value[i];
}

/* Sums over all outputs: of the change between two runs, of its absolute values, of the values
 * themselves. */
struct change {
    double sum, sum_abs, size;
};

static struct change measure(const struct probe *probe,
                             const struct tern_result *plus,
                             const struct tern_result *minus)
{
    struct change change = {0};
    for (int pair = 0; pair < PAIRS_MAX && probe->relation->outputs[pair][0] != NULL; pair++) {
        int o = tern_instance_find(&probe->fwd, probe->relation->outputs[pair][0]);
        for (int64_t i = 0; o >= 0 && i < tern_tensor_elements(&probe->fwd.tensors[o]); i++) {
            if (!tern_tensor_is_used(&probe->fwd.tensors[o], i)) {
                continue;
            }
            double weight = cotangent(probe, pair, i);
            double term = weight * (plus->value[o][i] - minus->value[o][i]);
            change.sum += term;
            change.sum_abs += fabs(term);
            change.size += fabs(weight * plus->value[o][i]);
        }
    }
    return change;
}

/* Direction number `which` in the elements of a tensor: first dense ones, then single elements. */
static double direction(const struct tern_tensor *t, int which, int64_t i)
{
    if (!tern_tensor_is_used(t, i)) {
        return 0;
    }
    uint64_t stream = tern_random_stream_id(TERN_STREAM_TEST, 77);
    if (which < DENSE_DIRECTIONS) {
        return tern_random_normal((uint64_t)which, stream, (uint64_t)i);
    }
    int64_t used = t->rows / t->batch_rows * t->used_rows * t->width;
    int64_t pick =
        (int64_t)(tern_random_u64((uint64_t)which, stream, (uint64_t)t->width) % (uint64_t)used);
    int64_t row = pick / t->width, batch = row / t->used_rows;
    return i == (batch * t->batch_rows + row % t->used_rows) * t->stride + pick % t->width;
}

/* Moves one input along a direction by `step`. */
static void shift(struct tern_tensor *t, const double *base, int which, double step)
{
    for (int64_t i = 0; i < tern_tensor_elements(t); i++) {
        t->value[i] = base[i] + step * direction(t, which, i);
    }
}

static void check_direction(struct probe *probe, int input, int grad, const double *base, int which)
{
    struct tern_tensor *x = &probe->fwd.tensors[input];
    const struct tern_tensor *dx = &probe->bwd.tensors[grad];
    struct tern_result plus, minus;
    double step = tern_tolerance_step(), analytic = 0, analytic_abs = 0;
    shift(x, base, which, step);
    run(&probe->fwd, &plus);
    shift(x, base, which, -step);
    run(&probe->fwd, &minus);
    memcpy(x->value, base, (size_t)tern_tensor_elements(x) * sizeof(double));
    bool adds = dx->role == TERN_ROLE_IN_OUT && dx->fill != TERN_FILL_NORMAL &&
                probe->bwd.c.op != TERN_OP_ROPE && probe->bwd.c.op != TERN_OP_CROSS_ENTROPY;
    for (int64_t i = 0; i < tern_tensor_elements(x); i++) {
        double d = direction(x, which, i);
        if (d != 0) {
            int64_t at = i / x->stride * dx->stride + i % x->stride;
            double term = d * (probe->grads.value[grad][at] - (adds ? dx->value[at] : 0));
            analytic += term;
            analytic_abs += fabs(term);
        }
    }
    struct change change = measure(probe, &plus, &minus);
    double numeric = change.sum / (2 * step);
    double noise = 4 * tern_dtype_epsilon(TERN_F64) * change.size / step;
    double bound = tern_tolerance_gradient() * (change.sum_abs / (2 * step) + analytic_abs) + noise;
    double share = fabs(numeric - analytic) / (bound > 0 ? bound : 1e-300);
    g_worst = share > g_worst ? share : g_worst;
    g_checks++;
    if (!(share <= 1) && g_failures++ < SHOWN) {
        char name[TERN_CASE_NAME_BYTES];
        tern_case_name(&probe->bwd.c, name);
        print_error("%s: direction %d of %s: backward %.12g, difference %.12g, bound %.3g\n"
                    "    again: TERN_CASE='%s' kernels_gradient_test\n",
                    name, which, x->name, analytic, numeric, bound, name);
    }
    tern_result_free(&plus);
    tern_result_free(&minus);
}

static void check_case(const struct relation *relation, const struct tern_case *c)
{
    struct probe probe = {.relation = relation};
    struct tern_case fwd;
    if (!tern_instance_forward_case(c, &fwd)) {
        return;
    }
    tern_instance_build(&probe.fwd, &fwd, TERN_F64);
    tern_instance_build(&probe.bwd, c, TERN_F64);
    if (tern_instance_derive(&probe.bwd, g_ref) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    run(&probe.bwd, &probe.grads);
    for (int pair = 0; pair < PAIRS_MAX && relation->inputs[pair][0] != NULL; pair++) {
        int input = tern_instance_find(&probe.fwd, relation->inputs[pair][0]);
        const char *name = relation->inputs[pair][1];
        bool may_share = c->op == TERN_OP_ACT_BWD || strcmp(name, "dx") == 0;
        int grad = find_or(&probe.bwd, name, may_share ? "dy" : name);
        if (input < 0 || grad < 0) {
            continue;
        }
        size_t bytes = (size_t)tern_tensor_elements(&probe.fwd.tensors[input]) * sizeof(double);
        double *base = tern_alloc("test", bytes);
        assert_non_null(base);
        memcpy(base, probe.fwd.tensors[input].value, bytes);
        for (int which = 0; which < DIRECTIONS; which++) {
            check_direction(&probe, input, grad, base, which);
        }
        tern_free(base);
    }
    tern_result_free(&probe.grads);
    tern_instance_fini(&probe.fwd);
    tern_instance_fini(&probe.bwd);
}

/* Differences need functions that are smooth over a step, and a forward that is quick in double. */
static bool is_suitable(const struct tern_case *c)
{
    bool is_attention = c->op == TERN_OP_ATTENTION_BWD;
    int64_t pairs = is_attention ? c->dim[ATT_TQ] * c->dim[ATT_TKV] * c->dim[ATT_H] : 0;
    /* more rows than these only add to dgamma and dbeta */
    bool is_tall = c->op == TERN_OP_NORM_BWD && c->dim[NORM_N] > 1000;
    bool is_smooth =
        c->data == TERN_DATA_NORMAL ||
        (c->op != TERN_OP_NORM_BWD && (c->data == TERN_DATA_EQUAL || c->data == TERN_DATA_ONE_HOT));
    return c->use == TERN_USE_TEST && is_smooth && pairs <= 10000 && !is_tall;
}

static void test_relation(void **state)
{
    const struct relation *relation = *state;
    const char *only = getenv("TERN_CASE");
    int count, failures = g_failures, checks = g_checks, number = 0;
    const struct tern_case *cases = tern_cases_build(&count);
    struct tern_case one;
    if (only != NULL) {
        assert_true(tern_case_parse(only, &one));
        cases = &one;
        count = 1;
    }
    for (int i = 0; i < count; i++) {
        if (cases[i].op == relation->op && is_suitable(&cases[i]) && tern_case_is_drawn(number++)) {
            check_case(relation, &cases[i]);
        }
    }
    if (g_failures > failures) {
        fail_msg("%d directions of %d failed", g_failures - failures, g_checks - checks);
    }
    assert_true(only != NULL || g_checks > checks);
}

/* A linear layer, y = act(x W + b), made of the ops that a model would call: the same
 * differences, by hand. */
struct linear {
    int64_t m, n, k;
    bool ta, tb;
    double *a, *b, *bias, *d, *aux, *w, *dpre, *da, *db, *dbias;
};

static struct tern_dptr dptr(const double *p)
{
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

static struct tern_gemm_args product(int64_t m, int64_t n, int64_t k, bool ta, bool tb)
{
    return (struct tern_gemm_args){.m = m,
                                   .n = n,
                                   .k = k,
                                   .lda = ta ? m : k,
                                   .ldb = tb ? k : n,
                                   .ldd = n,
                                   .trans_a = ta,
                                   .trans_b = tb,
                                   .a_dtype = TERN_F64,
                                   .b_dtype = TERN_F64,
                                   .d_dtype = TERN_F64,
                                   .bias_dtype = TERN_F64,
                                   .compute = TERN_F64};
}

static double linear_loss(const struct linear *l)
{
    struct tern_gemm_args args = product(l->m, l->n, l->k, l->ta, l->tb);
    args.a = dptr(l->a);
    args.b = dptr(l->b);
    args.d = dptr(l->d);
    args.bias = dptr(l->bias);
    args.aux = dptr(l->aux);
    args.epilogue = TERN_EPILOGUE_BIAS_GELU;
    assert_int_equal(tern_op_gemm(g_ref, &args), TERN_OK);
    double loss = 0;
    for (int64_t i = 0; i < l->m * l->n; i++) {
        loss += l->w[i] * l->d[i];
    }
    return loss;
}

static void run_gemm(struct tern_gemm_args args, const double *a, const double *b, double *d)
{
    args.a = dptr(a);
    args.b = dptr(b);
    args.d = dptr(d);
    assert_int_equal(tern_op_gemm(g_ref, &args), TERN_OK);
}

static void linear_backward(const struct linear *l)
{
    struct tern_act_args act = {.x = dptr(l->aux),
                                .dy = dptr(l->w),
                                .dx = dptr(l->dpre),
                                .n = l->m * l->n,
                                .act = TERN_ACT_GELU_TANH,
                                .dtype = TERN_F64};
    assert_int_equal(tern_op_act_bwd(g_ref, &act), TERN_OK);
    struct tern_bias_bwd_args bias = {.dy = dptr(l->dpre),
                                      .dbias = dptr(l->dbias),
                                      .rows = l->m,
                                      .n = l->n,
                                      .ldy = l->n,
                                      .dtype = TERN_F64};
    assert_int_equal(tern_op_bias_bwd(g_ref, &bias), TERN_OK);
    if (l->ta) {
        run_gemm(product(l->k, l->m, l->n, l->tb, true), l->b, l->dpre, l->da);
    } else {
        run_gemm(product(l->m, l->k, l->n, false, !l->tb), l->dpre, l->b, l->da);
    }
    if (l->tb) {
        run_gemm(product(l->n, l->k, l->m, true, l->ta), l->dpre, l->a, l->db);
    } else {
        run_gemm(product(l->k, l->n, l->m, !l->ta, false), l->a, l->dpre, l->db);
    }
}

static double *randoms(int64_t count, uint64_t seed)
{
    double *x = tern_alloc_zero("test", (size_t)count, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = tern_random_normal(seed, tern_random_stream_id(TERN_STREAM_TEST, 5), (uint64_t)i);
    }
    return x;
}

static void check_parameter(const struct linear *l, double *x, const double *dx, int64_t count)
{
    double step = tern_tolerance_step();
    for (int64_t i = 0; i < count; i += 1 + count / 9) {
        double base = x[i];
        x[i] = base + step;
        double plus = linear_loss(l);
        x[i] = base - step;
        double numeric = (plus - linear_loss(l)) / (2 * step);
        x[i] = base;
        /* The loss is a sum of m n terms of size 1 to 10: that is what cancels. */
        double noise = 40 * tern_dtype_epsilon(TERN_F64) * (double)(l->m * l->n) / step;
        double bound = tern_tolerance_gradient() * (fabs(numeric) + 1) + noise;
        if (!(fabs(numeric - dx[i]) <= bound)) {
            fail_msg(
                "m=%lld n=%lld k=%lld ta=%d tb=%d element %lld: backward %.12g, difference %.12g, "
                "bound %.3g",
                (long long)l->m, (long long)l->n, (long long)l->k, l->ta, l->tb, (long long)i,
                dx[i], numeric, bound);
        }
    }
}

static void test_linear(void **state)
{
    (void)state;
    for (int trans = 0; trans < 4; trans++) {
        struct linear l = {.m = 7, .n = 66, .k = 11, .ta = trans >> 1, .tb = trans & 1};
        double **const blocks[] = {&l.a, &l.b,    &l.bias, &l.d,  &l.aux,
                                   &l.w, &l.dpre, &l.da,   &l.db, &l.dbias};
        const int64_t counts[] = {l.m * l.k, l.k * l.n, l.n,       l.m * l.n, l.m * l.n,
                                  l.m * l.n, l.m * l.n, l.m * l.k, l.k * l.n, l.n};
        for (uint64_t i = 0; i < 10; i++) {
            *blocks[i] = randoms(counts[i], i);
        }
        (void)linear_loss(&l);
        linear_backward(&l);
        check_parameter(&l, l.a, l.da, l.m * l.k);
        check_parameter(&l, l.b, l.db, l.k * l.n);
        check_parameter(&l, l.bias, l.dbias, l.n);
        for (int i = 0; i < 10; i++) {
            tern_free(*blocks[i]);
        }
    }
}

static int open_ref(void **state)
{
    (void)state;
    return tern_device_open("ref", 1, &g_ref) == TERN_OK ? 0 : -1;
}

static int close_ref(void **state)
{
    (void)state;
    tern_device_close(g_ref);
    tern_cases_free();
    printf("%d directions checked, worst error / bound %.2g\n", g_checks, g_worst);
    return tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    struct CMUnitTest tests[RELATION_COUNT + 1];
    for (int i = 0; i < RELATION_COUNT; i++) {
        tests[i] = (struct CMUnitTest){.name = tern_op_name(g_relations[i].op),
                                       .test_func = test_relation,
                                       .initial_state = (void *)(uintptr_t)&g_relations[i]};
    }
    tests[RELATION_COUNT] = (struct CMUnitTest){.name = "linear", .test_func = test_linear};
    return cmocka_run_group_tests_name("kernels_gradient", tests, open_ref, close_ref);
}
