/* cmd_data.c - "tern data prepare|info": token shards made and looked at. */
#include "io/tokenizer.h"
#include "io/tokens_file.h"
#include "io/tokens_prepare.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"
#include "runtime/chat/prepare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

/* ---- prepare ---- */

static void report(const struct tern_prepared *prepared, double seconds)
{
    char bytes[TERN_TEXT_BYTES_BYTES], speed[TERN_TEXT_BYTES_BYTES];
    int64_t tokens = 0;
    for (int i = 0; i < prepared->part_count; i++) {
        const struct tern_shard_part *part = &prepared->parts[i];
        char count[TERN_TEXT_BYTES_BYTES], documents[TERN_TEXT_BYTES_BYTES];
        tern_log_info("%s.bin: %s tokens in %s documents", part->prefix,
                      tern_text_commas(part->tokens, count),
                      tern_text_commas(part->documents, documents));
        tokens += part->tokens;
    }
    tern_log_info("%s of text in %.2f s (%s/s), %.2f bytes a token",
                  tern_text_bytes(prepared->text_bytes, bytes), seconds,
                  tern_text_bytes(
                      (int64_t)((double)prepared->text_bytes / (seconds > 0 ? seconds : 1)), speed),
                  (double)prepared->text_bytes / (double)tokens);
    if (prepared->empty_documents > 0) {
        tern_log_warn("%s empty documents left out",
                      tern_text_commas(prepared->empty_documents, bytes));
    }
}

enum {
    FORMAT_CHAT = TERN_TEXT_JSONL + 1
};

/* Conversations: PREFIX.loss too, which says what is to be learned. */
static tern_status prepare_chat(const struct tern_positionals *texts,
                                const char *tokenizer_path,
                                const char *template_path,
                                const struct tern_tokenizer *tokenizer,
                                const struct tern_prepare *settings)
{
    struct tern_template *template;
    if (settings->plain_specials) {
        return tern_fail(TERN_ERR_USAGE,
                         "data prepare: found --specials-as-text and --format chat; "
                         "expected one of them");
    }
    TERN_RETURN_IF_ERR(tern_template_open(tokenizer_path, template_path, &template));
    struct tern_chat_prepare prepare = {.paths = texts->items,
                                        .path_count = texts->count,
                                        .template = template,
                                        .tokenizer = tokenizer,
                                        .out_prefix = settings->out_prefix,
                                        .val_fraction = settings->val_fraction};
    struct tern_chat_prepared prepared;
    tern_status status = tern_chat_prepare(&prepare, &prepared);
    for (int i = 0; i < prepared.part_count && status == TERN_OK; i++) {
        char count[TERN_TEXT_BYTES_BYTES], documents[TERN_TEXT_BYTES_BYTES];
        tern_log_info("%s.bin: %s tokens in %s conversations", prepared.parts[i].prefix,
                      tern_text_commas(prepared.parts[i].tokens, count),
                      tern_text_commas(prepared.parts[i].documents, documents));
    }
    if (status == TERN_OK) {
        char learned[TERN_TEXT_BYTES_BYTES];
        tern_log_info("%s tokens to learn: what the assistant says",
                      tern_text_commas(prepared.learned, learned));
    }
    tern_template_close(template);
    return status;
}

static tern_status run_prepare(int argc, char **argv)
{
    static const char *const formats[] = {"auto", "text", "lines", "jsonl", "chat", NULL};
    const char *tokenizer_path = NULL;
    const char *template = NULL;
    int format = TERN_TEXT_BY_NAME;
    struct tern_prepare prepare = {0};
    const struct tern_option options[] = {
        {"tokenizer", TERN_OPTION_STRING, &tokenizer_path, "FILE",
         "a tokenizer.json, a folder with one, or a GGUF file (required)", 0, 0, NULL},
        {"out", TERN_OPTION_STRING, &prepare.out_prefix, "PREFIX",
         "writes PREFIX.bin and PREFIX.idx (Megatron's format) (required)", 0, 0, NULL},
        {"val-fraction", TERN_OPTION_F64, &prepare.val_fraction, "X",
         "the last documents, this part of the tokens, go to PREFIX_val, the others to "
         "PREFIX_train; a single document "
         "is cut (default 0: no split)",
         0, 0.999999, NULL},
        {"format", TERN_OPTION_CHOICE, &format, "F",
         "text: a file is a document; lines: a line is; jsonl: each object's \"text\" is; chat: "
         "each "
         "object's \"messages\" are, for data.format: chat; auto: by name (default auto)",
         0, 0, formats},
        {"template", TERN_OPTION_STRING, &template, "F.jinja",
         "chat: a template to take in place of the tokenizer's", 0, 0, NULL},
        {"specials-as-text", TERN_OPTION_FLAG, &prepare.plain_specials, NULL,
         "special tokens in the text are ordinary text (default: they become their ids, and "
         "<|endoftext|> ends a document)",
         0, 0, NULL},
    };
    const struct tern_command_spec spec = {
        .name = "data prepare",
        .usage = "--tokenizer FILE --out PREFIX [options] TEXT|JSONL|-...",
        .summary = "Turns text files, JSON lines or standard input (\"-\") into token shards, an "
                   "end-of-document token after "
                   "each document.",
        .example = "tern data prepare --tokenizer tokenizer.json --out tokens --val-fraction 0.02 "
                   "book.txt",
        .options = options,
        .option_count = COUNT(options),
        .positional_min = 1,
        .positional_max = TERN_POSITIONALS_MAX,
    };
    struct tern_positionals texts;
    bool help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &texts, &help));
    if (help) {
        return TERN_OK;
    }
    if (tokenizer_path == NULL || prepare.out_prefix == NULL) {
        return tern_fail(TERN_ERR_USAGE,
                         "data prepare: --%s is missing; expected --tokenizer FILE --out PREFIX",
                         tokenizer_path == NULL ? "tokenizer" : "out");
    }
    struct tern_tokenizer *tokenizer;
    TERN_RETURN_IF_ERR(tern_tokenizer_open(tokenizer_path, &tokenizer));
    if (format == FORMAT_CHAT) {
        tern_status chat = prepare_chat(&texts, tokenizer_path, template, tokenizer, &prepare);
        tern_tokenizer_close(tokenizer);
        return chat;
    }
    prepare.paths = texts.items;
    prepare.path_count = texts.count;
    prepare.tokenizer = tokenizer;
    prepare.format = (enum tern_text_format)format;
    double start = tern_clock_seconds();
    struct tern_prepared *prepared = tern_alloc_zero("prepared data", 1, sizeof *prepared);
    tern_status status = TERN_OK;
    if (prepared == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate the result of data prepare");
    } else {
        status = tern_tokens_prepare(&prepare, prepared);
    }
    if (status == TERN_OK) {
        report(prepared, tern_clock_seconds() - start);
    }
    tern_free(prepared);
    tern_tokenizer_close(tokenizer);
    return status;
}

/* ---- info ---- */

static tern_status print_first(const struct tern_shard *shard,
                               const struct tern_tokenizer *tokenizer,
                               int64_t count,
                               struct tern_text *out)
{
    count = count < shard->tokens ? count : shard->tokens;
    TERN_RETURN_IF_ERR(tern_text_printf(out, "first      "));
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, " %" PRId64, tern_shard_token(shard, i)));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\n"));
    if (tokenizer == NULL) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "text        "));
    for (int64_t i = 0; i < count; i++) {
        int64_t id = tern_shard_token(shard, i);
        size_t bytes = 0;
        const char *piece = id <= INT32_MAX && id >= 0
                                ? tern_tokenizer_piece(tokenizer, (int32_t)id, &bytes)
                                : NULL;
        if (piece == NULL) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: token %" PRId64 ": found id %" PRId64 "; expected 0 to %" PRId64
                             " (another tokenizer's file?)",
                             shard->path, i, id, tern_tokenizer_vocab_size(tokenizer) - 1);
        }
        TERN_RETURN_IF_ERR(tern_text_append(out, piece, bytes));
    }
    return tern_text_printf(out, "\n");
}

static tern_status print_shard(const struct tern_shard *shard, struct tern_text *out)
{
    char number[TERN_TEXT_BYTES_BYTES], other[TERN_TEXT_BYTES_BYTES];
    TERN_RETURN_IF_ERR(tern_text_printf(out, "file        %s (%s)\n", shard->path, shard->format));
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "tokens      %s\n", tern_text_commas(shard->tokens, number)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "dtype       %s (%s)\n", shard->dtype,
                                        tern_text_bytes((int64_t)shard->map.bytes, number)));
    if (shard->documents >= 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "documents   %s in %s sequences\n",
                                            tern_text_commas(shard->documents, number),
                                            tern_text_commas(shard->sequences, other)));
    }
    int64_t largest = 0;
    for (int64_t i = 0; i < shard->tokens; i++) {
        int64_t id = tern_shard_token(shard, i);
        largest = id > largest ? id : largest;
    }
    return tern_text_printf(out, "largest id  %" PRId64 "\n", largest);
}

static tern_status run_info(int argc, char **argv)
{
    const char *tokenizer_path = NULL;
    int64_t first = 16;
    const struct tern_option options[] = {
        {"tokenizer", TERN_OPTION_STRING, &tokenizer_path, "FILE",
         "also print the first tokens as text", 0, 0, NULL},
        {"first", TERN_OPTION_I64, &first, "N",
         "how many of the first tokens to print (default 16)", 1, 1e6, NULL},
    };
    const struct tern_command_spec spec = {
        .name = "data info",
        .usage = "PREFIX [options]",
        .summary = "Checks a token shard (Megatron pair or llm.c file) and prints what it holds.",
        .example = "tern data info tokens_train",
        .options = options,
        .option_count = COUNT(options),
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals paths;
    bool help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &paths, &help));
    if (help) {
        return TERN_OK;
    }
    struct tern_tokenizer *tokenizer = NULL;
    struct tern_text out;
    tern_text_init(&out);
    struct tern_shard *shard = tern_alloc_zero("shard", 1, sizeof *shard);
    tern_status status =
        shard != NULL ? TERN_OK
                      : tern_fail(TERN_ERR_MEMORY, "cannot allocate the description of a shard");
    if (status == TERN_OK && tokenizer_path != NULL) {
        status = tern_tokenizer_open(tokenizer_path, &tokenizer);
    }
    TERN_GOTO_IF_ERR(status, status, free_all);
    TERN_GOTO_IF_ERR(status, tern_shard_open(paths.items[0], true, shard), free_all);
    TERN_GOTO_IF_ERR(status, print_shard(shard, &out), close_shard);
    TERN_GOTO_IF_ERR(status, print_first(shard, tokenizer, first, &out), close_shard);
    fwrite(out.data, 1, out.length, stdout);
    if (fflush(stdout) != 0) {
        status = tern_fail(TERN_ERR_IO, "cannot write to standard output");
    }
close_shard:
    tern_shard_close(shard);
free_all:
    tern_free(shard);
    tern_text_fini(&out);
    tern_tokenizer_close(tokenizer);
    return status;
}

tern_status tern_command_data(int argc, char **argv, int *exit_code)
{
    static const char *const names[] = {"prepare", "info"};
    (void)exit_code;
    const char *word = argc > 0 ? argv[0] : "";
    if (strcmp(word, "prepare") == 0) {
        return run_prepare(argc - 1, argv + 1);
    }
    if (strcmp(word, "info") == 0) {
        return run_info(argc - 1, argv + 1);
    }
    if (strcmp(word, "--help") == 0) {
        printf("usage: tern data prepare|info ...\n\n"
               "  prepare   text to token shards\n"
               "  info      check a shard and print what it holds\n\n"
               "\"tern data WORD --help\" says more.\n"
               "example: tern data prepare --tokenizer tokenizer.json --out tokens book.txt\n");
        return TERN_OK;
    }
    if (argc == 0) {
        return tern_fail(TERN_ERR_USAGE, "data: found no word; expected prepare or info");
    }
    return tern_fail(TERN_ERR_USAGE,
                     "data: found '%.64s'; expected prepare or info; nearest is '%s'", word,
                     tern_text_nearest(word, names, 2));
}
