/* config_model.c - the model section of a run: presets, defaults, and what models/ says of it. */
#include "models/transformer.h"
#include "runtime/base/config_value.h"
#include "runtime/base/mem.h"
#include "runtime/train/config_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    KEY_BYTES = 64
};

static size_t field_bytes(const struct tern_config_row *row)
{
    switch (row->type) {
    case TERN_CONFIG_I64:
        return sizeof(int64_t);
    case TERN_CONFIG_F32:
        return sizeof(float);
    case TERN_CONFIG_BOOL:
        return sizeof(bool);
    case TERN_CONFIG_ENUM:
        return sizeof(int);
    default:
        return row->size;
    }
}

/* The preset's numbers where the user wrote none. What a preset derives from width and heads is
 * derived again when those are overridden. */
static void merge_preset(const struct tern_config_check *check, struct tern_model_config preset)
{
    bool has_width = tern_config_check_is_set(check, "model", "width");
    bool has_heads = tern_config_check_is_set(check, "model", "heads");
    bool has_square_heads = preset.head_width * preset.heads == preset.width;
    if (has_heads && preset.kv_heads == preset.heads) {
        preset.kv_heads = 0;
    }
    if ((has_width || has_heads) && has_square_heads) {
        preset.head_width = 0;
    }
    if (has_width) {
        preset.ff_width = 0;
    }
    struct tern_train_config filled = {.model = preset};
    for (int i = 0; i < tern_train_schema.row_count; i++) {
        const struct tern_config_row *row = &tern_train_schema.rows[i];
        if (strcmp(row->section, "model") == 0 && strcmp(row->key, "preset") != 0 &&
            !check->source->places[i].is_set) {
            memcpy((char *)check->config + row->offset, (const char *)&filled + row->offset,
                   field_bytes(row));
        }
    }
}

/* False when there is no model to speak of: the checks that follow would only repeat that. */
static bool fill_model(const struct tern_config_check *check)
{
    struct tern_model_config *model = &check->config->model;
    struct tern_model_config preset;
    if (model->preset[0] == '\0') {
        if (!tern_config_check_is_set(check, "model", "family")) {
            TERN_CONFIG_PROBLEM(check, "model", "family",
                                "missing, expected gpt2 or llama, or a model.preset");
            return false;
        }
        if (!tern_config_check_is_set(check, "model", "tied_embeddings")) {
            model->tied_embeddings = tern_family_row(model->family)->defaults.tied_embeddings;
        }
        return true;
    }
    if (!tern_preset_find(model->preset, &preset)) {
        const char *names[64];
        size_t count = 0;
        while (count < 64 && tern_preset_name((int)count) != NULL) {
            names[count] = tern_preset_name((int)count);
            count++;
        }
        TERN_CONFIG_PROBLEM(check, "model", "preset",
                            "found '%s', expected a known preset; nearest is '%s'", model->preset,
                            tern_text_nearest(model->preset, names, count));
        return false;
    }
    if (tern_config_check_is_set(check, "model", "family") && model->family != preset.family) {
        TERN_CONFIG_PROBLEM(check, "model", "family",
                            "found %s, expected %s as model.preset %s has it",
                            tern_family_name((int)model->family),
                            tern_family_name((int)preset.family), preset.preset);
        return false;
    }
    merge_preset(check, preset);
    return true;
}

static bool check_model_present(const struct tern_config_check *check)
{
    const struct tern_model_config *model = &check->config->model;
    const struct {
        const char *key;
        int64_t value;
    } needed[] = {{"layers", model->layers},
                  {"width", model->width},
                  {"heads", model->heads},
                  {"context", model->context}};
    bool is_whole = true;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (needed[i].value == 0) {
            TERN_CONFIG_PROBLEM(check, "model", needed[i].key,
                                "missing, expected a whole number above 0, or a model.preset");
            is_whole = false;
        }
    }
    return is_whole;
}

/* The sentence of models/ begins with "model.KEY: "; it goes to where that key stands. */
static void report_model(const struct tern_config_check *check, const char *sentence)
{
    char key[KEY_BYTES];
    if (sscanf(sentence, "model.%63[a-z_]:", key) == 1) {
        for (int i = 0; i < tern_train_schema.row_count; i++) {
            if (strcmp(tern_train_schema.rows[i].section, "model") == 0 &&
                strcmp(tern_train_schema.rows[i].key, key) == 0) {
                const char *rest = strchr(sentence, ':') + 1;
                TERN_CONFIG_PROBLEM(check, "model", key, "%s", rest + strspn(rest, " "));
                return;
            }
        }
    }
    TERN_CONFIG_PROBLEM(check, "model", "family", "%s", sentence);
}

/* What the file says of a model that is there already must be so. */
static void compare_base(const struct tern_config_check *check)
{
    struct tern_train_config base = {.model = *check->base->model};
    for (int i = 0; i < tern_train_schema.row_count; i++) {
        const struct tern_config_row *row = &tern_train_schema.rows[i];
        const char *found = (const char *)check->config + row->offset;
        if (strcmp(row->section, "model") != 0 || !check->source->places[i].is_set ||
            check->source->places[i].is_bad ||
            memcmp(found, (const char *)&base + row->offset, field_bytes(row)) == 0) {
            continue;
        }
        struct tern_text is = {0};
        struct tern_text must = {0};
        if (tern_config_value_print(row, check->config, &is) == TERN_OK &&
            tern_config_value_print(row, &base, &must) == TERN_OK) {
            TERN_CONFIG_PROBLEM(check, "model", row->key,
                                "found %s, expected %s as %s has it; leave the key out", is.data,
                                must.data, check->base->name);
        }
        tern_text_fini(&is);
        tern_text_fini(&must);
    }
    check->config->model = *check->base->model;
}

static void take_tokenizer(const struct tern_config_check *check)
{
    struct tern_config_data *data = &check->config->data;
    const char *tokenizer = check->base->tokenizer;
    if (data->tokenizer != NULL || tokenizer[0] == '\0') {
        return;
    }
    data->tokenizer = tern_strdup("config", tokenizer);
    if (data->tokenizer == NULL) {
        TERN_CONFIG_PROBLEM(check, "data", "tokenizer", "there is no memory for MODEL's");
    }
}

/* From the file and its preset, or from what the run begins as. False: nothing to check. */
static bool find_model(const struct tern_config_check *check)
{
    if (check->base != NULL) {
        compare_base(check);
        take_tokenizer(check);
        return true;
    }
    return fill_model(check) && check_model_present(check);
}

void tern_config_check_model(const struct tern_config_check *check)
{
    if (tern_config_check_is_bad(check, "model", NULL) || !find_model(check)) {
        return;
    }
    struct tern_model_config *model = &check->config->model;
    if (model->head_width == 0 && model->width % model->heads != 0) {
        TERN_CONFIG_PROBLEM(check, "model", "width",
                            "found %" PRId64 ", expected a multiple of model.heads (%" PRId64
                            ") unless head_width is given",
                            model->width, model->heads);
        return;
    }
    tern_model_config_defaults(model);
    struct tern_model_config known = *model;
    if (known.vocab_size == 0) {
        known.vocab_size = 1; /* the tokenizer's, checked when that is read */
    }
    if (tern_model_config_check(&known) != TERN_OK ||
        tern_model_trainable_check(&known) != TERN_OK) {
        report_model(check, tern_detail());
    }
}
