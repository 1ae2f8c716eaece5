/* placed.c - tensors of a file to where a device computes from them, with as few copies as can be. */
#include "models/placed.h"

#include "kernels/open.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    ALIGN_BYTES = 64,
    PIECE_ELEMENTS = 4 << 20 /* converted at a time */
};

/* How a tensor gets to the device. */
enum way {
    WAY_BORROW,  /* used where it is mapped */
    WAY_COPY,    /* byte by byte, rows in their right order */
    WAY_CONVERT, /* to the model's dtype */
};

static bool is_host(struct tern_device *device)
{
    struct tern_dptr probe;
    return tern_device_borrow(device, device, &probe);
}

/* Whether a matrix is used in the type that its file has: the device computes from that. Products
 * take f16 and blocks only where the rows of W are its outputs. */
static bool keeps_type(struct tern_device *device,
                       const struct tern_model *model,
                       const struct tern_param *param,
                       const struct tern_param_source *source)
{
    enum tern_dtype dtype = source->tensor->dtype;
    bool is_head = param->role == TERN_ROLE_TOKEN_EMBEDDING || param->role == TERN_ROLE_HEAD;
    bool is_out_in =
        is_head || model->config.features.is_out_in || source->layout == TERN_LAYOUT_TRANSPOSED;
    bool takes_stored = (device->ops->lacks & TERN_LACKS_STORED) == 0;
    return dtype == model->dtype ||
           (takes_stored && (dtype == TERN_BF16 || (tern_dtype_is_stored(dtype) && is_out_in)));
}

static bool is_aligned(const struct tern_stored_tensor *tensor)
{
    size_t step = tern_dtype_is_stored(tensor->dtype) ? 1 : tern_dtype_bytes(tensor->dtype);
    return (uintptr_t)tensor->data % step == 0;
}

static enum way way_of(const struct tern_model *model,
                       struct tern_device *device,
                       const struct tern_param *param,
                       const struct tern_param_source *source)
{
    if (param->rank == 1 || !keeps_type(device, model, param, source)) {
        return WAY_CONVERT;
    }
    /* positions are added by an op that takes one type */
    if (param->role == TERN_ROLE_POSITION_EMBEDDING && source->tensor->dtype != model->dtype) {
        return WAY_CONVERT;
    }
    bool is_as_wanted =
        source->layout == TERN_LAYOUT_SAME || source->layout == TERN_LAYOUT_TRANSPOSED;
    return is_as_wanted && is_host(device) && is_aligned(source->tensor) ? WAY_BORROW : WAY_COPY;
}

static size_t stored_bytes(const struct tern_param *param, const struct tern_param_source *source)
{
    size_t row = 0;
    bool is_transposed = source->layout == TERN_LAYOUT_TRANSPOSED;
    bool is_whole = tern_dtype_row_bytes(source->tensor->dtype, param->shape[!is_transposed], &row);
    (void)is_whole; /* the reader of the file has checked it */
    return row * (size_t)param->shape[is_transposed];
}

static size_t needed_bytes(const struct tern_model *model,
                           const struct tern_param *param,
                           const struct tern_param_source *source,
                           enum way way)
{
    size_t bytes = way == WAY_BORROW ? 0
                   : way == WAY_COPY ? stored_bytes(param, source)
                                     : (size_t)param->size * tern_dtype_bytes(model->dtype);
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

size_t tern_placed_bytes(const struct tern_model *model,
                         struct tern_device *device,
                         const struct tern_pretrained *pretrained)
{
    size_t bytes = 0;
    for (int i = 0; i < model->params.count; i++) {
        const struct tern_param *param = &model->params.items[i];
        const struct tern_param_source *source = &pretrained->sources[i];
        bytes += needed_bytes(model, param, source, way_of(model, device, param, source));
    }
    return bytes;
}

static const char *first_byte(const struct tern_param *param,
                              const struct tern_param_source *source)
{
    size_t row = stored_bytes(param, source) / (size_t)param->shape[0];
    return (const char *)source->tensor->data + (size_t)source->first_row * row;
}

/* Rows of a paired tensor back in the order of the table, without decoding them. */
static tern_status copy_paired(struct tern_device *device,
                               const struct tern_model *model,
                               const struct tern_param *param,
                               const struct tern_param_source *source,
                               struct tern_dptr dst)
{
    size_t bytes = stored_bytes(param, source);
    size_t row = bytes / (size_t)param->shape[0];
    char *rows = tern_alloc("load", bytes);
    if (rows == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes to place %s", bytes,
                         param->name);
    }
    for (int64_t i = 0; i < param->shape[0]; i++) {
        int64_t from = tern_param_source_row(source, &model->config, i);
        memcpy(rows + (size_t)i * row, (const char *)source->tensor->data + (size_t)from * row,
               row);
    }
    tern_status status = device->ops->device->upload(device, dst, rows, bytes);
    tern_free(rows);
    return status;
}

/* n f32 become n bf16 at the beginning of the same memory. */
static void to_bf16(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        tern_bf16 half = tern_f32_to_bf16(values[i]);
        memcpy((char *)values + (size_t)i * sizeof half, &half, sizeof half);
    }
}

/* To the model's dtype, some rows at a time. */
static tern_status convert(struct tern_device *device,
                           const struct tern_model *model,
                           const struct tern_param *param,
                           const struct tern_param_source *source,
                           struct tern_dptr dst)
{
    int64_t columns = param->shape[1];
    int64_t step = PIECE_ELEMENTS / columns > 0 ? PIECE_ELEMENTS / columns : 1;
    step = step < param->shape[0] ? step : param->shape[0];
    float *rows = tern_alloc("load", (size_t)(step * columns) * sizeof *rows);
    tern_status status = TERN_OK;
    if (rows == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld values to place %s",
                         (long long)(step * columns), param->name);
    }
    for (int64_t row = 0; row < param->shape[0]; row += step) {
        int64_t count = param->shape[0] - row < step ? param->shape[0] - row : step;
        int64_t n = count * columns;
        TERN_GOTO_IF_ERR(
            status, tern_param_source_read(source, param, &model->config, row, count, rows), out);
        if (model->dtype == TERN_BF16) {
            to_bf16(rows, n);
        }
        TERN_GOTO_IF_ERR(
            status,
            device->ops->device->upload(device, tern_dptr_at(dst, row * columns, model->dtype),
                                        rows, (size_t)n * tern_dtype_bytes(model->dtype)),
            out);
    }
out:
    tern_free(rows);
    return status;
}

static tern_status place_one(struct tern_placed *placed,
                             const struct tern_model *model,
                             const struct tern_pretrained *pretrained,
                             int index,
                             uint64_t *used)
{
    const struct tern_param *param = &model->params.items[index];
    const struct tern_param_source *source = &pretrained->sources[index];
    struct tern_placed_tensor *item = &placed->items[index];
    enum way way = way_of(model, placed->device, param, source);
    bool is_transposed = source->layout == TERN_LAYOUT_TRANSPOSED;
    *item = (struct tern_placed_tensor){.data = {placed->block.addr + *used},
                                        .dtype = way == WAY_CONVERT ? model->dtype
                                                                    : source->tensor->dtype,
                                        .is_transposed = is_transposed && way != WAY_CONVERT};
    *used += needed_bytes(model, param, source, way);
    if (way == WAY_CONVERT) {
        return convert(placed->device, model, param, source, item->data);
    }
    if (source->layout == TERN_LAYOUT_PAIRED) {
        return copy_paired(placed->device, model, param, source, item->data);
    }
    const char *bytes = first_byte(param, source);
    if (way == WAY_BORROW) {
        bool is_borrowed = tern_device_borrow(placed->device, bytes, &item->data);
        (void)is_borrowed; /* way_of has asked */
        return TERN_OK;
    }
    return placed->device->ops->device->upload(placed->device, item->data, bytes,
                                               stored_bytes(param, source));
}

static tern_status take_items(const struct tern_model *model,
                              struct tern_device *device,
                              struct tern_placed *out)
{
    *out = (struct tern_placed){.device = device, .count = model->params.count};
    out->items = tern_alloc_zero("placed", (size_t)out->count, sizeof *out->items);
    return out->items != NULL
               ? TERN_OK
               : tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of %d tensors", out->count);
}

tern_status tern_placed_flat(const struct tern_model *model,
                             struct tern_device *device,
                             struct tern_dptr weights,
                             struct tern_placed *out)
{
    TERN_RETURN_IF_ERR(take_items(model, device, out));
    for (int i = 0; i < out->count; i++) {
        out->items[i] = (struct tern_placed_tensor){
            .data = tern_dptr_at(weights, model->params.items[i].offset, model->dtype),
            .dtype = model->dtype,
        };
    }
    return TERN_OK;
}

tern_status tern_placed_load(const struct tern_model *model,
                             struct tern_device *device,
                             const struct tern_pretrained *pretrained,
                             struct tern_placed *out)
{
    uint64_t used = 0;
    tern_status status;
    TERN_RETURN_IF_ERR(take_items(model, device, out));
    TERN_GOTO_IF_ERR(status,
                     device->ops->device->alloc(device, "weights",
                                                tern_placed_bytes(model, device, pretrained),
                                                &out->block),
                     fail);
    for (int i = 0; i < out->count; i++) {
        TERN_GOTO_IF_ERR(status, place_one(out, model, pretrained, i, &used), fail);
    }
    return TERN_OK;
fail:
    tern_placed_fini(out);
    return status;
}

void tern_placed_fini(struct tern_placed *placed)
{
    if (placed->device != NULL) {
        placed->device->ops->device->free(placed->device, placed->block);
    }
    tern_free(placed->items);
    *placed = (struct tern_placed){0};
}
