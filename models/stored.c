/* stored.c - the table of parameters against the table of contents of a checkpoint. */
#include "models/stored.h"

#include <stdio.h>
#include <string.h>

enum {
    SHAPE_BYTES = 96
};

/* "(320, 32)" */
static const char *shape_text(int rank, const int64_t *shape, char out[SHAPE_BYTES])
{
    size_t used = (size_t)snprintf(out, SHAPE_BYTES, "(");
    for (int i = 0; i < rank; i++) {
        used += (size_t)snprintf(out + used, SHAPE_BYTES - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)shape[i]);
    }
    snprintf(out + used, SHAPE_BYTES - used, ")");
    return out;
}

static const struct tern_param *find(const struct tern_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++) {
        if (strcmp(params->items[i].name, name) == 0) {
            return &params->items[i];
        }
    }
    return NULL;
}

static bool is_same_shape(const struct tern_param *param, int rank, const int64_t *shape)
{
    return rank == param->rank && shape[0] == param->shape[0] &&
           (rank == 1 || shape[1] == param->shape[1]);
}

tern_status tern_stored_check(const struct tern_params *params,
                              const struct tern_ckpt_reader *reader,
                              const char *group)
{
    int64_t found = 0;
    for (;; found++) {
        int rank;
        int64_t shape[TERN_CKPT_RANK_MAX];
        enum tern_dtype dtype;
        char stored[SHAPE_BYTES];
        char expected[SHAPE_BYTES];
        const char *name = tern_ckpt_tensor(reader, group, found, &rank, shape, &dtype);
        if (name == NULL) {
            break;
        }
        const struct tern_param *param = find(params, name);
        if (param == NULL) {
            return tern_fail(TERN_ERR_CONFIG,
                             "the checkpoint has a tensor %s, the configured model has none", name);
        }
        if (!is_same_shape(param, rank, shape)) {
            return tern_fail(TERN_ERR_CONFIG,
                             "tensor %s: the checkpoint has shape %s, the configured model %s",
                             name, shape_text(rank, shape, stored),
                             shape_text(param->rank, param->shape, expected));
        }
        if (dtype != TERN_F32) {
            return tern_fail(TERN_ERR_CONFIG, "tensor %s/%s: found %s, expected %s", group, name,
                             tern_dtype_name(dtype), tern_dtype_name(TERN_F32));
        }
    }
    if (found != params->count) {
        return tern_fail(TERN_ERR_CONFIG,
                         "the checkpoint has %lld tensors in %s, the configured model %d",
                         (long long)found, group, params->count);
    }
    return TERN_OK;
}
