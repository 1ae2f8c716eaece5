/* param_sources.h - where each parameter of a model lies in a model file, and how it lies there.
 *
 * Files have their own names, and GGUF changes some tensors on the way in; what these functions
 * give is always the tensor as the table in params.h has it, which is Hugging Face's way. */
#ifndef TERN_MODELS_PARAM_SOURCES_H
#define TERN_MODELS_PARAM_SOURCES_H

#include "io/tensor_file.h"
#include "models/params.h"

enum tern_layout {
    TERN_LAYOUT_SAME,
    TERN_LAYOUT_TRANSPOSED, /* stored (shape[1], shape[0]): GPT-2's matrices in GGUF */
    TERN_LAYOUT_PAIRED,     /* rows of each head in the order 0, D/2, 1, D/2 + 1, ...: q and k of
                             * GGUF's llama */
    TERN_LAYOUT_PLUS_ONE    /* 1 + weight: the norms of Gemma in GGUF */
};

struct tern_param_source {
    const struct tern_stored_tensor *tensor;
    int64_t first_row; /* of the stored tensor seen as a matrix: an expert's part of one for all */
    enum tern_layout layout;
};

enum tern_naming {
    TERN_NAMING_HF,
    TERN_NAMING_GGUF
};

/* One a parameter, in the order of params: (params->count). Owned: tern_free. Every parameter is
 * there in its shape, and the file holds nothing that the model has no use for: TERN_ERR_INPUT names
 * file, tensor, found and expected. */
TERN_MUST_CHECK tern_status tern_param_sources_find(const struct tern_params *params,
                                                    const struct tern_model_config *config,
                                                    enum tern_naming naming,
                                                    const struct tern_tensor_file *file,
                                                    struct tern_param_source **out);
/* Rows [row, row + count) of a parameter, dense f32 (count, shape[1]). */
TERN_MUST_CHECK tern_status tern_param_source_read(const struct tern_param_source *source,
                                                   const struct tern_param *param,
                                                   const struct tern_model_config *config,
                                                   int64_t row,
                                                   int64_t count,
                                                   float *dst);

/* Where row `row` of a matrix lies in the stored tensor, seen as a matrix; not for transposed ones. */
int64_t tern_param_source_row(const struct tern_param_source *source,
                              const struct tern_model_config *config,
                              int64_t row);

/* GGUF's name of a parameter, and how its values lie there. Of an expert: the name of the tensor of
 * all experts. */
const char *tern_gguf_param_name(const struct tern_model_config *config,
                                 const struct tern_param *param,
                                 char out[TERN_PARAM_NAME_BYTES]);
enum tern_layout tern_gguf_param_layout(const struct tern_model_config *config,
                                        const struct tern_param *param);

#endif
