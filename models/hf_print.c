/* hf_print.c - a model's numbers as a config.json, in the keys that Transformers of before and
 * after version 5 read. */
#include "models/hf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Collects members; the first failure stays. */
struct printer {
    struct tern_text *out;
    tern_status status;
    bool has_members;
};

static void add_name(struct printer *p, const char *key)
{
    if (p->status == TERN_OK) {
        p->status = tern_text_printf(p->out, "%s\"%s\": ", p->has_members ? ",\n  " : "{\n  ", key);
        p->has_members = true;
    }
}

static void add_text(struct printer *p, const char *text)
{
    if (p->status == TERN_OK) {
        p->status = tern_text_printf(p->out, "%s", text);
    }
}

static void add_i64(struct printer *p, const char *key, int64_t value)
{
    add_name(p, key);
    if (p->status == TERN_OK) {
        p->status = tern_text_printf(p->out, "%" PRId64, value);
    }
}

/* The shortest decimal that is this f32, and no whole number: readers look at the kind. */
static void add_number(struct printer *p, float value)
{
    char text[40];
    int digits = 1;
    if (value == floorf(value) && value < 1e15F) {
        snprintf(text, sizeof text, "%.1f", (double)value);
    } else {
        do {
            snprintf(text, sizeof text, "%.*g", digits++, (double)value);
        } while (strtof(text, NULL) != value && digits <= 9);
    }
    add_text(p, text);
}

static void add_f32(struct printer *p, const char *key, float value)
{
    add_name(p, key);
    add_number(p, value);
}

static void add_bool(struct printer *p, const char *key, bool value)
{
    add_name(p, key);
    add_text(p, value ? "true" : "false");
}

static void add_string(struct printer *p, const char *key, const char *value)
{
    add_name(p, key);
    if (p->status == TERN_OK) {
        p->status = tern_text_printf(p->out, "\"%s\"", value);
    }
}

static void add_cap(struct printer *p, const char *key, float value)
{
    if (value > 0) {
        add_f32(p, key, value);
    } else {
        add_name(p, key);
        add_text(p, "null");
    }
}

static void add_ids(struct printer *p, const struct tern_model_ids *ids)
{
    if (ids == NULL) {
        return;
    }
    if (ids->bos >= 0) {
        add_i64(p, "bos_token_id", ids->bos);
    }
    if (ids->eos_count == 1) {
        add_i64(p, "eos_token_id", ids->eos[0]);
    } else if (ids->eos_count > 1) {
        add_name(p, "eos_token_id");
        for (int i = 0; i < ids->eos_count && p->status == TERN_OK; i++) {
            p->status = tern_text_printf(p->out, "%s%d", i == 0 ? "[" : ", ", ids->eos[i]);
        }
        add_text(p, "]");
    }
}

static void add_factors(struct printer *p, const char *key, int64_t pairs, const float *values)
{
    add_name(p, key);
    for (int64_t i = 0; i < pairs; i++) {
        add_text(p, i == 0 ? "[" : ", ");
        add_number(p, values[i]);
    }
    add_text(p, "]");
}

static void add_scaling(struct printer *p, const struct tern_model_config *c)
{
    enum tern_rope_scaling scaling = c->rope_scaling;
    struct printer object = {.out = p->out};
    add_name(p, "rope_scaling");
    if (p->status != TERN_OK || scaling == TERN_ROPE_PLAIN) {
        add_text(p, "null");
        return;
    }
    const char *name = tern_rope_scaling_name((int)scaling);
    add_string(&object, "rope_type", name);
    if (c->family == TERN_FAMILY_PHI3) {
        add_string(&object, "type", name);
    }
    add_f32(&object, "factor", c->rope_factor);
    if (scaling != TERN_ROPE_LINEAR && scaling != TERN_ROPE_DYNAMIC) {
        add_i64(&object, "original_max_position_embeddings", c->rope_original_context);
    }
    if (c->rope_attention_factor > 0) {
        add_f32(&object, "attention_factor", c->rope_attention_factor);
    }
    if (scaling == TERN_ROPE_LLAMA3) {
        add_f32(&object, "low_freq_factor", c->rope_low_freq_factor);
        add_f32(&object, "high_freq_factor", c->rope_high_freq_factor);
    }
    if (scaling == TERN_ROPE_YARN) {
        add_f32(&object, "beta_fast", c->rope_beta_fast);
        add_f32(&object, "beta_slow", c->rope_beta_slow);
        add_bool(&object, "truncate", !c->rope_keeps_fractions);
    }
    if (scaling == TERN_ROPE_LONGROPE) {
        add_factors(&object, "short_factor", c->rope_width / 2, c->rope_short);
        add_factors(&object, "long_factor", c->rope_width / 2, c->rope_long);
    }
    add_text(&object, "\n  }");
    p->status = object.status;
}

/* Phi-3's class takes 32000 where nothing is said, and wants it to be a token. */
static void add_padding(struct printer *p, const struct tern_model_config *c)
{
    if (c->family == TERN_FAMILY_PHI3 && c->vocab_size <= 32000) {
        add_name(p, "pad_token_id");
        add_text(p, "null");
    }
}

static void add_rope(struct printer *p, const struct tern_model_config *c)
{
    add_f32(p, "rope_theta", c->rope_theta);
    if (c->rope_theta_local > 0) {
        add_f32(p, "rope_local_base_freq", c->rope_theta_local);
    }
    if (c->rope_width != c->head_width) {
        /* a factor that gives the width again, rounded down as readers do */
        double part = (double)c->rope_width / (double)c->head_width;
        while ((int64_t)((double)c->head_width * part) < c->rope_width) {
            part = nextafter(part, 2);
        }
        add_name(p, "partial_rotary_factor");
        if (p->status == TERN_OK) {
            p->status = tern_text_printf(p->out, "%.17g", part);
        }
    }
    if (c->family == TERN_FAMILY_PHI3) {
        add_i64(p, "original_max_position_embeddings",
                c->rope_scaling == TERN_ROPE_PLAIN ? c->context : c->rope_original_context);
    }
    add_scaling(p, c);
}

/* Which layers have a window, in the words of each family. */
static void add_window(struct printer *p, const struct tern_model_config *c)
{
    bool is_qwen = c->family == TERN_FAMILY_QWEN2 || c->family == TERN_FAMILY_QWEN3 ||
                   c->family == TERN_FAMILY_QWEN3_MOE;
    if (c->window > 0) {
        add_i64(p, "sliding_window", c->window);
    } else {
        add_name(p, "sliding_window");
        add_text(p, "null");
    }
    if (is_qwen) {
        add_bool(p, "use_sliding_window", c->window > 0);
    }
    if (c->family == TERN_FAMILY_GEMMA3 && c->window_period > 0) {
        add_i64(p, "sliding_window_pattern", c->window_period);
    }
    bool has_types = (is_qwen && c->family != TERN_FAMILY_QWEN3_MOE) ||
                     c->family == TERN_FAMILY_GEMMA2 || c->family == TERN_FAMILY_GEMMA3;
    if (!has_types) {
        return;
    }
    if (is_qwen) {
        add_i64(p, "max_window_layers", c->window > 0 ? c->window_first : c->layers);
    }
    add_name(p, "layer_types");
    for (int64_t i = 0; i < c->layers; i++) {
        add_text(p, i == 0 ? "[" : ", ");
        add_text(p, tern_model_window(c, i) > 0 ? "\"sliding_attention\"" : "\"full_attention\"");
    }
    add_text(p, "]");
}

static void add_gpt2(struct printer *p, const struct tern_model_config *c)
{
    add_i64(p, "n_layer", c->layers);
    add_i64(p, "n_embd", c->width);
    add_i64(p, "n_head", c->heads);
    add_i64(p, "n_positions", c->context);
    add_i64(p, "n_ctx", c->context);
    add_i64(p, "n_inner", c->ff_width);
    add_string(p, "activation_function", "gelu_new");
    add_f32(p, "layer_norm_epsilon", c->norm_eps);
}

/* A whole number where one gives the same scale, as Transformers wants it. */
static void add_query_scale(struct printer *p, float scale)
{
    double scalar = 1 / ((double)scale * scale);
    if ((float)(1 / sqrt(round(scalar))) == scale) {
        add_i64(p, "query_pre_attn_scalar", (int64_t)round(scalar));
    } else {
        add_f32(p, "query_pre_attn_scalar", (float)scalar);
    }
}

static void add_llama(struct printer *p, const struct tern_model_config *c)
{
    bool is_gelu = c->features.act == TERN_ACT_GELU_TANH;
    bool is_gemma2_on = c->family == TERN_FAMILY_GEMMA2 || c->family == TERN_FAMILY_GEMMA3;
    add_i64(p, "num_hidden_layers", c->layers);
    add_i64(p, "hidden_size", c->width);
    add_i64(p, "intermediate_size", c->ff_width);
    add_i64(p, "num_attention_heads", c->heads);
    add_i64(p, "num_key_value_heads", c->kv_heads);
    add_i64(p, "head_dim", c->head_width);
    add_i64(p, "max_position_embeddings",
            c->rope_scaling == TERN_ROPE_DYNAMIC ? c->rope_original_context : c->context);
    add_f32(p, "rms_norm_eps", c->norm_eps);
    add_string(p, is_gemma2_on ? "hidden_activation" : "hidden_act",
               is_gelu ? "gelu_pytorch_tanh" : "silu");
    if (c->family != TERN_FAMILY_QWEN2) {
        add_bool(p, "attention_bias", c->features.has_qkv_bias);
    }
    if (c->features.has_mlp_bias) {
        add_bool(p, "mlp_bias", true);
    }
    add_rope(p, c);
    add_window(p, c);
    if (is_gemma2_on) {
        add_query_scale(p, c->query_scale);
        add_cap(p, "attn_logit_softcapping", c->attention_softcap);
        add_cap(p, "final_logit_softcapping", c->logit_softcap);
    }
    if (c->family == TERN_FAMILY_MIXTRAL) {
        add_i64(p, "num_local_experts", c->experts);
        add_i64(p, "num_experts_per_tok", c->experts_used);
    }
    if (c->family == TERN_FAMILY_QWEN3_MOE) {
        add_i64(p, "num_experts", c->experts);
        add_i64(p, "num_experts_per_tok", c->experts_used);
        add_i64(p, "moe_intermediate_size", c->expert_ff_width);
        add_bool(p, "norm_topk_prob", c->normalizes_experts);
        add_i64(p, "decoder_sparse_step", 1);
        add_name(p, "mlp_only_layers");
        add_text(p, "[]");
    }
}

tern_status tern_hf_config_print(const struct tern_model_config *config,
                                 const struct tern_model_ids *ids,
                                 enum tern_dtype dtype,
                                 struct tern_text *out)
{
    struct printer p = {.out = out};
    const struct tern_family_row *row = tern_family_row(config->family);
    add_name(&p, "architectures");
    if (p.status == TERN_OK) {
        p.status = tern_text_printf(out, "[\"%s\"]", row->architecture);
    }
    add_string(&p, "model_type", row->model_type);
    add_string(&p, "torch_dtype",
               dtype == TERN_BF16  ? "bfloat16"
               : dtype == TERN_F16 ? "float16"
                                   : "float32");
    add_i64(&p, "vocab_size", config->vocab_size);
    if (config->family == TERN_FAMILY_GPT2) {
        add_gpt2(&p, config);
    } else {
        add_llama(&p, config);
    }
    add_bool(&p, "tie_word_embeddings", config->tied_embeddings);
    add_ids(&p, ids);
    add_padding(&p, config);
    add_text(&p, "\n}\n");
    return p.status;
}

tern_status tern_hf_ids_print(const struct tern_model_ids *ids, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\n  \"_from_model_config\": true"));
    if (ids->bos >= 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\n  \"bos_token_id\": %d", ids->bos));
    }
    for (int i = 0; i < ids->eos_count; i++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, i == 0 ? ",\n  \"eos_token_id\": [%d" : ", %d", ids->eos[i]));
    }
    return tern_text_printf(out, ids->eos_count > 0 ? "]\n}\n" : "\n}\n");
}
