/* line.h - one connection of the heartbeat: messages of where a rank is, and at last a verdict. Nothing here waits but
 * tern_line_post_surely, and that not for long. */
#ifndef TERN_RUNTIME_RECLAIM_LINE_H
#define TERN_RUNTIME_RECLAIM_LINE_H

#include "runtime/reclaim/pulse.h"

#include <stddef.h>

/* The text is a verdict's, and travels only with one. */
struct tern_line_message {
    int32_t has_verdict;
    int32_t status;
    struct tern_pulse pulse;
    char text[TERN_PULSE_SENTENCE_BYTES];
};

struct tern_line {
    int fd;       /* -1: none */
    bool is_lost; /* it broke */
    struct tern_line_message in, out;
    size_t in_used, out_at, out_end; /* of out: what has gone, and where it ends */
};

/* Closes it. */
void tern_line_lose(struct tern_line *line);
/* A message that finds the last one still on its way is left out: the next says it all. */
void tern_line_post(struct tern_line *line, const struct tern_line_message *message);
/* Waits for room, a while. */
void tern_line_post_surely(struct tern_line *line, const struct tern_line_message *message);
/* True: another whole message is in line->in. False: none yet, or the line is lost. */
bool tern_line_receive(struct tern_line *line);

#endif
