/* line.c - sending and receiving without waiting. */
#include "runtime/reclaim/line.h"

#include "comm/socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SEND_MS_MAX = 500,
    BEAT_BYTES = offsetof(struct tern_line_message, text) /* a message without its text */
};

void tern_line_lose(struct tern_line *line)
{
    if (line->fd >= 0) {
        close(line->fd);
        line->fd = -1;
        line->is_lost = true;
    }
}

/* What is left of the last message; false while it does not fit. */
static bool flush(struct tern_line *line)
{
    while (line->fd >= 0 && line->out_at < line->out_end) {
        ssize_t n = send(line->fd, (char *)&line->out + line->out_at, line->out_end - line->out_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            line->out_at += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            return false; /* a broken line is found by reading, which first gives what arrived */
        }
    }
    return true;
}

static size_t bytes_of(const struct tern_line_message *message)
{
    return message->has_verdict ? sizeof *message : (size_t)BEAT_BYTES;
}

void tern_line_post(struct tern_line *line, const struct tern_line_message *message)
{
    if (line->fd < 0 || !flush(line)) {
        return;
    }
    line->out = *message;
    line->out_at = 0;
    line->out_end = bytes_of(message);
    flush(line);
}

void tern_line_post_surely(struct tern_line *line, const struct tern_line_message *message)
{
    int64_t until = tern_socket_now_ns() + (int64_t)SEND_MS_MAX * 1000000;
    for (int pass = 0; pass < 2; pass++) { /* what was on its way, then this */
        while (line->fd >= 0 && !flush(line) && tern_socket_now_ns() < until) {
            struct pollfd p = {.fd = line->fd, .events = POLLOUT};
            if (poll(&p, 1, 10) < 0 || (p.revents & (POLLERR | POLLHUP)) != 0) {
                return;
            }
        }
        if (pass == 0) {
            tern_line_post(line, message);
        }
    }
}

bool tern_line_receive(struct tern_line *line)
{
    while (line->fd >= 0) {
        /* how long it is says its beginning */
        size_t wanted = line->in_used < BEAT_BYTES ? (size_t)BEAT_BYTES : bytes_of(&line->in);
        if (line->in_used > 0 && line->in_used == wanted) {
            line->in_used = 0;
            return true;
        }
        ssize_t n =
            recv(line->fd, (char *)&line->in + line->in_used, wanted - line->in_used, MSG_DONTWAIT);
        if (n > 0) {
            line->in_used += (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            return false;
        } else if (n == 0 || errno != EINTR) {
            tern_line_lose(line);
        }
    }
    return false;
}
