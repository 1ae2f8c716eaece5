/* text_stream.c - files mapped, pipes buffered, both given in blocks. */
#include "io/text_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_stdin(const char *path)
{
    return strcmp(path, "-") == 0;
}

static tern_status stat_input(const char *path, struct stat *info)
{
    int failed = is_stdin(path) ? fstat(STDIN_FILENO, info) : stat(path, info);
    if (failed != 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "%s: cannot read", path);
    }
    if (S_ISDIR(info->st_mode)) {
        return tern_fail(TERN_ERR_INPUT, "%s is a folder; expected a text file", path);
    }
    return TERN_OK;
}

tern_status tern_text_stream_open(const char *path, struct tern_text_stream *out)
{
    *out = (struct tern_text_stream){.fd = -1, .total_bytes = -1};
    out->name = is_stdin(path) ? "standard input" : path;
    tern_text_init(&out->buffer);
    struct stat info;
    TERN_RETURN_IF_ERR(stat_input(path, &info));
    if (is_stdin(path)) {
        out->fd = STDIN_FILENO;
        return TERN_OK;
    }
    if (S_ISREG(info.st_mode)) {
        out->total_bytes = info.st_size;
        out->is_mapped = true;
        out->at_end = true;
        return info.st_size == 0 ? TERN_OK : tern_map_open(path, &out->map);
    }
    out->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (out->fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "%s: cannot open", path);
    }
    return TERN_OK;
}

void tern_text_stream_close(struct tern_text_stream *stream)
{
    if (stream->is_mapped && stream->map.data != NULL) {
        tern_map_close(&stream->map);
    }
    if (stream->fd > STDERR_FILENO) {
        close(stream->fd);
    }
    tern_text_fini(&stream->buffer);
}

/* Pipes: reads until `wanted` bytes lie ahead of start or the input ends. */
static tern_status fill(struct tern_text_stream *stream, size_t wanted)
{
    enum {
        READ_BYTES = 1 << 16
    };
    char block[READ_BYTES];
    struct tern_text *buffer = &stream->buffer;
    while (buffer->length - stream->start < wanted && !stream->at_end) {
        ssize_t got = read(stream->fd, block, sizeof block);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return tern_fail_errno(TERN_ERR_IO, errno, "%s: cannot read after byte %" PRId64,
                                   stream->name, stream->offset);
        }
        size_t ahead = buffer->length - stream->start;
        if (stream->start > 0 && stream->start >= ahead &&
            ahead + READ_BYTES > buffer->capacity - buffer->length) {
            memmove(buffer->data, buffer->data + stream->start,
                    ahead); /* costs less than was read since */
            buffer->length = ahead;
            stream->start = 0;
        }
        stream->at_end = got == 0;
        TERN_RETURN_IF_ERR(tern_text_append(buffer, block, (size_t)got));
    }
    return TERN_OK;
}

/* What lies ahead: at least `wanted` bytes unless the input ends before. */
static tern_status peek(struct tern_text_stream *stream,
                        size_t wanted,
                        const char **data_out,
                        size_t *bytes_out,
                        bool *is_all_out)
{
    if (stream->is_mapped) {
        size_t left = stream->map.bytes - (size_t)stream->offset;
        *data_out = (const char *)stream->map.data + stream->offset;
        *bytes_out = left < wanted ? left : wanted;
        *is_all_out = left <= wanted;
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(fill(stream, wanted));
    *data_out = stream->buffer.data + stream->start;
    *bytes_out = stream->buffer.length - stream->start;
    *is_all_out = stream->at_end;
    return TERN_OK;
}

/* What the last call handed out is done with. */
static void drop_given(struct tern_text_stream *stream)
{
    stream->start += stream->is_mapped ? 0 : stream->given;
    stream->offset += (int64_t)stream->given;
    stream->given = 0;
}

tern_status tern_text_stream_block(struct tern_text_stream *stream,
                                   const struct tern_tokenizer *tokenizer,
                                   const char **data_out,
                                   size_t *bytes_out)
{
    drop_given(stream);
    for (size_t wanted = TERN_TEXT_BLOCK_BYTES;; wanted *= 2) {
        bool is_all;
        TERN_RETURN_IF_ERR(peek(stream, wanted, data_out, bytes_out, &is_all));
        size_t cut = is_all ? *bytes_out : tern_tokenizer_cut(tokenizer, *data_out, *bytes_out);
        if (cut > 0 || is_all) {
            *bytes_out = cut;
            stream->given = cut;
            return TERN_OK;
        }
        if (wanted >= TERN_TEXT_BLOCK_BYTES_MAX) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "%s: byte %" PRId64
                             ": no blank in the next %zu bytes; expected one in %d",
                             stream->name, stream->offset, *bytes_out, TERN_TEXT_BLOCK_BYTES_MAX);
        }
    }
}

tern_status tern_text_stream_record(struct tern_text_stream *stream,
                                    char delimiter,
                                    const char **data_out,
                                    size_t *bytes_out,
                                    bool *is_end_out)
{
    drop_given(stream);
    size_t searched = 0;
    for (size_t wanted = TERN_TEXT_BLOCK_BYTES;; wanted *= 2) {
        bool is_all;
        size_t bytes;
        TERN_RETURN_IF_ERR(peek(stream, wanted, data_out, &bytes, &is_all));
        const char *end =
            bytes == 0 ? NULL : memchr(*data_out + searched, delimiter, bytes - searched);
        searched = bytes;
        if (end != NULL || is_all) {
            *bytes_out = end != NULL ? (size_t)(end - *data_out) : bytes;
            *is_end_out = bytes == 0;
            stream->given = *bytes_out + (end != NULL);
            return TERN_OK;
        }
        if (wanted >= TERN_TEXT_BLOCK_BYTES_MAX) {
            return tern_fail(TERN_ERR_UNSUPPORTED,
                             "%s: byte %" PRId64 ": a record of more than %d bytes", stream->name,
                             stream->offset, TERN_TEXT_BLOCK_BYTES_MAX);
        }
    }
}

tern_status tern_text_stream_total(const char *const *paths, int count, int64_t *bytes_out)
{
    *bytes_out = 0;
    for (int i = 0; i < count; i++) {
        struct stat info;
        TERN_RETURN_IF_ERR(stat_input(paths[i], &info));
        if (!S_ISREG(info.st_mode)) {
            *bytes_out = -1;
            return TERN_OK;
        }
        *bytes_out += info.st_size;
    }
    return TERN_OK;
}
