/* attention_fwd.c - causal attention forward with an online softmax: memory linear in T, work only
 * below the diagonal.
 *
 * A task is (batch, key/value head, run of query positions); its rows are the run's positions times
 * the H/K query heads of the group, position-major, so that a panel of lanes spans few positions.
 * For each block of keys and each panel: S^T = K Q^T (scaled by scale * log2 e when Q was packed; with a
 * cap by scale / cap, and then cap * log2 e * tanh), mask, new maximum, P = 2^(S - max), rescale O^T if the maximum moved, O^T += V^T P. A row's
 * numbers depend on its own keys in blocks of ATTN_KEYS_FWD alone, never on the run or panel it
 * sits in, so runs may be cut to suit the thread count.
 *
 * Few rows (a decode step) have no lanes to fill: see attend_few below. */
#include "kernels/cpu/attention.h"

#include <float.h>
#include <math.h>

enum {
    AHEAD = 8, /* decode: keys fetched before they are used */
    KEYS = TERN_CPU_ATTN_KEYS_FWD,
};

struct fwd_run {
    struct tern_cpu_device *device;
    const struct tern_attention_args *args;
    int64_t group; /* query heads of a key/value head */
    int64_t dp;    /* D padded */
    int64_t heads_task,
        parts; /* heads of a task (the group, unless it is huge), parts of a group */
    int64_t positions, runs;
    int64_t splits, split_keys; /* few rows only */
};

struct fwd_scratch {
    float *qt, *ot;       /* panels of (dp, PANEL) */
    float *keys, *values; /* (KEYS, dp) */
    float *st;            /* (KEYS, PANEL) */
    float *rows;          /* (PANEL, dp) */
    float *max, *sum;     /* a lane of every panel: maximum (base 2), sum, ... */
    float *at, *from;     /* ... position, first key */
};

static struct fwd_scratch carve(const struct fwd_run *run, int thread)
{
    float *p = tern_cpu_scratch(run->device, thread);
    struct fwd_scratch s;
    s.qt = p;
    s.ot = s.qt + TERN_CPU_ATTN_ROWS_FWD * run->dp;
    s.keys = s.ot + TERN_CPU_ATTN_ROWS_FWD * run->dp;
    s.values = s.keys + KEYS * run->dp;
    s.st = s.values + KEYS * run->dp;
    s.rows = s.st + KEYS * PANEL;
    s.max = s.rows + PANEL * run->dp;
    s.sum = s.max + TERN_CPU_ATTN_ROWS_FWD;
    s.at = s.sum + TERN_CPU_ATTN_ROWS_FWD;
    s.from = s.at + TERN_CPU_ATTN_ROWS_FWD;
    return s;
}

/* The queries of a task: row r is position t0 + r / heads of head head0 + r % heads. */
struct block {
    int64_t b, kv, head0, heads, t0, rows;
};

static void pack_queries(const struct fwd_run *run, const struct block *q, struct fwd_scratch *s)
{
    const struct tern_attention_args *a = run->args;
    int64_t offset = a->tkv - a->tq, padded = tern_cpu_round_up(q->rows, PANEL);
    for (int64_t r0 = 0; r0 < padded; r0 += PANEL) {
        for (int64_t lane = 0; lane < PANEL; lane++) {
            int64_t r = r0 + lane < q->rows ? r0 + lane : q->rows - 1; /* the last row again */
            int64_t t = q->t0 + r / q->heads, head = q->head0 + r % q->heads;
            int64_t at = q->b * a->q_batch + t * a->q_row + head * a->d;
            load_row_any(s->rows + lane * run->dp, tern_cpu_ptr(a->q), at, a->d, run->dp,
                         query_factor(a), a->dtype == TERN_BF16);
            s->at[r0 + lane] = (float)(offset + t);
            s->from[r0 + lane] = (float)first_key(a, q->b, offset + t);
        }
        transpose(s->rows, run->dp, PANEL, run->dp, s->qt + r0 * run->dp, PANEL);
    }
    for (int64_t r = 0; r < padded; r++) {
        s->max[r] = -FLT_MAX;
        s->sum[r] = 0;
    }
    memset(s->ot, 0, (size_t)(padded * run->dp) * sizeof *s->ot);
}

/* S^T where a lane's position does not see the key becomes -infinity. Vector v has keys[v] rows, of
 * which all up to `first` (the panel's first position) are seen unless has_from. */
static void mask_scores(float *st,
                        const float *at,
                        const float *from,
                        int64_t k0,
                        const int64_t keys[TILE_VECTORS],
                        int64_t first,
                        bool has_from)
{
    vf never = vf_set1(-INFINITY);
    for (int v = 0; v < TILE_VECTORS; v++) {
        vf last = vf_load(at + v * VF_LANES) - vf_set1((float)k0);
        vf oldest = vf_load(from + v * VF_LANES) - vf_set1((float)k0);
        for (int64_t j = has_from ? 0 : most(0, first - k0 + 1); j < keys[v]; j++) {
            float *s = st + j * PANEL + v * VF_LANES;
            vf key = vf_set1((float)j);
            vf x = vf_if_less(last, key, never, vf_load(s));
            vf_store(s, vf_if_less(key, oldest, never, x));
        }
    }
}

/* A panel's scores through the cap, in base 2; vector v has keys[v] rows. */
static void cap_scores(float *st, const int64_t keys[TILE_VECTORS], float softcap)
{
    vf cap = vf_set1(softcap * LOG2_E);
    for (int v = 0; v < TILE_VECTORS; v++) {
        for (int64_t j = 0; j < keys[v]; j++) {
            float *s = st + j * PANEL + v * VF_LANES;
            vf_store(s, cap * vf_tanh(vf_load(s)));
        }
    }
}

/* One vector of a panel: its maximum over the block, P in place of S, its sum, and O^T rescaled
 * where the maximum moved. keys is a multiple of 4. */
static void softmax_vector(float *s, float *ot, float *max, float *sum, int64_t keys, int64_t d)
{
    vf old = vf_load(max);
    vf m0 = old, m1 = old, m2 = old, m3 = old;
    for (int64_t j = 0; j < keys; j += 4) {
        m0 = vf_max(vf_load(s + j * PANEL), m0);
        m1 = vf_max(vf_load(s + (j + 1) * PANEL), m1);
        m2 = vf_max(vf_load(s + (j + 2) * PANEL), m2);
        m3 = vf_max(vf_load(s + (j + 3) * PANEL), m3);
    }
    vf m = vf_max(vf_max(m0, m1), vf_max(m2, m3));
    vf s0 = vf_zero(), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t j = 0; j < keys; j += 4) {
        float *at = s + j * PANEL;
        vf p0 = vf_exp2_capped(vf_load(at) - m), p1 = vf_exp2_capped(vf_load(at + PANEL) - m);
        vf p2 = vf_exp2_capped(vf_load(at + 2 * PANEL) - m);
        vf p3 = vf_exp2_capped(vf_load(at + 3 * PANEL) - m);
        vf_store(at, p0);
        vf_store(at + PANEL, p1);
        vf_store(at + 2 * PANEL, p2);
        vf_store(at + 3 * PANEL, p3);
        s0 = s0 + p0;
        s1 = s1 + p1;
        s2 = s2 + p2;
        s3 = s3 + p3;
    }
    vf shrink = vf_exp2_capped(old - m);
    vf_store(sum, vf_fma(vf_load(sum), shrink, (s0 + s1) + (s2 + s3)));
    vf_store(max, m);
    for (int64_t i = 0; i < d; i++) {
        float *o = ot + i * PANEL;
        vf_store(o, vf_load(o) * shrink);
    }
}

static void finish_queries(const struct fwd_run *run, const struct block *q, struct fwd_scratch *s)
{
    const struct tern_attention_args *a = run->args;
    float *lse = tern_cpu_ptr(a->lse);
    for (int64_t r0 = 0; r0 < q->rows; r0 += PANEL) {
        transpose(s->ot + r0 * run->dp, PANEL, run->dp, PANEL, s->rows, run->dp);
        for (int64_t r = r0; r < least(q->rows, r0 + PANEL); r++) {
            int64_t t = q->t0 + r / q->heads, head = q->head0 + r % q->heads;
            int64_t to = q->b * a->out_batch + t * a->out_row + head * a->d;
            float sum = s->sum[r];
            store_row_any(tern_cpu_ptr(a->out), to, s->rows + (r - r0) * run->dp, a->d,
                          sum == 0.0f ? 0.0f : 1.0f / sum, a->dtype == TERN_BF16);
            if (lse != NULL) {
                lse[(q->b * a->h + head) * a->tq + t] =
                    (float)((double)s->max[r] * LN_2 + log((double)sum));
            }
        }
    }
}

/* One panel against one block of keys. */
static void attend_panel(const struct fwd_run *run,
                         const struct block *q,
                         struct fwd_scratch *s,
                         int64_t r0,
                         int64_t k0,
                         int64_t count)
{
    const struct tern_attention_args *a = run->args;
    int64_t offset = a->tkv - a->tq, last_row = least(q->rows, r0 + PANEL) - 1;
    int64_t low = offset + q->t0 + r0 / q->heads;        /* the panel's first position */
    int64_t high = offset + q->t0 + last_row / q->heads; /* and last */
    if (high < k0 || k0 + count <= first_key(a, q->b, low)) {
        return;
    }
    int64_t keys[TILE_VECTORS];
    for (int v = 0; v < TILE_VECTORS; v++) {
        int64_t lane = least(last_row, r0 + (v + 1) * VF_LANES - 1);
        int64_t need = least(count, offset + q->t0 + lane / q->heads - k0 + 1);
        keys[v] = need > 0 ? tern_cpu_round_up(need, TILE_ROWS) : 0;
    }
    int64_t all = keys[TILE_VECTORS - 1];
    float *qt = s->qt + r0 * run->dp, *ot = s->ot + r0 * run->dp;
    for (int64_t j = 0; j < all; j += TILE_ROWS) {
        tile_from(vectors_done(keys, j), s->keys + j * run->dp, run->dp, 1, qt, PANEL,
                  s->st + j * PANEL, PANEL, a->d, false);
    }
    if (a->softcap > 0) {
        cap_scores(s->st, keys, a->softcap);
    }
    if (k0 + all - 1 > low || k0 < first_key(a, q->b, high)) {
        mask_scores(s->st, s->at + r0, s->from + r0, k0, keys, low, has_first_key(a));
    }
    for (int v = 0; v < TILE_VECTORS; v++) {
        int64_t lane = v * VF_LANES;
        softmax_vector(s->st + lane, ot + lane, s->max + r0 + lane, s->sum + r0 + lane, keys[v],
                       a->d);
    }
    for (int64_t i = 0; i < a->d; i += TILE_ROWS) {
        int64_t from = 0;
        for (int v = 0; v < TILE_VECTORS; v++) {
            if (keys[v] > from) {
                tile_from(v, s->values + from * run->dp + i, 1, run->dp, s->st + from * PANEL,
                          PANEL, ot + i * PANEL, PANEL, keys[v] - from, true);
                from = keys[v];
            }
        }
    }
}

static void attend_many_task(void *arg, int64_t task, int thread)
{
    const struct fwd_run *run = arg;
    const struct tern_attention_args *a = run->args;
    struct fwd_scratch s = carve(run, thread);
    int64_t groups = a->b * a->kv_heads * run->parts;
    /* The last positions see the most keys: they go first, so that threads end together. */
    int64_t span = run->runs - 1 - task / groups, part = task % run->parts;
    int64_t pair = task % groups / run->parts;
    struct block q = {
        .b = pair / a->kv_heads, .kv = pair % a->kv_heads, .t0 = span * run->positions};
    q.head0 = q.kv * run->group + part * run->heads_task;
    q.heads = least(run->heads_task, run->group - part * run->heads_task);
    int64_t t1 = least(a->tq, q.t0 + run->positions), offset = a->tkv - a->tq;
    q.rows = (t1 - q.t0) * q.heads;
    pack_queries(run, &q, &s);
    int64_t first = first_key(a, q.b, offset + q.t0) / KEYS * KEYS;
    for (int64_t k0 = first; k0 < offset + t1; k0 += KEYS) {
        int64_t count = least(KEYS, offset + t1 - k0);
        int64_t padded = tern_cpu_round_up(count, TILE_ROWS);
        load_keys(s.keys, a, a->k, q.b, q.kv, k0, count, padded, run->dp);
        load_keys(s.values, a, a->v, q.b, q.kv, k0, count, padded, run->dp);
        for (int64_t r0 = 0; r0 < q.rows; r0 += PANEL) {
            attend_panel(run, &q, &s, r0, k0, count);
        }
    }
    finish_queries(run, &q, &s);
}

/* Decode: a task is (batch, key/value head, split of the keys). Every key and value is read once
 * from memory, in its own dtype; scores are dot products along D. With several splits each leaves
 * (maximum, sum, O) in shared memory, and a second pass adds them in order. */
VF_INLINE float dot(const float *q, const void *k, int64_t at, int64_t d, bool bf16)
{
    vf s0 = vf_zero(), s1 = s0;
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= d; i += 2 * VF_LANES) {
        s0 = vf_fma(vf_load(q + i), vf_get(k, at + i, bf16), s0);
        s1 = vf_fma(vf_load(q + i + VF_LANES), vf_get(k, at + i + VF_LANES, bf16), s1);
    }
    for (; i < d; i += VF_LANES) { /* q is padded with zeros */
        int n = d - i < VF_LANES ? (int)(d - i) : VF_LANES;
        s0 = vf_fma(vf_load(q + i), vf_get_n(k, at + i, n, bf16), s0);
    }
    return vf_sum(s0 + s1);
}

/* o[r*o_row ..] += sum over j in [from, to) of p[r*KEYS + j] * v[at + j*row ..], for `rows` rows
 * and `vectors` vectors of D starting at i (the last of them n lanes wide). A value is loaded
 * once for all the rows: keys lie whole pages apart, and their lines push each other out of the
 * first cache. */
VF_INLINE void value_tile(int rows,
                          int vectors,
                          int n,
                          float *o,
                          int64_t o_row,
                          const float *p,
                          const void *v,
                          int64_t at,
                          int64_t row,
                          int64_t from,
                          int64_t to,
                          bool bf16)
{
    vf acc[4][4];
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < vectors; c++) {
            acc[r][c] = vf_load(o + r * o_row + c * VF_LANES);
        }
    }
    for (int64_t j = from; j < to; j++) {
        vf x[4];
        for (int c = 0; c < vectors; c++) {
            x[c] = vf_get_n(v, at + j * row + c * VF_LANES, c + 1 < vectors ? VF_LANES : n, bf16);
        }
        for (int r = 0; r < rows; r++) {
            vf weight = vf_set1(p[r * KEYS + j]);
            for (int c = 0; c < vectors; c++) {
                acc[r][c] = vf_fma(weight, x[c], acc[r][c]);
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < vectors; c++) {
            vf_store(o + r * o_row + c * VF_LANES, acc[r][c]);
        }
    }
}

VF_INLINE void add_values(int rows,
                          float *o,
                          int64_t o_row,
                          const float *p,
                          const void *v,
                          int64_t at,
                          int64_t row,
                          int64_t from,
                          int64_t to,
                          int64_t d,
                          bool bf16)
{
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= d; i += 2 * VF_LANES) {
        value_tile(rows, 2, VF_LANES, o + i, o_row, p, v, at + i, row, from, to, bf16);
    }
    for (; i < d; i += VF_LANES) {
        int n = d - i < VF_LANES ? (int)(d - i) : VF_LANES;
        value_tile(rows, 1, n, o + i, o_row, p, v, at + i, row, from, to, bf16);
    }
}

/* Scores of keys [from, to) for every row, in base 2 and capped: p[r*KEYS + j]. */
VF_INLINE void few_scores(const struct tern_attention_args *a,
                          const float *q,
                          int64_t rows,
                          int64_t dp,
                          float *p,
                          int64_t at,
                          int64_t from,
                          int64_t to,
                          bool bf16)
{
    const void *k = tern_cpu_ptr(a->k), *v = tern_cpu_ptr(a->v);
    size_t bytes = bf16 ? sizeof(tern_bf16) : sizeof(float);
    for (int64_t j = from; j < to; j++) {
        const char *next =
            (const char *)k + (size_t)(at + least(j + AHEAD, to - 1) * a->kv_row) * bytes;
        const char *value = (const char *)v + (size_t)(at + j * a->kv_row) * bytes;
        for (size_t line = 0; line < (size_t)a->d * bytes; line += 64) {
            __builtin_prefetch(next + line);
            __builtin_prefetch(value + line);
        }
        for (int64_t r = 0; r < rows; r++) {
            p[r * KEYS + j] = dot(q + r * dp, k, at + j * a->kv_row, a->d, bf16);
        }
    }
    if (a->softcap > 0) {
        vf cap = vf_set1(a->softcap * LOG2_E);
        for (int64_t r = 0; r < rows; r++) {
            float *row = p + r * KEYS + from;
#define STEP(i, n) vf_put_n(row, i, cap *vf_tanh(vf_get_n(row, i, n, false)), n, false)
            VF_EACH(to - from, STEP);
#undef STEP
        }
    }
}

/* One row's scores [from, to) become weights, 0 in the rest of [low, high); its state (maximum,
 * sum, then O) moves to the new maximum. */
static void few_softmax(float *p,
                        float *state,
                        int64_t low,
                        int64_t from,
                        int64_t to,
                        int64_t high,
                        int64_t dp)
{
    for (int64_t j = low; j < high; j++) {
        p[j] = j < from || j >= to ? -INFINITY : p[j];
    }
    vf old = vf_set1(state[0]), most_of = old, total = vf_zero();
    for (int64_t j = low; j < high; j += VF_LANES) {
        int n = high - j < VF_LANES ? (int)(high - j) : VF_LANES;
        vf x = vf_get_n(p, j, n, false);
        most_of = vf_max(vf_if_less(vf_iota(), vf_set1((float)n), x, old), most_of);
    }
    float max = vf_reduce_max(most_of);
    vf m = vf_set1(max);
    for (int64_t j = low; j < high; j += VF_LANES) {
        int n = high - j < VF_LANES ? (int)(high - j) : VF_LANES;
        vf e = vf_exp2_capped(vf_get_n(p, j, n, false) - m);
        e = vf_if_less(vf_iota(), vf_set1((float)n), e, vf_zero());
        vf_put_n(p, j, e, n, false);
        total = total + e;
    }
    vf shrink = vf_exp2_capped(old - m);
    state[0] = max;
    float lanes[VF_LANES];
    vf_store(lanes, shrink);
    state[1] = state[1] * lanes[0] + vf_sum(total);
    for (int64_t i = 0; i < dp; i += VF_LANES) {
        vf_store(state + 2 + i, vf_load(state + 2 + i) * shrink);
    }
}

/* Where the state of row r of split `split` of (b, kv) is. */
static float *few_state(const struct fwd_run *run, int64_t head, int64_t split, int64_t r)
{
    int64_t slot = (head * run->splits + split) * TERN_CPU_ATTN_ROWS_DECODE + r;
    return (float *)run->device->shared + slot * (run->dp + 2);
}

/* The few rows of a task: packed queries, their states, room for their weights. */
struct few {
    int64_t b, kv, rows;
    float *q, *p, *state;
};

/* Keys [k0, k0 + count), count <= KEYS, for all the rows. */
VF_INLINE void few_block(const struct fwd_run *run,
                         const struct few *f,
                         int64_t k0,
                         int64_t count,
                         bool bf16)
{
    const struct tern_attention_args *a = run->args;
    int64_t offset = a->tkv - a->tq, stride = run->dp + 2;
    int64_t at = f->b * a->kv_batch + k0 * a->kv_row + f->kv * a->d;
    int64_t low = most(0, first_key(a, f->b, offset) - k0);
    int64_t high = least(count, offset + (f->rows - 1) / run->group - k0 + 1);
    if (low >= high) {
        return;
    }
    few_scores(a, f->q, f->rows, run->dp, f->p, at, low, high, bf16);
    for (int64_t r = 0; r < f->rows; r++) {
        int64_t position = offset + r / run->group;
        few_softmax(f->p + r * KEYS, f->state + r * stride, low, first_key(a, f->b, position) - k0,
                    position - k0 + 1, high, run->dp);
    }
    const void *v = tern_cpu_ptr(a->v);
    int64_t r = 0;
    for (; r + 4 <= f->rows; r += 4) {
        add_values(4, f->state + r * stride + 2, stride, f->p + r * KEYS, v, at, a->kv_row, low,
                   high, a->d, bf16);
    }
    for (; r + 2 <= f->rows; r += 2) {
        add_values(2, f->state + r * stride + 2, stride, f->p + r * KEYS, v, at, a->kv_row, low,
                   high, a->d, bf16);
    }
    for (; r < f->rows; r++) {
        add_values(1, f->state + r * stride + 2, stride, f->p + r * KEYS, v, at, a->kv_row, low,
                   high, a->d, bf16);
    }
}

static void attend_few_task(void *arg, int64_t task, int thread)
{
    const struct fwd_run *run = arg;
    const struct tern_attention_args *a = run->args;
    int64_t head = task / run->splits, split = task % run->splits;
    struct few f = {.b = head / a->kv_heads,
                    .kv = head % a->kv_heads,
                    .rows = a->tq * run->group,
                    .q = tern_cpu_scratch(run->device, thread),
                    .state = few_state(run, head, split, 0)};
    f.p = f.q + f.rows * run->dp;
    bool bf16 = a->dtype == TERN_BF16;
    for (int64_t r = 0; r < f.rows; r++) {
        int64_t t = r / run->group, h = f.kv * run->group + r % run->group;
        load_row_any(f.q + r * run->dp, tern_cpu_ptr(a->q),
                     f.b * a->q_batch + t * a->q_row + h * a->d, a->d, run->dp, query_factor(a),
                     bf16);
        float *state = few_state(run, head, split, r);
        memset(state, 0, (size_t)(run->dp + 2) * sizeof *state);
        state[0] = -FLT_MAX;
    }
    int64_t end = least(a->tkv, (split + 1) * run->split_keys);
    for (int64_t k0 = split * run->split_keys; k0 < end; k0 += KEYS) {
        if (bf16) {
            few_block(run, &f, k0, least(KEYS, end - k0), true);
        } else {
            few_block(run, &f, k0, least(KEYS, end - k0), false);
        }
    }
}

/* Adds the splits of every row of (b, kv), in order. */
static void fold_few_task(void *arg, int64_t head, int thread)
{
    const struct fwd_run *run = arg;
    const struct tern_attention_args *a = run->args;
    float *o = tern_cpu_scratch(run->device, thread), *lse = tern_cpu_ptr(a->lse);
    for (int64_t r = 0; r < a->tq * run->group; r++) {
        float max = -FLT_MAX, sum = 0;
        for (int64_t split = 0; split < run->splits; split++) {
            float other = few_state(run, head, split, r)[0];
            max = other > max ? other : max;
        }
        memset(o, 0, (size_t)run->dp * sizeof *o);
        for (int64_t split = 0; split < run->splits; split++) {
            const float *state = few_state(run, head, split, r);
            float shrink[VF_LANES];
            vf_store(shrink, vf_exp2(vf_set1(state[0] - max)));
            sum += state[1] * shrink[0];
            for (int64_t i = 0; i < run->dp; i += VF_LANES) {
                vf_store(o + i, vf_fma(vf_load(state + 2 + i), vf_set1(shrink[0]), vf_load(o + i)));
            }
        }
        int64_t b = head / a->kv_heads, t = r / run->group;
        int64_t h = head % a->kv_heads * run->group + r % run->group;
        store_row_any(tern_cpu_ptr(a->out), b * a->out_batch + t * a->out_row + h * a->d, o, a->d,
                      sum == 0.0f ? 0.0f : 1.0f / sum, a->dtype == TERN_BF16);
        if (lse != NULL) {
            lse[(b * a->h + h) * a->tq + t] = (float)((double)max * LN_2 + log((double)sum));
        }
    }
}

static tern_status attend_few(struct tern_cpu_device *device, struct fwd_run *run)
{
    const struct tern_attention_args *a = run->args;
    int64_t heads = a->b * a->kv_heads;
    int64_t splits = (a->tkv + TERN_CPU_ATTN_SPLIT_KEYS - 1) / TERN_CPU_ATTN_SPLIT_KEYS;
    splits = least(splits, most(1, TERN_CPU_ATTN_SPLIT_TASKS / most(1, heads)));
    run->split_keys = tern_cpu_round_up((a->tkv + splits - 1) / splits, KEYS);
    run->splits = (a->tkv + run->split_keys - 1) / run->split_keys;
    TERN_RETURN_IF_ERR(tern_cpu_need(device, "attention_fwd",
                                     tern_cpu_attention_fwd_shared(a->b, a->kv_heads, a->d),
                                     tern_cpu_attention_fwd_scratch(a->d)));
    tern_cpu_parallel(device, heads * run->splits, attend_few_task, run);
    tern_cpu_parallel(device, heads, fold_few_task, run);
    return TERN_OK;
}

tern_status TERN_CPU_LEVEL(attention_fwd)(struct tern_cpu_device *device,
                                          const struct tern_attention_args *args)
{
    int64_t group = args->h / args->kv_heads, heads = args->b * args->kv_heads;
    struct fwd_run run = {.device = device,
                          .args = args,
                          .group = group,
                          .dp = tern_cpu_round_up(args->d, TERN_CPU_ATTN_PAD)};
    if (args->tq * group <= TERN_CPU_ATTN_ROWS_DECODE) {
        return attend_few(device, &run);
    }
    TERN_RETURN_IF_ERR(
        tern_cpu_need(device, "attention_fwd", 0, tern_cpu_attention_fwd_scratch(args->d)));
    run.heads_task = least(group, TERN_CPU_ATTN_ROWS_FWD);
    run.parts = (group + run.heads_task - 1) / run.heads_task;
    run.positions = TERN_CPU_ATTN_ROWS_FWD / run.heads_task;
    /* Shorter runs when there would be too few tasks for the threads to end together. */
    while (run.positions * run.heads_task > 2 * PANEL && run.positions > 1 &&
           heads * run.parts * ((args->tq + run.positions - 1) / run.positions) <
               4 * device->threads) {
        run.positions = (run.positions + 1) / 2;
    }
    run.runs = (args->tq + run.positions - 1) / run.positions;
    tern_cpu_parallel(device, heads * run.parts * run.runs, attend_many_task, &run);
    return TERN_OK;
}
