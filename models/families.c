/* families.c - one row a family: its names outside, and how it is wired unless a model says
 * otherwise. */
#include "models/model.h"

/* What Llama and all that came after it have in common. */
#define LLAMA_LIKE .norm = TERN_NORM_RMS, .act = TERN_ACT_SILU, .is_gated = true, .is_out_in = true
#define GEMMA_LIKE \
    .norm = TERN_NORM_RMS, .norm_offset = 1, .act = TERN_ACT_GELU_TANH, .is_gated = true, \
    .is_out_in = true, .scales_embeddings = true

/* Sources: the models' config classes in Transformers, for keys that a config.json leaves out. */
static const struct tern_family_row g_rows[TERN_FAMILY_COUNT] = {
    [TERN_FAMILY_GPT2] = {"gpt2",
                          "GPT2LMHeadModel",
                          "gpt2",
                          "gpt2",
                          1e-5F,
                          {.tied_embeddings = true,
                           .norm_eps = 1e-5F,
                           .features = {.norm = TERN_NORM_LAYER,
                                        .act = TERN_ACT_GELU_TANH,
                                        .has_positions = true,
                                        .has_qkv_bias = true,
                                        .has_out_bias = true,
                                        .has_mlp_bias = true,
                                        .is_fused = true}}},
    [TERN_FAMILY_LLAMA] = {"llama",
                           "LlamaForCausalLM",
                           "llama",
                           "llama",
                           1e-6F,
                           {.norm_eps = 1e-5F, .features = {LLAMA_LIKE}}},
    [TERN_FAMILY_MISTRAL] = {"mistral",
                             "MistralForCausalLM",
                             "mistral",
                             "llama",
                             1e-6F,
                             {.norm_eps = 1e-6F, .window = 4096, .features = {LLAMA_LIKE}}},
    [TERN_FAMILY_QWEN2] = {"qwen2",
                           "Qwen2ForCausalLM",
                           "qwen2",
                           "qwen2",
                           1e-6F,
                           {.norm_eps = 1e-6F, .features = {LLAMA_LIKE, .has_qkv_bias = true}}},
    [TERN_FAMILY_QWEN3] = {"qwen3",
                           "Qwen3ForCausalLM",
                           "qwen3",
                           "qwen3",
                           1e-6F,
                           {.head_width = 128,
                            .norm_eps = 1e-6F,
                            .features = {LLAMA_LIKE, .has_qk_norm = true}}},
    [TERN_FAMILY_GEMMA] =
        {"gemma",
         "GemmaForCausalLM",
         "gemma",
         "gemma",
         1e-6F,
         {.head_width = 256, .tied_embeddings = true, .norm_eps = 1e-6F, .features = {GEMMA_LIKE}}},
    [TERN_FAMILY_GEMMA2] = {"gemma2",
                            "Gemma2ForCausalLM",
                            "gemma2",
                            "gemma2",
                            1e-6F,
                            {.head_width = 256,
                             .tied_embeddings = true,
                             .norm_eps = 1e-6F,
                             .window = 4096,
                             .window_period = 2,
                             .attention_softcap = 50,
                             .logit_softcap = 30,
                             .features = {GEMMA_LIKE, .has_post_norms = true}}},
    [TERN_FAMILY_GEMMA3] = {"gemma3",
                            "Gemma3ForCausalLM",
                            "gemma3_text",
                            "gemma3",
                            1e-6F,
                            {.head_width = 256,
                             .tied_embeddings = true,
                             .norm_eps = 1e-6F,
                             .rope_theta = 1e6F,
                             .rope_theta_local = 1e4F,
                             .window = 4096,
                             .window_period = 6,
                             .features = {GEMMA_LIKE, .has_post_norms = true,
                                          .has_qk_norm = true}}},
    [TERN_FAMILY_PHI3] = {"phi3",
                          "Phi3ForCausalLM",
                          "phi3",
                          "phi3",
                          1e-5F,
                          {.norm_eps = 1e-5F, .features = {LLAMA_LIKE, .is_fused = true}}},
    [TERN_FAMILY_MIXTRAL] = {"mixtral",
                             "MixtralForCausalLM",
                             "mixtral",
                             "llama",
                             1e-5F,
                             {.norm_eps = 1e-5F,
                              .rope_theta = 1e6F,
                              .experts = 8,
                              .experts_used = 2,
                              .normalizes_experts = true,
                              .features = {LLAMA_LIKE}}},
    [TERN_FAMILY_QWEN3_MOE] = {"qwen3_moe",
                               "Qwen3MoeForCausalLM",
                               "qwen3_moe",
                               "qwen3moe",
                               1e-6F,
                               {.norm_eps = 1e-6F,
                                .experts = 128,
                                .experts_used = 8,
                                .features = {LLAMA_LIKE, .has_qk_norm = true}}},
};

const struct tern_family_row *tern_family_row(enum tern_family family)
{
    return &g_rows[family];
}

const char *tern_family_name(int index)
{
    return index >= 0 && index < TERN_FAMILY_COUNT ? g_rows[index].name : NULL;
}
