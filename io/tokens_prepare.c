/* tokens_prepare.c - documents out of texts, into a shard writer. */
#include "io/tokens_prepare.h"

#include "io/hash.h"
#include "io/json.h"
#include "io/progress.h"
#include "io/text_stream.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CACHE_VERSION = 1,
    CACHE_WAIT_NS = 50 * 1000 * 1000
};

struct job {
    const struct tern_prepare *prepare;
    struct tern_prepared *result;
    struct tern_shard_writer *writer;
    struct tern_encoder *encoder;
    struct tern_ids ids;
    int32_t eos; /* -1: none */
    struct tern_progress progress;
    int64_t bytes_before; /* of files already done */
};

/* ---- documents ---- */

static tern_status end_document(struct job *job)
{
    if (job->eos >= 0) {
        TERN_RETURN_IF_ERR(tern_shard_writer_add(job->writer, &job->eos, 1));
    }
    return tern_shard_writer_end_document(job->writer);
}

/* Encodes a stretch of text and writes it; an end-of-document token inside ends the document. */
static tern_status add_text(struct job *job, const char *text, size_t bytes, bool *is_open)
{
    job->ids.count = 0;
    TERN_RETURN_IF_ERR(
        tern_encoder_append(job->encoder, text, bytes, !job->prepare->plain_specials, &job->ids));
    int64_t start = 0;
    for (int64_t i = 0; i < job->ids.count; i++) {
        if (job->ids.data[i] != job->eos) {
            continue;
        }
        if (i > start || *is_open) { /* two in a row end one document */
            TERN_RETURN_IF_ERR(
                tern_shard_writer_add(job->writer, job->ids.data + start, i - start));
            TERN_RETURN_IF_ERR(end_document(job));
        }
        start = i + 1;
        *is_open = false;
    }
    *is_open = *is_open || job->ids.count > start;
    return tern_shard_writer_add(job->writer, job->ids.data + start, job->ids.count - start);
}

static tern_status add_plain(struct job *job, struct tern_text_stream *stream)
{
    bool is_open = false;
    for (;;) {
        const char *data;
        size_t bytes;
        TERN_RETURN_IF_ERR(tern_text_stream_block(stream, job->prepare->tokenizer, &data, &bytes));
        if (bytes == 0) {
            return is_open ? end_document(job) : TERN_OK;
        }
        if (stream->offset > 0) {
            tern_encoder_continue(job->encoder);
        }
        TERN_RETURN_IF_ERR(add_text(job, data, bytes, &is_open));
        tern_progress_update(&job->progress, job->bytes_before + stream->offset);
    }
}

static tern_status add_document(struct job *job, const char *text, size_t bytes)
{
    bool is_open = false;
    if (bytes == 0) {
        job->result->empty_documents++;
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(add_text(job, text, bytes, &is_open));
    return is_open ? end_document(job) : TERN_OK;
}

static bool is_all_blank(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r')) {
        at++;
    }
    return at == bytes;
}

static tern_status add_json(struct job *job, const char *line, size_t bytes)
{
    struct tern_json *root;
    TERN_RETURN_IF_ERR(tern_json_parse("this line", line, bytes, &root));
    const struct tern_json *value = tern_json_get(root, "text");
    size_t text_bytes;
    const char *text = tern_json_string(value, &text_bytes);
    tern_status status;
    if (text == NULL) {
        enum tern_json_kind kind = tern_json_kind_of(root);
        bool is_object = kind == TERN_JSON_OBJECT;
        status = tern_fail(TERN_ERR_INPUT, "found %s%s; expected an object with a string \"text\"",
                           is_object ? "an object with \"text\": " : "",
                           tern_json_kind_name(is_object ? tern_json_kind_of(value) : kind));
    } else {
        status = add_document(job, text, text_bytes);
    }
    tern_json_close(root);
    return status;
}

static tern_status add_records(struct job *job, struct tern_text_stream *stream, bool is_json)
{
    for (int64_t line = 1;; line++) {
        const char *data;
        size_t bytes;
        bool is_end;
        TERN_RETURN_IF_ERR(tern_text_stream_record(stream, '\n', &data, &bytes, &is_end));
        if (is_end) {
            return TERN_OK;
        }
        tern_status status = TERN_OK;
        if (!is_json) {
            status = add_document(job, data, bytes);
        } else if (!is_all_blank(data, bytes)) {
            status = add_json(job, data, bytes);
        }
        if (status != TERN_OK) {
            return tern_fail_prefix(status, "%s: line %" PRId64 " (byte %" PRId64 ")", stream->name,
                                    line, stream->offset);
        }
        tern_progress_update(&job->progress, job->bytes_before + stream->offset);
    }
}

/* ---- files ---- */

static enum tern_text_format format_of(const struct tern_prepare *prepare, const char *path)
{
    if (prepare->format != TERN_TEXT_BY_NAME) {
        return prepare->format;
    }
    size_t length = strlen(path);
    bool is_json = length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
    return is_json ? TERN_TEXT_JSONL : TERN_TEXT_PLAIN;
}

static tern_status add_file(struct job *job, const char *path)
{
    struct tern_text_stream stream;
    tern_status status = tern_text_stream_open(path, &stream);
    if (status == TERN_OK) {
        enum tern_text_format format = format_of(job->prepare, path);
        status = format == TERN_TEXT_PLAIN ? add_plain(job, &stream)
                                           : add_records(job, &stream, format == TERN_TEXT_JSONL);
    }
    job->bytes_before += stream.offset;
    tern_text_stream_close(&stream);
    return status;
}

static tern_status add_files(struct job *job)
{
    const struct tern_prepare *prepare = job->prepare;
    int64_t total;
    TERN_RETURN_IF_ERR(tern_text_stream_total(prepare->paths, prepare->path_count, &total));
    tern_progress_start(&job->progress, "tokenize", total, true);
    for (int i = 0; i < prepare->path_count; i++) {
        TERN_RETURN_IF_ERR(add_file(job, prepare->paths[i]));
    }
    job->result->text_bytes = job->bytes_before;
    return TERN_OK;
}

static tern_status index_exists(const char *prefix, bool *exists_out)
{
    char index[TERN_PATH_BYTES];
    if (snprintf(index, sizeof index, "%s.idx", prefix) >= TERN_PATH_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes", prefix,
                         TERN_PATH_BYTES - 1);
    }
    *exists_out = tern_file_exists(index);
    return TERN_OK;
}

tern_status tern_tokens_prepare(const struct tern_prepare *prepare, struct tern_prepared *out)
{
    memset(out, 0, sizeof *out);
    if (!(prepare->val_fraction >= 0 && prepare->val_fraction < 1)) {
        return tern_fail(TERN_ERR_USAGE, "validation fraction %g; expected 0 or more and below 1",
                         prepare->val_fraction);
    }
    struct job job = {
        .prepare = prepare, .result = out, .eos = tern_tokenizer_eos(prepare->tokenizer)};
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_encoder_create(prepare->tokenizer, &job.encoder), close_all);
    TERN_GOTO_IF_ERR(status,
                     tern_shard_writer_open(prepare->out_prefix,
                                            tern_tokenizer_vocab_size(prepare->tokenizer),
                                            prepare->sequence_tokens_max, &job.writer),
                     close_all);
    if (prepare->keep_existing) {
        bool exists = false;
        TERN_GOTO_IF_ERR(status, index_exists(prepare->out_prefix, &exists), close_all);
        if (exists) { /* another process was first */
            goto close_all;
        }
    }
    if (job.eos < 0) {
        tern_log_warn("the tokenizer has no end-of-document token: documents run into each other");
    }
    TERN_GOTO_IF_ERR(status, add_files(&job), close_all);
    TERN_GOTO_IF_ERR(
        status,
        tern_shard_writer_commit(job.writer, prepare->val_fraction, out->parts, &out->part_count),
        close_all);
close_all:
    tern_shard_writer_close(job.writer);
    tern_encoder_destroy(job.encoder);
    tern_free(job.ids.data);
    return status;
}

/* ---- the cache ---- */

static tern_status cache_prefix(const char *path,
                                const struct tern_tokenizer *tokenizer,
                                const char *cache_dir,
                                char prefix_out[TERN_PATH_BYTES])
{
    struct stat info;
    char *real = realpath(path, NULL);
    if (real == NULL || stat(real, &info) != 0) {
        int error = errno;
        free(real);
        return tern_fail_errno(TERN_ERR_IO, error, "%s: cannot read", path);
    }
    char key[TERN_PATH_BYTES + 256];
    int length = snprintf(key, sizeof key, "%d %s %lld %lld.%09ld %s", CACHE_VERSION, real,
                          (long long)info.st_size, (long long)info.st_mtim.tv_sec,
                          info.st_mtim.tv_nsec, tern_tokenizer_hash(tokenizer));
    const char *slash = strrchr(path, '/');
    char hash[TERN_HASH_HEX_BYTES], name[256];
    tern_hash_bytes(key, (size_t)length, hash);
    snprintf(name, sizeof name, "%.200s-%.16s", slash != NULL ? slash + 1 : path, hash);
    free(real);
    return tern_path_join(prefix_out, cache_dir, name);
}

/* A run killed between publishing its index and closing leaves its scratch file behind. The writer cannot remove it
 * earlier: its lock keeps others from preparing the same shards until the index is there. */
static tern_status remove_scratch(const char *prefix)
{
    char scratch[TERN_PATH_BYTES];
    if (snprintf(scratch, sizeof scratch, "%s.documents.tmp", prefix) >= (int)sizeof scratch) {
        return TERN_OK; /* too long to have been made */
    }
    return tern_file_remove(scratch);
}

tern_status tern_tokens_cache(const char *path,
                              const struct tern_tokenizer *tokenizer,
                              const char *cache_dir,
                              char prefix_out[TERN_PATH_BYTES])
{
    if (tokenizer == NULL || cache_dir == NULL) {
        return tern_fail(TERN_ERR_CONFIG, "%s is text: training on it needs %s", path,
                         tokenizer == NULL ? "a tokenizer (data.tokenizer)"
                                           : "a folder for its tokens");
    }
    TERN_RETURN_IF_ERR(cache_prefix(path, tokenizer, cache_dir, prefix_out));
    TERN_RETURN_IF_ERR(tern_file_make_folder(cache_dir));
    bool said_waiting = false;
    for (;;) {
        bool exists = false;
        TERN_RETURN_IF_ERR(index_exists(prefix_out, &exists));
        if (exists) {
            return remove_scratch(prefix_out);
        }
        const char *const paths[] = {path};
        struct tern_prepare prepare = {.paths = paths,
                                       .path_count = 1,
                                       .tokenizer = tokenizer,
                                       .out_prefix = prefix_out,
                                       .keep_existing = true};
        struct tern_prepared prepared;
        tern_status status = tern_tokens_prepare(&prepare, &prepared);
        if (status != TERN_ERR_BUSY) {
            return status == TERN_OK ? status : tern_fail_prefix(status, "tokenizing '%s'", path);
        }
        if (!said_waiting) {
            tern_log_info("another process tokenizes '%s': waiting", path);
            said_waiting = true;
        }
        tern_clock_sleep_ns(CACHE_WAIT_NS);
    }
}
