/* config.h - everything a training run can be told, as one plain struct; the schema table in
 * config.c gives each field its key, type, range, default, unit and line of help. */
#ifndef TERN_RUNTIME_TRAIN_CONFIG_H
#define TERN_RUNTIME_TRAIN_CONFIG_H

#include "models/model.h"
#include "runtime/base/config.h"

enum {
    TERN_CONFIG_FILES_MAX = 256
};

enum tern_data_format {
    TERN_DATA_TEXT,
    TERN_DATA_CHAT
};
enum tern_precision {
    TERN_PRECISION_BF16,
    TERN_PRECISION_FP32
};
enum tern_schedule {
    TERN_SCHEDULE_COSINE,
    TERN_SCHEDULE_LINEAR,
    TERN_SCHEDULE_CONSTANT,
    TERN_SCHEDULE_WSD
};
enum tern_nonfinite {
    TERN_NONFINITE_STOP,
    TERN_NONFINITE_SKIP
};
enum tern_compression {
    TERN_COMPRESSION_AUTO,
    TERN_COMPRESSION_NONE,
    TERN_COMPRESSION_ZSTD
};

enum tern_pricing {
    TERN_PRICING_ON_DEMAND,
    TERN_PRICING_SPOT,
    TERN_PRICING_COMMITTED
};

struct tern_config_data {
    char *tokenizer; /* path; NULL: none */
    struct tern_config_strings train, val;
    struct tern_config_doubles weights;
    enum tern_data_format format;
};

struct tern_config_train {
    int64_t steps;  /* 0: from tokens */
    int64_t tokens; /* 0: from steps */
    int64_t sequence_length;
    int64_t global_batch, micro_batch, lanes;
    enum tern_precision precision;
    bool deterministic;
    enum tern_recompute recompute;
    int64_t seed;
    int64_t eval_every; /* 0: never */
    int64_t eval_tokens;
    enum tern_nonfinite on_nonfinite;
};

struct tern_config_optimizer {
    double lr, lr_min;
    enum tern_schedule schedule;
    int64_t warmup_steps;
    double decay_fraction; /* wsd: the last part of the run that decays */
    double beta1, beta2, eps, weight_decay, clip_grad_norm; /* clip 0: off */
};

struct tern_config_checkpoint {
    int64_t every_steps;          /* 0: only at the end and when asked */
    double every_seconds;         /* 0: off */
    int64_t snapshot_every_steps; /* -1: auto */
    int64_t keep;
    enum tern_compression compression;
    int64_t level; /* zstd */
    char *remote;  /* URL; NULL none */
    int64_t remote_keep;
    int64_t remote_rate; /* bytes a second of each rank; 0 no limit */
};

struct tern_config_reclaim {
    struct tern_config_strings notices;
    double deadline_seconds;
    double mtbf_seconds; /* between two losses of a machine */
    double poll_seconds; /* 0: as each service wants it */
    char *end_time;      /* NULL: not known */
    bool approve;
    double hang_seconds; /* 0: off */
};

struct tern_config_ledger {
    double price_per_hour; /* of a machine; 0: not known */
    char currency[8];
    char *catalogue;                    /* where the price is found that is not given; NULL */
    char *provider, *region, *instance; /* NULL: nobody said */
    enum tern_pricing pricing;
};

struct tern_config_lora {
    int64_t rank; /* 0: all weights are trained */
    double alpha, dropout;
    struct tern_config_strings targets;
};

struct tern_config_parallel {
    int64_t zero, tensor, pipeline, context, expert;
};

struct tern_train_config {
    struct tern_model_config model;
    struct tern_config_data data;
    struct tern_config_train train;
    struct tern_config_optimizer optimizer;
    struct tern_config_checkpoint checkpoint;
    struct tern_config_reclaim reclaim;
    struct tern_config_ledger ledger;
    struct tern_config_lora lora;
    struct tern_config_parallel parallel;
};

/* The whole schema; rows of sections model, data, train, optimizer, checkpoint, reclaim, ledger, lora,
 * parallel. */
extern const struct tern_config_schema tern_train_schema;

/* Reads the file, applies overrides ("section.key=value"), fills presets and defaults, checks every
 * combination. Relative data paths stay as written (relative to the working folder). All problems
 * at once, each with file, line and column, in the sentence. Fini frees what strings it owns, also
 * after a failure. */
TERN_MUST_CHECK tern_status tern_train_config_read(const char *path,
                                                   const char *const *overrides,
                                                   int override_count,
                                                   struct tern_train_config *out);
/* What a fine-tuned model begins as. */
struct tern_train_base {
    const char *name; /* MODEL, for messages */
    const struct tern_model_config *model;
    const char *tokenizer; /* path; "" none */
};
/* As tern_train_config_read, for a run that begins as `base`: the model section is base's, and a
 * key of the file that says otherwise is a problem; data.tokenizer is base's unless given. */
TERN_MUST_CHECK tern_status tern_finetune_config_read(const char *path,
                                                      const char *const *overrides,
                                                      int override_count,
                                                      const struct tern_train_base *base,
                                                      struct tern_train_config *out);
/* The same from text that a run directory holds; `name` stands for the file in messages. */
TERN_MUST_CHECK tern_status tern_train_config_parse(const char *name,
                                                    const char *text,
                                                    size_t bytes,
                                                    const char *const *overrides,
                                                    int override_count,
                                                    struct tern_train_config *out);
/* Steps of the run, from train.steps or train.tokens; 0 while neither is known. */
int64_t tern_train_config_steps(const struct tern_config_train *train);
void tern_train_config_fini(struct tern_train_config *config);
/* The same of a run that began as another model: base, if not NULL, says what the model is. */
TERN_MUST_CHECK tern_status tern_finetune_config_parse(const char *name,
                                                       const char *text,
                                                       size_t bytes,
                                                       const struct tern_train_base *base,
                                                       struct tern_train_config *out);
/* The resolved configuration as YAML that reads back to the same struct. */
TERN_MUST_CHECK tern_status tern_train_config_write(const struct tern_train_config *config,
                                                    struct tern_text *out);

#endif
