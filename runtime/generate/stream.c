/* stream.c - holding back what may still become a character or a stop string. */
#include "runtime/generate/stream.h"

#include <stdint.h>
#include <string.h>

void tern_stream_init(struct tern_stream *stream)
{
    *stream = (struct tern_stream){0};
}

void tern_stream_fini(struct tern_stream *stream)
{
    tern_text_fini(&stream->pending);
}

/* Longest suffix of text that is a proper prefix of a stop string. */
static size_t stop_tail(const struct tern_stream *stream, const char *text, size_t length)
{
    size_t longest = 0;
    for (int i = 0; i < stream->stop_count; i++) {
        size_t size = strlen(stream->stops[i]);
        for (size_t n = size - 1 < length ? size - 1 : length; n > longest; n--) {
            if (memcmp(text + length - n, stream->stops[i], n) == 0) {
                longest = n;
                break;
            }
        }
    }
    return longest;
}

/* Where the stop string begins that is complete first (of two that end together the longer one), or
 * length: what byte by byte would find too. */
static size_t find_stop(const struct tern_stream *stream, const char *text, size_t length)
{
    size_t begin = length;
    size_t end = SIZE_MAX;
    for (int i = 0; i < stream->stop_count; i++) {
        size_t size = strlen(stream->stops[i]);
        const char *found = memmem(text, length, stream->stops[i], size);
        size_t at = found != NULL ? (size_t)(found - text) : length;
        if (found != NULL && (at + size < end || (at + size == end && at < begin))) {
            begin = at;
            end = at + size;
        }
    }
    return begin;
}

/* Bytes in front of the last `hold` that are sure: no character is cut, neither by the end nor by
 * what is held. */
static size_t whole_prefix(const char *text, size_t length, size_t hold)
{
    size_t at = 0;
    while (at < length - hold) {
        enum tern_utf8 kind;
        size_t size = tern_utf8_next(text + at, length - at, &kind);
        if (kind == TERN_UTF8_CUT || at + size > length - hold) {
            break;
        }
        at += size;
    }
    return at;
}

/* The first count pending bytes go out, as UTF-8 whatever they are. */
static tern_status let_out(struct tern_text *pending, size_t count, struct tern_text *out)
{
    if (count == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_text_append_utf8(out, pending->data, count));
    memmove(pending->data, pending->data + count, pending->length - count);
    pending->length -= count;
    return TERN_OK;
}

tern_status tern_stream_push(struct tern_stream *stream,
                             const char *bytes,
                             size_t count,
                             struct tern_text *out)
{
    if (stream->is_stopped) {
        return TERN_OK;
    }
    struct tern_text *pending = &stream->pending;
    TERN_RETURN_IF_ERR(tern_text_append(pending, bytes, count));
    size_t stop = find_stop(stream, pending->data, pending->length);
    if (stop < pending->length) {
        stream->is_stopped = true;
        return let_out(pending, stop, out);
    }
    size_t hold = stop_tail(stream, pending->data, pending->length);
    return let_out(pending, whole_prefix(pending->data, pending->length, hold), out);
}

tern_status tern_stream_finish(struct tern_stream *stream, struct tern_text *out)
{
    return stream->is_stopped ? TERN_OK : let_out(&stream->pending, stream->pending.length, out);
}
