/* prepare.c - conversations, one after the other, into a shard and its marks. */
#include "runtime/chat/prepare.h"

#include "io/hash.h"
#include "io/packs.h"
#include "io/progress.h"
#include "io/text_stream.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/chat/learn.h"

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
    const struct tern_chat_prepare *prepare;
    struct tern_chat_prepared *result;
    struct tern_shard_writer *writer;
    struct tern_learner *learner;
    struct tern_text marks; /* a byte a token, of all that was written */
    struct tern_progress progress;
    int64_t bytes_before;
};

/* ---- lines ---- */

static tern_status add_conversation(struct job *job, const char *line, size_t bytes)
{
    struct tern_json *root;
    struct tern_learned learned;
    TERN_RETURN_IF_ERR(tern_json_parse("this line", line, bytes, &root));
    tern_status status = tern_learner_read(job->learner, root, &learned);
    tern_json_close(root);
    TERN_RETURN_IF_ERR(status);
    job->result->conversations++;
    if (learned.turns == 0) {
        job->result->silent++;
        return TERN_OK;
    }
    for (int64_t i = 0; i < learned.count; i++) {
        job->result->learned += learned.marks[i];
    }
    TERN_RETURN_IF_ERR(tern_shard_writer_add(job->writer, learned.ids, learned.count));
    TERN_RETURN_IF_ERR(tern_shard_writer_end_document(job->writer));
    return tern_text_append(&job->marks, learned.marks, (size_t)learned.count);
}

static bool is_all_blank(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r')) {
        at++;
    }
    return at == bytes;
}

static tern_status add_lines(struct job *job, struct tern_text_stream *stream)
{
    for (int64_t line = 1;; line++) {
        const char *data;
        size_t bytes;
        bool is_end;
        TERN_RETURN_IF_ERR(tern_text_stream_record(stream, '\n', &data, &bytes, &is_end));
        if (is_end) {
            return TERN_OK;
        }
        tern_status status =
            is_all_blank(data, bytes) ? TERN_OK : add_conversation(job, data, bytes);
        if (status != TERN_OK) {
            return tern_fail_prefix(status, "%s: line %" PRId64, stream->name, line);
        }
        tern_progress_update(&job->progress, job->bytes_before + stream->offset);
    }
}

static tern_status add_files(struct job *job)
{
    const struct tern_chat_prepare *prepare = job->prepare;
    int64_t total;
    TERN_RETURN_IF_ERR(tern_text_stream_total(prepare->paths, prepare->path_count, &total));
    tern_progress_start(&job->progress, "tokenize", total, true);
    for (int i = 0; i < prepare->path_count; i++) {
        struct tern_text_stream stream;
        tern_status status = tern_text_stream_open(prepare->paths[i], &stream);
        status = status == TERN_OK ? add_lines(job, &stream) : status;
        job->bytes_before += stream.offset;
        tern_text_stream_close(&stream);
        TERN_RETURN_IF_ERR(status);
    }
    if (job->result->conversations == job->result->silent) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: found %" PRId64 " conversations, in none of which an assistant "
                         "speaks; expected messages with \"role\": \"assistant\"",
                         prepare->paths[0], job->result->conversations);
    }
    return TERN_OK;
}

/* ---- the whole ---- */

/* Marks before the index that makes the shards visible; of a split they can only come after it. */
static tern_status commit(struct job *job)
{
    const struct tern_chat_prepare *prepare = job->prepare;
    struct tern_chat_prepared *result = job->result;
    const uint8_t *marks = (const uint8_t *)job->marks.data;
    if (prepare->val_fraction == 0) {
        TERN_RETURN_IF_ERR(
            tern_packs_write_marks(prepare->out_prefix, marks, (int64_t)job->marks.length));
    }
    TERN_RETURN_IF_ERR(tern_shard_writer_commit(job->writer, prepare->val_fraction, result->parts,
                                                &result->part_count));
    for (int i = 0; i < result->part_count && result->part_count > 1; i++) {
        TERN_RETURN_IF_ERR(
            tern_packs_write_marks(result->parts[i].prefix, marks, result->parts[i].tokens));
        marks += result->parts[i].tokens;
    }
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

tern_status tern_chat_prepare(const struct tern_chat_prepare *prepare,
                              struct tern_chat_prepared *out)
{
    struct job job = {.prepare = prepare, .result = out};
    *out = (struct tern_chat_prepared){0};
    tern_text_init(&job.marks);
    if (!(prepare->val_fraction >= 0 && prepare->val_fraction < 1)) {
        return tern_fail(TERN_ERR_USAGE, "validation fraction %g; expected 0 or more and below 1",
                         prepare->val_fraction);
    }
    tern_status status;
    bool exists = false;
    TERN_GOTO_IF_ERR(status,
                     tern_shard_writer_open(prepare->out_prefix,
                                            tern_tokenizer_vocab_size(prepare->tokenizer), 0,
                                            &job.writer),
                     end);
    if (prepare->keep_existing) {
        TERN_GOTO_IF_ERR(status, index_exists(prepare->out_prefix, &exists), end);
    }
    if (!exists) {
        TERN_GOTO_IF_ERR(
            status, tern_learner_create(prepare->template, prepare->tokenizer, &job.learner), end);
        TERN_GOTO_IF_ERR(status, add_files(&job), end);
        TERN_GOTO_IF_ERR(status, commit(&job), end);
    }
    if (out->silent > 0) {
        tern_log_warn("%" PRId64 " of %" PRId64 " conversations are left out: the assistant says "
                      "nothing in them",
                      out->silent, out->conversations);
    }
end:
    tern_shard_writer_close(job.writer);
    tern_learner_destroy(job.learner);
    tern_text_fini(&job.marks);
    return status;
}

/* ---- the cache ---- */

static tern_status add_file_key(struct tern_text *key, const char *path)
{
    struct stat info;
    char *real = realpath(path, NULL);
    if (real == NULL || stat(real, &info) != 0) {
        free(real);
        return tern_fail(TERN_ERR_IO, "%s: cannot read", path);
    }
    tern_status status = tern_text_printf(key, " %s %lld %lld.%09ld", real, (long long)info.st_size,
                                          (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    free(real);
    return status;
}

static tern_status cache_prefix(char *const *paths,
                                int count,
                                const struct tern_template *template,
                                const struct tern_tokenizer *tokenizer,
                                const char *cache_dir,
                                char prefix_out[TERN_PATH_BYTES])
{
    struct tern_text key;
    char hash[TERN_HASH_HEX_BYTES], name[256];
    tern_text_init(&key);
    tern_status status =
        tern_text_printf(&key, "chat %d %s %s", CACHE_VERSION, tern_tokenizer_hash(tokenizer),
                         tern_template_hash(template));
    for (int i = 0; i < count && status == TERN_OK; i++) {
        status = add_file_key(&key, paths[i]);
    }
    if (status == TERN_OK) {
        const char *slash = strrchr(paths[0], '/');
        tern_hash_bytes(key.data, key.length, hash);
        snprintf(name, sizeof name, "%.200s-%.16s", slash != NULL ? slash + 1 : paths[0], hash);
        status = tern_path_join(prefix_out, cache_dir, name);
    }
    tern_text_fini(&key);
    return status;
}

static tern_status make_cache(const struct tern_chat_prepare *prepare)
{
    struct tern_chat_prepared prepared;
    bool said_waiting = false;
    for (;;) {
        bool exists = false;
        TERN_RETURN_IF_ERR(index_exists(prepare->out_prefix, &exists));
        if (exists) {
            return TERN_OK;
        }
        tern_status status = tern_chat_prepare(prepare, &prepared);
        if (status != TERN_ERR_BUSY) {
            return status;
        }
        if (!said_waiting) {
            tern_log_info("another process tokenizes '%s': waiting", prepare->paths[0]);
            said_waiting = true;
        }
        tern_clock_sleep_ns(CACHE_WAIT_NS);
    }
}

tern_status tern_chat_cache(const char *pattern,
                            const struct tern_template *template,
                            const struct tern_tokenizer *tokenizer,
                            const char *cache_dir,
                            char prefix_out[TERN_PATH_BYTES])
{
    char **paths;
    int count;
    if (tern_packs_exist(pattern)) {
        return snprintf(prefix_out, TERN_PATH_BYTES, "%s", pattern) < TERN_PATH_BYTES
                   ? TERN_OK
                   : tern_fail(TERN_ERR_ARGUMENT, "%.64s...: longer than %d bytes", pattern,
                               TERN_PATH_BYTES - 1);
    }
    TERN_RETURN_IF_ERR(tern_file_glob(pattern, &paths, &count));
    tern_status status;
    TERN_GOTO_IF_ERR(status, cache_prefix(paths, count, template, tokenizer, cache_dir, prefix_out),
                     end);
    TERN_GOTO_IF_ERR(status, tern_file_make_folder(cache_dir), end);
    struct tern_chat_prepare prepare = {.paths = (const char *const *)paths,
                                        .path_count = count,
                                        .template = template,
                                        .tokenizer = tokenizer,
                                        .out_prefix = prefix_out,
                                        .keep_existing = true};
    TERN_GOTO_IF_ERR(status, make_cache(&prepare), end);
end:
    tern_free(paths);
    return status;
}
