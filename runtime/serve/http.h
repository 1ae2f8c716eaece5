/* http.h - an HTTP/1.1 server for few routes and many slow streams: one epoll loop that reads, checks and writes, a few
 * worker threads that run the handlers, and replies that any thread may fill.
 *
 * What it promises: limits and absolute deadlines on all that a client can send or leave unread; requests that two
 * parsers could read in two ways are refused; a client that leaves is seen within one turn of the loop, in
 * every phase, whether or not something is being sent. A half-closed connection (FIN from the client) counts as left,
 * unless the answer was made on the loop thread. Nothing here knows what is served.
 *
 * Every answer carries x-request-id: the client's own, when it is 1 to 128 of [A-Za-z0-9._:-], else a new one. */
#ifndef TERN_RUNTIME_SERVE_HTTP_H
#define TERN_RUNTIME_SERVE_HTTP_H

#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_http;
struct tern_http_request;
struct tern_http_reply;

enum tern_http_method {
    TERN_HTTP_GET = 1,
    TERN_HTTP_POST = 2,
    TERN_HTTP_PUT = 4,
    TERN_HTTP_PATCH = 8,
    TERN_HTTP_DELETE = 16,
};

/* Answers a request, now or later: whoever answers later retains the reply before the handler returns. A reply that is
 * let go unanswered becomes a 500 (or a cut stream). `request` is valid until the handler returns. */
typedef void (*tern_http_handler)(void *context,
                                  const struct tern_http_request *request,
                                  struct tern_http_reply *reply);

/* HEAD goes where GET goes and loses the body; OPTIONS, 404 and 405 (with Allow) are answered by the server. */
struct tern_http_route {
    const char *path; /* whole path, or a beginning that ends in "*": "/v1/models/" then "*" */
    unsigned methods; /* of enum tern_http_method, or-ed */
    bool is_light;    /* on the loop thread, at once: must not block, answers before it returns */
    tern_http_handler handle;
};

struct tern_http_options {
    const char *host; /* name or address; NULL: 127.0.0.1. A name is served on all its addresses. */
    int port;         /* 0: any free one */
    const struct tern_http_route
        *routes; /* borrowed for the server's life; the first that fits is taken */
    size_t route_count;
    void *context; /* of handlers and of error_body */
    /* Writes the body of an error that the server itself answers (application/json); NULL: {"error": {"message": ..,
     * "code": status}}. On the loop thread. */
    tern_status (*error_body)(void *context,
                              int status,
                              const char *message,
                              struct tern_text *out);
    const char *cert_file; /* PEM chain and key: TLS 1.2 or newer; NULL: plain */
    const char *key_file;
    int workers; /* threads that run handlers; 0: 2 */
    /* Limits; 0: the value in brackets. */
    int connections_max;     /* [3000] then 503 and close */
    int headers_max;         /* [100] then 431 */
    size_t request_line_max; /* [8 KiB] then 414 */
    size_t head_bytes_max;   /* [16 KiB] then 431 */
    size_t body_bytes_max;   /* [4 MiB] then 413 */
    size_t bodies_bytes_max; /* [256 MiB] of all bodies that are held; then 503 */
    size_t
        backlog_bytes_max; /* [256 KiB] of a stream that a client does not read; then it is cut */
    /* Deadlines in seconds, absolute. None runs while a request waits for its answer. 0: the value in brackets. */
    double
        head_seconds; /* [10] from a request's first byte (TLS: from accept) to the end of its head */
    double body_seconds;  /* [20] from there to the end of its body */
    double idle_seconds;  /* [30] between requests */
    double write_seconds; /* [20] without one byte taken by the client */
    double ping_seconds;  /* [15] of silence in a text/event-stream, then the comment ": ping" */
};

/* Binds and listens (connections wait in the backlog until tern_http_run). TERN_ERR_USAGE, TERN_ERR_IO and the like
 * name host and port, or the certificate file. Owned: destroy, after run has returned. */
TERN_MUST_CHECK tern_status tern_http_create(const struct tern_http_options *options,
                                             struct tern_http **out);
void tern_http_destroy(struct tern_http *http);
int tern_http_port(const struct tern_http *http);
/* Serves on the calling thread until stopped. */
TERN_MUST_CHECK tern_status tern_http_run(struct tern_http *http);
/* From any thread or signal handler: refuses new connections, closes the idle ones, gives the others `seconds` to
 * end and then cuts them. A later call may shorten that, down to 0. (To answer 503 on open ports while a queue drains,
 * drain first and stop then.) */
void tern_http_stop(struct tern_http *http, double seconds);

struct tern_http_stats {
    int64_t connections;       /* open now */
    int64_t connections_total; /* accepted since the start */
    int64_t connections_refused;
    int64_t requests_total; /* whole heads that passed the checks */
    int64_t errors_total;   /* answers of the server itself: 4xx and 5xx */
    int64_t gone_total;     /* clients that left while their request was being answered */
    int64_t body_bytes;     /* held now, of all requests */
};
void tern_http_stats(const struct tern_http *http, struct tern_http_stats *out);

/* ---- request ---- */

const char *tern_http_request_method(
    const struct tern_http_request *request); /* "GET", "HEAD", ... */
/* Percent-escapes resolved, without the query; begins with "/". */
const char *tern_http_request_path(const struct tern_http_request *request);
/* What "*" of the route stood for; "" for a route without one. */
const char *tern_http_request_rest(const struct tern_http_request *request);
/* After "?", as sent; "" if there is none. */
const char *tern_http_request_query(const struct tern_http_request *request);
/* Value of the first header of that name (any case), without the blanks around it; NULL: none. */
const char *tern_http_request_header(const struct tern_http_request *request, const char *name);
/* Not NUL-terminated by contract; never NULL. */
const void *tern_http_request_body(const struct tern_http_request *request, size_t *bytes_out);

/* ---- reply: any thread; calls of one reply may come from several threads ---- */

/* The x-request-id; valid as long as the reply is. */
const char *tern_http_reply_id(const struct tern_http_reply *reply);
/* A header more, before send or begin; names and values of ours, not a client's. (Out of memory, here and below: the connection is cut.) */
void tern_http_reply_header(struct tern_http_reply *reply, const char *name, const char *value);
/* The whole answer, copied; content_type NULL for none. Does nothing when the client has left. Answered twice: a bug, checked. */
void tern_http_reply_send(struct tern_http_reply *reply,
                          int status,
                          const char *content_type,
                          const void *body,
                          size_t bytes);
/* An answer in pieces: begin, write..., end. In a text/event-stream every write holds whole events. write says false
 * when the client has left or was cut: nothing more needs to be made. */
void tern_http_reply_begin(struct tern_http_reply *reply, int status, const char *content_type);
bool tern_http_reply_write(struct tern_http_reply *reply, const void *bytes, size_t count);
void tern_http_reply_end(struct tern_http_reply *reply);
/* gone(context): the client left before the answer was whole: at most once, on the loop thread (or at once on the
 * caller's, if it has left already); must not block. release(context), may be NULL: once, when the last
 * reference of the reply is let go, after gone: the context lives as long as the reply. One call a reply. */
void tern_http_reply_on_gone(struct tern_http_reply *reply,
                             void (*gone)(void *context),
                             void (*release)(void *context),
                             void *context);
bool tern_http_reply_is_gone(struct tern_http_reply *reply);
void tern_http_reply_retain(struct tern_http_reply *reply);
void tern_http_reply_release(struct tern_http_reply *reply);

#endif
