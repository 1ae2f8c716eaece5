/* http_conn.c - one connection: bytes in, requests out to their handlers, answers back, deadlines. Loop thread only. */
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/serve/http_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
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

static int64_t after(double seconds)
{
    return tern_clock_ns() + (int64_t)(seconds * (double)second_ns);
}

static bool has_out(const struct tern_http_conn *conn)
{
    return conn->out_at < conn->out.length;
}

/* Registers with epoll what the phase waits for. */
static void set_events(struct tern_http_conn *conn)
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

/* The phase and when it must have ended; seconds 0: never. */
static void enter(struct tern_http_conn *conn, enum tern_http_phase phase, double seconds)
{
    conn->phase = phase;
    conn->deadline_ns = seconds > 0 ? after(seconds) : INT64_MAX;
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
        enter(conn, TERN_HTTP_HANDSHAKE, http->options.head_seconds);
    } else {
        enter(conn, TERN_HTTP_IDLE, http->options.idle_seconds);
    }
    set_events(conn);
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

/* Sends what out holds. False: the rest must wait for the client, or the connection is dead. */
static bool flush(struct tern_http_conn *conn)
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
                conn->stall_ns = after(options->write_seconds);
            }
            set_events(conn);
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
    conn->ping_ns = after(options->ping_seconds);
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
    enter(conn, TERN_HTTP_LINGER, LINGER_SECONDS);
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
    enter(conn, TERN_HTTP_FLUSH,
          conn->http->options.write_seconds + (double)rest / (double)DRAIN_BYTES_S);
}

/* Takes from the reply and sends until there is nothing more, the client is full, or the answer is out; then the phase is
 * IDLE or LINGER. */
static void pump(struct tern_http_conn *conn)
{
    while (flush(conn)) {
        if (conn->phase == TERN_HTTP_FLUSH) {
            if (conn->keep_alive) {
                enter(conn, TERN_HTTP_IDLE, conn->http->options.idle_seconds);
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
    set_events(conn);
}

/* ---- in ---- */

/* The request has its handler, on this thread or another. */
static void hand_over(struct tern_http_conn *conn)
{
    struct tern_http_reply *reply = conn->reply;
    enter(conn, TERN_HTTP_BUSY, 0);
    conn->ping_ns = after(conn->http->options.ping_seconds);
    if (!reply->request.route->is_light) {
        tern_http_work_push(conn->http->work, reply);
        set_events(conn);
        return;
    }
    reply->is_ready = true; /* no need to wake the loop: it is this thread */
    tern_http_work_run(reply);
    pthread_mutex_lock(&reply->lock);
    reply->is_ready = false;
    pthread_mutex_unlock(&reply->lock);
    pump(conn);
}

/* The server answers by itself; the request goes to no handler. */
static void answer(struct tern_http_conn *conn, int status, const char *message)
{
    struct tern_http_reply *reply = conn->reply;
    enter(conn, TERN_HTTP_BUSY, 0);
    reply->is_ready = true;
    if (status == 204) {
        tern_http_reply_send(reply, status, NULL, "", 0);
    } else {
        tern_http_reply_error(reply, status, message);
    }
    tern_http_reply_handled(reply);
    pump(conn);
}

static bool is_id(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length < TERN_HTTP_ID_BYTES &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") ==
               length;
}

/* The client's id, or a new one: unguessable, and no two alike (a bijection of a counter). */
static void give_id(struct tern_http *http, struct tern_http_reply *reply)
{
    const char *theirs = reply->request.message.field_count > 0
                             ? tern_http_request_header(&reply->request, "x-request-id")
                             : NULL;
    if (theirs != NULL && is_id(theirs)) {
        memcpy(reply->id, theirs, strlen(theirs) + 1);
        return;
    }
    uint64_t x = http->id_seed + ++http->id_next * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    snprintf(reply->id, sizeof reply->id, "req-%016llx", (unsigned long long)(x ^ (x >> 31)));
}

static bool begin_reply(struct tern_http_conn *conn)
{
    conn->reply = tern_http_reply_create(conn->http);
    if (conn->reply == NULL) {
        return false;
    }
    conn->reply->conn = conn;
    return true;
}

/* Answers and closes: what follows on this connection cannot be trusted, or is not wanted. */
static void refuse(struct tern_http_conn *conn, int status, const char *message)
{
    conn->keep_alive = false;
    if (conn->reply == NULL && !begin_reply(conn)) {
        tern_http_conn_kill(conn);
        return;
    }
    if (conn->reply->id[0] == '\0') {
        give_id(conn->http, conn->reply);
    }
    answer(conn, status, message);
}

/* Routes a request whose head is known. False: it has been refused. */
static bool route(struct tern_http_conn *conn, char allow[TERN_HTTP_ALLOW_BYTES], int *status_out)
{
    struct tern_http *http = conn->http;
    struct tern_http_request *request = &conn->reply->request;
    if (!tern_http_request_target(request)) {
        refuse(conn, 400, "a target that is neither a path nor an http URL");
        return false;
    }
    conn->reply->is_head = request->is_head;
    conn->reply->is_1_0 = request->message.is_1_0;
    conn->keep_alive = request->message.keep_alive;
    *status_out =
        tern_http_request_route(request, http->options.routes, http->options.route_count, allow);
    if (*status_out == 405 || request->is_options) {
        tern_http_reply_header(conn->reply, "Allow", allow);
    }
    return true;
}

/* A whole request. */
static void dispatch(struct tern_http_conn *conn)
{
    switch (conn->route_status) {
    case 404:
        answer(conn, 404, "there is nothing at this path");
        break;
    case 405:
        answer(conn, 405, "this path does not take this method");
        break;
    default:
        if (conn->reply->request.is_options) {
            answer(conn, 204, NULL);
        } else {
            hand_over(conn);
        }
    }
}

/* The head's bytes are whole and have passed the lexical check. */
static void parse_head(struct tern_http_conn *conn, const char *bytes, size_t count, bool has_more)
{
    struct tern_http *http = conn->http;
    if ((conn->parse == NULL && tern_http_parse_create(&conn->parse) != TERN_OK) ||
        !begin_reply(conn)) {
        tern_http_conn_kill(conn);
        return;
    }
    struct tern_http_message *message = &conn->reply->request.message;
    enum tern_http_parse_result result = tern_http_parse_head(
        conn->parse, message, bytes, count, conn->head.headers, http->options.body_bytes_max);
    conn->head = (struct tern_http_head){0};
    if (result == TERN_HTTP_PARSE_BAD) {
        refuse(conn, tern_http_parse_status(conn->parse), tern_http_parse_reason(conn->parse));
        return;
    }
    give_id(http, conn->reply);
    atomic_fetch_add(&http->requests_total, 1);
    char allow[TERN_HTTP_ALLOW_BYTES];
    if (!route(conn, allow, &conn->route_status)) {
        return;
    }
    if (result == TERN_HTTP_PARSE_WHOLE) {
        dispatch(conn);
        return;
    }
    enter(conn, TERN_HTTP_BODY, http->options.body_seconds);
    if (message->expects_continue && !has_more) {
        if (conn->route_status != 200) {
            conn->keep_alive = false; /* the body may come or not */
            dispatch(conn);
        } else if (tern_text_printf(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n") != TERN_OK) {
            tern_http_conn_kill(conn);
        } else {
            flush(conn);
        }
    }
}

/* Returns how many of the bytes were taken. */
static size_t head_input(struct tern_http_conn *conn, const char *bytes, size_t count)
{
    size_t used;
    if (conn->phase == TERN_HTTP_IDLE) {
        enter(conn, TERN_HTTP_HEAD, conn->http->options.head_seconds);
    }
    switch (tern_http_head_feed(&conn->head, &conn->http->head_limits, bytes, count, &used)) {
    case TERN_HTTP_HEAD_BAD:
        refuse(conn, conn->head.status, conn->head.reason);
        return count;
    case TERN_HTTP_HEAD_MORE:
        if (tern_text_append(&conn->in, bytes, used) != TERN_OK) {
            tern_http_conn_kill(conn);
        }
        return count;
    default:
        break;
    }
    struct tern_text whole = {0};
    if (conn->in.length > 0) {
        if (tern_text_append(&conn->in, bytes, used) != TERN_OK) {
            tern_http_conn_kill(conn);
            return count;
        }
        whole = conn->in;
        conn->in = (struct tern_text){0};
    }
    parse_head(conn, whole.length > 0 ? whole.data : bytes, whole.length > 0 ? whole.length : used,
               used < count);
    tern_text_fini(&whole);
    return used;
}

/* Keeps count of what all bodies hold. False: that is too much. */
static bool count_body(struct tern_http_conn *conn)
{
    struct tern_http *http = conn->http;
    struct tern_http_reply *reply = conn->reply;
    size_t holds = reply->request.message.body.capacity;
    long long grown = (long long)holds - (long long)reply->counted_bytes;
    reply->counted_bytes = holds;
    return grown == 0 || atomic_fetch_add(&http->body_bytes, grown) + grown <=
                             (long long)http->options.bodies_bytes_max;
}

static size_t body_input(struct tern_http_conn *conn, const char *bytes, size_t count)
{
    size_t used;
    switch (tern_http_parse_body(conn->parse, bytes, count, &used)) {
    case TERN_HTTP_PARSE_BAD:
        refuse(conn, tern_http_parse_status(conn->parse), tern_http_parse_reason(conn->parse));
        return count;
    case TERN_HTTP_PARSE_MORE:
        if (!count_body(conn)) {
            refuse(conn, 503, "too many long requests at once");
        }
        return count;
    default:
        break;
    }
    if (count_body(conn)) {
        dispatch(conn);
    } else {
        refuse(conn, 503, "too many long requests at once");
    }
    return used;
}

static void input(struct tern_http_conn *conn, const char *bytes, size_t count)
{
    while (count > 0 && !conn->is_dead && conn->phase >= TERN_HTTP_IDLE &&
           conn->phase <= TERN_HTTP_BODY) {
        size_t used = conn->phase == TERN_HTTP_BODY ? body_input(conn, bytes, count)
                                                    : head_input(conn, bytes, count);
        bytes += used;
        count -= used;
    }
    if (count > 0 && !conn->is_dead && conn->keep_alive &&
        tern_text_append(&conn->in, bytes, count) != TERN_OK) {
        tern_http_conn_kill(conn); /* pipelined bytes must wait, and there is no room */
    }
    set_events(conn);
}

/* After an answer: what had come behind its request. */
static void resume(struct tern_http_conn *conn)
{
    if (!conn->is_dead && conn->phase == TERN_HTTP_IDLE && conn->in.length > 0) {
        struct tern_text waiting = conn->in;
        conn->in = (struct tern_text){0};
        input(conn, waiting.data, waiting.length);
        tern_text_fini(&waiting);
    }
}

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
        input(conn, conn->http->scratch, (size_t)got);
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
    set_events(conn);
}

/* ---- from the loop ---- */

void tern_http_conn_pump(struct tern_http_conn *conn)
{
    pump(conn);
    resume(conn);
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
            refuse(conn, 408, "the request did not come in time");
        } else {
            tern_http_conn_kill(conn);
        }
    } else if (conn->phase == TERN_HTTP_BUSY && now_ns >= conn->ping_ns && !has_out(conn)) {
        conn->ping_ns = after(conn->http->options.ping_seconds);
        if (tern_http_reply_ping(conn->reply, &conn->out)) {
            pump(conn);
        }
    }
}

void tern_http_conn_retire(struct tern_http_conn *conn)
{
    if (conn->phase == TERN_HTTP_HANDSHAKE || conn->phase == TERN_HTTP_IDLE) {
        tern_http_conn_kill(conn);
    }
}
