/* store_s3.c - s3:// and gs://: Amazon's S3, all that speaks like it, and Google's XML interface,
 * which differs in names of headers. Single objects; parts are in store_s3_parts.c. */
#include "io/store_s3.h"

#include "io/digest.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ---- where ---- */

/* An endpoint from the environment: "http://host:port", perhaps without the scheme. */
tern_status tern_store_set_endpoint(struct tern_store *store, const char *name, const char *value)
{
    bool has_scheme = strstr(value, "://") != NULL;
    size_t length = strlen(value);
    while (length > 0 && value[length - 1] == '/') {
        length--;
    }
    if (snprintf(store->endpoint, sizeof store->endpoint, "%s%.*s", has_scheme ? "" : "http://",
                 (int)length, value) >= (int)sizeof store->endpoint ||
        (strncmp(store->endpoint, "http://", 7) != 0 &&
         strncmp(store->endpoint, "https://", 8) != 0) ||
        strpbrk(store->endpoint, " ?#@\n\r\t") != NULL ||
        strstr(store->endpoint, "://")[3] == '\0') {
        return tern_fail(TERN_ERR_CONFIG,
                         "environment %s: found '%.200s', expected http://HOST:PORT or "
                         "https://HOST",
                         name, value);
    }
    return TERN_OK;
}

/* As Amazon's own tools do, for what is Amazon's. */
static tern_status read_authorities(struct tern_store *store)
{
    const char *path = tern_store_env("AWS_CA_BUNDLE");
    if (path == NULL) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_store_copy(store->ca_file, sizeof store->ca_file, path, strlen(path),
                                       "environment AWS_CA_BUNDLE"));
    return tern_file_exists(path)
               ? TERN_OK
               : tern_fail(TERN_ERR_CONFIG,
                           "environment AWS_CA_BUNDLE: found '%s', expected a PEM file", path);
}

static tern_status open_s3(struct tern_store *store)
{
    const char *name = "AWS_ENDPOINT_URL_S3";
    const char *endpoint = tern_store_env(name);
    const char *region = tern_store_env("AWS_REGION");
    if (endpoint == NULL) {
        name = "AWS_ENDPOINT_URL";
        endpoint = tern_store_env(name);
    }
    if (region == NULL) {
        region = tern_store_env("AWS_DEFAULT_REGION");
    }
    region = region != NULL ? region : "us-east-1";
    TERN_RETURN_IF_ERR(tern_store_copy(store->region, 64, region, strlen(region), "the region"));
    TERN_RETURN_IF_ERR(read_authorities(store));
    store->fetch = tern_login_aws;
    snprintf(store->base_path, sizeof store->base_path, "/%s", store->bucket);
    if (endpoint != NULL) {
        return tern_store_set_endpoint(store, name, endpoint);
    }
    snprintf(store->endpoint, sizeof store->endpoint, "https://s3.%s.amazonaws.com", store->region);
    return TERN_OK;
}

static tern_status open_google(struct tern_store *store)
{
    const char *endpoint = tern_store_env("STORAGE_EMULATOR_HOST");
    store->is_google = true;
    store->fetch = tern_login_google;
    strcpy(store->region, "auto");
    snprintf(store->base_path, sizeof store->base_path, "/%s", store->bucket);
    return tern_store_set_endpoint(store, "STORAGE_EMULATOR_HOST",
                                   endpoint != NULL ? endpoint : "https://storage.googleapis.com");
}

/* ---- who asks ---- */

static tern_status add_line(struct tern_store_proof *proof, const char *name, const char *value)
{
    return tern_text_printf(&proof->lines[proof->line_count++], "%s: %s", name, value);
}

static tern_status sign(struct tern_store *store,
                        const struct tern_store_attempt *attempt,
                        const char *hash,
                        struct tern_store_proof *out)
{
    const char *headers[TERN_STORE_HEADERS_MAX + 6];
    char region[TERN_STORE_NAME_BYTES];
    int count = 0;
    for (int i = 0; i < attempt->request->header_count; i++) {
        headers[count++] = attempt->request->headers[i];
    }
    for (int i = 0; i < out->line_count; i++) {
        headers[count++] = out->lines[i].data;
    }
    pthread_mutex_lock(&store->lock);
    strcpy(region, store->region);
    pthread_mutex_unlock(&store->lock);
    struct tern_sign_request request = {
        .method = attempt->request->method,
        .path = attempt->path,
        .query = attempt->query,
        .headers = headers,
        .header_count = count,
        .payload_hash = hash,
        .access = attempt->login->access,
        .secret = attempt->login->secret,
        .region = region,
        .service = store->is_google ? "storage" : "s3",
        .is_google = store->is_google,
        .now = attempt->now,
    };
    struct tern_text *line = &out->lines[out->line_count++];
    TERN_RETURN_IF_ERR(tern_text_printf(line, "Authorization: "));
    return tern_sign_v4(&request, line, NULL);
}

static tern_status prove(struct tern_store *store,
                         const struct tern_store_attempt *attempt,
                         struct tern_store_proof *out)
{
    const struct tern_store_request *request = attempt->request;
    const struct tern_login *login = attempt->login;
    char stamp[TERN_SIGN_TIME_BYTES], hash[TERN_SHA256_HEX_BYTES];
    TERN_RETURN_IF_ERR(add_line(out, "Host", attempt->host));
    if (login->kind == TERN_LOGIN_BEARER) {
        return tern_text_printf(&out->lines[out->line_count++], "Authorization: Bearer %s",
                                login->token);
    }
    if (request->sha256 != NULL) {
        strcpy(hash, request->sha256);
    } else if (request->body_bytes == 0) {
        strcpy(hash, EMPTY_SHA256);
    } else {
        uint8_t digest[TERN_SHA256_BYTES];
        tern_sha256(request->body, request->body_bytes, digest);
        tern_hex(digest, sizeof digest, hash);
    }
    const char *prefix = store->is_google ? "x-goog" : "x-amz";
    char name[48];
    snprintf(name, sizeof name, "%s-date", prefix);
    TERN_RETURN_IF_ERR(add_line(out, name, tern_sign_time(attempt->now, stamp)));
    snprintf(name, sizeof name, "%s-content-sha256", prefix);
    TERN_RETURN_IF_ERR(add_line(out, name, hash));
    if (login->token[0] != '\0') {
        TERN_RETURN_IF_ERR(add_line(out, "x-amz-security-token", login->token));
    }
    return sign(store, attempt, hash, out);
}

/* ---- objects ---- */

void tern_s3_check_body(const struct tern_store *store,
                        const void *data,
                        size_t bytes,
                        struct tern_s3_check *check,
                        struct tern_store_request *request)
{
    uint8_t digest[TERN_SHA256_BYTES];
    char text[TERN_SHA256_BASE64_BYTES];
    if (store->is_google) {
        tern_md5(data, bytes, digest);
        tern_base64(digest, TERN_MD5_BYTES, text);
        snprintf(check->line, sizeof check->line, "Content-MD5: %s", text);
    } else {
        tern_sha256(data, bytes, digest);
        tern_hex(digest, sizeof digest, check->hex);
        tern_base64(digest, sizeof digest, check->base64);
        snprintf(check->line, sizeof check->line, "x-amz-checksum-sha256: %s", check->base64);
        request->sha256 = check->hex;
    }
    request->body = data != NULL ? data : "";
    request->body_bytes = bytes;
    tern_store_add_header(request, check->line);
}

static tern_status put(struct tern_store *store,
                       struct tern_store_conn *conn,
                       const char *key,
                       const void *data,
                       size_t bytes,
                       bool is_new)
{
    struct tern_store_request request = {
        .method = "PUT",
        .key = key,
        .accepts = {412},
        .has_fault = true,
        .fault = TERN_FAULT_STORE_PUT,
    };
    struct tern_s3_check check = {0};
    struct tern_store_reply reply;
    tern_s3_check_body(store, data, bytes, &check, &request);
    tern_store_add_header(&request, "Content-Type: application/octet-stream");
    if (is_new) {
        tern_store_add_header(&request, store->is_google ? "x-goog-if-generation-match: 0"
                                                         : "If-None-Match: *");
    }
    tern_status status = tern_store_send(store, conn, &request, &reply);
    if (status == TERN_OK && reply.answer.status == 412) {
        status = tern_fail(TERN_ERR_BUSY, "%s://%s/%s is there already", store->backend->scheme,
                           store->bucket, key);
    }
    tern_store_reply_fini(&reply);
    return status;
}

/* ---- listing ---- */

/* ListBucketResult / Contents / Key, Size, ETag */
static tern_status read_page(void *context, int depth, const char *name, const char *text)
{
    struct tern_store_page *page = context;
    int64_t bytes;
    if (depth == 1 && strcmp(name, "Contents") == 0) {
        return tern_store_page_object(page, text);
    }
    if (text == NULL) {
        return TERN_OK;
    }
    if (depth == 2 && strcmp(name, "Key") == 0) {
        return tern_store_copy(page->key, sizeof page->key, text, strlen(text), "a key");
    }
    if (depth == 2 && strcmp(name, "Size") == 0 && tern_text_to_i64(text, &bytes) && bytes >= 0) {
        page->info.bytes = bytes;
    } else if (depth == 2 && strcmp(name, "ETag") == 0) {
        snprintf(page->info.etag, sizeof page->info.etag, "%.100s", text);
    } else if (depth == 1 && strcmp(name, "IsTruncated") == 0) {
        page->has_more = strcmp(text, "true") == 0;
    } else if (depth == 1 && strcmp(name, "NextContinuationToken") == 0) {
        return tern_store_page_next(page, text);
    }
    return TERN_OK;
}

static tern_status list(struct tern_store *store,
                        struct tern_store_conn *conn,
                        const char *prefix,
                        tern_store_visit visit,
                        void *context)
{
    struct tern_store_listing listing = {
        .request = {.method = "GET", .root = "ListBucketResult"},
        .marker = "continuation-token",
        .read = read_page,
    };
    tern_store_add_pair(&listing.request, "list-type", "2");
    tern_store_add_pair(&listing.request, "prefix", prefix);
    return tern_store_list_pages(store, conn, &listing, visit, context);
}

#define S3_CALLS \
    .prove = prove, .put = put, .get = tern_store_get_range, .head = tern_store_head_object, \
    .remove = tern_store_delete, .list = list, .begin = tern_s3_begin, .is_same = tern_s3_is_same, \
    .part = tern_s3_part, .complete = tern_s3_complete, .uploads = tern_s3_remove_uploads, \
    .part_bytes_min = 5 << 20

const struct tern_store_backend tern_store_s3 = {.scheme = "s3", .open = open_s3, S3_CALLS};
const struct tern_store_backend tern_store_google = {.scheme = "gs", .open = open_google, S3_CALLS};
