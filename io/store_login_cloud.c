/* store_login_cloud.c - who asks: Google's and Azure's ways. */
#include "io/digest.h"
#include "io/file.h"
#include "io/json.h"
#include "io/store_parts.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    KEY_FILE_BYTES_MAX = 1 << 20,
    JWT_SECONDS = 3600,
    EXCHANGE_SECONDS = 20, /* a token endpoint is far away */
    ASSERTION_BYTES_MAX = 64 << 10
};

/* {"access_token", "expires_in"}; Azure gives the number as a string. */
static tern_status read_token(const char *what,
                              const struct tern_http_answer *answer,
                              struct tern_login *out)
{
    struct tern_json *document;
    int64_t seconds = 0;
    TERN_RETURN_IF_ERR(tern_json_parse(what, answer->body.data, answer->body.length, &document));
    const struct tern_json *expires = tern_json_get(document, "expires_in");
    const char *text = tern_json_string(expires, NULL);
    out->kind = TERN_LOGIN_BEARER;
    tern_status status = tern_login_copy(
        out->token, sizeof out->token,
        tern_json_string(tern_json_get(document, "access_token"), NULL), "the access token");
    if (status == TERN_OK && !tern_json_i64(expires, &seconds) &&
        (text == NULL || !tern_text_to_i64(text, &seconds))) {
        status = tern_fail(TERN_ERR_IO, "the token does not say when it expires");
    }
    out->expires = tern_store_wall_seconds() + (double)seconds;
    tern_json_close(document);
    return status == TERN_OK ? status : tern_fail_prefix(status, "%s", what);
}

static tern_status ask_token(struct tern_store *store,
                             const struct tern_http_call *call,
                             const char *what,
                             struct tern_login *out)
{
    struct tern_http_answer answer = {0};
    tern_status status = tern_login_ask(store, call, what, &answer);
    if (status == TERN_OK) {
        status = read_token(what, &answer, out);
    }
    tern_http_answer_fini(&answer);
    return status;
}

/* A form in exchange for a token. */
static tern_status post_form(struct tern_store *store,
                             const char *url,
                             const struct tern_text *body,
                             const char *what,
                             struct tern_login *out)
{
    const char *headers[] = {"Content-Type: application/x-www-form-urlencoded"};
    struct tern_http_call call = {.method = "POST",
                                  .url = url,
                                  .headers = headers,
                                  .header_count = 1,
                                  .connect_seconds = 5,
                                  .total_seconds = EXCHANGE_SECONDS,
                                  .body = body->data,
                                  .body_bytes = body->length};
    return ask_token(store, &call, what, out);
}

/* A cloud's metadata server, which knows the machine's own account. */
struct metadata {
    const char *base, *path, *header;
    const char *what;
    const char *others; /* where credentials were looked for before */
};

static const struct metadata g_google = {
    .base = "http://metadata.google.internal",
    .path = "/computeMetadata/v1/instance/service-accounts/default/token",
    .header = "Metadata-Flavor: Google",
    .what = "the instance's service account",
    .others = "GS_ACCESS_KEY_ID nor GOOGLE_OAUTH_ACCESS_TOKEN nor GOOGLE_APPLICATION_CREDENTIALS "
              "nor an instance's service account",
};
static const struct metadata g_azure = {
    .base = "http://169.254.169.254",
    .path = "/metadata/identity/oauth2/token?api-version=2018-02-01&"
            "resource=https%3A%2F%2Fstorage.azure.com%2F",
    .header = "Metadata: true",
    .what = "the managed identity",
    .others = "AZURE_STORAGE_KEY nor AZURE_STORAGE_SAS_TOKEN nor "
              "AZURE_STORAGE_CONNECTION_STRING nor AZURE_FEDERATED_TOKEN_FILE nor a managed "
              "identity",
};

static tern_status ask_metadata(struct tern_store *store,
                                const struct metadata *metadata,
                                struct tern_login *out)
{
    char url[TERN_STORE_URL_BYTES];
    const char *base = tern_store_env("TERN_METADATA_URL");
    snprintf(url, sizeof url, "%.1900s%s", base != NULL ? base : metadata->base, metadata->path);
    struct tern_http_call call = {
        .url = url, .headers = &metadata->header, .header_count = 1, .is_direct = true};
    tern_status status = ask_token(store, &call, metadata->what, out);
    return status == TERN_OK || status == TERN_ERR_CANCELLED
               ? status
               : tern_fail_prefix(TERN_ERR_CONFIG, "no credentials: neither %s", metadata->others);
}

/* ---- Google ---- */

/* header.claims.signature of a service account (RFC 7523). */
static tern_status print_jwt(const char *email,
                             const char *key,
                             const char *audience,
                             struct tern_text *out)
{
    static const char header[] = "{\"alg\":\"RS256\",\"typ\":\"JWT\"}";
    struct tern_text claims = {0};
    int64_t now = (int64_t)tern_store_wall_seconds();
    tern_status status = tern_text_printf(&claims, "{\"iss\":");
    if (status == TERN_OK) {
        status = tern_json_quote(&claims, email, strlen(email));
    }
    if (status == TERN_OK) {
        status = tern_text_printf(
            &claims,
            ",\"scope\":\"https://www.googleapis.com/auth/devstorage.read_write\",\"aud\":");
    }
    if (status == TERN_OK) {
        status = tern_json_quote(&claims, audience, strlen(audience));
    }
    if (status == TERN_OK) {
        status = tern_text_printf(&claims, ",\"iat\":%" PRId64 ",\"exp\":%" PRId64 "}", now,
                                  now + JWT_SECONDS);
    }
    if (status == TERN_OK) {
        status = tern_base64_url(header, sizeof header - 1, out);
    }
    if (status == TERN_OK) {
        status = tern_text_append(out, ".", 1);
    }
    if (status == TERN_OK) {
        status = tern_base64_url(claims.data, claims.length, out);
    }
    struct tern_text signature = {0};
    if (status == TERN_OK) {
        status = tern_rs256(key, out->data, out->length, &signature);
    }
    if (status == TERN_OK) {
        status = tern_text_printf(out, ".%s", signature.data);
    }
    tern_text_fini(&signature);
    tern_text_fini(&claims);
    return status;
}

static tern_status exchange_jwt(struct tern_store *store,
                                const struct tern_json *account,
                                struct tern_login *out)
{
    const char *email = tern_json_string(tern_json_get(account, "client_email"), NULL);
    const char *key = tern_json_string(tern_json_get(account, "private_key"), NULL);
    const char *url = tern_json_string(tern_json_get(account, "token_uri"), NULL);
    if (email == NULL || key == NULL || url == NULL) {
        return tern_fail(TERN_ERR_CONFIG, "expected a service account's key: client_email, "
                                          "private_key and token_uri");
    }
    struct tern_text body = {0};
    tern_status status = tern_text_printf(
        &body, "grant_type=urn%%3Aietf%%3Aparams%%3Aoauth%%3Agrant-type%%3Ajwt-bearer&assertion=");
    if (status == TERN_OK) {
        struct tern_text jwt = {0};
        status = print_jwt(email, key, url, &jwt);
        if (status == TERN_OK) {
            status = tern_text_append(&body, jwt.data, jwt.length);
        }
        tern_text_fini(&jwt);
    }
    if (status == TERN_OK) {
        status = post_form(store, url, &body, "the token of the service account", out);
    }
    tern_text_fini(&body);
    return status;
}

static tern_status read_key_file(struct tern_store *store, const char *path, struct tern_login *out)
{
    char *text;
    size_t bytes;
    struct tern_json *account;
    TERN_RETURN_IF_ERR(tern_file_read(path, KEY_FILE_BYTES_MAX, &text, &bytes));
    tern_status status = tern_json_parse(path, text, bytes, &account);
    tern_free(text);
    TERN_RETURN_IF_ERR(status);
    status = exchange_jwt(store, account, out);
    tern_json_close(account);
    return status == TERN_OK
               ? status
               : tern_fail_prefix(status, "GOOGLE_APPLICATION_CREDENTIALS '%s'", path);
}

tern_status tern_login_google(struct tern_store *store, struct tern_login *out)
{
    const char *access = tern_store_env("GS_ACCESS_KEY_ID");
    const char *secret = tern_store_env("GS_SECRET_ACCESS_KEY");
    const char *token = tern_store_env("GOOGLE_OAUTH_ACCESS_TOKEN");
    const char *path = tern_store_env("GOOGLE_APPLICATION_CREDENTIALS");
    if ((access != NULL) != (secret != NULL)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "of GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY only %s is set",
                         access != NULL ? "the first" : "the second");
    }
    if (access != NULL) {
        out->kind = TERN_LOGIN_KEYS;
        TERN_RETURN_IF_ERR(
            tern_login_copy(out->access, sizeof out->access, access, "GS_ACCESS_KEY_ID"));
        return tern_login_copy(out->secret, sizeof out->secret, secret, "GS_SECRET_ACCESS_KEY");
    }
    if (token != NULL) {
        out->kind = TERN_LOGIN_BEARER;
        return tern_login_copy(out->token, sizeof out->token, token, "GOOGLE_OAUTH_ACCESS_TOKEN");
    }
    return path != NULL ? read_key_file(store, path, out) : ask_metadata(store, &g_google, out);
}

/* ---- Azure ---- */

/* AKS: the token of a pod's identity, which is in a file that somebody renews, for one of Azure's
 * ("Microsoft identity platform and the OAuth 2.0 client credentials flow", third case). */
static tern_status ask_federated(struct tern_store *store, const char *path, struct tern_login *out)
{
    const char *client = tern_store_env("AZURE_CLIENT_ID");
    const char *tenant = tern_store_env("AZURE_TENANT_ID");
    const char *host = tern_store_env("AZURE_AUTHORITY_HOST");
    char url[TERN_STORE_URL_BYTES], *assertion;
    size_t bytes;
    struct tern_text body = {0};
    if (client == NULL || tenant == NULL) {
        return tern_fail(TERN_ERR_CONFIG, "AZURE_FEDERATED_TOKEN_FILE is set, %s is not",
                         client == NULL ? "AZURE_CLIENT_ID" : "AZURE_TENANT_ID");
    }
    host = host != NULL ? host : "https://login.microsoftonline.com";
    size_t length = strlen(host);
    snprintf(url, sizeof url, "%.1000s%s%.500s/oauth2/v2.0/token", host,
             host[length - 1] == '/' ? "" : "/", tenant);
    tern_status status = tern_file_read(path, ASSERTION_BYTES_MAX, &assertion, &bytes);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "AZURE_FEDERATED_TOKEN_FILE");
    }
    assertion[strcspn(assertion, "\r\n")] = '\0';
    const struct tern_pair pairs[] = {
        {"grant_type", "client_credentials"},
        {"client_id", client},
        {"client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
        {"client_assertion", assertion},
        {"scope", "https://storage.azure.com/.default"},
    };
    status = tern_url_query(&body, pairs, sizeof pairs / sizeof pairs[0]);
    if (status == TERN_OK) {
        status = post_form(store, url, &body, "the token of the workload's identity", out);
    }
    tern_text_fini(&body);
    tern_free(assertion);
    return status;
}

/* "AccountKey=" of a connection string; NULL if there is none. It may hold '=' itself. */
static const char *connection_key(size_t *bytes_out)
{
    const char *text = tern_store_env("AZURE_STORAGE_CONNECTION_STRING");
    const char *found = text != NULL ? strstr(text, "AccountKey=") : NULL;
    if (found == NULL) {
        return NULL;
    }
    found += strlen("AccountKey=");
    *bytes_out = strcspn(found, ";");
    return found;
}

tern_status tern_login_azure(struct tern_store *store, struct tern_login *out)
{
    const char *key = tern_store_env("AZURE_STORAGE_KEY");
    const char *sas = tern_store_env("AZURE_STORAGE_SAS_TOKEN");
    const char *federated = tern_store_env("AZURE_FEDERATED_TOKEN_FILE");
    size_t bytes = key != NULL ? strlen(key) : 0;
    if (key == NULL) {
        key = connection_key(&bytes);
    }
    if (key != NULL) {
        out->kind = TERN_LOGIN_SHARED;
        return tern_store_copy(out->secret, sizeof out->secret, key, bytes, "the account's key");
    }
    if (sas != NULL) {
        out->kind = TERN_LOGIN_SAS;
        sas += sas[0] == '?';
        return tern_login_copy(out->secret, sizeof out->secret, sas, "AZURE_STORAGE_SAS_TOKEN");
    }
    return federated != NULL ? ask_federated(store, federated, out)
                             : ask_metadata(store, &g_azure, out);
}
