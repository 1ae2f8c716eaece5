/* weights_load.c - a MODEL's tensors as one flat block on a device. */
#include "runtime/base/mem.h"
#include "runtime/generate/weights.h"

#include <string.h>

enum {
    PIECE_ELEMENTS = 4 << 20 /* read at a time */
};

/* What a tensor goes through on its way. */
struct route {
    struct tern_weights *weights;
    const struct tern_model *model;
    struct tern_device *device;
    struct tern_hash *hash; /* NULL: none */
    struct tern_dptr dst;   /* the flat block */
    float *rows;            /* host memory for some rows of any tensor */
    struct tern_dptr stage; /* the same on the device */
};

/* What stands for a tensor in the hash before its values. */
static void hash_head(struct tern_hash *hash, const struct tern_param *param)
{
    tern_hash_update(hash, param->name, strlen(param->name));
    tern_hash_update(hash, param->shape, sizeof param->shape);
}

static int64_t piece_rows(const struct tern_param *param)
{
    int64_t rows = PIECE_ELEMENTS / param->shape[1];
    return rows < 1 ? 1 : rows;
}

/* Room for a piece of any tensor. */
static tern_status take_rows(const struct tern_params *params, int64_t *elements, float **out)
{
    *elements = PIECE_ELEMENTS;
    for (int i = 0; i < params->count; i++) {
        int64_t width = params->items[i].shape[1];
        *elements = width > *elements ? width : *elements;
    }
    *out = tern_alloc("load", (size_t)*elements * sizeof **out);
    return *out != NULL ? TERN_OK
                        : tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld values to read weights",
                                    (long long)*elements);
}

static tern_status hash_param(struct tern_weights *weights,
                              const struct tern_param *param,
                              struct tern_hash *hash,
                              float *rows)
{
    int64_t step = piece_rows(param);
    hash_head(hash, param);
    for (int64_t row = 0; row < param->shape[0]; row += step) {
        int64_t take = param->shape[0] - row < step ? param->shape[0] - row : step;
        TERN_RETURN_IF_ERR(tern_weights_read(weights, param, row, take, rows));
        tern_hash_update(hash, rows, (size_t)(take * param->shape[1]) * sizeof *rows);
    }
    return TERN_OK;
}

tern_status tern_weights_hash(struct tern_weights *weights,
                              const struct tern_params *params,
                              char out[TERN_HASH_HEX_BYTES])
{
    struct tern_hash *hash;
    int64_t elements;
    float *rows = NULL;
    TERN_RETURN_IF_ERR(tern_hash_create(&hash));
    tern_status status = take_rows(params, &elements, &rows);
    for (int i = 0; status == TERN_OK && i < params->count; i++) {
        status = hash_param(weights, &params->items[i], hash, rows);
    }
    tern_hash_hex(hash, out);
    tern_hash_destroy(hash);
    tern_free(rows);
    return status;
}

static tern_status load_param(const struct route *r, const struct tern_param *param)
{
    const struct tern_device_table *table = r->device->ops->device;
    int64_t width = param->shape[1];
    int64_t step = piece_rows(param);
    if (r->hash != NULL) {
        hash_head(r->hash, param);
    }
    for (int64_t row = 0; row < param->shape[0]; row += step) {
        int64_t take = param->shape[0] - row < step ? param->shape[0] - row : step;
        size_t bytes = (size_t)(take * width) * sizeof(float);
        TERN_RETURN_IF_ERR(tern_weights_read(r->weights, param, row, take, r->rows));
        if (r->hash != NULL) {
            tern_hash_update(r->hash, r->rows, bytes);
        }
        TERN_RETURN_IF_ERR(table->upload(r->device, r->stage, r->rows, bytes));
        struct tern_cast_args cast = {
            .src = r->stage,
            .dst = tern_dptr_at(r->dst, param->offset + row * width, r->model->dtype),
            .n = take * width,
            .src_dtype = TERN_F32,
            .dst_dtype = r->model->dtype,
        };
        TERN_RETURN_IF_ERR(tern_op_cast(r->device, &cast));
    }
    return TERN_OK;
}

tern_status tern_weights_load(struct tern_weights *weights,
                              const struct tern_model *model,
                              struct tern_device *device,
                              struct tern_hash *hash,
                              struct tern_dptr *out)
{
    const struct tern_device_table *table = device->ops->device;
    const struct tern_params *params = &model->params;
    struct route route = {.weights = weights, .model = model, .device = device, .hash = hash};
    int64_t largest;
    TERN_RETURN_IF_ERR(tern_weights_check(weights, params));
    size_t bytes = (size_t)params->flat_size * tern_dtype_bytes(model->dtype);
    TERN_RETURN_IF_ERR(table->alloc(device, "weights", bytes, out));
    route.dst = *out;
    TERN_RETURN_IF_ERR(take_rows(params, &largest, &route.rows));
    tern_status status;
    TERN_GOTO_IF_ERR(
        status, table->alloc(device, "load", (size_t)largest * sizeof(float), &route.stage), out);
    for (int i = 0; i < params->count; i++) {
        TERN_GOTO_IF_ERR(status, load_param(&route, &params->items[i]), out);
    }
    status = table->sync(device);
out:
    table->free(device, route.stage);
    tern_free(route.rows);
    return status;
}
