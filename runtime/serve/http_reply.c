/* http_reply.c - answers: filled by any thread, taken and framed by the loop. */
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/serve/http_internal.h"

#include <stdio.h>
#include <string.h>

struct tern_http_reply *tern_http_reply_create(struct tern_http *http)
{
    struct tern_http_reply *reply = tern_alloc_zero("http reply", 1, sizeof *reply);
    if (reply == NULL) {
        return NULL;
    }
    reply->http = http;
    reply->users = 1;
    reply->server_refs = 1;
    pthread_mutex_init(&reply->lock, NULL);
    return reply;
}

static void destroy(struct tern_http_reply *reply)
{
    if (reply->release != NULL) {
        reply->release(reply->context);
    }
    tern_http_request_fini(&reply->request);
    tern_text_fini(&reply->headers);
    tern_text_fini(&reply->pending);
    pthread_mutex_destroy(&reply->lock);
    tern_free(reply);
}

/* Unlocks, and frees what nobody holds any more. */
static void unlock(struct tern_http_reply *reply)
{
    bool is_free = reply->users == 0 && reply->server_refs == 0;
    pthread_mutex_unlock(&reply->lock);
    if (is_free) {
        destroy(reply);
    }
}

/* Tells the loop that there is something new. Lock held. */
static void notify(struct tern_http_reply *reply)
{
    if (!reply->is_gone && !reply->is_ready) {
        reply->is_ready = true;
        reply->server_refs++;
        tern_http_ready(reply->http, reply);
    }
}

void tern_http_reply_retain(struct tern_http_reply *reply)
{
    pthread_mutex_lock(&reply->lock);
    reply->users++;
    pthread_mutex_unlock(&reply->lock);
}

void tern_http_reply_release(struct tern_http_reply *reply)
{
    pthread_mutex_lock(&reply->lock);
    TERN_CHECK(reply->users > 0);
    reply->users--;
    if (reply->users == 0 && reply->state != TERN_HTTP_REPLY_WHOLE) {
        reply->is_dropped = true;
        notify(reply);
    }
    unlock(reply);
}

void tern_http_reply_server_release(struct tern_http_reply *reply)
{
    pthread_mutex_lock(&reply->lock);
    reply->server_refs--;
    unlock(reply);
}

void tern_http_reply_handled(struct tern_http_reply *reply)
{
    tern_http_request_fini(&reply->request);
    atomic_fetch_sub(&reply->http->body_bytes, (long long)reply->counted_bytes);
    reply->counted_bytes = 0;
    tern_http_reply_release(reply);
}

void tern_http_reply_leave(struct tern_http_reply *reply)
{
    pthread_mutex_lock(&reply->lock);
    bool was_whole = reply->state == TERN_HTTP_REPLY_WHOLE;
    reply->is_gone = true;
    void (*gone)(void *context) = was_whole ? NULL : reply->gone;
    reply->gone = NULL;
    tern_text_fini(&reply->pending);
    pthread_mutex_unlock(&reply->lock);
    if (gone != NULL) {
        gone(reply->context);
    }
}

void tern_http_reply_on_gone(struct tern_http_reply *reply,
                             void (*gone)(void *context),
                             void (*release)(void *context),
                             void *context)
{
    pthread_mutex_lock(&reply->lock);
    TERN_CHECK(reply->gone == NULL && reply->release == NULL);
    bool is_late = reply->is_gone && reply->state != TERN_HTTP_REPLY_WHOLE;
    reply->gone = is_late ? NULL : gone;
    reply->release = release;
    reply->context = context;
    pthread_mutex_unlock(&reply->lock);
    if (is_late) {
        gone(context);
    }
}

bool tern_http_reply_is_gone(struct tern_http_reply *reply)
{
    pthread_mutex_lock(&reply->lock);
    bool is_gone = reply->is_gone || reply->is_cut;
    pthread_mutex_unlock(&reply->lock);
    return is_gone;
}

const char *tern_http_reply_id(const struct tern_http_reply *reply)
{
    return reply->id;
}

void tern_http_reply_header(struct tern_http_reply *reply, const char *name, const char *value)
{
    TERN_CHECK(strpbrk(name, "\r\n: ") == NULL && strpbrk(value, "\r\n") == NULL);
    pthread_mutex_lock(&reply->lock);
    TERN_CHECK(reply->state == TERN_HTTP_REPLY_NEW);
    if (tern_text_printf(&reply->headers, "%s: %s\r\n", name, value) != TERN_OK) {
        reply->is_broken = true;
    }
    pthread_mutex_unlock(&reply->lock);
}

/* Status and type of an answer that begins. Lock held. */
static void start(struct tern_http_reply *reply, int status, const char *content_type)
{
    TERN_CHECK(reply->state == TERN_HTTP_REPLY_NEW);
    TERN_CHECK(status >= 200 && status <= 599);
    reply->status = status;
    if (content_type != NULL) {
        TERN_CHECK(strlen(content_type) < sizeof reply->content_type &&
                   strpbrk(content_type, "\r\n") == NULL);
        memcpy(reply->content_type, content_type, strlen(content_type) + 1);
        reply->is_events = strncmp(content_type, "text/event-stream", 17) == 0;
    }
}

/* Lock held. */
static void append(struct tern_http_reply *reply, const void *bytes, size_t count)
{
    if (!reply->is_gone && !reply->is_broken && count > 0 &&
        tern_text_append(&reply->pending, bytes, count) != TERN_OK) {
        reply->is_broken = true;
    }
}

void tern_http_reply_send(struct tern_http_reply *reply,
                          int status,
                          const char *content_type,
                          const void *body,
                          size_t bytes)
{
    pthread_mutex_lock(&reply->lock);
    start(reply, status, content_type);
    append(reply, body, bytes);
    reply->is_sized = true;
    reply->state = TERN_HTTP_REPLY_WHOLE;
    notify(reply);
    pthread_mutex_unlock(&reply->lock);
}

void tern_http_reply_begin(struct tern_http_reply *reply, int status, const char *content_type)
{
    pthread_mutex_lock(&reply->lock);
    start(reply, status, content_type);
    reply->state = TERN_HTTP_REPLY_STREAM;
    notify(reply);
    pthread_mutex_unlock(&reply->lock);
}

bool tern_http_reply_write(struct tern_http_reply *reply, const void *bytes, size_t count)
{
    pthread_mutex_lock(&reply->lock);
    TERN_CHECK(reply->state == TERN_HTTP_REPLY_STREAM);
    if (reply->pending.length > reply->http->options.backlog_bytes_max) {
        reply->is_cut = true;
    } else {
        append(reply, bytes, count);
    }
    notify(reply);
    bool is_taken = !reply->is_gone && !reply->is_cut && !reply->is_broken;
    pthread_mutex_unlock(&reply->lock);
    return is_taken;
}

void tern_http_reply_end(struct tern_http_reply *reply)
{
    pthread_mutex_lock(&reply->lock);
    TERN_CHECK(reply->state == TERN_HTTP_REPLY_STREAM);
    reply->state = TERN_HTTP_REPLY_WHOLE;
    notify(reply);
    pthread_mutex_unlock(&reply->lock);
}

/* The body of an error answer. */
static tern_status write_error(const struct tern_http *http,
                               int status,
                               const char *message,
                               struct tern_text *out)
{
    const struct tern_http_options *options = &http->options;
    if (options->error_body != NULL) {
        return options->error_body(options->context, status, message, out);
    }
    return tern_text_printf(out, "{\"error\": {\"message\": \"%s\", \"code\": %d}}\n", message,
                            status);
}

void tern_http_reply_error(struct tern_http_reply *reply, int status, const char *message)
{
    struct tern_text body;
    tern_text_init(&body);
    tern_status made = write_error(reply->http, status, message, &body);
    atomic_fetch_add(&reply->http->errors_total, 1);
    tern_http_reply_send(reply, status, "application/json", body.data,
                         made == TERN_OK ? body.length : 0);
    tern_text_fini(&body);
}

/* ---- the loop's side ---- */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Status";
}

static bool is_chunked(const struct tern_http_reply *reply)
{
    return !reply->is_sized && !reply->is_1_0 && !reply->is_head;
}

static tern_status write_head(const struct tern_http_reply *reply,
                              bool keep_alive,
                              struct tern_text *out)
{
    bool has_body = reply->status != 204 && reply->status != 304;
    TERN_RETURN_IF_ERR(tern_text_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", reply->status,
                                        reason_of(reply->status), tern_http_date()));
    if (reply->content_type[0] != '\0') {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "Content-Type: %s\r\n", reply->content_type));
    }
    if (reply->is_sized && has_body) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "Content-Length: %zu\r\n", reply->pending.length));
    } else if (!reply->is_sized && !reply->is_1_0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "Transfer-Encoding: chunked\r\n"));
    }
    if (!keep_alive) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "Connection: close\r\n"));
    } else if (reply->is_1_0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "Connection: keep-alive\r\n"));
    }
    if (reply->headers.length > 0) {
        TERN_RETURN_IF_ERR(tern_text_append(out, reply->headers.data, reply->headers.length));
    }
    return tern_text_printf(out, "x-request-id: %s\r\n\r\n", reply->id);
}

static tern_status write_piece(const struct tern_http_reply *reply, struct tern_text *out)
{
    if (reply->pending.length == 0 || reply->is_head) {
        return TERN_OK;
    }
    if (!is_chunked(reply)) {
        return tern_text_append(out, reply->pending.data, reply->pending.length);
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%zx\r\n", reply->pending.length));
    TERN_RETURN_IF_ERR(tern_text_append(out, reply->pending.data, reply->pending.length));
    return tern_text_append(out, "\r\n", 2);
}

/* What is there, framed; lock held. */
static tern_status take(struct tern_http_reply *reply, bool *keep_alive, struct tern_text *out)
{
    if (!reply->head_sent) {
        if (reply->is_1_0 && !reply->is_sized) {
            *keep_alive = false; /* the end of the body is the end of the connection */
        }
        TERN_RETURN_IF_ERR(write_head(reply, *keep_alive, out));
        reply->head_sent = true;
    }
    TERN_RETURN_IF_ERR(write_piece(reply, out));
    reply->pending.length = 0;
    if (reply->state == TERN_HTTP_REPLY_WHOLE && is_chunked(reply)) {
        return tern_text_append(out, "0\r\n\r\n", 5);
    }
    return TERN_OK;
}

/* Let go before a byte was sent: the answer becomes a 500. Nobody but the loop holds the reply any more. */
static void answer_dropped(struct tern_http_reply *reply)
{
    reply->headers.length = 0;
    reply->pending.length = 0;
    reply->state = TERN_HTTP_REPLY_NEW;
    reply->is_dropped = false;
    tern_http_reply_error(reply, 500, "the request was not answered");
}

static bool is_dropped_early(struct tern_http_reply *reply)
{
    pthread_mutex_lock(&reply->lock);
    bool is_early = reply->is_dropped && !reply->head_sent;
    pthread_mutex_unlock(&reply->lock);
    return is_early;
}

enum tern_http_take tern_http_reply_take(struct tern_http_reply *reply,
                                         bool *keep_alive,
                                         struct tern_text *out)
{
    enum tern_http_take result = TERN_HTTP_TAKE_CUT;
    size_t before = out->length;
    if (is_dropped_early(reply)) {
        answer_dropped(reply);
    }
    pthread_mutex_lock(&reply->lock);
    bool is_over = reply->state == TERN_HTTP_REPLY_WHOLE;
    if (reply->is_dropped || reply->is_broken || reply->is_cut || reply->is_gone) {
        result = TERN_HTTP_TAKE_CUT;
    } else if (reply->state == TERN_HTTP_REPLY_NEW) {
        result = TERN_HTTP_TAKE_NOTHING;
    } else if (take(reply, keep_alive, out) == TERN_OK) {
        result = is_over                ? TERN_HTTP_TAKE_LAST
                 : out->length > before ? TERN_HTTP_TAKE_SOME
                                        : TERN_HTTP_TAKE_NOTHING;
    }
    pthread_mutex_unlock(&reply->lock);
    return result;
}

bool tern_http_reply_ping(struct tern_http_reply *reply, struct tern_text *out)
{
    static const char ping[] = ": ping\n\n";
    pthread_mutex_lock(&reply->lock);
    bool is_due = reply->is_events && reply->head_sent && !reply->is_head &&
                  reply->state == TERN_HTTP_REPLY_STREAM && reply->pending.length == 0;
    if (is_due) {
        append(reply, ping, sizeof ping - 1);
        is_due = write_piece(reply, out) == TERN_OK;
        reply->pending.length = 0;
    }
    pthread_mutex_unlock(&reply->lock);
    return is_due;
}
