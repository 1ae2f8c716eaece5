/* batch.c - two sets of buffers in turn: one is read by the device while the other fills. */
#include "runtime/train/batch.h"

#include "kernels/ops.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    SETS = 2,
    ARRAYS_MAX = 3 /* inputs, targets, starts */
};

struct tern_batch {
    struct tern_batch_options options;
    /* with an uploader */
    int32_t *pinned[SETS];         /* (arrays, tokens) */
    struct tern_dptr staged[SETS]; /* the same on the device */
    int current;
    /* without */
    const int32_t *arrays[ARRAYS_MAX];
};

static int array_count(bool is_packed)
{
    return is_packed ? ARRAYS_MAX : ARRAYS_MAX - 1;
}

static bool is_packed(const struct tern_batch *batch)
{
    return !tern_dptr_is_null(batch->options.starts);
}

int64_t tern_batch_bytes(int64_t tokens, bool packed)
{
    return SETS * array_count(packed) * tokens * (int64_t)sizeof(int32_t);
}

static tern_status take_memory(struct tern_batch *batch)
{
    struct tern_device *device = batch->options.device;
    const struct tern_device_table *table = device->ops->device;
    size_t bytes = (size_t)tern_batch_bytes(batch->options.tokens, is_packed(batch)) / SETS;
    for (int i = 0; i < SETS; i++) {
        TERN_RETURN_IF_ERR(table->alloc(device, "batch", bytes, &batch->staged[i]));
        batch->pinned[i] = table->pin(device, "batch", bytes);
        if (batch->pinned[i] == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot pin %zu bytes of host memory for a batch",
                             bytes);
        }
    }
    return TERN_OK;
}

tern_status tern_batch_create(const struct tern_batch_options *options, struct tern_batch **out)
{
    struct tern_batch *batch = tern_alloc_zero("batch", 1, sizeof *batch);
    if (batch == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a batch");
    }
    batch->options = *options;
    tern_status status = options->uploader != NULL ? take_memory(batch) : TERN_OK;
    if (status != TERN_OK) {
        tern_batch_destroy(batch);
        return status;
    }
    *out = batch;
    return TERN_OK;
}

void tern_batch_destroy(struct tern_batch *batch)
{
    if (batch == NULL) {
        return;
    }
    struct tern_device *device = batch->options.device;
    for (int i = 0; i < SETS; i++) {
        device->ops->device->free(device, batch->staged[i]);
        device->ops->device->unpin(device, batch->pinned[i]);
    }
    tern_free(batch);
}

tern_status tern_batch_begin(struct tern_batch *batch,
                             const int32_t *inputs,
                             const int32_t *targets,
                             const int32_t *starts)
{
    const struct tern_batch_options *o = &batch->options;
    int count = array_count(is_packed(batch));
    batch->arrays[0] = inputs;
    batch->arrays[1] = targets;
    batch->arrays[2] = starts;
    if (o->uploader == NULL) {
        return TERN_OK;
    }
    const struct tern_device_table *table = o->device->ops->device;
    size_t bytes = (size_t)o->tokens * sizeof *inputs;
    batch->current = (batch->current + 1) % SETS;
    int32_t *pinned = batch->pinned[batch->current];
    for (int i = 0; i < count; i++) {
        memcpy(pinned + i * o->tokens, batch->arrays[i], bytes);
    }
    TERN_RETURN_IF_ERR(table->upload_begin(o->uploader, batch->staged[batch->current], pinned,
                                           (size_t)count * bytes));
    return table->after(o->device, o->uploader);
}

tern_status tern_batch_fetch(struct tern_batch *batch, int64_t at)
{
    const struct tern_batch_options *o = &batch->options;
    const struct tern_device_table *table = o->device->ops->device;
    const struct tern_dptr to[ARRAYS_MAX] = {o->ids, o->targets, o->starts};
    size_t bytes = (size_t)o->micro_tokens * sizeof *batch->arrays[0];
    for (int i = 0; i < array_count(is_packed(batch)); i++) {
        if (o->uploader == NULL) {
            TERN_RETURN_IF_ERR(table->upload(o->device, to[i], batch->arrays[i] + at, bytes));
        } else {
            struct tern_dptr from =
                tern_dptr_at(batch->staged[batch->current], i * o->tokens + at, TERN_I32);
            TERN_RETURN_IF_ERR(table->copy(o->device, to[i], from, bytes));
        }
    }
    return TERN_OK;
}
