/* config_lora.c - the lora section of a run: which modules of the model are adapted. */
#include "models/lora.h"
#include "runtime/base/mem.h"
#include "runtime/train/config_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Modules of this model that can be adapted. */
struct modules {
    struct tern_lora_target names[TERN_LORA_TARGETS_MAX];
    int count;
};

static bool find_modules(const struct tern_config_check *check, struct modules *out)
{
    struct tern_params params;
    struct tern_model_config model = check->config->model;
    model.vocab_size = 1; /* names do not depend on it, and it may not be known yet */
    if (tern_params_init(&params, &model) != TERN_OK) {
        TERN_CONFIG_PROBLEM(check, "lora", "targets", "%s", tern_detail());
        return false;
    }
    out->count = tern_lora_targets(&params, out->names, TERN_LORA_TARGETS_MAX);
    tern_params_fini(&params);
    return true;
}

static void check_targets(const struct tern_config_check *check, const struct modules *modules)
{
    const struct tern_config_strings *targets = &check->config->lora.targets;
    const char *names[TERN_LORA_TARGETS_MAX];
    char all[TERN_LORA_TARGETS_MAX * (sizeof modules->names[0].name + 2)] = "";
    for (int i = 0; i < modules->count; i++) {
        names[i] = modules->names[i].name;
        strcat(strcat(all, i > 0 ? ", " : ""), names[i]);
    }
    for (int i = 0; i < targets->count; i++) {
        int k = 0;
        while (k < modules->count && strcmp(targets->items[i], names[k]) != 0) {
            k++;
        }
        if (k == modules->count) {
            TERN_CONFIG_PROBLEM(
                check, "lora", "targets",
                "found '%.60s', expected some of %s, or all-linear; nearest is "
                "'%s'",
                targets->items[i], all,
                tern_text_nearest(targets->items[i], names, (size_t)modules->count));
        }
        for (int j = 0; j < i; j++) {
            if (strcmp(targets->items[i], targets->items[j]) == 0) {
                TERN_CONFIG_PROBLEM(check, "lora", "targets", "found '%.60s' twice",
                                    targets->items[i]);
            }
        }
    }
}

/* Whether a module belongs to what is adapted unless the file says otherwise: attention's, as far
 * as its name means nothing else (GPT-2's c_proj is also the MLP's). */
static bool is_default(const char *name)
{
    static const char *const names[] = {"q_proj", "k_proj",   "v_proj",
                                        "o_proj", "qkv_proj", "c_attn"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Replaces targets by all modules, or by the usual ones. */
static void take_modules(const struct tern_config_check *check,
                         const struct modules *modules,
                         bool all)
{
    struct tern_config_strings *targets = &check->config->lora.targets;
    for (int i = 0; i < targets->count; i++) {
        tern_free(targets->items[i]);
    }
    tern_free(targets->items);
    *targets = (struct tern_config_strings){0};
    targets->items = tern_alloc_zero("config", TERN_LORA_TARGETS_MAX, sizeof *targets->items);
    for (int i = 0; targets->items != NULL && i < modules->count; i++) {
        if (all || is_default(modules->names[i].name)) {
            targets->items[targets->count] = tern_strdup("config", modules->names[i].name);
            targets->count += targets->items[targets->count] != NULL;
        }
    }
    if (targets->count == 0) {
        TERN_CONFIG_PROBLEM(check, "lora", "targets", "there is no memory for them");
    }
}

void tern_config_check_lora(const struct tern_config_check *check)
{
    struct tern_config_lora *lora = &check->config->lora;
    struct modules modules;
    if (tern_config_check_is_bad(check, "lora", NULL)) {
        return;
    }
    bool is_meant = lora->rank > 0 || lora->alpha != 0 || lora->targets.count > 0;
    if (is_meant && !check->may_adapt) {
        TERN_CONFIG_PROBLEM(check, "lora", "rank",
                            "expected no section lora: adapters are trained by 'tern finetune'");
        return;
    }
    if (is_meant && lora->rank == 0) {
        TERN_CONFIG_PROBLEM(check, "lora", "rank", "%s, expected a whole number from 1 to %d",
                            tern_config_check_is_set(check, "lora", "rank") ? "found 0" : "missing",
                            TERN_LORA_RANK_MAX);
        return;
    }
    if (lora->rank > 0 && lora->alpha == 0) {
        lora->alpha = 2 * (double)lora->rank;
    }
    if (lora->dropout != 0) {
        TERN_CONFIG_PROBLEM(check, "lora", "dropout",
                            "found %g, expected 0: dropout is not in this build", lora->dropout);
    }
    if (lora->rank == 0 || check->config->model.layers == 0 ||
        tern_config_check_is_bad(check, "model", NULL) || !find_modules(check, &modules)) {
        return;
    }
    bool is_all = lora->targets.count == 1 && strcmp(lora->targets.items[0], "all-linear") == 0;
    if (lora->targets.count == 0 || is_all) {
        take_modules(check, &modules, is_all);
        return;
    }
    check_targets(check, &modules);
}
