/* paged.c - cases of keys and values in blocks: sequences of several lengths whose tokens a kv_write brings into blocks in
 * no order, and the last tokens of each, which a paged_attention serves. */
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "tests/kernels/build.h"

#include <math.h>
#include <string.h>

enum {
    SKIPPED = 3, /* rows of k and v that go nowhere */
    SCATTER = 7, /* block i is number 7 i */
};

enum which {
    SLOTS,
    ROW_STARTS,
    LENGTHS,
    TABLES
};

static int64_t rows_of(const int64_t *d, int64_t s)
{
    return s % 3 == 0 ? d[PAGED_ROWS] : s % 3 == 1 ? 1 : s % 5;
}

static int64_t length_of(const int64_t *d, int64_t s)
{
    int64_t length = d[PAGED_LENGTH] - s * d[PAGED_LENGTH] / (2 * d[PAGED_S]), rows = rows_of(d, s);
    return length > rows ? length : rows;
}

static int64_t blocks_of(const int64_t *d, int64_t s)
{
    return (length_of(d, s) + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
}

/* Sums over the sequences before s. */
static int64_t sum_before(const int64_t *d, int64_t s, int64_t (*of)(const int64_t *, int64_t))
{
    int64_t sum = 0;
    for (int64_t i = 0; i < s; i++) {
        sum += of(d, i);
    }
    return sum;
}

static int64_t pool_blocks(const int64_t *d)
{
    int64_t blocks = sum_before(d, d[PAGED_S], blocks_of) + 1;
    return blocks % SCATTER == 0 ? blocks + 1 : blocks;
}

static int64_t block_number(const int64_t *d, int64_t s, int64_t i)
{
    return (sum_before(d, s, blocks_of) + i) * SCATTER % pool_blocks(d);
}

static int64_t slot_of(const int64_t *d, int64_t n)
{
    for (int64_t s = 0; s < d[PAGED_S]; s++) {
        if (n < length_of(d, s)) {
            return block_number(d, s, n / TERN_KV_BLOCK) * TERN_KV_BLOCK + n % TERN_KV_BLOCK;
        }
        n -= length_of(d, s);
    }
    return -1;
}

/* -1 where no row looks. */
static int64_t table_entry(const int64_t *d, int64_t s, int64_t i)
{
    int64_t oldest = length_of(d, s) - rows_of(d, s) - d[PAGED_WINDOW] + 1;
    int64_t first = d[PAGED_WINDOW] > 0 && oldest > 0 ? oldest / TERN_KV_BLOCK : 0;
    return i >= first && i < blocks_of(d, s) ? block_number(d, s, i) : -1;
}

double tern_paged_value(const struct tern_instance *in, const struct tern_tensor *t, int64_t at)
{
    const int64_t *d = in->c.dim;
    switch ((enum which)t->limit) {
    case SLOTS:
        return (double)slot_of(d, at);
    case ROW_STARTS:
        return (double)sum_before(d, at, rows_of);
    case LENGTHS:
        return (double)length_of(d, at);
    default:
        return (double)table_entry(d, at / t->width, at % t->width);
    }
}

/* As many bytes as any backend's block takes. */
static int64_t block_bytes_max(const int64_t *d)
{
    int64_t bytes = (int64_t)tern_dtype_bytes((enum tern_dtype)d[PAGED_KEPT]);
    return d[PAGED_K] * (2 * TERN_KV_BLOCK * ((d[PAGED_D] + 15) * bytes + 4) + 64);
}

static void numbers(struct tern_tensor *t, enum which which)
{
    t->fill = TERN_FILL_PAGED;
    t->limit = which;
}

static void build_write(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_kv_write_args *args = &in->args.paged.write;
    int64_t width = d[PAGED_K] * d[PAGED_D];
    *args = (struct tern_kv_write_args){
        .n = sum_before(d, d[PAGED_S], length_of) + SKIPPED,
        .kv_heads = d[PAGED_K],
        .d = d[PAGED_D],
        .k_row = width + d[PAGED_PAD],
        .v_row = width + 2 * d[PAGED_PAD],
        .blocks = pool_blocks(d),
        .dtype = in->storage,
        .kv_dtype = (enum tern_dtype)d[PAGED_KEPT],
    };
    struct tern_tensor *k = TENSOR(in, paged.write, k, in->storage, TERN_ROLE_IN, args->n, width);
    k->stride = args->k_row;
    k->large = 20;
    TENSOR(in, paged.write, v, in->storage, TERN_ROLE_IN, args->n, width)->stride = args->v_row;
    numbers(TENSOR(in, paged.write, slots, TERN_I32, TERN_ROLE_IN, 1, args->n), SLOTS);
    struct tern_tensor *pool = TENSOR(in, paged.write, pool, TERN_U8, TERN_ROLE_IN_LOST, 1,
                                      args->blocks * block_bytes_max(d));
    pool->fill = TERN_FILL_STORED; /* any bytes */
    pool->limit = TERN_Q4_0;
    tern_build_slot(in, offsetof(union tern_args, paged.attend.pool), 0);
    in->shifted &= ~(1U << (in->tensor_count - 1));
}

void tern_build_paged(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    build_write(in);
    struct tern_paged_attention_args *args = &in->args.paged.attend;
    int64_t width = d[PAGED_H] * d[PAGED_D];
    int64_t table_row = (d[PAGED_LENGTH] + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK + d[PAGED_PAD];
    *args = (struct tern_paged_attention_args){
        .n = sum_before(d, d[PAGED_S], rows_of),
        .sequences = d[PAGED_S],
        .longest = d[PAGED_LENGTH],
        .table_row = table_row,
        .blocks = pool_blocks(d),
        .h = d[PAGED_H],
        .kv_heads = d[PAGED_K],
        .d = d[PAGED_D],
        .q_row = width + d[PAGED_PAD],
        .out_row = width + 3 * d[PAGED_PAD],
        .window = d[PAGED_WINDOW],
        .scale = (float)(1 / sqrt((double)d[PAGED_D])),
        .softcap = (float)d[PAGED_CAP],
        .dtype = in->storage,
        .kv_dtype = (enum tern_dtype)d[PAGED_KEPT],
    };
    struct tern_tensor *q = TENSOR(in, paged.attend, q, in->storage, TERN_ROLE_IN, args->n, width);
    q->stride = args->q_row;
    q->large = 20;
    numbers(TENSOR(in, paged.attend, row_starts, TERN_I32, TERN_ROLE_IN, 1, args->sequences + 1),
            ROW_STARTS);
    numbers(TENSOR(in, paged.attend, lengths, TERN_I32, TERN_ROLE_IN, 1, args->sequences), LENGTHS);
    numbers(TENSOR(in, paged.attend, tables, TERN_I32, TERN_ROLE_IN, args->sequences, table_row),
            TABLES);
    struct tern_tensor *out =
        TENSOR(in, paged.attend, out, in->storage, TERN_ROLE_OUT, args->n, width);
    out->stride = args->out_row;
    out->length = args->longest > args->d ? args->longest : args->d;
}

void tern_paged_limits(const struct tern_instance *in, struct tern_op_limits *limits)
{
    const struct tern_paged_attention_args *args = &in->args.paged.attend;
    limits->rows = args->n;
    limits->width = args->q_row;
    limits->sequence = args->longest;
    limits->heads = args->h;
    limits->kv_heads = args->kv_heads;
    limits->head_width = args->d;
    limits->batch = args->sequences;
}

tern_status tern_paged_call(const union tern_args *args, struct tern_device *device)
{
    TERN_RETURN_IF_ERR(tern_op_kv_write(device, &args->paged.write));
    return tern_op_paged_attention(device, &args->paged.attend);
}

/* What is kept of rows of `heads` heads; owned, (n, heads * d). */
static double *kept_rows(const struct tern_instance *in, const char *name)
{
    const struct tern_kv_write_args *args = &in->args.paged.write;
    const struct tern_tensor *t = &in->tensors[tern_instance_find(in, name)];
    double *out = tern_alloc("test", (size_t)(args->n * t->width) * sizeof *out);
    TERN_CHECK(out != NULL);
    for (int64_t head = 0; head < args->n * args->kv_heads; head++) {
        const double *x =
            t->value + head / args->kv_heads * t->stride + head % args->kv_heads * args->d;
        float max = 0;
        for (int64_t i = 0; i < args->d; i++) {
            max = fmaxf(max, fabsf((float)x[i]));
        }
        float factor = max >= 0x1p-100F ? 127.0F / max : 0;
        for (int64_t i = 0; i < args->d; i++) {
            out[head * args->d + i] = args->kv_dtype != TERN_I8
                                          ? tern_value_round(args->kv_dtype, x[i])
                                          : (double)(rintf((float)x[i] * factor) * (max / 127.0F));
        }
    }
    return out;
}

/* One row and head: every weight times what its score's error is, times every value. */
static void add_row(const struct tern_paged_attention_args *args,
                    const double *q,
                    const double *k,
                    const double *v,
                    int64_t first,
                    int64_t last,
                    double *magnitude)
{
    int64_t row = args->kv_heads * args->d;
    double scale = (double)args->scale, cap = (double)args->softcap, size = 0;
    double *scores = tern_alloc("test", (size_t)(last + 1) * sizeof *scores);
    TERN_CHECK(scores != NULL);
    double max = -INFINITY, total = 0;
    for (int64_t key = first; key <= last; key++) {
        double sum = 0, sum_abs = 0;
        for (int64_t i = 0; i < args->d; i++) {
            sum += scale * q[i] * k[key * row + i];
            sum_abs += fabs(scale * q[i] * k[key * row + i]);
        }
        scores[key] = cap > 0 ? cap * tanh(sum / cap) : sum;
        max = fmax(max, scores[key]);
        size = fmax(size, sum_abs);
    }
    for (int64_t key = first; key <= last; key++) {
        scores[key] = exp(scores[key] - max);
        total += scores[key];
    }
    for (int64_t key = first; key <= last; key++) {
        for (int64_t i = 0; i < args->d; i++) {
            magnitude[i] += scores[key] / total * (1 + size) * fabs(v[key * row + i]);
        }
    }
    tern_free(scores);
}

void tern_paged_magnitudes(struct tern_instance *in)
{
    const struct tern_paged_attention_args *args = &in->args.paged.attend;
    const int64_t *dim = in->c.dim;
    struct tern_tensor *out = &in->tensors[tern_instance_find(in, "out")];
    const double *q = in->tensors[tern_instance_find(in, "q")].value;
    double *k = kept_rows(in, "k"), *v = kept_rows(in, "v");
    int64_t width = args->kv_heads * args->d;
    memset(out->magnitude, 0, (size_t)tern_tensor_elements(out) * sizeof(double));
    for (int64_t s = 0; s < args->sequences; s++) {
        int64_t row0 = sum_before(dim, s, rows_of), token0 = sum_before(dim, s, length_of);
        for (int64_t i = 0; i < rows_of(dim, s) * args->h; i++) {
            int64_t row = row0 + i / args->h, head = i % args->h;
            int64_t kv = token0 * width + head / (args->h / args->kv_heads) * args->d;
            int64_t last = length_of(dim, s) - rows_of(dim, s) + i / args->h;
            int64_t first = args->window > 0 && last >= args->window ? last - args->window + 1 : 0;
            add_row(args, q + row * args->q_row + head * args->d, k + kv, v + kv, first, last,
                    out->magnitude + row * args->out_row + head * args->d);
        }
    }
    tern_free(k);
    tern_free(v);
}
