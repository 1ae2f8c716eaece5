/* store_login_web.c - who asks: a role of Amazon's for the token of an identity, as pods of EKS have it
 * (AssumeRoleWithWebIdentity of the Security Token Service, AWS STS API Reference 2011-06-15). */
#include "io/file.h"
#include "io/store_parts.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    TOKEN_BYTES_MAX = 64 << 10,
    STS_SECONDS = 20
};

/* What of an answer counts. */
struct sts {
    char access[TERN_STORE_NAME_BYTES], secret[512], token[TERN_STORE_TOKEN_BYTES], expires[64];
    char code[TERN_STORE_CODE_BYTES], message[256];
};

/* AssumeRoleWithWebIdentityResponse / AssumeRoleWithWebIdentityResult / Credentials / AccessKeyId ..., or
 * ErrorResponse / Error / Code, Message */
static tern_status read_answer(void *context, int depth, const char *name, const char *text)
{
    struct sts *sts = context;
    const struct {
        const char *name;
        char *to;
        size_t capacity;
    } keys[] = {
        {"AccessKeyId", sts->access, sizeof sts->access},
        {"SecretAccessKey", sts->secret, sizeof sts->secret},
        {"SessionToken", sts->token, sizeof sts->token},
        {"Expiration", sts->expires, sizeof sts->expires},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && depth == 3 && text != NULL; i++) {
        if (strcmp(name, keys[i].name) == 0) {
            return tern_store_copy(keys[i].to, keys[i].capacity, text, strlen(text), name);
        }
    }
    if (depth == 2 && text != NULL && strcmp(name, "Code") == 0) {
        snprintf(sts->code, sizeof sts->code, "%.60s", text);
    } else if (depth == 2 && text != NULL && strcmp(name, "Message") == 0) {
        snprintf(sts->message, sizeof sts->message, "%.250s", text);
    }
    return TERN_OK;
}

static tern_status take_keys(const struct tern_http_answer *answer, struct tern_login *out)
{
    struct sts sts = {0};
    TERN_RETURN_IF_ERR(tern_xml_each(answer->body.data, answer->body.length, read_answer, &sts));
    return tern_login_fill(out, sts.access, sts.secret, sts.token, sts.expires);
}

/* Why there are no keys. A refusal is final, unless it is of a kind that passes. */
static tern_status explain(tern_status status,
                           const struct tern_http_answer *answer,
                           const char *url)
{
    struct sts sts = {0};
    char said[512];
    snprintf(said, sizeof said, "%.500s", tern_detail());
    if (answer->status < 400 || answer->body.length == 0 ||
        tern_xml_each(answer->body.data, answer->body.length, read_answer, &sts) != TERN_OK ||
        sts.code[0] == '\0') {
        tern_detail_set(said);
        return status;
    }
    bool is_passing = answer->status >= 500 || answer->status == 429 ||
                      strncmp(sts.code, "Throttling", 10) == 0 ||
                      strcmp(sts.code, "IDPCommunicationError") == 0;
    return tern_fail(is_passing ? TERN_ERR_IO : TERN_ERR_CONFIG, "%s: %d %s: %s", url,
                     answer->status, sts.code, sts.message);
}

static tern_status print_body(const char *role, const char *token, struct tern_text *out)
{
    const char *session = tern_store_env("AWS_ROLE_SESSION_NAME");
    const struct tern_pair pairs[] = {
        {"Action", "AssumeRoleWithWebIdentity"},
        {"Version", "2011-06-15"},
        {"RoleArn", role},
        {"RoleSessionName", session != NULL ? session : "tern"},
        {"WebIdentityToken", token},
    };
    return tern_url_query(out, pairs, sizeof pairs / sizeof pairs[0]);
}

static void find_service(const struct tern_store *store, char url[TERN_STORE_URL_BYTES])
{
    const char *endpoint = tern_store_env("AWS_ENDPOINT_URL_STS");
    if (endpoint == NULL) {
        endpoint = tern_store_env("AWS_ENDPOINT_URL");
    }
    if (endpoint == NULL) {
        bool is_china = strncmp(store->region, "cn-", 3) == 0;
        snprintf(url, TERN_STORE_URL_BYTES, "https://sts.%s.amazonaws.com%s/", store->region,
                 is_china ? ".cn" : "");
        return;
    }
    size_t length = strlen(endpoint);
    snprintf(url, TERN_STORE_URL_BYTES, "%.2000s%s", endpoint,
             length > 0 && endpoint[length - 1] == '/' ? "" : "/");
}

static tern_status ask(struct tern_store *store,
                       const char *role,
                       const char *token,
                       struct tern_login *out)
{
    char url[TERN_STORE_URL_BYTES];
    const char *headers[] = {"Content-Type: application/x-www-form-urlencoded"};
    struct tern_text body = {0};
    struct tern_http_answer answer = {0};
    find_service(store, url);
    tern_status status = print_body(role, token, &body);
    struct tern_http_call call = {
        .method = "POST",
        .url = url,
        .headers = headers,
        .header_count = 1,
        .body = body.data,
        .body_bytes = body.length,
        .connect_seconds = 5,
        .total_seconds = STS_SECONDS,
    };
    if (status == TERN_OK) {
        status = tern_login_ask(store, &call, url, &answer);
        status = status == TERN_OK ? take_keys(&answer, out) : explain(status, &answer, url);
    }
    tern_http_answer_fini(&answer);
    tern_text_fini(&body);
    return status == TERN_OK || status == TERN_ERR_CANCELLED
               ? status
               : tern_fail_prefix(status, "the role of AWS_WEB_IDENTITY_TOKEN_FILE");
}

/* The file is read each time: its token lives for an hour or a day. */
tern_status tern_login_web_identity(struct tern_store *store,
                                    const char *token_path,
                                    struct tern_login *out)
{
    const char *role = tern_store_env("AWS_ROLE_ARN");
    char *token;
    size_t bytes;
    if (role == NULL) {
        return tern_fail(TERN_ERR_CONFIG,
                         "AWS_WEB_IDENTITY_TOKEN_FILE is set, AWS_ROLE_ARN is not");
    }
    tern_status status = tern_file_read(token_path, TOKEN_BYTES_MAX, &token, &bytes);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "AWS_WEB_IDENTITY_TOKEN_FILE");
    }
    token[strcspn(token, "\r\n")] = '\0';
    status = token[0] != '\0' ? ask(store, role, token, out)
                              : tern_fail(TERN_ERR_CONFIG,
                                          "AWS_WEB_IDENTITY_TOKEN_FILE '%s' is empty", token_path);
    tern_free(token);
    return status;
}
