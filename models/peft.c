/* peft.c - adapter_config.json: what is read of it, and what must not be there. */
#include "models/peft.h"

#include "io/json.h"
#include "models/hf_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Keys of arithmetic that Tern does not have: null, false, empty, or "none" is what they must be. */
static const char *const g_absent[] = {"use_dora",
                                       "lora_bias",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "modules_to_save",
                                       "layers_pattern",
                                       "target_parameters",
                                       "layers_to_transform",
                                       "layer_replication",
                                       "trainable_token_indices",
                                       "use_qalora",
                                       "use_bdlora",
                                       "alora_invocation_tokens",
                                       "arrow_config",
                                       "corda_config",
                                       "exclude_modules"};

static bool is_absent(const struct tern_json *value)
{
    switch (tern_json_kind_of(value)) {
    case TERN_JSON_MISSING:
    case TERN_JSON_NULL:
        return true;
    case TERN_JSON_BOOL:
        return !tern_json_bool(value, true);
    case TERN_JSON_ARRAY:
    case TERN_JSON_OBJECT:
        return tern_json_count(value) == 0;
    default:
        return false;
    }
}

static tern_status check_absent(const struct tern_json *root)
{
    for (size_t i = 0; i < sizeof g_absent / sizeof g_absent[0]; i++) {
        if (!is_absent(tern_json_get(root, g_absent[i]))) {
            return tern_fail(
                TERN_ERR_UNSUPPORTED,
                "key '%s': expected nothing there: such adapters are not in this build",
                g_absent[i]);
        }
    }
    const char *bias = tern_json_string(tern_json_get(root, "bias"), NULL);
    if (tern_json_get(root, "bias") != NULL && (bias == NULL || strcmp(bias, "none") != 0)) {
        return tern_hf_fail(root, "bias", "\"none\"");
    }
    return TERN_OK;
}

static tern_status read_target(const struct tern_json *value, struct tern_peft_config *out)
{
    size_t bytes = 0;
    const char *text = tern_json_string(value, &bytes);
    if (text == NULL || bytes == 0 || bytes >= TERN_PEFT_TARGET_BYTES || strlen(text) != bytes) {
        return tern_fail(TERN_ERR_INPUT,
                         "key 'target_modules': entry %d: expected the name of a module",
                         out->target_count + 1);
    }
    if (out->target_count == TERN_LORA_TARGETS_MAX) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "key 'target_modules': expected at most %d entries",
                         TERN_LORA_TARGETS_MAX);
    }
    memcpy(out->targets[out->target_count++], text, bytes + 1);
    return TERN_OK;
}

/* A list of names; a single text would be a pattern, unless it means all. */
static tern_status read_targets(const struct tern_json *root, struct tern_peft_config *out)
{
    const struct tern_json *targets = tern_json_get(root, "target_modules");
    const char *text = tern_json_string(targets, NULL);
    if (text != NULL && strcmp(text, "all-linear") == 0) {
        return read_target(targets, out);
    }
    if (tern_json_kind_of(targets) != TERN_JSON_ARRAY || tern_json_count(targets) == 0) {
        return tern_hf_fail(root, "target_modules", "a list of names, or all-linear");
    }
    for (int64_t i = 0; i < tern_json_count(targets); i++) {
        TERN_RETURN_IF_ERR(read_target(tern_json_item(targets, i), out));
    }
    return TERN_OK;
}

static tern_status read_numbers(const struct tern_json *root, struct tern_peft_config *out)
{
    if (!tern_json_i64(tern_json_get(root, "r"), &out->rank) || out->rank < 1 ||
        out->rank > TERN_LORA_RANK_MAX) {
        return tern_hf_fail(root, "r", "a whole number from 1 to 1024");
    }
    if (!tern_json_f64(tern_json_get(root, "lora_alpha"), &out->alpha) || !(out->alpha > 0) ||
        !(out->alpha <= 1e6)) {
        return tern_hf_fail(root, "lora_alpha", "a number above 0, at most 1e6");
    }
    if (tern_json_bool(tern_json_get(root, "use_rslora"), false)) {
        out->alpha *= sqrt((double)out->rank); /* alpha / sqrt(rank) */
    }
    return TERN_OK;
}

static tern_status read_root(const struct tern_json *root, struct tern_peft_config *out)
{
    const char *type = tern_json_string(tern_json_get(root, "peft_type"), NULL);
    const char *base = tern_json_string(tern_json_get(root, "base_model_name_or_path"), NULL);
    if (type == NULL || strcmp(type, "LORA") != 0) {
        return tern_hf_fail(root, "peft_type", "\"LORA\"");
    }
    TERN_RETURN_IF_ERR(check_absent(root));
    TERN_RETURN_IF_ERR(read_numbers(root, out));
    TERN_RETURN_IF_ERR(read_targets(root, out));
    if (base != NULL &&
        snprintf(out->base, sizeof out->base, "%s", base) >= (int)sizeof out->base) {
        return tern_fail(TERN_ERR_INPUT,
                         "key 'base_model_name_or_path': expected a path below %d bytes",
                         TERN_PEFT_BASE_BYTES);
    }
    return TERN_OK;
}

tern_status tern_peft_config_parse(const char *name,
                                   const char *text,
                                   size_t bytes,
                                   struct tern_peft_config *out)
{
    struct tern_json *document;
    *out = (struct tern_peft_config){0};
    TERN_RETURN_IF_ERR(tern_json_parse(name, text, bytes, &document));
    tern_status status = read_root((const struct tern_json *)document, out);
    tern_json_close(document);
    return status == TERN_OK ? TERN_OK : tern_fail_prefix(status, "%s", name);
}

tern_status tern_peft_config_print(const struct tern_peft_config *config,
                                   bool is_out_in,
                                   struct tern_text *out)
{
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n"
                              "  \"base_model_name_or_path\": "));
    TERN_RETURN_IF_ERR(tern_json_quote(out, config->base, strlen(config->base)));
    TERN_RETURN_IF_ERR(tern_text_printf(
        out,
        ",\n  \"r\": %lld,\n  \"lora_alpha\": %.17g,\n  \"lora_dropout\": 0.0,\n"
        "  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n  \"use_rslora\": false,\n"
        "  \"use_dora\": false,\n  \"inference_mode\": true,\n  \"modules_to_save\": null,\n"
        "  \"target_modules\": [",
        (long long)config->rank, config->alpha, is_out_in ? "false" : "true"));
    for (int i = 0; i < config->target_count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", i > 0 ? ", " : ""));
        TERN_RETURN_IF_ERR(tern_json_quote(out, config->targets[i], strlen(config->targets[i])));
    }
    return tern_text_printf(out, "]\n}\n");
}
