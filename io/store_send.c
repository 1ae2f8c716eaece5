/* store_send.c - one request to a store, signed, sent, and again while that can help. */
#include "io/store_parts.h"
#include "runtime/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ANSWER_BYTES_MAX = 16 << 20, /* a page of a listing is below 2 MiB */
    BACKOFF_CAP_SECONDS = 20,
    RETRY_AFTER_MAX = 60,
    SLOWEST_BYTES = 64 << 10 /* a second: what is slower has stalled */
};

/* What an attempt came to. */
enum verdict {
    DONE,
    AGAIN,
    AGAIN_AT_ONCE, /* the cause is known and mended */
    REFUSED
};

/* What is remembered from attempt to attempt. */
struct effort {
    double started;
    int tries;
    bool wants_login;   /* the next attempt fetches it anew */
    bool was_renewed;   /* that has been tried */
    bool was_set_right; /* the clock, or the region */
    double retry_after; /* seconds; what the store asked for */
    char said[512];     /* why the last attempt failed */
};

void tern_store_reply_fini(struct tern_store_reply *reply)
{
    tern_http_answer_fini(&reply->answer);
    *reply = (struct tern_store_reply){0};
}

void tern_store_add_pair(struct tern_store_request *request, const char *name, const char *value)
{
    request->pairs[request->pair_count++] = (struct tern_pair){name, value};
}

void tern_store_add_header(struct tern_store_request *request, const char *line)
{
    request->headers[request->header_count++] = line;
}

/* ---- what the answer says ---- */

struct error_text {
    char root[TERN_XML_NAME_BYTES];
    char code[TERN_STORE_CODE_BYTES];
    char message[256];
};

static tern_status read_error(void *context, int depth, const char *name, const char *text)
{
    struct error_text *error = context;
    if (depth == 0 && text == NULL) {
        snprintf(error->root, sizeof error->root, "%s", name);
    } else if (depth == 1 && text != NULL && strcmp(error->root, "Error") == 0) {
        if (strcmp(name, "Code") == 0) {
            snprintf(error->code, sizeof error->code, "%.60s", text);
        } else if (strcmp(name, "Message") == 0) {
            snprintf(error->message, sizeof error->message, "%.250s", text);
        }
    }
    return TERN_OK;
}

/* Line breaks and the like make no sentence. */
static void make_line(char *text)
{
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < 0x20 ? ' ' : *text;
    }
}

/* True: the body is whole XML. */
static bool parse_error(const struct tern_http_answer *answer, struct error_text *error)
{
    *error = (struct error_text){0};
    bool is_whole = answer->body.length > 0 && tern_xml_each(answer->body.data, answer->body.length,
                                                             read_error, error) == TERN_OK;
    if (error->code[0] == '\0') {
        char code[TERN_STORE_CODE_BYTES];
        if (tern_http_header(answer, "x-ms-error-code", code, sizeof code) != NULL) {
            strcpy(error->code, code);
        }
    }
    make_line(error->code);
    make_line(error->message);
    return is_whole;
}

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (strcmp(text, *list) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_passing(int status, const char *code)
{
    static const char *const codes[] = {"InternalError",
                                        "SlowDown",
                                        "ServiceUnavailable",
                                        "ServerBusy",
                                        "OperationTimedOut",
                                        "RequestTimeout",
                                        "ConditionalRequestConflict",
                                        "OperationAborted",
                                        "BadDigest",
                                        "Md5Mismatch",
                                        "XAmzContentSHA256Mismatch",
                                        "XAmzContentChecksumMismatch",
                                        "IncompleteBody",
                                        NULL};
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504 || is_one_of(code, codes);
}

static bool is_full(int status, const char *code)
{
    static const char *const codes[] = {"QuotaExceeded", "AccountQuotaExceeded",
                                        "InsufficientStorage", "XMinioStorageFull", NULL};
    return status == 507 || is_one_of(code, codes);
}

/* The store's clock, when it says that ours is wrong. */
static bool set_clock(struct tern_store *store, const struct tern_http_answer *answer)
{
    char date[64];
    struct tm parts = {0};
    if (tern_http_header(answer, "date", date, sizeof date) == NULL ||
        strptime(date, "%a, %d %b %Y %H:%M:%S", &parts) == NULL) {
        return false;
    }
    atomic_store(&store->clock_offset, (double)timegm(&parts) - tern_store_wall_seconds());
    return true;
}

/* The bucket is in another region than the one that was signed for. */
static bool set_region(struct tern_store *store, const struct tern_http_answer *answer)
{
    char region[TERN_STORE_NAME_BYTES];
    if (tern_http_header(answer, "x-amz-bucket-region", region, sizeof region) == NULL ||
        region[0] == '\0' || strlen(region) > 60) {
        return false;
    }
    pthread_mutex_lock(&store->lock);
    bool is_other = strcmp(region, store->region) != 0;
    if (is_other) {
        strcpy(store->region, region);
    }
    pthread_mutex_unlock(&store->lock);
    return is_other;
}

static void slow_down(struct tern_store *store)
{
    int allowed = atomic_load(&store->allowed);
    atomic_store(&store->allowed, allowed > 1 ? allowed / 2 : 1);
}

static enum verdict judge_refusal(struct tern_store *store,
                                  struct effort *effort,
                                  const struct tern_http_answer *answer,
                                  const struct error_text *error)
{
    static const char *const expired[] = {"ExpiredToken", "TokenRefreshRequired", "InvalidToken",
                                          "RequestExpired", NULL};
    bool is_stale = answer->status == 401 || is_one_of(error->code, expired);
    if (is_stale && !effort->was_renewed) {
        effort->was_renewed = effort->wants_login = true;
        return AGAIN_AT_ONCE;
    }
    bool is_wrong_place = answer->status == 301 || answer->status == 307 || answer->status == 400 ||
                          answer->status == 403;
    if (!effort->was_set_right &&
        ((strcmp(error->code, "RequestTimeTooSkewed") == 0 && set_clock(store, answer)) ||
         (is_wrong_place && set_region(store, answer)))) {
        effort->was_set_right = true;
        return AGAIN_AT_ONCE;
    }
    if (!is_passing(answer->status, error->code)) {
        return REFUSED;
    }
    if (answer->status == 503 || answer->status == 429 || strcmp(error->code, "SlowDown") == 0) {
        slow_down(store);
    }
    char after[32];
    if (tern_http_header(answer, "retry-after", after, sizeof after) != NULL) {
        long seconds = strtol(after, NULL, 10);
        effort->retry_after = seconds < 0                 ? 0
                              : seconds > RETRY_AFTER_MAX ? RETRY_AFTER_MAX
                                                          : (double)seconds;
    }
    return AGAIN;
}

static bool is_accepted(const struct tern_store_request *request, int status)
{
    for (int i = 0; i < 4 && request->accepts[i] != 0; i++) {
        if (request->accepts[i] == status) {
            return true;
        }
    }
    return status >= 200 && status < 300;
}

static enum verdict judge(struct tern_store *store,
                          const struct tern_store_request *request,
                          struct effort *effort,
                          size_t received,
                          struct tern_store_reply *reply)
{
    const struct tern_http_answer *answer = &reply->answer;
    bool is_good = answer->status >= 200 && answer->status < 300;
    struct error_text error;
    bool is_whole = parse_error(answer, &error);
    strcpy(reply->code, error.code);
    if (is_good && request->dst != NULL && received != request->dst_bytes) {
        snprintf(effort->said, sizeof effort->said, "%s was answered with %zu bytes instead of %zu",
                 request->method, received, request->dst_bytes);
        return AGAIN;
    }
    if (is_good && request->root != NULL && strcmp(error.root, request->root) != 0 &&
        strcmp(error.root, "Error") != 0) {
        snprintf(effort->said, sizeof effort->said,
                 "%s was answered with %d and a body that is no %s", request->method,
                 answer->status, request->root);
        return AGAIN;
    }
    if (is_good && request->root != NULL && !is_whole) {
        snprintf(effort->said, sizeof effort->said, "the answer to %s was cut short",
                 request->method);
        return AGAIN;
    }
    bool has_error_body = is_good && request->dst == NULL && strcmp(error.root, "Error") == 0;
    bool is_conflict = answer->status == 409 && is_passing(409, error.code);
    if (is_accepted(request, answer->status) && !has_error_body && !is_conflict) {
        return DONE;
    }
    snprintf(effort->said, sizeof effort->said, "%s was answered with %d%s%s%s%s", request->method,
             answer->status, error.code[0] != '\0' ? " " : "", error.code,
             error.message[0] != '\0' ? ": " : "", error.message);
    return judge_refusal(store, effort, answer, &error);
}

/* ---- one attempt ---- */

struct landing {
    char *dst;
    size_t capacity, received;
};

static tern_status land(void *context, const void *bytes, size_t count)
{
    struct landing *landing = context;
    if (count > landing->capacity - landing->received) {
        return tern_fail(TERN_ERR_INPUT, "more bytes came than the %zu that were asked for",
                         landing->capacity);
    }
    memcpy(landing->dst + landing->received, bytes, count);
    landing->received += count;
    return TERN_OK;
}

static double seconds_for(struct tern_store *store, const struct tern_store_request *request)
{
    double bytes = (double)request->body_bytes + (double)request->dst_bytes;
    double slowest = SLOWEST_BYTES;
    if (store->options.rate_bytes > 0) {
        double share = (double)store->options.rate_bytes / (2.0 * store->options.parallel);
        slowest = share < slowest ? share : slowest;
    }
    double seconds = 60 + bytes / slowest;
    double deadline = atomic_load(&store->deadline);
    double left = deadline - tern_clock_seconds();
    return deadline <= 0 || left > seconds ? seconds : left > 0.01 ? left : 0.01;
}

/* Path, query, URL and headers of an attempt. */
struct written {
    struct tern_text path, query, url;
    char host[TERN_STORE_URL_BYTES];
    struct tern_store_proof proof;
};

static void written_fini(struct written *written)
{
    tern_text_fini(&written->path);
    tern_text_fini(&written->query);
    tern_text_fini(&written->url);
    for (int i = 0; i < written->proof.line_count; i++) {
        tern_text_fini(&written->proof.lines[i]);
    }
    tern_text_fini(&written->proof.query);
}

static tern_status write_request(struct tern_store *store,
                                 const struct tern_store_request *request,
                                 const struct tern_login *login,
                                 struct written *out)
{
    TERN_RETURN_IF_ERR(
        tern_text_printf(&out->path, "%s%s", store->base_path,
                         request->key != NULL || store->base_path[0] == '\0' ? "/" : ""));
    if (request->key != NULL) {
        TERN_RETURN_IF_ERR(tern_url_encode(&out->path, request->key, true));
    }
    TERN_RETURN_IF_ERR(tern_text_append(&out->query, "", 0));
    TERN_RETURN_IF_ERR(tern_url_query(&out->query, request->pairs, request->pair_count));
    snprintf(out->host, sizeof out->host, "%s", strstr(store->endpoint, "://") + 3);
    struct tern_store_attempt attempt = {
        .request = request,
        .path = out->path.data,
        .query = out->query.data,
        .host = out->host,
        .login = login,
        .now = (time_t)(tern_store_wall_seconds() + atomic_load(&store->clock_offset)),
    };
    TERN_RETURN_IF_ERR(store->backend->prove(store, &attempt, &out->proof));
    const char *more = out->proof.query.data;
    bool has_query = out->query.length > 0, has_more = more != NULL && more[0] != '\0';
    return tern_text_printf(&out->url, "%s%s%s%s%s%s", store->endpoint, out->path.data,
                            has_query || has_more ? "?" : "", out->query.data,
                            has_query && has_more ? "&" : "", has_more ? more : "");
}

static tern_status run_once(struct tern_store *store,
                            struct tern_store_conn *conn,
                            const struct tern_store_request *request,
                            const struct tern_login *login,
                            struct landing *landing,
                            struct tern_http_answer *answer)
{
    struct written written = {0};
    const char *headers[TERN_STORE_HEADERS_MAX + 8];
    int count = 0;
    tern_status status = write_request(store, request, login, &written);
    for (int i = 0; i < request->header_count; i++) {
        headers[count++] = request->headers[i];
    }
    for (int i = 0; i < written.proof.line_count; i++) {
        headers[count++] = written.proof.lines[i].data;
    }
    struct tern_http_call call = {
        .method = request->method,
        .url = written.url.data,
        .headers = headers,
        .header_count = count,
        .body = request->body,
        .body_bytes = request->body_bytes,
        .connect_seconds = store->options.stall_seconds < 5 ? store->options.stall_seconds : 5,
        .total_seconds = seconds_for(store, request),
        .stall_seconds = store->options.stall_seconds,
        .answer_bytes_max =
            request->answer_bytes_max > 0 ? request->answer_bytes_max : ANSWER_BYTES_MAX,
        .ca_file = store->ca_file[0] != '\0' ? store->ca_file : NULL,
        .rate = store->rate,
        .cancel = &store->is_cancelled,
        .sink = request->dst != NULL ? land : NULL,
        .sink_context = landing,
    };
    if (status == TERN_OK) {
        status = tern_http_ask(conn->http, &call, answer);
    }
    written_fini(&written);
    return status;
}

/* *status_out: of a REFUSED that is no answer of the store. */
static enum verdict attempt(struct tern_store *store,
                            struct tern_store_conn *conn,
                            const struct tern_store_request *request,
                            struct effort *effort,
                            struct tern_store_reply *reply,
                            tern_status *status_out)
{
    struct tern_login login;
    struct landing landing = {request->dst, request->dst_bytes, 0};
    enum tern_fault_action fault =
        request->has_fault ? tern_fault_pass(request->fault) : TERN_FAULT_NONE;
    if (fault != TERN_FAULT_NONE) {
        snprintf(effort->said, sizeof effort->said, "%s: a fault as asked for", request->method);
        *status_out = fault == TERN_FAULT_ENOSPC ? TERN_ERR_NO_SPACE : TERN_ERR_IO;
        return fault == TERN_FAULT_ENOSPC ? REFUSED : AGAIN;
    }
    tern_status status = tern_store_login(store, effort->wants_login, &login);
    effort->wants_login = false;
    if (status == TERN_OK) {
        status = run_once(store, conn, request, &login, &landing, &reply->answer);
    }
    if (status == TERN_OK) {
        *status_out = TERN_ERR_IO;
        return judge(store, request, effort, landing.received, reply);
    }
    snprintf(effort->said, sizeof effort->said, "%s: %.400s", request->method, tern_detail());
    *status_out = status;
    return status == TERN_ERR_IO || status == TERN_ERR_INPUT ? AGAIN : REFUSED;
}

/* "s3://bucket/key" */
static tern_status refuse(const struct tern_store *store,
                          const struct tern_store_request *request,
                          tern_status status,
                          const char *sentence)
{
    return tern_fail(status, "%s://%s/%.300s: %s", store->backend->scheme, store->bucket,
                     request->key != NULL ? request->key : "", sentence);
}

static tern_status give_up(const struct tern_store *store,
                           const struct tern_store_request *request,
                           const struct effort *effort,
                           const struct tern_store_reply *reply,
                           tern_status status,
                           bool is_final)
{
    char sentence[700];
    if (status == TERN_ERR_CANCELLED) { /* said already */
        return status;
    }
    if (is_final && status == TERN_ERR_IO) {
        int code = reply->answer.status;
        status = code == 404                  ? TERN_ERR_NOT_FOUND
                 : is_full(code, reply->code) ? TERN_ERR_NO_SPACE
                                              : TERN_ERR_IO;
        return refuse(store, request, status, effort->said);
    }
    if (is_final) {
        return refuse(store, request, status, effort->said);
    }
    snprintf(sentence, sizeof sentence, "%s; given up after %d attempts in %.0f s", effort->said,
             effort->tries, tern_clock_seconds() - effort->started);
    return refuse(store, request, TERN_ERR_IO, sentence);
}

/* Full jitter: uniform up to a bound that doubles. */
static double backoff(struct tern_store *store, const struct effort *effort)
{
    double bound = store->options.pause_seconds;
    for (int i = 1; i < effort->tries && bound < BACKOFF_CAP_SECONDS; i++) {
        bound *= 2;
    }
    bound = bound < BACKOFF_CAP_SECONDS ? bound : BACKOFF_CAP_SECONDS;
    double seconds = bound * tern_store_draw(store);
    return seconds > effort->retry_after ? seconds : effort->retry_after;
}

tern_status tern_store_send(struct tern_store *store,
                            struct tern_store_conn *conn,
                            const struct tern_store_request *request,
                            struct tern_store_reply *out)
{
    struct effort effort = {.started = tern_clock_seconds()};
    *out = (struct tern_store_reply){0};
    for (;;) {
        tern_status status;
        TERN_RETURN_IF_ERR(tern_store_check(store));
        tern_store_reply_fini(out);
        effort.tries++;
        effort.retry_after = 0;
        enum verdict verdict = attempt(store, conn, request, &effort, out, &status);
        out->tries = effort.tries;
        if (verdict == DONE) {
            return TERN_OK;
        }
        if (verdict == REFUSED) {
            return give_up(store, request, &effort, out, status, true);
        }
        if (verdict == AGAIN_AT_ONCE) {
            continue;
        }
        double pause = backoff(store, &effort);
        if (tern_clock_seconds() + pause - effort.started > store->options.retry_seconds) {
            return give_up(store, request, &effort, out, TERN_ERR_IO, false);
        }
        TERN_RETURN_IF_ERR(tern_store_wait(store, pause));
    }
}

/* ---- requests that are the same with every store over HTTP ---- */

tern_status tern_store_get_range(struct tern_store *store,
                                 struct tern_store_conn *conn,
                                 const char *key,
                                 int64_t offset,
                                 size_t bytes,
                                 const char *etag,
                                 void *dst)
{
    char range[64], match[TERN_STORE_ETAG_BYTES + 16];
    struct tern_store_request request = {
        .method = "GET",
        .key = key,
        .dst = dst,
        .dst_bytes = bytes,
        .accepts = {412, 416},
        .has_fault = true,
        .fault = TERN_FAULT_STORE_GET,
    };
    struct tern_store_reply reply;
    snprintf(range, sizeof range, "Range: bytes=%lld-%lld", (long long)offset,
             (long long)offset + (long long)bytes - 1);
    tern_store_add_header(&request, range);
    if (etag != NULL && etag[0] != '\0') {
        snprintf(match, sizeof match, "If-Match: %s", etag);
        tern_store_add_header(&request, match);
    }
    tern_status status = tern_store_send(store, conn, &request, &reply);
    if (status == TERN_OK && reply.answer.status == 412) {
        status = tern_fail(TERN_ERR_CORRUPT, "%s://%s/%s was replaced while it was being read",
                           store->backend->scheme, store->bucket, key);
    } else if (status == TERN_OK && reply.answer.status == 416) {
        status =
            tern_fail(TERN_ERR_CORRUPT, "%s://%s/%s ends before byte %lld", store->backend->scheme,
                      store->bucket, key, (long long)offset + (long long)bytes);
    }
    tern_store_reply_fini(&reply);
    return status;
}

tern_status tern_store_head_object(struct tern_store *store,
                                   struct tern_store_conn *conn,
                                   const char *key,
                                   struct tern_store_info *out)
{
    struct tern_store_request request = {.method = "HEAD", .key = key};
    struct tern_store_reply reply;
    char length[32];
    tern_status status = tern_store_send(store, conn, &request, &reply);
    if (status == TERN_OK) {
        *out = (struct tern_store_info){0};
        (void)tern_http_header(&reply.answer, "etag", out->etag, sizeof out->etag);
        if (tern_http_header(&reply.answer, "content-length", length, sizeof length) == NULL ||
            !tern_text_to_i64(length, &out->bytes) || out->bytes < 0) {
            status = tern_fail(TERN_ERR_IO, "%s://%s/%s: the store does not say how long it is",
                               store->backend->scheme, store->bucket, key);
        }
    }
    tern_store_reply_fini(&reply);
    return status;
}

tern_status tern_store_delete(struct tern_store *store,
                              struct tern_store_conn *conn,
                              const char *key)
{
    struct tern_store_request request = {.method = "DELETE", .key = key, .accepts = {404}};
    struct tern_store_reply reply;
    tern_status status = tern_store_send(store, conn, &request, &reply);
    tern_store_reply_fini(&reply);
    return status;
}
