/* model.h - what a model is: its numbers, its parameters in one flat block, and its two passes. */
#ifndef TERN_MODELS_MODEL_H
#define TERN_MODELS_MODEL_H

#include "kernels/ops.h"

#include <stdbool.h>
#include <stdint.h>

enum tern_family {
    TERN_FAMILY_GPT2,
    TERN_FAMILY_LLAMA,
    TERN_FAMILY_COUNT
};
enum tern_recompute {
    TERN_RECOMPUTE_NONE,
    TERN_RECOMPUTE_ATTENTION,
    TERN_RECOMPUTE_BLOCK
};
enum tern_rope_scaling {
    TERN_ROPE_PLAIN,
    TERN_ROPE_LLAMA3
};

struct tern_model_config {
    enum tern_family family;
    char preset[32]; /* "" if none */
    int64_t layers, width, heads, kv_heads, head_width, ff_width, context, vocab_size;
    bool tied_embeddings;
    float norm_eps;
    float rope_theta;
    enum tern_rope_scaling rope_scaling;
    float rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_context;
};

/* Names of families and presets, NULL past the end. */
const char *tern_family_name(int index);
const char *tern_preset_name(int index);
/* Fills *config from a preset; false if there is none of that name. */
bool tern_preset_find(const char *name, struct tern_model_config *config);
/* Family defaults for whatever is 0 (kv_heads = heads, head_width = width / heads, ff_width = 4
 * width for gpt2, ...). */
void tern_model_config_defaults(struct tern_model_config *config);
/* Checks ranges and divisibility; names the key and what is expected. */
TERN_MUST_CHECK tern_status tern_model_config_check(const struct tern_model_config *config);

#endif
