/* args_paged.c - the arguments of the ops over paged keys and values: slots, rows, lengths and tables steer reads and
 * writes, so where the host can see them they are looked at. */
#include "kernels/args.h"
#include "kernels/check.h"

enum {
    POOL_ALIGN = 16
};

static void check_kept(struct tern_check *check, enum tern_dtype kv_dtype)
{
    if (kv_dtype != TERN_F32 && kv_dtype != TERN_BF16 && kv_dtype != TERN_I8) {
        TERN_CHECK_REFUSE(check, "%s: kv_dtype is %d, expected f32, bf16 or i8", check->op,
                          (int)kv_dtype);
    }
}

static void check_width(struct tern_check *check, int64_t d)
{
    tern_check_size(check, "d", d, 1);
    if (d > TERN_HEAD_WIDTH_MAX) {
        TERN_CHECK_REFUSE(check, "%s: d is %lld, expected at most %d", check->op, (long long)d,
                          TERN_HEAD_WIDTH_MAX);
    }
}

/* The pool as an operand. Slots and block numbers are 32 bits wide. */
static void check_pool(struct tern_check *check,
                       struct tern_dptr pool,
                       int64_t blocks,
                       int64_t kv_heads,
                       int64_t d,
                       enum tern_dtype kv_dtype,
                       unsigned flags)
{
    tern_check_size(check, "blocks", blocks, 1);
    if (blocks > INT32_MAX / TERN_KV_BLOCK) {
        TERN_CHECK_REFUSE(check, "%s: blocks is %lld, expected at most %d", check->op,
                          (long long)blocks, INT32_MAX / TERN_KV_BLOCK);
    }
    if (check->status != TERN_OK || check->device->ops->kv_block_bytes == NULL) {
        return; /* a backend without them is told so by the wrapper */
    }
    if (pool.addr % POOL_ALIGN != 0) {
        TERN_CHECK_REFUSE(check, "%s: pool is at address 0x%llx, expected a multiple of %d",
                          check->op, (unsigned long long)pool.addr, POOL_ALIGN);
    }
    size_t bytes = tern_kv_block_bytes(check->device, kv_heads, d, kv_dtype);
    tern_check_vector(check, "pool", pool, TERN_U8, blocks * (int64_t)bytes, flags);
}

static const int32_t *view_of(struct tern_check *check, struct tern_dptr p)
{
    return check->status == TERN_OK ? check->device->ops->device->host_view(check->device, p)
                                    : NULL;
}

static void check_slots(struct tern_check *check, const struct tern_kv_write_args *args)
{
    const int32_t *slots = view_of(check, args->slots);
    for (int64_t i = 0; slots != NULL && i < args->n; i++) {
        if (slots[i] < -1 || slots[i] >= args->blocks * TERN_KV_BLOCK) {
            TERN_CHECK_REFUSE(check, "%s: slots[%lld] is %d, expected -1 to %lld", check->op,
                              (long long)i, slots[i],
                              (long long)(args->blocks * TERN_KV_BLOCK - 1));
            return;
        }
    }
}

tern_status tern_args_check_kv_write(struct tern_device *device,
                                     const struct tern_kv_write_args *args,
                                     bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_KV_WRITE, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_size(&check, "kv_heads", args->kv_heads, 1);
    check_width(&check, args->d);
    tern_check_float(&check, "dtype", args->dtype);
    check_kept(&check, args->kv_dtype);
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    int64_t width = args->kv_heads * args->d;
    const int64_t cells[2] = {args->n, width};
    tern_check_stride(&check, "k_row", args->k_row, "kv_heads * d", width);
    tern_check_stride(&check, "v_row", args->v_row, "kv_heads * d", width);
    tern_check_rows(&check, "k", args->k, args->dtype, cells, args->k_row, TERN_OPERAND_READ);
    tern_check_rows(&check, "v", args->v, args->dtype, cells, args->v_row, TERN_OPERAND_READ);
    tern_check_vector(&check, "slots", args->slots, TERN_I32, args->n, TERN_OPERAND_READ);
    check_pool(&check, args->pool, args->blocks, args->kv_heads, args->d, args->kv_dtype,
               TERN_OPERAND_WRITE);
    check_slots(&check, args);
    return tern_check_finish(&check);
}

/* Sequence s: its rows, its length, and the blocks that its rows see. */
static void check_sequence(struct tern_check *check,
                           const struct tern_paged_attention_args *args,
                           int64_t s,
                           const int32_t *starts,
                           const int32_t *lengths,
                           const int32_t *table)
{
    int64_t rows = (int64_t)starts[s + 1] - starts[s], length = lengths[s];
    if (rows < 0) {
        TERN_CHECK_REFUSE(check, "%s: row_starts[%lld] is %d, expected at least %d", check->op,
                          (long long)(s + 1), starts[s + 1], starts[s]);
    } else if (rows > 0 && (length < rows || length > args->longest)) {
        TERN_CHECK_REFUSE(check, "%s: lengths[%lld] is %lld, expected %lld to %lld", check->op,
                          (long long)s, (long long)length, (long long)rows,
                          (long long)args->longest);
    }
    if (check->status != TERN_OK || rows == 0) {
        return;
    }
    int64_t first = args->window > 0 ? length - rows - args->window + 1 : 0;
    first = first > 0 ? first / TERN_KV_BLOCK : 0;
    for (int64_t i = first; i * TERN_KV_BLOCK < length; i++) {
        if (table[i] < 0 || table[i] >= args->blocks) {
            TERN_CHECK_REFUSE(check, "%s: tables[%lld][%lld] is %d, expected 0 to %lld", check->op,
                              (long long)s, (long long)i, table[i], (long long)(args->blocks - 1));
            return;
        }
    }
}

static void check_sequences(struct tern_check *check, const struct tern_paged_attention_args *args)
{
    const int32_t *starts = view_of(check, args->row_starts);
    const int32_t *lengths = view_of(check, args->lengths);
    const int32_t *tables = view_of(check, args->tables);
    if (starts == NULL || lengths == NULL || tables == NULL) {
        return;
    }
    if (starts[0] != 0 || starts[args->sequences] != args->n) {
        TERN_CHECK_REFUSE(check, "%s: row_starts go from %d to %d, expected from 0 to n = %lld",
                          check->op, starts[0], starts[args->sequences], (long long)args->n);
    }
    for (int64_t s = 0; s < args->sequences && check->status == TERN_OK; s++) {
        check_sequence(check, args, s, starts, lengths, tables + s * args->table_row);
    }
}

static void check_paged_sizes(struct tern_check *check,
                              const struct tern_paged_attention_args *args)
{
    tern_check_size(check, "n", args->n, 0);
    tern_check_size(check, "sequences", args->sequences, 1);
    tern_check_size(check, "longest", args->longest, 1);
    tern_check_size(check, "h", args->h, 1);
    tern_check_size(check, "kv_heads", args->kv_heads, 1);
    tern_check_size(check, "window", args->window, 0);
    check_width(check, args->d);
    tern_check_float(check, "dtype", args->dtype);
    check_kept(check, args->kv_dtype);
    tern_check_finite(check, "scale", args->scale);
    tern_check_softcap(check, "softcap", args->softcap, false);
    if (check->status == TERN_OK && args->h % args->kv_heads != 0) {
        TERN_CHECK_REFUSE(check, "%s: h is %lld, expected a multiple of kv_heads = %lld", check->op,
                          (long long)args->h, (long long)args->kv_heads);
    }
}

tern_status tern_args_check_paged_attention(struct tern_device *device,
                                            const struct tern_paged_attention_args *args,
                                            bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_PAGED_ATTENTION, args);
    TERN_RETURN_IF_ERR(check.status);
    check_paged_sizes(&check, args);
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    int64_t width = args->h * args->d;
    const int64_t cells[2] = {args->n, width};
    const int64_t table[2] = {args->sequences, (args->longest + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK};
    tern_check_stride(&check, "q_row", args->q_row, "h * d", width);
    tern_check_stride(&check, "out_row", args->out_row, "h * d", width);
    tern_check_stride(&check, "table_row", args->table_row, "the blocks of `longest`", table[1]);
    tern_check_rows(&check, "q", args->q, args->dtype, cells, args->q_row, TERN_OPERAND_READ);
    tern_check_rows(&check, "out", args->out, args->dtype, cells, args->out_row,
                    TERN_OPERAND_WRITE);
    check_pool(&check, args->pool, args->blocks, args->kv_heads, args->d, args->kv_dtype,
               TERN_OPERAND_READ);
    tern_check_vector(&check, "row_starts", args->row_starts, TERN_I32, args->sequences + 1,
                      TERN_OPERAND_READ);
    tern_check_vector(&check, "lengths", args->lengths, TERN_I32, args->sequences,
                      TERN_OPERAND_READ);
    tern_check_rows(&check, "tables", args->tables, TERN_I32, table, args->table_row,
                    TERN_OPERAND_READ);
    check_sequences(&check, args);
    return tern_check_finish(&check);
}
