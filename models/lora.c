/* lora.c - which tensors are adapted, and the table of their adapters. */
#include "models/lora.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <string.h>

enum {
    MERGE_COLUMNS = 256
};

/* ---- targets ---- */

static bool can_adapt(const struct tern_param *param)
{
    switch (param->role) {
    case TERN_ROLE_QKV_WEIGHT:
    case TERN_ROLE_K_WEIGHT:
    case TERN_ROLE_V_WEIGHT:
    case TERN_ROLE_OUT_WEIGHT:
    case TERN_ROLE_UP_WEIGHT:
    case TERN_ROLE_UP2_WEIGHT:
    case TERN_ROLE_DOWN_WEIGHT:
        return true;
    default:
        return false;
    }
}

/* The module's last name: "q_proj" of "model.layers.0.self_attn.q_proj.weight". */
static void module_name(const struct tern_param *param, struct tern_lora_target *out)
{
    const char *end = strrchr(param->name, '.');
    const char *begin = end;
    while (begin > param->name && begin[-1] != '.') {
        begin--;
    }
    snprintf(out->name, sizeof out->name, "%.*s", (int)(end - begin), begin);
}

bool tern_lora_is_target(const struct tern_param *param, const char *target)
{
    if (!can_adapt(param)) {
        return false;
    }
    if (strcmp(target, "all-linear") == 0) {
        return true;
    }
    size_t path = (size_t)(strrchr(param->name, '.') - param->name);
    size_t length = strlen(target);
    return length <= path && memcmp(param->name + path - length, target, length) == 0 &&
           (length == path || param->name[path - length - 1] == '.');
}

int tern_lora_targets(const struct tern_params *params, struct tern_lora_target *out, int capacity)
{
    int count = 0;
    for (int i = 0; i < params->count; i++) {
        bool is_new = can_adapt(&params->items[i]);
        for (int k = 0; k < count && is_new; k++) {
            is_new = !tern_lora_is_target(&params->items[i], out[k].name);
        }
        if (is_new && count < capacity) {
            module_name(&params->items[i], &out[count++]);
        }
    }
    return count;
}

/* Every target means some tensor. */
static tern_status check_targets(const struct tern_params *params,
                                 const struct tern_lora_config *config)
{
    struct tern_lora_target known[TERN_LORA_TARGETS_MAX];
    const char *names[TERN_LORA_TARGETS_MAX];
    char all[TERN_LORA_TARGETS_MAX * (sizeof known[0].name + 2)] = "";
    int count = tern_lora_targets(params, known, TERN_LORA_TARGETS_MAX);
    for (int i = 0; i < count; i++) {
        names[i] = known[i].name;
        strcat(strcat(all, i > 0 ? ", " : ""), names[i]);
    }
    for (int i = 0; i < config->target_count; i++) {
        int k = 0;
        while (k < params->count && !tern_lora_is_target(&params->items[k], config->targets[i])) {
            k++;
        }
        if (k == params->count) {
            return tern_fail(TERN_ERR_CONFIG,
                             "lora.targets: found '%.40s', expected one of %s; nearest is '%s'",
                             config->targets[i], all,
                             tern_text_nearest(config->targets[i], names, (size_t)count));
        }
    }
    return TERN_OK;
}

static bool is_chosen(const struct tern_lora_config *config, const struct tern_param *param)
{
    for (int i = 0; i < config->target_count; i++) {
        if (tern_lora_is_target(param, config->targets[i])) {
            return true;
        }
    }
    return false;
}

/* ---- the table ---- */

/* Where a tensor of the model belongs: its linear layer, and its columns of that layer's product. */
struct place {
    struct tern_lora_linear *linear;
    const struct tern_linear *base;
    int64_t out_begin;
};

static struct place place_of(struct tern_lora *lora, const struct tern_param *param)
{
    const struct tern_model_config *c = &lora->model->config;
    const struct tern_layer_map *map = &lora->model->layers[param->layer];
    struct tern_lora_layer *layer = &lora->layers[param->layer];
    int64_t q = c->heads * c->head_width;
    switch (param->role) {
    case TERN_ROLE_QKV_WEIGHT:
        return (struct place){&layer->qkv, &map->qkv, 0};
    case TERN_ROLE_K_WEIGHT:
        return (struct place){&layer->qkv, &map->qkv, q};
    case TERN_ROLE_V_WEIGHT:
        return (struct place){&layer->qkv, &map->qkv, q + c->kv_heads * c->head_width};
    case TERN_ROLE_OUT_WEIGHT:
        return (struct place){&layer->out, &map->out, 0};
    case TERN_ROLE_UP_WEIGHT:
        return (struct place){&layer->up, &map->up, 0};
    case TERN_ROLE_UP2_WEIGHT:
        return (struct place){&layer->up, &map->up, c->ff_width};
    case TERN_ROLE_DOWN_WEIGHT:
        return (struct place){&layer->down, &map->down, 0};
    default:
        break;
    }
    TERN_CHECK(false);
    return (struct place){0};
}

static void add_param(struct tern_lora *lora,
                      const struct tern_param *base,
                      const char *letter,
                      int bucket,
                      int64_t rows,
                      int64_t cols)
{
    struct tern_param *param = &lora->params.items[lora->params.count++];
    *param = (struct tern_param){
        .role = TERN_ROLE_COUNT,
        .layer = base->layer,
        .expert = -1,
        .bucket = bucket,
        .rank = 2,
        .shape = {rows, cols},
        .init = letter[0] == 'A' ? TERN_INIT_UNIFORM : TERN_INIT_ZERO,
        .decay = true,
    };
    snprintf(param->name, sizeof param->name, "base_model.model.%.*s.lora_%s.weight",
             (int)(strrchr(base->name, '.') - base->name), base->name, letter);
}

/* Parts of one linear layer: all A's, then all B's. */
static void add_linear(struct tern_lora *lora,
                       struct tern_lora_linear *linear,
                       int64_t in,
                       int bucket)
{
    for (int i = 0; i < linear->count; i++) {
        struct tern_lora_part *part = &linear->parts[i];
        part->a = &lora->params.items[lora->params.count];
        add_param(lora, part->base, "A", bucket, lora->rank, in);
    }
    for (int i = 0; i < linear->count; i++) {
        struct tern_lora_part *part = &linear->parts[i];
        part->b = &lora->params.items[lora->params.count];
        add_param(lora, part->base, "B", bucket, part->out, lora->rank);
    }
}

/* The parts of every layer, still without adapters. Returns how many. */
static int choose_parts(struct tern_lora *lora, const struct tern_lora_config *config)
{
    const struct tern_params *base = &lora->model->params;
    int count = 0;
    for (int i = 0; i < base->count; i++) {
        const struct tern_param *param = &base->items[i];
        if (!is_chosen(config, param)) {
            continue;
        }
        struct place at = place_of(lora, param);
        TERN_CHECK(at.linear->count < TERN_LORA_PARTS_MAX);
        at.linear->parts[at.linear->count++] = (struct tern_lora_part){
            .base = param,
            .out_begin = at.out_begin,
            .out = param->shape[at.base->is_out_in ? 0 : 1],
        };
        count++;
    }
    return count;
}

/* From here on the layer's products are adapted. */
static void attach(const struct tern_lora *lora,
                   struct tern_linear *base,
                   struct tern_lora_linear *linear)
{
    linear->rank = lora->rank;
    linear->scale = lora->scale;
    base->lora = linear->count > 0 ? linear : NULL;
}

tern_status tern_lora_init(struct tern_lora *lora,
                           struct tern_model *model,
                           const struct tern_lora_config *config)
{
    int64_t layers = model->config.layers;
    *lora = (struct tern_lora){.model = model,
                               .rank = config->rank,
                               .scale = (float)(config->alpha / (double)config->rank)};
    TERN_RETURN_IF_ERR(check_targets(&model->params, config));
    lora->layers = tern_alloc_zero("lora", (size_t)layers, sizeof *lora->layers);
    if (lora->layers == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the adapters of %lld layers",
                         (long long)layers);
    }
    int parts = choose_parts(lora, config);
    lora->params.items = tern_alloc_zero("lora", 2 * (size_t)parts, sizeof *lora->params.items);
    if (lora->params.items == NULL) {
        tern_lora_fini(lora);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the table of %d adapters", parts);
    }
    int bucket = 0;
    for (int64_t i = 0; i < layers; i++) {
        struct tern_lora_layer *layer = &lora->layers[i];
        struct tern_layer_map *map = &model->layers[i];
        int before = lora->params.count;
        add_linear(lora, &layer->qkv, map->qkv.in, bucket);
        add_linear(lora, &layer->out, map->out.in, bucket);
        add_linear(lora, &layer->up, map->up.in, bucket);
        add_linear(lora, &layer->down, map->down.in, bucket);
        layer->bucket = lora->params.count > before ? bucket++ : -1;
        attach(lora, &map->qkv, &layer->qkv);
        attach(lora, &map->out, &layer->out);
        attach(lora, &map->up, &layer->up);
        attach(lora, &map->down, &layer->down);
    }
    tern_status status = tern_params_layout(&lora->params);
    if (status != TERN_OK) {
        tern_lora_fini(lora);
    }
    return status;
}

void tern_lora_fini(struct tern_lora *lora)
{
    tern_params_fini(&lora->params);
    tern_free(lora->layers);
    *lora = (struct tern_lora){0};
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct tern_lora_width tern_lora_width(const struct tern_lora *lora)
{
    struct tern_lora_width width = {0};
    for (int64_t i = 0; i < lora->model->config.layers; i++) {
        const struct tern_layer_map *map = &lora->model->layers[i];
        const struct tern_linear *linears[] = {&map->qkv, &map->out, &map->up, &map->down};
        for (size_t k = 0; k < sizeof linears / sizeof linears[0]; k++) {
            const struct tern_linear *linear = linears[k];
            if (linear->lora != NULL) {
                width.low = max_i64(width.low, linear->lora->count * lora->rank);
                width.wide = max_i64(width.wide, max_i64(linear->in, linear->out));
            }
        }
    }
    return width;
}

double tern_lora_train_flops_per_token(const struct tern_lora *lora, int64_t sequence)
{
    return tern_model_train_flops_per_token(lora->model, sequence) -
           2 * tern_model_products_per_token(lora->model) +
           6 * (double)lora->params.parameter_count;
}

/* ---- merging ---- */

const struct tern_lora_part *tern_lora_find(const struct tern_lora *lora,
                                            const struct tern_param *base)
{
    if (base->layer < 0 || !can_adapt(base)) {
        return NULL;
    }
    const struct tern_lora_layer *layer = &lora->layers[base->layer];
    const struct tern_lora_linear *linears[] = {&layer->qkv, &layer->out, &layer->up, &layer->down};
    for (size_t k = 0; k < sizeof linears / sizeof linears[0]; k++) {
        for (int i = 0; i < linears[k]->count; i++) {
            if (strcmp(linears[k]->parts[i].base->name, base->name) == 0) {
                return &linears[k]->parts[i];
            }
        }
    }
    return NULL;
}

void tern_lora_merge(const struct tern_lora *lora,
                     const struct tern_param *base,
                     int64_t row,
                     int64_t count,
                     const float *a,
                     const float *b,
                     float *rows)
{
    bool is_out_in = lora->model->config.features.is_out_in;
    int64_t width = base->shape[1];
    int64_t in = is_out_in ? width : base->shape[0];
    for (int64_t i = 0; i < count; i++) {
        for (int64_t first = 0; first < width; first += MERGE_COLUMNS) {
            int64_t n = width - first < MERGE_COLUMNS ? width - first : MERGE_COLUMNS;
            double sum[MERGE_COLUMNS] = {0};
            for (int64_t k = 0; k < lora->rank; k++) {
                const float *a_row = a + k * in + (is_out_in ? first : row + i);
                const float *b_column = b + (is_out_in ? i : first) * lora->rank + k;
                for (int64_t j = 0; j < n; j++) {
                    sum[j] += is_out_in ? (double)b_column[0] * (double)a_row[j]
                                        : (double)b_column[j * lora->rank] * (double)a_row[0];
                }
            }
            float *out = rows + i * width + first;
            for (int64_t j = 0; j < n; j++) {
                out[j] = (float)((double)out[j] + (double)lora->scale * sum[j]);
            }
        }
    }
}
