/* cmd_eval.c - tern eval: how well a model predicts a text. */
#include "io/file.h"
#include "io/tokens.h"
#include "launch/commands.h"
#include "launch/model_options.h"
#include "runtime/base/mem.h"
#include "runtime/generate/generate.h"

#include <math.h>
#include <stdio.h>

static tern_status read_text(const struct tern_loaded *loaded,
                             const char *path,
                             int32_t **ids,
                             int64_t *count)
{
    struct tern_map map;
    TERN_RETURN_IF_ERR(tern_map_open(path, &map));
    tern_status status = tern_loaded_encode(loaded, (const char *)map.data, map.bytes,
                                            TERN_TEXT_AS_IT_IS, ids, count);
    tern_map_close(&map);
    return status;
}

/* All windows of a shard, in order, as one sequence. */
static tern_status read_tokens(const struct tern_loaded *loaded,
                               const char *path,
                               int64_t context,
                               int32_t **ids,
                               int64_t *count)
{
    struct tern_tokens *tokens = NULL;
    const char *patterns[] = {path};
    struct tern_tokens_options options = {
        .patterns = patterns,
        .pattern_count = 1,
        .tokenizer = loaded->tokenizer,
        .sequence_length = context,
        .vocab_size = loaded->model.config.vocab_size,
    };
    TERN_RETURN_IF_ERR(tern_tokens_open(&options, &tokens));
    int64_t samples = tern_tokens_epoch_samples(tokens);
    tern_status status = TERN_OK;
    int32_t *all = tern_alloc("eval", (size_t)(samples * context + 1) * sizeof *all);
    int32_t *targets = tern_alloc("eval", (size_t)context * sizeof *targets);
    if (all == NULL || targets == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld tokens",
                           (long long)(samples * context));
        goto out;
    }
    for (int64_t k = 0; k < samples; k++) {
        TERN_GOTO_IF_ERR(status, tern_tokens_sample(tokens, k, all + k * context, targets, NULL),
                         out);
    }
    all[samples * context] = targets[context - 1];
    *ids = all;
    *count = samples * context + 1;
    all = NULL;
out:
    tern_free(all);
    tern_free(targets);
    tern_tokens_close(tokens);
    return status;
}

/* Bytes of text that the predicted tokens stand for; -1 without a tokenizer. */
static int64_t predicted_bytes(const struct tern_loaded *loaded, const struct tern_eval_text *text)
{
    if (loaded->tokenizer == NULL) {
        return -1;
    }
    int64_t total = 0;
    for (int64_t i = text->prefix_count > 0 ? 0 : 1; i < text->count; i++) {
        size_t bytes = 0;
        if (tern_tokenizer_piece(loaded->tokenizer, text->ids[i], &bytes) != NULL) {
            total += (int64_t)bytes;
        }
    }
    return total;
}

/* "name":value, null for what JSON has no word for. */
static void print_number(const char *name, double value)
{
    if (isfinite(value)) {
        printf(",\"%s\":%.9g", name, value);
    } else {
        printf(",\"%s\":null", name);
    }
}

static void print_result(const struct tern_loaded *loaded,
                         const struct tern_eval_result *result,
                         int64_t context,
                         int64_t bytes)
{
    double nll = result->nll / (double)result->tokens;
    printf("{\"step\":%lld,\"tokens\":%lld,\"context\":%lld", (long long)loaded->step,
           (long long)result->tokens, (long long)context);
    print_number("nll", nll);
    print_number("perplexity", exp(nll));
    print_number("bits_per_byte", bytes > 0 ? result->nll / M_LN2 / (double)bytes : NAN);
    printf("}\n");
}

static tern_status run(const char *model,
                       const char *text,
                       const char *shard,
                       int64_t context,
                       enum tern_placed_mode mode)
{
    struct tern_loaded loaded;
    struct tern_eval_result result;
    int32_t *ids = NULL;
    int64_t count = 0;
    TERN_RETURN_IF_ERR(tern_loaded_open(model, TERN_LOADED_AUTO, mode, &loaded));
    tern_status status = TERN_OK;
    int64_t most = loaded.model.config.context;
    if (context > most) {
        status =
            tern_fail(TERN_ERR_USAGE, "--context: found %lld, expected at most the model's %lld",
                      (long long)context, (long long)most);
        goto out;
    }
    context = context == 0 ? most : context;
    TERN_GOTO_IF_ERR(status,
                     text != NULL ? read_text(&loaded, text, &ids, &count)
                                  : read_tokens(&loaded, shard, context, &ids, &count),
                     out);
    struct tern_eval_text sequence = {.ids = ids, .count = count, .context = context};
    if (text != NULL) {
        sequence.prefix = tern_tokenizer_prefix(loaded.tokenizer, &sequence.prefix_count);
    }
    TERN_GOTO_IF_ERR(status, tern_evaluate(&loaded, &sequence, &result), out);
    print_result(&loaded, &result, context, predicted_bytes(&loaded, &sequence));
out:
    tern_free(ids);
    tern_loaded_close(&loaded);
    return status;
}

tern_status tern_command_eval(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    const char *text = NULL;
    const char *tokens = NULL;
    int64_t context = 0;
    int mode = TERN_PLACED_STORED;
    const struct tern_option options[] = {
        {.name = "text",
         .kind = TERN_OPTION_STRING,
         .target = &text,
         .value_name = "FILE",
         .help = "a text file"},
        {.name = "tokens",
         .kind = TERN_OPTION_STRING,
         .target = &tokens,
         .value_name = "PREFIX",
         .help = "token shards, as 'tern data prepare' writes them"},
        {.name = "context",
         .kind = TERN_OPTION_I64,
         .target = &context,
         .value_name = "N",
         .min = 0,
         .max = 1e9,
         .help = "tokens of one window; 0: the model's context (default: 0)"},
        tern_option_weights(&mode),
    };
    const struct tern_command_spec spec = {
        .name = "eval",
        .usage = "MODEL (--text FILE | --tokens PREFIX) [options]",
        .summary =
            "Negative log-likelihood a token (natural log), perplexity and bits a byte, as "
            "one JSON object. Windows of a text begin as prompts do (BOS, where the tokenizer "
            "has one).",
        .example = "tern eval runs/a --text book.txt --context 256",
        .options = options,
        .option_count = (int)(sizeof options / sizeof options[0]),
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals positionals;
    bool is_help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    if ((text == NULL) == (tokens == NULL)) {
        return tern_fail(TERN_ERR_USAGE,
                         "tern eval: expected exactly one of --text FILE and --tokens PREFIX");
    }
    TERN_RETURN_IF_ERR(tern_model_fetch(&positionals));
    return run(positionals.items[0], text, tokens, context, (enum tern_placed_mode)mode);
}
