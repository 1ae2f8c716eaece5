/* http_input.c - what a client sends: heads, bodies, whole requests to their handlers. Loop thread only. */
#include "runtime/serve/http_internal.h"

#include <stdio.h>
#include <string.h>

/* The request has its handler, on this thread or another. */
static void hand_over(struct tern_http_conn *conn)
{
    struct tern_http_reply *reply = conn->reply;
    tern_http_conn_enter(conn, TERN_HTTP_BUSY, 0);
    conn->ping_ns = tern_http_after(conn->http->options.ping_seconds);
    if (!reply->request.route->is_light) {
        tern_http_work_push(conn->http->work, reply);
        tern_http_conn_watch(conn);
        return;
    }
    reply->is_ready = true; /* no need to wake the loop: it is this thread */
    tern_http_work_run(reply);
    pthread_mutex_lock(&reply->lock);
    reply->is_ready = false;
    pthread_mutex_unlock(&reply->lock);
    tern_http_conn_send(conn);
}

/* The server answers by itself; the request goes to no handler. */
static void answer(struct tern_http_conn *conn, int status, const char *message)
{
    struct tern_http_reply *reply = conn->reply;
    tern_http_conn_enter(conn, TERN_HTTP_BUSY, 0);
    reply->is_ready = true;
    if (status == 204) {
        tern_http_reply_send(reply, status, NULL, "", 0);
    } else {
        if (status == 503) {
            tern_http_reply_header(reply, "Retry-After", "1");
        }
        tern_http_reply_error(reply, status, message);
    }
    tern_http_reply_handled(reply);
    tern_http_conn_send(conn);
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

void tern_http_input_refuse(struct tern_http_conn *conn, int status, const char *message)
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
        tern_http_input_refuse(conn, 400, "a target that is neither a path nor an http URL");
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
        tern_http_input_refuse(conn, tern_http_parse_status(conn->parse),
                               tern_http_parse_reason(conn->parse));
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
    tern_http_conn_enter(conn, TERN_HTTP_BODY, http->options.body_seconds);
    if (message->expects_continue && !has_more) {
        if (conn->route_status != 200) {
            conn->keep_alive = false; /* the body may come or not */
            dispatch(conn);
        } else if (tern_text_printf(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n") != TERN_OK) {
            tern_http_conn_kill(conn);
        } else {
            tern_http_conn_flush(conn);
        }
    }
}

/* Returns how many of the bytes were taken. */
static size_t head_input(struct tern_http_conn *conn, const char *bytes, size_t count)
{
    size_t used;
    if (conn->phase == TERN_HTTP_IDLE) {
        tern_http_conn_enter(conn, TERN_HTTP_HEAD, conn->http->options.head_seconds);
    }
    switch (tern_http_head_feed(&conn->head, &conn->http->head_limits, bytes, count, &used)) {
    case TERN_HTTP_HEAD_BAD:
        tern_http_input_refuse(conn, conn->head.status, conn->head.reason);
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
        tern_http_input_refuse(conn, tern_http_parse_status(conn->parse),
                               tern_http_parse_reason(conn->parse));
        return count;
    case TERN_HTTP_PARSE_MORE:
        if (!count_body(conn)) {
            tern_http_input_refuse(conn, 503, "too many long requests at once");
        }
        return count;
    default:
        break;
    }
    if (count_body(conn)) {
        dispatch(conn);
    } else {
        tern_http_input_refuse(conn, 503, "too many long requests at once");
    }
    return used;
}

void tern_http_input(struct tern_http_conn *conn, const char *bytes, size_t count)
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
    tern_http_conn_watch(conn);
}

void tern_http_input_resume(struct tern_http_conn *conn)
{
    if (!conn->is_dead && conn->phase == TERN_HTTP_IDLE && conn->in.length > 0) {
        struct tern_text waiting = conn->in;
        conn->in = (struct tern_text){0};
        tern_http_input(conn, waiting.data, waiting.length);
        tern_text_fini(&waiting);
    }
}
