/* attention.c - causal attention by its definition: every score is computed when it is needed,
 * none is kept. */
#include "kernels/ref/ref.h"

#include <math.h>

/* Where the parts of one head of one sequence start, in elements. */
struct place {
    int64_t q, kv, out, lse;
    int64_t row; /* of the sequence's first query, for starts */
};

static struct place place_of(const struct tern_attention_args *args, int64_t b, int64_t head)
{
    int64_t kv_head = head / (args->h / args->kv_heads);
    return (struct place){
        .q = b * args->q_batch + head * args->d,
        .kv = b * args->kv_batch + kv_head * args->d,
        .out = b * args->out_batch + head * args->d,
        .lse = (b * args->h + head) * args->tq,
        .row = b * args->tq,
    };
}

/* Keys [first, last] are what query t sees. */
static int64_t last_key(const struct tern_attention_args *args, int64_t t)
{
    return args->tkv - args->tq + t;
}

static int64_t first_key(const struct tern_attention_args *args, struct place at, int64_t t)
{
    int64_t first = last_key(args, t) - args->window + 1;
    int64_t start = tern_ref_start(args->starts, at.row + t);
    return args->window > 0 && first > start ? first : start;
}

static double dot(const struct tern_attention_args *args,
                  struct tern_dptr x,
                  int64_t x_at,
                  struct tern_dptr y,
                  int64_t y_at)
{
    double sum = 0;
    for (int64_t d = 0; d < args->d; d++) {
        sum += tern_ref_get(x, args->dtype, x_at + d) * tern_ref_get(y, args->dtype, y_at + d);
    }
    return sum;
}

/* tanh of the score by the cap; without a cap the score itself. */
static double inner(const struct tern_attention_args *args, struct place at, int64_t t, int64_t key)
{
    double x = (double)args->scale *
               dot(args, args->q, at.q + t * args->q_row, args->k, at.kv + key * args->kv_row);
    return args->softcap > 0 ? tanh(x / (double)args->softcap) : x;
}

static double score(const struct tern_attention_args *args, struct place at, int64_t t, int64_t key)
{
    return (args->softcap > 0 ? (double)args->softcap : 1) * inner(args, at, t, key);
}

static void add_scaled(double *sum,
                       const struct tern_attention_args *args,
                       double x,
                       struct tern_dptr y,
                       int64_t at)
{
    for (int64_t d = 0; d < args->d; d++) {
        sum[d] += x * tern_ref_get(y, args->dtype, at + d);
    }
}

static void store(const double *sum,
                  const struct tern_attention_args *args,
                  struct tern_dptr y,
                  int64_t at)
{
    for (int64_t d = 0; d < args->d; d++) {
        tern_ref_put(y, args->dtype, at + d, sum[d]);
    }
}

static void query_fwd(const struct tern_attention_args *args, struct place at, int64_t t)
{
    double max = -INFINITY, total = 0, sum[TERN_HEAD_WIDTH_MAX] = {0};
    for (int64_t key = first_key(args, at, t); key <= last_key(args, t); key++) {
        max = fmax(max, score(args, at, t, key));
    }
    for (int64_t key = first_key(args, at, t); key <= last_key(args, t); key++) {
        double weight = exp(score(args, at, t, key) - max);
        total += weight;
        add_scaled(sum, args, weight, args->v, at.kv + key * args->kv_row);
    }
    for (int64_t d = 0; d < args->d; d++) {
        sum[d] /= total;
    }
    store(sum, args, args->out, at.out + t * args->out_row);
    if (!tern_dptr_is_null(args->lse)) {
        tern_ref_put(args->lse, tern_ref_side(args->dtype), at.lse + t, max + log(total));
    }
}

tern_status tern_ref_attention_fwd(struct tern_device *device,
                                   const struct tern_attention_args *args)
{
    (void)device;
    for (int64_t b = 0; b < args->b; b++) {
        for (int64_t head = 0; head < args->h; head++) {
            for (int64_t t = 0; t < args->tq; t++) {
                query_fwd(args, place_of(args, b, head), t);
            }
        }
    }
    return TERN_OK;
}

/* p = exp(score - lse); ds = p * (dout . v - dout . out) * scale, and the slope of a softcap. */
static void pair_bwd(const struct tern_attention_args *args,
                     struct place at,
                     int64_t t,
                     int64_t key,
                     double *p_out,
                     double *ds_out)
{
    double lse = tern_ref_get(args->lse, tern_ref_side(args->dtype), at.lse + t);
    double p = exp(score(args, at, t, key) - lse);
    int64_t out = at.out + t * args->out_row;
    double dp = dot(args, args->dout, out, args->v, at.kv + key * args->kv_row);
    double delta = dot(args, args->dout, out, args->out, out);
    *p_out = p;
    *ds_out = p * (dp - delta) * (double)args->scale;
    if (args->softcap > 0) {
        double t_score = inner(args, at, t, key);
        *ds_out *= 1 - t_score * t_score;
    }
}

static void query_bwd(const struct tern_attention_args *args, struct place at, int64_t t)
{
    double dq[TERN_HEAD_WIDTH_MAX] = {0};
    for (int64_t key = first_key(args, at, t); key <= last_key(args, t); key++) {
        double p, ds;
        pair_bwd(args, at, t, key, &p, &ds);
        add_scaled(dq, args, ds, args->k, at.kv + key * args->kv_row);
    }
    store(dq, args, args->dq, at.q + t * args->q_row);
}

/* All query heads of the group add to one key's gradients. */
static void key_bwd(const struct tern_attention_args *args, int64_t b, int64_t kv_head, int64_t key)
{
    double dk[TERN_HEAD_WIDTH_MAX] = {0}, dv[TERN_HEAD_WIDTH_MAX] = {0};
    int64_t group = args->h / args->kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        struct place at = place_of(args, b, head);
        for (int64_t t = 0; t < args->tq; t++) {
            if (key < first_key(args, at, t) || key > last_key(args, t)) {
                continue;
            }
            double p, ds;
            pair_bwd(args, at, t, key, &p, &ds);
            add_scaled(dk, args, ds, args->q, at.q + t * args->q_row);
            add_scaled(dv, args, p, args->dout, at.out + t * args->out_row);
        }
    }
    int64_t to = b * args->kv_batch + key * args->kv_row + kv_head * args->d;
    store(dk, args, args->dk, to);
    store(dv, args, args->dv, to);
}

tern_status tern_ref_attention_bwd(struct tern_device *device,
                                   const struct tern_attention_args *args)
{
    (void)device;
    for (int64_t b = 0; b < args->b; b++) {
        for (int64_t head = 0; head < args->h; head++) {
            for (int64_t t = 0; t < args->tq; t++) {
                query_bwd(args, place_of(args, b, head), t);
            }
        }
        for (int64_t kv_head = 0; kv_head < args->kv_heads; kv_head++) {
            for (int64_t key = 0; key < args->tkv; key++) {
                key_bwd(args, b, kv_head, key);
            }
        }
    }
    return TERN_OK;
}
