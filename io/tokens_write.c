/* tokens_write.c - writing Megatron pairs: ids as they come, then the split, the indexes and the
 * final names. */
#include "io/tokens_file.h"
#include "runtime/base/check.h"
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 20,
    SEQUENCE_TOKENS_MAX = 1 << 30
};

/* A temporary file written from front to back, or overwritten and cut at the end. */
struct output {
    char path[TERN_PATH_BYTES]; /* "" once it has its final name */
    int fd;
    char *buffer;
    size_t used;
    int64_t written; /* bytes in the file; used more are in the buffer */
};

struct tern_shard_writer {
    char prefix[TERN_PATH_BYTES];
    int item_bytes;
    int64_t vocab_size;
    int64_t sequence_tokens_max;
    struct output tokens;
    struct output documents; /* i64 tokens of each document */
    int64_t token_count, document_count;
    int64_t document_start; /* token */
};

/* ---- output files ---- */

/* Opens path for this process alone. A file that a killed run left behind is taken over. */
static tern_status output_open(const char *prefix, const char *ending, struct output *out)
{
    int length = snprintf(out->path, sizeof out->path, "%s%s", prefix, ending);
    out->fd = -1;
    out->used = 0;
    out->written = 0;
    if (length >= TERN_PATH_BYTES) {
        out->path[0] = '\0';
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes", prefix,
                         TERN_PATH_BYTES - 1);
    }
    out->buffer = tern_alloc("shard buffer", BUFFER_BYTES);
    if (out->buffer == NULL) {
        out->path[0] = '\0';
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a buffer of %d bytes", BUFFER_BYTES);
    }
    for (;;) {
        int fd = open(out->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        struct stat held, named;
        if (fd < 0) {
            int error = errno;
            tern_status status =
                tern_fail_errno(TERN_ERR_IO, error, "cannot create '%s'", out->path);
            out->path[0] = '\0';
            return status;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            close(fd);
            tern_status status =
                tern_fail(TERN_ERR_BUSY, "'%s' is being written by another process", out->path);
            out->path[0] = '\0';
            return status;
        }
        bool is_same =
            fstat(fd, &held) == 0 && stat(out->path, &named) == 0 && held.st_ino == named.st_ino;
        if (is_same && ftruncate(fd, 0) == 0) {
            out->fd = fd;
            return TERN_OK;
        }
        close(fd); /* renamed between open and lock: that file is somebody's result */
    }
}

static void output_close(struct output *out)
{
    if (out->fd >= 0) {
        if (out->path[0] != '\0') {
            unlink(out->path);
        }
        close(out->fd);
    }
    tern_free(out->buffer);
    out->buffer = NULL;
    out->fd = -1;
}

static tern_status output_flush(struct output *out)
{
    enum tern_fault_action fault = tern_fault_pass(TERN_FAULT_FILE_WRITE);
    if (fault == TERN_FAULT_ENOSPC || fault == TERN_FAULT_EIO) {
        return tern_fail_errno(TERN_ERR_IO, fault == TERN_FAULT_EIO ? EIO : ENOSPC,
                               "cannot write '%s'", out->path);
    }
    for (size_t done = 0; done < out->used;) {
        ssize_t step = pwrite(out->fd, out->buffer + done, out->used - done, out->written);
        if (step < 0 && errno == EINTR) {
            continue;
        }
        if (step <= 0) {
            return tern_fail_errno(TERN_ERR_IO, step < 0 ? errno : EIO,
                                   "cannot write '%s' at byte %" PRId64, out->path, out->written);
        }
        done += (size_t)step;
        out->written += step;
    }
    out->used = 0;
    return TERN_OK;
}

static tern_status output_add(struct output *out, const void *data, size_t bytes)
{
    if (bytes > BUFFER_BYTES - out->used) {
        TERN_RETURN_IF_ERR(output_flush(out));
    }
    TERN_CHECK(bytes <= BUFFER_BYTES);
    memcpy(out->buffer + out->used, data, bytes);
    out->used += bytes;
    return TERN_OK;
}

static tern_status output_sync(struct output *out)
{
    TERN_RETURN_IF_ERR(output_flush(out));
    enum tern_fault_action fault = tern_fault_pass(TERN_FAULT_FILE_FSYNC);
    if (fault == TERN_FAULT_EIO || fsync(out->fd) != 0) {
        return tern_fail_errno(TERN_ERR_IO, fault == TERN_FAULT_EIO ? EIO : errno,
                               "cannot make '%s' durable", out->path);
    }
    return TERN_OK;
}

static tern_status output_rename(struct output *out, const char *path)
{
    TERN_RETURN_IF_ERR(tern_file_rename(out->path, path));
    out->path[0] = '\0';
    return TERN_OK;
}

/* ---- ids ---- */

tern_status tern_shard_writer_open(const char *prefix,
                                   int64_t vocab_size,
                                   int64_t sequence_tokens_max,
                                   struct tern_shard_writer **out)
{
    *out = NULL;
    struct tern_shard_writer *writer = tern_alloc_zero("shard writer", 1, sizeof *writer);
    if (writer == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a shard writer");
    }
    writer->tokens.fd = -1;
    writer->documents.fd = -1;
    writer->vocab_size = vocab_size;
    writer->item_bytes = vocab_size <= TERN_MEGATRON_U16_VOCAB_MAX ? 2 : 4;
    writer->sequence_tokens_max =
        sequence_tokens_max > 0 ? sequence_tokens_max : SEQUENCE_TOKENS_MAX;
    snprintf(writer->prefix, sizeof writer->prefix, "%s", prefix);
    tern_status status = output_open(prefix, ".bin.tmp", &writer->tokens);
    if (status == TERN_OK) {
        status = output_open(prefix, ".documents.tmp", &writer->documents);
    }
    if (status != TERN_OK) {
        tern_shard_writer_close(writer);
        return status;
    }
    *out = writer;
    return TERN_OK;
}

void tern_shard_writer_close(struct tern_shard_writer *writer)
{
    if (writer != NULL) {
        output_close(&writer->tokens);
        output_close(&writer->documents);
        tern_free(writer);
    }
}

tern_status tern_shard_writer_add(struct tern_shard_writer *writer,
                                  const int32_t *ids,
                                  int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= writer->vocab_size) {
            return tern_fail(TERN_ERR_ARGUMENT, "id %d for '%s'; expected 0 to %" PRId64, ids[i],
                             writer->prefix, writer->vocab_size - 1);
        }
        if (writer->item_bytes == 2) {
            uint16_t narrow = (uint16_t)ids[i];
            TERN_RETURN_IF_ERR(output_add(&writer->tokens, &narrow, sizeof narrow));
        } else {
            TERN_RETURN_IF_ERR(output_add(&writer->tokens, &ids[i], sizeof ids[i]));
        }
    }
    writer->token_count += count;
    return TERN_OK;
}

tern_status tern_shard_writer_end_document(struct tern_shard_writer *writer)
{
    int64_t tokens = writer->token_count - writer->document_start;
    if (tokens == 0) {
        return TERN_OK;
    }
    writer->document_start = writer->token_count;
    writer->document_count++;
    return output_add(&writer->documents, &tokens, sizeof tokens);
}

/* ---- the split ---- */

/* Tokens [first, first + tokens) and the documents that they touch. */
struct part {
    int64_t first, tokens;
    int64_t first_document, documents;
    int64_t first_document_start; /* token */
};

/* i64 tokens of each document, in the file that the writer kept. */
static int64_t document_tokens(const struct tern_map *documents, int64_t index)
{
    int64_t tokens;
    memcpy(&tokens, documents->data + index * 8, sizeof tokens);
    return tokens;
}

static void split(const struct tern_shard_writer *writer,
                  const struct tern_map *documents,
                  double val_fraction,
                  struct part parts[2])
{
    int64_t all = writer->token_count;
    int64_t wanted = llround((double)all * (1 - val_fraction));
    if (writer->document_count == 1) {
        int64_t cut = wanted < 1 ? 1 : wanted > all - 1 ? all - 1 : wanted;
        parts[0] = (struct part){0, cut, 0, 1, 0};
        parts[1] = (struct part){cut, all - cut, 0, 1, 0};
        return;
    }
    int64_t border = 1; /* documents of the first part */
    int64_t cut = document_tokens(documents, 0);
    while (border + 1 < writer->document_count) {
        int64_t next = cut + document_tokens(documents, border);
        if (llabs(next - wanted) > llabs(cut - wanted)) {
            break;
        }
        cut = next;
        border++;
    }
    parts[0] = (struct part){0, cut, 0, border, 0};
    parts[1] = (struct part){cut, all - cut, border, writer->document_count - border, cut};
}

/* ---- the index ---- */

/* Walks a part's sequences: documents, clipped to the part, in pieces of at most
 * sequence_tokens_max. */
struct walk {
    const struct tern_shard_writer *writer;
    const struct tern_map *documents;
    struct part part;
    int64_t document; /* next one */
    int64_t start;    /* of it, token */
    int64_t left;     /* tokens of the current one still to give */
    bool begins_document;
};

static struct walk walk_start(const struct tern_shard_writer *writer,
                              const struct tern_map *documents,
                              struct part part)
{
    return (struct walk){writer, documents, part, part.first_document, part.first_document_start,
                         0,      false};
}

/* Tokens of the next sequence, 0 at the end. */
static int64_t walk_next(struct walk *walk)
{
    walk->begins_document = walk->left == 0;
    if (walk->left == 0) {
        if (walk->document == walk->part.first_document + walk->part.documents) {
            return 0;
        }
        int64_t tokens = document_tokens(walk->documents, walk->document++);
        int64_t first = walk->start > walk->part.first ? walk->start : walk->part.first;
        int64_t part_end = walk->part.first + walk->part.tokens;
        int64_t end = walk->start + tokens < part_end ? walk->start + tokens : part_end;
        walk->start += tokens;
        walk->left = end - first;
    }
    int64_t most = walk->writer->sequence_tokens_max;
    int64_t given = walk->left < most ? walk->left : most;
    walk->left -= given;
    return given;
}

static tern_status add_header(const struct tern_shard_writer *writer,
                              int64_t sequences,
                              int64_t documents,
                              struct output *out)
{
    char header[TERN_MEGATRON_HEADER_BYTES] = "MMIDIDX";
    int64_t version = 1;
    int64_t borders = documents + 1;
    memcpy(header + 9, &version, 8);
    header[17] = writer->item_bytes == 2 ? 8 : 4;
    memcpy(header + 18, &sequences, 8);
    memcpy(header + 26, &borders, 8);
    return output_add(out, header, sizeof header);
}

static tern_status write_index(const struct tern_shard_writer *writer,
                               const struct tern_map *documents,
                               struct part part,
                               struct output *out)
{
    struct walk walk = walk_start(writer, documents, part);
    int64_t sequences = 0;
    while (walk_next(&walk) > 0) {
        sequences++;
    }
    TERN_RETURN_IF_ERR(add_header(writer, sequences, part.documents, out));
    walk = walk_start(writer, documents, part);
    for (int64_t i = 0; i < sequences; i++) {
        int32_t size = (int32_t)walk_next(&walk);
        TERN_RETURN_IF_ERR(output_add(out, &size, sizeof size));
    }
    walk = walk_start(writer, documents, part);
    for (int64_t i = 0, pointer = 0; i < sequences; i++) {
        TERN_RETURN_IF_ERR(output_add(out, &pointer, sizeof pointer));
        pointer += walk_next(&walk) * writer->item_bytes;
    }
    walk = walk_start(writer, documents, part);
    for (int64_t i = 0; i < sequences; i++) {
        walk_next(&walk);
        if (walk.begins_document) {
            TERN_RETURN_IF_ERR(output_add(out, &i, sizeof i));
        }
    }
    return output_add(out, &sequences, sizeof sequences);
}

/* ---- committing ---- */

/* Appends bytes [first, end) of one file to another. */
static tern_status copy_range(const struct output *from,
                              int64_t first,
                              int64_t end,
                              struct output *to)
{
    while (first < end) {
        TERN_RETURN_IF_ERR(output_flush(to));
        int64_t wanted = end - first < BUFFER_BYTES ? end - first : BUFFER_BYTES;
        ssize_t got = pread(from->fd, to->buffer, (size_t)wanted, first);
        if (got <= 0) {
            return tern_fail_errno(TERN_ERR_IO, got < 0 ? errno : EIO,
                                   "cannot read '%s' at byte %" PRId64, from->path, first);
        }
        to->used = (size_t)got;
        first += got;
    }
    return output_flush(to);
}

/* Both files of one part get their names; the old index goes first, so that no reader sees a
 * mixture. */
static tern_status publish(const char *prefix, struct output *tokens, struct output *index)
{
    char bin[TERN_PATH_BYTES], idx[TERN_PATH_BYTES];
    int length = snprintf(bin, sizeof bin, "%s.bin", prefix);
    int idx_length = snprintf(idx, sizeof idx, "%s.idx", prefix);
    if (length >= TERN_PATH_BYTES || idx_length >= TERN_PATH_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes", prefix,
                         TERN_PATH_BYTES - 1);
    }
    TERN_RETURN_IF_ERR(output_sync(tokens));
    TERN_RETURN_IF_ERR(output_sync(index));
    TERN_RETURN_IF_ERR(tern_file_remove(idx));
    TERN_RETURN_IF_ERR(output_rename(tokens, bin));
    return output_rename(index, idx);
}

static tern_status commit_part(struct tern_shard_writer *writer,
                               const struct tern_map *documents,
                               struct part part,
                               struct output *tokens,
                               const char *ending,
                               struct tern_shard_part *out)
{
    struct output index = {.fd = -1};
    int length = snprintf(out->prefix, sizeof out->prefix, "%s%s", writer->prefix, ending);
    if (length >= TERN_PATH_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes",
                         writer->prefix, TERN_PATH_BYTES - 1);
    }
    out->tokens = part.tokens;
    out->documents = part.documents;
    tern_status status;
    TERN_GOTO_IF_ERR(status, output_open(out->prefix, ".idx.tmp", &index), close_index);
    TERN_GOTO_IF_ERR(status, write_index(writer, documents, part, &index), close_index);
    TERN_GOTO_IF_ERR(status, publish(out->prefix, tokens, &index), close_index);
close_index:
    output_close(&index);
    return status;
}

static tern_status commit_both(struct tern_shard_writer *writer,
                               const struct tern_map *documents,
                               const struct part parts[2],
                               struct tern_shard_part parts_out[2])
{
    char val_prefix[TERN_PATH_BYTES];
    int length = snprintf(val_prefix, sizeof val_prefix, "%s_val", writer->prefix);
    struct output val = {.fd = -1};
    if (length >= TERN_PATH_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes",
                         writer->prefix, TERN_PATH_BYTES - 1);
    }
    int64_t cut = parts[1].first * writer->item_bytes;
    int64_t end = writer->token_count * writer->item_bytes;
    tern_status status;
    TERN_GOTO_IF_ERR(status, output_open(val_prefix, ".bin.tmp", &val), close_val);
    TERN_GOTO_IF_ERR(status, copy_range(&writer->tokens, cut, end, &val), close_val);
    if (ftruncate(writer->tokens.fd, cut) != 0) {
        status = tern_fail_errno(TERN_ERR_IO, errno, "cannot shorten '%s'", writer->tokens.path);
        goto close_val;
    }
    TERN_GOTO_IF_ERR(
        status, commit_part(writer, documents, parts[0], &writer->tokens, "_train", &parts_out[0]),
        close_val);
    TERN_GOTO_IF_ERR(status, commit_part(writer, documents, parts[1], &val, "_val", &parts_out[1]),
                     close_val);
close_val:
    output_close(&val);
    return status;
}

tern_status tern_shard_writer_commit(struct tern_shard_writer *writer,
                                     double val_fraction,
                                     struct tern_shard_part parts_out[2],
                                     int *part_count_out)
{
    TERN_RETURN_IF_ERR(tern_shard_writer_end_document(writer));
    if (writer->token_count < (val_fraction > 0 ? 2 : 1)) {
        return tern_fail(TERN_ERR_INPUT, "%" PRId64 " tokens for '%s'; expected at least %d",
                         writer->token_count, writer->prefix, val_fraction > 0 ? 2 : 1);
    }
    TERN_RETURN_IF_ERR(output_flush(&writer->tokens));
    TERN_RETURN_IF_ERR(output_flush(&writer->documents));
    struct tern_map documents;
    TERN_RETURN_IF_ERR(tern_map_open(writer->documents.path, &documents));
    tern_status status;
    if (val_fraction > 0) {
        struct part parts[2];
        split(writer, &documents, val_fraction, parts);
        *part_count_out = 2;
        status = commit_both(writer, &documents, parts, parts_out);
    } else {
        struct part whole = {0, writer->token_count, 0, writer->document_count, 0};
        *part_count_out = 1;
        status = commit_part(writer, &documents, whole, &writer->tokens, "", &parts_out[0]);
    }
    tern_map_close(&documents);
    return status;
}
