/* stream.h - tokens' bytes on their way out: always UTF-8, never half a character, never part of a
 * stop string.
 *
 * Bytes that can be no character become U+FFFD. What comes out does not depend on how the bytes
 * were cut into tokens. */
#ifndef TERN_RUNTIME_GENERATE_STREAM_H
#define TERN_RUNTIME_GENERATE_STREAM_H

#include "runtime/base/text.h"

#include <stdbool.h>

enum {
    TERN_STOPS_MAX = 16
};

struct tern_stream {
    const char *stops[TERN_STOPS_MAX];
    int stop_count;
    struct tern_text pending; /* not yet decided */
    bool is_stopped;          /* a stop string came: nothing more is let through */
};

void tern_stream_init(struct tern_stream *stream);
void tern_stream_fini(struct tern_stream *stream);
/* Adds a token's bytes; appends to out what is now sure. */
TERN_MUST_CHECK tern_status tern_stream_push(struct tern_stream *stream,
                                             const char *bytes,
                                             size_t count,
                                             struct tern_text *out);
/* The end: appends what was held back. Nothing after a stop string. */
TERN_MUST_CHECK tern_status tern_stream_finish(struct tern_stream *stream, struct tern_text *out);

#endif
