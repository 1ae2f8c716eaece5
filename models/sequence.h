/* sequence.h - the inference pass for one sequence that grows: any number of new tokens at a time. */
#ifndef TERN_MODELS_SEQUENCE_H
#define TERN_MODELS_SEQUENCE_H

#include "models/placed.h"
#include "models/transformer.h"

struct tern_sequence;

struct tern_sequence_options {
    int64_t positions; /* longest sequence: the cache's size, <= context */
    int64_t chunk;     /* most new tokens in one call */
};

/* Model and weights stay as they are until destroy. */
TERN_MUST_CHECK tern_status tern_sequence_create(const struct tern_model *model,
                                                 struct tern_device *device,
                                                 const struct tern_placed *weights,
                                                 const struct tern_sequence_options *options,
                                                 struct tern_sequence **out);
void tern_sequence_destroy(struct tern_sequence *sequence);
/* Says that the sequence will become at least `length` tokens long: rotary positions that depend on
 * the length (dynamic, longrope) take it from the first token on, as they do in a pass over the
 * whole. Without it they follow as the sequence grows. */
void tern_sequence_expect(struct tern_sequence *sequence, int64_t length);
/* Appends n tokens (1 <= n <= chunk) to the sequence. logits_out, f32 host memory, receives (V) for
 * the last token, or (n, V) when all_rows; NULL: none. */
TERN_MUST_CHECK tern_status tern_sequence_append(struct tern_sequence *sequence,
                                                 const int32_t *ids,
                                                 int64_t n,
                                                 bool all_rows,
                                                 float *logits_out);
/* Appends as above; nll_out, f32 host memory (n), receives -log p(targets[i]) of what follows token
 * i, 0 where targets[i] is -1. */
TERN_MUST_CHECK tern_status tern_sequence_nll(struct tern_sequence *sequence,
                                              const int32_t *ids,
                                              const int32_t *targets,
                                              int64_t n,
                                              float *nll_out);
int64_t tern_sequence_position(const struct tern_sequence *sequence);
/* Forgets tokens from `position` on. */
void tern_sequence_rewind(struct tern_sequence *sequence, int64_t position);

#endif
