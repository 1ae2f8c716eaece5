/* api_error.h - what a client is told when its request cannot be served, in OpenAI's shape. */
#ifndef TERN_RUNTIME_SERVE_API_ERROR_H
#define TERN_RUNTIME_SERVE_API_ERROR_H

#include "runtime/base/text.h"

enum tern_api_error_kind {
    TERN_API_BAD,          /* 400 */
    TERN_API_TOO_LONG,     /* 400: more tokens than the context */
    TERN_API_KEY,          /* 401 */
    TERN_API_NO_MODEL,     /* 404 */
    TERN_API_NO_ROUTE,     /* 404 */
    TERN_API_METHOD,       /* 405 */
    TERN_API_CONTENT_TYPE, /* 415 */
    TERN_API_BUSY,         /* 429: the queue is full */
    TERN_API_FAILED,       /* 500 */
    TERN_API_LOADING,      /* 503 */
    TERN_API_DRAINING,     /* 503 */
    TERN_API_DEAD,         /* 503: the engine is gone */
    TERN_API_TIMEOUT,      /* 504: its deadline passed */
};

enum {
    TERN_API_PATH_BYTES = 160, /* of "messages[3].tool_calls[0].function" */
    TERN_API_MESSAGE_BYTES = 640
};

struct tern_api_error {
    int status;                      /* of HTTP; 0: nothing was refused yet */
    int retry_seconds;               /* when to come back; 0: not said */
    const char *type, *code;         /* static; code may be NULL */
    char param[TERN_API_PATH_BYTES]; /* which field; "": none */
    char message[TERN_API_MESSAGE_BYTES];
};

/* Fills the error (the first one stays) and returns TERN_ERR_INPUT. param may be NULL. */
tern_status tern_api_refuse(struct tern_api_error *error,
                            enum tern_api_error_kind kind,
                            const char *param,
                            const char *format,
                            ...) TERN_PRINTF(4, 5);
/* An error for a status that some other part returned, by tern_detail(); one that is there stays. */
void tern_api_error_from(struct tern_api_error *error, tern_status status);
/* Appends {"error": {...}}. */
TERN_MUST_CHECK tern_status tern_api_error_write(const struct tern_api_error *error,
                                                 struct tern_text *out);

#endif
