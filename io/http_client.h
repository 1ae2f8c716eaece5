/* http_client.h - requests to object stores and metadata servers; the only owner of libcurl.
 *
 * One request, one answer, with a limit on everything: the time to connect, the time of the whole,
 * the time without a byte, the bytes of the answer. Redirects are never followed, no credentials are
 * looked for, nothing is retried: that is the caller's business. Safe on any thread.
 * (tern_http_ask: tern_http_run is the server's, runtime/serve/http.h.) */
#ifndef TERN_IO_HTTP_CLIENT_H
#define TERN_IO_HTTP_CLIENT_H

#include "runtime/base/text.h"

#include <stdatomic.h>

/* A limit on bytes a second that the transfers of many threads share. */
struct tern_http_rate;
/* bytes_per_second > 0. Owned: destroy, when no transfer uses it any more. */
TERN_MUST_CHECK tern_status tern_http_rate_create(int64_t bytes_per_second,
                                                  struct tern_http_rate **out);
void tern_http_rate_destroy(struct tern_http_rate *rate);
/* Waits until `bytes` more may move; returns early when *cancel becomes true (may be NULL). */
void tern_http_rate_take(struct tern_http_rate *rate, size_t bytes, const atomic_bool *cancel);

struct tern_http_call {
    const char *method;         /* NULL: GET */
    const char *url;            /* http:// or https://; sent as it stands, nothing is normalised */
    const char *const *headers; /* "Name: value"; "Name:" takes away one that libcurl would add */
    int header_count;
    const void *body; /* NULL: none; with PUT and POST an empty one */
    size_t body_bytes;
    double connect_seconds;  /* 0: 5 */
    double total_seconds;    /* 0: 30; everything included */
    double stall_seconds;    /* 0: off; gives up when no byte moved for so long */
    size_t answer_bytes_max; /* 0: 1 MiB; a longer body is refused */
    const char
        *ca_file;   /* https: PEM file of the authorities to believe; NULL: SSL_CERT_FILE of the
                            environment, else the system's */
    bool is_direct; /* no proxy, whatever the environment says */
    struct tern_http_rate *rate; /* of the bytes of both bodies; NULL: no limit */
    const atomic_bool *cancel;   /* gives up within 0.1 s when it becomes true; NULL: never */
    /* With a sink the body of an answer of 200 to 299 goes there piece by piece and is not kept;
     * other answers' bodies are. A failure of the sink ends the request with its status. */
    tern_status (*sink)(void *context, const void *bytes, size_t count);
    void *sink_context;
};

struct tern_http_answer {
    int status;               /* 100 to 599 */
    struct tern_text body;    /* NUL-terminated once there is any; data NULL when empty */
    struct tern_text headers; /* lines of the answer: "name: value\n", names in lower case */
    int64_t sent_bytes;       /* of the body of the request */
    bool is_cut;              /* of a failure: the connection was made before it failed */
};

/* A client keeps its connections: requests one after the other to the same host use one. One thread
 * at a time. Owned: close. */
struct tern_http_client;
TERN_MUST_CHECK tern_status tern_http_open(struct tern_http_client **out);
void tern_http_close(struct tern_http_client *client);
/* Any status that the server answers is TERN_OK: look at out->status. TERN_ERR_IO: no whole answer
 * came (cannot connect, cut off, out of time; the sentence says which, and names the host).
 * TERN_ERR_CONFIG: the server's certificate is not to be believed. TERN_ERR_INPUT: an answer that no server should give (too long, no HTTP). TERN_ERR_ARGUMENT: a URL
 * or a header that cannot be sent. TERN_ERR_CANCELLED. Fini in every case. */
TERN_MUST_CHECK tern_status tern_http_ask(struct tern_http_client *client,
                                          const struct tern_http_call *call,
                                          struct tern_http_answer *out);
/* The same on a connection of its own. */
TERN_MUST_CHECK tern_status tern_http_get(const struct tern_http_call *call,
                                          struct tern_http_answer *out);
void tern_http_answer_fini(struct tern_http_answer *answer);
/* Value of a header (the last of that name), copied into out and cut to its size; NULL if there is
 * none. `name` in lower case. */
const char *tern_http_header(const struct tern_http_answer *answer,
                             const char *name,
                             char *out,
                             size_t out_bytes);

#endif
