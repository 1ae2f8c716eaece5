/* http_internal.h - the parts of the HTTP server for one another.
 *
 * Threads: the loop thread owns every connection. A reply is shared: its fields below `lock` belong to whoever holds that.
 * Lock order: a reply's lock, then the ready list's. Callbacks are called with no lock held. */
#ifndef TERN_RUNTIME_SERVE_HTTP_INTERNAL_H
#define TERN_RUNTIME_SERVE_HTTP_INTERNAL_H

#include "runtime/serve/http.h"
#include "runtime/serve/http_head.h"
#include "runtime/serve/http_request.h"
#include "runtime/serve/http_tls.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TERN_HTTP_ID_BYTES = 129,
    TERN_HTTP_LISTENERS_MAX = 8,
    TERN_HTTP_SCRATCH_BYTES = 64 << 10,
};

/* ---- replies (http_reply.c) ---- */

enum tern_http_reply_state {
    TERN_HTTP_REPLY_NEW,
    TERN_HTTP_REPLY_STREAM,
    TERN_HTTP_REPLY_WHOLE,
};

struct tern_http_reply {
    struct tern_http *http;
    char id[TERN_HTTP_ID_BYTES];
    struct tern_http_request request; /* its texts end with the handler */
    bool is_head, is_1_0;             /* of the request, kept beyond it */
    struct tern_http_conn *conn;      /* loop thread only; NULL once the connection is closed */
    struct tern_http_reply *next;     /* in the ready list or the workers' queue */
    size_t counted_bytes;             /* of the body in http->body_bytes */

    pthread_mutex_t lock;
    int users;       /* the handler and who retained */
    int server_refs; /* the connection, the ready list */
    enum tern_http_reply_state state;
    int status;
    bool head_sent;
    bool is_sized; /* sent whole: Content-Length, no chunks */
    bool is_events;
    bool is_gone;
    bool is_ready;            /* in the ready list */
    bool is_dropped;          /* let go unfinished: a 500, or the connection is cut */
    bool is_broken;           /* out of memory: the connection is cut */
    bool is_cut;              /* the client reads too slowly */
    char content_type[64];    /* "": none */
    struct tern_text headers; /* "Name: value\r\n"... */
    struct tern_text pending; /* of the body, not yet taken by the loop */
    void (*gone)(void *context);
    void (*release)(void *context);
    void *context;
};

/* users 1 (to be handed to a handler), server_refs 1. NULL: out of memory. */
struct tern_http_reply *tern_http_reply_create(struct tern_http *http);
void tern_http_reply_server_release(struct tern_http_reply *reply);
/* The client has left: calls gone, unless the answer was whole. */
void tern_http_reply_leave(struct tern_http_reply *reply);
/* An answer of the server itself, with the body that error_body makes. */
void tern_http_reply_error(struct tern_http_reply *reply, int status, const char *message);
/* Ends the handler's hold: the request's memory goes, too. */
void tern_http_reply_handled(struct tern_http_reply *reply);

enum tern_http_take {
    TERN_HTTP_TAKE_NOTHING, /* nothing new, and not the end */
    TERN_HTTP_TAKE_SOME,
    TERN_HTTP_TAKE_LAST, /* maybe with bytes: the answer is whole */
    TERN_HTTP_TAKE_CUT,  /* close without another byte */
};
/* Loop thread: moves what is there, framed, to out. *keep_alive: what the head is to say; becomes false when the answer can only be
 * ended by closing. */
enum tern_http_take tern_http_reply_take(struct tern_http_reply *reply,
                                         bool *keep_alive,
                                         struct tern_text *out);
/* Loop thread: a comment into a stream of events that has been silent. False: it is none. */
bool tern_http_reply_ping(struct tern_http_reply *reply, struct tern_text *out);

/* ---- workers (http_work.c) ---- */

struct tern_http_work;
TERN_MUST_CHECK tern_status tern_http_work_create(int threads, struct tern_http_work **out);
/* Runs the handler of a reply on some worker. */
void tern_http_work_push(struct tern_http_work *work, struct tern_http_reply *reply);
/* Ends the threads when what is queued has been done (requests of clients that left are passed over). */
void tern_http_work_destroy(struct tern_http_work *work);
void tern_http_work_run(struct tern_http_reply *reply);

/* ---- connections (http_conn.c) ---- */

enum tern_http_phase {
    TERN_HTTP_HANDSHAKE,
    TERN_HTTP_IDLE,
    TERN_HTTP_HEAD,
    TERN_HTTP_BODY,
    TERN_HTTP_BUSY,  /* the request is with its handler or behind it: nothing is read */
    TERN_HTTP_FLUSH, /* the answer is whole but not yet taken by the client */
    TERN_HTTP_LINGER, /* the last byte is out: what still comes is dropped, so that no reset overtakes the answer */
};

struct tern_http_conn {
    struct tern_http *http;
    struct tern_http_conn *prev, *next;
    struct tern_http_conn *next_dead;
    int fd;
    uint32_t events; /* of epoll, as registered */
    enum tern_http_phase phase;
    bool is_dead;
    bool keep_alive;
    bool wants_write;    /* HANDSHAKE */
    int route_status;    /* BODY: 200, 404 or 405 */
    int64_t deadline_ns; /* INT64_MAX: none */
    int64_t stall_ns;    /* when out must have lost a byte; INT64_MAX: out is empty */
    int64_t ping_ns;
    struct tern_text in;  /* came, but not yet parsed */
    struct tern_text out; /* out.data[out_at...] to be sent */
    size_t out_at;
    struct tern_http_head head;
    struct tern_http_parse *parse;
    struct tern_http_reply *reply;
    struct tern_http_tls *tls; /* NULL: plain */
};

/* Takes over fd. Out of memory: closes it. */
void tern_http_conn_open(struct tern_http *http, int fd);
void tern_http_conn_event(struct tern_http_conn *conn, uint32_t events);
/* The reply has something new: sends it, and goes on with what came behind the request. */
void tern_http_conn_pump(struct tern_http_conn *conn);
void tern_http_conn_tick(struct tern_http_conn *conn, int64_t now_ns);
/* Stopping: closes it if no request is under way. */
void tern_http_conn_retire(struct tern_http_conn *conn);
/* Closes now, tells the reply; the memory goes after the batch of events. */
void tern_http_conn_kill(struct tern_http_conn *conn);

/* For http_input.c. */
int64_t tern_http_after(double seconds); /* of the clock */
/* The phase and when it must have ended; seconds 0: never. */
void tern_http_conn_enter(struct tern_http_conn *conn, enum tern_http_phase phase, double seconds);
/* Registers with epoll what the phase waits for. */
void tern_http_conn_watch(struct tern_http_conn *conn);
/* Sends what out holds. False: the rest must wait for the client, or the connection is dead. */
bool tern_http_conn_flush(struct tern_http_conn *conn);
/* Takes from the reply and sends until there is nothing more, the client is full, or the answer is out; then the phase is
 * IDLE or LINGER. */
void tern_http_conn_send(struct tern_http_conn *conn);

/* ---- requests (http_input.c) ---- */

/* Bytes that came, in a phase that reads. */
void tern_http_input(struct tern_http_conn *conn, const char *bytes, size_t count);
/* After an answer: what had come behind its request. */
void tern_http_input_resume(struct tern_http_conn *conn);
/* Answers and closes: what follows on this connection cannot be trusted, or is not wanted. */
void tern_http_input_refuse(struct tern_http_conn *conn, int status, const char *message);

/* ---- the server (http_loop.c) ---- */

struct tern_http {
    struct tern_http_options options; /* with the defaults filled in */
    struct tern_http_head_limits head_limits;
    int epoll_fd, wake_fd, spare_fd;
    int listeners[TERN_HTTP_LISTENERS_MAX];
    int listener_count;
    int port;
    bool is_accepting;
    bool is_stopping;
    atomic_llong stop_ns; /* INT64_MAX: not asked to stop */
    struct tern_http_tls_context *tls;
    struct tern_http_work *work;
    struct tern_http_conn *conns;
    struct tern_http_conn *dead;
    uint64_t id_seed, id_next;
    char *scratch; /* TERN_HTTP_SCRATCH_BYTES, for reading */
    pthread_mutex_t ready_lock;
    struct tern_http_reply *ready_first, *ready_last;
    atomic_llong connections, connections_total, connections_refused;
    atomic_llong requests_total, errors_total, gone_total, body_bytes;
};

/* With reply->lock held: into the ready list, and wakes the loop if that was empty. */
void tern_http_ready(struct tern_http *http, struct tern_http_reply *reply);
/* The Date header's value now, cached for a second. Loop thread. */
const char *tern_http_date(void);

#endif
