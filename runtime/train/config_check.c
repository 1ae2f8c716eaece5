/* config_check.c - what must hold between the keys of a run, the model's apart. */
#include "runtime/train/config_check.h"

#include "io/store.h"
#include "runtime/observe/prices.h"
#include "runtime/reclaim/dates.h"

#include <inttypes.h>
#include <string.h>

enum {
    WARMUP_DEFAULT_MAX = 700
};

static void check_data(const struct tern_config_check *check)
{
    const struct tern_config_data *data = &check->config->data;
    if (data->train.count == 0 && !tern_config_check_is_bad(check, "data", "train")) {
        TERN_CONFIG_PROBLEM(check, "data", "train",
                            "found no files, expected at least one path or glob");
    }
    const struct {
        const char *key;
        const struct tern_config_strings *list;
    } lists[] = {{"train", &data->train}, {"val", &data->val}};
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        if (lists[k].list->count > TERN_CONFIG_FILES_MAX) {
            TERN_CONFIG_PROBLEM(check, "data", lists[k].key,
                                "found %d entries, expected at most %d; use a glob",
                                lists[k].list->count, TERN_CONFIG_FILES_MAX);
        }
        for (int i = 0; i < lists[k].list->count; i++) {
            if (lists[k].list->items[i][0] == '\0') {
                TERN_CONFIG_PROBLEM(check, "data", lists[k].key,
                                    "found an empty text as entry %d, expected a path or glob",
                                    i + 1);
            }
        }
    }
    if (data->weights.count > 0 && data->weights.count != data->train.count &&
        !tern_config_check_is_bad(check, "data", "train")) {
        TERN_CONFIG_PROBLEM(check, "data", "weights",
                            "found %d weights, expected one for each of the %d entries "
                            "of data.train",
                            data->weights.count, data->train.count);
    }
    if (data->format == TERN_DATA_CHAT && data->tokenizer == NULL) {
        TERN_CONFIG_PROBLEM(check, "data", "format",
                            "found chat without data.tokenizer, expected the tokenizer and chat "
                            "template of a model");
    }
}

static void check_length(const struct tern_config_check *check)
{
    const struct tern_config_train *train = &check->config->train;
    if (tern_config_check_is_bad(check, "train", "steps") ||
        tern_config_check_is_bad(check, "train", "tokens")) {
        return;
    }
    if (train->steps > 0 && train->tokens > 0) {
        TERN_CONFIG_PROBLEM(check, "train", "tokens",
                            "found %" PRId64 " beside train.steps %" PRId64
                            ", expected only one of the two",
                            train->tokens, train->steps);
    } else if (train->steps == 0 && train->tokens == 0) {
        const char *key = tern_config_check_is_set(check, "train", "tokens") ? "tokens" : "steps";
        TERN_CONFIG_PROBLEM(check, "train", key, "%s, expected train.steps or train.tokens above 0",
                            tern_config_check_is_set(check, "train", key) ? "found 0" : "missing");
    }
}

static void check_batch(const struct tern_config_check *check)
{
    struct tern_config_train *train = &check->config->train;
    int64_t context = check->config->model.context;
    if (train->sequence_length == 0) {
        train->sequence_length = context;
    }
    if (context > 0 && train->sequence_length > context) {
        TERN_CONFIG_PROBLEM(check, "train", "sequence_length",
                            "found %" PRId64 ", expected at most model.context (%" PRId64 ")",
                            train->sequence_length, context);
    }
    if ((train->lanes & (train->lanes - 1)) != 0) {
        TERN_CONFIG_PROBLEM(check, "train", "lanes",
                            "found %" PRId64 ", expected a power of two: 1, 2, 4, 8, 16, 32 or 64",
                            train->lanes);
    }
    int64_t quantum = train->lanes * train->micro_batch; /* both bounded by their rows */
    if (train->global_batch == 0) {
        train->global_batch = quantum;
    }
    bool is_known = !tern_config_check_is_bad(check, "train", "lanes") &&
                    !tern_config_check_is_bad(check, "train", "micro_batch");
    if (is_known && train->global_batch % quantum != 0) {
        int64_t below = train->global_batch / quantum * quantum;
        TERN_CONFIG_PROBLEM(check, "train", "global_batch",
                            "found %" PRId64
                            ", expected a multiple of lanes x micro_batch = %" PRId64 " x %" PRId64
                            " = %" PRId64 ", such as %" PRId64,
                            train->global_batch, train->lanes, train->micro_batch, quantum,
                            below > 0 ? below : quantum);
    }
}

static void check_optimizer(const struct tern_config_check *check)
{
    struct tern_config_optimizer *optimizer = &check->config->optimizer;
    int64_t steps = tern_train_config_steps(&check->config->train);
    if (!tern_config_check_is_set(check, "optimizer", "lr_min")) {
        optimizer->lr_min = optimizer->lr / 10;
    }
    if (optimizer->lr_min > optimizer->lr && !tern_config_check_is_bad(check, "optimizer", "lr")) {
        TERN_CONFIG_PROBLEM(check, "optimizer", "lr_min",
                            "found %g, expected at most optimizer.lr (%g)", optimizer->lr_min,
                            optimizer->lr);
    }
    if (!tern_config_check_is_set(check, "optimizer", "warmup_steps")) {
        optimizer->warmup_steps = steps / 10 < WARMUP_DEFAULT_MAX ? steps / 10 : WARMUP_DEFAULT_MAX;
    }
    if (steps > 0 && optimizer->warmup_steps > steps &&
        !tern_config_check_is_bad(check, "train", NULL)) {
        TERN_CONFIG_PROBLEM(check, "optimizer", "warmup_steps",
                            "found %" PRId64 ", expected at most the %" PRId64 " steps of the run",
                            optimizer->warmup_steps, steps);
    }
}

static void check_outside(const struct tern_config_check *check)
{
    const struct tern_train_config *config = check->config;
    if (config->checkpoint.remote != NULL && !tern_store_is_url(config->checkpoint.remote)) {
        TERN_CONFIG_PROBLEM(check, "checkpoint", "remote",
                            "found '%.200s', expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
                            "az://CONTAINER/PREFIX, file:///FOLDER or null",
                            config->checkpoint.remote);
    }
}

static void check_reclaim(const struct tern_config_check *check)
{
    static const char *const known[] = {"signal", "file", "auto", "aws", "azure", "gcp", "slurm"};
    const struct tern_config_reclaim *reclaim = &check->config->reclaim;
    double moment;
    for (int i = 0; i < reclaim->notices.count; i++) {
        const char *notice = reclaim->notices.items[i];
        const char *nearest = tern_text_nearest(notice, known, sizeof known / sizeof known[0]);
        if (strcmp(notice, nearest) != 0) {
            TERN_CONFIG_PROBLEM(check, "reclaim", "notices",
                                "found '%.60s', expected signal, file, auto, aws, azure, gcp or "
                                "slurm; nearest is '%s'",
                                notice, nearest);
        }
    }
    if (reclaim->end_time != NULL && !tern_date_parse(reclaim->end_time, &moment)) {
        TERN_CONFIG_PROBLEM(check, "reclaim", "end_time",
                            "found '%.60s', expected a moment such as 2026-01-31T11:30:00Z",
                            reclaim->end_time);
    }
}

/* A price that is not given may be in a catalogue: from then on it is as if it had been given. */
static void find_price(const struct tern_config_check *check)
{
    struct tern_config_ledger *ledger = &check->config->ledger;
    if (ledger->price_per_hour > 0 || ledger->catalogue == NULL) {
        return;
    }
    if (ledger->instance == NULL) {
        TERN_CONFIG_PROBLEM(check, "ledger", "catalogue",
                            "found '%.200s', expected ledger.instance beside it: whose price?",
                            ledger->catalogue);
    } else if (tern_price_find(ledger->catalogue, ledger->instance, ledger->region,
                               ledger->pricing == TERN_PRICING_SPOT,
                               &ledger->price_per_hour) != TERN_OK) {
        TERN_CONFIG_PROBLEM(check, "ledger", "catalogue", "%.400s", tern_detail());
    }
}

static void check_ledger(const struct tern_config_check *check)
{
    const char *currency = check->config->ledger.currency;
    if (strspn(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 3 || currency[3] != '\0') {
        TERN_CONFIG_PROBLEM(check, "ledger", "currency",
                            "found '%s', expected three capital letters such as USD", currency);
    }
    if (!tern_config_check_is_bad(check, "ledger", NULL)) {
        find_price(check);
    }
}

static void check_parallel(const struct tern_config_check *check)
{
    const struct tern_config_parallel *parallel = &check->config->parallel;
    if (parallel->zero > 1) {
        TERN_CONFIG_PROBLEM(check, "parallel", "zero",
                            "found %" PRId64
                            ", expected 0 or 1: more is not supported by this build",
                            parallel->zero);
    }
    const struct {
        const char *key;
        int64_t value;
    } ways[] = {{"tensor", parallel->tensor},
                {"pipeline", parallel->pipeline},
                {"context", parallel->context},
                {"expert", parallel->expert}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (ways[i].value != 1) {
            TERN_CONFIG_PROBLEM(check, "parallel", ways[i].key,
                                "found %" PRId64
                                ", expected 1: more is not supported by this build",
                                ways[i].value);
        }
    }
}

void tern_config_check_run(const struct tern_config_check *check)
{
    check_data(check);
    check_length(check);
    check_batch(check);
    check_optimizer(check);
    check_outside(check);
    check_reclaim(check);
    check_ledger(check);
    check_parallel(check);
}
