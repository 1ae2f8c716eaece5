/* api.h - OpenAI's API over HTTP, and what operators ask a server: routes for tern_http over an engine.
 *
 * The routes answer from the start on: /health at once, the rest with 503 until a model is there. */
#ifndef TERN_RUNTIME_SERVE_API_H
#define TERN_RUNTIME_SERVE_API_H

#include "runtime/serve/engine.h"
#include "runtime/serve/http.h"

struct tern_api;

struct tern_api_options {
    const char *model;         /* as the user named it */
    const char *name;          /* what clients call it; NULL: the last part of `model` */
    const char *template_file; /* NULL: the model's own */
    const char *key_file;      /* one key a line; NULL: nobody needs one */
    const char *version;       /* of the program; static */
    double request_seconds;    /* deadline of a request; 0: none */
};

/* Reads the keys. Owned: destroy, after the server and the engine are gone. */
TERN_MUST_CHECK tern_status tern_api_create(const struct tern_api_options *options,
                                            struct tern_api **out);
void tern_api_destroy(struct tern_api *api);
/* What tern_http_create wants: routes (static), and `api` as the context. */
const struct tern_http_route *tern_api_routes(size_t *count_out);
tern_status tern_api_error_body(void *api, int status, const char *message, struct tern_text *out);
/* The server whose numbers /metrics shows. */
void tern_api_watch(struct tern_api *api, const struct tern_http *http);
/* The model is there: requests are accepted from now on. Both live until tern_api_close. */
TERN_MUST_CHECK tern_status tern_api_open(struct tern_api *api,
                                          const struct tern_loaded *loaded,
                                          struct tern_engine *engine,
                                          double load_seconds);
/* /ready fails and new requests are refused from now on. */
void tern_api_drain(struct tern_api *api);
/* Ends what feeds the engine: call before the engine is destroyed. */
void tern_api_close(struct tern_api *api);
const char *tern_api_name(const struct tern_api *api);

#endif
