/* placed.c - tensors of a file to where a device computes from them, with as few copies as can be. */
#include "models/placed.h"

#include "io/file.h"
#include "kernels/open.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    ALIGN_BYTES = 64,
    PIECE_ELEMENTS = 4 << 20 /* converted at a time */
};

const char *const tern_placed_mode_names[TERN_PLACED_MODE_COUNT + 1] = {
    "stored", "exact", "auto", "bf16", "q8", "q4", NULL};

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

static bool is_head(const struct tern_param *param)
{
    return param->role == TERN_ROLE_TOKEN_EMBEDDING || param->role == TERN_ROLE_HEAD;
}

/* Whether the rows of a matrix of the table are outputs of a product. */
static bool is_out_in(const struct tern_model *model, const struct tern_param *param)
{
    return is_head(param) || model->config.features.is_out_in;
}

/* Whether a matrix is used in the type that its file has: the device computes from that. Products
 * take f16 and blocks only where the rows of W are its outputs. */
static bool keeps_type(struct tern_device *device,
                       const struct tern_model *model,
                       const struct tern_param *param,
                       const struct tern_param_source *source)
{
    enum tern_dtype dtype = source->tensor->dtype;
    bool by_outputs = is_out_in(model, param) || source->layout == TERN_LAYOUT_TRANSPOSED;
    bool takes_stored = (device->ops->lacks & TERN_LACKS_STORED) == 0;
    return dtype == model->dtype ||
           (takes_stored && (dtype == TERN_BF16 || (tern_dtype_is_stored(dtype) && by_outputs)));
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

static int64_t outputs_of(const struct tern_model *model, const struct tern_param *param)
{
    return param->shape[is_out_in(model, param) ? 0 : 1];
}

static int64_t inputs_of(const struct tern_model *model, const struct tern_param *param)
{
    return param->shape[is_out_in(model, param) ? 1 : 0];
}

/* The kind that a matrix of a type is packed as, by the mode alone. */
static enum tern_packed wanted_kind(enum tern_dtype dtype,
                                    const struct tern_param *param,
                                    enum tern_placed_mode mode)
{
    enum tern_packed own = tern_packed_for(dtype);
    if (mode == TERN_PLACED_EXACT) {
        return dtype == TERN_BF16 ? TERN_PACKED_BF16 : TERN_PACKED_F32;
    }
    if (mode == TERN_PLACED_BF16) {
        return TERN_PACKED_BF16;
    }
    if (mode == TERN_PLACED_AUTO || param->role == TERN_ROLE_ROUTER) {
        return dtype == TERN_F16 ? TERN_PACKED_BF16 : own;
    }
    bool is_four = mode == TERN_PLACED_Q4 && !is_head(param);
    bool keeps = own >= (is_four ? TERN_PACKED_Q4 : TERN_PACKED_Q8);
    return keeps ? own : is_four ? TERN_PACKED_Q4 : TERN_PACKED_Q8;
}

/* NONE: it stays unpacked. */
static enum tern_packed kind_of(const struct tern_model *model,
                                struct tern_device *device,
                                const struct tern_param *param,
                                enum tern_dtype dtype,
                                enum tern_placed_mode mode)
{
    if (mode == TERN_PLACED_STORED || param->rank == 1 ||
        param->role == TERN_ROLE_POSITION_EMBEDDING) {
        return TERN_PACKED_NONE;
    }
    enum tern_packed kind = wanted_kind(dtype, param, mode);
    int64_t n = outputs_of(model, param), k = inputs_of(model, param);
    if (tern_packed_is_codes(kind) && k % TERN_PACKED_GROUP != 0) {
        kind = TERN_PACKED_BF16;
    }
    return tern_packed_bytes(device, kind, n, k) > 0 ? kind : TERN_PACKED_NONE;
}

/* Where a tensor begins and ends in the block. Packed matrices follow one another without a gap: those that are one
 * product lie as one matrix. */
struct span {
    size_t begin, end;
};

static size_t round_up(size_t x)
{
    return (x + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static struct span span_of(size_t used, size_t bytes, enum tern_packed packed)
{
    struct span span = {packed != TERN_PACKED_NONE ? used : round_up(used), 0};
    span.end = span.begin + bytes;
    return span;
}

static size_t placed_bytes(const struct tern_model *model,
                           const struct tern_param *param,
                           const struct tern_param_source *source,
                           enum way way)
{
    return way == WAY_BORROW ? 0
           : way == WAY_COPY ? stored_bytes(param, source)
                             : (size_t)param->size * tern_dtype_bytes(model->dtype);
}

static struct span span_in_file(const struct tern_model *model,
                                struct tern_device *device,
                                const struct tern_pretrained *pretrained,
                                int index,
                                enum tern_placed_mode mode,
                                size_t used)
{
    const struct tern_param *param = &model->params.items[index];
    const struct tern_param_source *source = &pretrained->sources[index];
    enum tern_packed packed = kind_of(model, device, param, source->tensor->dtype, mode);
    size_t bytes =
        packed != TERN_PACKED_NONE
            ? tern_packed_bytes(device, packed, outputs_of(model, param), inputs_of(model, param))
            : placed_bytes(model, param, source, way_of(model, device, param, source));
    return span_of(used, bytes, packed);
}

size_t tern_placed_bytes(const struct tern_model *model,
                         struct tern_device *device,
                         const struct tern_pretrained *pretrained,
                         enum tern_placed_mode mode)
{
    size_t used = 0;
    for (int i = 0; i < model->params.count; i++) {
        used = span_in_file(model, device, pretrained, i, mode, used).end;
    }
    return round_up(used);
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

/* A tensor of the file, not packed, to dst or where it lies. */
static tern_status place_stored(struct tern_device *device,
                                const struct tern_model *model,
                                const struct tern_param *param,
                                const struct tern_param_source *source,
                                enum way way,
                                struct tern_dptr dst,
                                struct tern_placed_tensor *out)
{
    bool is_transposed = source->layout == TERN_LAYOUT_TRANSPOSED;
    *out = (struct tern_placed_tensor){.data = dst,
                                       .dtype = way == WAY_CONVERT ? model->dtype
                                                                   : source->tensor->dtype,
                                       .is_transposed = is_transposed && way != WAY_CONVERT};
    if (way == WAY_CONVERT) {
        return convert(device, model, param, source, dst);
    }
    if (source->layout == TERN_LAYOUT_PAIRED) {
        return copy_paired(device, model, param, source, dst);
    }
    const char *bytes = first_byte(param, source);
    if (way == WAY_BORROW) {
        bool is_borrowed = tern_device_borrow(device, bytes, &out->data);
        (void)is_borrowed; /* way_of has asked */
        return TERN_OK;
    }
    return device->ops->device->upload(device, dst, bytes, stored_bytes(param, source));
}

/* A matrix as it lies on the device, packed to dst; `tensor` says how it lies and becomes what it is then. */
static tern_status pack(struct tern_device *device,
                        const struct tern_model *model,
                        const struct tern_param *param,
                        enum tern_packed packed,
                        struct tern_dptr dst,
                        struct tern_placed_tensor *tensor)
{
    bool rows_are_outputs = is_out_in(model, param) != tensor->is_transposed;
    const struct tern_pack_args args = {
        .src = tensor->data,
        .dst = dst,
        .n = outputs_of(model, param),
        .k = inputs_of(model, param),
        .ld = rows_are_outputs ? inputs_of(model, param) : outputs_of(model, param),
        .trans_src = !rows_are_outputs,
        .src_dtype = tensor->dtype,
        .packed = packed,
    };
    *tensor = (struct tern_placed_tensor){.data = dst, .dtype = tensor->dtype, .packed = packed};
    return tern_op_pack(device, &args);
}

/* Through memory of its own where it cannot be packed from the file. */
static tern_status place_packed(struct tern_device *device,
                                const struct tern_model *model,
                                const struct tern_param *param,
                                const struct tern_param_source *source,
                                enum tern_packed packed,
                                struct tern_dptr dst,
                                struct tern_placed_tensor *out)
{
    enum way way = way_of(model, device, param, source);
    struct tern_dptr between = {0};
    tern_status status;
    if (way != WAY_BORROW) {
        TERN_RETURN_IF_ERR(device->ops->device->alloc(
            device, "load", placed_bytes(model, param, source, way), &between));
    }
    TERN_GOTO_IF_ERR(status, place_stored(device, model, param, source, way, between, out), out);
    status = pack(device, model, param, packed, dst, out);
    tern_map_drop(first_byte(param, source), stored_bytes(param, source));
out:
    device->ops->device->free(device, between);
    return status;
}

static tern_status place_one(struct tern_placed *placed,
                             const struct tern_model *model,
                             const struct tern_pretrained *pretrained,
                             int index,
                             enum tern_placed_mode mode,
                             size_t *used)
{
    const struct tern_param *param = &model->params.items[index];
    const struct tern_param_source *source = &pretrained->sources[index];
    struct tern_device *device = placed->device;
    struct span span = span_in_file(model, device, pretrained, index, mode, *used);
    struct tern_dptr dst = {placed->block.addr + span.begin};
    enum tern_packed packed = kind_of(model, device, param, source->tensor->dtype, mode);
    *used = span.end;
    return packed != TERN_PACKED_NONE
               ? place_packed(device, model, param, source, packed, dst, &placed->items[index])
               : place_stored(device, model, param, source, way_of(model, device, param, source),
                              dst, &placed->items[index]);
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

static struct span span_in_flat(const struct tern_model *model,
                                struct tern_device *device,
                                int index,
                                enum tern_placed_mode mode,
                                size_t used)
{
    const struct tern_param *param = &model->params.items[index];
    enum tern_packed packed = kind_of(model, device, param, model->dtype, mode);
    size_t bytes =
        packed != TERN_PACKED_NONE
            ? tern_packed_bytes(device, packed, outputs_of(model, param), inputs_of(model, param))
            : (size_t)param->size * tern_dtype_bytes(model->dtype);
    return span_of(used, bytes, packed);
}

static tern_status place_flat(struct tern_placed *placed,
                              const struct tern_model *model,
                              int index,
                              enum tern_placed_mode mode,
                              size_t *used)
{
    const struct tern_param *param = &model->params.items[index];
    struct tern_placed_tensor *item = &placed->items[index];
    struct tern_device *device = placed->device;
    struct span span = span_in_flat(model, device, index, mode, *used);
    struct tern_dptr dst = {placed->block.addr + span.begin}, src = item->data;
    enum tern_packed packed = kind_of(model, device, param, model->dtype, mode);
    *used = span.end;
    if (packed != TERN_PACKED_NONE) {
        return pack(device, model, param, packed, dst, item);
    }
    item->data = dst;
    return device->ops->device->copy(device, dst, src,
                                     (size_t)param->size * tern_dtype_bytes(model->dtype));
}

/* Where any matrix can be packed, the embedding can. */
static bool has_packed(const struct tern_model *model,
                       struct tern_device *device,
                       enum tern_placed_mode mode)
{
    const struct tern_param *param =
        tern_params_find(&model->params, TERN_ROLE_TOKEN_EMBEDDING, -1);
    return kind_of(model, device, param, model->dtype, mode) != TERN_PACKED_NONE;
}

tern_status tern_placed_flat(const struct tern_model *model,
                             struct tern_device *device,
                             struct tern_dptr weights,
                             enum tern_placed_mode mode,
                             struct tern_placed *out,
                             bool *is_borrowed_out)
{
    size_t used = 0;
    tern_status status;
    *is_borrowed_out = !has_packed(model, device, mode);
    TERN_RETURN_IF_ERR(take_items(model, device, out));
    for (int i = 0; i < out->count; i++) {
        out->items[i] = (struct tern_placed_tensor){
            .data = tern_dptr_at(weights, model->params.items[i].offset, model->dtype),
            .dtype = model->dtype,
        };
        used = span_in_flat(model, device, i, mode, used).end;
    }
    if (*is_borrowed_out) {
        return TERN_OK;
    }
    TERN_GOTO_IF_ERR(
        status, device->ops->device->alloc(device, "weights", round_up(used), &out->block), fail);
    used = 0;
    for (int i = 0; i < out->count; i++) {
        TERN_GOTO_IF_ERR(status, place_flat(out, model, i, mode, &used), fail);
    }
    return TERN_OK;
fail:
    tern_placed_fini(out);
    return status;
}

tern_status tern_placed_load(const struct tern_model *model,
                             struct tern_device *device,
                             const struct tern_pretrained *pretrained,
                             enum tern_placed_mode mode,
                             struct tern_placed *out)
{
    size_t used = 0;
    tern_status status;
    TERN_RETURN_IF_ERR(take_items(model, device, out));
    TERN_GOTO_IF_ERR(status,
                     device->ops->device->alloc(device, "weights",
                                                tern_placed_bytes(model, device, pretrained, mode),
                                                &out->block),
                     fail);
    for (int i = 0; i < out->count; i++) {
        TERN_GOTO_IF_ERR(status, place_one(out, model, pretrained, i, mode, &used), fail);
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
