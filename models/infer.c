/* infer.c - the inference pass over many sequences: its memory, and what it is made of. */
#include "models/infer_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct tern_dptr take(uint64_t base, uint64_t *used, int64_t elements, enum tern_dtype dtype)
{
    struct tern_dptr p = {base + *used};
    *used += ((uint64_t)elements * tern_dtype_bytes(dtype) + 63) & ~(uint64_t)63;
    return p;
}

static int64_t kv_width(const struct tern_model_config *c)
{
    return c->kv_heads * c->head_width;
}

static int64_t q_width(const struct tern_model_config *c)
{
    return c->heads * c->head_width;
}

static int64_t up_width(const struct tern_model_config *c)
{
    return c->features.is_gated ? 2 * c->ff_width : c->ff_width;
}

static int64_t qkv_width(const struct tern_model_config *c)
{
    return q_width(c) + 2 * kv_width(c);
}

static int64_t table_row_max(const struct tern_infer_options *options)
{
    return (options->context + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
}

/* Numbers of the largest run. */
static int64_t numbers_max(const struct tern_infer_options *options)
{
    int64_t of_part = 3 + table_row_max(options);
    return 3 * options->rows + options->logit_rows + 2 + options->sequences * of_part;
}

static void place_experts(struct tern_infer *infer, uint64_t base, uint64_t *used)
{
    const struct tern_model_config *c = &infer->model->config;
    enum tern_dtype dtype = infer->model->dtype;
    int64_t n = infer->options.rows;
    int64_t pairs = n * c->experts_used;
    infer->router_logits = take(base, used, n * c->experts, dtype);
    infer->chosen = take(base, used, pairs, TERN_I32);
    infer->shares = take(base, used, pairs, TERN_F32);
    infer->pairs = take(base, used, pairs, TERN_I32);
    infer->pair_rows = take(base, used, pairs, TERN_I32);
    infer->starts = take(base, used, c->experts + 1, TERN_I32);
    infer->gathered = take(base, used, pairs * c->width, dtype);
    infer->expert_out = take(base, used, pairs * c->width, dtype);
    infer->expert_up = take(base, used, pairs * 2 * c->expert_ff_width, dtype);
    infer->expert_act = take(base, used, pairs * c->expert_ff_width, dtype);
}

static void place_rope(struct tern_infer *infer, uint64_t base, uint64_t *used)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t count = infer->options.context * (c->rope_width / 2);
    for (int i = 0; i < (c->rope_theta_local > 0 ? 2 : 1); i++) {
        infer->cos[i] = take(base, used, count, TERN_F32);
        infer->sin[i] = take(base, used, count, TERN_F32);
    }
}

static size_t place(struct tern_infer *infer, uint64_t base)
{
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_infer_options *options = &infer->options;
    enum tern_dtype dtype = infer->model->dtype;
    int64_t n = options->rows;
    int64_t pool_bytes = options->blocks * (int64_t)infer->block_bytes;
    uint64_t used = 0;
    infer->numbers = take(base, &used, numbers_max(options), TERN_I32);
    infer->pools = take(base, &used, c->layers * pool_bytes, TERN_U8);
    infer->x = take(base, &used, n * c->width, dtype);
    infer->x2 = take(base, &used, n * c->width, dtype);
    infer->branch = take(base, &used, n * c->width, dtype);
    infer->norm = take(base, &used, n * c->width, dtype);
    infer->qkv = take(base, &used, n * qkv_width(c), dtype);
    infer->att = take(base, &used, n * q_width(c), dtype);
    if (c->experts > 0) {
        place_experts(infer, base, &used);
    } else {
        infer->up = take(base, &used, n * up_width(c), dtype);
        infer->act = take(base, &used, n * c->ff_width, dtype);
    }
    infer->last_qkv = take(base, &used, options->logit_rows * qkv_width(c), dtype);
    infer->picked = take(base, &used, options->logit_rows * c->width, dtype);
    infer->logits = take(base, &used, options->logit_rows * c->vocab_size, TERN_F32);
    if (dtype != TERN_F32) {
        infer->hidden = take(base, &used, n * c->width, TERN_F32);
    }
    if (!c->features.has_positions) {
        place_rope(infer, base, &used);
    }
    return used;
}

static size_t layer_block_bytes(const struct tern_model *model,
                                const struct tern_device *device,
                                enum tern_dtype kv_dtype)
{
    const struct tern_model_config *c = &model->config;
    return tern_kv_block_bytes(device, c->kv_heads, c->head_width, kv_dtype);
}

size_t tern_infer_block_bytes(const struct tern_model *model,
                              struct tern_device *device,
                              enum tern_dtype kv_dtype)
{
    return (size_t)model->config.layers * layer_block_bytes(model, device, kv_dtype);
}

size_t tern_infer_bytes(const struct tern_model *model,
                        struct tern_device *device,
                        const struct tern_infer_options *options)
{
    struct tern_infer infer = {
        .model = model,
        .options = *options,
        .block_bytes = layer_block_bytes(model, device, options->kv_dtype),
    };
    return place(&infer, 0);
}

static tern_status prepare_device(struct tern_infer *infer)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t experts = c->experts > 0 ? c->experts_used : 1;
    int64_t widest = max_i64(up_width(c), 2 * c->expert_ff_width);
    struct tern_op_limits limits = {
        .rows = max_i64(infer->options.rows * experts, infer->options.logit_rows),
        .sequence = infer->options.context,
        .width = max_i64(widest, max_i64(c->width, qkv_width(c))),
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_width = c->head_width,
        .batch = infer->options.sequences,
        .vocab = c->vocab_size,
    };
    size_t bytes;
    return tern_device_prepare(infer->device, &limits, &bytes);
}

/* Host memory that runs need. */
static tern_status take_host(struct tern_infer *infer)
{
    const struct tern_model_config *c = &infer->model->config;
    infer->numbers_host =
        tern_alloc_zero("infer", (size_t)numbers_max(&infer->options), sizeof *infer->numbers_host);
    if (c->experts > 0) {
        infer->starts_host =
            tern_alloc_zero("infer", (size_t)c->experts + 1, sizeof *infer->starts_host);
    }
    bool is_whole = infer->numbers_host != NULL && (c->experts == 0 || infer->starts_host != NULL);
    return is_whole ? TERN_OK
                    : tern_fail(TERN_ERR_MEMORY, "cannot allocate buffers of an inference pass");
}

static tern_status check_options(const struct tern_model *model,
                                 const struct tern_device *device,
                                 const struct tern_infer_options *options)
{
    TERN_CHECK(options->rows >= 1 && options->sequences >= 1 && options->blocks >= 1);
    TERN_CHECK(options->context >= 1 && options->context <= model->config.context);
    TERN_CHECK(options->logit_rows >= 0);
    if (options->blocks > INT32_MAX / TERN_KV_BLOCK) {
        return tern_fail(TERN_ERR_INPUT, "%lld blocks of keys and values, expected at most %d",
                         (long long)options->blocks, INT32_MAX / TERN_KV_BLOCK);
    }
    if (layer_block_bytes(model, device, options->kv_dtype) == 0) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "backend %s keeps no keys and values of %s in blocks",
                         device->ops->device->name, tern_dtype_name(options->kv_dtype));
    }
    return TERN_OK;
}

tern_status tern_infer_create(const struct tern_model *model,
                              struct tern_device *device,
                              const struct tern_placed *weights,
                              const struct tern_infer_options *options,
                              struct tern_infer **out)
{
    TERN_RETURN_IF_ERR(check_options(model, device, options));
    struct tern_infer *infer = tern_alloc_zero("infer", 1, sizeof *infer);
    if (infer == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an inference pass");
    }
    *infer = (struct tern_infer){
        .model = model,
        .device = device,
        .weights = weights,
        .options = *options,
        .block_bytes = layer_block_bytes(model, device, options->kv_dtype),
        .length = options->context,
    };
    size_t bytes = place(infer, 0);
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_infer_layers_init(infer), fail);
    TERN_GOTO_IF_ERR(status, take_host(infer), fail);
    TERN_GOTO_IF_ERR(status, prepare_device(infer), fail);
    TERN_GOTO_IF_ERR(status, device->ops->device->alloc(device, "infer", bytes, &infer->memory),
                     fail);
    place(infer, infer->memory.addr);
    *out = infer;
    return TERN_OK;
fail:
    tern_infer_destroy(infer);
    return status;
}

void tern_infer_destroy(struct tern_infer *infer)
{
    if (infer == NULL) {
        return;
    }
    const struct tern_device_table *table = infer->device->ops->device;
    if (infer->logits_host != NULL) {
        table->unpin(infer->device, infer->logits_host);
    }
    if (infer->hidden_host != NULL) {
        table->unpin(infer->device, infer->hidden_host);
    }
    table->free(infer->device, infer->memory);
    tern_infer_layers_fini(infer);
    tern_free(infer->numbers_host);
    tern_free(infer->starts_host);
    tern_free(infer);
}

tern_status tern_infer_copy_block(struct tern_infer *infer, int32_t from, int32_t to)
{
    const struct tern_infer_options *options = &infer->options;
    if (from < 0 || to < 0 || from >= options->blocks || to >= options->blocks) {
        return tern_fail(TERN_ERR_ARGUMENT, "copy of block %d to %d, expected 0 to %lld", from, to,
                         (long long)(options->blocks - 1));
    }
    for (int64_t layer = 0; layer < infer->model->config.layers; layer++) {
        uint64_t pool =
            infer->pools.addr + (uint64_t)(layer * options->blocks) * infer->block_bytes;
        struct tern_dptr src = {pool + (uint64_t)from * infer->block_bytes};
        struct tern_dptr dst = {pool + (uint64_t)to * infer->block_bytes};
        TERN_RETURN_IF_ERR(
            infer->device->ops->device->copy(infer->device, dst, src, infer->block_bytes));
    }
    return TERN_OK;
}
