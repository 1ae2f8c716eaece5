/* keep.h - what a run directory keeps of a tokenizer and the model it came with. */
#ifndef TERN_RUNTIME_TRAIN_KEEP_H
#define TERN_RUNTIME_TRAIN_KEEP_H

#include "io/file.h"
#include "models/hf_config.h"

/* Copies the tokenizer and what lies beside it (its config, special tokens, chat template, generation
 * config) into the folder; of a GGUF file its keys about the tokenizer, as tokenizer.gguf. A file of
 * the folder itself stays as it is. */
TERN_MUST_CHECK tern_status tern_keep_tokenizer(const char *tokenizer, const char *folder);
/* generation_config.json with these ids, unless one is there or the model names none. */
TERN_MUST_CHECK tern_status tern_keep_ids(const struct tern_model_ids *ids, const char *folder);
/* model.json: what the model is, as a Hugging Face config.json. *is_there_out false: the folder keeps
 * none, and *out stays. */
TERN_MUST_CHECK tern_status tern_keep_model(const char *json, const char *folder);
TERN_MUST_CHECK tern_status tern_kept_model(const char *folder,
                                            struct tern_model_config *out,
                                            bool *is_there_out);
/* The tokenizer that the folder keeps; "" if none. */
TERN_MUST_CHECK tern_status tern_kept_tokenizer(const char *folder, char path_out[TERN_PATH_BYTES]);
/* The ids that the folder keeps, into *ids; what it does not say stays. */
TERN_MUST_CHECK tern_status tern_kept_ids(const char *folder, struct tern_model_ids *ids);

#endif
