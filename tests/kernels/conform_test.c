/* conform_test.c - every backend, level and thread count against the reference, over the whole
 * table of cases. */
#include "kernels/tolerance.h"
#include "runtime/base/mem.h"
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
    STORAGES = 2,
    FAILURES_SHOWN = 20
};

static const enum tern_dtype g_storages[STORAGES] = {TERN_F32, TERN_BF16};

static struct tern_runners g_runners;
static int g_passed[TERN_OP_COUNT][STORAGES][TERN_RUNNERS_MAX];
static int g_refused[TERN_OP_COUNT][STORAGES][TERN_RUNNERS_MAX];
static int g_failures;
static bool g_is_bad_end; /* cmocka does not count what a group's teardown finds */

/* How far each op was from its bound, at worst: a bound that nothing comes near says little. */
static double g_worst[TERN_OP_COUNT][STORAGES];

static void report(const struct tern_instance *in,
                   const struct tern_runner *runner,
                   int threads,
                   const char *what)
{
    char name[TERN_CASE_NAME_BYTES];
    if (g_failures++ >= FAILURES_SHOWN) {
        return;
    }
    const char *dtype = tern_dtype_name(in->storage);
    tern_case_name(&in->c, name);
    print_error("%s, %s, %s, %d threads: %s\n", name, dtype, runner->name, threads, what);
    print_error(
        "    again: TERN_CASE='%s' TERN_DTYPE=%s TERN_BACKEND=%s%s%s kernels_conform_test\n", name,
        dtype, runner->backend,
        runner->isa == NULL ? "" : " TERN_CPU_ISA=", runner->isa == NULL ? "" : runner->isa);
}

/* The first element out of bounds, as a sentence; "" if none. rounds_weights: of the backend. */
static void compare(const struct tern_instance *in,
                    bool rounds_weights,
                    const struct tern_result *want,
                    const struct tern_result *got,
                    char problem_out[TERN_PROBLEM_BYTES])
{
    for (int i = 0; i < in->tensor_count; i++) {
        const struct tern_tensor *t = &in->tensors[i];
        bool is_result = t->role == TERN_ROLE_OUT || t->role == TERN_ROLE_IN_OUT;
        for (int64_t j = 0; is_result && j < tern_tensor_elements(t); j++) {
            double w = want->value[i][j], g = got->value[i][j];
            if (!tern_tensor_is_used(t, j) || w == g) {
                continue;
            }
            struct tern_tolerance_element element = {w,
                                                     t->magnitude[j],
                                                     t->rounded[j],
                                                     t->underflow[j],
                                                     rounds_weights ? t->terms[j] : 0,
                                                     rounds_weights ? t->squares[j] : 0};
            double bound = tern_tolerance_bound(in->c.op, t->dtype, t->length, &element);
            double share = bound > 0 ? fabs(g - w) / bound : INFINITY;
            double *worst = &g_worst[in->c.op][in->storage == TERN_BF16];
            *worst = share > *worst ? share : *worst;
            if (!(fabs(g - w) <= bound) && problem_out[0] == '\0') {
                snprintf(problem_out, TERN_PROBLEM_BYTES,
                         "%s[%lld][%lld] is %.9g, reference %.9g, off by %.3g, bound %.3g", t->name,
                         (long long)(j / t->stride), (long long)(j % t->stride), g, w, fabs(g - w),
                         bound);
            }
        }
    }
}

static void compare_bits(const struct tern_instance *in,
                         const struct tern_result *one,
                         const struct tern_result *more,
                         char problem_out[TERN_PROBLEM_BYTES])
{
    for (int i = 0; i < in->tensor_count && problem_out[0] == '\0'; i++) {
        size_t bytes = (size_t)tern_tensor_elements(&in->tensors[i]) * sizeof(double);
        if (memcmp(one->value[i], more->value[i], bytes) != 0) {
            snprintf(problem_out, TERN_PROBLEM_BYTES, "%s has other bits than with 1 thread",
                     in->tensors[i].name);
        }
    }
}

enum outcome {
    PASSED,
    FAILED,
    REFUSED /* by name: the backend lacks what the case needs */
};

static enum outcome run_on(struct tern_instance *in,
                           const struct tern_result *want,
                           struct tern_runner *runner)
{
    struct tern_result results[TERN_RUNNER_THREADS] = {0};
    char problem[TERN_PROBLEM_BYTES] = "";
    enum outcome outcome = PASSED;
    for (int i = 0; i < tern_runner_threads() && outcome == PASSED; i++) {
        tern_status status = tern_runner_prepare(runner, &in->limits);
        if (status == TERN_OK) {
            status = tern_instance_run(in, runner->devices[i], &results[i], problem);
        }
        if (status == TERN_ERR_UNSUPPORTED) {
            outcome = REFUSED;
            break;
        }
        if (status != TERN_OK) {
            snprintf(problem, sizeof problem, "%s: %.200s", tern_status_name(status),
                     tern_detail());
        } else if (problem[0] == '\0' && i == 0) {
            compare(in, runner->devices[0]->ops->rounds_weights, want, &results[0], problem);
        } else if (problem[0] == '\0') {
            compare_bits(in, &results[0], &results[i], problem);
        }
        if (problem[0] != '\0') {
            outcome = FAILED;
            report(in, runner, i + 1, problem);
        }
    }
    for (int i = 0; i < TERN_RUNNER_THREADS; i++) {
        tern_result_free(&results[i]);
    }
    return outcome;
}

/* TERN_ELEMENTS_MAX=60000 leaves out cases with more elements in all their tensors. */
static bool is_wanted(const struct tern_instance *in)
{
    const char *most = getenv("TERN_ELEMENTS_MAX");
    int64_t elements = 0;
    for (int i = 0; i < in->tensor_count; i++) {
        elements += tern_tensor_elements(&in->tensors[i]);
    }
    return most == NULL || elements <= strtoll(most, NULL, 10);
}

static void run_case(const struct tern_case *c, int storage)
{
    struct tern_instance in;
    struct tern_result want;
    char problem[TERN_PROBLEM_BYTES];
    tern_instance_build(&in, c, g_storages[storage]);
    if (!is_wanted(&in)) {
        tern_instance_fini(&in);
        return;
    }
    tern_status status = tern_instance_derive(&in, g_runners.ref);
    if (status == TERN_OK) {
        status = tern_instance_run(&in, g_runners.ref, &want, problem);
    }
    if (status != TERN_OK) {
        fail_msg("the reference refused a case: %s", tern_detail());
    }
    tern_instance_magnitudes(&in, &want);
    for (int i = 0; i < g_runners.count; i++) {
        if (g_runners.list[i].devices[0] != NULL) {
            enum outcome outcome = run_on(&in, &want, &g_runners.list[i]);
            g_passed[c->op][storage][i] += outcome == PASSED;
            g_refused[c->op][storage][i] += outcome == REFUSED;
        }
    }
    tern_result_free(&want);
    tern_instance_fini(&in);
}

static bool wants_storage(const struct tern_case *c, int storage)
{
    const char *only = getenv("TERN_DTYPE");
    return tern_case_has_storage(c, g_storages[storage]) &&
           (only == NULL || strcmp(only, tern_dtype_name(g_storages[storage])) == 0);
}

/* All cases of one op, or the one of TERN_CASE; TERN_OP=norm_bwd leaves the other ops out, TERN_FIRST=1 ends with the
 * first failure. */
static void test_op(void **state)
{
    enum tern_op op = (enum tern_op)(intptr_t)*state;
    const char *only = getenv("TERN_CASE"), *only_op = getenv("TERN_OP");
    if (only_op != NULL && strcmp(only_op, tern_op_name(op)) != 0) {
        skip();
    }
    struct tern_case one;
    int count = 1, before = g_failures, number = 0, ran = 0;
    const struct tern_case *cases = &one;
    if (only == NULL) {
        cases = tern_cases_build(&count);
    } else if (!tern_case_parse(only, &one)) {
        fail_msg("TERN_CASE='%s' is not the name of a case, such as 'act_fwd n=3 act=1'", only);
    } else if (one.op != op) {
        skip();
    }
    for (int i = 0; i < count && (g_failures == before || getenv("TERN_FIRST") == NULL); i++) {
        if (cases[i].op != op || cases[i].use != TERN_USE_TEST || !tern_case_is_drawn(number++)) {
            continue;
        }
        for (int s = 0; s < STORAGES; s++) {
            if (wants_storage(&cases[i], s)) {
                run_case(&cases[i], s);
                ran++;
            }
        }
    }
    assert_true(ran > 0 || getenv("TERN_DTYPE") != NULL);
    if (g_failures > before) {
        fail_msg("%d runs of %s failed", g_failures - before, tern_op_name(op));
    }
}

static void print_matrix(void)
{
    printf("\ncases passed, and refused by name (no), by op, storage dtype and backend/level "
           "(1, 2 and 3 threads each; CPU: %s)\n%-15s dtype",
           tern_cpu_features(), "op");
    for (int i = 0; i < g_runners.count; i++) {
        printf(" %15s", g_runners.list[i].name);
    }
    printf("   worst error / bound\n");
    for (int row = 0; row < TERN_OP_COUNT * STORAGES; row++) {
        int op = row / STORAGES, s = row % STORAGES;
        struct tern_case c = {.op = (enum tern_op)op};
        if (!tern_case_has_storage(&c, g_storages[s])) {
            continue;
        }
        printf("%-15s %-5s", tern_op_name(c.op), tern_dtype_name(g_storages[s]));
        for (int i = 0; i < g_runners.count; i++) {
            if (g_runners.list[i].devices[0] == NULL) {
                printf(" %15s", "-");
            } else if (g_refused[op][s][i] > 0) {
                printf(" %7d, %3d no", g_passed[op][s][i], g_refused[op][s][i]);
            } else {
                printf(" %15d", g_passed[op][s][i]);
            }
        }
        printf("   %.2g\n", g_worst[op][s]);
    }
    for (int i = 0; i < g_runners.count; i++) {
        if (g_runners.list[i].devices[0] == NULL) {
            printf("not tested here: %s: %s\n", g_runners.list[i].name, g_runners.list[i].reason);
        }
    }
}

static int open_all(void **state)
{
    (void)state;
    if (tern_runners_open(&g_runners) != TERN_OK) {
        print_error("%s\n", tern_detail());
        return -1;
    }
    return 0;
}

/* TERN_OP, TERN_CASE, TERN_DTYPE and what this machine lacks can leave nothing: that is no pass. */
static bool has_run(void)
{
    int64_t runs = 0;
    for (int at = 0; at < TERN_OP_COUNT * STORAGES * g_runners.count; at++) {
        int op = at / (STORAGES * g_runners.count), s = at / g_runners.count % STORAGES;
        runs += g_passed[op][s][at % g_runners.count] + g_refused[op][s][at % g_runners.count];
    }
    return runs > 0;
}

static int close_all(void **state)
{
    (void)state;
    bool is_empty = g_failures == 0 && !has_run();
    print_matrix();
    if (is_empty) {
        print_error("no case was run: is what TERN_OP, TERN_CASE or TERN_DTYPE names there?\n");
    }
    tern_runners_close(&g_runners);
    tern_cases_free();
    int64_t live = tern_mem_stats().live_blocks;
    if (live != 0) {
        print_error("%lld blocks are still allocated\n", (long long)live);
    }
    g_is_bad_end = live != 0 || is_empty;
    return g_is_bad_end ? -1 : 0;
}

int main(void)
{
    struct CMUnitTest tests[TERN_OP_COUNT];
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        tests[op] = (struct CMUnitTest){.name = tern_op_name((enum tern_op)op),
                                        .test_func = test_op,
                                        .initial_state = (void *)(intptr_t)op};
    }
    int failed = cmocka_run_group_tests_name("kernels_conform", tests, open_all, close_all);
    return failed != 0 || g_is_bad_end;
}
