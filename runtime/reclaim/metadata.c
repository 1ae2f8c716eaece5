/* metadata.c - one client for one service. */
#include "runtime/reclaim/metadata.h"

#include "runtime/base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BASE_BYTES = 256,
    URL_BYTES = BASE_BYTES + 1024
};

static const char g_link_local[] = "http://169.254.169.254";
static const double g_connect_seconds = 2;
static const double g_total_seconds = 2;

struct tern_metadata {
    char base[BASE_BYTES]; /* without a slash at the end */
    const atomic_bool *cancel;
    struct tern_http_client *client;
};

/* A host and nothing behind it. */
static tern_status take_base(struct tern_metadata *metadata, const char *base)
{
    static const char start[] = "http://";
    size_t length = strlen(base);
    while (length > 0 && base[length - 1] == '/') {
        length--;
    }
    bool is_good = length > sizeof start - 1 && length < BASE_BYTES &&
                   strncmp(base, start, sizeof start - 1) == 0;
    for (size_t i = sizeof start - 1; is_good && i < length; i++) {
        is_good = isalnum((unsigned char)base[i]) || strchr(".-:[]", base[i]) != NULL;
    }
    if (!is_good) {
        return tern_fail(TERN_ERR_USAGE,
                         "environment TERN_METADATA_URL: found '%.80s', expected http://HOST or "
                         "http://HOST:PORT",
                         base);
    }
    memcpy(metadata->base, base, length);
    metadata->base[length] = '\0';
    return TERN_OK;
}

tern_status tern_metadata_open(const char *base,
                               const atomic_bool *cancel,
                               struct tern_metadata **out)
{
    struct tern_metadata *metadata = tern_alloc_zero("reclaim", 1, sizeof *metadata);
    const char *given = getenv("TERN_METADATA_URL");
    tern_status status = TERN_OK;
    if (metadata == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a metadata client");
    }
    if (base == NULL) {
        base = given != NULL && given[0] != '\0' ? given : g_link_local;
    }
    metadata->cancel = cancel;
    TERN_GOTO_IF_ERR(status, take_base(metadata, base), fail);
    TERN_GOTO_IF_ERR(status, tern_http_open(&metadata->client), fail);
    *out = metadata;
    return TERN_OK;
fail:
    tern_metadata_close(metadata);
    return status;
}

void tern_metadata_close(struct tern_metadata *metadata)
{
    if (metadata != NULL) {
        tern_http_close(metadata->client);
        tern_free(metadata);
    }
}

tern_status tern_metadata_ask(struct tern_metadata *metadata,
                              const struct tern_metadata_ask *ask,
                              struct tern_http_answer *out)
{
    char url[URL_BYTES];
    int length = snprintf(url, sizeof url, "%s%s", metadata->base, ask->path);
    if (length < 0 || length >= (int)sizeof url) {
        *out = (struct tern_http_answer){0};
        return tern_fail(TERN_ERR_ARGUMENT, "a metadata path of %zu bytes", strlen(ask->path));
    }
    struct tern_http_call call = {
        .method = ask->method,
        .url = url,
        .headers = ask->headers,
        .body = ask->body,
        .body_bytes = ask->body != NULL ? strlen(ask->body) : 0,
        .connect_seconds = g_connect_seconds,
        .total_seconds = ask->seconds > 0 ? ask->seconds : g_total_seconds,
        .answer_bytes_max = TERN_METADATA_BODY_BYTES_MAX,
        .is_direct = true,
        .cancel = metadata->cancel,
    };
    while (call.header_count < TERN_METADATA_HEADERS_MAX &&
           ask->headers[call.header_count] != NULL) {
        call.header_count++;
    }
    return tern_http_ask(metadata->client, &call, out);
}

tern_status tern_metadata_refused(const struct tern_metadata_ask *ask,
                                  const struct tern_http_answer *answer)
{
    return tern_fail(TERN_ERR_IO, "%s %.200s answers %d", ask->method != NULL ? ask->method : "GET",
                     ask->path, answer->status);
}

const char *tern_metadata_line(struct tern_http_answer *answer, size_t bytes_max)
{
    char *text = answer->body.data;
    size_t length = answer->body.length;
    if (text == NULL) {
        return NULL;
    }
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL && text[length - 1] != '\0') {
        length--;
    }
    size_t start = 0;
    while (start < length && (text[start] == ' ' || text[start] == '\t')) {
        start++;
    }
    if (length == start || length - start > bytes_max) {
        return NULL;
    }
    for (size_t i = start; i < length; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return NULL;
        }
    }
    text[length] = '\0';
    return text + start;
}

void tern_metadata_show(char *out, size_t size, const char *text)
{
    size_t used = 0;
    for (; text[used] != '\0' && used + 1 < size; used++) {
        bool is_plain = text[used] >= ' ' && text[used] <= '~';
        out[used] = (char)(is_plain ? text[used] : '?');
    }
    out[used] = '\0';
}
