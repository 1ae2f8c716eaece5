/* config_check.h - inside the configuration of a run: what must hold between its keys. */
#ifndef TERN_RUNTIME_TRAIN_CONFIG_CHECK_H
#define TERN_RUNTIME_TRAIN_CONFIG_CHECK_H

#include "runtime/train/config.h"

/* The run being checked: the values, and where each came from. */
struct tern_config_check {
    struct tern_train_config *config;
    struct tern_config_source *source;
    const struct tern_train_base *base; /* NULL: the file says what the model is */
    bool may_adapt;                     /* false: the command trains no adapters */
};

#define TERN_CONFIG_PROBLEM(check, section, key, ...) \
    tern_config_problem(&tern_train_schema, (check)->source, section, key, __VA_ARGS__)

/* A value that was refused says nothing about the others: its own problem is reported already. */
static inline bool tern_config_check_is_bad(const struct tern_config_check *check,
                                            const char *section,
                                            const char *key)
{
    return tern_config_is_bad(&tern_train_schema, check->source, section, key);
}

static inline bool tern_config_check_is_set(const struct tern_config_check *check,
                                            const char *section,
                                            const char *key)
{
    return tern_config_is_set(&tern_train_schema, check->source, section, key);
}

/* Each fills what follows from other keys, and adds the problems it finds to the source. */
void tern_config_check_model(const struct tern_config_check *check); /* config_model.c */
void tern_config_check_lora(const struct tern_config_check *check);  /* config_lora.c */
void tern_config_check_run(const struct tern_config_check *check);   /* config_check.c */

#endif
