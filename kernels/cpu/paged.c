/* paged.c - attention of many sequences' new tokens over keys and values in blocks.
 *
 * A unit is a sequence, a key/value head and a run of the sequence's tokens; its rows are the tokens times the H/K query
 * heads of the group, token by token. For each SEGMENT of keys, at fixed positions, and each few rows: scores in base 2,
 * their maximum, weights 2^(score - maximum), the sum of weights by lane and of weighted values; then that joins what the
 * segments before gave, which is scaled to the larger maximum. All of it is the same for a row whoever is beside it.
 *
 * Too few units to share out: their segments are shared out instead, what each gives is kept, and joined in the same
 * order with the same arithmetic. */
#include "kernels/cpu/paged_tile.h"

#include <float.h>
#include <math.h>

enum {
    LANES =
        TERN_KV_BLOCK,    /* floats that a row's sum of weights has, one of each place in a block */
    UNIT_TASKS_WANTED = 4 /* a thread: fewer, and segments are shared out */
};

#define LOG2_E 1.4426950408889634f

/* What a unit's rows have so far; `rows` of each. */
struct state {
    float *max;   /* base 2 */
    float *sum;   /* (rows, LANES) */
    float *total; /* (rows, DP) */
};

struct unit {
    int64_t s, kv;
    int64_t token0, tokens; /* of the sequence's rows */
    int64_t rows;
    int64_t position0; /* of token0 */
    int64_t segment0, segments;
};

struct run {
    struct tern_cpu_device *device;
    const struct tern_paged_attention_args *args;
    struct tern_cpu_kv kv;
    int64_t group;
    int64_t tokens_unit;
    const int64_t *first_unit; /* (S + 1), of one key/value head */
    int64_t state_floats;      /* of one row */
    /* Segments shared out: those of unit u are numbers first_segment[u] .. ; slot i of a wave holds number wave + i. */
    int64_t rows_slot, wave, wave_count;
    int64_t first_segment[TERN_CPU_PAGED_SPLIT_UNITS + 1];
    float *slots, *totals;
};

static int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static int64_t most(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

static int64_t first_key(const struct tern_paged_attention_args *a, int64_t position)
{
    return a->window > 0 ? most(0, position - a->window + 1) : 0;
}

/* Unit number `u` of S * K and more: heads change fastest, then sequences' later tokens come first. */
static struct unit unit_of(const struct run *run, int64_t u)
{
    const struct tern_paged_attention_args *a = run->args;
    const int32_t *starts = tern_cpu_ptr(a->row_starts), *lengths = tern_cpu_ptr(a->lengths);
    int64_t number = u / a->kv_heads, low = 0, high = a->sequences;
    while (high - low > 1) { /* the last sequence that begins at or before it */
        int64_t middle = (low + high) / 2;
        if (run->first_unit[middle] <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    int64_t rows = starts[low + 1] - starts[low];
    int64_t part = run->first_unit[low + 1] - 1 - number;
    struct unit unit = {.s = low, .kv = u % a->kv_heads, .token0 = part * run->tokens_unit};
    unit.tokens = least(run->tokens_unit, rows - unit.token0);
    unit.rows = unit.tokens * run->group;
    unit.position0 = lengths[low] - rows + unit.token0;
    unit.segment0 = first_key(a, unit.position0) / SEGMENT;
    unit.segments = (unit.position0 + unit.tokens - 1) / SEGMENT + 1 - unit.segment0;
    return unit;
}

/* Scratch of a thread: queries, what rows have so far, scores of a few rows. */
static float *scratch_queries(const struct run *run, int thread)
{
    return tern_cpu_scratch(run->device, thread);
}

static int64_t unit_rows_max(int64_t group)
{
    return most(TERN_CPU_PAGED_ROWS, group);
}

static struct state state_at(const struct run *run, float *memory, int64_t rows)
{
    return (struct state){memory + rows * (LANES + run->kv.dp), memory + rows * run->kv.dp, memory};
}

static void state_clear(const struct run *run, struct state state, int64_t rows)
{
    memset(state.total, 0, (size_t)(rows * (run->kv.dp + LANES)) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        state.max[r] = -FLT_MAX;
    }
}

/* The unit's queries, times what makes scores of base 2, or with a cap the tanh's argument. */
static void pack_queries(const struct run *run, const struct unit *unit, float *q)
{
    const struct tern_paged_attention_args *a = run->args;
    const int32_t *starts = tern_cpu_ptr(a->row_starts);
    const void *from = tern_cpu_ptr(a->q);
    vf factor = vf_set1(a->softcap > 0 ? a->scale / a->softcap : a->scale * LOG2_E);
    for (int64_t r = 0; r < unit->rows; r++) {
        int64_t row = starts[unit->s] + unit->token0 + r / run->group;
        int64_t head = unit->kv * run->group + r % run->group;
        int64_t at = row * a->q_row + head * a->d;
        float *to = q + r * run->kv.dp;
#define STEP_BF16(i, n) vf_store(to + (i), vf_get_n(from, at + (i), n, true) * factor)
#define STEP_F32(i, n)  vf_store(to + (i), vf_get_n(from, at + (i), n, false) * factor)
        if (a->dtype == TERN_BF16) {
            VF_EACH(a->d, STEP_BF16);
        } else {
            VF_EACH(a->d, STEP_F32);
        }
#undef STEP_BF16
#undef STEP_F32
    }
}

/* One row's scores of vectors [0, count) become weights: keys outside [from, to) weigh nothing. What came before is to be
 * multiplied by *old_factor, what is new by *new_factor. scales: of keys, null: none; `weights` of values the same. */
static void weigh(const struct run *run,
                  float *p,
                  int64_t from,
                  int64_t to,
                  int64_t count,
                  const struct state *state,
                  int64_t row,
                  float *old_factor,
                  float *new_factor)
{
    const struct tern_paged_attention_args *a = run->args;
    vf cap = vf_set1(a->softcap * LOG2_E), never = vf_set1(-INFINITY);
    vf top = vf_set1(-FLT_MAX);
    vf low = vf_set1((float)from), high = vf_set1((float)to);
    for (int64_t v = 0; v < count; v++) {
        vf x = vf_load(p + v * VF_LANES);
        if (a->softcap > 0) {
            x = cap * vf_tanh(x);
        }
        if (v * VF_LANES < from || (v + 1) * VF_LANES > to) {
            vf key = vf_iota() + vf_set1((float)(v * VF_LANES));
            x = vf_if_less(key, low, never, x);
            x = vf_if_less(key, high, x, never);
        }
        vf_store(p + v * VF_LANES, x);
        top = vf_max(x, top);
    }
    float segment_max = vf_reduce_max(top), old_max = state->max[row];
    float max = segment_max > old_max ? segment_max : old_max;
    vf sums[BLOCK_VECTORS];
    for (int i = 0; i < BLOCK_VECTORS; i++) {
        sums[i] = vf_zero();
    }
    vf m = vf_set1(segment_max);
    for (int64_t v = 0; v < count; v += BLOCK_VECTORS) {
        for (int i = 0; i < BLOCK_VECTORS; i++) {
            float *at = p + (v + i) * VF_LANES;
            vf e = vf_exp2_capped(vf_load(at) - m);
            vf_store(at, e);
            sums[i] = sums[i] + e;
        }
    }
    float lanes[2 * VF_LANES];
    vf_store(lanes, vf_exp2_capped(vf_set1(old_max) - vf_set1(max)));
    vf_store(lanes + VF_LANES, vf_exp2_capped(vf_set1(segment_max) - vf_set1(max)));
    *old_factor = lanes[0];
    *new_factor = lanes[VF_LANES];
    for (int i = 0; i < BLOCK_VECTORS; i++) {
        float *s = state->sum + row * LANES + i * VF_LANES;
        vf_store(s, vf_fma(sums[i], vf_set1(*new_factor), vf_load(s) * vf_set1(*old_factor)));
    }
    state->max[row] = max;
}

/* A segment's blocks of one head: keys and values, also those of the next blocks (the last again, when there are none),
 * and of i8 their scales. */
struct blocks {
    const char *keys[SEGMENT_BLOCKS + AHEAD], *values[SEGMENT_BLOCKS + AHEAD];
    const float *scales[SEGMENT_BLOCKS]; /* of keys, then of values */
};

static void find_blocks(const struct run *run,
                        const struct unit *unit,
                        int64_t first,
                        int64_t from,
                        int64_t to,
                        struct blocks *out)
{
    const struct tern_paged_attention_args *a = run->args;
    const int32_t *table = (const int32_t *)tern_cpu_ptr(a->tables) + unit->s * a->table_row;
    const char *pool = tern_cpu_ptr(a->pool);
    for (int64_t i = from / TERN_KV_BLOCK; i * TERN_KV_BLOCK < to; i++) {
        const char *head = pool + (size_t)table[first / TERN_KV_BLOCK + i] * run->kv.block_bytes +
                           (size_t)unit->kv * run->kv.head_bytes;
        out->keys[i] = head;
        out->values[i] = head + run->kv.value_bytes;
        out->scales[i] = (const float *)(const void *)(head + run->kv.scale_bytes);
    }
    int64_t end = (to + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    int64_t last = (unit->position0 + unit->tokens - 1 - first) / TERN_KV_BLOCK;
    for (int64_t i = end; i < end + AHEAD; i++) {
        int64_t block = first / TERN_KV_BLOCK + (i > last ? last : i);
        out->keys[i] = pool + (size_t)table[block] * run->kv.block_bytes +
                       (size_t)unit->kv * run->kv.head_bytes;
        out->values[i] = out->keys[i] + run->kv.value_bytes;
    }
}

/* Scores of a few rows times the keys' scales, or weights times the values'. */
static void scale_keys(float *p,
                       int64_t rows,
                       const struct blocks *blocks,
                       int64_t from,
                       int64_t to,
                       int64_t which)
{
    for (int64_t i = from / TERN_KV_BLOCK; i * TERN_KV_BLOCK < to; i++) {
        const float *scales = blocks->scales[i] + which * TERN_KV_BLOCK;
        for (int64_t r = 0; r < rows; r++) {
            float *at = p + r * SEGMENT + i * TERN_KV_BLOCK;
            for (int v = 0; v < BLOCK_VECTORS; v++) {
                vf_store(at + v * VF_LANES,
                         vf_load(at + v * VF_LANES) * vf_load(scales + v * VF_LANES));
            }
        }
    }
}

/* Scores of `rows` rows with keys [from, to) of a segment, whole blocks. */
VF_INLINE void score_rows(int rows,
                          const float *q,
                          const struct tern_cpu_kv *kv,
                          const struct blocks *blocks,
                          int64_t from,
                          int64_t to,
                          bool fetches,
                          float *p,
                          enum tern_dtype kept)
{
    int64_t i = from / TERN_KV_BLOCK, end = (to + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    for (; i + TILE_BLOCKS <= end; i += TILE_BLOCKS) {
        score_tile(rows, TILE_BLOCKS, q, kv->dp, blocks->keys + i, blocks->values + i, kv->d,
                   p + i * TERN_KV_BLOCK, fetches, kept);
    }
    if (TILE_BLOCKS > 1 && i < end) {
        score_tile(rows, 1, q, kv->dp, blocks->keys + i, blocks->values + i, kv->d,
                   p + i * TERN_KV_BLOCK, fetches, kept);
    }
}

VF_INLINE void add_values(int rows,
                          const struct tern_cpu_kv *kv,
                          const struct blocks *blocks,
                          int64_t from,
                          int64_t to,
                          const float *p,
                          float *total,
                          const float *old_factor,
                          const float *new_factor,
                          bool fetches,
                          enum tern_dtype kept)
{
    int64_t at = 0;
    for (; at + TILE_VECTORS * VF_LANES <= kv->dp; at += TILE_VECTORS * VF_LANES) {
        value_tile(rows, TILE_VECTORS, p, blocks->values, at, from, to, kv->dp, total, old_factor,
                   new_factor, fetches, kept);
    }
    for (; at < kv->dp; at += VF_LANES) {
        value_tile(rows, 1, p, blocks->values, at, from, to, kv->dp, total, old_factor, new_factor,
                   fetches, kept);
    }
}

/* Rows [r0, r0 + rows) of a unit with a segment that begins at key `first`. */
VF_INLINE void attend_rows(const struct run *run,
                           const struct unit *unit,
                           int rows,
                           int64_t r0,
                           int64_t first,
                           const float *q,
                           float *p,
                           const struct state *state,
                           enum tern_dtype kept)
{
    const struct tern_paged_attention_args *a = run->args;
    int64_t last = unit->position0 + (r0 + rows - 1) / run->group;
    int64_t from = most(0, first_key(a, unit->position0 + r0 / run->group) - first);
    int64_t to = least(SEGMENT, last - first + 1);
    if (from >= to) {
        return;
    }
    struct blocks blocks;
    float old_factor[TILE_ROWS], new_factor[TILE_ROWS];
    find_blocks(run, unit, first, from, to, &blocks);
    bool fetches = unit->rows < TILE_ROWS;
    score_rows(rows, q + r0 * run->kv.dp, &run->kv, &blocks, from, to, fetches, p, kept);
    if (kept == TERN_I8) {
        scale_keys(p, rows, &blocks, from, to, 0);
    }
    int64_t skipped = from / TERN_KV_BLOCK * TERN_KV_BLOCK;
    int64_t count = (tern_cpu_round_up(to, TERN_KV_BLOCK) - skipped) / VF_LANES;
    for (int r = 0; r < rows; r++) {
        int64_t position = unit->position0 + (r0 + r) / run->group - first;
        int64_t begin = a->window > 0 ? position - a->window + 1 : 0;
        weigh(run, p + r * SEGMENT + skipped, begin - skipped, position + 1 - skipped, count, state,
              r0 + r, &old_factor[r], &new_factor[r]);
    }
    if (kept == TERN_I8) {
        scale_keys(p, rows, &blocks, from, to, 1);
    }
    add_values(rows, &run->kv, &blocks, from, to, p, state->total + r0 * run->kv.dp, old_factor,
               new_factor, fetches && run->kv.d < WIDE, kept);
}

/* All rows of a unit with one segment. */
VF_INLINE void attend_segment(const struct run *run,
                              const struct unit *unit,
                              int64_t segment,
                              const float *q,
                              float *p,
                              const struct state *state,
                              enum tern_dtype kept)
{
    int64_t first = segment * SEGMENT, r = 0;
    for (; r + TILE_ROWS <= unit->rows; r += TILE_ROWS) {
        attend_rows(run, unit, TILE_ROWS, r, first, q, p, state, kept);
    }
#if VF_AVX512
    if (r + 4 <= unit->rows) {
        attend_rows(run, unit, 4, r, first, q, p, state, kept);
        r += 4;
    }
#endif
#if VF_AVX512 || VF_AVX2
    if (r + 3 == unit->rows) {
        attend_rows(run, unit, 3, r, first, q, p, state, kept);
        r += 3;
    }
    if (r + 2 <= unit->rows) {
        attend_rows(run, unit, 2, r, first, q, p, state, kept);
        r += 2;
    }
#endif
    if (r < unit->rows) {
        attend_rows(run, unit, 1, r, first, q, p, state, kept);
    }
}

static void attend_segment_any(const struct run *run,
                               const struct unit *unit,
                               int64_t segment,
                               const float *q,
                               float *p,
                               const struct state *state)
{
    switch (run->args->kv_dtype) {
    case TERN_F32:
        attend_segment(run, unit, segment, q, p, state, TERN_F32);
        break;
    case TERN_BF16:
        attend_segment(run, unit, segment, q, p, state, TERN_BF16);
        break;
    default:
        attend_segment(run, unit, segment, q, p, state, TERN_I8);
    }
}

static float sum_of(const float *lanes)
{
    vf sum = vf_load(lanes);
    for (int i = 1; i < BLOCK_VECTORS; i++) {
        sum = sum + vf_load(lanes + i * VF_LANES);
    }
    return vf_sum(sum);
}

static void finish(const struct run *run, const struct unit *unit, const struct state *state)
{
    const struct tern_paged_attention_args *a = run->args;
    const int32_t *starts = tern_cpu_ptr(a->row_starts);
    void *out = tern_cpu_ptr(a->out);
    for (int64_t r = 0; r < unit->rows; r++) {
        int64_t row = starts[unit->s] + unit->token0 + r / run->group;
        int64_t at = row * a->out_row + (unit->kv * run->group + r % run->group) * a->d;
        const float *total = state->total + r * run->kv.dp;
        vf factor = vf_set1(1.0f / sum_of(state->sum + r * LANES));
        /* + 0: no sign of a zero that depends on keys of no weight */
#define STEP(i, n, bf16) \
    vf_put_n(out, at + (i), vf_fma(vf_load(total + (i)), factor, vf_zero()), n, bf16)
#define STEP_BF16(i, n) STEP(i, n, true)
#define STEP_F32(i, n)  STEP(i, n, false)
        if (a->dtype == TERN_BF16) {
            VF_EACH(a->d, STEP_BF16);
        } else {
            VF_EACH(a->d, STEP_F32);
        }
#undef STEP_F32
#undef STEP_BF16
#undef STEP
    }
}

static void unit_task(void *arg, int64_t task, int thread)
{
    const struct run *run = arg;
    struct unit unit = unit_of(run, task);
    int64_t rows_max = unit_rows_max(run->group);
    float *q = scratch_queries(run, thread);
    float *p = q + rows_max * run->kv.dp;
    struct state state = state_at(run, p + TILE_ROWS * SEGMENT, unit.rows);
    pack_queries(run, &unit, q);
    state_clear(run, state, unit.rows);
    for (int64_t i = 0; i < unit.segments; i++) {
        attend_segment_any(run, &unit, unit.segment0 + i, q, p, &state);
    }
    finish(run, &unit, &state);
}

/* Segments shared out: one of them, to its slot. */
static void segment_task(void *arg, int64_t task, int thread)
{
    const struct run *run = arg;
    int64_t number = run->wave + task, u = 0;
    while (run->first_segment[u + 1] <= number) {
        u++;
    }
    struct unit unit = unit_of(run, u);
    float *q = scratch_queries(run, thread);
    float *p = q + unit_rows_max(run->group) * run->kv.dp;
    struct state state =
        state_at(run, run->slots + task * run->rows_slot * run->state_floats, unit.rows);
    pack_queries(run, &unit, q);
    state_clear(run, state, unit.rows);
    attend_segment_any(run, &unit, unit.segment0 + number - run->first_segment[u], q, p, &state);
}

/* The rows of `from`, of one segment, join those of `to`, as in weigh and value_tile. */
static void join(const struct run *run, struct state to, struct state from, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        float max = from.max[r] > to.max[r] ? from.max[r] : to.max[r];
        float lanes[2 * VF_LANES];
        vf_store(lanes, vf_exp2_capped(vf_set1(to.max[r]) - vf_set1(max)));
        vf_store(lanes + VF_LANES, vf_exp2_capped(vf_set1(from.max[r]) - vf_set1(max)));
        vf old_factor = vf_set1(lanes[0]), new_factor = vf_set1(lanes[VF_LANES]);
        for (int64_t i = 0; i < LANES; i += VF_LANES) {
            float *s = to.sum + r * LANES + i;
            vf_store(
                s, vf_fma(vf_load(from.sum + r * LANES + i), new_factor, vf_load(s) * old_factor));
        }
        for (int64_t i = 0; i < run->kv.dp; i += VF_LANES) {
            float *t = to.total + r * run->kv.dp + i;
            vf_store(t, vf_fma(vf_load(from.total + r * run->kv.dp + i), new_factor,
                               vf_load(t) * old_factor));
        }
        to.max[r] = max;
    }
}

/* What a wave gave for unit u. */
static void join_task(void *arg, int64_t u, int thread)
{
    (void)thread;
    const struct run *run = arg;
    struct unit unit = unit_of(run, u);
    int64_t row_floats = run->rows_slot * run->state_floats;
    struct state total = state_at(run, run->totals + u * row_floats, unit.rows);
    int64_t begin = run->first_segment[u], end = run->first_segment[u + 1];
    if (run->wave <= begin) {
        state_clear(run, total, unit.rows);
    }
    for (int64_t i = most(begin, run->wave); i < least(end, run->wave + run->wave_count); i++) {
        struct state part = state_at(run, run->slots + (i - run->wave) * row_floats, unit.rows);
        join(run, total, part, unit.rows);
    }
    if (end > run->wave && end <= run->wave + run->wave_count) {
        finish(run, &unit, &total);
    }
}

static void run_split(struct run *run, int64_t units, float *memory)
{
    run->rows_slot = most(TERN_CPU_PAGED_SPLIT_ROWS, run->group);
    run->slots = memory;
    run->totals = memory + TERN_CPU_PAGED_SLOTS * run->rows_slot * run->state_floats;
    int64_t count = run->first_segment[units];
    for (run->wave = 0; run->wave < count; run->wave += TERN_CPU_PAGED_SLOTS) {
        run->wave_count = least(TERN_CPU_PAGED_SLOTS, count - run->wave);
        tern_cpu_parallel(run->device, run->wave_count, segment_task, run);
        tern_cpu_parallel(run->device, units, join_task, run);
    }
}

/* Whether segments are to be shared out; then first_segment is filled. */
static bool plan_split(struct run *run, int64_t units)
{
    if (run->device->threads == 1 || units > TERN_CPU_PAGED_SPLIT_UNITS ||
        units >= UNIT_TASKS_WANTED * run->device->threads || run->args->longest <= SEGMENT) {
        return false;
    }
    int64_t rows_most = most(TERN_CPU_PAGED_SPLIT_ROWS, run->group), segments_most = 0;
    run->first_segment[0] = 0;
    for (int64_t u = 0; u < units; u++) {
        struct unit unit = unit_of(run, u);
        if (unit.rows > rows_most) {
            return false;
        }
        segments_most = most(segments_most, unit.segments);
        run->first_segment[u + 1] = run->first_segment[u] + unit.segments;
    }
    return segments_most > 1;
}

tern_status TERN_CPU_LEVEL(paged_attention)(struct tern_cpu_device *device,
                                            const struct tern_paged_attention_args *args)
{
    const int32_t *starts = tern_cpu_ptr(args->row_starts);
    int64_t group = args->h / args->kv_heads;
    TERN_RETURN_IF_ERR(tern_cpu_need(device, "paged_attention",
                                     tern_cpu_paged_shared(args->sequences, group, args->d),
                                     tern_cpu_paged_scratch(group, args->d)));
    int64_t *first_unit = device->shared;
    struct run run = {.device = device,
                      .args = args,
                      .kv = tern_cpu_kv_layout(args->kv_heads, args->d, args->kv_dtype),
                      .group = group,
                      .tokens_unit = most(1, TERN_CPU_PAGED_ROWS / group),
                      .first_unit = first_unit};
    run.state_floats = run.kv.dp + LANES + 1;
    first_unit[0] = 0;
    for (int64_t s = 0; s < args->sequences; s++) {
        int64_t rows = starts[s + 1] - starts[s];
        first_unit[s + 1] = first_unit[s] + (rows + run.tokens_unit - 1) / run.tokens_unit;
    }
    int64_t units = first_unit[args->sequences] * args->kv_heads;
    if (plan_split(&run, units)) {
        run_split(&run, units, (float *)(void *)(first_unit + args->sequences + 1));
    } else {
        tern_cpu_parallel(device, units, unit_task, &run);
    }
    return TERN_OK;
}
