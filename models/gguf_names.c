/* gguf_names.c - GGUF's names of a model's tensors, and what its converters do to them. */
#include "models/param_sources.h"

#include <stdio.h>
#include <string.h>

/* Without ".weight" or ".bias"; those of a layer stand behind "blk.N.". */
static const struct {
    enum tern_role role;
    const char *name;
    bool is_bias;
} g_names[] = {
    {TERN_ROLE_TOKEN_EMBEDDING, "token_embd", false},
    {TERN_ROLE_POSITION_EMBEDDING, "position_embd", false},
    {TERN_ROLE_NORM1_WEIGHT, "attn_norm", false},
    {TERN_ROLE_NORM1_BIAS, "attn_norm", true},
    {TERN_ROLE_QKV_WEIGHT, "attn_q", false},
    {TERN_ROLE_K_WEIGHT, "attn_k", false},
    {TERN_ROLE_V_WEIGHT, "attn_v", false},
    {TERN_ROLE_QKV_BIAS, "attn_q", true},
    {TERN_ROLE_K_BIAS, "attn_k", true},
    {TERN_ROLE_V_BIAS, "attn_v", true},
    {TERN_ROLE_Q_NORM_WEIGHT, "attn_q_norm", false},
    {TERN_ROLE_K_NORM_WEIGHT, "attn_k_norm", false},
    {TERN_ROLE_OUT_WEIGHT, "attn_output", false},
    {TERN_ROLE_OUT_BIAS, "attn_output", true},
    {TERN_ROLE_POST1_WEIGHT, "post_attention_norm", false},
    {TERN_ROLE_NORM2_WEIGHT, "ffn_norm", false},
    {TERN_ROLE_NORM2_BIAS, "ffn_norm", true},
    {TERN_ROLE_UP_WEIGHT, "ffn_gate", false},
    {TERN_ROLE_UP2_WEIGHT, "ffn_up", false},
    {TERN_ROLE_UP_BIAS, "ffn_gate", true},
    {TERN_ROLE_UP2_BIAS, "ffn_up", true},
    {TERN_ROLE_DOWN_WEIGHT, "ffn_down", false},
    {TERN_ROLE_DOWN_BIAS, "ffn_down", true},
    {TERN_ROLE_ROUTER, "ffn_gate_inp", false},
    {TERN_ROLE_EXPERT_GATE, "ffn_gate_exps", false},
    {TERN_ROLE_EXPERT_UP, "ffn_up_exps", false},
    {TERN_ROLE_EXPERT_DOWN, "ffn_down_exps", false},
    {TERN_ROLE_POST2_WEIGHT, "post_ffw_norm", false},
    {TERN_ROLE_FINAL_NORM_WEIGHT, "output_norm", false},
    {TERN_ROLE_FINAL_NORM_BIAS, "output_norm", true},
    {TERN_ROLE_HEAD, "output", false},
};
_Static_assert(sizeof g_names / sizeof g_names[0] == TERN_ROLE_COUNT, "one a role");

static bool is_qkv(enum tern_role role)
{
    return role == TERN_ROLE_QKV_WEIGHT || role == TERN_ROLE_QKV_BIAS;
}

static bool is_up(enum tern_role role)
{
    return role == TERN_ROLE_UP_WEIGHT || role == TERN_ROLE_UP_BIAS;
}

const char *tern_gguf_param_name(const struct tern_model_config *config,
                                 const struct tern_param *param,
                                 char out[TERN_PARAM_NAME_BYTES])
{
    size_t i = 0;
    while (g_names[i].role != param->role) {
        i++;
    }
    const char *name = g_names[i].name;
    if (config->features.is_fused && is_qkv(param->role)) {
        name = "attn_qkv";
    } else if (is_up(param->role) && (config->features.is_fused || !config->features.is_gated)) {
        name = "ffn_up";
    }
    const char *end = g_names[i].is_bias ? "bias" : "weight";
    if (param->layer >= 0) {
        snprintf(out, TERN_PARAM_NAME_BYTES, "blk.%d.%s.%s", param->layer, name, end);
    } else {
        snprintf(out, TERN_PARAM_NAME_BYTES, "%s.%s", name, end);
    }
    return out;
}

static bool is_norm(enum tern_role role)
{
    return role == TERN_ROLE_NORM1_WEIGHT || role == TERN_ROLE_NORM2_WEIGHT ||
           role == TERN_ROLE_POST1_WEIGHT || role == TERN_ROLE_POST2_WEIGHT ||
           role == TERN_ROLE_Q_NORM_WEIGHT || role == TERN_ROLE_K_NORM_WEIGHT ||
           role == TERN_ROLE_FINAL_NORM_WEIGHT;
}

enum tern_layout tern_gguf_param_layout(const struct tern_model_config *config,
                                        const struct tern_param *param)
{
    bool is_paired = param->role == TERN_ROLE_QKV_WEIGHT || param->role == TERN_ROLE_K_WEIGHT ||
                     param->role == TERN_ROLE_QKV_BIAS || param->role == TERN_ROLE_K_BIAS;
    bool is_embedding = param->role == TERN_ROLE_TOKEN_EMBEDDING ||
                        param->role == TERN_ROLE_POSITION_EMBEDDING ||
                        param->role == TERN_ROLE_HEAD;
    if (is_paired && strcmp(tern_family_row(config->family)->gguf, "llama") == 0) {
        return TERN_LAYOUT_PAIRED;
    }
    if (!config->features.is_out_in && param->rank == 2 && !is_embedding) {
        return TERN_LAYOUT_TRANSPOSED;
    }
    return is_norm(param->role) && config->features.norm_offset == 1 ? TERN_LAYOUT_PLUS_ONE
                                                                     : TERN_LAYOUT_SAME;
}
