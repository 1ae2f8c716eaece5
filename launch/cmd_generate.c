/* cmd_generate.c - tern generate: text from a prompt, streamed to stdout. */
#include "io/file.h"
#include "launch/commands.h"
#include "launch/model_options.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/chat/chat.h"
#include "runtime/generate/generate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    PROMPT_BYTES_MAX = 64 << 20
};

struct settings {
    const char *prompt, *prompt_file;
    int64_t max_tokens, top_k, seed;
    double temperature, top_p, min_p;
    struct tern_option_list stops;
    const char *system;
    bool echo, chat;
    int mode; /* enum tern_placed_mode */
};

static tern_status emit(void *context, const char *text, size_t bytes)
{
    (void)context;
    if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "standard output");
    }
    return TERN_OK;
}

static tern_status check(const struct settings *s)
{
    if (s->system != NULL && !s->chat) {
        return tern_fail(TERN_ERR_USAGE, "--system: expected --chat with it");
    }
    if ((s->prompt == NULL) == (s->prompt_file == NULL)) {
        return tern_fail(
            TERN_ERR_USAGE,
            "tern generate: expected exactly one of --prompt TEXT and --prompt-file FILE");
    }
    if (s->stops.count > TERN_STOPS_MAX) {
        return tern_fail(TERN_ERR_USAGE, "--stop: given %d times, at most %d", s->stops.count,
                         TERN_STOPS_MAX);
    }
    for (int i = 0; i < s->stops.count; i++) {
        if (s->stops.items[i][0] == '\0') {
            return tern_fail(TERN_ERR_USAGE,
                             "--stop: found an empty text, expected at least one character");
        }
    }
    return TERN_OK;
}

/* The prompt through the model's chat template, and what ends the answer. */
static tern_status apply_template(const char *model,
                                  const struct settings *s,
                                  const struct tern_loaded *loaded,
                                  struct tern_text *text,
                                  struct tern_generate_request *request)
{
    struct tern_template *template;
    if (loaded->tokenizer == NULL) {
        return tern_fail(TERN_ERR_INPUT, "%s: --chat needs the model's tokenizer", model);
    }
    TERN_RETURN_IF_ERR(tern_template_open(model, NULL, &template));
    tern_status status =
        tern_chat_prompt(template, s->system, request->prompt, request->prompt_bytes, text);
    if (status == TERN_OK) {
        status = tern_chat_end(template, loaded->tokenizer, &request->end_id);
    }
    tern_template_close(template);
    request->prompt = text->data;
    request->prompt_bytes = text->length;
    request->is_rendered = true;
    return status;
}

static tern_status run(const char *model, const struct settings *s)
{
    struct tern_loaded loaded;
    struct tern_text chat;
    char *text = NULL;
    size_t bytes = s->prompt != NULL ? strlen(s->prompt) : 0;
    if (s->prompt_file != NULL) {
        TERN_RETURN_IF_ERR(tern_file_read(s->prompt_file, PROMPT_BYTES_MAX, &text, &bytes));
    }
    tern_text_init(&chat);
    tern_status status;
    struct tern_generate_result result;
    TERN_GOTO_IF_ERR(
        status, tern_loaded_open(model, TERN_LOADED_AUTO, (enum tern_placed_mode)s->mode, &loaded),
        out);
    struct tern_generate_request request = {
        .prompt = text != NULL ? text : s->prompt,
        .prompt_bytes = bytes,
        .end_id = -1,
        .max_tokens = s->max_tokens,
        .sampling = {.temperature = s->temperature,
                     .top_k = s->top_k,
                     .top_p = s->top_p,
                     .min_p = s->min_p,
                     .seed = (uint64_t)s->seed},
        .stops = s->stops.items,
        .stop_count = s->stops.count,
        .emit = emit,
    };
    if (s->chat) {
        TERN_GOTO_IF_ERR(status, apply_template(model, s, &loaded, &chat, &request), close);
    }
    if (s->echo) {
        TERN_GOTO_IF_ERR(status, emit(NULL, request.prompt, request.prompt_bytes), close);
    }
    TERN_GOTO_IF_ERR(status, tern_generate(&loaded, &request, &result), close);
    TERN_GOTO_IF_ERR(status, emit(NULL, "\n", 1), close);
    tern_log_info("%lld prompt tokens in %.3f s, %lld tokens in %.3f s (%.1f tok/s), ended by %s",
                  (long long)result.prompt_tokens, result.prefill_seconds, (long long)result.tokens,
                  result.decode_seconds, (double)result.tokens / (result.decode_seconds + 1e-9),
                  result.finish_reason);
close:
    tern_loaded_close(&loaded);
out:
    tern_text_fini(&chat);
    tern_free(text);
    return status;
}

tern_status tern_command_generate(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    struct settings s = {
        .max_tokens = 256, .temperature = 0.8, .top_p = 0.95, .mode = TERN_PLACED_AUTO};
    const struct tern_option options[] = {
        {.name = "prompt",
         .kind = TERN_OPTION_STRING,
         .target = &s.prompt,
         .value_name = "TEXT",
         .help = "text to go on from"},
        {.name = "prompt-file",
         .kind = TERN_OPTION_STRING,
         .target = &s.prompt_file,
         .value_name = "FILE",
         .help = "the same, from a file"},
        {.name = "max-tokens",
         .kind = TERN_OPTION_I64,
         .target = &s.max_tokens,
         .value_name = "N",
         .min = 1,
         .max = 1e9,
         .help = "most tokens to make (default: 256)"},
        {.name = "temperature",
         .kind = TERN_OPTION_F64,
         .target = &s.temperature,
         .value_name = "X",
         .min = 0,
         .max = 100,
         .help = "0: always the most likely token (default: 0.8)"},
        {.name = "top-k",
         .kind = TERN_OPTION_I64,
         .target = &s.top_k,
         .value_name = "N",
         .min = 0,
         .max = 1e9,
         .help = "draw from the N most likely; 0: all (default: 0)"},
        {.name = "top-p",
         .kind = TERN_OPTION_F64,
         .target = &s.top_p,
         .value_name = "X",
         .min = 0,
         .max = 1,
         .help = "draw from the most likely that sum to X; 1: all (default: 0.95)"},
        {.name = "min-p",
         .kind = TERN_OPTION_F64,
         .target = &s.min_p,
         .value_name = "X",
         .min = 0,
         .max = 1,
         .help = "drop tokens less than X times as likely as the best (default: 0)"},
        {.name = "seed",
         .kind = TERN_OPTION_I64,
         .target = &s.seed,
         .value_name = "N",
         .min = 0,
         .max = 9e18,
         .help = "the same seed gives the same text (default: 0)"},
        {.name = "stop",
         .kind = TERN_OPTION_LIST,
         .target = &s.stops,
         .value_name = "TEXT",
         .help = "end before this text; may be repeated"},
        {.name = "echo",
         .kind = TERN_OPTION_FLAG,
         .target = &s.echo,
         .help = "print the prompt first"},
        {.name = "chat",
         .kind = TERN_OPTION_FLAG,
         .target = &s.chat,
         .help = "the prompt is a question to a chat model, put by the model's chat template"},
        {.name = "system",
         .kind = TERN_OPTION_STRING,
         .target = &s.system,
         .value_name = "TEXT",
         .help = "with --chat: what the system says first (default: nothing)"},
        tern_option_weights(&s.mode),
    };
    const struct tern_command_spec spec = {
        .name = "generate",
        .usage = "MODEL (--prompt TEXT | --prompt-file FILE) [options]",
        .summary = "Write text. MODEL is a run directory, one of its checkpoints, a Hugging "
                   "Face folder or a GGUF file.",
        .example = "tern generate runs/a --prompt \"In the beginning\" --max-tokens 100",
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
    TERN_RETURN_IF_ERR(check(&s));
    TERN_RETURN_IF_ERR(tern_model_fetch(&positionals));
    return run(positionals.items[0], &s);
}
