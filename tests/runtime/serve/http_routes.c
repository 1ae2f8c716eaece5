/* http_routes.c - the fixed routes. */
#include "tests/runtime/serve/http_routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void routes_init(struct routes *routes)
{
    memset(routes, 0, sizeof *routes);
    pthread_mutex_init(&routes->lock, NULL);
    pthread_cond_init(&routes->opened, NULL);
}

void routes_fini(struct routes *routes)
{
    pthread_cond_destroy(&routes->opened);
    pthread_mutex_destroy(&routes->lock);
}

static void light(void *context,
                  const struct tern_http_request *request,
                  struct tern_http_reply *reply)
{
    (void)context;
    (void)request;
    tern_http_reply_send(reply, 200, "text/plain", "ok", 2);
}

static void big(void *context,
                const struct tern_http_request *request,
                struct tern_http_reply *reply)
{
    (void)context;
    (void)request;
    char *text = malloc(ROUTES_BIG_BYTES);
    memset(text, 'b', ROUTES_BIG_BYTES);
    tern_http_reply_send(reply, 200, "text/plain", text, ROUTES_BIG_BYTES);
    free(text);
}

static void echo(void *context,
                 const struct tern_http_request *request,
                 struct tern_http_reply *reply)
{
    struct routes *routes = context;
    size_t bytes;
    const void *body = tern_http_request_body(request, &bytes);
    atomic_fetch_add(&routes->handled, 1);
    const char *query = tern_http_request_query(request);
    if (query[0] != '\0') {
        tern_http_reply_header(reply, "x-query", query);
    }
    tern_http_reply_send(reply, 200, "application/octet-stream", body, bytes);
}

static void stream(void *context,
                   const struct tern_http_request *request,
                   struct tern_http_reply *reply)
{
    (void)context;
    size_t bytes;
    const char *body = tern_http_request_body(request, &bytes);
    tern_http_reply_begin(reply, 200, "text/event-stream");
    for (size_t at = 0; at < bytes; at += 16) {
        char event[64];
        int length = (int)(bytes - at < 16 ? bytes - at : 16);
        int size = snprintf(event, sizeof event, "data: %.*s\n\n", length, body + at);
        if (!tern_http_reply_write(reply, event, (size_t)size)) {
            break;
        }
    }
    tern_http_reply_end(reply);
}

static void flood(void *context,
                  const struct tern_http_request *request,
                  struct tern_http_reply *reply)
{
    struct routes *routes = context;
    static const char block[ROUTES_FLOOD_BYTES] = {'f'};
    (void)request;
    tern_http_reply_begin(reply, 200, "text/plain");
    while (tern_http_reply_write(reply, block, sizeof block)) {
        atomic_fetch_add(&routes->flood_blocks, 1);
    }
    atomic_fetch_add(&routes->floods_cut, 1);
}

struct held {
    struct routes *routes;
    struct tern_http_reply *reply;
};

static void on_gone(void *context)
{
    struct held *held = context;
    atomic_fetch_add(&held->routes->gone, 1);
    if (held->reply != NULL) {
        tern_http_reply_release(held->reply);
    }
}

static void on_release(void *context)
{
    struct held *held = context;
    atomic_fetch_add(&held->routes->released, 1);
    atomic_fetch_sub(&held->routes->held, 1);
    free(held);
}

static void hold(void *context,
                 const struct tern_http_request *request,
                 struct tern_http_reply *reply)
{
    (void)request;
    struct held *held = malloc(sizeof *held);
    *held = (struct held){.routes = context, .reply = reply};
    atomic_fetch_add(&held->routes->held, 1);
    tern_http_reply_retain(reply);
    tern_http_reply_on_gone(reply, on_gone, on_release, held);
}

static void drop(void *context,
                 const struct tern_http_request *request,
                 struct tern_http_reply *reply)
{
    (void)context;
    (void)request;
    tern_http_reply_header(reply, "x-lost", "1");
}

static void cut(void *context,
                const struct tern_http_request *request,
                struct tern_http_reply *reply)
{
    (void)context;
    (void)request;
    tern_http_reply_begin(reply, 200, "text/plain");
    tern_http_reply_write(reply, "half", 4);
}

static void block(void *context,
                  const struct tern_http_request *request,
                  struct tern_http_reply *reply)
{
    struct routes *routes = context;
    (void)request;
    pthread_mutex_lock(&routes->lock);
    atomic_fetch_add(&routes->blocked, 1);
    while (!routes->is_open) {
        pthread_cond_wait(&routes->opened, &routes->lock);
    }
    atomic_fetch_sub(&routes->blocked, 1);
    pthread_mutex_unlock(&routes->lock);
    tern_http_reply_send(reply, 200, "text/plain", "free", 4);
}

void routes_open(struct routes *routes)
{
    pthread_mutex_lock(&routes->lock);
    routes->is_open = true;
    pthread_cond_broadcast(&routes->opened);
    pthread_mutex_unlock(&routes->lock);
}

static void rest(void *context,
                 const struct tern_http_request *request,
                 struct tern_http_reply *reply)
{
    (void)context;
    const char *text = tern_http_request_rest(request);
    tern_http_reply_send(reply, 200, "text/plain", text, strlen(text));
}

static void tick(void *context,
                 const struct tern_http_request *request,
                 struct tern_http_reply *reply)
{
    struct routes *routes = context;
    (void)request;
    struct held *held = malloc(sizeof *held);
    *held = (struct held){.routes = routes};
    tern_http_reply_retain(reply);
    atomic_fetch_add(&routes->held, 1);
    tern_http_reply_on_gone(reply, on_gone, on_release, held);
    tern_http_reply_begin(reply, 200, "text/event-stream");
    pthread_mutex_lock(&routes->lock);
    if (routes->ticking_count < ROUTES_TICKING_MAX) {
        routes->ticking[routes->ticking_count++] = reply;
    } else {
        tern_http_reply_release(reply);
    }
    pthread_mutex_unlock(&routes->lock);
}

int routes_tick(struct routes *routes)
{
    char event[257];
    memset(event, 't', sizeof event);
    memcpy(event, "data: ", 6);
    memcpy(event + 254, "\n\n", 3);
    pthread_mutex_lock(&routes->lock);
    int kept = 0;
    for (int i = 0; i < routes->ticking_count; i++) {
        struct tern_http_reply *reply = routes->ticking[i];
        if (tern_http_reply_write(reply, event, 256)) {
            routes->ticking[kept++] = reply;
        } else {
            tern_http_reply_release(reply);
        }
    }
    routes->ticking_count = kept;
    pthread_mutex_unlock(&routes->lock);
    return kept;
}

void routes_end(struct routes *routes)
{
    pthread_mutex_lock(&routes->lock);
    for (int i = 0; i < routes->ticking_count; i++) {
        tern_http_reply_end(routes->ticking[i]);
        tern_http_reply_release(routes->ticking[i]);
    }
    routes->ticking_count = 0;
    pthread_mutex_unlock(&routes->lock);
}

const struct tern_http_route *routes_table(size_t *count_out)
{
    static const struct tern_http_route table[] = {
        {"/light", TERN_HTTP_GET, true, light},  {"/big", TERN_HTTP_GET, true, big},
        {"/echo", TERN_HTTP_POST, false, echo},  {"/stream", TERN_HTTP_POST, false, stream},
        {"/flood", TERN_HTTP_GET, false, flood}, {"/hold", TERN_HTTP_GET, false, hold},
        {"/hold", TERN_HTTP_POST, false, hold},  {"/drop", TERN_HTTP_GET, false, drop},
        {"/cut", TERN_HTTP_GET, false, cut},     {"/rest/*", TERN_HTTP_GET, true, rest},
        {"/tick", TERN_HTTP_GET, false, tick},   {"/block", TERN_HTTP_GET, false, block},
    };
    *count_out = sizeof table / sizeof table[0];
    return table;
}
