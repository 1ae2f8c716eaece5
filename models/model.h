/* model.h - what a model is: its numbers, its parameters in one flat block, and its two passes. */
#ifndef TERN_MODELS_MODEL_H
#define TERN_MODELS_MODEL_H

#include "kernels/ops.h"

#include <stdbool.h>
#include <stdint.h>

/* Llama 2, 3, 3.1, 3.2 and SmolLM2 are all LLAMA; Qwen2.5 is QWEN2. */
enum tern_family {
    TERN_FAMILY_GPT2,
    TERN_FAMILY_LLAMA,
    TERN_FAMILY_MISTRAL,
    TERN_FAMILY_QWEN2,
    TERN_FAMILY_QWEN3,
    TERN_FAMILY_GEMMA,
    TERN_FAMILY_GEMMA2,
    TERN_FAMILY_GEMMA3,
    TERN_FAMILY_PHI3,
    TERN_FAMILY_MIXTRAL,
    TERN_FAMILY_QWEN3_MOE,
    TERN_FAMILY_COUNT
};
enum tern_recompute {
    TERN_RECOMPUTE_NONE,
    TERN_RECOMPUTE_ATTENTION,
    TERN_RECOMPUTE_BLOCK
};
enum tern_rope_scaling {
    TERN_ROPE_PLAIN,
    TERN_ROPE_LINEAR,  /* every frequency divided by rope_factor */
    TERN_ROPE_DYNAMIC, /* beyond rope_original_context the base grows with the sequence's length */
    TERN_ROPE_LLAMA3,  /* low frequencies divided by rope_factor, high ones kept */
    TERN_ROPE_YARN, /* the same by number of turns (Peng et al. 2023), with an attention factor */
    TERN_ROPE_LONGROPE, /* a divisor for each frequency: rope_short up to rope_original_context */
    TERN_ROPE_SCALING_COUNT
};
enum {
    TERN_MODEL_LAYERS_MAX = 1024,
    TERN_MODEL_EXPERTS_MAX = 1024,
    TERN_ROPE_PAIRS_MAX = TERN_HEAD_WIDTH_MAX / 2
};

/* How a transformer is wired, as against how large it is: what the passes look at, never the family. */
struct tern_model_features {
    enum tern_norm_kind norm;
    float norm_offset; /* a norm multiplies by norm_offset + weight: 1 for Gemma */
    enum tern_act act;
    bool is_gated;      /* down(act(gate x) * up x), else down(act(up x)) */
    bool is_out_in;     /* weights are stored (out, in), else (in, out) as GPT-2 stores them */
    bool is_fused;      /* q, k, v are one tensor in the file; so are gate and up */
    bool has_positions; /* learned positions instead of rotary ones */
    bool has_qkv_bias, has_out_bias, has_mlp_bias;
    bool has_qk_norm;    /* RMSNorm of each head's q and k before they are rotated */
    bool has_post_norms; /* a second norm at the end of each sublayer, before it joins the stream */
    bool scales_embeddings; /* by sqrt(width), rounded to the dtype of the weights */
};

struct tern_model_config {
    enum tern_family family;
    char preset[32]; /* "" if none */
    int64_t layers, width, heads, kv_heads, head_width, ff_width, context, vocab_size;
    bool tied_embeddings;
    float norm_eps;

    /* Rotary positions. */
    float rope_theta;
    float rope_theta_local; /* of windowed layers, which are never scaled; 0: as the others */
    int64_t rope_width;     /* leading elements of a head that are rotated, even; 0: all */
    enum tern_rope_scaling rope_scaling;
    float rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_context;
    float rope_attention_factor;           /* of cos and sin; 0: what the scaling says */
    float rope_beta_fast, rope_beta_slow;  /* yarn: turns; 0: 32 and 1 */
    bool rope_keeps_fractions;             /* yarn: the range's ends are not rounded */
    float rope_short[TERN_ROPE_PAIRS_MAX]; /* longrope, (rope_width / 2) */
    float rope_long[TERN_ROPE_PAIRS_MAX];

    /* A layer of number i is windowed, that is it sees `window` positions, its own included, if
     * window > 0, i >= window_first and window_period does not divide i + 1 (0: divides none). */
    int64_t window, window_period, window_first;
    float query_scale;       /* of q k; 0: 1 / sqrt(head_width) */
    float attention_softcap; /* scores s become cap tanh(s / cap); 0: as they are */
    float logit_softcap;

    /* Mixture of experts in place of the feed-forward layer: 0 experts: none. */
    int64_t experts, experts_used, expert_ff_width;
    bool normalizes_experts; /* the chosen experts' shares are made to sum to 1 */

    bool has_features; /* false: defaults takes those of the family, numbers above included */
    struct tern_model_features features;
};

/* What is known of a family: its names outside, and what a model has unless it says otherwise. */
struct tern_family_row {
    const char *name;
    const char *architecture;          /* Hugging Face's class */
    const char *model_type;            /* Hugging Face's */
    const char *gguf;                  /* general.architecture */
    float hf_norm_eps;                 /* of a config.json that does not say */
    struct tern_model_config defaults; /* with has_features */
};

/* Names of families and presets, NULL past the end. */
const char *tern_family_name(int index);
const char *tern_preset_name(int index);
const char *tern_rope_scaling_name(int index);
const struct tern_family_row *tern_family_row(enum tern_family family);
/* Fills *config from a preset; false if there is none of that name. */
bool tern_preset_find(const char *name, struct tern_model_config *config);
/* The family's features unless has_features, and its numbers for whatever is 0 (kv_heads = heads,
 * head_width = width / heads, ff_width = 4 width for gpt2, ...). */
void tern_model_config_defaults(struct tern_model_config *config);
/* Checks ranges and divisibility; names the key and what is expected. */
TERN_MUST_CHECK tern_status tern_model_config_check(const struct tern_model_config *config);
/* Positions that layer sees, its own included; 0: all before it. */
int64_t tern_model_window(const struct tern_model_config *config, int64_t layer);
/* Sets window_first and window_period from which layers (layers) have a window; false if those two
 * cannot say it. */
bool tern_model_set_windows(struct tern_model_config *config, const bool *is_windowed);
/* What embeddings are multiplied by when weights are of this dtype. */
float tern_model_embedding_scale(const struct tern_model_config *config, enum tern_dtype dtype);

#endif
