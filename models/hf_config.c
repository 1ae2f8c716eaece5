/* hf_config.c - config.json to a model's numbers: a table of keys a kind of model, and what needs
 * more than a table. */
#include "models/hf_config.h"

#include "io/json.h"
#include "models/hf_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A whole number of the config. */
struct key {
    const char *name;
    size_t offset; /* of an int64_t in struct tern_model_config */
    int64_t low, high;
    bool is_needed; /* unless the family has one; else left at what that is */
};
#define AT(field) offsetof(struct tern_model_config, field)

static const struct key g_gpt2_keys[] = {
    {"n_layer", AT(layers), 1, TERN_MODEL_LAYERS_MAX, true},
    {"n_embd", AT(width), 1, 1 << 17, true},
    {"n_head", AT(heads), 1, 1024, true},
    {"n_positions", AT(context), 1, 1 << 22, true},
    {"vocab_size", AT(vocab_size), 1, 1 << 24, true},
    {"n_inner", AT(ff_width), 1, 1 << 20, false},
};
static const struct key g_keys[] = {
    {"num_hidden_layers", AT(layers), 1, TERN_MODEL_LAYERS_MAX, true},
    {"hidden_size", AT(width), 1, 1 << 17, true},
    {"intermediate_size", AT(ff_width), 1, 1 << 20, true},
    {"num_attention_heads", AT(heads), 1, 1024, true},
    {"num_key_value_heads", AT(kv_heads), 1, 1024, false},
    {"head_dim", AT(head_width), 1, TERN_HEAD_WIDTH_MAX, false},
    {"max_position_embeddings", AT(context), 1, 1 << 22, true},
    {"vocab_size", AT(vocab_size), 1, 1 << 24, true},
};
static const struct key g_mixtral_keys[] = {
    {"num_local_experts", AT(experts), 1, TERN_MODEL_EXPERTS_MAX, false},
    {"num_experts_per_tok", AT(experts_used), 1, TERN_MODEL_EXPERTS_MAX, false},
};
static const struct key g_qwen_moe_keys[] = {
    {"num_experts", AT(experts), 1, TERN_MODEL_EXPERTS_MAX, false},
    {"num_experts_per_tok", AT(experts_used), 1, TERN_MODEL_EXPERTS_MAX, false},
    {"moe_intermediate_size", AT(expert_ff_width), 1, 1 << 20, true},
};

/* Switches that must stand as they do in every model we know: elsewhere we would compute something
 * else. */
static const struct {
    const char *name;
    bool expected;
} g_switches[] = {
    {"add_cross_attention", false},
    {"scale_attn_weights", true},
    {"scale_attn_by_inverse_layer_idx", false},
    {"use_bidirectional_attention", false},
    {"is_encoder_decoder", false},
};

bool tern_hf_has(const struct tern_json *object, const char *key)
{
    enum tern_json_kind kind = tern_json_kind_of(tern_json_get(object, key));
    return kind != TERN_JSON_MISSING && kind != TERN_JSON_NULL;
}

tern_status tern_hf_fail(const struct tern_json *object, const char *key, const char *expected)
{
    const struct tern_json *value = tern_json_get(object, key);
    const char *text = tern_json_string(value, NULL);
    double number;
    if (text != NULL) {
        return tern_fail(TERN_ERR_CONFIG, "key '%s': found '%.80s', expected %s", key, text,
                         expected);
    }
    if (tern_json_f64(value, &number)) {
        return tern_fail(TERN_ERR_CONFIG, "key '%s': found %.15g, expected %s", key, number,
                         expected);
    }
    return tern_fail(TERN_ERR_CONFIG, "key '%s': found %s, expected %s", key,
                     tern_json_kind_of(value) == TERN_JSON_MISSING
                         ? "nothing"
                         : tern_json_kind_name(tern_json_kind_of(value)),
                     expected);
}

tern_status tern_hf_i64(const struct tern_json *object,
                        const char *key,
                        int64_t low,
                        int64_t high,
                        int64_t *out)
{
    char expected[80];
    int64_t value;
    if (!tern_hf_has(object, key)) {
        return TERN_OK;
    }
    if (!tern_json_i64(tern_json_get(object, key), &value) || value < low || value > high) {
        snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)low,
                 (long long)high);
        return tern_hf_fail(object, key, expected);
    }
    *out = value;
    return TERN_OK;
}

tern_status tern_hf_f32(const struct tern_json *object,
                        const char *key,
                        double low,
                        double high,
                        float *out)
{
    char expected[80];
    double value;
    if (!tern_hf_has(object, key)) {
        return TERN_OK;
    }
    if (!tern_json_f64(tern_json_get(object, key), &value) || !(value >= low && value <= high)) {
        snprintf(expected, sizeof expected, "a number from %g to %g", low, high);
        return tern_hf_fail(object, key, expected);
    }
    *out = (float)value;
    return TERN_OK;
}

tern_status tern_hf_bool(const struct tern_json *object, const char *key, bool *out)
{
    if (!tern_hf_has(object, key)) {
        return TERN_OK;
    }
    if (tern_json_kind_of(tern_json_get(object, key)) != TERN_JSON_BOOL) {
        return tern_hf_fail(object, key, "true or false");
    }
    *out = tern_json_bool(tern_json_get(object, key), false);
    return TERN_OK;
}

static tern_status read_keys(const struct tern_json *root,
                             const struct key *keys,
                             size_t count,
                             struct tern_model_config *config)
{
    for (size_t i = 0; i < count; i++) {
        const struct key *key = &keys[i];
        int64_t known = *(const int64_t *)((const char *)config + key->offset);
        if (key->is_needed && known == 0 && !tern_hf_has(root, key->name)) {
            char expected[80];
            snprintf(expected, sizeof expected, "a whole number from %lld to %lld",
                     (long long)key->low, (long long)key->high);
            return tern_hf_fail(root, key->name, expected);
        }
        TERN_RETURN_IF_ERR(tern_hf_i64(root, key->name, key->low, key->high,
                                       (int64_t *)((char *)config + key->offset)));
    }
    return TERN_OK;
}
#define READ_KEYS(root, keys, config) read_keys(root, keys, sizeof(keys) / sizeof(keys)[0], config)

/* "gpt2, llama, ..." */
static tern_status fail_architecture(const char *found)
{
    char names[512];
    size_t used = 0;
    for (int i = 0; i < TERN_FAMILY_COUNT; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 tern_family_row((enum tern_family)i)->architecture);
    }
    return tern_fail(TERN_ERR_UNSUPPORTED, "architecture: found '%.80s', expected one of %s", found,
                     names);
}

static tern_status find_family(const struct tern_json *root, enum tern_family *out)
{
    const struct tern_json *list = tern_json_get(root, "architectures");
    const char *name = tern_json_string(tern_json_item(list, 0), NULL);
    const char *type = tern_json_string(tern_json_get(root, "model_type"), NULL);
    if (name == NULL && type == NULL) {
        return tern_hf_fail(root, "architectures", "a list with one architecture's name");
    }
    for (int i = 0; i < TERN_FAMILY_COUNT; i++) {
        const struct tern_family_row *row = tern_family_row((enum tern_family)i);
        if (name != NULL ? strcmp(name, row->architecture) == 0
                         : strcmp(type, row->model_type) == 0) {
            *out = (enum tern_family)i;
            return TERN_OK;
        }
    }
    return fail_architecture(name != NULL ? name : type);
}

static tern_status check_switches(const struct tern_json *root)
{
    for (size_t i = 0; i < sizeof g_switches / sizeof g_switches[0]; i++) {
        bool value = g_switches[i].expected;
        TERN_RETURN_IF_ERR(tern_hf_bool(root, g_switches[i].name, &value));
        if (value != g_switches[i].expected) {
            return tern_fail(TERN_ERR_UNSUPPORTED, "key '%s': found %s, expected %s",
                             g_switches[i].name, value ? "true" : "false",
                             value ? "false" : "true");
        }
    }
    if (tern_hf_has(root, "quantization_config")) {
        const struct tern_json *object = tern_json_get(root, "quantization_config");
        const char *method = tern_json_string(tern_json_get(object, "quant_method"), NULL);
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "key 'quantization_config': found weights quantised by '%.40s', expected "
                         "plain ones (f32, f16, bf16)",
                         method != NULL ? method : "something unnamed");
    }
    return TERN_OK;
}

static tern_status read_activation(const struct tern_json *root, struct tern_model_config *config)
{
    static const struct {
        const char *name;
        enum tern_act act;
    } acts[] = {{"silu", TERN_ACT_SILU},
                {"swish", TERN_ACT_SILU},
                {"gelu_new", TERN_ACT_GELU_TANH},
                {"gelu_pytorch_tanh", TERN_ACT_GELU_TANH}};
    static const char *const keys[] = {"hidden_activation", "activation_function", "hidden_act"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        if (!tern_hf_has(root, keys[k])) {
            continue;
        }
        const char *name = tern_json_string(tern_json_get(root, keys[k]), NULL);
        for (size_t i = 0; name != NULL && i < sizeof acts / sizeof acts[0]; i++) {
            if (strcmp(name, acts[i].name) == 0) {
                config->features.act = acts[i].act;
                return TERN_OK;
            }
        }
        tern_status status = tern_hf_fail(root, keys[k], "silu, gelu_new or gelu_pytorch_tanh");
        return name != NULL ? TERN_ERR_UNSUPPORTED : status;
    }
    return TERN_OK;
}

/* layer_types as first windowed layer and period; other patterns are refused. */
static tern_status read_layer_types(const struct tern_json *root, struct tern_model_config *config)
{
    const struct tern_json *list = tern_json_get(root, "layer_types");
    bool is_windowed[TERN_MODEL_LAYERS_MAX];
    if (tern_json_kind_of(list) != TERN_JSON_ARRAY || tern_json_count(list) != config->layers) {
        return tern_hf_fail(root, "layer_types", "a list with a word for each layer");
    }
    for (int64_t i = 0; i < config->layers; i++) {
        const char *word = tern_json_string(tern_json_item(list, i), NULL);
        is_windowed[i] = word != NULL && strcmp(word, "sliding_attention") == 0;
        if (!is_windowed[i] && (word == NULL || strcmp(word, "full_attention") != 0)) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "key 'layer_types': found '%.40s' for layer %lld, expected "
                             "sliding_attention or full_attention",
                             word != NULL ? word : "no word", (long long)i);
        }
    }
    if (tern_model_set_windows(config, is_windowed)) {
        return TERN_OK;
    }
    return tern_fail(TERN_ERR_UNSUPPORTED,
                     "key 'layer_types': found no period, expected windowed layers from one on, "
                     "each n-th of them full");
}

static tern_status read_window(const struct tern_json *root, struct tern_model_config *config)
{
    bool is_qwen = config->family == TERN_FAMILY_QWEN2 || config->family == TERN_FAMILY_QWEN3 ||
                   config->family == TERN_FAMILY_QWEN3_MOE;
    bool is_used = !is_qwen;
    if (tern_json_kind_of(tern_json_get(root, "sliding_window")) == TERN_JSON_NULL) {
        config->window = 0;
    }
    TERN_RETURN_IF_ERR(tern_hf_i64(root, "sliding_window", 0, INT32_MAX, &config->window));
    TERN_RETURN_IF_ERR(tern_hf_bool(root, "use_sliding_window", &is_used));
    if (!is_used) {
        config->window = 0;
    }
    if (config->window == 0) {
        config->window_period = 0;
        config->window_first = 0;
        return TERN_OK;
    }
    if (is_qwen && config->family != TERN_FAMILY_QWEN3_MOE) {
        config->window_first = 28; /* what Qwen2Config says when a file does not */
        TERN_RETURN_IF_ERR(
            tern_hf_i64(root, "max_window_layers", 0, INT32_MAX, &config->window_first));
    }
    if (config->family == TERN_FAMILY_GEMMA3) {
        TERN_RETURN_IF_ERR(
            tern_hf_i64(root, "sliding_window_pattern", 1, INT32_MAX, &config->window_period));
        TERN_RETURN_IF_ERR(
            tern_hf_i64(root, "_sliding_window_pattern", 1, INT32_MAX, &config->window_period));
    }
    bool is_listed = config->family != TERN_FAMILY_MISTRAL && tern_hf_has(root, "layer_types");
    return is_listed ? read_layer_types(root, config) : TERN_OK;
}

static tern_status read_biases(const struct tern_json *root, struct tern_model_config *config)
{
    struct tern_model_features *f = &config->features;
    bool has_bias = false;
    if (config->family == TERN_FAMILY_GPT2 || config->family == TERN_FAMILY_QWEN2) {
        return TERN_OK; /* always theirs */
    }
    TERN_RETURN_IF_ERR(tern_hf_bool(root, "attention_bias", &has_bias));
    f->has_qkv_bias = has_bias;
    f->has_out_bias = has_bias;
    return tern_hf_bool(root, "mlp_bias", &f->has_mlp_bias);
}

static tern_status read_gemma(const struct tern_json *root, struct tern_model_config *config)
{
    float scalar = 0;
    bool is_gemma2_on =
        config->family == TERN_FAMILY_GEMMA2 || config->family == TERN_FAMILY_GEMMA3;
    if (!is_gemma2_on) {
        return TERN_OK;
    }
    const struct {
        const char *key;
        float *cap;
    } caps[] = {{"attn_logit_softcapping", &config->attention_softcap},
                {"final_logit_softcapping", &config->logit_softcap}};
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        if (tern_json_kind_of(tern_json_get(root, caps[i].key)) == TERN_JSON_NULL) {
            *caps[i].cap = 0;
        }
        TERN_RETURN_IF_ERR(tern_hf_f32(root, caps[i].key, 0, 1e9, caps[i].cap));
    }
    scalar = 256;
    TERN_RETURN_IF_ERR(tern_hf_f32(root, "query_pre_attn_scalar", 1e-6, 1e9, &scalar));
    config->query_scale = (float)(1 / sqrt((double)scalar));
    return TERN_OK;
}

static tern_status read_experts(const struct tern_json *root, struct tern_model_config *config)
{
    if (config->family == TERN_FAMILY_MIXTRAL) {
        TERN_RETURN_IF_ERR(READ_KEYS(root, g_mixtral_keys, config));
        config->expert_ff_width = config->ff_width;
        return TERN_OK;
    }
    if (config->family != TERN_FAMILY_QWEN3_MOE) {
        return TERN_OK;
    }
    if (!tern_hf_has(root, "num_experts")) {
        TERN_RETURN_IF_ERR(
            tern_hf_i64(root, "num_local_experts", 1, TERN_MODEL_EXPERTS_MAX, &config->experts));
    }
    TERN_RETURN_IF_ERR(READ_KEYS(root, g_qwen_moe_keys, config));
    TERN_RETURN_IF_ERR(tern_hf_bool(root, "norm_topk_prob", &config->normalizes_experts));
    int64_t step = 1;
    TERN_RETURN_IF_ERR(tern_hf_i64(root, "decoder_sparse_step", 0, INT32_MAX, &step));
    if (step != 1) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "key 'decoder_sparse_step': found %lld, expected 1: experts in each layer",
                         (long long)step);
    }
    if (tern_json_count(tern_json_get(root, "mlp_only_layers")) > 0) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "key 'mlp_only_layers': found some, expected an empty list: experts in "
                         "each layer");
    }
    return TERN_OK;
}

/* Gemma 3 with eyes: its text part is a Gemma 3 like any other. */
static bool is_gemma3_with_images(const struct tern_json *root)
{
    const struct tern_json *list = tern_json_get(root, "architectures");
    const char *name = tern_json_string(tern_json_item(list, 0), NULL);
    return name != NULL && strcmp(name, "Gemma3ForConditionalGeneration") == 0;
}

static tern_status parse_root(const struct tern_json *root, struct tern_model_config *config)
{
    enum tern_family family = TERN_FAMILY_GEMMA3;
    if (tern_json_kind_of(root) != TERN_JSON_OBJECT) {
        return tern_fail(TERN_ERR_INPUT, "found %s, expected an object",
                         tern_json_kind_name(tern_json_kind_of(root)));
    }
    if (is_gemma3_with_images(root)) {
        TERN_RETURN_IF_ERR(check_switches(root));
        if (tern_json_kind_of(tern_json_get(root, "text_config")) != TERN_JSON_OBJECT) {
            return tern_hf_fail(root, "text_config", "an object");
        }
        root = tern_json_get(root, "text_config");
    } else {
        TERN_RETURN_IF_ERR(find_family(root, &family));
    }
    TERN_RETURN_IF_ERR(check_switches(root));
    *config = tern_family_row(family)->defaults;
    config->family = family;
    config->has_features = true;
    config->norm_eps = tern_family_row(family)->hf_norm_eps;
    bool is_gpt2 = family == TERN_FAMILY_GPT2;
    TERN_RETURN_IF_ERR(is_gpt2 ? READ_KEYS(root, g_gpt2_keys, config)
                               : READ_KEYS(root, g_keys, config));
    TERN_RETURN_IF_ERR(tern_hf_f32(root, is_gpt2 ? "layer_norm_epsilon" : "rms_norm_eps", 1e-30, 1,
                                   &config->norm_eps));
    TERN_RETURN_IF_ERR(tern_hf_bool(root, "tie_word_embeddings", &config->tied_embeddings));
    TERN_RETURN_IF_ERR(read_activation(root, config));
    TERN_RETURN_IF_ERR(read_biases(root, config));
    TERN_RETURN_IF_ERR(read_gemma(root, config));
    TERN_RETURN_IF_ERR(read_experts(root, config));
    if (!is_gpt2) {
        TERN_RETURN_IF_ERR(read_window(root, config));
        if (config->head_width == 0 && config->width % config->heads != 0) {
            return tern_hf_fail(root, "hidden_size",
                                "a multiple of num_attention_heads where there is no head_dim");
        }
        tern_model_config_defaults(config);
        TERN_RETURN_IF_ERR(tern_hf_rope_parse(root, config));
    }
    tern_model_config_defaults(config);
    return tern_model_config_check(config);
}

tern_status tern_hf_config_parse(const char *name,
                                 const char *text,
                                 size_t bytes,
                                 struct tern_model_config *config)
{
    struct tern_json *document;
    TERN_RETURN_IF_ERR(tern_json_parse(name, text, bytes, &document));
    tern_status status = parse_root(document, config);
    tern_json_close(document);
    return status == TERN_OK ? TERN_OK : tern_fail_prefix(status, "%s", name);
}

static tern_status add_eos(const struct tern_json *root,
                           const struct tern_json *value,
                           int *count,
                           int32_t out[TERN_EOS_MAX])
{
    int64_t id;
    if (!tern_json_i64(value, &id) || id < 0 || id >= 1 << 24 || *count >= TERN_EOS_MAX) {
        return tern_hf_fail(root, "eos_token_id",
                            "a token's number, or a list of up to 16 of them");
    }
    out[(*count)++] = (int32_t)id;
    return TERN_OK;
}

static tern_status read_ids(const struct tern_json *root, struct tern_model_ids *ids)
{
    int64_t bos = ids->bos;
    if (!tern_hf_has(root, "eos_token_id") && tern_hf_has(root, "text_config")) {
        root = tern_json_get(root, "text_config");
    }
    const struct tern_json *eos = tern_json_get(root, "eos_token_id");
    const struct tern_json *first = tern_json_get(root, "bos_token_id");
    if (tern_json_kind_of(first) == TERN_JSON_NUMBER) { /* some say false for none */
        TERN_RETURN_IF_ERR(tern_hf_i64(root, "bos_token_id", -1, 1 << 24, &bos));
    }
    ids->bos = (int32_t)bos;
    if (!tern_hf_has(root, "eos_token_id")) {
        return TERN_OK;
    }
    ids->eos_count = 0;
    if (tern_json_kind_of(eos) != TERN_JSON_ARRAY) {
        return add_eos(root, eos, &ids->eos_count, ids->eos);
    }
    for (int64_t i = 0; i < tern_json_count(eos); i++) {
        TERN_RETURN_IF_ERR(add_eos(root, tern_json_item(eos, i), &ids->eos_count, ids->eos));
    }
    return TERN_OK;
}

tern_status tern_hf_ids_parse(const char *name,
                              const char *text,
                              size_t bytes,
                              struct tern_model_ids *ids)
{
    struct tern_json *document;
    TERN_RETURN_IF_ERR(tern_json_parse(name, text, bytes, &document));
    tern_status status = read_ids(document, ids);
    tern_json_close(document);
    return status == TERN_OK ? TERN_OK : tern_fail_prefix(status, "%s", name);
}
