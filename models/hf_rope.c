/* hf_rope.c - the rotary positions of a config.json: rope_theta beside rope_scaling as files had
 * it, or rope_parameters as Transformers 5 writes it, for all layers or by kind of layer. */
#include "models/hf_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static tern_status find_scaling(const struct tern_json *object,
                                enum tern_family family,
                                enum tern_rope_scaling *out)
{
    const char *key = tern_hf_has(object, "rope_type") ? "rope_type" : "type";
    const char *name = tern_json_string(tern_json_get(object, key), NULL);
    *out = TERN_ROPE_PLAIN;
    if (!tern_hf_has(object, key) || (name != NULL && strcmp(name, "default") == 0)) {
        return TERN_OK;
    }
    if (name != NULL && family == TERN_FAMILY_PHI3 &&
        (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0)) {
        name = "longrope"; /* what its first files called it */
    }
    for (int i = TERN_ROPE_LINEAR; name != NULL && i < TERN_ROPE_SCALING_COUNT; i++) {
        if (strcmp(name, tern_rope_scaling_name(i)) == 0) {
            *out = (enum tern_rope_scaling)i;
            return TERN_OK;
        }
    }
    tern_status status =
        tern_hf_fail(object, key, "default, linear, dynamic, llama3, yarn or longrope");
    return name != NULL ? TERN_ERR_UNSUPPORTED : status;
}

static tern_status read_factors(const struct tern_json *object,
                                const char *key,
                                int64_t pairs,
                                float *out)
{
    const struct tern_json *list = tern_json_get(object, key);
    char expected[80];
    snprintf(expected, sizeof expected, "a list of %lld numbers above 0", (long long)pairs);
    if (tern_json_kind_of(list) != TERN_JSON_ARRAY || tern_json_count(list) != pairs) {
        return tern_hf_fail(object, key, expected);
    }
    for (int64_t i = 0; i < pairs; i++) {
        double value;
        if (!tern_json_f64(tern_json_item(list, i), &value) || !(value > 0 && value < 1e30)) {
            return tern_hf_fail(object, key, expected);
        }
        out[i] = (float)value;
    }
    return TERN_OK;
}

/* yarn: mscale and mscale_all_dim, where both are given, say what cosines are multiplied by. */
static tern_status read_yarn(const struct tern_json *object, struct tern_model_config *config)
{
    float mscale = 0;
    float all = 0;
    bool truncates = true;
    TERN_RETURN_IF_ERR(tern_hf_f32(object, "beta_fast", 0, 1e6, &config->rope_beta_fast));
    TERN_RETURN_IF_ERR(tern_hf_f32(object, "beta_slow", 0, 1e6, &config->rope_beta_slow));
    TERN_RETURN_IF_ERR(tern_hf_bool(object, "truncate", &truncates));
    TERN_RETURN_IF_ERR(tern_hf_f32(object, "mscale", 0, 1e6, &mscale));
    TERN_RETURN_IF_ERR(tern_hf_f32(object, "mscale_all_dim", 0, 1e6, &all));
    config->rope_keeps_fractions = !truncates;
    if (config->rope_attention_factor == 0 && mscale > 0 && all > 0 && config->rope_factor > 1) {
        double log_factor = 0.1 * log(config->rope_factor);
        config->rope_attention_factor = (float)((mscale * log_factor + 1) / (all * log_factor + 1));
    }
    return TERN_OK;
}

/* Positions of a stretched model whose file says how far it went before. */
static int64_t limit_context(double positions)
{
    return positions < 1 << 22 ? (int64_t)positions : 1 << 22;
}

/* What one object says of how positions are stretched. */
static tern_status read_scaling(const struct tern_json *root,
                                const struct tern_json *object,
                                struct tern_model_config *config)
{
    TERN_RETURN_IF_ERR(find_scaling(object, config->family, &config->rope_scaling));
    enum tern_rope_scaling scaling = config->rope_scaling;
    if (scaling == TERN_ROPE_PLAIN) {
        return TERN_OK;
    }
    bool is_yarn = scaling == TERN_ROPE_YARN;
    bool is_longrope = scaling == TERN_ROPE_LONGROPE;
    const char *original = "original_max_position_embeddings";
    const struct tern_json *where = tern_hf_has(root, original) ? root : object;
    config->rope_original_context = config->context;
    if (scaling != TERN_ROPE_DYNAMIC) {
        TERN_RETURN_IF_ERR(
            tern_hf_i64(where, original, 1, 1 << 22, &config->rope_original_context));
    }
    if (is_yarn || is_longrope) { /* the stretch, unless it is said */
        config->rope_factor = (float)config->context / (float)config->rope_original_context;
    }
    TERN_RETURN_IF_ERR(tern_hf_f32(object, "factor", 1e-3, 1e6, &config->rope_factor));
    TERN_RETURN_IF_ERR(
        tern_hf_f32(object, "attention_factor", 0, 1e6, &config->rope_attention_factor));
    if (is_yarn) {
        double reach = (double)config->rope_original_context * config->rope_factor;
        config->context = reach > (double)config->context ? limit_context(reach) : config->context;
        return read_yarn(object, config);
    }
    if (scaling == TERN_ROPE_DYNAMIC) {
        config->context = limit_context((double)config->context * config->rope_factor);
        return TERN_OK;
    }
    if (is_longrope) {
        int64_t pairs = config->rope_width / 2;
        TERN_RETURN_IF_ERR(read_factors(object, "short_factor", pairs, config->rope_short));
        return read_factors(object, "long_factor", pairs, config->rope_long);
    }
    if (scaling == TERN_ROPE_LLAMA3) {
        TERN_RETURN_IF_ERR(
            tern_hf_f32(object, "low_freq_factor", 0, 1e6, &config->rope_low_freq_factor));
        return tern_hf_f32(object, "high_freq_factor", 0, 1e6, &config->rope_high_freq_factor);
    }
    return TERN_OK;
}

static tern_status read_width(const struct tern_json *root,
                              const struct tern_json *object,
                              struct tern_model_config *config)
{
    double part = 1;
    const struct tern_json *where = tern_hf_has(object, "partial_rotary_factor") ? object : root;
    if (!tern_hf_has(where, "partial_rotary_factor")) {
        return TERN_OK;
    }
    if (!tern_json_f64(tern_json_get(where, "partial_rotary_factor"), &part) ||
        !(part > 0 && part <= 1) || (double)config->head_width * part < 2) {
        return tern_hf_fail(where, "partial_rotary_factor",
                            "a number above 0, at most 1, that leaves a pair of a head to rotate");
    }
    config->rope_width = (int64_t)((double)config->head_width * part);
    return TERN_OK;
}

tern_status tern_hf_rope_parse(const struct tern_json *root, struct tern_model_config *config)
{
    const struct tern_json *parameters = tern_json_get(root, "rope_parameters");
    const struct tern_json *scaling = tern_json_get(root, "rope_scaling");
    const char *key = tern_hf_has(root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    if (tern_hf_has(root, key) && tern_json_kind_of(tern_json_get(root, key)) != TERN_JSON_OBJECT) {
        return tern_hf_fail(root, key, "an object or null");
    }
    const struct tern_json *object = tern_hf_has(root, "rope_parameters") ? parameters : scaling;
    const struct tern_json *local = tern_json_get(object, "sliding_attention");
    const struct tern_json *full = tern_json_get(object, "full_attention");
    TERN_RETURN_IF_ERR(tern_hf_f32(root, "rope_theta", 1, 1e12, &config->rope_theta));
    if (config->family == TERN_FAMILY_GEMMA3) {
        TERN_RETURN_IF_ERR(
            tern_hf_f32(root, "rope_local_base_freq", 1, 1e12, &config->rope_theta_local));
        enum tern_rope_scaling of_local = TERN_ROPE_PLAIN;
        TERN_RETURN_IF_ERR(find_scaling(local, config->family, &of_local));
        if (of_local != TERN_ROPE_PLAIN) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "key 'rope_parameters.sliding_attention': found rope_type %s, "
                             "expected default",
                             tern_rope_scaling_name((int)of_local));
        }
        TERN_RETURN_IF_ERR(tern_hf_f32(local, "rope_theta", 1, 1e12, &config->rope_theta_local));
        object = full != NULL || local != NULL ? full : object;
    } else if (full != NULL || local != NULL) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "key '%s': found rotary positions by kind of layer, expected one for all",
                         key);
    }
    TERN_RETURN_IF_ERR(tern_hf_f32(object, "rope_theta", 1, 1e12, &config->rope_theta));
    TERN_RETURN_IF_ERR(read_width(root, object, config));
    return read_scaling(root, object, config);
}
