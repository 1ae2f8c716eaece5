/* stream.c - holding back what may still become a character or a stop string. */
#include "runtime/generate/stream.h"

#include <string.h>

void tern_stream_init(struct tern_stream *stream)
{
    *stream = (struct tern_stream){0};
}

void tern_stream_fini(struct tern_stream *stream)
{
    tern_text_fini(&stream->pending);
}

/* Bytes at the end of text that begin a UTF-8 character but do not finish it: 0 to 3. */
static size_t incomplete_tail(const char *text, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char c = (unsigned char)text[length - back];
        if ((c & 0xC0) == 0x80) {
            continue;
        }
        size_t need = c >= 0xF0 && c <= 0xF4  ? 4
                      : c >= 0xE0 && c < 0xF0 ? 3
                      : c >= 0xC2 && c < 0xE0 ? 2
                                              : 1;
        return need > back ? back : 0;
    }
    return 0;
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

/* Where the first stop string begins, or length. */
static size_t find_stop(const struct tern_stream *stream, const char *text, size_t length)
{
    size_t first = length;
    for (int i = 0; i < stream->stop_count; i++) {
        const char *at = memmem(text, length, stream->stops[i], strlen(stream->stops[i]));
        if (at != NULL && (size_t)(at - text) < first) {
            first = (size_t)(at - text);
        }
    }
    return first;
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
        TERN_RETURN_IF_ERR(tern_text_append(out, pending->data, stop));
        pending->length = 0;
        return TERN_OK;
    }
    size_t hold = stop_tail(stream, pending->data, pending->length);
    size_t tail = incomplete_tail(pending->data, pending->length);
    hold = hold > tail ? hold : tail;
    size_t sure = pending->length - hold;
    /* a held stop prefix may begin inside a character */
    while (sure > 0 && sure < pending->length &&
           ((unsigned char)pending->data[sure] & 0xC0) == 0x80) {
        sure--;
    }
    TERN_RETURN_IF_ERR(tern_text_append(out, pending->data, sure));
    memmove(pending->data, pending->data + sure, pending->length - sure);
    pending->length -= sure;
    return TERN_OK;
}

tern_status tern_stream_finish(struct tern_stream *stream, struct tern_text *out)
{
    struct tern_text *pending = &stream->pending;
    size_t tail = pending->length > 0 ? incomplete_tail(pending->data, pending->length) : 0;
    if (stream->is_stopped || pending->length == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_text_append(out, pending->data, pending->length - tail));
    pending->length = 0;
    return tail > 0 ? tern_text_append(out, "\xEF\xBF\xBD", 3) : TERN_OK;
}
