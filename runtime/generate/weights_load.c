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

static tern_status load_param(const struct route *r, const struct tern_param *param)
{
    const struct tern_device_table *table = r->device->ops->device;
    int64_t width = param->shape[1];
    int64_t step = PIECE_ELEMENTS / width;
    step = step < 1 ? 1 : step;
    if (r->hash != NULL) {
        tern_hash_update(r->hash, param->name, strlen(param->name));
        tern_hash_update(r->hash, param->shape, sizeof param->shape);
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
    int64_t largest = PIECE_ELEMENTS;
    for (int i = 0; i < params->count; i++) {
        largest = params->items[i].shape[1] > largest ? params->items[i].shape[1] : largest;
    }
    TERN_RETURN_IF_ERR(tern_weights_check(weights, params));
    size_t bytes = (size_t)params->flat_size * tern_dtype_bytes(model->dtype);
    TERN_RETURN_IF_ERR(table->alloc(device, "weights", bytes, out));
    route.dst = *out;
    route.rows = tern_alloc("load", (size_t)largest * sizeof(float));
    tern_status status;
    if (route.rows == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld values to read weights",
                         (long long)largest);
    }
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
