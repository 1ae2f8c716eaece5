/* cmd_tokenizer.c - "tern tokenizer train|encode|decode|info|template". */
#include "io/file.h"
#include "io/progress.h"
#include "io/text_stream.h"
#include "io/tokenizer.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "launch/tokenizer_template.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char default_special[] = "<|endoftext|>";

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

/* ---- standard output ---- */

/* Writes and empties the text. */
static tern_status flush_output(struct tern_text *out)
{
    for (size_t done = 0; done < out->length;) {
        ssize_t step = write(STDOUT_FILENO, out->data + done, out->length - done);
        if (step < 0 && errno == EINTR) {
            continue;
        }
        if (step <= 0) {
            return tern_fail_errno(TERN_ERR_IO, errno, "cannot write to standard output");
        }
        done += (size_t)step;
    }
    out->length = 0;
    return TERN_OK;
}

enum {
    OUTPUT_BYTES = 1 << 18
};

static tern_status flush_if_long(struct tern_text *out)
{
    return out->length >= OUTPUT_BYTES ? flush_output(out) : TERN_OK;
}

/* "12 345 6": a blank before all but the first of a line. */
static tern_status append_ids(struct tern_text *out,
                              const int32_t *ids,
                              int64_t count,
                              bool *is_first)
{
    for (int64_t i = 0; i < count; i++) {
        char digits[12];
        size_t at = sizeof digits;
        for (uint32_t value = (uint32_t)ids[i]; at == sizeof digits || value > 0; value /= 10) {
            digits[--at] = (char)('0' + value % 10);
        }
        if (!*is_first) {
            digits[--at] = ' ';
        }
        *is_first = false;
        TERN_RETURN_IF_ERR(tern_text_append(out, digits + at, sizeof digits - at));
    }
    return TERN_OK;
}

/* ---- train ---- */

static tern_status run_train(int argc, char **argv)
{
    int64_t vocab_size = 0;
    const char *out_path = NULL;
    struct tern_option_list specials = {0};
    bool no_special = false;
    const struct tern_option options[] = {
        {"vocab-size", TERN_OPTION_I64, &vocab_size, "N",
         "tokens in all: special tokens, 256 bytes, merges (required)", 257, 16777216, NULL},
        {"special", TERN_OPTION_LIST, &specials, "TOKEN",
         "a special token, ids from 0; may be repeated (default <|endoftext|>)", 0, 0, NULL},
        {"no-special", TERN_OPTION_FLAG, &no_special, NULL, "no special token at all (default off)",
         0, 0, NULL},
        {"out", TERN_OPTION_STRING, &out_path, "FILE", "the tokenizer.json to write (required)", 0,
         0, NULL},
    };
    const struct tern_command_spec spec = {
        .name = "tokenizer train",
        .usage = "--vocab-size N --out tokenizer.json [options] TEXT...",
        .summary = "Learns a byte-level BPE vocabulary from text files (\"-\": standard input).",
        .example = "tern tokenizer train --vocab-size 4096 --out tokenizer.json book.txt",
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
    if (vocab_size == 0 || out_path == NULL) {
        return tern_fail(TERN_ERR_USAGE,
                         "tokenizer train: --%s is missing; expected --vocab-size N --out FILE",
                         vocab_size == 0 ? "vocab-size" : "out");
    }
    if (no_special && specials.count > 0) {
        return tern_fail(TERN_ERR_USAGE,
                         "tokenizer train: found --no-special and --special; expected one of them");
    }
    if (!no_special && specials.count == 0) {
        specials.items[specials.count++] = default_special;
    }
    double start = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_tokenizer_train(texts.items, texts.count, vocab_size, specials.items,
                                            specials.count, out_path));
    struct tern_tokenizer *tokenizer;
    TERN_RETURN_IF_ERR(tern_tokenizer_open(out_path, &tokenizer));
    char tokens[TERN_TEXT_BYTES_BYTES], merges[TERN_TEXT_BYTES_BYTES];
    tern_log_info("%s: %s tokens, %s merges, %.2f s", out_path,
                  tern_text_commas(tern_tokenizer_vocab_size(tokenizer), tokens),
                  tern_text_commas(tern_tokenizer_merge_count(tokenizer), merges),
                  tern_clock_seconds() - start);
    tern_tokenizer_close(tokenizer);
    return TERN_OK;
}

/* ---- encode ---- */

struct encode_job {
    const struct tern_tokenizer *tokenizer;
    struct tern_encoder *encoder;
    struct tern_ids ids;
    struct tern_text out;
    bool plain_specials, add_special;
};

static tern_status append_frame(struct encode_job *job, bool is_start, bool *is_first)
{
    int count = 0;
    const int32_t *ids = is_start ? tern_tokenizer_prefix(job->tokenizer, &count)
                                  : tern_tokenizer_suffix(job->tokenizer, &count);
    return job->add_special ? append_ids(&job->out, ids, count, is_first) : TERN_OK;
}

static tern_status encode_stretch(struct encode_job *job,
                                  const char *text,
                                  size_t bytes,
                                  bool *is_first)
{
    job->ids.count = 0;
    TERN_RETURN_IF_ERR(
        tern_encoder_append(job->encoder, text, bytes, !job->plain_specials, &job->ids));
    TERN_RETURN_IF_ERR(append_ids(&job->out, job->ids.data, job->ids.count, is_first));
    return flush_if_long(&job->out);
}

static tern_status end_line(struct encode_job *job, bool *is_first)
{
    TERN_RETURN_IF_ERR(append_frame(job, false, is_first));
    return tern_text_append(&job->out, "\n", 1);
}

static tern_status encode_string(struct encode_job *job, const char *text, size_t bytes)
{
    bool is_first = true;
    TERN_RETURN_IF_ERR(append_frame(job, true, &is_first));
    TERN_RETURN_IF_ERR(encode_stretch(job, text, bytes, &is_first));
    return end_line(job, &is_first);
}

static tern_status encode_whole(struct encode_job *job, struct tern_text_stream *stream)
{
    struct tern_progress progress;
    tern_progress_start(&progress, "encode", stream->total_bytes, true);
    bool is_first = true;
    TERN_RETURN_IF_ERR(append_frame(job, true, &is_first));
    for (;;) {
        const char *data;
        size_t bytes;
        TERN_RETURN_IF_ERR(tern_text_stream_block(stream, job->tokenizer, &data, &bytes));
        if (bytes == 0) {
            return end_line(job, &is_first);
        }
        if (stream->offset > 0) {
            tern_encoder_continue(job->encoder);
        }
        TERN_RETURN_IF_ERR(encode_stretch(job, data, bytes, &is_first));
        tern_progress_update(&progress, stream->offset);
    }
}

static tern_status encode_records(struct encode_job *job,
                                  struct tern_text_stream *stream,
                                  char delimiter)
{
    struct tern_progress progress;
    tern_progress_start(&progress, "encode", stream->total_bytes, true);
    for (;;) {
        const char *data;
        size_t bytes;
        bool is_end;
        TERN_RETURN_IF_ERR(tern_text_stream_record(stream, delimiter, &data, &bytes, &is_end));
        if (is_end) {
            return TERN_OK;
        }
        TERN_RETURN_IF_ERR(encode_string(job, data, bytes));
        tern_progress_update(&progress, stream->offset);
    }
}

static tern_status encode_input(struct encode_job *job,
                                const char *text,
                                const char *file,
                                bool lines,
                                bool nulls)
{
    if (text != NULL) {
        return encode_string(job, text, strlen(text));
    }
    struct tern_text_stream stream;
    tern_status status = tern_text_stream_open(file != NULL ? file : "-", &stream);
    if (status == TERN_OK) {
        status = lines || nulls ? encode_records(job, &stream, nulls ? '\0' : '\n')
                                : encode_whole(job, &stream);
    }
    tern_text_stream_close(&stream);
    return status;
}

static tern_status check_input(const char *command,
                               const char *tokenizer,
                               const char *text,
                               const char *file)
{
    if (tokenizer == NULL) {
        return tern_fail(TERN_ERR_USAGE,
                         "%s: --tokenizer is missing; expected a tokenizer.json, a model's folder "
                         "or a GGUF file",
                         command);
    }
    if (text != NULL && file != NULL) {
        return tern_fail(TERN_ERR_USAGE,
                         "%s: found --text and --file; expected one of them, or standard input",
                         command);
    }
    return TERN_OK;
}

static tern_status run_encode(int argc, char **argv)
{
    const char *path = NULL;
    const char *text = NULL;
    const char *file = NULL;
    bool lines = false;
    bool nulls = false;
    struct encode_job job = {0};
    const struct tern_option options[] = {
        {"tokenizer", TERN_OPTION_STRING, &path, "FILE",
         "a tokenizer.json, a folder with one, or a GGUF file (required)", 0, 0, NULL},
        {"text", TERN_OPTION_STRING, &text, "S", "the text itself", 0, 0, NULL},
        {"file", TERN_OPTION_STRING, &file, "F", "a file to read (default: standard input)", 0, 0,
         NULL},
        {"lines", TERN_OPTION_FLAG, &lines, NULL,
         "each line is a text of its own, without its newline", 0, 0, NULL},
        {"null", TERN_OPTION_FLAG, &nulls, NULL, "texts end with a NUL byte instead", 0, 0, NULL},
        {"add-special", TERN_OPTION_FLAG, &job.add_special, NULL,
         "add what the tokenizer puts around a text (BOS, EOS)", 0, 0, NULL},
        {"specials-as-text", TERN_OPTION_FLAG, &job.plain_specials, NULL,
         "special tokens in the text are ordinary text (default: they become their ids)", 0, 0,
         NULL},
    };
    const struct tern_command_spec spec = {
        .name = "tokenizer encode",
        .usage = "--tokenizer FILE [--text S | --file F] [options]",
        .summary = "Prints the ids of a text on one line, separated by blanks; of each record with "
                   "--lines or --null.",
        .example = "tern tokenizer encode --tokenizer tokenizer.json --text 'In the beginning'",
        .options = options,
        .option_count = COUNT(options),
    };
    struct tern_positionals none;
    bool help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &none, &help));
    if (help) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(check_input(spec.name, path, text, file));
    struct tern_tokenizer *tokenizer;
    TERN_RETURN_IF_ERR(tern_tokenizer_open(path, &tokenizer));
    job.tokenizer = tokenizer;
    tern_text_init(&job.out);
    tern_status status = tern_encoder_create(tokenizer, &job.encoder);
    if (status == TERN_OK) {
        status = encode_input(&job, text, file, lines, nulls);
    }
    if (status == TERN_OK) {
        status = flush_output(&job.out);
    }
    tern_text_fini(&job.out);
    tern_free(job.ids.data);
    tern_encoder_destroy(job.encoder);
    tern_tokenizer_close(tokenizer);
    return status;
}

/* ---- decode ---- */

struct decode_job {
    struct tern_decoder decoder;
    struct tern_text out;
};

/* All ids of a line; they are separated by white space or commas. */
static tern_status decode_line(struct decode_job *job, const char *line, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        if (strchr(" \t\r\n\v\f,", line[at]) != NULL) {
            at++;
            continue;
        }
        int64_t id = 0;
        size_t start = at;
        while (at < bytes && line[at] >= '0' && line[at] <= '9' && id <= INT32_MAX) {
            id = id * 10 + (line[at++] - '0');
        }
        if (at == start || id > INT32_MAX) {
            size_t shown = bytes - start < 20 ? bytes - start : 20;
            return tern_fail(TERN_ERR_INPUT,
                             "id at position %" PRId64
                             ": found '%.*s'; expected a number from 0 to %" PRId64,
                             job->decoder.position, (int)shown, line + start,
                             tern_tokenizer_vocab_size(job->decoder.tokenizer) - 1);
        }
        TERN_RETURN_IF_ERR(tern_decoder_push(&job->decoder, (int32_t)id, &job->out));
        TERN_RETURN_IF_ERR(flush_if_long(&job->out));
    }
    return TERN_OK;
}

/* The next line is a text of its own. */
static void begin_text(struct decode_job *job)
{
    int64_t position = job->decoder.position;
    tern_decoder_init(&job->decoder, job->decoder.tokenizer, job->decoder.skip_special);
    job->decoder.position = position;
}

static tern_status decode_file(struct decode_job *job, const char *file, bool lines, bool nulls)
{
    struct tern_text_stream stream;
    tern_status status = tern_text_stream_open(file, &stream);
    while (status == TERN_OK) {
        const char *data;
        size_t bytes;
        bool is_end;
        TERN_GOTO_IF_ERR(status, tern_text_stream_record(&stream, '\n', &data, &bytes, &is_end),
                         close_stream);
        if (is_end) {
            break;
        }
        TERN_GOTO_IF_ERR(status, decode_line(job, data, bytes), close_stream);
        if (lines || nulls) {
            TERN_GOTO_IF_ERR(status, tern_text_append(&job->out, nulls ? "\0" : "\n", 1),
                             close_stream);
            begin_text(job);
        }
    }
close_stream:
    tern_text_stream_close(&stream);
    return status;
}

static tern_status run_decode(int argc, char **argv)
{
    const char *path = NULL;
    const char *text = NULL;
    const char *file = NULL;
    bool lines = false;
    bool nulls = false;
    bool skip_special = false;
    struct decode_job job = {0};
    const struct tern_option options[] = {
        {"tokenizer", TERN_OPTION_STRING, &path, "FILE",
         "a tokenizer.json, a folder with one, or a GGUF file (required)", 0, 0, NULL},
        {"text", TERN_OPTION_STRING, &text, "S", "the ids themselves", 0, 0, NULL},
        {"file", TERN_OPTION_STRING, &file, "F", "a file of ids (default: standard input)", 0, 0,
         NULL},
        {"lines", TERN_OPTION_FLAG, &lines, NULL,
         "each line of ids is a text of its own; a newline ends it", 0, 0, NULL},
        {"null", TERN_OPTION_FLAG, &nulls, NULL,
         "each line of ids is a text of its own; a NUL byte ends it", 0, 0, NULL},
        {"skip-special", TERN_OPTION_FLAG, &skip_special, NULL,
         "leave special tokens out (default off)", 0, 0, NULL},
    };
    const struct tern_command_spec spec = {
        .name = "tokenizer decode",
        .usage = "--tokenizer FILE [--text IDS | --file F] [options]",
        .summary = "Prints the text of ids, byte for byte, without a newline of its own.",
        .example = "tern tokenizer decode --tokenizer tokenizer.json --text '41 261 257'",
        .options = options,
        .option_count = COUNT(options),
    };
    struct tern_positionals none;
    bool help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &none, &help));
    if (help) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(check_input(spec.name, path, text, file));
    struct tern_tokenizer *tokenizer;
    TERN_RETURN_IF_ERR(tern_tokenizer_open(path, &tokenizer));
    tern_decoder_init(&job.decoder, tokenizer, skip_special);
    tern_text_init(&job.out);
    tern_status status = text != NULL ? decode_line(&job, text, strlen(text))
                                      : decode_file(&job, file != NULL ? file : "-", lines, nulls);
    if (status == TERN_OK) {
        status = flush_output(&job.out);
    }
    tern_text_fini(&job.out);
    tern_tokenizer_close(tokenizer);
    return status;
}

/* ---- info ---- */

static tern_status print_info(const struct tern_tokenizer *tokenizer, struct tern_text *out)
{
    char number[TERN_TEXT_BYTES_BYTES];
    int64_t vocab = tern_tokenizer_vocab_size(tokenizer);
    TERN_RETURN_IF_ERR(tern_tokenizer_describe(tokenizer, out));
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "vocabulary  %s tokens\n", tern_text_commas(vocab, number)));
    TERN_RETURN_IF_ERR(tern_text_printf(
        out, "merges      %s\n", tern_text_commas(tern_tokenizer_merge_count(tokenizer), number)));
    size_t longest = 0;
    int64_t total = 0, present = 0;
    for (int64_t id = 0; id < vocab; id++) {
        size_t bytes;
        if (tern_tokenizer_piece(tokenizer, (int32_t)id, &bytes) != NULL) {
            longest = bytes > longest ? bytes : longest;
            total += (int64_t)bytes;
            present++;
        }
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "ids in use  %s, %.2f bytes each, longest %zu\n",
                                        tern_text_commas(present, number),
                                        (double)total / (double)present, longest));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "hash        %s\n", tern_tokenizer_hash(tokenizer)));
    int32_t eos = tern_tokenizer_eos(tokenizer);
    for (int64_t id = 0; id < vocab; id++) {
        size_t bytes;
        const char *piece = tern_tokenizer_piece(tokenizer, (int32_t)id, &bytes);
        if (tern_tokenizer_is_special(tokenizer, (int32_t)id)) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "special     %" PRId64 " %.*s%s\n", id,
                                                (int)bytes, piece,
                                                id == eos ? " (end of document)" : ""));
        }
    }
    return TERN_OK;
}

static tern_status run_info(int argc, char **argv)
{
    const char *path = NULL;
    const struct tern_option options[] = {
        {"tokenizer", TERN_OPTION_STRING, &path, "FILE",
         "a tokenizer.json, a folder with one, or a GGUF file (required)", 0, 0, NULL},
    };
    const struct tern_command_spec spec = {
        .name = "tokenizer info",
        .usage = "--tokenizer FILE",
        .summary =
            "Prints the kind of tokenizer, the size of the vocabulary, its special tokens and the "
            "hash of the file.",
        .example = "tern tokenizer info --tokenizer tokenizer.json",
        .options = options,
        .option_count = COUNT(options),
    };
    struct tern_positionals none;
    bool help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &none, &help));
    if (help) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(check_input(spec.name, path, NULL, NULL));
    struct tern_tokenizer *tokenizer;
    TERN_RETURN_IF_ERR(tern_tokenizer_open(path, &tokenizer));
    struct tern_text out;
    tern_text_init(&out);
    tern_status status = print_info(tokenizer, &out);
    if (status == TERN_OK) {
        status = flush_output(&out);
    }
    tern_text_fini(&out);
    tern_tokenizer_close(tokenizer);
    return status;
}

/* ---- which one ---- */

tern_status tern_command_tokenizer(int argc, char **argv, int *exit_code)
{
    static const struct {
        const char *name;
        tern_status (*run)(int argc, char **argv);
    } commands[] = {{"train", run_train},
                    {"encode", run_encode},
                    {"decode", run_decode},
                    {"info", run_info},
                    {"template", tern_tokenizer_template}};
    static const char *const names[] = {"train", "encode", "decode", "info", "template"};
    (void)exit_code;
    const char *word = argc > 0 ? argv[0] : "";
    for (int i = 0; i < COUNT(commands); i++) {
        if (strcmp(word, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    if (strcmp(word, "--help") == 0) {
        printf("usage: tern tokenizer train|encode|decode|info|template ...\n\n"
               "  train    learn a byte-level BPE vocabulary from text\n"
               "  encode   text to ids\n"
               "  decode   ids to text\n"
               "  info     what a tokenizer.json holds\n"
               "  template messages to a chat model's text\n\n"
               "\"tern tokenizer WORD --help\" says more.\n"
               "example: tern tokenizer train --vocab-size 4096 --out tokenizer.json book.txt\n");
        return TERN_OK;
    }
    if (argc == 0) {
        return tern_fail(
            TERN_ERR_USAGE,
            "tokenizer: found no word; expected train, encode, decode, info or template");
    }
    return tern_fail(TERN_ERR_USAGE,
                     "tokenizer: found '%.64s'; expected train, encode, decode, info or template; "
                     "nearest is '%s'",
                     word, tern_text_nearest(word, names, COUNT(names)));
}
