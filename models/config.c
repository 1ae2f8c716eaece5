/* config.c - presets: the numbers of known models, and the checks any model must
 * pass. */
#include "models/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const g_rope_scalings[TERN_ROPE_SCALING_COUNT] = {
    [TERN_ROPE_PLAIN] = "plain",   [TERN_ROPE_LINEAR] = "linear", [TERN_ROPE_DYNAMIC] = "dynamic",
    [TERN_ROPE_LLAMA3] = "llama3", [TERN_ROPE_YARN] = "yarn",     [TERN_ROPE_LONGROPE] = "longrope",
};

/* Sources: the config.json files that the models' authors publish. vocab_size 0: the
 * tokenizer's. */
static const struct tern_model_config g_presets[] = {
    {.preset = "gpt2-124m",
     .family = TERN_FAMILY_GPT2,
     .layers = 12,
     .width = 768,
     .heads = 12,
     .context = 1024,
     .vocab_size = 50257,
     .tied_embeddings = true},
    {.preset = "gpt2-355m",
     .family = TERN_FAMILY_GPT2,
     .layers = 24,
     .width = 1024,
     .heads = 16,
     .context = 1024,
     .vocab_size = 50257,
     .tied_embeddings = true},
    {.preset = "gpt2-774m",
     .family = TERN_FAMILY_GPT2,
     .layers = 36,
     .width = 1280,
     .heads = 20,
     .context = 1024,
     .vocab_size = 50257,
     .tied_embeddings = true},
    {.preset = "gpt2-1558m",
     .family = TERN_FAMILY_GPT2,
     .layers = 48,
     .width = 1600,
     .heads = 25,
     .context = 1024,
     .vocab_size = 50257,
     .tied_embeddings = true},
    {.preset = "llama-tiny",
     .family = TERN_FAMILY_LLAMA,
     .layers = 6,
     .width = 320,
     .heads = 5,
     .kv_heads = 5,
     .ff_width = 864,
     .context = 512,
     .tied_embeddings = true},
    {.preset = "smollm2-135m",
     .family = TERN_FAMILY_LLAMA,
     .layers = 30,
     .width = 576,
     .heads = 9,
     .kv_heads = 3,
     .ff_width = 1536,
     .context = 8192,
     .vocab_size = 49152,
     .tied_embeddings = true,
     .rope_theta = 100000},
    {.preset = "llama-3.2-1b",
     .family = TERN_FAMILY_LLAMA,
     .layers = 16,
     .width = 2048,
     .heads = 32,
     .kv_heads = 8,
     .ff_width = 8192,
     .context = 131072,
     .vocab_size = 128256,
     .tied_embeddings = true,
     .rope_theta = 500000,
     .rope_scaling = TERN_ROPE_LLAMA3,
     .rope_factor = 32,
     .rope_low_freq_factor = 1,
     .rope_high_freq_factor = 4,
     .rope_original_context = 8192},
    {.preset = "llama-3.1-8b",
     .family = TERN_FAMILY_LLAMA,
     .layers = 32,
     .width = 4096,
     .heads = 32,
     .kv_heads = 8,
     .ff_width = 14336,
     .context = 131072,
     .vocab_size = 128256,
     .rope_theta = 500000,
     .rope_scaling = TERN_ROPE_LLAMA3,
     .rope_factor = 8,
     .rope_low_freq_factor = 1,
     .rope_high_freq_factor = 4,
     .rope_original_context = 8192},
};
enum {
    PRESET_COUNT = sizeof g_presets / sizeof g_presets[0]
};

const char *tern_rope_scaling_name(int index)
{
    return index >= 0 && index < TERN_ROPE_SCALING_COUNT ? g_rope_scalings[index] : NULL;
}

const char *tern_preset_name(int index)
{
    return index >= 0 && index < PRESET_COUNT ? g_presets[index].preset : NULL;
}

bool tern_preset_find(const char *name, struct tern_model_config *config)
{
    for (int i = 0; i < PRESET_COUNT; i++) {
        if (strcmp(name, g_presets[i].preset) == 0) {
            *config = g_presets[i];
            tern_model_config_defaults(config);
            return true;
        }
    }
    return false;
}

/* What a model of this family has where its config says nothing: features, and numbers of which 0
 * may be a choice. */
static void take_features(struct tern_model_config *config)
{
    const struct tern_model_config *row = &tern_family_row(config->family)->defaults;
    if (config->window == 0) {
        config->window = row->window;
        config->window_period = row->window_period;
    }
    if (config->experts == 0) {
        config->experts = row->experts;
        config->experts_used = row->experts_used;
        config->normalizes_experts = row->normalizes_experts;
    }
    if (config->rope_theta == 0) {
        config->rope_theta_local = row->rope_theta_local;
    }
    config->attention_softcap = row->attention_softcap;
    config->logit_softcap = row->logit_softcap;
    config->features = row->features;
    config->has_features = true;
}

static int64_t default_ff_width(const struct tern_model_config *config)
{
    /* gated: 8/3 of the width, rounded up to 32, so that three matrices cost what two of 4x do */
    return config->features.is_gated ? (config->width * 8 / 3 + 31) / 32 * 32 : 4 * config->width;
}

void tern_model_config_defaults(struct tern_model_config *config)
{
    const struct tern_model_config *row = &tern_family_row(config->family)->defaults;
    if (!config->has_features) {
        take_features(config);
    }
    if (config->kv_heads == 0) {
        config->kv_heads = config->heads;
    }
    if (config->head_width == 0) {
        config->head_width = row->head_width;
    }
    if (config->head_width == 0 && config->heads > 0) {
        config->head_width = config->width / config->heads;
    }
    if (config->ff_width == 0) {
        config->ff_width = default_ff_width(config);
    }
    if (config->expert_ff_width == 0 && config->experts > 0) {
        config->expert_ff_width = config->ff_width;
    }
    if (config->norm_eps == 0) {
        config->norm_eps = row->norm_eps;
    }
    if (config->rope_theta == 0) {
        config->rope_theta = row->rope_theta > 0 ? row->rope_theta : 10000;
    }
    if (config->rope_width == 0) {
        config->rope_width = config->head_width;
    }
    if (config->rope_scaling == TERN_ROPE_YARN) {
        config->rope_beta_fast = config->rope_beta_fast > 0 ? config->rope_beta_fast : 32;
        config->rope_beta_slow = config->rope_beta_slow > 0 ? config->rope_beta_slow : 1;
    }
    if (config->query_scale == 0 && config->head_width > 0) {
        config->query_scale = 1.0F / __builtin_sqrtf((float)config->head_width);
    }
}

int64_t tern_model_window(const struct tern_model_config *config, int64_t layer)
{
    bool is_global = layer < config->window_first ||
                     (config->window_period > 0 && (layer + 1) % config->window_period == 0);
    return is_global ? 0 : config->window;
}

bool tern_model_set_windows(struct tern_model_config *config, const bool *is_windowed)
{
    int64_t first = 0;
    while (first < config->layers && !is_windowed[first]) {
        first++;
    }
    struct tern_model_config probe = {.window = 1}; /* of any size: asked is only which have one */
    for (int64_t period = 0; period <= config->layers + 1; period++) {
        for (int which = 0; which < 2; which++) {
            probe.window_first = which == 0 ? 0 : first;
            probe.window_period = period;
            int64_t same = 0;
            while (same < config->layers &&
                   is_windowed[same] == (tern_model_window(&probe, same) > 0)) {
                same++;
            }
            if (same == config->layers) {
                config->window_first = probe.window_first;
                config->window_period = probe.window_period;
                return true;
            }
        }
    }
    return false;
}

float tern_model_embedding_scale(const struct tern_model_config *config, enum tern_dtype dtype)
{
    if (!config->features.scales_embeddings) {
        return 1;
    }
    float scale = (float)sqrt((double)config->width);
    return dtype == TERN_BF16 ? tern_bf16_to_f32(tern_f32_to_bf16(scale)) : scale;
}

static tern_status check_range(const char *key, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high) {
        return tern_fail(TERN_ERR_CONFIG, "model.%s: found %lld, expected %lld to %lld", key,
                         (long long)value, (long long)low, (long long)high);
    }
    return TERN_OK;
}

static tern_status check_heads(const struct tern_model_config *config)
{
    if (config->heads % config->kv_heads != 0) {
        return tern_fail(TERN_ERR_CONFIG,
                         "model.kv_heads: found %lld, expected a divisor of model.heads (%lld)",
                         (long long)config->kv_heads, (long long)config->heads);
    }
    if (config->family == TERN_FAMILY_GPT2 &&
        (config->kv_heads != config->heads ||
         config->head_width * config->heads != config->width)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "model.heads: gpt2 needs kv_heads = heads and width = heads * head_width, "
                         "found width %lld, heads %lld, kv_heads %lld, head_width %lld",
                         (long long)config->width, (long long)config->heads,
                         (long long)config->kv_heads, (long long)config->head_width);
    }
    if (!config->features.has_positions && config->rope_width == config->head_width &&
        config->head_width % 2 != 0) {
        return tern_fail(TERN_ERR_CONFIG,
                         "model.head_width: found %lld, expected an even number (rotary positions)",
                         (long long)config->head_width);
    }
    return TERN_OK;
}

static tern_status fail_number(const char *key, float value, const char *expected)
{
    return tern_fail(TERN_ERR_CONFIG, "model.%s: found %g, expected %s", key, (double)value,
                     expected);
}

/* What the chosen scaling of rotary positions needs. */
static tern_status check_scaling(const struct tern_model_config *config)
{
    char expected[96];
    enum tern_rope_scaling scaling = config->rope_scaling;
    const char *name = g_rope_scalings[scaling];
    snprintf(expected, sizeof expected, "at least 1 with rope_scaling %s", name);
    if (scaling == TERN_ROPE_PLAIN) {
        return TERN_OK;
    }
    if (scaling != TERN_ROPE_LONGROPE && !(config->rope_factor >= 1)) {
        return fail_number("rope_factor", config->rope_factor, expected);
    }
    if (scaling == TERN_ROPE_LLAMA3 &&
        (!(config->rope_low_freq_factor > 0) ||
         !(config->rope_high_freq_factor > config->rope_low_freq_factor))) {
        snprintf(expected, sizeof expected, "above rope_low_freq_factor (%g), and that above 0",
                 (double)config->rope_low_freq_factor);
        return fail_number("rope_high_freq_factor", config->rope_high_freq_factor, expected);
    }
    if (scaling != TERN_ROPE_LINEAR && config->rope_original_context < 1) {
        return fail_number("rope_original_context", (float)config->rope_original_context, expected);
    }
    for (int64_t i = 0; i < config->rope_width / 2 && scaling == TERN_ROPE_LONGROPE; i++) {
        if (!(config->rope_short[i] > 0) || !(config->rope_long[i] > 0)) {
            snprintf(expected, sizeof expected, "all above 0, for %lld pairs",
                     (long long)(config->rope_width / 2));
            return fail_number(
                config->rope_short[i] > 0 ? "rope_long" : "rope_short",
                config->rope_short[i] > 0 ? config->rope_long[i] : config->rope_short[i], expected);
        }
    }
    return TERN_OK;
}

static tern_status check_rope(const struct tern_model_config *config)
{
    if (!(config->rope_theta >= 1)) {
        return fail_number("rope_theta", config->rope_theta, "at least 1");
    }
    if (config->rope_theta_local != 0 && !(config->rope_theta_local >= 1)) {
        return fail_number("rope_theta_local", config->rope_theta_local, "0 or at least 1");
    }
    if (config->features.has_positions) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(check_range("rope_width", config->rope_width, 2, config->head_width));
    if (config->rope_width % 2 != 0) {
        return fail_number("rope_width", (float)config->rope_width, "an even number");
    }
    if (!(config->rope_attention_factor >= 0) || isinf(config->rope_attention_factor)) {
        return fail_number("rope_attention_factor", config->rope_attention_factor, "at least 0");
    }
    return check_scaling(config);
}

static tern_status check_experts(const struct tern_model_config *config)
{
    if (config->experts == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(check_range("experts", config->experts, 1, TERN_MODEL_EXPERTS_MAX));
    TERN_RETURN_IF_ERR(check_range("experts_used", config->experts_used, 1, config->experts));
    return check_range("expert_ff_width", config->expert_ff_width, 1, 1 << 20);
}

static tern_status check_scales(const struct tern_model_config *config)
{
    const struct {
        const char *key;
        float value;
    } caps[] = {{"attention_softcap", config->attention_softcap},
                {"logit_softcap", config->logit_softcap}};
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        if (!(caps[i].value >= 0) || isinf(caps[i].value)) {
            return fail_number(caps[i].key, caps[i].value, "a finite number of at least 0");
        }
    }
    if (!(config->query_scale > 0) || isinf(config->query_scale)) {
        return fail_number("query_scale", config->query_scale, "a finite number above 0");
    }
    return TERN_OK;
}

tern_status tern_model_config_check(const struct tern_model_config *config)
{
    TERN_RETURN_IF_ERR(check_range("layers", config->layers, 1, TERN_MODEL_LAYERS_MAX));
    TERN_RETURN_IF_ERR(check_range("width", config->width, 1, 1 << 17));
    TERN_RETURN_IF_ERR(check_range("heads", config->heads, 1, 1024));
    TERN_RETURN_IF_ERR(check_range("kv_heads", config->kv_heads, 1, config->heads));
    TERN_RETURN_IF_ERR(check_range("head_width", config->head_width, 1, TERN_HEAD_WIDTH_MAX));
    TERN_RETURN_IF_ERR(check_range("ff_width", config->ff_width, 1, 1 << 20));
    TERN_RETURN_IF_ERR(check_range("context", config->context, 1, 1 << 22));
    TERN_RETURN_IF_ERR(check_range("vocab_size", config->vocab_size, 1, 1 << 24));
    TERN_RETURN_IF_ERR(check_range("window", config->window, 0, INT32_MAX));
    TERN_RETURN_IF_ERR(check_range("window_period", config->window_period, 0, INT32_MAX));
    TERN_RETURN_IF_ERR(check_range("window_first", config->window_first, 0, INT32_MAX));
    if (!(config->norm_eps > 0 && config->norm_eps < 1)) {
        return fail_number("norm_eps", config->norm_eps, "above 0, below 1");
    }
    TERN_RETURN_IF_ERR(check_heads(config));
    TERN_RETURN_IF_ERR(check_rope(config));
    TERN_RETURN_IF_ERR(check_experts(config));
    return check_scales(config);
}
