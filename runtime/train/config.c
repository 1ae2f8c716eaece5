/* config.c - the schema of a training run, one row a key. */
#include "runtime/train/config.h"

#include "io/file.h"
#include "models/lora.h"
#include "runtime/base/mem.h"
#include "runtime/train/config_check.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    LANES_MAX = 64,
    KEEP_MIN = 2, /* while one is being replaced another is whole */
};

static const char *const g_families[] = {"gpt2",  "llama",   "mistral",   "qwen2",
                                         "qwen3", "gemma",   "gemma2",    "gemma3",
                                         "phi3",  "mixtral", "qwen3_moe", NULL};
static const char *const g_rope_scalings[] = {"plain", "linear",   "dynamic", "llama3",
                                              "yarn",  "longrope", NULL};
static const char *const g_formats[] = {"text", "chat", NULL};
static const char *const g_precisions[] = {"bf16", "fp32", NULL};
static const char *const g_recomputes[] = {"none", "attention", "block", NULL};
static const char *const g_nonfinites[] = {"stop", "skip", NULL};
static const char *const g_pricings[] = {"on_demand", "spot", "committed", NULL};
static const char *const g_schedules[] = {"cosine", "linear", "constant", "wsd", NULL};
_Static_assert(sizeof g_families / sizeof g_families[0] == TERN_FAMILY_COUNT + 1, "one a family");

static tern_status parse_optimizer(const char *text, void *target);
static tern_status print_optimizer(const void *target, struct tern_text *out);
static tern_status parse_betas(const char *text, void *target);
static tern_status print_betas(const void *target, struct tern_text *out);
static tern_status parse_snapshot(const char *text, void *target);
static tern_status print_snapshot(const void *target, struct tern_text *out);
static tern_status parse_compression(const char *text, void *target);
static tern_status print_compression(const void *target, struct tern_text *out);

#define AT(field) offsetof(struct tern_train_config, field)
#define NO_MAX    TERN_CONFIG_NO_MAX
#define ABOVE_0   TERN_CONFIG_ABOVE_0

/* section, key, type, offset, size, min, max, choices, default, unit, help, parse, print */
static const struct tern_config_row g_rows[] = {
    {"model", "family", TERN_CONFIG_ENUM, AT(model.family), 0, 0, 0, g_families, NULL, "",
     "architecture; needed unless a preset says it"},
    {"model", "preset", TERN_CONFIG_CHARS, AT(model.preset),
     sizeof((struct tern_model_config *)0)->preset, 0, 0, NULL, NULL, "",
     "a known model's numbers; keys written beside it override them"},
    {"model", "layers", TERN_CONFIG_I64, AT(model.layers), 0, 1, 1024, NULL, NULL, "",
     "transformer blocks"},
    {"model", "width", TERN_CONFIG_I64, AT(model.width), 0, 1, 131072, NULL, NULL, "",
     "width of the residual stream"},
    {"model", "heads", TERN_CONFIG_I64, AT(model.heads), 0, 1, 1024, NULL, NULL, "", "query heads"},
    {"model", "kv_heads", TERN_CONFIG_I64, AT(model.kv_heads), 0, 1, 1024, NULL, NULL, "",
     "key and value heads; without it as many as heads"},
    {"model", "head_width", TERN_CONFIG_I64, AT(model.head_width), 0, 1, 512, NULL, NULL, "",
     "width of one head; without it width / heads"},
    {"model", "ff_width", TERN_CONFIG_I64, AT(model.ff_width), 0, 1, 1048576, NULL, NULL, "",
     "inner width of the MLP; without it 4 width (gpt2) or 8/3 width (llama)"},
    {"model", "context", TERN_CONFIG_I64, AT(model.context), 0, 1, 4194304, NULL, NULL, "tokens",
     "longest sequence"},
    {"model", "vocab_size", TERN_CONFIG_I64, AT(model.vocab_size), 0, 0, 16777216, NULL, NULL, "",
     "token ids; 0 or absent: the tokenizer's"},
    {"model", "tied_embeddings", TERN_CONFIG_BOOL, AT(model.tied_embeddings), 0, 0, 0, NULL, NULL,
     "", "output head shares the embedding; without it true for gpt2, false for llama"},
    {"model", "norm_eps", TERN_CONFIG_F32, AT(model.norm_eps), 0, ABOVE_0, 1, NULL, NULL, "",
     "added to the variance in norms; without it 1e-5"},
    {"model", "rope_theta", TERN_CONFIG_F32, AT(model.rope_theta), 0, 1, 1e12, NULL, NULL, "",
     "base of the rotary positions; without it 10000"},
    {"model", "rope_scaling", TERN_CONFIG_ENUM, AT(model.rope_scaling), 0, 0, 0, g_rope_scalings,
     "plain", "", "how rotary positions are stretched beyond the first context"},
    {"model", "rope_factor", TERN_CONFIG_F32, AT(model.rope_factor), 0, 0, 1e6, NULL, NULL, "",
     "llama3 scaling: how far slow frequencies are stretched"},
    {"model", "rope_low_freq_factor", TERN_CONFIG_F32, AT(model.rope_low_freq_factor), 0, 0, 1e6,
     NULL, NULL, "", "llama3 scaling: wavelengths above context / this are stretched"},
    {"model", "rope_high_freq_factor", TERN_CONFIG_F32, AT(model.rope_high_freq_factor), 0, 0, 1e6,
     NULL, NULL, "", "llama3 scaling: wavelengths below context / this are kept"},
    {"model", "rope_original_context", TERN_CONFIG_I64, AT(model.rope_original_context), 0, 0,
     4194304, NULL, NULL, "tokens", "llama3 scaling: the context before stretching"},

    {"data", "tokenizer", TERN_CONFIG_STRING, AT(data.tokenizer), 0, 0, 0, NULL, NULL, "",
     "tokenizer.json; needed for .txt and .jsonl and for text in the log"},
    {"data", "train", TERN_CONFIG_STRINGS, AT(data.train), 0, 0, 0, NULL, NULL, "",
     "training data: .bin (Megatron or llm.c), .txt, .jsonl; paths or globs, one source each"},
    {"data", "val", TERN_CONFIG_STRINGS, AT(data.val), 0, 0, 0, NULL, NULL, "",
     "evaluation data, the same formats; none: no evaluation"},
    {"data", "weights", TERN_CONFIG_DOUBLES, AT(data.weights), 0, ABOVE_0, NO_MAX, NULL, NULL, "",
     "share of tokens from each data.train entry; none: by size"},
    {"data", "format", TERN_CONFIG_ENUM, AT(data.format), 0, 0, 0, g_formats, "text", "",
     "text; chat: JSON lines with \"messages\", of which only what the assistant says is learned"},

    {"train", "steps", TERN_CONFIG_I64, AT(train.steps), 0, 0, 1e12, NULL, NULL, "steps",
     "length of the run; this or train.tokens"},
    {"train", "tokens", TERN_CONFIG_I64, AT(train.tokens), 0, 0, 9e15, NULL, NULL, "tokens",
     "length of the run; this or train.steps; 10e9 is fine"},
    {"train", "sequence_length", TERN_CONFIG_I64, AT(train.sequence_length), 0, 1, 4194304, NULL,
     NULL, "tokens", "tokens of one sequence; without it model.context"},
    {"train", "global_batch", TERN_CONFIG_I64, AT(train.global_batch), 0, 1, 16777216, NULL, NULL,
     "sequences", "of one step, whatever the number of ranks; without it lanes x micro_batch"},
    {"train", "micro_batch", TERN_CONFIG_I64, AT(train.micro_batch), 0, 1, 65536, NULL, "1",
     "sequences", "of one forward pass"},
    {"train", "lanes", TERN_CONFIG_I64, AT(train.lanes), 0, 1, LANES_MAX, NULL, "8", "",
     "fixed parts of a batch, a power of two: the most ranks that can share the work"},
    {"train", "precision", TERN_CONFIG_ENUM, AT(train.precision), 0, 0, 0, g_precisions, "bf16", "",
     "of the arithmetic; weights and moments are kept in fp32"},
    {"train", "deterministic", TERN_CONFIG_BOOL, AT(train.deterministic), 0, 0, 0, NULL, "true", "",
     "the same bits whatever the number of ranks"},
    {"train", "recompute", TERN_CONFIG_ENUM, AT(train.recompute), 0, 0, 0, g_recomputes, "none", "",
     "what is computed again in the backward pass instead of being kept"},
    {"train", "seed", TERN_CONFIG_I64, AT(train.seed), 0, 0, 9e15, NULL, "1234", "",
     "of the initial weights and the order of the data"},
    {"train", "eval_every", TERN_CONFIG_I64, AT(train.eval_every), 0, 0, 1e12, NULL, "250", "steps",
     "between evaluations; 0: never"},
    {"train", "eval_tokens", TERN_CONFIG_I64, AT(train.eval_tokens), 0, 1, 1e12, NULL, "1048576",
     "tokens", "of data.val that an evaluation reads, at most"},
    {"train", "on_nonfinite", TERN_CONFIG_ENUM, AT(train.on_nonfinite), 0, 0, 0, g_nonfinites,
     "stop", "", "what an infinite or NaN loss or gradient does"},

    {"optimizer", "name", TERN_CONFIG_CUSTOM, 0, 0, 0, 0, NULL, "adamw", "adamw", "the optimizer",
     parse_optimizer, print_optimizer},
    {"optimizer", "lr", TERN_CONFIG_F64, AT(optimizer.lr), 0, ABOVE_0, 1e3, NULL, "6e-4", "",
     "highest learning rate"},
    {"optimizer", "lr_min", TERN_CONFIG_F64, AT(optimizer.lr_min), 0, 0, 1e3, NULL, NULL, "",
     "learning rate at the end; without it lr / 10"},
    {"optimizer", "schedule", TERN_CONFIG_ENUM, AT(optimizer.schedule), 0, 0, 0, g_schedules,
     "cosine", "", "how the learning rate falls after the warm-up"},
    {"optimizer", "warmup_steps", TERN_CONFIG_I64, AT(optimizer.warmup_steps), 0, 0, 1e12, NULL,
     NULL, "steps", "of rising learning rate; without it a tenth of the run, at most 700"},
    {"optimizer", "decay_fraction", TERN_CONFIG_F64, AT(optimizer.decay_fraction), 0, 0, 1, NULL,
     "0.1", "", "schedule wsd: the last part of the run, which decays"},
    {"optimizer", "betas", TERN_CONFIG_CUSTOM, 0, 0, 0, 0, NULL, "[0.9, 0.95]",
     "[a, b], two numbers of at least 0 and below 1", "decay of the two moments", parse_betas,
     print_betas},
    {"optimizer", "eps", TERN_CONFIG_F64, AT(optimizer.eps), 0, ABOVE_0, 1, NULL, "1e-8", "",
     "added to the root of the second moment"},
    {"optimizer", "weight_decay", TERN_CONFIG_F64, AT(optimizer.weight_decay), 0, 0, 10, NULL,
     "0.1", "", "of matrices; embeddings, norms and biases are not decayed"},
    {"optimizer", "clip_grad_norm", TERN_CONFIG_F64, AT(optimizer.clip_grad_norm), 0, 0, 1e9, NULL,
     "1.0", "", "longest gradient, all parameters together; 0: no clipping"},

    {"checkpoint", "every_steps", TERN_CONFIG_I64, AT(checkpoint.every_steps), 0, 0, 1e12, NULL,
     "500", "steps", "between checkpoints; 0: only at the end and when asked"},
    {"checkpoint", "every_seconds", TERN_CONFIG_F64, AT(checkpoint.every_seconds), 0, 0, 1e9, NULL,
     "0", "seconds", "between checkpoints; 0: by steps only"},
    {"checkpoint", "snapshot_every_steps", TERN_CONFIG_CUSTOM, 0, 0, 0, 0, NULL, "auto",
     "auto or a whole number of at least 0", "steps between snapshots in memory; 0: never",
     parse_snapshot, print_snapshot},
    {"checkpoint", "keep", TERN_CONFIG_I64, AT(checkpoint.keep), 0, KEEP_MIN, 1e6, NULL, "3", "",
     "checkpoints kept; older ones are removed"},
    {"checkpoint", "compression", TERN_CONFIG_CUSTOM, 0, 0, 0, 0, NULL, "auto",
     "auto, none or zstd:LEVEL with LEVEL from 1 to 19",
     "of tensors on disk; auto: zstd:1 where a probe says that it pays", parse_compression,
     print_compression},
    {"checkpoint", "remote", TERN_CONFIG_STRING, AT(checkpoint.remote), 0, 0, 0, NULL, NULL, "",
     "store that gets a copy of every checkpoint: s3://, gs://, az:// or file:// and a prefix"},
    {"checkpoint", "remote_keep", TERN_CONFIG_I64, AT(checkpoint.remote_keep), 0, 1, 1e6, NULL, "3",
     "", "checkpoints kept in the store"},
    {"checkpoint", "remote_rate", TERN_CONFIG_I64, AT(checkpoint.remote_rate), 0, 0, 1e15, NULL,
     "0", "bytes", "a second that each rank sends at most; 0: no limit"},

    {"reclaim", "notices", TERN_CONFIG_STRINGS, AT(reclaim.notices), 0, 0, 0, NULL,
     "[signal, file]", "",
     "what announces that the machine goes away: signal, file, aws, azure, gcp, slurm; auto: the "
     "cloud or Slurm that this turns out to be"},
    {"reclaim", "deadline_seconds", TERN_CONFIG_F64, AT(reclaim.deadline_seconds), 0, ABOVE_0,
     86400, NULL, "25", "seconds", "from a notice that says no time to the end of the machine"},
    {"reclaim", "end_time", TERN_CONFIG_STRING, AT(reclaim.end_time), 0, 0, 0, NULL, NULL, "",
     "when the machine is known to go, such as 2026-01-31T11:30:00Z; the run ends before it"},
    {"reclaim", "poll_seconds", TERN_CONFIG_F64, AT(reclaim.poll_seconds), 0, 0, 3600, NULL, "0",
     "seconds", "between two looks at a source; 0: aws 5, azure 1, gcp 1, slurm 60"},
    {"reclaim", "approve", TERN_CONFIG_BOOL, AT(reclaim.approve), 0, 0, 0, NULL, "true", "",
     "azure: when all is saved, tell it that what it announced may begin"},
    {"reclaim", "mtbf_seconds", TERN_CONFIG_F64, AT(reclaim.mtbf_seconds), 0, ABOVE_0, 1e9, NULL,
     "14400", "seconds",
     "between losses of a machine, on average: how often checkpoint.snapshot_every_steps: auto is"},
    {"reclaim", "hang_seconds", TERN_CONFIG_F64, AT(reclaim.hang_seconds), 0, 0, 86400, NULL, "20",
     "seconds",
     "of a rank's silence, or of a step that also takes five times the usual, before the launch "
     "ends with 34; 0: never"},

    {"ledger", "price_per_hour", TERN_CONFIG_F64, AT(ledger.price_per_hour), 0, 0, 1e9, NULL, "0",
     "", "of one machine, in ledger.currency; 0: not known, no costs"},
    {"ledger", "catalogue", TERN_CONFIG_STRING, AT(ledger.catalogue), 0, 0, 0, NULL, NULL, "",
     "CSV of machines to find a price in that is not given, by instance, region and pricing: "
     "columns "
     "InstanceType, Price, SpotPrice, Region"},
    {"ledger", "currency", TERN_CONFIG_CHARS, AT(ledger.currency),
     sizeof((struct tern_config_ledger *)0)->currency, 0, 0, NULL, "USD", "",
     "three letters (ISO 4217)"},
    {"ledger", "pricing", TERN_CONFIG_ENUM, AT(ledger.pricing), 0, 0, 0, g_pricings, "on_demand",
     "", "what kind of price it is: of the catalogue, and for tern ledger --focus"},
    {"ledger", "provider", TERN_CONFIG_STRING, AT(ledger.provider), 0, 0, 0, NULL, NULL, "",
     "who is paid, for tern ledger --focus"},
    {"ledger", "region", TERN_CONFIG_STRING, AT(ledger.region), 0, 0, 0, NULL, NULL, "",
     "where the machines are: of the catalogue, and for tern ledger --focus"},
    {"ledger", "instance", TERN_CONFIG_STRING, AT(ledger.instance), 0, 0, 0, NULL, NULL, "",
     "type of machine: of the catalogue, and for tern ledger --focus"},

    {"lora", "rank", TERN_CONFIG_I64, AT(lora.rank), 0, 0, TERN_LORA_RANK_MAX, NULL, NULL, "",
     "tern finetune: adapters of this rank beside a frozen model; 0 or absent: train all weights"},
    {"lora", "alpha", TERN_CONFIG_F64, AT(lora.alpha), 0, 0, 1e6, NULL, NULL, "",
     "adapters count alpha / rank times; 0 or absent: 2 x rank"},
    {"lora", "targets", TERN_CONFIG_STRINGS, AT(lora.targets), 0, 0, 0, NULL, NULL, "",
     "last names of the modules that are adapted, such as q_proj, or all-linear; without it those "
     "of attention"},
    {"lora", "dropout", TERN_CONFIG_F64, AT(lora.dropout), 0, 0, 1, NULL, "0", "",
     "of what goes into adapters; only 0"},

    {"parallel", "zero", TERN_CONFIG_I64, AT(parallel.zero), 0, 0, 3, NULL, "0", "",
     "what is split over the data-parallel ranks: 0 nothing, 1 optimizer state"},
    {"parallel", "tensor", TERN_CONFIG_I64, AT(parallel.tensor), 0, 1, 1024, NULL, "1", "ranks",
     "that split each matrix"},
    {"parallel", "pipeline", TERN_CONFIG_I64, AT(parallel.pipeline), 0, 1, 1024, NULL, "1", "ranks",
     "that split the layers"},
    {"parallel", "context", TERN_CONFIG_I64, AT(parallel.context), 0, 1, 1024, NULL, "1", "ranks",
     "that split a sequence"},
    {"parallel", "expert", TERN_CONFIG_I64, AT(parallel.expert), 0, 1, 1024, NULL, "1", "ranks",
     "that split the experts"},
};

const struct tern_config_schema tern_train_schema = {
    .rows = g_rows,
    .row_count = sizeof g_rows / sizeof g_rows[0],
};

static tern_status parse_optimizer(const char *text, void *target)
{
    (void)target; /* there is one optimizer, so there is no field */
    if (strcmp(text, "adamw") != 0) {
        return tern_fail(TERN_ERR_CONFIG, "found '%.60s', expected adamw", text);
    }
    return TERN_OK;
}

static tern_status print_optimizer(const void *target, struct tern_text *out)
{
    (void)target;
    return tern_text_printf(out, "adamw");
}

static tern_status parse_betas(const char *text, void *target)
{
    struct tern_config_optimizer *optimizer = &((struct tern_train_config *)target)->optimizer;
    char first[48];
    char second[48];
    char rest;
    double beta1;
    double beta2;
    if (sscanf(text, "[%47[^],[], %47[^],[]%c", first, second, &rest) != 3 || rest != ']' ||
        !tern_text_to_f64(first, &beta1) || !tern_text_to_f64(second, &beta2) || beta1 < 0 ||
        beta1 >= 1 || beta2 < 0 || beta2 >= 1 || text[strlen(text) - 1] != ']') {
        return tern_fail(TERN_ERR_CONFIG,
                         "found '%.80s', expected [a, b], two numbers of at least 0 and below 1",
                         text);
    }
    optimizer->beta1 = beta1;
    optimizer->beta2 = beta2;
    return TERN_OK;
}

static tern_status print_betas(const void *target, struct tern_text *out)
{
    const struct tern_config_optimizer *optimizer =
        &((const struct tern_train_config *)target)->optimizer;
    char first[TERN_CONFIG_F64_BYTES];
    char second[TERN_CONFIG_F64_BYTES];
    return tern_text_printf(out, "[%s, %s]", tern_config_f64_text(optimizer->beta1, first),
                            tern_config_f64_text(optimizer->beta2, second));
}

static tern_status parse_snapshot(const char *text, void *target)
{
    int64_t steps = -1;
    if (strcmp(text, "auto") != 0 && (!tern_text_to_i64(text, &steps) || steps < 0)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "found '%.60s', expected auto or a whole number of at least 0", text);
    }
    ((struct tern_train_config *)target)->checkpoint.snapshot_every_steps = steps;
    return TERN_OK;
}

static tern_status print_snapshot(const void *target, struct tern_text *out)
{
    int64_t steps = ((const struct tern_train_config *)target)->checkpoint.snapshot_every_steps;
    return steps < 0 ? tern_text_printf(out, "auto") : tern_text_printf(out, "%" PRId64, steps);
}

static tern_status parse_compression(const char *text, void *target)
{
    struct tern_config_checkpoint *checkpoint = &((struct tern_train_config *)target)->checkpoint;
    int64_t level = 0;
    if (strcmp(text, "auto") == 0) {
        checkpoint->compression = TERN_COMPRESSION_AUTO;
    } else if (strcmp(text, "none") == 0) {
        checkpoint->compression = TERN_COMPRESSION_NONE;
    } else if (strncmp(text, "zstd:", 5) == 0 && tern_text_to_i64(text + 5, &level) && level >= 1 &&
               level <= 19) {
        checkpoint->compression = TERN_COMPRESSION_ZSTD;
    } else {
        return tern_fail(TERN_ERR_CONFIG,
                         "found '%.60s', expected auto, none or zstd:LEVEL with LEVEL from 1 to 19",
                         text);
    }
    checkpoint->level = level;
    return TERN_OK;
}

static tern_status print_compression(const void *target, struct tern_text *out)
{
    const struct tern_config_checkpoint *checkpoint =
        &((const struct tern_train_config *)target)->checkpoint;
    switch (checkpoint->compression) {
    case TERN_COMPRESSION_AUTO:
        return tern_text_printf(out, "auto");
    case TERN_COMPRESSION_NONE:
        return tern_text_printf(out, "none");
    case TERN_COMPRESSION_ZSTD:
        break;
    }
    return tern_text_printf(out, "zstd:%" PRId64, checkpoint->level);
}

int64_t tern_train_config_steps(const struct tern_config_train *train)
{
    int64_t per_step;
    if (train->steps > 0) {
        return train->steps;
    }
    if (train->tokens == 0 ||
        __builtin_mul_overflow(train->global_batch, train->sequence_length, &per_step) ||
        per_step == 0) {
        return 0;
    }
    return train->tokens / per_step + (train->tokens % per_step != 0);
}

static tern_status parse(const char *name,
                         const char *text,
                         size_t bytes,
                         const char *const *overrides,
                         int override_count,
                         const struct tern_train_base *base,
                         bool may_adapt,
                         struct tern_train_config *out)
{
    struct tern_config_source source;
    *out = (struct tern_train_config){0};
    tern_status status = tern_config_parse(&tern_train_schema, name, text, bytes, overrides,
                                           override_count, out, &source);
    if (status == TERN_OK || (status == TERN_ERR_CONFIG && !tern_config_is_broken(&source))) {
        struct tern_config_check check = {
            .config = out, .source = &source, .base = base, .may_adapt = may_adapt};
        tern_config_check_model(&check);
        tern_config_check_lora(&check);
        tern_config_check_run(&check);
        status = tern_config_finish(&source);
    }
    tern_config_source_fini(&source);
    return status;
}

tern_status tern_train_config_parse(const char *name,
                                    const char *text,
                                    size_t bytes,
                                    const char *const *overrides,
                                    int override_count,
                                    struct tern_train_config *out)
{
    return parse(name, text, bytes, overrides, override_count, NULL, true, out);
}

tern_status tern_finetune_config_parse(const char *name,
                                       const char *text,
                                       size_t bytes,
                                       const struct tern_train_base *base,
                                       struct tern_train_config *out)
{
    return parse(name, text, bytes, NULL, 0, base, true, out);
}

static tern_status read_file(const char *path,
                             const char *const *overrides,
                             int override_count,
                             const struct tern_train_base *base,
                             struct tern_train_config *out)
{
    *out = (struct tern_train_config){0};
    if (tern_file_is_folder(path)) {
        return tern_fail(TERN_ERR_CONFIG, "%s: found a folder, expected a configuration file",
                         path);
    }
    char *text;
    size_t bytes;
    tern_status status = tern_file_read(path, TERN_CONFIG_FILE_BYTES_MAX, &text, &bytes);
    if (status != TERN_OK) {
        /* whatever the reason, it is what the user gave that cannot be used */
        return tern_fail(status == TERN_ERR_MEMORY ? status : TERN_ERR_CONFIG,
                         "%s (expected a configuration file that can be read)", tern_detail());
    }
    status = parse(path, text, bytes, overrides, override_count, base, base != NULL, out);
    tern_free(text);
    return status;
}

tern_status tern_train_config_read(const char *path,
                                   const char *const *overrides,
                                   int override_count,
                                   struct tern_train_config *out)
{
    return read_file(path, overrides, override_count, NULL, out);
}

tern_status tern_finetune_config_read(const char *path,
                                      const char *const *overrides,
                                      int override_count,
                                      const struct tern_train_base *base,
                                      struct tern_train_config *out)
{
    return read_file(path, overrides, override_count, base, out);
}

void tern_train_config_fini(struct tern_train_config *config)
{
    tern_config_fini(&tern_train_schema, config);
}

tern_status tern_train_config_write(const struct tern_train_config *config, struct tern_text *out)
{
    return tern_config_write(&tern_train_schema, config, out);
}
