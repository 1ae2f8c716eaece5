/* http_conn.c - one connection: its life, its deadlines, bytes from and to its socket. Loop thread only. */
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/serve/http_internal.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES =
        16 << 10, /* at once of a head: what may be left over for later; a TLS record's most */
    DRAIN_BYTES_S = 16 << 10, /* of a whole answer: the client takes at least so much a second */
    OUT_KEPT_BYTES = 4 << 10, /* of an empty buffer that an idle connection keeps */
    LINGER_SECONDS = 2,
    LINGER_READS = 16, /* a turn of the loop */
};

static const int64_t second_ns = 1000000000;

int64_t tern_http_after(double seconds)
{
    return tern_clock_ns() + (int64_t)(seconds * (double)second_ns);
}

static bool has_out(const struct tern_http_conn *conn)
{
    return conn->out_at < conn->out.length;
}

void tern_http_conn_watch(struct tern_http_conn *conn)
{
    uint32_t out = has_out(conn) ? EPOLLOUT : 0;
    uint32_t wanted = 0;
    switch (conn->phase) {
    case TERN_HTTP_HANDSHAKE:
        wanted = conn->wants_write ? EPOLLOUT : EPOLLIN | EPOLLRDHUP;
        break;
    case TERN_HTTP_IDLE:
    case TERN_HTTP_HEAD:
    case TERN_HTTP_BODY:
        wanted = EPOLLIN | EPOLLRDHUP | out;
        break;
    case TERN_HTTP_BUSY:
        wanted = EPOLLRDHUP | out;
        break;
    case TERN_HTTP_FLUSH:
        wanted = out;
        break;
    case TERN_HTTP_LINGER:
        wanted = EPOLLIN | EPOLLRDHUP;
        break;
    }
    if (wanted != conn->events && !conn->is_dead) {
        struct epoll_event event = {.events = wanted, .data.ptr = conn};
        int operation = conn->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
        conn->events = wanted;
        if (epoll_ctl(conn->http->epoll_fd, operation, conn->fd, &event) != 0) {
            tern_http_conn_kill(conn);
        }
    }
}

void tern_http_conn_enter(struct tern_http_conn *conn, enum tern_http_phase phase, double seconds)
{
    conn->phase = phase;
    conn->deadline_ns = seconds > 0 ? tern_http_after(seconds) : INT64_MAX;
}

void tern_http_conn_open(struct tern_http *http, int fd)
{
    struct tern_http_conn *conn = tern_alloc_zero("http connection", 1, sizeof *conn);
    if (conn == NULL) {
        close(fd);
        return;
    }
    conn->http = http;
    conn->fd = fd;
    conn->stall_ns = INT64_MAX;
    conn->next = http->conns;
    if (conn->next != NULL) {
        conn->next->prev = conn;
    }
    http->conns = conn;
    atomic_fetch_add(&http->connections, 1);
    atomic_fetch_add(&http->connections_total, 1);
    if (http->tls != NULL) {
        conn->tls = tern_http_tls_open(http->tls, fd);
        if (conn->tls == NULL) {
            tern_http_conn_kill(conn);
            return;
        }
        tern_http_conn_enter(conn, TERN_HTTP_HANDSHAKE, http->options.head_seconds);
    } else {
        tern_http_conn_enter(conn, TERN_HTTP_IDLE, http->options.idle_seconds);
    }
    tern_http_conn_watch(conn);
}

void tern_http_conn_kill(struct tern_http_conn *conn)
{
    struct tern_http *http = conn->http;
    if (conn->is_dead) {
        return;
    }
    conn->is_dead = true;
    if (conn->prev != NULL) {
        conn->prev->next = conn->next;
    } else {
        http->conns = conn->next;
    }
    if (conn->next != NULL) {
        conn->next->prev = conn->prev;
    }
    conn->next_dead = http->dead;
    http->dead = conn;
    if (conn->tls != NULL) {
        tern_http_tls_close(conn->tls);
    }
    close(conn->fd);
    tern_text_fini(&conn->in);
    tern_text_fini(&conn->out);
    tern_http_parse_destroy(conn->parse);
    struct tern_http_reply *reply = conn->reply;
    if (reply != NULL) {
        reply->conn = NULL;
        if (conn->phase == TERN_HTTP_BUSY) {
            atomic_fetch_add(&http->gone_total, 1);
        }
        tern_http_reply_leave(reply);
        if (conn->phase != TERN_HTTP_BUSY) {
            tern_http_reply_handled(reply); /* it never came to a handler */
        }
        tern_http_reply_server_release(reply);
    }
    atomic_fetch_sub(&http->connections, 1);
}

/* ---- out ---- */

static ssize_t send_some(struct tern_http_conn *conn)
{
    const char *bytes = conn->out.data + conn->out_at;
    size_t count = conn->out.length - conn->out_at;
    return conn->tls != NULL ? tern_http_tls_send(conn->tls, bytes, count)
                             : send(conn->fd, bytes, count, MSG_NOSIGNAL);
}

bool tern_http_conn_flush(struct tern_http_conn *conn)
{
    if (!has_out(conn)) {
        return !conn->is_dead;
    }
    const struct tern_http_options *options = &conn->http->options;
    bool moved = false;
    while (has_out(conn)) {
        ssize_t sent = send_some(conn);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (moved || conn->stall_ns == INT64_MAX) {
                conn->stall_ns = tern_http_after(options->write_seconds);
            }
            tern_http_conn_watch(conn);
            return false;
        }
        if (sent < 0) {
            tern_http_conn_kill(conn);
            return false;
        }
        conn->out_at += (size_t)sent;
        moved = true;
    }
    conn->out.length = conn->out_at = 0;
    conn->stall_ns = INT64_MAX;
    conn->ping_ns = tern_http_after(options->ping_seconds);
    if (conn->out.capacity > OUT_KEPT_BYTES) {
        tern_text_fini(&conn->out);
    }
    return true;
}

/* No answer will follow: says so, and drops what still comes for a while. */
static void linger(struct tern_http_conn *conn)
{
    if (conn->tls != NULL) {
        tern_http_tls_shutdown(conn->tls);
    }
    shutdown(conn->fd, SHUT_WR);
    tern_text_fini(&conn->in);
    tern_http_conn_enter(conn, TERN_HTTP_LINGER, LINGER_SECONDS);
}

/* The answer is whole and in out: the reply's work is done. */
static void detach(struct tern_http_conn *conn)
{
    struct tern_http_reply *reply = conn->reply;
    conn->reply = NULL;
    reply->conn = NULL;
    tern_http_reply_leave(reply);
    tern_http_reply_server_release(reply);
    size_t rest = conn->out.length - conn->out_at;
    tern_http_conn_enter(conn, TERN_HTTP_FLUSH,
                         conn->http->options.write_seconds + (double)rest / (double)DRAIN_BYTES_S);
}

void tern_http_conn_send(struct tern_http_conn *conn)
{
    while (tern_http_conn_flush(conn)) {
        if (conn->phase == TERN_HTTP_FLUSH) {
            if (conn->keep_alive) {
                tern_http_conn_enter(conn, TERN_HTTP_IDLE, conn->http->options.idle_seconds);
            } else {
                linger(conn);
            }
            break;
        }
        if (conn->phase != TERN_HTTP_BUSY) {
            break;
        }
        conn->keep_alive = conn->keep_alive && !conn->http->is_stopping;
        enum tern_http_take taken =
            tern_http_reply_take(conn->reply, &conn->keep_alive, &conn->out);
        if (taken == TERN_HTTP_TAKE_NOTHING) {
            break;
        }
        if (taken == TERN_HTTP_TAKE_CUT) {
            tern_http_conn_kill(conn);
            break;
        }
        if (taken == TERN_HTTP_TAKE_LAST) {
            detach(conn);
        }
    }
    tern_http_conn_watch(conn);
}

/* ---- in ---- */

static ssize_t receive(struct tern_http_conn *conn, size_t count)
{
    char *bytes = conn->http->scratch;
    return conn->tls != NULL ? tern_http_tls_recv(conn->tls, bytes, count)
                             : recv(conn->fd, bytes, count, 0);
}

static void read_some(struct tern_http_conn *conn)
{
    bool is_body = conn->phase == TERN_HTTP_BODY;
    ssize_t got = receive(conn, is_body ? TERN_HTTP_SCRATCH_BYTES : READ_BYTES);
    if (got > 0) {
        tern_http_input(conn, conn->http->scratch, (size_t)got);
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        tern_http_conn_kill(conn);
    }
}

static void drop_some(struct tern_http_conn *conn)
{
    for (int i = 0; i < LINGER_READS; i++) {
        ssize_t got = recv(conn->fd, conn->http->scratch, TERN_HTTP_SCRATCH_BYTES, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            return;
        }
        if (got <= 0) {
            tern_http_conn_kill(conn);
            return;
        }
    }
}

static void shake_hands(struct tern_http_conn *conn)
{
    enum tern_http_tls_result result = tern_http_tls_handshake(conn->tls);
    if (result == TERN_HTTP_TLS_FAILED) {
        tern_http_conn_kill(conn);
        return;
    }
    conn->wants_write = result == TERN_HTTP_TLS_WANTS_WRITE;
    if (result == TERN_HTTP_TLS_DONE) {
        conn->phase = TERN_HTTP_IDLE; /* with the deadline that it has: a request must come soon */
    }
    tern_http_conn_watch(conn);
}

/* ---- from the loop ---- */

void tern_http_conn_pump(struct tern_http_conn *conn)
{
    tern_http_conn_send(conn);
    tern_http_input_resume(conn);
}

void tern_http_conn_event(struct tern_http_conn *conn, uint32_t events)
{
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
        tern_http_conn_kill(conn);
        return;
    }
    switch (conn->phase) {
    case TERN_HTTP_HANDSHAKE:
        shake_hands(conn);
        return;
    case TERN_HTTP_BUSY:
        if ((events & EPOLLRDHUP) != 0) {
            tern_http_conn_kill(conn); /* the client has left */
            return;
        }
        break;
    case TERN_HTTP_LINGER:
        drop_some(conn);
        return;
    default:
        break;
    }
    if ((events & EPOLLOUT) != 0) {
        tern_http_conn_pump(conn);
    }
    if ((events & EPOLLIN) != 0 && !conn->is_dead && conn->phase >= TERN_HTTP_IDLE &&
        conn->phase <= TERN_HTTP_BODY) {
        read_some(conn);
    }
}

void tern_http_conn_tick(struct tern_http_conn *conn, int64_t now_ns)
{
    if (now_ns >= conn->stall_ns) {
        tern_http_conn_kill(conn);
    } else if (now_ns >= conn->deadline_ns) {
        if (conn->phase == TERN_HTTP_HEAD || conn->phase == TERN_HTTP_BODY) {
            tern_http_input_refuse(conn, 408, "the request did not come in time");
        } else {
            tern_http_conn_kill(conn);
        }
    } else if (conn->phase == TERN_HTTP_BUSY && now_ns >= conn->ping_ns && !has_out(conn)) {
        conn->ping_ns = tern_http_after(conn->http->options.ping_seconds);
        if (tern_http_reply_ping(conn->reply, &conn->out)) {
            tern_http_conn_send(conn);
        }
    }
}

void tern_http_conn_retire(struct tern_http_conn *conn)
{
    if (conn->phase == TERN_HTTP_HANDSHAKE || conn->phase == TERN_HTTP_IDLE) {
        tern_http_conn_kill(conn);
    }
}
