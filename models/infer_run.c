/* infer_run.c - one run of the inference pass: parts checked and numbered, rotary tables grown, the layers, the head. */
#include "models/infer_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

enum {
    ROPE_STEP = 64 /* positions that tables grow by */
};

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What a number of a part is, and what it may be. */
static tern_status refuse(int64_t part,
                          const char *name,
                          int64_t value,
                          int64_t least,
                          int64_t most)
{
    return tern_fail(TERN_ERR_ARGUMENT, "part %lld: %s is %lld, expected %lld to %lld",
                     (long long)part, name, (long long)value, (long long)least, (long long)most);
}

static tern_status check_part(const struct tern_infer *infer,
                              const struct tern_infer_part *part,
                              int64_t number)
{
    const struct tern_infer_options *options = &infer->options;
    int64_t vocab = infer->model->config.vocab_size;
    if (part->count < 1 || part->count > options->rows) {
        return refuse(number, "count", part->count, 1, options->rows);
    }
    if (part->position < 0 || part->position > options->context - part->count) {
        return refuse(number, "position", part->position, 0, options->context - part->count);
    }
    if (part->logits < 0 || part->logits > part->count) {
        return refuse(number, "logits", part->logits, 0, part->count);
    }
    for (int64_t i = 0; i < part->count; i++) {
        if (part->ids[i] < 0 || part->ids[i] >= vocab) {
            return refuse(number, "a token", part->ids[i], 0, vocab - 1);
        }
    }
    for (int64_t i = 0; i * TERN_KV_BLOCK < part->position + part->count; i++) {
        if (part->blocks[i] < 0 || part->blocks[i] >= options->blocks) {
            return refuse(number, "a block", part->blocks[i], 0, options->blocks - 1);
        }
    }
    return TERN_OK;
}

/* Where everything of the run lies among its numbers. */
static tern_status lay_out(const struct tern_infer *infer,
                           const struct tern_infer_part *parts,
                           int64_t count,
                           struct tern_infer_numbers *run)
{
    const struct tern_infer_options *options = &infer->options;
    bool keeps_all = false;
    *run = (struct tern_infer_numbers){.parts = count};
    if (count < 1 || count > options->sequences) {
        return tern_fail(TERN_ERR_ARGUMENT, "%lld parts, expected 1 to %lld", (long long)count,
                         (long long)options->sequences);
    }
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(check_part(infer, &parts[i], i));
        run->rows += parts[i].count;
        run->wanted_rows += parts[i].logits;
        keeps_all |= parts[i].hidden;
        run->longest = max_i64(run->longest, parts[i].position + parts[i].count);
    }
    if (run->rows > options->rows || run->wanted_rows > options->logit_rows) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "%lld tokens, logits of %lld: expected at most %lld and %lld",
                         (long long)run->rows, (long long)run->wanted_rows,
                         (long long)options->rows, (long long)options->logit_rows);
    }
    run->last_rows = keeps_all ? run->rows : run->wanted_rows;
    run->table_row = (run->longest + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    run->positions = run->ids + run->rows;
    run->slots = run->positions + run->rows;
    run->wanted = run->slots + run->rows;
    run->row_starts = run->wanted + run->wanted_rows;
    run->wanted_starts = run->row_starts + count + 1;
    run->lengths = run->wanted_starts + count + 1;
    run->tables = run->lengths + count;
    run->count = run->tables + count * run->table_row;
    return TERN_OK;
}

static void number_part(struct tern_infer *infer,
                        const struct tern_infer_part *part,
                        int64_t number,
                        int64_t row0,
                        int64_t wanted0)
{
    const struct tern_infer_numbers *run = &infer->run;
    int32_t *n = infer->numbers_host;
    int64_t length = part->position + part->count;
    for (int64_t i = 0; i < part->count; i++) {
        int64_t position = part->position + i;
        n[run->ids + row0 + i] = part->ids[i];
        n[run->positions + row0 + i] = (int32_t)position;
        n[run->slots + row0 + i] = part->blocks[position / TERN_KV_BLOCK] * TERN_KV_BLOCK +
                                   (int32_t)(position % TERN_KV_BLOCK);
    }
    for (int64_t i = 0; i < part->logits; i++) {
        n[run->wanted + wanted0 + i] = (int32_t)(row0 + part->count - part->logits + i);
    }
    n[run->row_starts + number] = (int32_t)row0;
    n[run->wanted_starts + number] = (int32_t)wanted0;
    n[run->lengths + number] = (int32_t)length;
    int32_t *table = n + run->tables + number * run->table_row;
    for (int64_t i = 0; i < run->table_row; i++) {
        table[i] = i * TERN_KV_BLOCK < length ? part->blocks[i] : -1;
    }
}

static tern_status upload_numbers(struct tern_infer *infer, const struct tern_infer_part *parts)
{
    const struct tern_infer_numbers *run = &infer->run;
    int64_t row = 0, wanted = 0;
    for (int64_t i = 0; i < run->parts; i++) {
        number_part(infer, &parts[i], i, row, wanted);
        row += parts[i].count;
        wanted += parts[i].logits;
    }
    infer->numbers_host[run->row_starts + run->parts] = (int32_t)row;
    infer->numbers_host[run->wanted_starts + run->parts] = (int32_t)wanted;
    return infer->device->ops->device->upload(infer->device, infer->numbers, infer->numbers_host,
                                              (size_t)run->count * sizeof(int32_t));
}

/* Rows [first, first + count) of the rotary tables. */
static tern_status upload_rope(struct tern_infer *infer, int64_t first, int64_t count)
{
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_device_table *table = infer->device->ops->device;
    int64_t half = c->rope_width / 2, values = count * half;
    size_t bytes = (size_t)values * sizeof(float);
    float *tables = tern_alloc("rope", 2 * bytes);
    tern_status status = TERN_OK;
    if (tables == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate rotary tables of %lld values",
                         (long long)(2 * values));
    }
    for (int i = 0; i < (c->rope_theta_local > 0 ? 2 : 1) && status == TERN_OK; i++) {
        tern_rope_tables(c, i == 1, infer->length, first, count, tables, tables + values);
        status = table->upload(infer->device, tern_dptr_at(infer->cos[i], first * half, TERN_F32),
                               tables, bytes);
        if (status == TERN_OK) {
            status =
                table->upload(infer->device, tern_dptr_at(infer->sin[i], first * half, TERN_F32),
                              tables + values, bytes);
        }
    }
    tern_free(tables);
    return status;
}

/* The tables hold positions [first, end): they grow with the sequences, and begin at 0 unless a sequence whose length
 * changes its positions has gone on. */
static tern_status ready_rope(struct tern_infer *infer, int64_t first, int64_t end)
{
    if (infer->model->config.features.has_positions ||
        (first >= infer->ready_first && end <= infer->ready_end)) {
        return TERN_OK;
    }
    bool is_grown = first >= infer->ready_first && first <= infer->ready_end;
    int64_t from = is_grown ? infer->ready_end : first;
    int64_t to = min_i64(infer->options.context, (end + ROPE_STEP - 1) / ROPE_STEP * ROPE_STEP);
    infer->ready_first = is_grown ? infer->ready_first : first;
    infer->ready_end = from;
    TERN_RETURN_IF_ERR(upload_rope(infer, from, to - from));
    infer->ready_end = to;
    return TERN_OK;
}

void tern_infer_follow(struct tern_infer *infer, int64_t length)
{
    const struct tern_model_config *c = &infer->model->config;
    bool was_long = infer->length > c->rope_original_context;
    bool is_long = length > c->rope_original_context;
    bool is_same =
        !tern_rope_follows_length(c) || (!was_long && !is_long) ||
        (was_long && is_long && (c->rope_scaling == TERN_ROPE_LONGROPE || infer->length == length));
    infer->length = length;
    if (!is_same) {
        infer->ready_first = 0;
        infer->ready_end = 0;
    }
}

static tern_status embed(struct tern_infer *infer)
{
    const struct tern_model *model = infer->model;
    const struct tern_infer_numbers *run = &infer->run;
    float scale = tern_model_embedding_scale(&model->config, model->dtype);
    return tern_op_embed_fwd(infer->device,
                             &(struct tern_embed_fwd_args){
                                 .ids = tern_infer_number(infer, run->ids),
                                 .positions = tern_infer_number(infer, run->positions),
                                 .wte = infer->embedding->data,
                                 .wpe = infer->positions,
                                 .out = infer->x,
                                 .n = run->rows,
                                 .c = model->config.width,
                                 .v = model->config.vocab_size,
                                 .position_count = infer->options.context,
                                 .scale = scale != 1 ? scale : 0,
                                 .dtype = model->dtype,
                                 .wte_dtype = infer->embedding->dtype,
                                 .wte_packed = infer->embedding->packed,
                             });
}

tern_status tern_infer_forward(struct tern_infer *infer,
                               const struct tern_infer_part *parts,
                               int64_t count)
{
    struct tern_infer_numbers run;
    TERN_RETURN_IF_ERR(lay_out(infer, parts, count, &run));
    infer->run = run;
    int64_t first = parts[0].position;
    for (int64_t i = 1; i < count; i++) {
        first = min_i64(first, parts[i].position);
    }
    TERN_RETURN_IF_ERR(ready_rope(infer, first, run.longest));
    TERN_RETURN_IF_ERR(upload_numbers(infer, parts));
    TERN_RETURN_IF_ERR(embed(infer));
    return tern_infer_run_layers(infer);
}

tern_status tern_infer_head(struct tern_infer *infer, struct tern_dptr x, int64_t rows, bool capped)
{
    const struct tern_model *model = infer->model;
    const struct tern_matrix *matrix = &infer->head;
    TERN_CHECK(rows <= infer->options.logit_rows);
    TERN_RETURN_IF_ERR(
        tern_op_gemm(infer->device, &(struct tern_gemm_args){
                                        .a = x,
                                        .b = matrix->weight,
                                        .d = infer->logits,
                                        .m = rows,
                                        .n = matrix->out,
                                        .k = matrix->in,
                                        .lda = matrix->in,
                                        .ldb = matrix->ld,
                                        .ldd = matrix->out,
                                        .trans_b = matrix->is_out_in,
                                        .a_dtype = model->dtype,
                                        .b_dtype = matrix->dtype,
                                        .d_dtype = TERN_F32,
                                        .compute = tern_matrix_compute(matrix, model->dtype),
                                        .b_packed = matrix->packed,
                                    }));
    float cap = model->config.logit_softcap;
    return capped && cap > 0
               ? tern_op_softcap(infer->device, &(struct tern_softcap_args){.x = infer->logits,
                                                                            .y = infer->logits,
                                                                            .n = rows * matrix->out,
                                                                            .cap = cap})
               : TERN_OK;
}

tern_status tern_infer_pick(struct tern_infer *infer,
                            struct tern_dptr x,
                            int64_t width,
                            struct tern_dptr out)
{
    const struct tern_infer_numbers *run = &infer->run;
    return tern_op_embed_fwd(infer->device, &(struct tern_embed_fwd_args){
                                                .ids = tern_infer_number(infer, run->wanted),
                                                .wte = x,
                                                .out = out,
                                                .n = run->wanted_rows,
                                                .t = run->wanted_rows,
                                                .c = width,
                                                .v = run->rows,
                                                .dtype = infer->model->dtype,
                                            });
}

/* The final norms of the rows whose logits are asked for. */
static tern_status wanted_norms(struct tern_infer *infer, struct tern_dptr *out)
{
    if (infer->run.last_rows == infer->run.wanted_rows) {
        *out = infer->norm;
        return TERN_OK;
    }
    *out = infer->picked;
    return tern_infer_pick(infer, infer->norm, infer->model->config.width, infer->picked);
}

/* Host memory with what `count` floats of the device are: a view, or a copy in *host, which has room for `room`. */
static tern_status show(struct tern_infer *infer,
                        struct tern_dptr p,
                        int64_t count,
                        int64_t room,
                        float **host,
                        const float **out)
{
    const struct tern_device_table *table = infer->device->ops->device;
    *out = table->host_view(infer->device, p);
    if (*out != NULL) {
        return TERN_OK;
    }
    if (*host == NULL) {
        *host = table->pin(infer->device, "infer", (size_t)room * sizeof(float));
    }
    if (*host == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no pinned memory for %lld numbers", (long long)room);
    }
    *out = *host;
    return table->download(infer->device, *host, p, (size_t)count * sizeof(float));
}

tern_status tern_infer_run(struct tern_infer *infer,
                           const struct tern_infer_part *parts,
                           int64_t count,
                           const float **logits_out)
{
    int64_t vocab = infer->model->config.vocab_size;
    struct tern_dptr x;
    TERN_RETURN_IF_ERR(tern_infer_forward(infer, parts, count));
    if (logits_out == NULL || infer->run.wanted_rows == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(wanted_norms(infer, &x));
    TERN_RETURN_IF_ERR(tern_infer_head(infer, x, infer->run.wanted_rows, true));
    return show(infer, infer->logits, infer->run.wanted_rows * vocab,
                infer->options.logit_rows * vocab, &infer->logits_host, logits_out);
}

tern_status tern_infer_hidden(struct tern_infer *infer, const float **hidden_out)
{
    int64_t count = infer->run.rows * infer->model->config.width;
    struct tern_dptr from = infer->norm;
    if (infer->run.last_rows != infer->run.rows) {
        return tern_fail(TERN_ERR_ARGUMENT, "no part of the last run asked for hidden rows");
    }
    if (infer->model->dtype != TERN_F32) {
        from = infer->hidden;
        TERN_RETURN_IF_ERR(tern_op_cast(infer->device, &(struct tern_cast_args){
                                                           .src = infer->norm,
                                                           .dst = infer->hidden,
                                                           .n = count,
                                                           .src_dtype = infer->model->dtype,
                                                           .dst_dtype = TERN_F32,
                                                       }));
    }
    return show(infer, from, count, infer->options.rows * infer->model->config.width,
                &infer->hidden_host, hidden_out);
}
