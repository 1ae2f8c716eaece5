/* http_request.h - what a handler sees of a message: path, query, route. */
#ifndef TERN_RUNTIME_SERVE_HTTP_REQUEST_H
#define TERN_RUNTIME_SERVE_HTTP_REQUEST_H

#include "runtime/serve/http.h"
#include "runtime/serve/http_parse.h"

struct tern_http_request {
    struct tern_http_message message;
    const char *path;  /* in message.text, resolved in place */
    const char *query; /* there, too */
    const char *rest;
    const struct tern_http_route *route; /* NULL: refused, see allowed */
    bool is_head;
    bool is_options;
};

enum {
    TERN_HTTP_ALLOW_BYTES = 64
};

/* Splits and resolves the target of a parsed message. False: it is no target for this server (400). */
bool tern_http_request_target(struct tern_http_request *request);
/* Finds the route. 200: found, or OPTIONS of a path that is there; 404; 405. allow_out: what the path takes, as
 * an Allow header says it. */
int tern_http_request_route(struct tern_http_request *request,
                            const struct tern_http_route *routes,
                            size_t count,
                            char allow_out[TERN_HTTP_ALLOW_BYTES]);
void tern_http_request_fini(struct tern_http_request *request);

#endif
