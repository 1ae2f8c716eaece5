/* weights.h - a MODEL as users name it, opened for reading: its numbers, and its tensors row by row
 * in f32, wherever and however they are stored.
 *
 * MODEL is a run directory (its newest good checkpoint), one checkpoint of it (RUN/ckpt/step-N), a
 * Hugging Face folder (config.json, *.safetensors), a GGUF file, or a folder of adapters that peft
 * wrote (adapter_config.json, adapter_model.safetensors). Adapters, a run's or peft's, are added to
 * the weights of the model that they name, in f32. */
#ifndef TERN_RUNTIME_GENERATE_WEIGHTS_H
#define TERN_RUNTIME_GENERATE_WEIGHTS_H

#include "io/hash.h"
#include "models/pretrained.h"
#include "models/transformer.h"
#include "runtime/generate/adapters.h"

struct tern_weights;

/* Owned: close. For one thread at a time. */
TERN_MUST_CHECK tern_status tern_weights_open(const char *model, struct tern_weights **out);
void tern_weights_close(struct tern_weights *weights);
/* What was opened, as an absolute path: of a run directory the checkpoint. Valid until close. */
const char *tern_weights_path(const struct tern_weights *weights);
const struct tern_model_config *tern_weights_config(const struct tern_weights *weights);
/* What its passes were meant to compute in: bf16 or f32; f32 where files do not say. */
enum tern_dtype tern_weights_dtype(const struct tern_weights *weights);
/* Tokens with a meaning to the model, as far as its files say. */
const struct tern_model_ids *tern_weights_ids(const struct tern_weights *weights);
/* The files of a model that no run of Tern made; NULL: one did. Valid until close. */
const struct tern_pretrained *tern_weights_pretrained(const struct tern_weights *weights);
/* What is added to another model's weights, and that model; NULL: nothing is. Valid until close. */
const struct tern_adapters *tern_weights_adapters(const struct tern_weights *weights);
const struct tern_weights *tern_weights_base(const struct tern_weights *weights);
/* Training steps behind it; 0 unknown. */
int64_t tern_weights_step(const struct tern_weights *weights);
/* What tern_tokenizer_open takes; "" if it has no tokenizer. Valid until close. */
const char *tern_weights_tokenizer(const struct tern_weights *weights);
/* That every parameter is there in its shape, and nothing else is; names the tensor. Where a run's
 * adapters are added: also that the model is still the one they belong to, for which all of it is
 * read. */
TERN_MUST_CHECK tern_status tern_weights_check(struct tern_weights *weights,
                                               const struct tern_params *params);
/* Rows [row, row + count) of a tensor, dense f32 (count, shape[1]). */
TERN_MUST_CHECK tern_status tern_weights_read(struct tern_weights *weights,
                                              const struct tern_param *param,
                                              int64_t row,
                                              int64_t count,
                                              float *dst);
/* XXH3-128 of all tensors of a table: names, shapes and f32 values in its order, however stored. */
TERN_MUST_CHECK tern_status tern_weights_hash(struct tern_weights *weights,
                                              const struct tern_params *params,
                                              char out[TERN_HASH_HEX_BYTES]);
/* All tensors of a model of these numbers into a flat block of its dtype, which the caller frees on
 * the device, also after a failure. hash, if not NULL, is updated as tern_weights_hash does. */
TERN_MUST_CHECK tern_status tern_weights_load(struct tern_weights *weights,
                                              const struct tern_model *model,
                                              struct tern_device *device,
                                              struct tern_hash *hash,
                                              struct tern_dptr *out);

#endif
