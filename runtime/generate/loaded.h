/* loaded.h - a MODEL as users name it, ready to answer: its config, its weights on a device, its
 * tokenizer. MODEL: see weights.h. */
#ifndef TERN_RUNTIME_GENERATE_LOADED_H
#define TERN_RUNTIME_GENERATE_LOADED_H

#include "io/tokenizer.h"
#include "kernels/open.h"
#include "models/transformer.h"

struct tern_loaded {
    struct tern_device *device;
    struct tern_model model;
    struct tern_dptr weights;         /* model.dtype, flat */
    struct tern_tokenizer *tokenizer; /* NULL: the run had none */
    int64_t step;
};

/* dtype of the weights: fp32, or what the run was trained in. */
enum tern_loaded_precision {
    TERN_LOADED_AUTO,
    TERN_LOADED_F32,
    TERN_LOADED_BF16
};

TERN_MUST_CHECK tern_status tern_loaded_open(const char *model,
                                             enum tern_loaded_precision precision,
                                             struct tern_loaded *out);
/* Tokens of a text, all within the model's vocabulary; tern_alloc'd. */
TERN_MUST_CHECK tern_status tern_loaded_encode(const struct tern_loaded *loaded,
                                               const char *text,
                                               size_t bytes,
                                               bool add_special,
                                               int32_t **ids_out,
                                               int64_t *count_out);
void tern_loaded_close(struct tern_loaded *loaded);

#endif
