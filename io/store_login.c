/* store_login.c - who asks: the login of a store, kept and renewed; Amazon's and its relatives'. */
#include "io/file.h"
#include "io/json.h"
#include "io/store_parts.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    RENEW_SECONDS = 300,      /* before it expires */
    RENEW_PAUSE_SECONDS = 20, /* until it is tried again, while the old one holds */
    METADATA_SECONDS = 5,     /* a metadata server answers at once or not at all */
    ROLE_BYTES = 256,
    CREDENTIALS_BYTES_MAX = 1 << 20,
};

tern_status tern_store_login(struct tern_store *store, bool anew, struct tern_login *out)
{
    tern_status status = TERN_OK;
    pthread_mutex_lock(&store->lock);
    double now = tern_store_wall_seconds();
    const struct tern_login *login = &store->login;
    bool is_old = login->expires > 0 && now > login->expires - RENEW_SECONDS &&
                  (now >= store->renew_after || now >= login->expires);
    if (!store->has_login || anew || is_old) {
        struct tern_login fresh = {0};
        status = store->fetch(store, &fresh);
        if (status == TERN_OK) {
            store->login = fresh;
            store->has_login = true;
        } else if (store->has_login && !anew && now < login->expires) {
            tern_log_debug("%s: the login stays for now: %s", store->url, tern_detail());
            store->renew_after = now + RENEW_PAUSE_SECONDS;
            status = TERN_OK; /* the old one still holds */
        } else if (store->has_login && status != TERN_ERR_CANCELLED) {
            status = TERN_ERR_IO; /* there was one: it will come again */
        } else if (status == TERN_ERR_NOT_FOUND) {
            status = TERN_ERR_CONFIG; /* a file of the login, not what is asked for */
        }
    }
    if (status == TERN_OK) {
        *out = store->login;
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---- tools ---- */

/* Seconds since 1970 of "2026-01-31T12:00:00Z"; 0 if it is no such time. */
static double parse_time(const char *text)
{
    struct tm parts = {0};
    return text != NULL && strptime(text, "%Y-%m-%dT%H:%M:%S", &parts) != NULL
               ? (double)timegm(&parts)
               : 0;
}

/* A request to a metadata server or a token endpoint; the body of a 200 is in answer->body. */
tern_status tern_login_ask(struct tern_store *store,
                           const struct tern_http_call *given,
                           const char *what,
                           struct tern_http_answer *answer)
{
    struct tern_http_call call = *given;
    call.connect_seconds = call.connect_seconds > 0 ? call.connect_seconds : 2;
    call.total_seconds = call.total_seconds > 0 ? call.total_seconds : METADATA_SECONDS;
    call.ca_file = store->ca_file[0] != '\0' ? store->ca_file : NULL;
    call.cancel = &store->is_cancelled;
    tern_status status = tern_http_get(&call, answer);
    if (status == TERN_OK && answer->status != 200) {
        status = tern_fail(TERN_ERR_IO, "%s: answered with %d", what, answer->status);
    } else if (status == TERN_OK && answer->body.length == 0) {
        status = tern_fail(TERN_ERR_IO, "%s: an empty answer", what);
    } else if (status != TERN_OK && status != TERN_ERR_CANCELLED) {
        status =
            tern_fail_prefix(status == TERN_ERR_CONFIG ? TERN_ERR_CONFIG : TERN_ERR_IO, "%s", what);
    }
    return status;
}

tern_status tern_login_copy(char *out, size_t capacity, const char *text, const char *what)
{
    return text != NULL && text[0] != '\0'
               ? tern_store_copy(out, capacity, text, strlen(text), what)
               : tern_fail(TERN_ERR_IO, "%s is not there", what);
}

tern_status tern_login_fill(struct tern_login *out,
                            const char *access,
                            const char *secret,
                            const char *token,
                            const char *expires)
{
    out->kind = TERN_LOGIN_KEYS;
    out->expires = parse_time(expires);
    TERN_RETURN_IF_ERR(tern_login_copy(out->access, sizeof out->access, access, "the access key"));
    TERN_RETURN_IF_ERR(tern_login_copy(out->secret, sizeof out->secret, secret, "the secret key"));
    return token != NULL ? tern_store_copy(out->token, sizeof out->token, token, strlen(token),
                                           "the session token")
                         : TERN_OK;
}

/* {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"} */
static tern_status read_keys(const char *what,
                             const struct tern_http_answer *answer,
                             struct tern_login *out)
{
    struct tern_json *document;
    TERN_RETURN_IF_ERR(tern_json_parse(what, answer->body.data, answer->body.length, &document));
    tern_status status =
        tern_login_fill(out, tern_json_string(tern_json_get(document, "AccessKeyId"), NULL),
                        tern_json_string(tern_json_get(document, "SecretAccessKey"), NULL),
                        tern_json_string(tern_json_get(document, "Token"), NULL),
                        tern_json_string(tern_json_get(document, "Expiration"), NULL));
    tern_json_close(document);
    return status == TERN_OK ? status : tern_fail_prefix(status, "%s", what);
}

/* ---- ~/.aws/credentials ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The value of `key` in section [profile] of an INI text, into out; false if there is none. */
static bool find_value(const char *text,
                       const char *profile,
                       const char *key,
                       char *out,
                       size_t capacity)
{
    bool is_mine = false, is_found = false;
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        const char *next = line + length + (line[length] == '\n');
        while (length > 0 && is_blank(line[0])) {
            line++;
            length--;
        }
        while (length > 0 && is_blank(line[length - 1])) {
            length--;
        }
        const char *equal = memchr(line, '=', length);
        if (length > 1 && line[0] == '[' && line[length - 1] == ']') {
            is_mine = length - 2 == strlen(profile) && memcmp(line + 1, profile, length - 2) == 0;
        } else if (is_mine && equal != NULL && line[0] != '#' && line[0] != ';') {
            size_t name = (size_t)(equal - line);
            while (name > 0 && is_blank(line[name - 1])) {
                name--;
            }
            const char *value = equal + 1;
            while (value < line + length && is_blank(*value)) {
                value++;
            }
            if (name == strlen(key) && memcmp(line, key, name) == 0) {
                snprintf(out, capacity, "%.*s", (int)(line + length - value), value);
                is_found = true;
            }
        }
        line = next;
    }
    return is_found;
}

/* *is_there_out: the file has the profile, and it holds keys. */
static tern_status read_credentials_file(struct tern_login *out, bool *is_there_out)
{
    char path[TERN_PATH_BYTES];
    const char *given = tern_store_env("AWS_SHARED_CREDENTIALS_FILE");
    const char *home = tern_store_env("HOME");
    const char *profile = tern_store_env("AWS_PROFILE");
    char *text;
    size_t bytes;
    *is_there_out = false;
    if (given == NULL && home == NULL) {
        return TERN_OK;
    }
    snprintf(path, sizeof path, "%s%s", given != NULL ? given : home,
             given != NULL ? "" : "/.aws/credentials");
    if (!tern_file_exists(path)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_file_read(path, CREDENTIALS_BYTES_MAX, &text, &bytes));
    char access[TERN_STORE_NAME_BYTES], secret[512], token[TERN_STORE_TOKEN_BYTES];
    const char *section = profile != NULL ? profile : "default";
    tern_status status = TERN_OK;
    if (find_value(text, section, "aws_access_key_id", access, sizeof access) &&
        find_value(text, section, "aws_secret_access_key", secret, sizeof secret)) {
        bool has_token = find_value(text, section, "aws_session_token", token, sizeof token);
        status = tern_login_fill(out, access, secret, has_token ? token : NULL, NULL);
        *is_there_out = true;
    } else if (profile != NULL) {
        status =
            tern_fail(TERN_ERR_CONFIG, "'%s' holds no keys of AWS_PROFILE '%s'", path, profile);
    }
    tern_free(text);
    return status;
}

/* ---- roles ---- */

/* Without TLS credentials may come from this machine alone: itself, ECS's and EKS's addresses. */
static bool is_near(const char *url)
{
    static const char *const hosts[] = {
        "localhost",      "127.0.0.1",      "[::1]", "169.254.170.2",
        "169.254.170.23", "[fd00:ec2::23]", NULL};
    if (strncmp(url, "http://", 7) != 0) {
        return strncmp(url, "https://", 8) == 0;
    }
    const char *host = url + 7;
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    size_t bytes = end != NULL ? (size_t)(end + 1 - host) : strcspn(host, ":/?#");
    for (int i = 0; hosts[i] != NULL; i++) {
        if (strlen(hosts[i]) == bytes && strncmp(host, hosts[i], bytes) == 0 &&
            (host[bytes] == '\0' || strchr(":/?#", host[bytes]) != NULL)) {
            return true;
        }
    }
    return false;
}

/* EKS and ECS: an address in the environment, an authorization in it or in a file. */
static tern_status ask_container(struct tern_store *store, const char *url, struct tern_login *out)
{
    char line[TERN_STORE_TOKEN_BYTES];
    const char *headers[1] = {line};
    const char *token = tern_store_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *path = tern_store_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char *text = NULL;
    size_t bytes;
    if (path != NULL) {
        tern_status status = tern_file_read(path, TERN_STORE_TOKEN_BYTES / 2, &text, &bytes);
        if (status != TERN_OK) {
            return tern_fail_prefix(status, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        }
        text[strcspn(text, "\r\n")] = '\0';
        token = text;
    }
    snprintf(line, sizeof line, "Authorization: %s", token != NULL ? token : "");
    struct tern_http_call call = {
        .url = url, .headers = headers, .header_count = token != NULL, .is_direct = true};
    struct tern_http_answer answer = {0};
    tern_status status = tern_login_ask(store, &call, "the container's credentials", &answer);
    if (status == TERN_OK) {
        status = read_keys("the container's credentials", &answer, out);
    }
    tern_http_answer_fini(&answer);
    tern_free(text);
    return status;
}

/* Where a container's credentials are; "" if it has none of its own. */
static tern_status find_container(char url[TERN_STORE_URL_BYTES])
{
    const char *relative = tern_store_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = tern_store_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *base = tern_store_env("TERN_METADATA_URL");
    url[0] = '\0';
    if (relative != NULL) {
        snprintf(url, TERN_STORE_URL_BYTES, "%.1000s%.1000s",
                 base != NULL ? base : "http://169.254.170.2", relative);
        return relative[0] == '/' ? TERN_OK
                                  : tern_fail(TERN_ERR_CONFIG,
                                              "environment AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: "
                                              "found '%.200s', expected a path",
                                              relative);
    }
    if (full == NULL) {
        return TERN_OK;
    }
    snprintf(url, TERN_STORE_URL_BYTES, "%.2000s", full);
    return is_near(full) ? TERN_OK
                         : tern_fail(TERN_ERR_CONFIG,
                                     "environment AWS_CONTAINER_CREDENTIALS_FULL_URI: found "
                                     "'%.200s', expected https:// or an address of this machine",
                                     full);
}

/* One GET below /latest/meta-data/ under a session token (IMDSv2). */
static tern_status ask_instance(struct tern_store *store,
                                const char *base,
                                const char *path,
                                const char *token,
                                struct tern_http_answer *answer)
{
    char url[TERN_STORE_URL_BYTES], line[512];
    const char *headers[1] = {line};
    snprintf(url, sizeof url, "%s/latest/meta-data/%s", base, path);
    snprintf(line, sizeof line, "X-aws-ec2-metadata-token: %s", token);
    struct tern_http_call call = {
        .url = url, .headers = headers, .header_count = 1, .is_direct = true};
    return tern_login_ask(store, &call, "the instance's role", answer);
}

static tern_status copy_line(const struct tern_http_answer *answer,
                             char *out,
                             size_t capacity,
                             const char *what)
{
    size_t bytes = strcspn(answer->body.data, "\r\n");
    return tern_store_copy(out, capacity, answer->body.data, bytes, what);
}

static tern_status ask_role(struct tern_store *store,
                            const char *base,
                            const char *token,
                            struct tern_login *out)
{
    char role[ROLE_BYTES], path[ROLE_BYTES + 64];
    struct tern_http_answer answer = {0};
    tern_status status = ask_instance(store, base, "iam/security-credentials/", token, &answer);
    if (status == TERN_OK) {
        status = copy_line(&answer, role, sizeof role, "the role's name");
    }
    tern_http_answer_fini(&answer);
    TERN_RETURN_IF_ERR(status);
    snprintf(path, sizeof path, "iam/security-credentials/%s", role);
    status = ask_instance(store, base, path, token, &answer);
    if (status == TERN_OK) {
        status = read_keys("the instance's role", &answer, out);
    }
    tern_http_answer_fini(&answer);
    return status;
}

static tern_status ask_metadata(struct tern_store *store, struct tern_login *out)
{
    const char *disabled = tern_store_env("AWS_EC2_METADATA_DISABLED");
    if (disabled != NULL && strcasecmp(disabled, "true") == 0) {
        return tern_fail(TERN_ERR_CONFIG, "AWS_EC2_METADATA_DISABLED is %s", disabled);
    }
    const char *given = tern_store_env("TERN_METADATA_URL");
    const char *base = given != NULL ? given : "http://169.254.169.254";
    const char *headers[] = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"};
    char url[TERN_STORE_URL_BYTES], token[400];
    struct tern_http_answer answer = {0};
    snprintf(url, sizeof url, "%.1900s/latest/api/token", base);
    struct tern_http_call call = {
        .method = "PUT", .url = url, .headers = headers, .header_count = 1, .is_direct = true};
    tern_status status = tern_login_ask(store, &call, "the instance's metadata", &answer);
    if (status == TERN_OK) {
        status = copy_line(&answer, token, sizeof token, "the metadata token");
    }
    tern_http_answer_fini(&answer);
    return status == TERN_OK ? ask_role(store, base, token, out) : status;
}

tern_status tern_login_aws(struct tern_store *store, struct tern_login *out)
{
    const char *access = tern_store_env("AWS_ACCESS_KEY_ID");
    const char *secret = tern_store_env("AWS_SECRET_ACCESS_KEY");
    const char *web_identity = tern_store_env("AWS_WEB_IDENTITY_TOKEN_FILE");
    char url[TERN_STORE_URL_BYTES];
    bool is_there;
    if ((access != NULL) != (secret != NULL)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only %s "
                         "is set",
                         access != NULL ? "the first" : "the second");
    }
    if (access != NULL) {
        return tern_login_fill(out, access, secret, tern_store_env("AWS_SESSION_TOKEN"), NULL);
    }
    if (web_identity != NULL) {
        return tern_login_web_identity(store, web_identity, out);
    }
    TERN_RETURN_IF_ERR(read_credentials_file(out, &is_there));
    if (is_there) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(find_container(url));
    if (url[0] != '\0') {
        return ask_container(store, url, out);
    }
    tern_status status = ask_metadata(store, out);
    return status == TERN_OK || status == TERN_ERR_CANCELLED
               ? status
               : tern_fail_prefix(TERN_ERR_CONFIG,
                                  "no credentials: neither AWS_ACCESS_KEY_ID nor "
                                  "AWS_WEB_IDENTITY_TOKEN_FILE nor ~/.aws/credentials nor a "
                                  "container's nor an instance's role");
}
