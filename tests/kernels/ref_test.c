/* ref_test.c - the reference against numbers worked out apart from it: its forwards have no
 * other judge. */
#include "kernels/open.h"
#include "runtime/base/mem.h"

#include <math.h>
#include <stdio.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

static struct tern_device *g_ref;

static struct tern_dptr dptr(const void *p)
{
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

static void near(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * (1 + fabs(want)))) {
        fail_msg("%s is %.15g, expected %.15g", what, got, want);
    }
}

static void test_gelu_silu(void **state)
{
    (void)state;
    /* gelu_new(x) and silu(x) in 50 decimal digits. */
    const double x[4] = {1, -2, 0.5, 3};
    const double gelu[4] = {0.84119199060827665, -0.04540230591222498, 0.34571400982514394,
                            2.9963626079182268};
    const double silu[4] = {0.7310585786300049, -0.23840584404423512, 0.3112296656009273,
                            2.8577223804672998};
    double y[4];
    struct tern_act_args args = {
        .x = dptr(x), .y = dptr(y), .n = 4, .act = TERN_ACT_GELU_TANH, .dtype = TERN_F64};
    assert_int_equal(tern_op_act_fwd(g_ref, &args), TERN_OK);
    for (int i = 0; i < 4; i++) {
        near("gelu", y[i], gelu[i]);
    }
    args.act = TERN_ACT_SILU;
    assert_int_equal(tern_op_act_fwd(g_ref, &args), TERN_OK);
    for (int i = 0; i < 4; i++) {
        near("silu", y[i], silu[i]);
    }
}

static void test_norms(void **state)
{
    (void)state;
    /* mean 2.5, variance 1.25; mean square 7.5. */
    const double x[4] = {1, 2, 3, 4}, gamma[4] = {1, 2, 1, 1}, beta[4] = {0, 0, 0, 10};
    double out[4], mean = NAN, rstd = NAN;
    struct tern_norm_fwd_args args = {.x = dptr(x),
                                      .gamma = dptr(gamma),
                                      .beta = dptr(beta),
                                      .out = dptr(out),
                                      .mean = dptr(&mean),
                                      .rstd = dptr(&rstd),
                                      .n = 1,
                                      .c = 4,
                                      .kind = TERN_NORM_LAYER,
                                      .dtype = TERN_F64};
    assert_int_equal(tern_op_norm_fwd(g_ref, &args), TERN_OK);
    near("mean", mean, 2.5);
    near("rstd", rstd, 1 / sqrt(1.25));
    near("layer norm", out[0], -1.5 / sqrt(1.25));
    near("layer norm with gamma", out[1], -1 / sqrt(1.25));
    near("layer norm with beta", out[3], 10 + 1.5 / sqrt(1.25));
    args.kind = TERN_NORM_RMS;
    args.mean.addr = args.beta.addr = 0;
    args.eps = 0.5F;
    assert_int_equal(tern_op_norm_fwd(g_ref, &args), TERN_OK);
    near("rms rstd", rstd, 1 / sqrt(8));
    near("rms norm", out[3], 4 / sqrt(8));
}

static void test_attention(void **state)
{
    (void)state;
    /* One head of width 2, three tokens; scores of the last: ln 1, ln 2, ln 5 with scale 1. */
    const double q[6] = {0, 0, 0, 0, 1, 0};
    const double k[6] = {0, 9, log(2), 9, log(5), 9};
    const double v[6] = {8, 1, 16, 1, 24, 1};
    double out[6], lse[3];
    struct tern_attention_args args = {.q = dptr(q),
                                       .k = dptr(k),
                                       .v = dptr(v),
                                       .out = dptr(out),
                                       .lse = dptr(lse),
                                       .b = 1,
                                       .tq = 3,
                                       .tkv = 3,
                                       .h = 1,
                                       .kv_heads = 1,
                                       .d = 2,
                                       .q_row = 2,
                                       .kv_row = 2,
                                       .out_row = 2,
                                       .scale = 1,
                                       .dtype = TERN_F64};
    assert_int_equal(tern_op_attention_fwd(g_ref, &args), TERN_OK);
    near("first token", out[0], 8);
    near("second token", out[2], 12);
    near("third token", out[4], (8 + 2 * 16 + 5 * 24) / 8.0);
    near("weights sum to", out[5], 1);
    near("lse", lse[2], log(8));
    args.window = 2;
    assert_int_equal(tern_op_attention_fwd(g_ref, &args), TERN_OK);
    near("third token, window 2", out[4], (2 * 16 + 5 * 24) / 7.0);
    args.window = 0;
    args.tq = 1; /* the last query alone, after two cached tokens */
    args.q = dptr(q + 4);
    assert_int_equal(tern_op_attention_fwd(g_ref, &args), TERN_OK);
    near("decoded token", out[0], (8 + 2 * 16 + 5 * 24) / 8.0);
}

static void test_rope(void **state)
{
    (void)state;
    /* Half split: (x0, x2) turn by a right angle, (x1, x3) by 30 degrees. */
    double x[4] = {1, 2, 3, 4};
    const double cosines[2] = {0, sqrt(3) / 2}, sines[2] = {1, 0.5};
    struct tern_rope_args args = {.x = dptr(x),
                                  .cos = dptr(cosines),
                                  .sin = dptr(sines),
                                  .n = 1,
                                  .t = 1,
                                  .heads = 1,
                                  .d = 4,
                                  .x_row = 4,
                                  .dtype = TERN_F64};
    assert_int_equal(tern_op_rope(g_ref, &args), TERN_OK);
    near("x0", x[0], -3);
    near("x2", x[2], 1);
    near("x1", x[1], sqrt(3) - 2);
    near("x3", x[3], 2 * sqrt(3) + 1);
    args.backward = true;
    assert_int_equal(tern_op_rope(g_ref, &args), TERN_OK);
    near("x0 turned back", x[0], 1);
    near("x3 turned back", x[3], 4);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    /* Softmax of ln 1, ln 2, ln 5: 1/8, 2/8, 5/8; the second row is ignored. */
    double logits[6] = {0, log(2), log(5), 1, 2, 3}, nll[2];
    const int32_t targets[2] = {1, -1};
    struct tern_cross_entropy_args args = {.logits = dptr(logits),
                                           .targets = dptr(targets),
                                           .nll = dptr(nll),
                                           .rows = 2,
                                           .v = 3,
                                           .ld = 3,
                                           .backward = true,
                                           .dtype = TERN_F64};
    assert_int_equal(tern_op_cross_entropy(g_ref, &args), TERN_OK);
    near("nll", nll[0], log(4));
    near("nll of an ignored row", nll[1], 0);
    near("gradient of the target", logits[1], 0.25 - 1);
    near("gradient of another", logits[2], 0.625);
    near("gradient of an ignored row", logits[3], 0);
}

static void test_adamw(void **state)
{
    (void)state;
    /* First step from zero moments: m / bias1 = g, v / bias2 = g^2, so the step is the sign of
     * g. */
    float weight[2] = {2, -1}, grad[2] = {4, -8}, m[2] = {0, 0}, v[2] = {0, 0};
    float scale = 0.5F;
    tern_bf16 copy[2];
    struct tern_adamw_args args = {.weight = dptr(weight),
                                   .grad = dptr(grad),
                                   .exp_avg = dptr(m),
                                   .exp_avg_sq = dptr(v),
                                   .copy = dptr(copy),
                                   .copy_dtype = TERN_BF16,
                                   .n = 2,
                                   .lr = 0.125F,
                                   .beta1 = 0.5F,
                                   .beta2 = 0.75F,
                                   .weight_decay = 0.5F,
                                   .bias1 = 0.5F,
                                   .bias2 = 0.25F,
                                   .grad_scale = dptr(&scale)};
    assert_int_equal(tern_op_adamw(g_ref, &args), TERN_OK);
    near("weight", (double)weight[0], 2 - 0.125 * (1 + 0.5 * 2));
    near("weight of a negative gradient", (double)weight[1], -1 - 0.125 * (-1 - 0.5));
    near("exp_avg", (double)m[0], 1);
    near("exp_avg_sq", (double)v[1], 4);
    near("copy", (double)tern_bf16_to_f32(copy[0]), 1.75);
    float before[2] = {weight[0], m[0]};
    scale = NAN; /* a step that is to be skipped */
    assert_int_equal(tern_op_adamw(g_ref, &args), TERN_OK);
    assert_memory_equal(&weight[0], &before[0], sizeof before[0]);
    assert_memory_equal(&m[0], &before[1], sizeof before[1]);
}

static void test_clip(void **state)
{
    (void)state;
    double values[4] = {0.5, 16, 1.5, 9}, total = 0;
    int64_t order[4] = {3, 1, 0, 2};
    float scale = 0;
    struct tern_clip_args args = {.values = dptr(values),
                                  .order = dptr(order),
                                  .total = dptr(&total),
                                  .scale = dptr(&scale),
                                  .n = 4,
                                  .blocks = 2,
                                  .losses = 2,
                                  .count = 2,
                                  .max_norm = 1};
    assert_int_equal(tern_op_clip(g_ref, &args), TERN_OK);
    near("total", total, 25);
    near("scale", (double)scale, (double)(float)(1 / (2.5 + 1e-6) / 2));
    args.max_norm = 3; /* the norm is below it */
    assert_int_equal(tern_op_clip(g_ref, &args), TERN_OK);
    near("scale below the limit", (double)scale, 0.5);
    args.max_norm = 0;
    assert_int_equal(tern_op_clip(g_ref, &args), TERN_OK);
    near("scale without a limit", (double)scale, 0.5);
    values[2] = INFINITY; /* a loss */
    assert_int_equal(tern_op_clip(g_ref, &args), TERN_OK);
    assert_true(isnan(scale));
    near("total beside a bad loss", total, 25);
    values[2] = 0;
    values[1] = NAN; /* a gradient */
    assert_int_equal(tern_op_clip(g_ref, &args), TERN_OK);
    assert_true(isnan(scale) && isnan(total));
}

static void test_embedding(void **state)
{
    (void)state;
    const int32_t ids[4] = {2, 0, 2, 2};
    const double wte[3] = {10, 20, 30}, wpe[3] = {1, 2, 3}, dout[4] = {1, 2, 4, 8};
    double out[4], dwte[3] = {100, 100, 100}, dwpe[2] = {0, 0};
    struct tern_embed_fwd_args fwd = {.ids = dptr(ids),
                                      .wte = dptr(wte),
                                      .wpe = dptr(wpe),
                                      .out = dptr(out),
                                      .n = 4,
                                      .t = 2,
                                      .c = 1,
                                      .v = 3,
                                      .first_position = 1,
                                      .dtype = TERN_F64};
    assert_int_equal(tern_op_embed_fwd(g_ref, &fwd), TERN_OK);
    near("token 2 at position 1", out[0], 32);
    near("token 0 at position 2", out[1], 13);
    struct tern_embed_bwd_args bwd = {.ids = dptr(ids),
                                      .dout = dptr(dout),
                                      .dwte = dptr(dwte),
                                      .dwpe = dptr(dwpe),
                                      .n = 4,
                                      .t = 2,
                                      .c = 1,
                                      .v = 3,
                                      .dtype = TERN_F64};
    assert_int_equal(tern_op_embed_bwd(g_ref, &bwd), TERN_OK);
    near("gradient of token 2", dwte[2], 113);
    near("gradient of token 1", dwte[1], 100);
    near("gradient of position 1", dwpe[1], 10);
}

static void test_gemm(void **state)
{
    (void)state;
    /* (1 2; 3 4) (5 6; 7 8) = (19 22; 43 50). */
    const double a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, bias[2] = {0.5, -22};
    const double want[4][4] = {
        {19, 22, 43, 50}, {17, 23, 39, 53}, {26, 30, 38, 44}, {23, 31, 34, 46}};
    double d[4], aux[4];
    struct tern_gemm_args args = {.a = dptr(a),
                                  .b = dptr(b),
                                  .d = dptr(d),
                                  .bias = dptr(bias),
                                  .aux = dptr(aux),
                                  .m = 2,
                                  .n = 2,
                                  .k = 2,
                                  .lda = 2,
                                  .ldb = 2,
                                  .ldd = 2,
                                  .a_dtype = TERN_F64,
                                  .b_dtype = TERN_F64,
                                  .d_dtype = TERN_F64,
                                  .bias_dtype = TERN_F64,
                                  .compute = TERN_F64};
    for (int trans = 0; trans < 4; trans++) {
        args.trans_a = trans >> 1;
        args.trans_b = trans & 1;
        assert_int_equal(tern_op_gemm(g_ref, &args), TERN_OK);
        for (int i = 0; i < 4; i++) {
            near("product", d[i], want[trans][i]);
        }
    }
    args.trans_a = args.trans_b = false;
    args.accumulate = true;
    assert_int_equal(tern_op_gemm(g_ref, &args), TERN_OK);
    near("accumulated", d[3], want[3][3] + 50);
    args.accumulate = false;
    args.epilogue = TERN_EPILOGUE_BIAS_GELU;
    assert_int_equal(tern_op_gemm(g_ref, &args), TERN_OK);
    near("before gelu", aux[0], 19.5);
    near("gelu of 0", d[1], 0);
    args.epilogue = TERN_EPILOGUE_DGELU;
    aux[0] = aux[2] = 0; /* slope 1/2 */
    aux[1] = 30;         /* 1 */
    aux[3] = -30;        /* 0 */
    assert_int_equal(tern_op_gemm(g_ref, &args), TERN_OK);
    near("product times slope at 0", d[0], want[0][0] / 2);
    near("product times slope far up", d[1], want[0][1]);
    near("product times slope at 0", d[2], want[0][2] / 2);
    near("product times slope far down", d[3], 0);
}

/* Factors rounded to bf16 (7 fraction bits) before they are multiplied: 1 + 2^-9 becomes 1. */
static void test_gemm_rounding(void **state)
{
    (void)state;
    const float a = 1 + 0x1p-9F, b = 3;
    float d = NAN;
    struct tern_gemm_args args = {.a = dptr(&a),
                                  .b = dptr(&b),
                                  .d = dptr(&d),
                                  .m = 1,
                                  .n = 1,
                                  .k = 1,
                                  .lda = 1,
                                  .ldb = 1,
                                  .ldd = 1,
                                  .compute = TERN_BF16};
    assert_int_equal(tern_op_gemm(g_ref, &args), TERN_OK);
    near("rounded", (double)d, 3);
    args.compute = TERN_F32;
    assert_int_equal(tern_op_gemm(g_ref, &args), TERN_OK);
    near("as stored", (double)d, 3 * (1 + 0x1p-9));
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
    return tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu_silu),     cmocka_unit_test(test_norms),
        cmocka_unit_test(test_attention),     cmocka_unit_test(test_rope),
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_clip),          cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_gemm),          cmocka_unit_test(test_gemm_rounding),
    };
    return cmocka_run_group_tests_name("kernels_ref", tests, open_ref, close_ref);
}
