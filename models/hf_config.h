/* hf_config.h - Hugging Face's config.json: to a model's numbers, and back. */
#ifndef TERN_MODELS_HF_CONFIG_H
#define TERN_MODELS_HF_CONFIG_H

#include "models/model.h"
#include "runtime/base/text.h"

enum {
    TERN_EOS_MAX = 16
};

/* Tokens with a meaning to the model, as its files state them; -1: not said. */
struct tern_model_ids {
    int32_t bos;
    int32_t eos[TERN_EOS_MAX]; /* each ends a text */
    int eos_count;
};

/* The numbers and features that a config.json of a family of ours states, old and new keys (a
 * rope_scaling or, since Transformers 5, rope_parameters). `name` is the file, for messages:
 * TERN_ERR_CONFIG or TERN_ERR_INPUT names file, key, found and expected; TERN_ERR_UNSUPPORTED what
 * Tern lacks (an architecture, an activation, a scaling, quantised weights, ...). *config has passed
 * tern_model_config_check. */
TERN_MUST_CHECK tern_status tern_hf_config_parse(const char *name,
                                                 const char *text,
                                                 size_t bytes,
                                                 struct tern_model_config *config);
/* bos_token_id and eos_token_id (a number or a list) of a config.json or generation_config.json,
 * where it has them; the rest of *ids stays. */
TERN_MUST_CHECK tern_status tern_hf_ids_parse(const char *name,
                                              const char *text,
                                              size_t bytes,
                                              struct tern_model_ids *ids);
/* A generation_config.json with these ids. Appended to *out. */
TERN_MUST_CHECK tern_status tern_hf_ids_print(const struct tern_model_ids *ids,
                                              struct tern_text *out);
/* The config.json that parse reads as *config, and Transformers too; ids may be NULL. dtype: of the
 * weights beside it. Appended to *out. */
TERN_MUST_CHECK tern_status tern_hf_config_print(const struct tern_model_config *config,
                                                 const struct tern_model_ids *ids,
                                                 enum tern_dtype dtype,
                                                 struct tern_text *out);

#endif
