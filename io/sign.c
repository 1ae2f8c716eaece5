/* sign.c - canonical forms, and the two signatures over them. */
#include "io/sign.h"

#include "io/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- URLs and times ---- */

tern_status tern_url_encode(struct tern_text *out, const char *text, bool keeps_slash)
{
    for (const char *at = text; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        bool stays = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && keeps_slash);
        TERN_RETURN_IF_ERR(stays ? tern_text_append(out, at, 1)
                                 : tern_text_printf(out, "%%%02X", c));
    }
    return TERN_OK;
}

/* Encoded names and values of a query, and which stands where. */
struct encoded {
    struct tern_text text; /* name NUL value NUL ... */
    size_t names[TERN_SIGN_PAIRS_MAX], values[TERN_SIGN_PAIRS_MAX];
    int order[TERN_SIGN_PAIRS_MAX];
};

static bool comes_before(const struct encoded *encoded, int a, int b)
{
    int order =
        strcmp(encoded->text.data + encoded->names[a], encoded->text.data + encoded->names[b]);
    return order != 0 ? order < 0
                      : strcmp(encoded->text.data + encoded->values[a],
                               encoded->text.data + encoded->values[b]) < 0;
}

static tern_status encode_pairs(struct encoded *encoded, const struct tern_pair *pairs, int count)
{
    for (int i = 0; i < count; i++) {
        encoded->names[i] = encoded->text.length;
        TERN_RETURN_IF_ERR(tern_url_encode(&encoded->text, pairs[i].name, false));
        TERN_RETURN_IF_ERR(tern_text_append(&encoded->text, "", 1));
        encoded->values[i] = encoded->text.length;
        TERN_RETURN_IF_ERR(tern_url_encode(&encoded->text, pairs[i].value, false));
        TERN_RETURN_IF_ERR(tern_text_append(&encoded->text, "", 1));
    }
    for (int i = 0; i < count; i++) { /* insertion: a handful */
        int at = i;
        for (; at > 0 && comes_before(encoded, i, encoded->order[at - 1]); at--) {
            encoded->order[at] = encoded->order[at - 1];
        }
        encoded->order[at] = i;
    }
    return TERN_OK;
}

tern_status tern_url_query(struct tern_text *out, const struct tern_pair *pairs, int count)
{
    if (count > TERN_SIGN_PAIRS_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "a query of %d pairs, expected at most %d", count,
                         TERN_SIGN_PAIRS_MAX);
    }
    struct encoded encoded = {0};
    tern_status status = encode_pairs(&encoded, pairs, count);
    for (int i = 0; i < count && status == TERN_OK; i++) {
        int k = encoded.order[i];
        status =
            tern_text_printf(out, "%s%s=%s", i > 0 ? "&" : "", encoded.text.data + encoded.names[k],
                             encoded.text.data + encoded.values[k]);
    }
    tern_text_fini(&encoded.text);
    return status;
}

const char *tern_sign_time(time_t now, char out[TERN_SIGN_TIME_BYTES])
{
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(out, TERN_SIGN_TIME_BYTES, "%Y%m%dT%H%M%SZ", &parts);
    return out;
}

const char *tern_sign_date(time_t now, char out[TERN_SIGN_DATE_BYTES])
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm parts;
    gmtime_r(&now, &parts);
    /* by hand: strftime's names follow the locale */
    snprintf(out, TERN_SIGN_DATE_BYTES, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT",
             days + 3 * parts.tm_wday, (unsigned)parts.tm_mday % 100, months + 3 * parts.tm_mon,
             (unsigned)(parts.tm_year + 1900) % 10000, (unsigned)parts.tm_hour % 100,
             (unsigned)parts.tm_min % 100, (unsigned)parts.tm_sec % 100);
    return out;
}

/* ---- headers ---- */

struct header {
    const char *name, *value; /* as given: neither ends with NUL */
    size_t name_bytes, value_bytes;
    int place; /* as given: repeats keep their order */
};

static int compare_names(const struct header *a, const struct header *b)
{
    size_t bytes = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
    int order = strncasecmp(a->name, b->name, bytes);
    return order != 0 ? order : (a->name_bytes > b->name_bytes) - (a->name_bytes < b->name_bytes);
}

static int compare_headers(const void *a, const void *b)
{
    const struct header *left = a, *right = b;
    int order = compare_names(left, right);
    return order != 0 ? order : left->place - right->place;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static tern_status split_headers(const char *const *lines,
                                 int count,
                                 struct header out[TERN_SIGN_HEADERS_MAX])
{
    if (count > TERN_SIGN_HEADERS_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "%d headers to sign, expected at most %d", count,
                         TERN_SIGN_HEADERS_MAX);
    }
    for (int i = 0; i < count; i++) {
        const char *colon = strchr(lines[i], ':');
        if (colon == NULL) {
            return tern_fail(TERN_ERR_ARGUMENT, "header '%.40s' has no ':'", lines[i]);
        }
        const char *value = colon + 1, *end = value + strlen(value);
        while (is_blank(*value)) {
            value++;
        }
        while (end > value && is_blank(end[-1])) {
            end--;
        }
        out[i] =
            (struct header){lines[i], value, (size_t)(colon - lines[i]), (size_t)(end - value), i};
    }
    qsort(out, (size_t)count, sizeof *out, compare_headers);
    return TERN_OK;
}

static tern_status print_lower(struct tern_text *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 32) : text[i];
        TERN_RETURN_IF_ERR(tern_text_append(out, &c, 1));
    }
    return TERN_OK;
}

/* A value with runs of blanks as one space. */
static tern_status print_value(struct tern_text *out, const struct header *header)
{
    for (size_t i = 0; i < header->value_bytes; i++) {
        if (i > 0 && is_blank(header->value[i]) && is_blank(header->value[i - 1])) {
            continue;
        }
        char c = is_blank(header->value[i]) ? ' ' : header->value[i];
        TERN_RETURN_IF_ERR(tern_text_append(out, &c, 1));
    }
    return TERN_OK;
}

/* "name:value\n" of each, sorted, repeats joined by ','; the names joined by ';'. */
static tern_status print_headers(const struct header *headers,
                                 int count,
                                 struct tern_text *lines,
                                 struct tern_text *names)
{
    for (int i = 0; i < count; i++) {
        if (i > 0 && compare_names(&headers[i], &headers[i - 1]) == 0) {
            lines->length--; /* the newline */
            TERN_RETURN_IF_ERR(tern_text_append(lines, ",", 1));
        } else {
            TERN_RETURN_IF_ERR(tern_text_append(names, ";", i > 0));
            TERN_RETURN_IF_ERR(print_lower(names, headers[i].name, headers[i].name_bytes));
            TERN_RETURN_IF_ERR(print_lower(lines, headers[i].name, headers[i].name_bytes));
            TERN_RETURN_IF_ERR(tern_text_append(lines, ":", 1));
        }
        TERN_RETURN_IF_ERR(print_value(lines, &headers[i]));
        TERN_RETURN_IF_ERR(tern_text_append(lines, "\n", 1));
    }
    return TERN_OK;
}

/* ---- Signature Version 4 ---- */

static tern_status print_canonical(const struct tern_sign_request *request,
                                   struct tern_text *canonical,
                                   struct tern_text *names)
{
    struct header headers[TERN_SIGN_HEADERS_MAX];
    TERN_RETURN_IF_ERR(split_headers(request->headers, request->header_count, headers));
    TERN_RETURN_IF_ERR(tern_text_printf(canonical, "%s\n%s\n%s\n", request->method, request->path,
                                        request->query));
    TERN_RETURN_IF_ERR(print_headers(headers, request->header_count, canonical, names));
    return tern_text_printf(canonical, "\n%s\n%s", names->data, request->payload_hash);
}

static void hmac_text(const uint8_t *key,
                      size_t key_bytes,
                      const char *text,
                      uint8_t out[TERN_SHA256_BYTES])
{
    tern_hmac_sha256(key, key_bytes, text, strlen(text), out);
}

static tern_status sign_canonical(const struct tern_sign_request *request,
                                  const struct tern_text *canonical,
                                  const char *names,
                                  struct tern_text *out)
{
    char stamp[TERN_SIGN_TIME_BYTES], day[9], scope[160], first[256];
    char hash[TERN_SHA256_HEX_BYTES], text[512];
    uint8_t key[TERN_SHA256_BYTES], next[TERN_SHA256_BYTES];
    tern_sign_time(request->now, stamp);
    snprintf(day, sizeof day, "%.8s", stamp);
    const char *name = request->is_google ? "GOOG4" : "AWS4";
    const char *last = request->is_google ? "goog4_request" : "aws4_request";
    int scope_bytes =
        snprintf(scope, sizeof scope, "%s/%s/%s/%s", day, request->region, request->service, last);
    int first_bytes = snprintf(first, sizeof first, "%s%s", name, request->secret);
    if (scope_bytes >= (int)sizeof scope || first_bytes >= (int)sizeof first) {
        return tern_fail(TERN_ERR_CONFIG, "the region or the secret key is too long");
    }
    tern_sha256(canonical->data, canonical->length, key);
    tern_hex(key, sizeof key, hash);
    snprintf(text, sizeof text, "%s-HMAC-SHA256\n%s\n%s\n%s", name, stamp, scope, hash);
    hmac_text((const uint8_t *)first, strlen(first), day, key);
    hmac_text(key, sizeof key, request->region, next);
    hmac_text(next, sizeof next, request->service, key);
    hmac_text(key, sizeof key, last, next);
    hmac_text(next, sizeof next, text, key);
    tern_hex(key, sizeof key, hash);
    return tern_text_printf(out, "%s-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                            name, request->access, scope, names, hash);
}

tern_status tern_sign_v4(const struct tern_sign_request *request,
                         struct tern_text *out,
                         struct tern_text *canonical_out)
{
    struct tern_text canonical = {0}, names = {0};
    tern_status status = print_canonical(request, &canonical, &names);
    if (status == TERN_OK) {
        status = sign_canonical(request, &canonical, names.data, out);
    }
    if (status == TERN_OK && canonical_out != NULL) {
        status = tern_text_append(canonical_out, canonical.data, canonical.length);
    }
    tern_text_fini(&canonical);
    tern_text_fini(&names);
    return status;
}

/* ---- Shared Key ---- */

static const struct header *find_header(const struct header *headers, int count, const char *name)
{
    struct header key = {.name = name, .name_bytes = strlen(name)};
    for (int i = 0; i < count; i++) {
        if (compare_names(&headers[i], &key) == 0) {
            return &headers[i];
        }
    }
    return NULL;
}

static tern_status print_standard(const struct header *headers,
                                  int count,
                                  size_t body_bytes,
                                  struct tern_text *out)
{
    static const char *const names[] = {"Content-Encoding",
                                        "Content-Language",
                                        "Content-Length",
                                        "Content-MD5",
                                        "Content-Type",
                                        "Date",
                                        "If-Modified-Since",
                                        "If-Match",
                                        "If-None-Match",
                                        "If-Unmodified-Since",
                                        "Range"};
    bool has_ms_date = find_header(headers, count, "x-ms-date") != NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct header *header = find_header(headers, count, names[i]);
        if (strcmp(names[i], "Content-Length") == 0) {
            if (body_bytes > 0) {
                TERN_RETURN_IF_ERR(tern_text_printf(out, "%zu", body_bytes));
            }
        } else if (header != NULL && !(has_ms_date && strcmp(names[i], "Date") == 0)) {
            TERN_RETURN_IF_ERR(tern_text_append(out, header->value, header->value_bytes));
        }
        TERN_RETURN_IF_ERR(tern_text_append(out, "\n", 1));
    }
    return TERN_OK;
}

/* The x-ms- headers are neighbours once sorted. */
static tern_status print_ms_headers(const struct header *headers, int count, struct tern_text *out)
{
    struct tern_text names = {0};
    int first = 0;
    while (first < count && strncasecmp(headers[first].name, "x-ms-", 5) != 0) {
        first++;
    }
    int last = first;
    while (last < count && strncasecmp(headers[last].name, "x-ms-", 5) == 0) {
        last++;
    }
    tern_status status = print_headers(headers + first, last - first, out, &names);
    tern_text_fini(&names);
    return status;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct tern_pair *left = a, *right = b;
    int order = strcasecmp(left->name, right->name);
    return order != 0 ? order : strcmp(left->value, right->value);
}

static tern_status print_resource(const struct tern_sign_shared_key *request, struct tern_text *out)
{
    struct tern_pair pairs[TERN_SIGN_PAIRS_MAX];
    if (request->pair_count > TERN_SIGN_PAIRS_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "a query of %d pairs, expected at most %d",
                         request->pair_count, TERN_SIGN_PAIRS_MAX);
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "/%s%s", request->account, request->path));
    if (request->pair_count == 0) {
        return TERN_OK;
    }
    memcpy(pairs, request->pairs, (size_t)request->pair_count * sizeof *pairs);
    qsort(pairs, (size_t)request->pair_count, sizeof *pairs, compare_pairs);
    for (int i = 0; i < request->pair_count; i++) {
        bool is_repeat = i > 0 && strcasecmp(pairs[i].name, pairs[i - 1].name) == 0;
        if (is_repeat) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, ",%s", pairs[i].value));
            continue;
        }
        TERN_RETURN_IF_ERR(tern_text_append(out, "\n", 1));
        TERN_RETURN_IF_ERR(print_lower(out, pairs[i].name, strlen(pairs[i].name)));
        TERN_RETURN_IF_ERR(tern_text_printf(out, ":%s", pairs[i].value));
    }
    return TERN_OK;
}

static tern_status print_shared(const struct tern_sign_shared_key *request, struct tern_text *out)
{
    struct header headers[TERN_SIGN_HEADERS_MAX];
    TERN_RETURN_IF_ERR(split_headers(request->headers, request->header_count, headers));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%s\n", request->method));
    TERN_RETURN_IF_ERR(print_standard(headers, request->header_count, request->body_bytes, out));
    TERN_RETURN_IF_ERR(print_ms_headers(headers, request->header_count, out));
    return print_resource(request, out);
}

tern_status tern_sign_azure(const struct tern_sign_shared_key *request,
                            struct tern_text *out,
                            struct tern_text *string_out)
{
    uint8_t key[256], hash[TERN_SHA256_BYTES];
    char signature[TERN_SHA256_BASE64_BYTES];
    size_t key_bytes;
    struct tern_text text = {0};
    if (!tern_base64_decode(request->key, key, sizeof key, &key_bytes)) {
        return tern_fail(TERN_ERR_CONFIG, "the key of storage account '%s' is no base64",
                         request->account);
    }
    tern_status status = print_shared(request, &text);
    if (status == TERN_OK) {
        tern_hmac_sha256(key, key_bytes, text.data, text.length, hash);
        tern_base64(hash, sizeof hash, signature);
        status = tern_text_printf(out, "SharedKey %s:%s", request->account, signature);
    }
    if (status == TERN_OK && string_out != NULL) {
        status = tern_text_append(string_out, text.data, text.length);
    }
    tern_text_fini(&text);
    return status;
}
