/* params_layout.c - from a table of tensors to one flat block: offsets, buckets, blocks. */
#include "models/params.h"
#include "runtime/base/mem.h"

enum {
    BUCKET_ALIGN = 16,
    BLOCK_ELEMENTS = 16384
};

static int64_t align_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

/* Rows of a tensor that make one block. */
static int64_t block_rows(const struct tern_param *param)
{
    int64_t rows = BLOCK_ELEMENTS / param->shape[1];
    return rows > 0 ? rows : 1;
}

/* Offsets of tensors and buckets. */
static void place(struct tern_params *params)
{
    int64_t offset = 0;
    int bucket = -1;
    for (int i = 0; i < params->count; i++) {
        struct tern_param *param = &params->items[i];
        if (param->bucket != bucket) {
            bucket = param->bucket;
            offset = align_up(offset, BUCKET_ALIGN);
            params->bucket_starts[bucket] = offset;
        }
        param->size = param->shape[0] * param->shape[1];
        param->offset = offset;
        offset += param->size;
        params->parameter_count += param->size;
    }
    params->flat_size = align_up(offset, BUCKET_ALIGN);
    params->bucket_starts[params->bucket_count] = params->flat_size;
}

static tern_status make_blocks(struct tern_params *params)
{
    int64_t count = 0;
    for (int i = 0; i < params->count; i++) {
        int64_t rows = block_rows(&params->items[i]);
        count += (params->items[i].shape[0] + rows - 1) / rows;
    }
    params->block_starts = tern_alloc("params", (size_t)(count + 1) * sizeof *params->block_starts);
    if (params->block_starts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of %lld blocks",
                         (long long)count);
    }
    int bucket = -1;
    for (int i = 0; i < params->count; i++) {
        const struct tern_param *param = &params->items[i];
        if (param->bucket != bucket) {
            bucket = param->bucket;
            params->bucket_blocks[bucket] = params->block_count;
        }
        int64_t step = block_rows(param) * param->shape[1];
        for (int64_t at = 0; at < param->size; at += step) {
            params->block_starts[params->block_count++] = param->offset + at;
        }
    }
    params->bucket_blocks[params->bucket_count] = params->block_count;
    params->block_starts[params->block_count] = params->flat_size;
    return TERN_OK;
}

tern_status tern_params_layout(struct tern_params *params)
{
    params->bucket_count = params->count > 0 ? params->items[params->count - 1].bucket + 1 : 0;
    size_t buckets = (size_t)params->bucket_count + 1;
    params->bucket_starts = tern_alloc_zero("params", buckets, sizeof *params->bucket_starts);
    params->bucket_blocks = tern_alloc_zero("params", buckets, sizeof *params->bucket_blocks);
    tern_status status;
    if (params->bucket_starts == NULL || params->bucket_blocks == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate the table of %zu buckets", buckets);
        goto fail;
    }
    place(params);
    TERN_GOTO_IF_ERR(status, make_blocks(params), fail);
    return TERN_OK;
fail:
    tern_params_fini(params);
    return status;
}
