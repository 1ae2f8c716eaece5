/* store.c - opening a store by its URL, and the calls that are one request. */
#include "io/file.h"
#include "io/store_parts.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PART_BYTES = 16 << 20,
    PART_BYTES_MAX = 1 << 30,
    PARALLEL = 4,
    RETRY_SECONDS = 120,
    STALL_SECONDS = 15,
    KEY_BYTES_MAX = 900,
    WAIT_NS = 20000000 /* between two looks at a cancellation */
};

#define PAUSE_SECONDS 0.1

static const struct tern_store_backend *const g_backends[] = {
    &tern_store_s3, &tern_store_google, &tern_store_azure, &tern_store_folder};
enum {
    BACKENDS = sizeof g_backends / sizeof g_backends[0]
};

/* The backend of a URL, and what follows "scheme://". */
static const struct tern_store_backend *backend_of(const char *url, const char **rest_out)
{
    for (int i = 0; i < BACKENDS; i++) {
        size_t bytes = strlen(g_backends[i]->scheme);
        if (strncmp(url, g_backends[i]->scheme, bytes) == 0 &&
            strncmp(url + bytes, "://", 3) == 0) {
            *rest_out = url + bytes + 3;
            return g_backends[i];
        }
    }
    return NULL;
}

bool tern_store_is_url(const char *text)
{
    const char *rest;
    return text != NULL && backend_of(text, &rest) != NULL;
}

const char *tern_store_env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

tern_status tern_store_copy(char *out,
                            size_t capacity,
                            const char *text,
                            size_t bytes,
                            const char *what)
{
    if (bytes >= capacity) {
        return tern_fail(TERN_ERR_CONFIG, "%s has %zu characters, expected at most %zu", what,
                         bytes, capacity - 1);
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            return tern_fail(TERN_ERR_CONFIG, "%s holds a control character at place %zu", what,
                             i + 1);
        }
    }
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    return TERN_OK;
}

/* ---- open ---- */

static bool is_bucket(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (i > 0 && (c == '-' || c == '.' || c == '_')) || (i == 0 && c == '$'))) {
            return false;
        }
    }
    return bytes > 0;
}

/* "bucket/prefix" */
static tern_status split_url(struct tern_store *store, const char *url, const char *rest)
{
    size_t bucket = strcspn(rest, "/");
    size_t length = strlen(rest);
    while (length > bucket && rest[length - 1] == '/') {
        length--;
    }
    if (!is_bucket(rest, bucket)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "'%s': '%.*s' is no name of a bucket, expected %s://BUCKET/PREFIX", url,
                         (int)(bucket < 80 ? bucket : 80), rest, store->backend->scheme);
    }
    TERN_RETURN_IF_ERR(
        tern_store_copy(store->bucket, sizeof store->bucket, rest, bucket, "the bucket's name"));
    const char *prefix = rest + bucket;
    while (*prefix == '/') {
        prefix++;
    }
    const char *end = rest + length;
    if (prefix >= end) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_store_copy(store->prefix, sizeof store->prefix - KEY_BYTES_MAX / 2,
                                       prefix, (size_t)(end - prefix), "the URL's prefix"));
    strcat(store->prefix, "/");
    return TERN_OK;
}

static tern_status read_stall(double *seconds)
{
    const char *text = tern_store_env("TERN_STORE_STALL_SECONDS");
    double value = STALL_SECONDS;
    if (text != NULL && (!tern_text_to_f64(text, &value) || value < 0.1 || value > 3600)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "environment TERN_STORE_STALL_SECONDS: found '%s', expected seconds from "
                         "0.1 to 3600",
                         text);
    }
    *seconds = value;
    return TERN_OK;
}

static tern_status read_part_bytes(struct tern_store *store, int64_t *bytes)
{
    const char *text = tern_store_env("TERN_STORE_PART_BYTES");
    if (text == NULL) {
        if (*bytes < store->backend->part_bytes_min) {
            *bytes = store->backend->part_bytes_min;
        }
        return TERN_OK;
    }
    return tern_text_to_bytes(text, bytes) && *bytes >= 1 && *bytes <= PART_BYTES_MAX
               ? TERN_OK
               : tern_fail(TERN_ERR_CONFIG,
                           "environment TERN_STORE_PART_BYTES: found '%s', expected 1 to 1G", text);
}

static tern_status fill_options(struct tern_store *store, const struct tern_store_options *given)
{
    struct tern_store_options *options = &store->options;
    *options = given != NULL ? *given : (struct tern_store_options){0};
    options->part_bytes = options->part_bytes > 0 ? options->part_bytes : PART_BYTES;
    options->parallel = options->parallel > 0 ? options->parallel : PARALLEL;
    options->pause_seconds = options->pause_seconds > 0 ? options->pause_seconds : PAUSE_SECONDS;
    options->retry_seconds = options->retry_seconds > 0 ? options->retry_seconds : RETRY_SECONDS;
    if (options->parallel > TERN_STORE_PARALLEL_MAX) {
        options->parallel = TERN_STORE_PARALLEL_MAX;
    }
    TERN_RETURN_IF_ERR(read_part_bytes(store, &options->part_bytes));
    atomic_store(&store->allowed, options->parallel);
    if (options->rate_bytes > 0) {
        TERN_RETURN_IF_ERR(tern_http_rate_create(options->rate_bytes, &store->rate));
    }
    return options->stall_seconds > 0 ? TERN_OK : read_stall(&options->stall_seconds);
}

static tern_status set_up(struct tern_store *store, const char *url, const char *rest)
{
    size_t length = strlen(url);
    while (length > 0 && url[length - 1] == '/') {
        length--;
    }
    TERN_RETURN_IF_ERR(tern_store_copy(store->url, sizeof store->url, url, length, "the URL"));
    if (store->backend == &tern_store_folder) {
        TERN_RETURN_IF_ERR(tern_store_copy(store->prefix, sizeof store->prefix, rest, strlen(rest),
                                           "the URL's folder"));
    } else {
        TERN_RETURN_IF_ERR(split_url(store, url, rest));
    }
    return store->backend->open(store);
}

tern_status tern_store_open(const char *url,
                            const struct tern_store_options *options,
                            struct tern_store **out)
{
    const char *rest = NULL;
    const struct tern_store_backend *backend = backend_of(url, &rest);
    if (backend == NULL) {
        return tern_fail(TERN_ERR_CONFIG,
                         "'%.200s' is no store, expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
                         "az://CONTAINER/PREFIX or file:///FOLDER",
                         url);
    }
    struct tern_store *store = tern_alloc_zero("store", 1, sizeof *store);
    if (store == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a store");
    }
    pthread_mutex_init(&store->lock, NULL);
    store->backend = backend;
    store->seed = (uint64_t)tern_clock_ns() * 31 + (uint64_t)getpid();
    tern_status status = fill_options(store, options);
    if (status == TERN_OK) {
        status = set_up(store, url, rest);
    }
    if (status != TERN_OK) {
        tern_store_close(store);
        return tern_fail_prefix(status, "%.200s", url);
    }
    *out = store;
    return TERN_OK;
}

void tern_store_close(struct tern_store *store)
{
    if (store == NULL) {
        return;
    }
    while (store->idle != NULL) {
        struct tern_store_conn *conn = store->idle;
        store->idle = conn->next;
        tern_http_close(conn->http);
        tern_free(conn);
    }
    tern_http_rate_destroy(store->rate);
    pthread_mutex_destroy(&store->lock);
    tern_free(store);
}

const char *tern_store_url(const struct tern_store *store)
{
    return store->url;
}

int64_t tern_store_bytes(const struct tern_store_options *options)
{
    int64_t part = options != NULL && options->part_bytes > 0 ? options->part_bytes : PART_BYTES;
    int parallel = options != NULL && options->parallel > 0 ? options->parallel : PARALLEL;
    return part * parallel;
}

/* ---- what all transfers share ---- */

void tern_store_cancel(struct tern_store *store, bool is_cancelled)
{
    atomic_store(&store->is_cancelled, is_cancelled);
}

void tern_store_set_deadline(struct tern_store *store, double at)
{
    atomic_store(&store->deadline, at);
}

tern_status tern_store_check(struct tern_store *store)
{
    double deadline = atomic_load(&store->deadline);
    if (atomic_load(&store->is_cancelled)) {
        return tern_fail(TERN_ERR_CANCELLED, "%s: cancelled", store->url);
    }
    return deadline > 0 && tern_clock_seconds() >= deadline
               ? tern_fail(TERN_ERR_CANCELLED, "%s: the time for it is over", store->url)
               : TERN_OK;
}

tern_status tern_store_wait(struct tern_store *store, double seconds)
{
    double until = tern_clock_seconds() + seconds;
    for (;;) {
        TERN_RETURN_IF_ERR(tern_store_check(store));
        double left = until - tern_clock_seconds();
        if (left <= 0) {
            return TERN_OK;
        }
        tern_clock_sleep_ns(left * 1e9 < WAIT_NS ? (int64_t)(left * 1e9) : WAIT_NS);
    }
}

double tern_store_draw(struct tern_store *store)
{
    uint64_t index = atomic_fetch_add(&store->draws, 1);
    return tern_random_uniform(store->seed, tern_random_stream_id(TERN_STREAM_JITTER, 0), index);
}

double tern_store_wall_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

tern_status tern_store_borrow(struct tern_store *store, struct tern_store_conn **out)
{
    pthread_mutex_lock(&store->lock);
    struct tern_store_conn *conn = store->idle;
    store->idle = conn != NULL ? conn->next : NULL;
    pthread_mutex_unlock(&store->lock);
    if (conn == NULL) {
        conn = tern_alloc_zero("store connection", 1, sizeof *conn);
        if (conn == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory for a connection");
        }
        tern_status status = tern_http_open(&conn->http);
        if (status != TERN_OK) {
            tern_free(conn);
            return status;
        }
    }
    *out = conn;
    return TERN_OK;
}

void tern_store_give_back(struct tern_store *store, struct tern_store_conn *conn)
{
    pthread_mutex_lock(&store->lock);
    conn->next = store->idle;
    store->idle = conn;
    pthread_mutex_unlock(&store->lock);
}

/* ---- single requests ---- */

tern_status tern_store_full_key(const struct tern_store *store,
                                const char *key,
                                char out[TERN_STORE_KEY_BYTES])
{
    size_t bytes = strlen(key);
    if (bytes == 0 || bytes > KEY_BYTES_MAX ||
        snprintf(out, TERN_STORE_KEY_BYTES, "%s%s", store->prefix, key) >= TERN_STORE_KEY_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "%s: key '%.80s' is empty or too long", store->url,
                         key);
    }
    return TERN_OK;
}

/* Opens what each of the calls below needs; close_call gives it back and puts the URL in front of
 * the sentence. */
struct call {
    struct tern_store *store;
    struct tern_store_conn *conn;
    char key[TERN_STORE_KEY_BYTES];
};

static tern_status open_call(struct tern_store *store, const char *key, struct call *call)
{
    call->store = store;
    TERN_RETURN_IF_ERR(tern_store_full_key(store, key, call->key));
    TERN_RETURN_IF_ERR(tern_store_check(store));
    return tern_store_borrow(store, &call->conn);
}

static tern_status close_call(struct call *call, tern_status status)
{
    tern_store_give_back(call->store, call->conn);
    return status;
}

/* TERN_OK if the object has these very bytes, else TERN_ERR_BUSY. */
static tern_status compare(struct tern_store *store,
                           struct call *call,
                           const void *data,
                           size_t bytes)
{
    struct tern_store_info info;
    TERN_RETURN_IF_ERR(store->backend->head(store, call->conn, call->key, &info));
    bool is_same = info.bytes == (int64_t)bytes;
    if (is_same && bytes > 0) {
        char *there = tern_alloc("store compare", bytes);
        if (there == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory to compare %zu bytes", bytes);
        }
        tern_status status =
            store->backend->get(store, call->conn, call->key, 0, bytes, NULL, there);
        is_same = status == TERN_OK && memcmp(there, data, bytes) == 0;
        tern_free(there);
        TERN_RETURN_IF_ERR(status);
    }
    return is_same ? TERN_OK
                   : tern_fail(TERN_ERR_BUSY, "%s: '%s' is there already, with other content",
                               store->url, call->key);
}

tern_status tern_store_put(struct tern_store *store,
                           const char *key,
                           const void *data,
                           size_t bytes,
                           bool is_new)
{
    struct call call;
    TERN_RETURN_IF_ERR(open_call(store, key, &call));
    tern_status status = store->backend->put(store, call.conn, call.key, data, bytes, is_new);
    if (status == TERN_ERR_BUSY) { /* ours, perhaps: its answer was lost */
        status = compare(store, &call, data, bytes);
    }
    return close_call(&call, status);
}

tern_status tern_store_get(struct tern_store *store,
                           const char *key,
                           int64_t offset,
                           size_t bytes,
                           const char *etag,
                           void *dst)
{
    struct call call;
    TERN_RETURN_IF_ERR(open_call(store, key, &call));
    tern_status status =
        bytes > 0 ? store->backend->get(store, call.conn, call.key, offset, bytes, etag, dst)
                  : TERN_OK;
    return close_call(&call, status);
}

tern_status tern_store_head(struct tern_store *store, const char *key, struct tern_store_info *out)
{
    struct call call;
    *out = (struct tern_store_info){0};
    TERN_RETURN_IF_ERR(open_call(store, key, &call));
    return close_call(&call, store->backend->head(store, call.conn, call.key, out));
}

tern_status tern_store_get_all(struct tern_store *store,
                               const char *key,
                               int64_t bytes_max,
                               char **data_out,
                               size_t *bytes_out)
{
    struct tern_store_info info;
    TERN_RETURN_IF_ERR(tern_store_head(store, key, &info));
    if (info.bytes > bytes_max) {
        return tern_fail(TERN_ERR_CORRUPT, "%s/%s has %" PRId64 " bytes, expected at most %" PRId64,
                         store->url, key, info.bytes, bytes_max);
    }
    char *data = tern_alloc("store object", (size_t)info.bytes + 1);
    if (data == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for the %" PRId64 " bytes of %s/%s",
                         info.bytes, store->url, key);
    }
    tern_status status = tern_store_get(store, key, 0, (size_t)info.bytes, info.etag, data);
    if (status != TERN_OK) {
        tern_free(data);
        return status;
    }
    data[info.bytes] = '\0';
    *data_out = data;
    *bytes_out = (size_t)info.bytes;
    return TERN_OK;
}

tern_status tern_store_remove(struct tern_store *store, const char *key)
{
    struct call call;
    TERN_RETURN_IF_ERR(open_call(store, key, &call));
    return close_call(&call, store->backend->remove(store, call.conn, call.key));
}

/* Takes the prefix of the store off each key. */
struct listing {
    const struct tern_store *store;
    tern_store_visit visit;
    void *context;
};

static tern_status pass_on(void *context, const char *key, const struct tern_store_info *info)
{
    const struct listing *listing = context;
    size_t bytes = strlen(listing->store->prefix);
    if (strncmp(key, listing->store->prefix, bytes) != 0 || key[bytes] == '\0') {
        return TERN_OK; /* not what was asked for */
    }
    return listing->visit(listing->context, key + bytes, info);
}

static tern_status full_prefix(const struct tern_store *store,
                               const char *prefix,
                               char out[TERN_STORE_KEY_BYTES])
{
    if (prefix[0] == '\0') {
        strcpy(out, store->prefix);
        return TERN_OK;
    }
    return tern_store_full_key(store, prefix, out);
}

tern_status tern_store_list(struct tern_store *store,
                            const char *prefix,
                            tern_store_visit visit,
                            void *context)
{
    char full[TERN_STORE_KEY_BYTES];
    struct tern_store_conn *conn;
    struct listing listing = {store, visit, context};
    TERN_RETURN_IF_ERR(full_prefix(store, prefix, full));
    TERN_RETURN_IF_ERR(tern_store_borrow(store, &conn));
    tern_status status = store->backend->list(store, conn, full, pass_on, &listing);
    tern_store_give_back(store, conn);
    return status;
}

tern_status tern_store_remove_uploads(struct tern_store *store,
                                      const char *prefix,
                                      int *removed_out)
{
    char full[TERN_STORE_KEY_BYTES];
    struct tern_store_conn *conn;
    *removed_out = 0;
    TERN_RETURN_IF_ERR(full_prefix(store, prefix, full));
    TERN_RETURN_IF_ERR(tern_store_borrow(store, &conn));
    tern_status status = store->backend->uploads(store, conn, full, removed_out);
    tern_store_give_back(store, conn);
    return status;
}
