/* api_error.c - one table of what can be wrong. */
#include "runtime/serve/api_error.h"

#include "io/json.h"

#include <stdio.h>
#include <string.h>

enum {
    RETRY_SECONDS = 1
};

static const struct {
    int status, retry_seconds;
    const char *type, *code;
} g_kinds[] = {
    [TERN_API_BAD] = {400, 0, "invalid_request_error", NULL},
    [TERN_API_TOO_LONG] = {400, 0, "invalid_request_error", "context_length_exceeded"},
    [TERN_API_KEY] = {401, 0, "invalid_request_error", "invalid_api_key"},
    [TERN_API_NO_MODEL] = {404, 0, "invalid_request_error", "model_not_found"},
    [TERN_API_NO_ROUTE] = {404, 0, "invalid_request_error", "unknown_url"},
    [TERN_API_METHOD] = {405, 0, "invalid_request_error", "method_not_allowed"},
    [TERN_API_CONTENT_TYPE] = {415, 0, "invalid_request_error", "unsupported_content_type"},
    [TERN_API_BUSY] = {429, RETRY_SECONDS, "rate_limit_error", "rate_limit_exceeded"},
    [TERN_API_FAILED] = {500, 0, "server_error", "internal_error"},
    [TERN_API_LOADING] = {503, RETRY_SECONDS, "unavailable_error", "loading"},
    [TERN_API_DRAINING] = {503, RETRY_SECONDS, "unavailable_error", "draining"},
    [TERN_API_DEAD] = {503, RETRY_SECONDS, "unavailable_error", "engine_lost"},
    [TERN_API_TIMEOUT] = {504, 0, "server_error", "deadline_exceeded"},
};

static void set_kind(struct tern_api_error *error, enum tern_api_error_kind kind)
{
    error->status = g_kinds[kind].status;
    error->retry_seconds = g_kinds[kind].retry_seconds;
    error->type = g_kinds[kind].type;
    error->code = g_kinds[kind].code;
}

tern_status tern_api_refuse(struct tern_api_error *error,
                            enum tern_api_error_kind kind,
                            const char *param,
                            const char *format,
                            ...)
{
    if (error->status != 0) {
        return TERN_ERR_INPUT;
    }
    va_list arguments;
    set_kind(error, kind);
    snprintf(error->param, sizeof error->param, "%s", param != NULL ? param : "");
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return TERN_ERR_INPUT;
}

void tern_api_error_from(struct tern_api_error *error, tern_status status)
{
    enum tern_api_error_kind kind = TERN_API_FAILED;
    switch (status) {
    case TERN_ERR_INPUT:
    case TERN_ERR_UNSUPPORTED:
        kind = TERN_API_BAD;
        break;
    case TERN_ERR_BUSY:
        kind = TERN_API_BUSY;
        break;
    case TERN_ERR_CANCELLED:
        kind = TERN_API_DRAINING;
        break;
    case TERN_ERR_DEVICE:
        kind = TERN_API_DEAD;
        break;
    case TERN_ERR_TIMEOUT:
        kind = TERN_API_TIMEOUT;
        break;
    default:
        break;
    }
    const char *detail = tern_detail();
    tern_api_refuse(error, kind, NULL, "%s", detail[0] != '\0' ? detail : tern_status_name(status));
}

tern_status tern_api_error_write(const struct tern_api_error *error, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"error\":{\"message\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, error->message, strlen(error->message)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"type\":\"%s\",\"param\":", error->type));
    if (error->param[0] != '\0') {
        TERN_RETURN_IF_ERR(tern_json_quote(out, error->param, strlen(error->param)));
    } else {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "null"));
    }
    if (error->code != NULL) {
        return tern_text_printf(out, ",\"code\":\"%s\"}}", error->code);
    }
    return tern_text_printf(out, ",\"code\":null}}");
}
