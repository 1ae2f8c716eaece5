/* batch.c - two sets of buffers in turn: one is read by the device while the other fills. */
#include "runtime/train/batch.h"

#include "kernels/ops.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    SETS = 2
};

struct tern_batch {
    struct tern_batch_options options;
    /* with an uploader */
    int32_t *pinned[SETS];         /* (2, tokens): inputs, targets */
    struct tern_dptr staged[SETS]; /* the same on the device */
    int current;
    /* without */
    const int32_t *inputs, *targets;
};

int64_t tern_batch_bytes(int64_t tokens)
{
    return SETS * 2 * tokens * (int64_t)sizeof(int32_t);
}

static tern_status take_memory(struct tern_batch *batch)
{
    struct tern_device *device = batch->options.device;
    const struct tern_device_table *table = device->ops->device;
    size_t bytes = (size_t)tern_batch_bytes(batch->options.tokens) / SETS;
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
                             const int32_t *targets)
{
    const struct tern_batch_options *o = &batch->options;
    batch->inputs = inputs;
    batch->targets = targets;
    if (o->uploader == NULL) {
        return TERN_OK;
    }
    const struct tern_device_table *table = o->device->ops->device;
    size_t bytes = (size_t)o->tokens * sizeof *inputs;
    batch->current = (batch->current + 1) % SETS;
    int32_t *pinned = batch->pinned[batch->current];
    memcpy(pinned, inputs, bytes);
    memcpy(pinned + o->tokens, targets, bytes);
    TERN_RETURN_IF_ERR(
        table->upload_begin(o->uploader, batch->staged[batch->current], pinned, 2 * bytes));
    return table->after(o->device, o->uploader);
}

tern_status tern_batch_fetch(struct tern_batch *batch, int64_t at)
{
    const struct tern_batch_options *o = &batch->options;
    const struct tern_device_table *table = o->device->ops->device;
    size_t bytes = (size_t)o->micro_tokens * sizeof *batch->inputs;
    if (o->uploader == NULL) {
        TERN_RETURN_IF_ERR(table->upload(o->device, o->ids, batch->inputs + at, bytes));
        return table->upload(o->device, o->targets, batch->targets + at, bytes);
    }
    struct tern_dptr staged = batch->staged[batch->current];
    TERN_RETURN_IF_ERR(table->copy(o->device, o->ids, tern_dptr_at(staged, at, TERN_I32), bytes));
    return table->copy(o->device, o->targets, tern_dptr_at(staged, o->tokens + at, TERN_I32),
                       bytes);
}
