/* config.c - families and presets: the numbers of known models, and the checks any model must
 * pass. */
#include "models/model.h"

#include <stdio.h>
#include <string.h>

static const char *const g_families[TERN_FAMILY_COUNT + 1] = {
    [TERN_FAMILY_GPT2] = "gpt2",
    [TERN_FAMILY_LLAMA] = "llama",
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

const char *tern_family_name(int index)
{
    return index >= 0 && index < TERN_FAMILY_COUNT ? g_families[index] : NULL;
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

void tern_model_config_defaults(struct tern_model_config *config)
{
    if (config->kv_heads == 0) {
        config->kv_heads = config->heads;
    }
    if (config->head_width == 0 && config->heads > 0) {
        config->head_width = config->width / config->heads;
    }
    if (config->ff_width == 0) {
        /* llama: 8/3 of the width, rounded up to 32, so that three matrices cost what two of 4x
         * do */
        config->ff_width = config->family == TERN_FAMILY_GPT2
                               ? 4 * config->width
                               : (config->width * 8 / 3 + 31) / 32 * 32;
    }
    if (config->norm_eps == 0) {
        config->norm_eps = 1e-5F;
    }
    if (config->rope_theta == 0) {
        config->rope_theta = 10000;
    }
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
    if (config->family == TERN_FAMILY_GPT2 && !config->tied_embeddings) {
        return tern_fail(TERN_ERR_CONFIG,
                         "model.tied_embeddings: found false, expected true for gpt2");
    }
    if (config->family == TERN_FAMILY_LLAMA && config->head_width % 2 != 0) {
        return tern_fail(TERN_ERR_CONFIG,
                         "model.head_width: found %lld, expected an even number (rotary positions)",
                         (long long)config->head_width);
    }
    return TERN_OK;
}

tern_status tern_model_config_check(const struct tern_model_config *config)
{
    TERN_RETURN_IF_ERR(check_range("layers", config->layers, 1, 1024));
    TERN_RETURN_IF_ERR(check_range("width", config->width, 1, 1 << 17));
    TERN_RETURN_IF_ERR(check_range("heads", config->heads, 1, 1024));
    TERN_RETURN_IF_ERR(check_range("kv_heads", config->kv_heads, 1, config->heads));
    TERN_RETURN_IF_ERR(check_range("head_width", config->head_width, 1, 512));
    TERN_RETURN_IF_ERR(check_range("ff_width", config->ff_width, 1, 1 << 20));
    TERN_RETURN_IF_ERR(check_range("context", config->context, 1, 1 << 22));
    TERN_RETURN_IF_ERR(check_range("vocab_size", config->vocab_size, 1, 1 << 24));
    if (!(config->norm_eps > 0 && config->norm_eps < 1)) {
        return tern_fail(TERN_ERR_CONFIG, "model.norm_eps: found %g, expected above 0, below 1",
                         (double)config->norm_eps);
    }
    if (!(config->rope_theta >= 1)) {
        return tern_fail(TERN_ERR_CONFIG, "model.rope_theta: found %g, expected at least 1",
                         (double)config->rope_theta);
    }
    return check_heads(config);
}
