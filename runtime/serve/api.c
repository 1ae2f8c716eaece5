/* api.c - the API's life: keys, routes, a model that comes later, and who feeds the engine. */
#include "runtime/serve/api.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/serve/api_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    RETRY_NS = 10000000, /* of prompts that found the queue full */
    RETRY_SECONDS_MAX = 60
};

/* ---- answers ---- */

enum tern_api_route tern_api_route_of(enum tern_api_kind kind)
{
    static const enum tern_api_route routes[] = {TERN_API_ROUTE_CHAT, TERN_API_ROUTE_COMPLETIONS,
                                                 TERN_API_ROUTE_EMBEDDINGS};
    return routes[kind];
}

void tern_api_count(struct tern_api *api, enum tern_api_route route, int status)
{
    atomic_fetch_add_explicit(&api->answers[route][status / 100], 1, memory_order_relaxed);
}

void tern_api_send(struct tern_api *api,
                   enum tern_api_route route,
                   struct tern_http_reply *reply,
                   int status,
                   const char *content_type,
                   const struct tern_text *body)
{
    tern_api_count(api, route, status);
    tern_http_reply_send(reply, status, content_type, body->data, body->length);
}

/* As long as the queue is, a minute at most. */
static int retry_seconds(struct tern_api *api, const struct tern_api_error *error)
{
    struct tern_engine_stats stats;
    if (error->status != 429 || api->engine == NULL) {
        return error->retry_seconds;
    }
    tern_engine_stats(api->engine, &stats);
    double wait = ceil(stats.wait_seconds);
    return wait > RETRY_SECONDS_MAX      ? RETRY_SECONDS_MAX
           : wait > error->retry_seconds ? (int)wait
                                         : error->retry_seconds;
}

void tern_api_send_error(struct tern_api *api,
                         enum tern_api_route route,
                         struct tern_http_reply *reply,
                         const struct tern_api_error *error)
{
    struct tern_text text;
    char seconds[16];
    tern_text_init(&text);
    if (error->retry_seconds > 0) {
        snprintf(seconds, sizeof seconds, "%d", retry_seconds(api, error));
        tern_http_reply_header(reply, "retry-after", seconds);
    }
    if (error->status == 401) {
        tern_http_reply_header(reply, "www-authenticate", "Bearer");
    }
    if (tern_api_error_write(error, &text) != TERN_OK) {
        text.length = 0; /* no memory for a sentence */
    }
    tern_log_debug("%s: %d %s", tern_http_reply_id(reply), error->status, error->message);
    tern_api_send(api, route, reply, error->status, "application/json", &text);
    tern_text_fini(&text);
}

tern_status tern_api_error_body(void *api, int status, const char *message, struct tern_text *out)
{
    struct tern_api_error error = {0};
    enum tern_api_error_kind kind = status == 404   ? TERN_API_NO_ROUTE
                                    : status == 405 ? TERN_API_METHOD
                                    : status < 500  ? TERN_API_BAD
                                                    : TERN_API_FAILED;
    tern_api_refuse(&error, kind, NULL, "%s", message);
    tern_api_count(api, TERN_API_ROUTE_OTHER, status);
    return tern_api_error_write(&error, out);
}

/* ---- who may ---- */

static bool is_json(const char *content_type)
{
    static const char json[] = "application/json";
    if (content_type == NULL) {
        return true;
    }
    size_t bytes = sizeof json - 1;
    return strncasecmp(content_type, json, bytes) == 0 &&
           (content_type[bytes] == '\0' || content_type[bytes] == ';' ||
            content_type[bytes] == ' ');
}

bool tern_api_admit(struct tern_api *api,
                    enum tern_api_route route,
                    const struct tern_http_request *request,
                    struct tern_http_reply *reply,
                    bool has_body)
{
    struct tern_api_error error = {0};
    const char *type = tern_http_request_header(request, "content-type");
    int state = atomic_load(&api->state);
    if (!tern_api_keys_admit(&api->keys, tern_http_request_header(request, "authorization"))) {
        tern_api_refuse(&error, TERN_API_KEY, NULL,
                        "Incorrect API key: expected the header \"Authorization: Bearer KEY\" with "
                        "a key of this server.");
    } else if (has_body && !is_json(type)) {
        tern_api_refuse(&error, TERN_API_CONTENT_TYPE, NULL,
                        "Content-Type: found '%.80s', expected application/json", type);
    } else if (state == TERN_API_STATE_LOADING) {
        tern_api_refuse(&error, TERN_API_LOADING, NULL, "The model is being loaded.");
    } else if (state == TERN_API_STATE_DRAINING) {
        tern_api_refuse(&error, TERN_API_DRAINING, NULL,
                        "The server is shutting down and takes no more requests.");
    }
    if (error.status != 0) {
        tern_api_send_error(api, route, reply, &error);
    }
    return error.status == 0;
}

/* ---- texts and embeddings ---- */

static void answer(struct tern_api *api,
                   enum tern_api_kind kind,
                   const struct tern_http_request *request,
                   struct tern_http_reply *reply)
{
    struct tern_api_error error = {0};
    struct tern_api_request parsed;
    struct tern_api_job *job = NULL;
    size_t bytes;
    if (!tern_api_admit(api, tern_api_route_of(kind), request, reply, true)) {
        return;
    }
    const void *body = tern_http_request_body(request, &bytes);
    tern_status status = tern_api_request_read(&api->model, kind, body, bytes, &parsed, &error);
    if (status == TERN_OK) {
        status = tern_api_job_create(api, reply, &parsed, &job);
    } else {
        tern_api_request_fini(&parsed);
    }
    if (status != TERN_OK) {
        tern_api_error_from(&error, status);
        tern_api_send_error(api, tern_api_route_of(kind), reply, &error);
        return;
    }
    tern_api_job_start(job);
    tern_api_job_release(job);
}

static void post_chat(void *context,
                      const struct tern_http_request *request,
                      struct tern_http_reply *reply)
{
    answer(context, TERN_API_CHAT, request, reply);
}

static void post_completion(void *context,
                            const struct tern_http_request *request,
                            struct tern_http_reply *reply)
{
    answer(context, TERN_API_COMPLETION, request, reply);
}

static void post_embedding(void *context,
                           const struct tern_http_request *request,
                           struct tern_http_reply *reply)
{
    answer(context, TERN_API_EMBEDDING, request, reply);
}

const struct tern_http_route *tern_api_routes(size_t *count_out)
{
    static const struct tern_http_route routes[] = {
        {"/health", TERN_HTTP_GET, true, tern_api_get_health},
        {"/ready", TERN_HTTP_GET, true, tern_api_get_ready},
        {"/version", TERN_HTTP_GET, true, tern_api_get_version},
        {"/metrics", TERN_HTTP_GET, true, tern_api_get_metrics},
        {"/openapi.json", TERN_HTTP_GET, true, tern_api_get_openapi},
        {"/", TERN_HTTP_GET, true, tern_api_get_page},
        {"/v1/models", TERN_HTTP_GET, true, tern_api_get_models},
        {"/v1/models/*", TERN_HTTP_GET, true, tern_api_get_model},
        {"/v1/chat/completions", TERN_HTTP_POST, false, post_chat},
        {"/v1/completions", TERN_HTTP_POST, false, post_completion},
        {"/v1/embeddings", TERN_HTTP_POST, false, post_embedding},
        {"/tokenize", TERN_HTTP_POST, false, tern_api_post_tokenize},
        {"/detokenize", TERN_HTTP_POST, false, tern_api_post_detokenize},
    };
    *count_out = sizeof routes / sizeof routes[0];
    return routes;
}

/* ---- the feeder ---- */

void tern_api_wake(struct tern_api *api)
{
    pthread_mutex_lock(&api->feed_lock);
    api->is_woken = true;
    pthread_cond_signal(&api->feed_wake);
    pthread_mutex_unlock(&api->feed_lock);
}

void tern_api_feed(struct tern_api *api, struct tern_api_job *job)
{
    tern_api_job_retain(job);
    pthread_mutex_lock(&api->feed_lock);
    job->next_fed = api->feed_first;
    api->feed_first = job;
    pthread_mutex_unlock(&api->feed_lock);
    tern_api_wake(api);
}

/* Submits what has room, lets go of jobs that have nothing left (at the end of all). True: all found room. Without the
 * lock: only the feeder takes jobs out, and others add them in front. */
static bool feed_all(struct tern_api *api, bool is_end)
{
    bool is_done = true;
    pthread_mutex_lock(&api->feed_lock);
    struct tern_api_job *job = api->feed_first;
    api->feed_first = NULL;
    pthread_mutex_unlock(&api->feed_lock);
    struct tern_api_job *kept = NULL, **last = &kept;
    while (job != NULL) {
        struct tern_api_job *next = job->next_fed;
        is_done = (is_end || tern_api_job_feed(job)) && is_done;
        if (is_end || tern_api_job_is_fed(job)) {
            tern_api_job_release(job);
        } else {
            *last = job;
            last = &job->next_fed;
        }
        job = next;
    }
    pthread_mutex_lock(&api->feed_lock);
    *last = api->feed_first;
    api->feed_first = kept != NULL ? kept : api->feed_first;
    pthread_mutex_unlock(&api->feed_lock);
    return is_done;
}

static void *feeder(void *argument)
{
    struct tern_api *api = argument;
    bool is_done = true;
    pthread_mutex_lock(&api->feed_lock);
    while (!api->feed_stops) {
        if (!api->is_woken && is_done) {
            pthread_cond_wait(&api->feed_wake, &api->feed_lock);
            continue;
        }
        bool is_woken = api->is_woken;
        api->is_woken = false;
        pthread_mutex_unlock(&api->feed_lock);
        if (!is_woken) {
            tern_clock_sleep_ns(RETRY_NS);
        }
        is_done = feed_all(api, false);
        pthread_mutex_lock(&api->feed_lock);
    }
    pthread_mutex_unlock(&api->feed_lock);
    feed_all(api, true);
    return NULL;
}

/* ---- life ---- */

static void name_model(struct tern_api *api)
{
    const char *name = api->options.name;
    char path[TERN_API_NAME_BYTES];
    if (name == NULL) {
        snprintf(path, sizeof path, "%s", api->options.model);
        size_t bytes = strlen(path);
        while (bytes > 1 && path[bytes - 1] == '/') {
            path[--bytes] = '\0';
        }
        const char *slash = strrchr(path, '/');
        name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
    }
    snprintf(api->model.name, sizeof api->model.name, "%s", name);
}

tern_status tern_api_create(const struct tern_api_options *options, struct tern_api **out)
{
    struct tern_api *api = tern_alloc_zero("serve", 1, sizeof *api);
    *out = NULL;
    if (api == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the API");
    }
    api->options = *options;
    api->start_seconds = (int64_t)time(NULL);
    atomic_init(&api->state, TERN_API_STATE_LOADING);
    pthread_mutex_init(&api->feed_lock, NULL);
    pthread_cond_init(&api->feed_wake, NULL);
    name_model(api);
    if (options->key_file != NULL) {
        tern_status status = tern_api_keys_read(options->key_file, &api->keys);
        if (status != TERN_OK) {
            tern_api_destroy(api);
            return status;
        }
    }
    *out = api;
    return TERN_OK;
}

void tern_api_watch(struct tern_api *api, const struct tern_http *http)
{
    api->http = http;
}

tern_status tern_api_open(struct tern_api *api,
                          const struct tern_loaded *loaded,
                          struct tern_engine *engine,
                          double load_seconds)
{
    TERN_RETURN_IF_ERR(tern_api_model_init(&api->model, loaded, api->options.model,
                                           api->options.template_file,
                                           tern_engine_settings(engine)->context));
    api->engine = engine;
    api->load_seconds = load_seconds;
    int error = tern_thread_start(&api->feeder, feeder, api);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_MEMORY, error, "cannot start a thread");
    }
    api->has_feeder = true;
    int expected = TERN_API_STATE_LOADING; /* a signal may have come meanwhile */
    atomic_compare_exchange_strong(&api->state, &expected, TERN_API_STATE_READY);
    return TERN_OK;
}

void tern_api_drain(struct tern_api *api)
{
    atomic_store(&api->state, TERN_API_STATE_DRAINING);
}

void tern_api_close(struct tern_api *api)
{
    if (!api->has_feeder) {
        return;
    }
    pthread_mutex_lock(&api->feed_lock);
    api->feed_stops = true;
    pthread_cond_signal(&api->feed_wake);
    pthread_mutex_unlock(&api->feed_lock);
    pthread_join(api->feeder, NULL);
    api->has_feeder = false;
}

void tern_api_destroy(struct tern_api *api)
{
    if (api == NULL) {
        return;
    }
    tern_api_close(api);
    if (api->engine != NULL) {
        tern_api_model_fini(&api->model);
    }
    tern_api_keys_fini(&api->keys);
    pthread_cond_destroy(&api->feed_wake);
    pthread_mutex_destroy(&api->feed_lock);
    tern_free(api);
}

const char *tern_api_name(const struct tern_api *api)
{
    return api->model.name;
}
