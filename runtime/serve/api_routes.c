/* api_routes.c - what operators and curious clients ask: health, models, tokens, the page. */
#include "runtime/base/mem.h"
#include "runtime/serve/api_impl.h"
#include "runtime/serve/api_static.h"

#include <string.h>

static const char g_json[] = "application/json";

/* Sends what was made, or a 500 when it could not be. */
static void finish(struct tern_api *api,
                   enum tern_api_route route,
                   struct tern_http_reply *reply,
                   tern_status status,
                   const char *content_type,
                   struct tern_text *text)
{
    if (status == TERN_OK) {
        tern_api_send(api, route, reply, 200, content_type, text);
    } else {
        struct tern_api_error error = {0};
        tern_api_error_from(&error, status);
        tern_api_send_error(api, route, reply, &error);
    }
    tern_text_fini(text);
}

static void say(struct tern_api *api, struct tern_http_reply *reply, const char *body)
{
    tern_api_count(api, TERN_API_ROUTE_OTHER, 200);
    tern_http_reply_send(reply, 200, g_json, body, strlen(body));
}

static void refuse(struct tern_api *api,
                   struct tern_http_reply *reply,
                   enum tern_api_error_kind kind,
                   const char *message)
{
    struct tern_api_error error = {0};
    tern_api_refuse(&error, kind, NULL, "%s", message);
    tern_api_send_error(api, TERN_API_ROUTE_OTHER, reply, &error);
}

/* ---- how it is ---- */

void tern_api_get_health(void *context,
                         const struct tern_http_request *request,
                         struct tern_http_reply *reply)
{
    struct tern_api *api = context;
    (void)request;
    bool is_dead = atomic_load(&api->state) != TERN_API_STATE_LOADING && api->engine != NULL &&
                   !tern_engine_is_alive(api->engine);
    if (is_dead) {
        refuse(api, reply, TERN_API_DEAD, "The engine shows no sign of life.");
        return;
    }
    say(api, reply, "{\"status\":\"ok\"}");
}

void tern_api_get_ready(void *context,
                        const struct tern_http_request *request,
                        struct tern_http_reply *reply)
{
    struct tern_api *api = context;
    (void)request;
    switch (atomic_load(&api->state)) {
    case TERN_API_STATE_LOADING:
        refuse(api, reply, TERN_API_LOADING, "The model is being loaded.");
        return;
    case TERN_API_STATE_DRAINING:
        refuse(api, reply, TERN_API_DRAINING, "The server is shutting down.");
        return;
    default:
        break;
    }
    if (!tern_engine_is_alive(api->engine)) {
        refuse(api, reply, TERN_API_DEAD, "The engine shows no sign of life.");
        return;
    }
    say(api, reply, "{\"status\":\"ready\"}");
}

void tern_api_get_version(void *context,
                          const struct tern_http_request *request,
                          struct tern_http_reply *reply)
{
    struct tern_api *api = context;
    struct tern_text text;
    (void)request;
    tern_text_init(&text);
    tern_status status = tern_text_printf(&text, "{\"version\":\"%s\"}", api->options.version);
    finish(api, TERN_API_ROUTE_OTHER, reply, status, g_json, &text);
}

void tern_api_get_metrics(void *context,
                          const struct tern_http_request *request,
                          struct tern_http_reply *reply)
{
    struct tern_api *api = context;
    struct tern_text text;
    (void)request;
    tern_text_init(&text);
    tern_status status = tern_api_metrics(api, &text);
    finish(api, TERN_API_ROUTE_OTHER, reply, status, "text/plain; version=0.0.4; charset=utf-8",
           &text);
}

/* ---- files ---- */

void tern_api_get_page(void *context,
                       const struct tern_http_request *request,
                       struct tern_http_reply *reply)
{
    (void)request;
    /* The page loads nothing and may be framed by nobody. */
    tern_http_reply_header(reply, "content-security-policy",
                           "default-src 'none'; style-src 'unsafe-inline'; script-src "
                           "'unsafe-inline'; connect-src 'self'; form-action 'none'; base-uri "
                           "'none'; frame-ancestors 'none'");
    tern_http_reply_header(reply, "x-content-type-options", "nosniff");
    tern_http_reply_header(reply, "referrer-policy", "no-referrer");
    tern_http_reply_header(reply, "cache-control", "no-cache");
    tern_api_count(context, TERN_API_ROUTE_OTHER, 200);
    tern_http_reply_send(reply, 200, "text/html; charset=utf-8", tern_api_page,
                         tern_api_page_bytes);
}

void tern_api_get_openapi(void *context,
                          const struct tern_http_request *request,
                          struct tern_http_reply *reply)
{
    (void)request;
    tern_api_count(context, TERN_API_ROUTE_OTHER, 200);
    tern_http_reply_send(reply, 200, g_json, tern_api_openapi, tern_api_openapi_bytes);
}

/* ---- models ---- */

static tern_status write_model(const struct tern_api_model *model, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"id\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, model->name, strlen(model->name)));
    return tern_text_printf(out,
                            ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"tern\","
                            "\"max_model_len\":%lld}",
                            (long long)model->created, (long long)model->context);
}

void tern_api_get_models(void *context,
                         const struct tern_http_request *request,
                         struct tern_http_reply *reply)
{
    struct tern_api *api = context;
    struct tern_text text;
    if (!tern_api_admit(api, TERN_API_ROUTE_MODELS, request, reply, false)) {
        return;
    }
    tern_text_init(&text);
    tern_status status = tern_text_printf(&text, "{\"object\":\"list\",\"data\":[");
    if (status == TERN_OK) {
        status = write_model(&api->model, &text);
    }
    if (status == TERN_OK) {
        status = tern_text_printf(&text, "]}");
    }
    finish(api, TERN_API_ROUTE_MODELS, reply, status, g_json, &text);
}

void tern_api_get_model(void *context,
                        const struct tern_http_request *request,
                        struct tern_http_reply *reply)
{
    struct tern_api *api = context;
    const char *name = tern_http_request_rest(request);
    struct tern_text text;
    if (!tern_api_admit(api, TERN_API_ROUTE_MODELS, request, reply, false)) {
        return;
    }
    if (strcmp(name, api->model.name) != 0) {
        struct tern_api_error error = {0};
        tern_api_refuse(&error, TERN_API_NO_MODEL, "model",
                        "The model `%.200s` does not exist. This server has `%.200s`.", name,
                        api->model.name);
        tern_api_send_error(api, TERN_API_ROUTE_MODELS, reply, &error);
        return;
    }
    tern_text_init(&text);
    tern_status status = write_model(&api->model, &text);
    finish(api, TERN_API_ROUTE_MODELS, reply, status, g_json, &text);
}
