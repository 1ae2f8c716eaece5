/* http_client.c - one request at a time over a libcurl multi handle, which keeps the connections. */
#include "io/http_client.h"

#include "runtime/base/mem.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    POLL_MS = 50,                 /* between two looks at *cancel */
    HEADERS_BYTES_MAX = 64 << 10, /* of an answer */
    ANSWER_BYTES_MAX = 1 << 20,   /* of an answer, unless the call says otherwise */
    URL_BYTES_MAX = 16 << 10,
    PIECE_BYTES = 64 << 10, /* handed to libcurl at once: the grain of the rate limit */
    HOST_BYTES = 128,
};

struct tern_http_client {
    CURLM *multi;
    CURL *easy;
    char error[CURL_ERROR_SIZE];
};

/* One request under way. */
struct transfer {
    const struct tern_http_call *call;
    struct tern_http_answer *answer;
    size_t sent;
    size_t answer_bytes;
    tern_status status; /* of what a callback refused, with its sentence */
};

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static CURLcode g_init;

static void init_library(void)
{
    g_init = curl_global_init(CURL_GLOBAL_DEFAULT);
}

tern_status tern_http_open(struct tern_http_client **out)
{
    pthread_once(&g_once, init_library);
    if (g_init != CURLE_OK) {
        return tern_fail(TERN_ERR_IO, "libcurl does not start: %s", curl_easy_strerror(g_init));
    }
    struct tern_http_client *client = tern_alloc_zero("http client", 1, sizeof *client);
    if (client == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for an HTTP client");
    }
    client->multi = curl_multi_init();
    client->easy = curl_easy_init();
    if (client->multi == NULL || client->easy == NULL) {
        tern_http_close(client);
        return tern_fail(TERN_ERR_MEMORY, "no memory for an HTTP client");
    }
    curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, 4L);
    *out = client;
    return TERN_OK;
}

void tern_http_close(struct tern_http_client *client)
{
    if (client == NULL) {
        return;
    }
    curl_easy_cleanup(client->easy);
    curl_multi_cleanup(client->multi);
    tern_free(client);
}

void tern_http_answer_fini(struct tern_http_answer *answer)
{
    tern_text_fini(&answer->body);
    tern_text_fini(&answer->headers);
    *answer = (struct tern_http_answer){0};
}

const char *tern_http_header(const struct tern_http_answer *answer,
                             const char *name,
                             char *out,
                             size_t out_bytes)
{
    const char *found = NULL;
    size_t name_bytes = strlen(name);
    for (const char *line = answer->headers.data; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        if (strncmp(line, name, name_bytes) == 0 && line[name_bytes] == ':') {
            const char *value = line + name_bytes + 1;
            value += *value == ' ';
            snprintf(out, out_bytes, "%.*s", (int)(end - value), value);
            found = out;
        }
        line = end + 1;
    }
    return found;
}

/* ---- what libcurl calls ---- */

static bool is_cancelled(const struct transfer *transfer)
{
    return transfer->call->cancel != NULL && atomic_load(transfer->call->cancel);
}

static size_t give_body(char *to, size_t size, size_t count, void *context)
{
    struct transfer *transfer = context;
    size_t room = size * count < PIECE_BYTES ? size * count : PIECE_BYTES;
    size_t left = transfer->call->body_bytes - transfer->sent;
    size_t bytes = left < room ? left : room;
    if (transfer->call->rate != NULL && bytes > 0) {
        tern_http_rate_take(transfer->call->rate, bytes, transfer->call->cancel);
    }
    if (is_cancelled(transfer)) {
        return CURL_READFUNC_ABORT;
    }
    if (bytes > 0) {
        memcpy(to, (const char *)transfer->call->body + transfer->sent, bytes);
    }
    transfer->sent += bytes;
    return bytes;
}

/* libcurl begins the body anew: a kept connection was dead. */
static int seek_body(void *context, curl_off_t offset, int origin)
{
    struct transfer *transfer = context;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > transfer->call->body_bytes) {
        return CURL_SEEKFUNC_FAIL;
    }
    transfer->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* A piece of the body. */
static tern_status keep_body(struct transfer *transfer, const char *bytes, size_t count)
{
    const struct tern_http_call *call = transfer->call;
    long code = transfer->answer->status;
    if (call->sink != NULL && code >= 200 && code < 300) {
        return call->sink(call->sink_context, bytes, count);
    }
    size_t max = call->answer_bytes_max > 0 ? call->answer_bytes_max : ANSWER_BYTES_MAX;
    if (count > max - transfer->answer_bytes) {
        return tern_fail(TERN_ERR_INPUT, "the answer is longer than %zu bytes", max);
    }
    transfer->answer_bytes += count;
    return tern_text_append(&transfer->answer->body, bytes, count);
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct transfer *transfer = context;
    count *= size;
    if (transfer->call->rate != NULL) {
        tern_http_rate_take(transfer->call->rate, count, transfer->call->cancel);
    }
    transfer->status = keep_body(transfer, bytes, count);
    return transfer->status == TERN_OK ? count : count + 1; /* another count is an error */
}

/* Name in lower case; a new status line (after 100 Continue) begins anew. */
static tern_status keep_header(struct transfer *transfer, const char *line, size_t bytes)
{
    struct tern_text *headers = &transfer->answer->headers;
    while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r')) {
        bytes--;
    }
    if (bytes >= 5 && strncmp(line, "HTTP/", 5) == 0) {
        headers->length = 0;
        const char *space = memchr(line, ' ', bytes);
        int code = 0;
        for (const char *at = space;
             at != NULL && ++at < line + bytes && *at >= '0' && *at <= '9';) {
            code = code < 1000 ? code * 10 + (*at - '0') : code;
        }
        transfer->answer->status = code;
        return code >= 100 && code < 600
                   ? TERN_OK
                   : tern_fail(TERN_ERR_INPUT, "the answer begins with '%.*s', which is no HTTP",
                               bytes < 40 ? (int)bytes : 40, line);
    }
    const char *colon = memchr(line, ':', bytes);
    if (colon == NULL) {
        return TERN_OK;
    }
    if (headers->length + bytes > HEADERS_BYTES_MAX) {
        return tern_fail(TERN_ERR_INPUT, "the headers of the answer are longer than %d bytes",
                         HEADERS_BYTES_MAX);
    }
    size_t start = headers->length;
    TERN_RETURN_IF_ERR(tern_text_append(headers, line, bytes));
    TERN_RETURN_IF_ERR(tern_text_append(headers, "\n", 1));
    for (size_t i = start; i < start + (size_t)(colon - line); i++) {
        char c = headers->data[i];
        headers->data[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    return TERN_OK;
}

static size_t take_header(char *bytes, size_t size, size_t count, void *context)
{
    struct transfer *transfer = context;
    transfer->status = keep_header(transfer, bytes, size * count);
    return transfer->status == TERN_OK ? size * count : size * count + 1;
}

/* ---- a request ---- */

static bool is_line(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            return false;
        }
    }
    return true;
}

/* "https://host:port" of a URL, for sentences: what follows may hold secrets. */
static void host_of(const char *url, char out[HOST_BYTES])
{
    const char *host = strstr(url, "://");
    size_t bytes = host == NULL ? strlen(url) : (size_t)(host + 3 - url) + strcspn(host + 3, "/?#");
    snprintf(out, HOST_BYTES, "%.*s", bytes < HOST_BYTES ? (int)bytes : HOST_BYTES - 1, url);
}

static tern_status check_call(const struct tern_http_call *call)
{
    char host[HOST_BYTES];
    host_of(call->url, host);
    if ((strncmp(call->url, "http://", 7) != 0 && strncmp(call->url, "https://", 8) != 0) ||
        !is_line(call->url) || strchr(call->url, ' ') != NULL ||
        strlen(call->url) > URL_BYTES_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "'%s' is no http:// or https:// URL of at most %d characters", host,
                         URL_BYTES_MAX);
    }
    for (int i = 0; i < call->header_count; i++) {
        if (!is_line(call->headers[i]) || strchr(call->headers[i], ':') == NULL) {
            return tern_fail(TERN_ERR_ARGUMENT, "%s: header %d of the request cannot be sent", host,
                             i + 1);
        }
    }
    return TERN_OK;
}

static tern_status list_headers(const struct tern_http_call *call, struct curl_slist **out)
{
    /* without these libcurl waits for 100 Continue, or says what nobody asked for */
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    for (int i = 0; i < call->header_count && list != NULL; i++) {
        struct curl_slist *longer = curl_slist_append(list, call->headers[i]);
        if (longer == NULL) {
            curl_slist_free_all(list);
        }
        list = longer;
    }
    *out = list;
    return list != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "no memory for headers");
}

static long milliseconds(double seconds, double fallback)
{
    double value = seconds > 0 ? seconds : fallback;
    return value < 0.001 ? 1L : value > 1e6 ? 1000000000L : (long)(value * 1000);
}

static void set_body(CURL *easy, struct transfer *transfer)
{
    const struct tern_http_call *call = transfer->call;
    const char *method = call->method != NULL ? call->method : "GET";
    bool has_body = call->body != NULL || strcmp(method, "PUT") == 0 || strcmp(method, "POST") == 0;
    if (has_body) {
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->body_bytes);
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body);
        curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
        curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek_body);
        curl_easy_setopt(easy, CURLOPT_SEEKDATA, transfer);
        curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)PIECE_BYTES);
    }
    if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else if (has_body ? strcmp(method, "PUT") != 0 : strcmp(method, "GET") != 0) {
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    }
}

/* Whose certificates are believed: that they are checked is libcurl's default. */
static void set_authorities(CURL *easy, const struct tern_http_call *call)
{
    const char *path = call->ca_file != NULL ? call->ca_file : getenv("SSL_CERT_FILE");
    if (path != NULL && path[0] != '\0') {
        curl_easy_setopt(easy, CURLOPT_CAINFO, path);
    }
}

static void set_up(struct tern_http_client *client,
                   struct transfer *transfer,
                   struct curl_slist *headers)
{
    CURL *easy = client->easy;
    const struct tern_http_call *call = transfer->call;
    curl_easy_reset(easy);
    client->error[0] = '\0';
    curl_easy_setopt(easy, CURLOPT_URL, call->url);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "tern");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, client->error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(call->connect_seconds, 5));
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, milliseconds(call->total_seconds, 30));
    if (call->stall_seconds > 0) {
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                         (milliseconds(call->stall_seconds, 1) + 999) / 1000);
    }
    if (call->is_direct) {
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    }
    set_authorities(easy, call);
    set_body(easy, transfer);
}

/* Drives the transfer to its end; *code_out: what came of it. */
static tern_status drive(struct tern_http_client *client,
                         const struct transfer *transfer,
                         CURLcode *code_out)
{
    for (;;) {
        int running = 0, left;
        CURLMcode code = curl_multi_perform(client->multi, &running);
        CURLMsg *message;
        while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
            if (message->msg == CURLMSG_DONE) {
                *code_out = message->data.result;
                return TERN_OK;
            }
        }
        if (is_cancelled(transfer)) {
            return tern_fail(TERN_ERR_CANCELLED, "cancelled");
        }
        if (code == CURLM_OK) {
            code = curl_multi_poll(client->multi, NULL, 0, POLL_MS, NULL);
        }
        if (code != CURLM_OK) {
            return tern_fail(TERN_ERR_IO, "libcurl: %s", curl_multi_strerror(code));
        }
    }
}

/* TLS may write to a socket that the other side has closed: SIGPIPE must not end the process. */
static tern_status drive_quietly(struct tern_http_client *client,
                                 const struct transfer *transfer,
                                 CURLcode *code_out)
{
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    tern_status status = drive(client, transfer, code_out);
    if (sigismember(&before, SIGPIPE) == 0) {
        sigtimedwait(&pipe, NULL, &(struct timespec){0});
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static tern_status judge(const struct tern_http_client *client,
                         const struct transfer *transfer,
                         CURLcode code)
{
    char host[HOST_BYTES];
    host_of(transfer->call->url, host);
    if (transfer->status != TERN_OK) { /* a callback's sentence is this thread's newest */
        return tern_fail_prefix(transfer->status, "%s", host);
    }
    if (code == CURLE_OK) {
        return TERN_OK;
    }
    if (is_cancelled(transfer)) {
        return tern_fail(TERN_ERR_CANCELLED, "%s: cancelled", host);
    }
    const char *reason = client->error[0] != '\0' ? client->error : curl_easy_strerror(code);
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
        return tern_fail(TERN_ERR_CONFIG,
                         "%s: its certificate is not believed: %s (SSL_CERT_FILE names a PEM file "
                         "of authorities)",
                         host, reason);
    }
    bool is_junk = code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_UNSUPPORTED_PROTOCOL;
    return tern_fail(is_junk ? TERN_ERR_INPUT : TERN_ERR_IO, "%s: %s", host, reason);
}

tern_status tern_http_ask(struct tern_http_client *client,
                          const struct tern_http_call *call,
                          struct tern_http_answer *out)
{
    *out = (struct tern_http_answer){0};
    struct transfer transfer = {.call = call, .answer = out};
    struct curl_slist *headers = NULL;
    TERN_RETURN_IF_ERR(check_call(call));
    TERN_RETURN_IF_ERR(list_headers(call, &headers));
    set_up(client, &transfer, headers);
    CURLcode code = CURLE_OK;
    tern_status status = TERN_OK;
    if (curl_multi_add_handle(client->multi, client->easy) != CURLM_OK) {
        status = tern_fail(TERN_ERR_MEMORY, "libcurl takes no request");
    } else {
        status = drive_quietly(client, &transfer, &code);
    }
    if (status == TERN_OK) {
        status = judge(client, &transfer, code);
    }
    double connected = 0;
    curl_easy_getinfo(client->easy, CURLINFO_PRETRANSFER_TIME, &connected);
    out->is_cut = status != TERN_OK && connected > 0;
    out->sent_bytes = (int64_t)transfer.sent;
    curl_multi_remove_handle(client->multi, client->easy);
    curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, NULL);
    curl_easy_setopt(client->easy, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(headers);
    return status;
}

tern_status tern_http_get(const struct tern_http_call *call, struct tern_http_answer *out)
{
    struct tern_http_client *client;
    *out = (struct tern_http_answer){0};
    TERN_RETURN_IF_ERR(tern_http_open(&client));
    tern_status status = tern_http_ask(client, call, out);
    tern_http_close(client);
    return status;
}
