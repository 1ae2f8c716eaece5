/* loaded.h - a MODEL as users name it, ready to answer: its config, its weights on a device, its
 * tokenizer. MODEL: see weights.h. */
#ifndef TERN_RUNTIME_GENERATE_LOADED_H
#define TERN_RUNTIME_GENERATE_LOADED_H

#include "io/tokenizer.h"
#include "kernels/open.h"
#include "models/placed.h"
#include "runtime/generate/weights.h"

struct tern_loaded {
    struct tern_device *device;
    struct tern_model model;
    struct tern_placed placed;        /* where its tensors lie */
    struct tern_dptr weights;         /* of a run, not packed: model.dtype, flat; else null */
    struct tern_weights *files;       /* open where tensors lie in them; else NULL */
    struct tern_model_ids ids;        /* what the model's files say ends a text, ... */
    struct tern_tokenizer *tokenizer; /* NULL: there is none */
    int64_t step;
};

/* What is computed in: fp32, bf16, or what suits: of a run what it was trained in; of other models'
 * weights as they are stored, with activations in fp32 (on a GPU bf16 both). */
enum tern_loaded_precision {
    TERN_LOADED_AUTO,
    TERN_LOADED_F32,
    TERN_LOADED_BF16
};

/* mode: what its matrices become (models/placed.h); EXACT computes in fp32 whatever the precision. */
TERN_MUST_CHECK tern_status tern_loaded_open(const char *model,
                                             enum tern_loaded_precision precision,
                                             enum tern_placed_mode mode,
                                             struct tern_loaded *out);
/* How a text becomes tokens. */
enum tern_loaded_text {
    TERN_TEXT_AS_IT_IS, /* special tokens in it are text */
    TERN_TEXT_RENDERED, /* they are tokens, and all that the model wants are there: a chat template's text */
    TERN_TEXT_PROMPT, /* they are tokens, and what the tokenizer puts before a text (BOS) is put there */
};
/* Tokens of a text, all within the model's vocabulary; tern_alloc'd. */
TERN_MUST_CHECK tern_status tern_loaded_encode(const struct tern_loaded *loaded,
                                               const char *text,
                                               size_t bytes,
                                               enum tern_loaded_text kind,
                                               int32_t **ids_out,
                                               int64_t *count_out);
/* Whether a text ends with this token. */
bool tern_loaded_is_end(const struct tern_loaded *loaded, int32_t id);
void tern_loaded_close(struct tern_loaded *loaded);

#endif
