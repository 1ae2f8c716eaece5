/* gguf_keys.c - a model's numbers as GGUF metadata; what it has no words for is refused by name. */
#include "runtime/base/log.h"
#include "runtime/export/export_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    KEY_BYTES = 96
};

/* Puts keys that begin with the architecture. */
struct keys {
    struct tern_gguf_writer *writer;
    const char *arch;
};

static void put_u32(const struct keys *keys, const char *name, int64_t value)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", keys->arch, name);
    tern_gguf_put_u32(keys->writer, key, (uint32_t)value);
}

static void put_f32(const struct keys *keys, const char *name, float value)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", keys->arch, name);
    tern_gguf_put_f32(keys->writer, key, value);
}

static void put_string(const struct keys *keys, const char *name, const char *value)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", keys->arch, name);
    tern_gguf_put_string(keys->writer, key, value, strlen(value));
}

static tern_status lacking(const char *what)
{
    return tern_fail(TERN_ERR_UNSUPPORTED,
                     "GGUF has no key for %s, and who reads the file would run the model wrongly; "
                     "export it with --format hf",
                     what);
}

/* What readers of GGUF take for granted, by architecture and size. */
static float implied_query_scale(const struct tern_model_config *c)
{
    bool is_27b = (c->family == TERN_FAMILY_GEMMA2 && c->layers == 46) ||
                  (c->family == TERN_FAMILY_GEMMA3 && c->layers == 62);
    double scalar = is_27b ? (double)(c->width / c->heads) : (double)c->head_width;
    return (float)(1 / sqrt(scalar));
}

static tern_status check(const struct tern_model_config *c)
{
    bool has_window_keys = c->family == TERN_FAMILY_GEMMA2 || c->family == TERN_FAMILY_GEMMA3 ||
                           c->family == TERN_FAMILY_PHI3;
    if (c->rope_scaling == TERN_ROPE_DYNAMIC) {
        return lacking("rotary positions of type dynamic");
    }
    if (c->rope_scaling == TERN_ROPE_YARN && c->rope_keeps_fractions) {
        return lacking("yarn with truncate = false");
    }
    if (c->query_scale > 0 && fabsf(c->query_scale / implied_query_scale(c) - 1) > 1e-6f) {
        return lacking("this query_pre_attn_scalar");
    }
    if (c->window > 0 && c->window < c->context && !has_window_keys &&
        (c->window_first > 0 || c->window_period > 0)) {
        return lacking("a sliding window in some of the layers");
    }
    bool has_bias_tensors =
        c->features.is_fused || strcmp(tern_family_row(c->family)->gguf, "llama") == 0;
    if ((c->features.has_out_bias || c->features.has_mlp_bias) && !has_bias_tensors) {
        return lacking("biases at the end of attention or of the feed-forward layer in this "
                       "architecture");
    }
    if (c->experts > 0 && !c->normalizes_experts) {
        return lacking("experts whose shares are not made to sum to 1");
    }
    return TERN_OK;
}

static void put_attention(const struct keys *keys, const struct tern_model_config *c)
{
    put_u32(keys, "attention.head_count", c->heads);
    put_u32(keys, "attention.head_count_kv", c->kv_heads);
    if (!c->features.has_positions) {
        put_u32(keys, "attention.key_length", c->head_width);
        put_u32(keys, "attention.value_length", c->head_width);
    }
    put_f32(keys,
            c->features.norm == TERN_NORM_LAYER ? "attention.layer_norm_epsilon"
                                                : "attention.layer_norm_rms_epsilon",
            c->norm_eps);
    if (c->window > 0) {
        put_u32(keys, "attention.sliding_window", c->window);
        int64_t usual = tern_family_row(c->family)->defaults.window_period;
        if (c->window_period != usual) {
            put_u32(keys, "attention.sliding_window_pattern", c->window_period);
        }
        if (c->family == TERN_FAMILY_MISTRAL && c->window < c->context) {
            tern_log_warn("export: llama.cpp does not look at the sliding window of %lld that this "
                          "model has",
                          (long long)c->window);
        }
    }
    if (c->attention_softcap > 0) {
        put_f32(keys, "attn_logit_softcapping", c->attention_softcap);
    }
    if (c->logit_softcap > 0) {
        put_f32(keys, "final_logit_softcapping", c->logit_softcap);
    }
}

/* llama.cpp multiplies by 0.1 ln(factor) + 1 itself, as YaRN has it. */
static void put_yarn(const struct keys *keys, const struct tern_model_config *c)
{
    float implied = 0.1f * logf(c->rope_factor) + 1;
    put_string(keys, "rope.scaling.type", "yarn");
    put_f32(keys, "rope.scaling.factor", c->rope_factor);
    put_u32(keys, "rope.scaling.original_context_length", c->rope_original_context);
    if (c->rope_attention_factor > 0 && fabsf(c->rope_attention_factor / implied - 1) > 1e-5f) {
        put_f32(keys, "rope.scaling.attn_factor", c->rope_attention_factor / implied);
    }
    if (c->rope_beta_fast > 0) {
        put_f32(keys, "rope.scaling.yarn_beta_fast", c->rope_beta_fast);
        put_f32(keys, "rope.scaling.yarn_beta_slow", c->rope_beta_slow);
    }
}

/* Phi-3's converters leave the type out; Llama's reader wants it. */
static void put_longrope(const struct keys *keys, const struct tern_model_config *c)
{
    if (c->family != TERN_FAMILY_PHI3) {
        put_string(keys, "rope.scaling.type", "longrope");
    }
    put_u32(keys, "rope.scaling.original_context_length", c->rope_original_context);
    put_f32(keys, "rope.scaling.attn_factor", (float)tern_rope_attention_factor(c));
}

static void put_rope(const struct keys *keys, const struct tern_model_config *c)
{
    if (c->features.has_positions) {
        return;
    }
    put_u32(keys, "rope.dimension_count", c->rope_width);
    put_f32(keys, "rope.freq_base", c->rope_theta);
    if (c->rope_theta_local > 0) {
        put_f32(keys, "rope.freq_base_swa", c->rope_theta_local);
    }
    if (c->rope_scaling == TERN_ROPE_LINEAR) {
        put_string(keys, "rope.scaling.type", "linear");
        put_f32(keys, "rope.scaling.factor", c->rope_factor);
    } else if (c->rope_scaling == TERN_ROPE_YARN) {
        put_yarn(keys, c);
    } else if (c->rope_scaling == TERN_ROPE_LONGROPE) {
        put_longrope(keys, c);
    }
}

/* Llama 3's scaling as a divisor of each frequency: 1 for short wavelengths, the factor for long
 * ones, between them what blends the frequencies linearly (Transformers' rope_type llama3). */
void tern_export_llama3_factors(const struct tern_model_config *c, float *out)
{
    double context = (double)c->rope_original_context, factor = (double)c->rope_factor;
    double low = (double)c->rope_low_freq_factor, high = (double)c->rope_high_freq_factor;
    for (int64_t pair = 0; pair < c->rope_width / 2; pair++) {
        double wavelength =
            2 * M_PI * pow((double)c->rope_theta, 2.0 * (double)pair / (double)c->rope_width);
        double turns = context / wavelength;
        double share = (turns - low) / (high - low);
        out[pair] = turns > high  ? 1
                    : turns < low ? (float)factor
                                  : (float)(1 / ((1 - share) / factor + share));
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

tern_status tern_export_gguf_keys(const struct tern_export *export, struct tern_gguf_writer *writer)
{
    const struct tern_model_config *c = export->config;
    struct keys keys = {writer, tern_family_row(c->family)->gguf};
    const char *name = base_name(tern_weights_path(export->weights));
    TERN_RETURN_IF_ERR(check(c));
    tern_gguf_put_string(writer, "general.architecture", keys.arch, strlen(keys.arch));
    tern_gguf_put_string(writer, "general.type", "model", strlen("model"));
    tern_gguf_put_string(writer, "general.name", name, strlen(name));
    tern_gguf_put_u32(writer, "general.file_type", tern_export_file_type(export));
    tern_gguf_put_u32(writer, "general.quantization_version", 2);
    put_u32(&keys, "block_count", c->layers);
    put_u32(&keys, "context_length", c->context);
    put_u32(&keys, "embedding_length", c->width);
    put_u32(&keys, "feed_forward_length", c->ff_width);
    put_u32(&keys, "vocab_size", c->vocab_size);
    put_attention(&keys, c);
    put_rope(&keys, c);
    if (c->experts > 0) {
        put_u32(&keys, "expert_count", c->experts);
        put_u32(&keys, "expert_used_count", c->experts_used);
        put_u32(&keys, "expert_feed_forward_length", c->expert_ff_width);
    }
    return TERN_OK;
}
