/* imatrix.c - importances of columns: sums of squared activations over counts, a pair of tensors a
 * matrix, as llama.cpp's llama-imatrix writes them into a GGUF file. */
#include "runtime/base/mem.h"
#include "runtime/export/export_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct tern_export_imatrix {
    struct tern_gguf *gguf;
    float *values; /* the last answer */
};

tern_status tern_export_imatrix_open(const char *path, struct tern_export_imatrix **out)
{
    struct tern_export_imatrix *imatrix = tern_alloc_zero("imatrix", 1, sizeof *imatrix);
    tern_status status;
    if (imatrix == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate a reader", path);
    }
    TERN_GOTO_IF_ERR(status, tern_gguf_open(path, &imatrix->gguf), fail);
    if (!tern_gguf_string_is(imatrix->gguf, "general.type", "imatrix")) {
        status = tern_fail(TERN_ERR_INPUT,
                           "%s: key 'general.type' is not 'imatrix', expected a file that "
                           "llama-imatrix wrote",
                           path);
        goto fail;
    }
    *out = imatrix;
    return TERN_OK;
fail:
    tern_export_imatrix_close(imatrix);
    return status;
}

void tern_export_imatrix_close(struct tern_export_imatrix *imatrix)
{
    if (imatrix != NULL) {
        tern_gguf_close(imatrix->gguf);
        tern_free(imatrix->values);
        tern_free(imatrix);
    }
}

static tern_status find(const struct tern_export_imatrix *imatrix,
                        const char *name,
                        const char *end,
                        const struct tern_stored_tensor **out)
{
    char full[TERN_STORED_NAME_BYTES];
    snprintf(full, sizeof full, "%s.%s", name, end);
    *out = tern_tensor_file_find(tern_gguf_tensors(imatrix->gguf), full);
    if (*out != NULL && (*out)->dtype != TERN_F32) {
        return tern_fail(TERN_ERR_INPUT, "%s: tensor '%s' has type %s, expected f32",
                         tern_gguf_path(imatrix->gguf), full, tern_dtype_name((*out)->dtype));
    }
    return TERN_OK;
}

/* Sums in `out` become importances: divided by the count, then made to have the mean 1, because only proportions
 * matter and f32 holds their squares. */
static tern_status divide(const struct tern_export_imatrix *imatrix,
                          const char *name,
                          float count,
                          int64_t width,
                          float *out)
{
    double total = 0;
    for (int64_t i = 0; i < width; i++) {
        out[i] = count > 0 ? out[i] / count : 1;
        if (!(out[i] >= 0) || !isfinite(out[i])) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: column %lld of '%s' has the importance %g, expected 0 or more",
                             tern_gguf_path(imatrix->gguf), (long long)i, name, (double)out[i]);
        }
        total += (double)out[i];
    }
    for (int64_t i = 0; i < width; i++) {
        out[i] = total > 0 ? (float)((double)out[i] * (double)width / total) : 1;
    }
    return TERN_OK;
}

tern_status tern_export_imatrix_find(struct tern_export_imatrix *imatrix,
                                     const char *name,
                                     int64_t part,
                                     int64_t width,
                                     const float **out)
{
    const struct tern_stored_tensor *sums, *counts;
    *out = NULL;
    TERN_RETURN_IF_ERR(find(imatrix, name, "in_sum2", &sums));
    TERN_RETURN_IF_ERR(find(imatrix, name, "counts", &counts));
    if (sums == NULL || counts == NULL) {
        return TERN_OK;
    }
    int64_t parts = sums->elements / width;
    if (sums->shape[sums->rank > 0 ? sums->rank - 1 : 0] != width || part >= parts ||
        counts->elements != parts) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: '%s' has %lld sums and %lld counts, expected %lld columns for part "
                         "%lld",
                         tern_gguf_path(imatrix->gguf), name, (long long)sums->elements,
                         (long long)counts->elements, (long long)width, (long long)part);
    }
    float *values = tern_realloc("imatrix", imatrix->values, (size_t)width * sizeof *values);
    if (values == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld importances", (long long)width);
    }
    imatrix->values = values;
    float count; /* of any alignment in the file, as the sums are */
    memcpy(&count, (const char *)counts->data + (size_t)part * sizeof count, sizeof count);
    memcpy(values, (const char *)sums->data + (size_t)(part * width) * sizeof *values,
           (size_t)width * sizeof *values);
    TERN_RETURN_IF_ERR(divide(imatrix, name, count, width, values));
    *out = values;
    return TERN_OK;
}
