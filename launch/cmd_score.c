/* cmd_score.c - tern score: JSON lines, one a position of the prompt; what parity tests read. */
#include "io/json.h"
#include "launch/commands.h"
#include "launch/model_options.h"
#include "runtime/base/mem.h"
#include "runtime/generate/generate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scorer {
    const struct tern_loaded *loaded;
    const int32_t *ids;
    int64_t top;
    double logprob; /* of the token at this position given those before; NaN for the first */
    int32_t *order; /* (top) */
    struct tern_text line;
    int64_t count;
};

static tern_status add_token(struct scorer *s, int32_t id)
{
    size_t bytes = 0;
    const struct tern_tokenizer *tokenizer = s->loaded->tokenizer;
    const char *piece = tokenizer != NULL ? tern_tokenizer_piece(tokenizer, id, &bytes) : NULL;
    return tern_json_quote(&s->line, piece != NULL ? piece : "", piece != NULL ? bytes : 0);
}

/* As JSON: what it has no word for is null. */
static tern_status add_number(struct scorer *s, double value)
{
    return isfinite(value) ? tern_text_printf(&s->line, "%.9g", value)
                           : tern_text_printf(&s->line, "null");
}

/* The `top` most likely ids, best first, by insertion: top is small. */
static int64_t rank_best(struct scorer *s, const float *logits)
{
    int64_t count = 0;
    for (int64_t id = 0; id < s->loaded->model.config.vocab_size; id++) {
        int64_t at = count;
        while (at > 0 && logits[s->order[at - 1]] < logits[id]) {
            at--;
        }
        if (at >= s->top) {
            continue;
        }
        int64_t last = count < s->top ? count++ : s->top - 1;
        memmove(&s->order[at + 1], &s->order[at], (size_t)(last - at) * sizeof *s->order);
        s->order[at] = (int32_t)id;
    }
    return count;
}

static tern_status score_row(void *context, int64_t position, const float *logits)
{
    struct scorer *s = context;
    double total = tern_log_sum_exp(logits, s->loaded->model.config.vocab_size);
    s->line.length = 0;
    TERN_RETURN_IF_ERR(tern_text_printf(&s->line, "{\"position\":%lld,\"id\":%d,\"token\":",
                                        (long long)position, s->ids[position]));
    TERN_RETURN_IF_ERR(add_token(s, s->ids[position]));
    TERN_RETURN_IF_ERR(tern_text_printf(&s->line, ",\"logprob\":"));
    TERN_RETURN_IF_ERR(add_number(s, s->logprob));
    TERN_RETURN_IF_ERR(tern_text_printf(&s->line, ",\"top\":["));
    int64_t best = rank_best(s, logits);
    for (int64_t i = 0; i < best; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(&s->line, "%s[%d,", i > 0 ? "," : "", s->order[i]));
        TERN_RETURN_IF_ERR(add_token(s, s->order[i]));
        TERN_RETURN_IF_ERR(tern_text_printf(&s->line, ","));
        TERN_RETURN_IF_ERR(add_number(s, logits[s->order[i]] - total));
        TERN_RETURN_IF_ERR(tern_text_printf(&s->line, "]"));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(&s->line, "]}\n"));
    fwrite(s->line.data, 1, s->line.length, stdout); /* main looks whether all of it arrived */
    s->logprob = position + 1 < s->count ? logits[s->ids[position + 1]] - total : NAN;
    return TERN_OK;
}

/* "1 2 3" to ids of the model's vocabulary; tern_alloc'd. */
static tern_status parse_ids(const struct tern_loaded *loaded,
                             const char *text,
                             int32_t **ids_out,
                             int64_t *count_out)
{
    int64_t vocab = loaded->model.config.vocab_size;
    int32_t *ids = tern_alloc("score", (strlen(text) / 2 + 1) * sizeof *ids);
    int64_t count = 0;
    if (ids == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the ids of a text");
    }
    for (const char *at = text + strspn(text, " "); *at != '\0'; at += strspn(at, " ")) {
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || (*end != ' ' && *end != '\0') || errno != 0 || id < 0 || id >= vocab) {
            tern_free(ids);
            return tern_fail(TERN_ERR_USAGE,
                             "--ids: found '%.20s' at %lld, expected whole numbers below %lld, "
                             "blanks between them",
                             at, (long long)(at - text), (long long)vocab);
        }
        ids[count++] = (int32_t)id;
        at = end;
    }
    *ids_out = ids;
    *count_out = count;
    return TERN_OK;
}

static tern_status run(const char *model,
                       const char *prompt,
                       const char *numbers,
                       int64_t top,
                       enum tern_placed_mode mode)
{
    struct tern_loaded loaded;
    int32_t *ids = NULL;
    TERN_RETURN_IF_ERR(tern_loaded_open(model, TERN_LOADED_AUTO, mode, &loaded));
    struct scorer s = {.loaded = &loaded, .top = top, .logprob = NAN};
    tern_text_init(&s.line);
    s.order = tern_alloc("score", (size_t)(top + 1) * sizeof *s.order);
    tern_status status = TERN_OK;
    if (s.order == NULL) {
        status =
            tern_fail(TERN_ERR_MEMORY, "cannot allocate a list of %lld tokens", (long long)top);
        goto out;
    }
    TERN_GOTO_IF_ERR(status,
                     numbers != NULL ? parse_ids(&loaded, numbers, &ids, &s.count)
                                     : tern_loaded_encode(&loaded, prompt, strlen(prompt),
                                                          TERN_TEXT_PROMPT, &ids, &s.count),
                     out);
    s.ids = ids;
    status = tern_score(&loaded, ids, s.count, score_row, &s);
out:
    tern_free(ids);
    tern_free(s.order);
    tern_text_fini(&s.line);
    tern_loaded_close(&loaded);
    return status;
}

tern_status tern_command_score(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    const char *prompt = NULL;
    const char *ids = NULL;
    int64_t top = 5;
    int mode = TERN_PLACED_STORED;
    const struct tern_option options[] = {
        {.name = "prompt",
         .kind = TERN_OPTION_STRING,
         .target = &prompt,
         .value_name = "TEXT",
         .help = "the text to score"},
        {.name = "ids",
         .kind = TERN_OPTION_STRING,
         .target = &ids,
         .value_name = "IDS",
         .help = "token ids to score instead of a text, blanks between them"},
        {.name = "top",
         .kind = TERN_OPTION_I64,
         .target = &top,
         .value_name = "N",
         .min = 0,
         .max = 1000,
         .help = "how many of the most likely next tokens to list (default: 5)"},
        tern_option_weights(&mode),
    };
    const struct tern_command_spec spec = {
        .name = "score",
        .usage = "MODEL (--prompt TEXT | --ids IDS) [options]",
        .summary = "Natural log-probability of each token of a text, and the most likely next "
                   "ones, as JSON lines.",
        .example = "tern score runs/a --prompt \"In the beginning\" --top 3",
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
    if ((prompt == NULL) == (ids == NULL)) {
        return tern_fail(TERN_ERR_USAGE,
                         "tern score: expected exactly one of --prompt TEXT and --ids IDS");
    }
    TERN_RETURN_IF_ERR(tern_model_fetch(&positionals));
    return run(positionals.items[0], prompt, ids, top, (enum tern_placed_mode)mode);
}
