/* magnitude.c - what rounding errors of each output scale with: the sums of absolute values
 * behind it. The formulas follow those of kernels/ops.h with every term made positive, times the
 * condition of the functions on the way. */
#include "kernels/blocks.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "tests/kernels/build.h"

#include <math.h>
#include <string.h>

static const double EPSILON = 0x1p-23; /* fp32: what the arithmetic is done in */

struct view {
    const struct tern_instance *in;
    const struct tern_result *want;
};

static const double *input(const struct view *v, const char *name)
{
    int i = tern_instance_find(v->in, name);
    return i < 0 ? NULL : v->in->tensors[i].value;
}

static const double *wanted(const struct view *v, const char *name)
{
    int i = tern_instance_find(v->in, name);
    return i < 0 ? NULL : v->want->value[i];
}

static struct tern_tensor *output(struct tern_instance *in, const char *name)
{
    int i = tern_instance_find(in, name);
    return i < 0 ? NULL : &in->tensors[i];
}

static double at(const double *values, int64_t i)
{
    return values == NULL ? 0 : values[i];
}

/* Elements of weights `name` of dtype (rows of `width` elements, stored if dtype is), as numbers; owned. */
static double *weight_values(const struct view *v, const char *name, enum tern_dtype dtype)
{
    const struct tern_tensor *t = &v->in->tensors[tern_instance_find(v->in, name)];
    int64_t count = tern_tensor_elements(t);
    size_t block_bytes = tern_dtype_bytes(dtype);
    bool is_stored = tern_dtype_is_stored(dtype);
    int64_t n = is_stored ? count / (int64_t)block_bytes * tern_dtype_block_elements(dtype) : count;
    double *out = tern_alloc("test", (size_t)n * sizeof *out);
    char *bytes = tern_alloc("test", (size_t)count * sizeof(double));
    float *values = tern_alloc("test", (size_t)n * sizeof *values);
    TERN_CHECK(out != NULL && bytes != NULL && values != NULL);
    if (is_stored) {
        tern_tensor_encode(t, bytes);
        tern_blocks_decode(dtype, bytes, n, values);
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = is_stored ? (double)values[i] : t->value[i];
    }
    tern_free(bytes);
    tern_free(values);
    return out;
}

static double *zeros(const struct tern_tensor *t)
{
    double *block = tern_alloc_zero("test", (size_t)tern_tensor_elements(t), sizeof *block);
    TERN_CHECK(block != NULL);
    return block;
}

/* Without a formula of its own an output is its only term. */
static void default_magnitudes(struct tern_instance *in, const struct tern_result *want)
{
    for (int i = 0; i < in->tensor_count; i++) {
        struct tern_tensor *t = &in->tensors[i];
        t->magnitude = zeros(t);
        t->rounded = zeros(t);
        t->underflow = zeros(t);
        t->terms = zeros(t);
        t->squares = zeros(t);
        for (int64_t j = 0; j < tern_tensor_elements(t); j++) {
            t->magnitude[j] = fabs(want->value[i][j]);
        }
    }
}

static void embed_fwd(struct tern_instance *in, const struct view *v)
{
    const struct tern_embed_fwd_args *args = &in->args.embed_fwd;
    const double *ids = input(v, "ids"), *wpe = input(v, "wpe"), *starts = input(v, "starts");
    const double *places = input(v, "positions");
    double *wte = weight_values(v, "wte", args->wte_dtype != 0 ? args->wte_dtype : args->dtype);
    struct tern_tensor *out = output(in, "out");
    for (int64_t i = 0; i < args->n * args->c; i++) {
        int64_t n = i / args->c, c = i % args->c;
        int64_t position = places != NULL
                               ? (int64_t)places[n]
                               : args->first_position + n % args->t - (int64_t)at(starts, n);
        double scale = args->scale == 0 ? 1 : (double)args->scale;
        out->magnitude[i] = fabs(scale * wte[(int64_t)ids[n] * args->c + c]) +
                            fabs(at(wpe, position * args->c + c));
    }
    tern_free(wte);
}

static void embed_bwd(struct tern_instance *in, const struct view *v)
{
    const struct tern_embed_bwd_args *args = &in->args.embed_bwd;
    double scale = args->scale == 0 ? 1 : (double)args->scale;
    const double *ids = input(v, "ids"), *dout = input(v, "dout"), *starts = input(v, "starts");
    struct tern_tensor *dwte = output(in, "dwte"), *dwpe = output(in, "dwpe");
    struct tern_tensor *grads[2] = {dwte, dwpe};
    for (int g = 0; g < 2 && grads[g] != NULL; g++) {
        for (int64_t i = 0; i < tern_tensor_elements(grads[g]); i++) {
            grads[g]->magnitude[i] = fabs(grads[g]->value[i]);
        }
        for (int64_t i = 0; i < args->n * args->c; i++) {
            int64_t n = i / args->c;
            int64_t row = g == 0 ? (int64_t)ids[n] : n % args->t - (int64_t)at(starts, n);
            grads[g]->magnitude[row * args->c + i % args->c] +=
                fabs(dout[i]) * (g == 0 ? scale : 1);
        }
    }
}

/* Where norm number `norm` starts in rows of a stride (0: dense). */
static int64_t norm_start(int64_t norm, int64_t heads, int64_t c, int64_t row)
{
    heads = heads > 0 ? heads : 1;
    return norm / heads * (row > 0 ? row : heads * c) + norm % heads * c;
}

static void no_magnitude(struct tern_tensor *t)
{
    memset(t->magnitude, 0, (size_t)tern_tensor_elements(t) * sizeof(double));
}

/* One norm of c elements x; out and stats get its magnitudes. */
static void norm_fwd_one(struct tern_instance *in,
                         const struct view *v,
                         int64_t norm,
                         const double *x,
                         double *out)
{
    const struct tern_norm_fwd_args *args = &in->args.norm_fwd;
    const double *gamma = input(v, "gamma"), *beta = input(v, "beta");
    struct tern_tensor *rstd_out = output(in, "rstd"), *mean_out = output(in, "mean");
    int64_t c = args->c;
    double mean = 0, mean_abs = 0, square = 0;
    bool is_layer = args->kind == TERN_NORM_LAYER;
    for (int64_t i = 0; i < c && is_layer; i++) {
        mean_abs += fabs(x[i]) / (double)c;
        mean += x[i] / (double)c;
    }
    for (int64_t i = 0; i < c; i++) {
        square += pow(x[i] - mean, 2) / (double)c;
    }
    double rstd = 1 / sqrt(square + (double)args->eps);
    /* An error e of the mean adds e^2 to a variance taken by two passes. */
    double drift = 1 + EPSILON * sqrt((double)c) * pow(mean_abs * rstd, 2);
    for (int64_t i = 0; i < c; i++) {
        double scale = rstd * (fabs(gamma[i]) + fabs((double)args->gamma_offset));
        double size = fabs(x[i] - mean) * drift + (is_layer ? fabs(x[i]) : 0) + mean_abs;
        out[i] = size * scale + fabs(at(beta, i));
    }
    if (rstd_out != NULL) {
        rstd_out->magnitude[norm] = rstd * drift;
    }
    if (mean_out != NULL) {
        mean_out->magnitude[norm] = mean_abs;
    }
}

static void norm_fwd(struct tern_instance *in, const struct view *v)
{
    const struct tern_norm_fwd_args *args = &in->args.norm_fwd;
    bool has_residual = in->c.dim[NORM_RESIDUAL] != 0;
    struct tern_tensor *sum = output(in, "sum"), *copy = output(in, "copy"), *x = output(in, "x");
    const double *from = !has_residual ? input(v, "x") : wanted(v, sum != NULL ? "sum" : "x");
    struct tern_tensor *out = output(in, "out") != NULL ? output(in, "out") : x;
    int64_t x_row = has_residual ? 0 : args->x_row;
    for (int64_t norm = 0; norm < args->n * (args->heads > 0 ? args->heads : 1); norm++) {
        int64_t to = norm_start(norm, args->heads, args->c, args->out_row);
        norm_fwd_one(in, v, norm, from + norm_start(norm, args->heads, args->c, x_row),
                     out->magnitude + to);
    }
    if (copy != NULL) {
        no_magnitude(copy);
    } else {
        no_magnitude(sum != NULL ? sum : x);
    }
}

static void norm_bwd(struct tern_instance *in, const struct view *v)
{
    const struct tern_norm_bwd_args *args = &in->args.norm_bwd;
    const double *dy = input(v, "dy"), *x = input(v, "x"), *gamma = input(v, "gamma");
    const double *mean = input(v, "mean"), *rstd = input(v, "rstd");
    struct tern_tensor *dx = output(in, "dx") != NULL ? output(in, "dx") : output(in, "dy");
    struct tern_tensor *dgamma = output(in, "dgamma"), *dbeta = output(in, "dbeta");
    const double *dresidual = input(v, "dresidual");
    dresidual = dresidual == NULL && in->c.dim[NORM_RESIDUAL] ? dx->value : dresidual;
    int64_t c = args->c, norms = args->n * (args->heads > 0 ? args->heads : 1);
    for (int64_t i = 0; i < c; i++) {
        dgamma->magnitude[i] = args->accumulate ? fabs(dgamma->value[i]) : 0;
        if (dbeta != NULL) {
            dbeta->magnitude[i] = args->accumulate ? fabs(dbeta->value[i]) : 0;
        }
    }
    for (int64_t n = 0; n < norms; n++) {
        int64_t x_at = norm_start(n, args->heads, c, args->x_row);
        int64_t y_at = norm_start(n, args->heads, c, args->dy_row);
        double g_sum = 0, gh_sum = 0;
        for (int64_t i = 0; i < c; i++) {
            double hat = fabs(x[x_at + i] - at(mean, n)) * rstd[n], y = fabs(dy[y_at + i]);
            double g = y * (fabs(gamma[i]) + fabs((double)args->gamma_offset));
            g_sum += g / (double)c;
            gh_sum += g * hat / (double)c;
            dgamma->magnitude[i] += y * hat;
            if (dbeta != NULL) {
                dbeta->magnitude[i] += y;
            }
        }
        g_sum = args->kind == TERN_NORM_LAYER ? g_sum : 0;
        for (int64_t i = 0; i < c; i++) {
            double hat = fabs(x[x_at + i] - at(mean, n)) * rstd[n];
            double g = fabs(dy[y_at + i]) * (fabs(gamma[i]) + fabs((double)args->gamma_offset));
            dx->magnitude[y_at + i] =
                rstd[n] * (g + g_sum + hat * gh_sum) + fabs(at(dresidual, y_at + i));
        }
    }
}

static double slope_magnitude(enum tern_act act, double x)
{
    if (act == TERN_ACT_SILU) {
        return (1 + fabs(x)) / (1 + exp(-x)) * (x < 0 ? 1 + fabs(x) : 1);
    }
    /* Beyond 8, 1 - tanh^2 is 0 in fp32 and in double; below, it carries the rounding of tanh. */
    double inner = fabs(x) < 8 ? 0.5 * fabs(x) * 0.8 * (1 + 0.134145 * x * x) : 0;
    return 1.5 + inner;
}

/* What a factor of a product is rounded to; rows that become codes are taken as they are. */
static enum tern_dtype rounded_to(const struct tern_gemm_args *args)
{
    return args->compute == TERN_I8 ? TERN_F32 : args->compute;
}

static void gemm(struct tern_instance *in, const struct view *v)
{
    const struct tern_gemm_args *args = &in->args.gemm;
    const double *a = input(v, "a"), *bias = input(v, "bias");
    double *b = weight_values(v, "b", args->b_dtype);
    struct tern_tensor *d = output(in, "d"), *aux = output(in, "aux");
    bool is_slope = args->epilogue == TERN_EPILOGUE_DGELU;
    const double *pre = is_slope ? input(v, "aux") : wanted(v, "aux");
    for (int64_t i = 0; i < args->m; i++) {
        for (int64_t j = 0; j < args->n; j++) {
            int64_t to = i * args->ldd + j;
            double sum = fabs(at(bias, j)) + (args->accumulate ? fabs(d->value[to]) : 0);
            double product = 0;
            for (int64_t p = 0; p < args->k; p++) {
                double x = args->trans_a ? a[p * args->lda + i] : a[i * args->lda + p];
                double y = args->trans_b ? b[j * args->ldb + p] : b[p * args->ldb + j];
                double term =
                    tern_value_round(rounded_to(args), x) * tern_value_round(rounded_to(args), y);
                sum += fabs(term);
                product += term;
            }
            d->magnitude[to] = sum;
            if (is_slope) { /* at most 1.13; and as many steps as act_bwd has */
                d->magnitude[to] =
                    1.13 * sum + 6 * fabs(product) * slope_magnitude(TERN_ACT_GELU_TANH, pre[to]);
                d->rounded[to] = 1.13 * fabs(product);
                d->underflow[to] = fabs(product) * (1 + fabs(pre[to]));
            } else if (aux != NULL) { /* the slope of GELU is at most 1.13 */
                aux->magnitude[to] = sum;
                d->magnitude[to] = 1.13 * sum + fabs(pre[to]);
                d->rounded[to] = 1.13 * fabs(pre[to]);
            }
        }
    }
    tern_free(b);
}

static void bias_bwd(struct tern_instance *in, const struct view *v)
{
    const struct tern_bias_bwd_args *args = &in->args.bias_bwd;
    const double *dy = input(v, "dy");
    struct tern_tensor *dbias = output(in, "dbias");
    for (int64_t j = 0; j < args->n; j++) {
        dbias->magnitude[j] = args->accumulate ? fabs(dbias->value[j]) : 0;
        for (int64_t i = 0; i < args->rows; i++) {
            dbias->magnitude[j] += fabs(dy[i * args->ldy + j]);
        }
    }
}

static void gemm_bias_bwd(struct tern_instance *in, const struct view *v)
{
    const struct tern_gemm_args *args = &in->args.gemm;
    bool of_a = in->args.gemm_bias_bwd.is_of_a;
    const double *dy = input(v, of_a ? "a" : "b");
    int64_t stride = of_a ? args->lda : args->ldb;
    struct tern_tensor *dbias = output(in, "dbias");
    gemm(in, v);
    for (int64_t j = 0; j < (of_a ? args->m : args->n); j++) {
        dbias->magnitude[j] = args->accumulate ? fabs(dbias->value[j]) : 0;
        for (int64_t i = 0; i < args->k; i++) {
            dbias->magnitude[j] += fabs(dy[i * stride + j]);
        }
    }
}

/* Where one pointer of an attention argument struct points to. */
struct part {
    struct tern_tensor *tensor;
    int64_t element;
};

static struct part part_of(struct tern_instance *in, size_t offset)
{
    for (int i = 0; i < in->slot_count; i++) {
        if (in->slots[i].offset == offset) {
            return (struct part){&in->tensors[in->slots[i].tensor], in->slots[i].element};
        }
    }
    return (struct part){NULL, 0};
}

#define PART(in, field) part_of(in, offsetof(union tern_args, attention.field))

struct attention_view {
    const struct tern_attention_args *args;
    struct part q, k, v, out, lse, dout, dq, dk, dv;
    const double *lse_value, *starts;
};

static double dot_abs(struct part x, int64_t x_at, struct part y, int64_t y_at, int64_t d)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++) {
        sum += fabs(x.tensor->value[x.element + x_at + i] * y.tensor->value[y.element + y_at + i]);
    }
    return sum;
}

static double dot(struct part x, int64_t x_at, struct part y, int64_t y_at, int64_t d)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++) {
        sum += x.tensor->value[x.element + x_at + i] * y.tensor->value[y.element + y_at + i];
    }
    return sum;
}

/* A pair's weight, or its gradient: its value, and the size that its fp32 errors scale with. */
struct weight {
    double value, size;
};

static void add_abs(struct part to,
                    int64_t to_at,
                    struct weight factor,
                    struct part x,
                    int64_t x_at,
                    int64_t d)
{
    struct tern_tensor *t = to.tensor;
    bool is_rounded = t->dtype == TERN_BF16; /* storage in f32 rounds no factors */
    for (int64_t i = 0; i < d; i++) {
        double y = fabs(x.tensor->value[x.element + x_at + i]);
        int64_t at = to.element + to_at + i;
        t->magnitude[at] += factor.size * y;
        t->terms[at] += is_rounded ? fabs(factor.value) * y : 0;
        t->squares[at] += is_rounded ? pow(factor.value * y, 2) : 0;
    }
}

/* A score, through the cap if there is one. */
static double score_of(const struct attention_view *a, int64_t q, int64_t kv)
{
    double cap = (double)a->args->softcap;
    double score = (double)a->args->scale * dot(a->q, q, a->k, kv, a->args->d);
    return cap > 0 ? cap * tanh(score / cap) : score;
}

static double score_slope(const struct attention_view *a, double score)
{
    return a->args->softcap > 0 ? 1 - pow(score / (double)a->args->softcap, 2) : 1;
}

/* The log-sum of a query whose forward did not keep it. */
static double log_sum(const struct attention_view *a,
                      int64_t q,
                      int64_t kv0,
                      int64_t first,
                      int64_t last)
{
    double max = -INFINITY, total = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t key = first; key <= last; key++) {
            int64_t kv = kv0 + key * a->args->kv_row;
            double score = score_of(a, q, kv);
            max = pass == 0 ? fmax(max, score) : max;
            total += pass == 0 ? 0 : exp(score - max);
        }
    }
    return max + log(total);
}

/* One query of one head: every pair adds to what it contributes to. */
static void attention_query(struct attention_view *a, int64_t b, int64_t head, int64_t t, bool bwd)
{
    const struct tern_attention_args *args = a->args;
    int64_t d = args->d, row = (b * args->h + head) * args->tq + t;
    int64_t q = b * args->q_batch + t * args->q_row + head * d;
    int64_t out = b * args->out_batch + t * args->out_row + head * d;
    int64_t kv0 = b * args->kv_batch + head / (args->h / args->kv_heads) * d;
    int64_t last = args->tkv - args->tq + t;
    int64_t start = (int64_t)at(a->starts, b * args->tq + t), window = last - args->window + 1;
    int64_t first = args->window > 0 && window > start ? window : start;
    double lse = a->lse_value != NULL ? a->lse_value[row] : log_sum(a, q, kv0, first, last);
    double scale = (double)args->scale, size = 0;
    double delta_abs = bwd ? dot_abs(a->dout, out, a->out, out, d) : 0;
    double delta = bwd ? dot(a->dout, out, a->out, out, d) : 0;
    for (int64_t key = first; key <= last; key++) {
        int64_t kv = kv0 + key * args->kv_row;
        double score_abs = scale * dot_abs(a->q, q, a->k, kv, d);
        size = score_abs > size ? score_abs : size;
    }
    /* exp turns absolute errors of scores into relative ones. */
    double condition = 1 + size + (bwd ? fabs(lse) : 0);
    for (int64_t key = first; key <= last; key++) {
        int64_t kv = kv0 + key * args->kv_row;
        double score = score_of(a, q, kv);
        double weight = exp(score - lse);
        struct weight p = {weight, weight * condition};
        if (!bwd) {
            add_abs(a->out, out, p, a->v, kv, d);
            continue;
        }
        /* the slope of a cap may be small, its rounding is not */
        struct weight ds = {
            weight * (dot(a->dout, out, a->v, kv, d) - delta) * scale * score_slope(a, score),
            p.size * (dot_abs(a->dout, out, a->v, kv, d) + delta_abs) * fabs(scale)};
        add_abs(a->dq, q, ds, a->k, kv, d);
        add_abs(a->dk, kv, ds, a->q, q, d);
        add_abs(a->dv, kv, p, a->dout, out, d);
    }
    if (!bwd && a->lse.tensor != NULL) {
        a->lse.tensor->magnitude[row] = fabs(lse) + condition;
    }
}

static void attention(struct tern_instance *in, const struct view *v)
{
    bool bwd = in->c.op == TERN_OP_ATTENTION_BWD;
    struct attention_view a = {.args = &in->args.attention,
                               .q = PART(in, q),
                               .k = PART(in, k),
                               .v = PART(in, v),
                               .out = PART(in, out),
                               .lse = PART(in, lse),
                               .dout = PART(in, dout),
                               .dq = PART(in, dq),
                               .dk = PART(in, dk),
                               .dv = PART(in, dv)};
    a.lse_value = wanted(v, "lse");
    a.starts = input(v, "starts");
    struct tern_tensor *grads[4] = {a.dq.tensor, a.dk.tensor, a.dv.tensor, a.out.tensor};
    for (int i = bwd ? 0 : 3; i < (bwd ? 3 : 4); i++) {
        memset(grads[i]->magnitude, 0, (size_t)tern_tensor_elements(grads[i]) * sizeof(double));
    }
    for (int64_t row = 0; row < a.args->b * a.args->h * a.args->tq; row++) {
        int64_t b = row / (a.args->h * a.args->tq), head = row / a.args->tq % a.args->h;
        attention_query(&a, b, head, row % a.args->tq, bwd);
    }
}

static void rope(struct tern_instance *in, const struct view *v)
{
    const struct tern_rope_args *args = &in->args.rope;
    const double *cosines = input(v, "cos"), *sines = input(v, "sin");
    const double *starts = input(v, "starts"), *places = input(v, "positions");
    struct tern_tensor *x = output(in, "x");
    int64_t half = (args->rotary_d > 0 ? args->rotary_d : args->d) / 2;
    for (int64_t i = 0; i < tern_tensor_elements(x); i++) {
        x->magnitude[i] = 0; /* what no position turns stays as it was */
    }
    for (int64_t i = 0; i < args->n * args->heads * half; i++) {
        int64_t n = i / (args->heads * half), head = i / half % args->heads, j = i % half;
        int64_t lo = n * args->x_row + head * args->d + j;
        int64_t position = places != NULL
                               ? (int64_t)places[n]
                               : args->first_position + n % args->t - (int64_t)at(starts, n);
        int64_t table = position * half + j;
        double c = fabs(cosines[table]), s = fabs(sines[table]);
        double a = fabs(x->value[lo]), b = fabs(x->value[lo + half]);
        x->magnitude[lo] = a * c + b * s;
        x->magnitude[lo + half] = b * c + a * s;
    }
}

/* Of act(x): GELU's 1 + tanh cancels for negative x, SiLU's exp has condition |x|. */
static double act_magnitude(enum tern_act act, double x)
{
    return act == TERN_ACT_GELU_TANH ? fabs(x) : fabs(x) / (1 + exp(-x)) * (1 + fabs(x));
}

static void act_bwd(struct tern_instance *in, const struct view *v)
{
    const double *x = input(v, "x"), *dy = input(v, "dy");
    struct tern_tensor *dx = output(in, "dx") != NULL ? output(in, "dx") : output(in, "dy");
    for (int64_t i = 0; i < in->args.act.n; i++) {
        dx->magnitude[i] = fabs(dy[i]) * slope_magnitude(in->args.act.act, x[i]);
        dx->underflow[i] = fabs(dy[i]) * (1 + fabs(x[i]));
    }
}

static void act_fwd(struct tern_instance *in, const struct view *v)
{
    const double *x = input(v, "x");
    struct tern_tensor *y = output(in, "y");
    for (int64_t i = 0; i < in->args.act.n; i++) {
        y->magnitude[i] = act_magnitude(in->args.act.act, x[i]);
        y->underflow[i] = fabs(x[i]);
    }
}

static void glu(struct tern_instance *in, const struct view *v)
{
    const struct tern_glu_args *args = &in->args.glu;
    const double *gate_up = input(v, "gate_up"), *dout = input(v, "dout");
    struct tern_tensor *out = output(in, "out"), *dgate_up = output(in, "dgate_up");
    for (int64_t i = 0; i < args->n * args->f; i++) {
        int64_t lo = i / args->f * 2 * args->f + i % args->f;
        double gate = gate_up[lo], up = fabs(gate_up[lo + args->f]);
        if (out != NULL && dout == NULL) {
            out->magnitude[i] = act_magnitude(args->act, gate) * up;
            out->underflow[i] = fabs(gate) * up;
        } else {
            dgate_up->magnitude[lo] = fabs(dout[i]) * up * slope_magnitude(args->act, gate);
            dgate_up->magnitude[lo + args->f] = fabs(dout[i]) * act_magnitude(args->act, gate);
            dgate_up->underflow[lo] = fabs(dout[i]) * up * (1 + fabs(gate));
            dgate_up->underflow[lo + args->f] = fabs(dout[i] * gate);
        }
    }
}

/* The addition itself is only rounded once. */
static void add(struct tern_instance *in, const struct view *v)
{
    const struct tern_add_args *args = &in->args.add;
    const double *b = input(v, "b");
    static const char *const names[] = {"y", "a", "b"};
    struct tern_tensor *y = output(in, names[in->c.dim[ADD_ALIAS]]);
    for (int64_t i = 0; i < args->n; i++) {
        y->magnitude[i] = args->scale != 0 ? fabs((double)args->scale * b[i]) : 0;
    }
}

static double capped(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

static void cross_entropy(struct tern_instance *in, const struct view *v)
{
    const struct tern_cross_entropy_args *args = &in->args.cross_entropy;
    const double *logits = input(v, "logits"), *targets = input(v, "targets");
    double cap = (double)args->softcap;
    struct tern_tensor *half = output(in, "dlogits"), *nll = output(in, "nll");
    struct tern_tensor *gradient = half != NULL ? half : output(in, "logits");
    int64_t stride = half != NULL ? args->ldd : args->ld;
    for (int64_t r = 0; r < args->rows; r++) {
        double max = -INFINITY, total = 0;
        const double *row = logits + r * args->ld;
        for (int64_t i = 0; i < args->v; i++) {
            max = fmax(max, capped(row[i], cap));
        }
        for (int64_t i = 0; i < args->v; i++) {
            total += exp(capped(row[i], cap) - max);
        }
        bool counts = targets[r] >= 0 && targets[r] < (double)args->v;
        double target = counts ? capped(row[(int64_t)targets[r]], cap) : 0;
        nll->magnitude[r] = counts ? fabs(max) + log(total) + fabs(target) + 1 : 0;
        for (int64_t i = 0; i < args->v; i++) {
            double x = capped(row[i], cap);
            /* a capped logit is rounded itself; the slope of the cap may be small, its rounding is not */
            double condition = 1 + max - x + (cap > 0 ? fabs(max) + fabs(x) : 0);
            double p = exp(x - max) / total * condition;
            bool is_target = (double)i == targets[r];
            gradient->magnitude[r * stride + i] = counts ? p + (is_target ? 1 : 0) : 0;
        }
    }
}

static void adamw(struct tern_instance *in, const struct view *v)
{
    const struct tern_adamw_args *args = &in->args.adamw;
    const double *grad = input(v, "grad"), *m = input(v, "exp_avg"), *s = input(v, "exp_avg_sq");
    const double *w = input(v, "weight"), *s_new = wanted(v, "exp_avg_sq");
    double scale = input(v, "grad_scale")[0];
    struct tern_tensor *copy = output(in, "copy");
    for (int64_t i = 0; i < args->n; i++) {
        double g = fabs(grad[i] * scale);
        double m_size = (double)args->beta1 * fabs(m[i]) + (1 - (double)args->beta1) * g;
        double s_size = (double)args->beta2 * s[i] + (1 - (double)args->beta2) * g * g;
        double root = sqrt(s_new[i] / (double)args->bias2) + (double)args->eps;
        double step = m_size / (double)args->bias1 / root;
        double size =
            fabs(w[i]) + (double)args->lr * (step + (double)args->weight_decay * fabs(w[i]));
        output(in, "exp_avg")->magnitude[i] = m_size;
        output(in, "exp_avg_sq")->magnitude[i] = s_size;
        output(in, "weight")->magnitude[i] = size;
        if (copy != NULL) {
            copy->magnitude[i] = size;
        }
    }
}

static void moe_route(struct tern_instance *in, const struct view *v)
{
    const struct tern_moe_route_args *args = &in->args.moe_route;
    const double *logits = input(v, "logits"), *experts = wanted(v, "experts");
    struct tern_tensor *weights = output(in, "weights");
    for (int64_t i = 0; i < args->n * args->top_k; i++) {
        const double *row = logits + i / args->top_k * args->expert_count;
        double most = row[(int64_t)experts[i / args->top_k * args->top_k]], range = 0;
        for (int64_t e = 0; e < args->expert_count; e++) {
            range = fmax(range, fmin(most - row[e], 100)); /* beyond that nothing is left */
        }
        weights->magnitude[i] *= 1 + range;
        weights->underflow[i] = 1;
    }
}

static void moe_combine(struct tern_instance *in, const struct view *v)
{
    const struct tern_moe_combine_args *args = &in->args.moe_combine;
    const double *x = input(v, "x"), *weights = input(v, "weights"), *pairs = input(v, "pairs");
    struct tern_tensor *out = output(in, "out");
    for (int64_t i = 0; i < args->n * args->c; i++) {
        out->magnitude[i] = 0;
        for (int64_t j = 0; j < args->top_k; j++) {
            int64_t pair = i / args->c * args->top_k + j;
            out->magnitude[i] +=
                fabs(weights[pair] * x[(int64_t)pairs[pair] * args->c + i % args->c]);
        }
    }
}

void tern_instance_magnitudes(struct tern_instance *in, const struct tern_result *want)
{
    static void (*const formulas[TERN_OP_COUNT])(struct tern_instance *, const struct view *) = {
        [TERN_OP_EMBED_FWD] = embed_fwd,
        [TERN_OP_EMBED_BWD] = embed_bwd,
        [TERN_OP_NORM_FWD] = norm_fwd,
        [TERN_OP_NORM_BWD] = norm_bwd,
        [TERN_OP_GEMM] = gemm,
        [TERN_OP_BIAS_BWD] = bias_bwd,
        [TERN_OP_GEMM_BIAS_BWD] = gemm_bias_bwd,
        [TERN_OP_ATTENTION_FWD] = attention,
        [TERN_OP_ATTENTION_BWD] = attention,
        [TERN_OP_ROPE] = rope,
        [TERN_OP_ACT_FWD] = act_fwd,
        [TERN_OP_ACT_BWD] = act_bwd,
        [TERN_OP_ADD] = add,
        [TERN_OP_GLU_FWD] = glu,
        [TERN_OP_GLU_BWD] = glu,
        [TERN_OP_CROSS_ENTROPY] = cross_entropy,
        [TERN_OP_ADAMW] = adamw,
        [TERN_OP_MOE_ROUTE] = moe_route,
        [TERN_OP_MOE_COMBINE] = moe_combine,
    };
    struct view v = {in, want};
    default_magnitudes(in, want);
    if (in->c.op == TERN_OP_KV_WRITE || in->c.op == TERN_OP_PAGED_ATTENTION) {
        tern_paged_magnitudes(in);
    }
    if (formulas[in->c.op] != NULL) {
        formulas[in->c.op](in, &v);
    }
}
