/* attention_bwd.c - gradients of causal attention, with P recomputed from lse: memory linear in
 * T, no atomics.
 *
 * With S = scale Q K^T, P = exp(S - lse), delta = rowsum(dO * O): dV = P^T dO      dP = dO V^T
 * dS = P * (dP - delta)      dQ = scale dS K      dK = scale dS^T Q One pair of blocks (ROWS
 * queries of one head, KEYS keys) costs 10 * ROWS * KEYS * D operations. Scores are kept
 * transposed (keys, queries), as in the forward.
 *
 * Two ways around the pairs. Whole: a task is (batch, key/value head), goes through its queries
 * once and keeps dK and dV of the whole head in scratch. Split: one task a block of queries for
 * dQ, then one a block of keys for dK and dV; 14 instead of 10 operations, but as many tasks as
 * blocks. Every sum has the same order in both (dQ over keys, dK and dV over the heads of the
 * group, then queries), so which one runs may depend on the thread count and on memory. */
#include "kernels/cpu/attention.h"

#include <math.h>

#if VF_AVX512 || VF_AVX2
enum {
    ROWS = 96
};
#else
enum {
    ROWS = 64
};
#endif
enum {
    KEYS = TERN_CPU_ATTN_KEYS_BWD
};
_Static_assert(ROWS % PANEL == 0 && (int)ROWS <= (int)TERN_CPU_ATTN_ROWS_BWD,
               "whole panels that fit scratch");
_Static_assert(KEYS % TILE_ROWS == 0 && ROWS % TILE_ROWS == 0, "whole tiles");

struct bwd_run {
    struct tern_cpu_device *device;
    const struct tern_attention_args *args;
    int64_t group, dp;
    int64_t row_blocks, key_blocks;
};

struct bwd_scratch {
    float *q, *dout;            /* (ROWS, dp) */
    float *qt, *dot;            /* (dp, PANEL) panels; q times query_factor */
    float *dq;                  /* (ROWS, dp) */
    float *keys, *values;       /* (KEYS, dp) */
    float *dk, *dv;             /* (KEYS, dp), split only */
    float *pt, *dst;            /* (KEYS, ROWS) */
    float *lse, *delta;         /* ROWS: base 2; rowsum(dO * O) */
    float *at, *from;           /* ROWS: position, first key */
    float *whole_dk, *whole_dv; /* (Tkv padded, dp), whole only */
};

static struct bwd_scratch carve(const struct bwd_run *run, int thread)
{
    float *p = tern_cpu_scratch(run->device, thread);
    struct bwd_scratch s;
    s.q = p;
    s.dout = s.q + ROWS * run->dp;
    s.qt = s.dout + ROWS * run->dp;
    s.dot = s.qt + ROWS * run->dp;
    s.dq = s.dot + ROWS * run->dp;
    s.keys = s.dq + ROWS * run->dp;
    s.values = s.keys + KEYS * run->dp;
    s.dk = s.values + KEYS * run->dp;
    s.dv = s.dk + KEYS * run->dp;
    s.pt = s.dv + KEYS * run->dp;
    s.dst = s.pt + KEYS * ROWS;
    s.lse = s.dst + KEYS * ROWS;
    s.delta = s.lse + ROWS;
    s.at = s.delta + ROWS;
    s.from = s.at + ROWS;
    s.whole_dk = s.from + ROWS;
    s.whole_dv = s.whole_dk + run->key_blocks * KEYS * run->dp;
    return s;
}

/* Queries [t0, t0 + rows) of one head. */
struct queries {
    int64_t b, head, kv, t0, rows;
};

static float row_dot(const float *x, const float *y, int64_t dp)
{
    vf sum = vf_zero();
    for (int64_t i = 0; i < dp; i += VF_LANES) {
        sum = vf_fma(vf_load(x + i), vf_load(y + i), sum);
    }
    return vf_sum(sum);
}

/* Rows past the end are zero with lse = +infinity, so that their P is 0. */
static void load_queries(const struct bwd_run *run, const struct queries *q, struct bwd_scratch *s)
{
    const struct tern_attention_args *a = run->args;
    const float *lse = (const float *)tern_cpu_ptr(a->lse) + (q->b * a->h + q->head) * a->tq;
    int64_t dp = run->dp, offset = a->tkv - a->tq;
    bool bf16 = a->dtype == TERN_BF16;
    for (int64_t r = 0; r < ROWS; r++) {
        if (r >= q->rows) {
            memset(s->q + r * dp, 0, (size_t)dp * sizeof(float));
            memset(s->dout + r * dp, 0, (size_t)dp * sizeof(float));
            s->lse[r] = INFINITY;
            s->delta[r] = 0;
            s->at[r] = (float)(offset + q->t0 + q->rows - 1);
            s->from[r] = 0;
            continue;
        }
        int64_t t = q->t0 + r;
        int64_t from = q->b * a->q_batch + t * a->q_row + q->head * a->d;
        int64_t out = q->b * a->out_batch + t * a->out_row + q->head * a->d;
        /* out passes through dq, which is cleared below. */
        load_row_any(s->dq, tern_cpu_ptr(a->out), out, a->d, dp, 1.0f, bf16);
        load_row_any(s->dout + r * dp, tern_cpu_ptr(a->dout), out, a->d, dp, 1.0f, bf16);
        load_row_any(s->q + r * dp, tern_cpu_ptr(a->q), from, a->d, dp, query_factor(a), bf16);
        s->lse[r] = lse[t] * LOG2_E;
        s->delta[r] = row_dot(s->dq, s->dout + r * dp, dp);
        s->at[r] = (float)(offset + t);
        s->from[r] = (float)first_key(a, q->b, offset + t);
    }
    memset(s->dq, 0, (size_t)(ROWS * dp) * sizeof(float));
    for (int64_t r0 = 0; r0 < ROWS; r0 += PANEL) {
        transpose(s->q + r0 * dp, dp, PANEL, dp, s->qt + r0 * dp, PANEL);
        transpose(s->dout + r0 * dp, dp, PANEL, dp, s->dot + r0 * dp, PANEL);
    }
}

/* One panel: pt and dst (the panel's columns of (KEYS, ROWS)) from scores and dP; rows of vector
 * v from keys[v] on become 0. */
static void score_panel(const struct bwd_run *run,
                        const struct bwd_scratch *s,
                        int64_t r0,
                        int64_t k0,
                        const int64_t keys[TILE_VECTORS],
                        bool masked)
{
    const struct tern_attention_args *a = run->args;
    float *pt = s->pt + r0, *dst = s->dst + r0;
    vf cap = vf_set1(a->softcap * LOG2_E);
    for (int64_t j = 0; j < keys[TILE_VECTORS - 1]; j += TILE_ROWS) {
        int done = vectors_done(keys, j);
        tile_from(done, s->keys + j * run->dp, run->dp, 1, s->qt + r0 * run->dp, PANEL,
                  pt + j * ROWS, ROWS, a->d, false);
        tile_from(done, s->values + j * run->dp, run->dp, 1, s->dot + r0 * run->dp, PANEL,
                  dst + j * ROWS, ROWS, a->d, false);
    }
    for (int v = 0; v < TILE_VECTORS; v++) {
        int64_t lane = v * VF_LANES;
        vf lse = vf_load(s->lse + r0 + lane), delta = vf_load(s->delta + r0 + lane);
        vf last = vf_load(s->at + r0 + lane) - vf_set1((float)k0);
        vf first = vf_load(s->from + r0 + lane) - vf_set1((float)k0);
        for (int64_t j = 0; j < keys[v]; j++) {
            float *p_at = pt + j * ROWS + lane, *ds_at = dst + j * ROWS + lane;
            vf score = vf_load(p_at), slope = vf_set1(1.0f);
            if (a->softcap > 0) {
                score = vf_tanh(score);
                slope = slope - score * score;
                score = cap * score;
            }
            vf p = vf_exp2(score - lse);
            if (masked) {
                vf key = vf_set1((float)j);
                p = vf_if_less(last, key, vf_zero(), p);
                p = vf_if_less(key, first, vf_zero(), p);
            }
            vf_store(p_at, p);
            vf_store(ds_at, p * (vf_load(ds_at) - delta) * slope);
        }
        for (int64_t j = keys[v]; j < KEYS; j++) {
            vf_store(pt + j * ROWS + lane, vf_zero());
            vf_store(dst + j * ROWS + lane, vf_zero());
        }
    }
}

/* P^T and dS^T of a pair of blocks. False when no query of the block sees a key of it. */
static bool score_pair(const struct bwd_run *run,
                       const struct queries *q,
                       const struct bwd_scratch *s,
                       int64_t k0,
                       int64_t count)
{
    const struct tern_attention_args *a = run->args;
    int64_t offset = a->tkv - a->tq;
    int64_t low = offset + q->t0, high = low + q->rows - 1;
    if (high < k0 || k0 + count <= first_key(a, q->b, low)) {
        return false;
    }
    for (int64_t r0 = 0; r0 < ROWS; r0 += PANEL) {
        int64_t panel_high = least(high, low + r0 + PANEL - 1), keys[TILE_VECTORS];
        for (int v = 0; v < TILE_VECTORS; v++) {
            int64_t vector_high = least(panel_high, low + r0 + (v + 1) * VF_LANES - 1);
            int64_t need = r0 < q->rows ? least(count, vector_high - k0 + 1) : 0;
            keys[v] = need > 0 ? tern_cpu_round_up(need, TILE_ROWS) : 0;
        }
        bool masked =
            k0 + keys[TILE_VECTORS - 1] - 1 > low + r0 || k0 < first_key(a, q->b, panel_high);
        score_panel(run, s, r0, k0, keys, masked);
    }
    return true;
}

/* dq (ROWS, dp) += dS K. */
static void add_dq(const struct bwd_run *run,
                   const struct queries *q,
                   const struct bwd_scratch *s,
                   int64_t k0,
                   int64_t count)
{
    int64_t low = run->args->tkv - run->args->tq + q->t0;
    for (int64_t i = 0; i < q->rows; i += TILE_ROWS) {
        int64_t depth = least(count, low + i + TILE_ROWS - k0);
        if (depth > 0) {
            row_multiply(run->dp, s->dst + i, 1, ROWS, s->keys, run->dp, s->dq + i * run->dp,
                         run->dp, depth, true);
        }
    }
}

/* dk, dv (KEYS, dp) += dS^T Q, P^T dO; rows of queries above the diagonal are left out. */
static void add_dkv(const struct bwd_run *run,
                    const struct queries *q,
                    const struct bwd_scratch *s,
                    int64_t k0,
                    int64_t count,
                    float *dk,
                    float *dv)
{
    int64_t low = run->args->tkv - run->args->tq + q->t0;
    for (int64_t j = 0; j < count; j += TILE_ROWS) {
        int64_t skip = most(0, k0 + j - low);
        int64_t depth = q->rows - skip;
        if (depth > 0) {
            const float *p = s->pt + j * ROWS + skip, *ds = s->dst + j * ROWS + skip;
            int64_t from = skip * run->dp, to = j * run->dp;
            row_multiply(run->dp, p, ROWS, 1, s->dout + from, run->dp, dv + to, run->dp, depth,
                         true);
            row_multiply(run->dp, ds, ROWS, 1, s->q + from, run->dp, dk + to, run->dp, depth, true);
        }
    }
}

static void load_pair_keys(const struct bwd_run *run,
                           const struct bwd_scratch *s,
                           int64_t b,
                           int64_t kv,
                           int64_t k0,
                           int64_t count)
{
    int64_t padded = tern_cpu_round_up(count, TILE_ROWS);
    load_keys(s->keys, run->args, run->args->k, b, kv, k0, count, padded, run->dp);
    load_keys(s->values, run->args, run->args->v, b, kv, k0, count, padded, run->dp);
}

static void store_dq(const struct bwd_run *run,
                     const struct queries *q,
                     const struct bwd_scratch *s)
{
    const struct tern_attention_args *a = run->args;
    for (int64_t r = 0; r < q->rows; r++) {
        int64_t to = q->b * a->q_batch + (q->t0 + r) * a->q_row + q->head * a->d;
        store_row_any(tern_cpu_ptr(a->dq), to, s->dq + r * run->dp, a->d, a->scale,
                      a->dtype == TERN_BF16);
    }
}

/* dk was summed with queries times query_factor. */
static void store_dkv(const struct bwd_run *run,
                      int64_t b,
                      int64_t kv,
                      int64_t k0,
                      int64_t count,
                      const float *dk,
                      const float *dv)
{
    const struct tern_attention_args *a = run->args;
    float factor = a->softcap > 0 ? a->softcap : (float)LN_2; /* scale by query_factor */
    for (int64_t j = 0; j < count; j++) {
        int64_t to = b * a->kv_batch + (k0 + j) * a->kv_row + kv * a->d;
        store_row_any(tern_cpu_ptr(a->dk), to, dk + j * run->dp, a->d, factor,
                      a->dtype == TERN_BF16);
        store_row_any(tern_cpu_ptr(a->dv), to, dv + j * run->dp, a->d, 1.0f, a->dtype == TERN_BF16);
    }
}

/* The keys that a block of queries sees: blocks [first, last). */
static void key_range(const struct bwd_run *run,
                      const struct queries *q,
                      int64_t *first,
                      int64_t *last)
{
    const struct tern_attention_args *a = run->args;
    int64_t low = a->tkv - a->tq + q->t0;
    *first = first_key(a, q->b, low) / KEYS;
    *last = (low + q->rows + KEYS - 1) / KEYS;
}

static void whole_task(void *arg, int64_t task, int thread)
{
    const struct bwd_run *run = arg;
    const struct tern_attention_args *a = run->args;
    struct bwd_scratch s = carve(run, thread);
    int64_t dp = run->dp;
    struct queries q = {.b = task / a->kv_heads, .kv = task % a->kv_heads};
    memset(s.whole_dk, 0, (size_t)(2 * run->key_blocks * KEYS * dp) * sizeof(float));
    for (int64_t g = 0; g < run->group; g++) {
        q.head = q.kv * run->group + g;
        for (q.t0 = 0; q.t0 < a->tq; q.t0 += ROWS) {
            q.rows = least(ROWS, a->tq - q.t0);
            load_queries(run, &q, &s);
            int64_t first, last;
            key_range(run, &q, &first, &last);
            for (int64_t block = first; block < last; block++) {
                int64_t k0 = block * KEYS, count = least(KEYS, a->tkv - k0);
                load_pair_keys(run, &s, q.b, q.kv, k0, count);
                if (score_pair(run, &q, &s, k0, count)) {
                    add_dq(run, &q, &s, k0, count);
                    add_dkv(run, &q, &s, k0, count, s.whole_dk + k0 * dp, s.whole_dv + k0 * dp);
                }
            }
            store_dq(run, &q, &s);
        }
    }
    store_dkv(run, q.b, q.kv, 0, a->tkv, s.whole_dk, s.whole_dv);
}

static void split_dq_task(void *arg, int64_t task, int thread)
{
    const struct bwd_run *run = arg;
    const struct tern_attention_args *a = run->args;
    struct bwd_scratch s = carve(run, thread);
    int64_t heads = a->b * a->h;
    struct queries q = {.b = task % heads / a->h,
                        .head = task % a->h,
                        .t0 = (run->row_blocks - 1 - task / heads) * ROWS}; /* longest first */
    q.kv = q.head / run->group;
    q.rows = least(ROWS, a->tq - q.t0);
    load_queries(run, &q, &s);
    int64_t first, last;
    key_range(run, &q, &first, &last);
    for (int64_t block = first; block < last; block++) {
        int64_t k0 = block * KEYS, count = least(KEYS, a->tkv - k0);
        load_pair_keys(run, &s, q.b, q.kv, k0, count);
        if (score_pair(run, &q, &s, k0, count)) {
            add_dq(run, &q, &s, k0, count);
        }
    }
    store_dq(run, &q, &s);
}

static void split_dkv_task(void *arg, int64_t task, int thread)
{
    const struct bwd_run *run = arg;
    const struct tern_attention_args *a = run->args;
    struct bwd_scratch s = carve(run, thread);
    int64_t heads = a->b * a->kv_heads, offset = a->tkv - a->tq;
    int64_t k0 = task / heads * KEYS, count = least(KEYS, a->tkv - k0); /* longest first */
    struct queries q = {.b = task % heads / a->kv_heads, .kv = task % a->kv_heads};
    load_pair_keys(run, &s, q.b, q.kv, k0, count);
    memset(s.dk, 0, (size_t)(2 * KEYS * run->dp) * sizeof(float));
    for (int64_t g = 0; g < run->group; g++) {
        q.head = q.kv * run->group + g;
        for (q.t0 = most(0, k0 - offset) / ROWS * ROWS; q.t0 < a->tq; q.t0 += ROWS) {
            if (first_key(a, q.b, offset + q.t0) >= k0 + count) {
                break;
            }
            q.rows = least(ROWS, a->tq - q.t0);
            load_queries(run, &q, &s);
            if (score_pair(run, &q, &s, k0, count)) {
                add_dkv(run, &q, &s, k0, count, s.dk, s.dv);
            }
        }
    }
    store_dkv(run, q.b, q.kv, k0, count, s.dk, s.dv);
}

tern_status TERN_CPU_LEVEL(attention_bwd)(struct tern_cpu_device *device,
                                          const struct tern_attention_args *args)
{
    struct bwd_run run = {.device = device,
                          .args = args,
                          .group = args->h / args->kv_heads,
                          .dp = tern_cpu_round_up(args->d, TERN_CPU_ATTN_PAD),
                          .row_blocks = (args->tq + ROWS - 1) / ROWS,
                          .key_blocks = (args->tkv + KEYS - 1) / KEYS};
    TERN_RETURN_IF_ERR(tern_cpu_need(device, "attention_bwd", 0,
                                     tern_cpu_attention_bwd_scratch(args->tkv, args->d)));
    int64_t heads = args->b * args->kv_heads;
    size_t whole = (size_t)(2 * run.key_blocks * KEYS * run.dp) * sizeof(float);
    /* Whole heads leave threads idle in the last round; splitting costs 1.4 times the work. */
    int64_t rounds = (heads + device->threads - 1) / device->threads;
    bool idle = rounds * device->threads * 5 > heads * 7;
    if (whole <= TERN_CPU_ATTN_WHOLE_BYTES && !idle) {
        tern_cpu_parallel(device, heads, whole_task, &run);
        return TERN_OK;
    }
    tern_cpu_parallel(device, args->b * args->h * run.row_blocks, split_dq_task, &run);
    tern_cpu_parallel(device, heads * run.key_blocks, split_dkv_task, &run);
    return TERN_OK;
}
