/* pass_memory.c - where a training pass keeps what: one block of device memory, carved in order. */
#include "models/pass_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

enum {
    LOGITS_BYTES = 128 << 20, /* unless the options say otherwise */
    LOGITS_ROWS_MAX = 16384,
    LOGITS_ROWS_MIN = 64,
    LOGITS_ALIGN =
        64 /* elements between two rows: a vocabulary may be odd, tensor cores want 16 bytes */
};

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Gives out addresses from base in order; base 0 only counts. */
struct carver {
    uint64_t base, used;
};

static struct tern_dptr carve(struct carver *carver, int64_t elements, enum tern_dtype dtype)
{
    struct tern_dptr p = {carver->base + carver->used};
    carver->used += ((uint64_t)elements * tern_dtype_bytes(dtype) + 63) & ~(uint64_t)63;
    return p;
}

static int64_t logits_rows(const struct tern_model *model,
                           const struct tern_pass_options *options,
                           int64_t n)
{
    int64_t rows = LOGITS_ROWS_MAX;
    int64_t bytes = options->logits_bytes > 0 ? options->logits_bytes : LOGITS_BYTES;
    while (rows > LOGITS_ROWS_MIN && rows * model->config.vocab_size * 4 > bytes) {
        rows /= 2;
    }
    return rows < n ? rows : n;
}

/* Elements from one row of logits to the next. */
int64_t tern_pass_logits_stride(const struct tern_model *model)
{
    return (model->config.vocab_size + LOGITS_ALIGN - 1) / LOGITS_ALIGN * LOGITS_ALIGN;
}

static int64_t up_width(const struct tern_model *model)
{
    return model->layers[0].up.out;
}

int tern_pass_rope_table(const struct tern_model *model, int layer)
{
    return model->config.rope_theta_local > 0 && model->layers[layer].window > 0;
}

/* Statistics of `count` norms; only LayerNorm has means. */
static struct tern_pass_stats carve_stats(struct carver *carver,
                                          int64_t count,
                                          enum tern_norm_kind kind)
{
    struct tern_pass_stats stats = {0};
    if (kind == TERN_NORM_LAYER) {
        stats.mean = carve(carver, count, TERN_F32);
    }
    stats.rstd = carve(carver, count, TERN_F32);
    return stats;
}

static void carve_attention(struct carver *carver,
                            const struct tern_model *model,
                            int64_t n,
                            struct tern_pass_saved *s)
{
    const struct tern_model_config *c = &model->config;
    s->norm1 = carve(carver, n * c->width, model->dtype);
    s->stats1 = carve_stats(carver, n, c->features.norm);
    s->qkv = carve(carver, n * model->layers[0].qkv.out, model->dtype);
    s->att = carve(carver, n * model->layers[0].out.in, model->dtype);
    s->lse = carve(carver, n * c->heads, TERN_F32);
    if (c->features.has_qk_norm) {
        s->q_raw = carve(carver, n * c->heads * c->head_width, model->dtype);
        s->k_raw = carve(carver, n * c->kv_heads * c->head_width, model->dtype);
        s->q_stats = carve_stats(carver, n * c->heads, TERN_NORM_RMS);
        s->k_stats = carve_stats(carver, n * c->kv_heads, TERN_NORM_RMS);
    }
}

static void carve_mlp(struct carver *carver,
                      const struct tern_model *model,
                      int64_t n,
                      struct tern_pass_saved *s)
{
    const struct tern_model_config *c = &model->config;
    s->x2 = carve(carver, n * c->width, model->dtype);
    s->norm2 = carve(carver, n * c->width, model->dtype);
    s->stats2 = carve_stats(carver, n, c->features.norm);
    s->up = carve(carver, n * up_width(model), model->dtype);
    s->act = carve(carver, n * c->ff_width, model->dtype);
    if (c->features.has_post_norms) {
        s->out1 = carve(carver, n * c->width, model->dtype);
        s->out2 = carve(carver, n * c->width, model->dtype);
        s->post1 = carve_stats(carver, n, c->features.norm);
        s->post2 = carve_stats(carver, n, c->features.norm);
    }
}

static void carve_layers(struct carver *carver,
                         const struct tern_model *model,
                         const struct tern_pass_options *options,
                         int64_t n,
                         struct tern_pass_saved *layers)
{
    bool share_attention = !options->backward || options->recompute != TERN_RECOMPUTE_NONE;
    bool share_mlp = !options->backward || options->recompute == TERN_RECOMPUTE_BLOCK;
    struct tern_pass_saved shared = {0};
    if (share_attention) {
        carve_attention(carver, model, n, &shared);
    }
    if (share_mlp) {
        carve_mlp(carver, model, n, &shared);
    }
    for (int64_t layer = 0; layer < model->config.layers; layer++) {
        struct tern_pass_saved own = shared;
        /* without a backward pass two streams suffice: a layer reads x1 and leaves x2 */
        if (options->backward || layer == 0) {
            own.x1 = carve(carver, n * model->config.width, model->dtype);
            shared.x1 = own.x1;
        }
        if (!share_attention) {
            carve_attention(carver, model, n, &own);
        }
        if (!share_mlp) {
            carve_mlp(carver, model, n, &own);
        }
        layers[layer] = own;
    }
}

static void carve_backward(struct carver *carver, struct tern_pass *pass)
{
    const struct tern_model *model = pass->model;
    int64_t n = pass->n;
    pass->dlogits = pass->logits;
    if (model->dtype == TERN_BF16) {
        pass->dlogits =
            carve(carver, pass->chunk_rows * tern_pass_logits_stride(model), model->dtype);
    }
    pass->dstream = carve(carver, n * model->config.width, model->dtype);
    pass->dnorm = carve(carver, n * model->config.width, model->dtype);
    if (model->config.features.has_post_norms) {
        pass->dbranch = carve(carver, n * model->config.width, model->dtype);
    }
    if (model->config.features.is_gated) { /* GELU's slope comes with the product */
        pass->dact = carve(carver, n * model->config.ff_width, model->dtype);
    }
    pass->dup = carve(carver, n * up_width(model), model->dtype);
    pass->dqkv = carve(carver, n * model->layers[0].qkv.out, model->dtype);
    pass->datt = carve(carver, n * model->layers[0].out.in, model->dtype);
}

/* What adapters need: low-rank rows and their way back, and a product before it is added. */
static void carve_adapters(struct carver *carver, struct tern_pass *pass)
{
    const struct tern_lora *lora = pass->options.lora;
    enum tern_dtype dtype = pass->model->dtype;
    struct tern_lora_width width = tern_lora_width(lora);
    pass->run.is_frozen = true;
    pass->run.low = carve(carver, pass->n * width.low, dtype);
    pass->run.dlow = carve(carver, pass->n * width.low, dtype);
    pass->run.wide = carve(carver, pass->n * width.wide, dtype);
    const struct tern_model_config *c = &pass->model->config;
    pass->unused = carve(carver, 2 * max_i64(c->width, c->head_width), TERN_F32);
}

/* Rotary positions: none, one table, or one for windowed layers besides. */
static int rope_tables(const struct tern_model_config *config)
{
    return config->features.has_positions ? 0 : config->rope_theta_local > 0 ? 2 : 1;
}

/* Places everything from base on; returns the bytes. layers has room for all layers. */
static size_t place(struct tern_pass *pass, uint64_t base)
{
    const struct tern_model *model = pass->model;
    const struct tern_model_config *c = &model->config;
    struct carver carver = {.base = base};
    pass->n = pass->options.batch * pass->options.sequence;
    pass->chunk_rows = logits_rows(model, &pass->options, pass->n);
    carve_layers(&carver, model, &pass->options, pass->n, pass->layers);
    pass->branch = carve(&carver, pass->n * c->width, model->dtype);
    pass->x_final = carve(&carver, pass->n * c->width, model->dtype);
    pass->norm_final = carve(&carver, pass->n * c->width, model->dtype);
    pass->stats_final = carve_stats(&carver, pass->n, c->features.norm);
    pass->logits = carve(&carver, pass->chunk_rows * tern_pass_logits_stride(model), TERN_F32);
    for (int i = 0; i < rope_tables(c); i++) {
        pass->cos[i] = carve(&carver, pass->options.sequence * (c->rope_width / 2), TERN_F32);
        pass->sin[i] = carve(&carver, pass->options.sequence * (c->rope_width / 2), TERN_F32);
    }
    if (pass->options.backward) {
        carve_backward(&carver, pass);
    }
    if (pass->options.lora != NULL) {
        carve_adapters(&carver, pass);
    }
    return carver.used;
}

size_t tern_pass_bytes(const struct tern_model *model, const struct tern_pass_options *options)
{
    struct tern_pass_saved *layers =
        tern_alloc("pass", (size_t)model->config.layers * sizeof *layers);
    if (layers == NULL) {
        return SIZE_MAX;
    }
    struct tern_pass pass = {.model = model, .options = *options, .layers = layers};
    size_t bytes = place(&pass, 0);
    tern_free(layers);
    return bytes;
}

struct tern_op_limits tern_pass_limits(const struct tern_model *model,
                                       const struct tern_pass_options *options)
{
    const struct tern_model_config *c = &model->config;
    int64_t widest = max_i64(max_i64(model->layers[0].qkv.out, up_width(model)), c->width);
    if (options->lora != NULL) {
        widest = max_i64(widest, tern_lora_width(options->lora).low);
    }
    return (struct tern_op_limits){
        .rows = options->batch * options->sequence,
        .sequence = options->sequence,
        .width = widest,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_width = c->head_width,
        .batch = options->batch,
        .vocab = c->vocab_size,
    };
}

static tern_status upload_rope(struct tern_pass *pass)
{
    const struct tern_model_config *c = &pass->model->config;
    int64_t t = pass->options.sequence, count = t * (c->rope_width / 2);
    size_t bytes = (size_t)count * sizeof(float);
    tern_status status = TERN_OK;
    if (rope_tables(c) == 0) {
        return TERN_OK;
    }
    float *tables = tern_alloc("rope", 2 * bytes);
    if (tables == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate rotary tables of %lld values",
                         (long long)(2 * count));
    }
    const struct tern_device_table *table = pass->device->ops->device;
    for (int i = 0; i < rope_tables(c); i++) {
        tern_rope_tables(c, i == 1, t, 0, t, tables, tables + count);
        TERN_GOTO_IF_ERR(status, table->upload(pass->device, pass->cos[i], tables, bytes), out);
        TERN_GOTO_IF_ERR(status, table->upload(pass->device, pass->sin[i], tables + count, bytes),
                         out);
    }
out:
    tern_free(tables);
    return status;
}

tern_status tern_pass_create(const struct tern_model *model,
                             struct tern_device *device,
                             const struct tern_pass_options *options,
                             struct tern_pass **out)
{
    TERN_CHECK(options->sequence <= model->config.context);
    struct tern_pass *pass = tern_alloc_zero("pass", 1, sizeof *pass);
    struct tern_pass_saved *layers =
        tern_alloc("pass", (size_t)model->config.layers * sizeof *layers);
    if (pass == NULL || layers == NULL) {
        tern_free(pass);
        tern_free(layers);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the plan of a pass");
    }
    *pass =
        (struct tern_pass){.model = model, .device = device, .options = *options, .layers = layers};
    tern_status status;
    TERN_GOTO_IF_ERR(
        status, device->ops->device->alloc(device, "activations", place(pass, 0), &pass->memory),
        fail);
    place(pass, pass->memory.addr);
    pass->run.device = device;
    pass->run.dtype = model->dtype;
    pass->run.n = pass->n;
    TERN_GOTO_IF_ERR(status, upload_rope(pass), fail);
    *out = pass;
    return TERN_OK;
fail:
    tern_pass_destroy(pass);
    return status;
}

void tern_pass_destroy(struct tern_pass *pass)
{
    if (pass == NULL) {
        return;
    }
    pass->device->ops->device->free(pass->device, pass->memory);
    tern_free(pass->layers);
    tern_free(pass);
}
