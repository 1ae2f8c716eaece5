/* pretrained.h - a model as others publish it, opened for reading: a Hugging Face folder
 * (config.json, safetensors) or a GGUF file. */
#ifndef TERN_MODELS_PRETRAINED_H
#define TERN_MODELS_PRETRAINED_H

#include "io/gguf.h"
#include "models/hf_config.h"
#include "models/param_sources.h"

struct tern_pretrained {
    struct tern_model_config config;
    struct tern_model_ids ids;
    struct tern_params params;
    struct tern_param_source *sources;   /* (params.count) */
    const struct tern_tensor_file *file; /* what the sources point into */
    enum tern_dtype dtype;  /* of most of its weights: f32, bf16, f16 or a block type */
    struct tern_gguf *gguf; /* owned; NULL: a folder */
    struct tern_tensor_file *safetensors; /* owned; NULL: a GGUF file */
};

/* Whether a path is one of the two, by what is there: the files are not yet read. */
bool tern_pretrained_is(const char *path);
/* Owned: close. All of its tensors are there, in their shapes, and no others. */
TERN_MUST_CHECK tern_status tern_pretrained_open(const char *path, struct tern_pretrained *out);
void tern_pretrained_close(struct tern_pretrained *pretrained);

/* The config that GGUF's metadata and tensors describe; as tern_hf_config_parse. */
TERN_MUST_CHECK tern_status tern_gguf_config_read(const struct tern_gguf *gguf,
                                                  struct tern_model_config *config,
                                                  struct tern_model_ids *ids);

#endif
