/* api_impl.h - what the files of the API share. */
#ifndef TERN_RUNTIME_SERVE_API_IMPL_H
#define TERN_RUNTIME_SERVE_API_IMPL_H

#include "runtime/serve/api.h"
#include "runtime/serve/api_job.h"
#include "runtime/serve/keys.h"

enum tern_api_state {
    TERN_API_STATE_LOADING,
    TERN_API_STATE_READY,
    TERN_API_STATE_DRAINING
};

/* Routes as /metrics names them. */
enum tern_api_route {
    TERN_API_ROUTE_CHAT,
    TERN_API_ROUTE_COMPLETIONS,
    TERN_API_ROUTE_EMBEDDINGS,
    TERN_API_ROUTE_MODELS,
    TERN_API_ROUTE_TOKENIZE,
    TERN_API_ROUTE_DETOKENIZE,
    TERN_API_ROUTE_OTHER,
    TERN_API_ROUTE_COUNT
};

enum {
    TERN_API_STATUS_CLASSES = 6 /* 1xx to 5xx by their first digit */
};

struct tern_api {
    struct tern_api_options options;
    struct tern_api_keys keys;
    struct tern_api_model model;
    struct tern_engine *_Atomic engine; /* set once, before the state is READY */
    const struct tern_http *http;       /* may be NULL */
    double load_seconds;
    int64_t start_seconds; /* since 1970 */
    atomic_int state;
    atomic_uint_least64_t answers[TERN_API_ROUTE_COUNT][TERN_API_STATUS_CLASSES];

    /* The feeder: submits the prompts of requests that have many. */
    pthread_mutex_t feed_lock;
    pthread_cond_t feed_wake;
    pthread_t feeder;
    bool has_feeder, feed_stops, is_woken;
    struct tern_api_job *feed_first; /* references are held */
};

/* Puts a job with prompts left into the feeder's list; looks at the list again. */
void tern_api_feed(struct tern_api *api, struct tern_api_job *job);
void tern_api_wake(struct tern_api *api);

/* Every answer goes through these, so that it is counted. */
void tern_api_send(struct tern_api *api,
                   enum tern_api_route route,
                   struct tern_http_reply *reply,
                   int status,
                   const char *content_type,
                   const struct tern_text *body);
void tern_api_send_error(struct tern_api *api,
                         enum tern_api_route route,
                         struct tern_http_reply *reply,
                         const struct tern_api_error *error);
void tern_api_count(struct tern_api *api, enum tern_api_route route, int status);
enum tern_api_route tern_api_route_of(enum tern_api_kind kind);

/* /metrics. */
TERN_MUST_CHECK tern_status tern_api_metrics(struct tern_api *api, struct tern_text *out);

/* Handlers of api_routes.c. */
void tern_api_get_health(void *context,
                         const struct tern_http_request *request,
                         struct tern_http_reply *reply);
void tern_api_get_ready(void *context,
                        const struct tern_http_request *request,
                        struct tern_http_reply *reply);
void tern_api_get_version(void *context,
                          const struct tern_http_request *request,
                          struct tern_http_reply *reply);
void tern_api_get_metrics(void *context,
                          const struct tern_http_request *request,
                          struct tern_http_reply *reply);
void tern_api_get_page(void *context,
                       const struct tern_http_request *request,
                       struct tern_http_reply *reply);
void tern_api_get_openapi(void *context,
                          const struct tern_http_request *request,
                          struct tern_http_reply *reply);
void tern_api_get_models(void *context,
                         const struct tern_http_request *request,
                         struct tern_http_reply *reply);
void tern_api_get_model(void *context,
                        const struct tern_http_request *request,
                        struct tern_http_reply *reply);
void tern_api_post_tokenize(void *context,
                            const struct tern_http_request *request,
                            struct tern_http_reply *reply);
void tern_api_post_detokenize(void *context,
                              const struct tern_http_request *request,
                              struct tern_http_reply *reply);

/* Whether a request may go on: key, content type of a body, a model that is there. What may not is answered. */
bool tern_api_admit(struct tern_api *api,
                    enum tern_api_route route,
                    const struct tern_http_request *request,
                    struct tern_http_reply *reply,
                    bool has_body);

#endif
