/* store_test.c - every kind of store by one set of tests, against a server that checks signatures and
 * misbehaves on request. */
#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/io/store_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static struct store_server g_server;
static char g_folder[64];

enum {
    BYTES = 10500 /* eleven parts of 1000 */
};

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", g_folder, name);
    return path;
}

/* The kinds: URL, and what is to be set or unset (with '-') in the environment. */
static const struct kind {
    const char *url;
    const char *environment[3][2];
} g_kinds[] = {
    {"s3://bucket/pre/fix", {{NULL}}},
    {"s3://roles", {{"AWS_ACCESS_KEY_ID", NULL}, {"AWS_SECRET_ACCESS_KEY", NULL}}},
    {"gs://gs-keys/p", {{NULL}}},
    {"gs://gs-bearer/p", {{"GS_ACCESS_KEY_ID", NULL}, {"GS_SECRET_ACCESS_KEY", NULL}}},
    {"az://box/p/q", {{NULL}}},
    {"az://box-sas/p",
     {{"AZURE_STORAGE_KEY", NULL}, {"AZURE_STORAGE_SAS_TOKEN", "?sv=2020&sig=sas"}}},
    {"az://box-bearer", {{"AZURE_STORAGE_KEY", NULL}}},
    {"file://", {{NULL}}},
};
enum {
    KINDS = sizeof g_kinds / sizeof g_kinds[0]
};

static struct tern_store *open_kind(const struct kind *kind)
{
    struct tern_store_options options = {
        .parallel = 4, .pause_seconds = 0.01, .retry_seconds = 20, .stall_seconds = 1};
    struct tern_store *store;
    char url[128], *before[3] = {0};
    snprintf(url, sizeof url, "%s%s%s", kind->url,
             strcmp(kind->url, "file://") == 0 ? g_folder : "",
             strcmp(kind->url, "file://") == 0 ? "/store" : "");
    for (int i = 0; i < 3 && kind->environment[i][0] != NULL; i++) {
        const char *old = getenv(kind->environment[i][0]);
        before[i] = old != NULL ? tern_strdup("test", old) : NULL;
        if (kind->environment[i][1] != NULL) {
            setenv(kind->environment[i][0], kind->environment[i][1], 1);
        } else {
            unsetenv(kind->environment[i][0]);
        }
    }
    tern_status status = tern_store_open(url, &options, &store);
    if (status == TERN_OK) { /* the login is fetched at the first request */
        struct tern_store_info info;
        status =
            tern_store_head(store, "nothing", &info) == TERN_ERR_NOT_FOUND ? TERN_OK : TERN_ERR_IO;
    }
    if (status != TERN_OK) {
        print_error("%s: %s\n", url, tern_detail());
    }
    assert_int_equal(status, TERN_OK);
    for (int i = 0; i < 3 && kind->environment[i][0] != NULL; i++) {
        if (before[i] != NULL) {
            setenv(kind->environment[i][0], before[i], 1);
        } else {
            unsetenv(kind->environment[i][0]);
        }
        tern_free(before[i]);
    }
    return store;
}

static void must(tern_status status)
{
    if (status != TERN_OK) {
        print_error("%s\n", tern_detail());
    }
    assert_int_equal(status, TERN_OK);
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    must(tern_file_replace(path, data, bytes));
}

static void check_object(struct tern_store *store,
                         const char *key,
                         const uint8_t *data,
                         size_t bytes)
{
    char *found;
    size_t count;
    must(tern_store_get_all(store, key, 1 << 20, &found, &count));
    assert_int_equal(count, bytes);
    assert_memory_equal(found, data, bytes);
    tern_free(found);
}

struct names {
    char text[4096];
    int count;
    int64_t bytes;
};

static tern_status add_name(void *context, const char *key, const struct tern_store_info *info)
{
    struct names *names = context;
    names->count++;
    names->bytes += info->bytes;
    strcat(strcat(names->text, key), " ");
    return TERN_OK;
}

/* ---- what every kind does ---- */

static void round_trip(struct tern_store *store)
{
    static const size_t sizes[] = {0, 1, 999, 1000, 1001, 2000, BYTES};
    static uint8_t data[BYTES];
    char up[256], down[256];
    store_fill(data, sizeof data, 1);
    snprintf(up, sizeof up, "%s", path_of("up"));
    snprintf(down, sizeof down, "%s", path_of("down"));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *back;
        size_t bytes;
        struct tern_store_info info;
        write_file(up, data, sizes[i]);
        must(tern_store_put_file(store, "dir/file", up));
        must(tern_store_head(store, "dir/file", &info));
        assert_int_equal(info.bytes, sizes[i]);
        must(tern_store_get_file(store, "dir/file", down, &info));
        must(tern_file_read(down, 1 << 20, &back, &bytes));
        assert_int_equal(bytes, sizes[i]);
        assert_memory_equal(back, data, bytes);
        tern_free(back);
    }
    uint8_t piece[100];
    must(tern_store_get(store, "dir/file", 5000, sizeof piece, NULL, piece));
    assert_memory_equal(piece, data + 5000, sizeof piece);
    assert_int_equal(tern_store_get(store, "dir/file", BYTES + 10, 5, NULL, piece),
                     TERN_ERR_CORRUPT);
    struct tern_store_info old;
    must(tern_store_head(store, "dir/file", &old));
    must(tern_store_put(store, "dir/file", "other", 5, false));
    assert_int_equal(tern_store_get(store, "dir/file", 0, 5, old.etag, piece), TERN_ERR_CORRUPT);
    must(tern_store_remove(store, "dir/file"));
    must(tern_store_remove(store, "dir/file"));
    assert_int_equal(tern_store_get(store, "dir/file", 0, 5, NULL, piece), TERN_ERR_NOT_FOUND);
    assert_int_equal(tern_store_get_file(store, "dir/file", down, &old), TERN_ERR_NOT_FOUND);
}

static void only_once(struct tern_store *store)
{
    must(tern_store_put(store, "once", "first", 5, true));
    must(tern_store_put(store, "once", "first", 5, true)); /* the very same bytes: done */
    assert_int_equal(tern_store_put(store, "once", "other", 5, true), TERN_ERR_BUSY);
    assert_int_equal(tern_store_put(store, "once", "longer", 6, true), TERN_ERR_BUSY);
    check_object(store, "once", (const uint8_t *)"first", 5);
    must(tern_store_remove(store, "once"));
    must(tern_store_put(store, "once", "other", 5, true));
    must(tern_store_remove(store, "once"));
}

static void listing(struct tern_store *store)
{
    static const char *const keys[] = {"l/a",     "l/b c", "l/d+e=f&g", "l/\xC3\xA9",
                                       "l/x/y/z", "l/%41", "l/~'()!*",  "m"};
    struct names names = {0};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        must(tern_store_put(store, keys[i], keys[i], strlen(keys[i]), false));
        check_object(store, keys[i], (const uint8_t *)keys[i], strlen(keys[i]));
    }
    must(tern_store_list(store, "l/", add_name, &names));
    assert_int_equal(names.count, 7);
    for (int i = 0; i < 7; i++) {
        assert_non_null(strstr(names.text, keys[i]));
    }
    names = (struct names){0};
    must(tern_store_list(store, "", add_name, &names));
    assert_int_equal(names.count, 8);
    names = (struct names){0};
    must(tern_store_list(store, "nothing", add_name, &names));
    assert_int_equal(names.count, 0);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        must(tern_store_remove(store, keys[i]));
    }
}

static void test_every_kind(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct tern_store *store = open_kind(&g_kinds[i]);
        print_message("%s\n", tern_store_url(store));
        round_trip(store);
        only_once(store);
        listing(store);
        tern_store_close(store);
    }
}

static void test_bad_urls(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",           "bucket/x",   "s3:/b",           "s3://", "s3:///x",    "s4://b/x",
        "s3://b c/x", "s3://b?x/y", "file://relative", "az://", "http://b/x", "s3://b/\n"};
    struct tern_store *store;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (tern_store_open(bad[i], NULL, &store) != TERN_ERR_CONFIG) {
            fail_msg("opened: %s", bad[i]);
        }
    }
    static char longest[TERN_STORE_URL_BYTES * 2];
    memset(longest, 'a', sizeof longest - 1);
    memcpy(longest, "s3://b/", 7);
    assert_int_equal(tern_store_open(longest, NULL, &store), TERN_ERR_CONFIG);
    must(tern_store_open("s3://b/p", NULL, &store));
    assert_int_equal(tern_store_put(store, "", "", 0, false), TERN_ERR_ARGUMENT);
    assert_int_equal(tern_store_put(store, longest, "", 0, false), TERN_ERR_ARGUMENT);
    tern_store_close(store);
    assert_true(tern_store_is_url("az://x"));
    assert_false(tern_store_is_url("/data/s3://x"));
}

/* ---- faults ---- */

static const char *const g_passing[] = {"500",  "503",   "429",      "cut",    "lost",
                                        "half", "stall", "error200", "expired"};

/* Each fault at each request of a put_file and of a get_file: it ends well, and says nothing. */
static void test_each_fault(void **state)
{
    (void)state;
    static uint8_t data[BYTES];
    store_fill(data, sizeof data, 2);
    char up[256], down[256], rule[256];
    snprintf(up, sizeof up, "%s", path_of("up"));
    snprintf(down, sizeof down, "%s", path_of("down"));
    write_file(up, data, sizeof data);
    static const char *const requests[] = {"POST.*uploads",  "PUT.*partNumber=3",
                                           "POST.*uploadId", "GET.*uploads",
                                           "HEAD",           "GET .*/big"};
    struct tern_store *store = open_kind(&g_kinds[0]);
    for (size_t r = 0; r < sizeof requests / sizeof requests[0]; r++) {
        for (size_t a = 0; a < sizeof g_passing / sizeof g_passing[0]; a++) {
            bool is_empty = strcmp(requests[r], "HEAD") == 0;
            if (is_empty &&
                (strcmp(g_passing[a], "half") == 0 || strcmp(g_passing[a], "error200") == 0)) {
                continue; /* no body: nothing to halve, nothing to hold an error */
            }
            if (strcmp(g_passing[a], "error200") == 0 &&
                strcmp(requests[r], "PUT.*partNumber=3") == 0) {
                continue; /* a part's answer has no body to speak of; its ETag is asked for */
            }
            bool is_once = strcmp(g_passing[a], "expired") == 0; /* a second time is a refusal */
            snprintf(rule, sizeof rule,
                     "{\"rules\": [{\"match\": \"%s\", \"action\": \"%s\", \"times\": %d}]}",
                     requests[r], g_passing[a], is_once ? 1 : 2);
            store_server_control(&g_server, rule);
            tern_status status = tern_store_put_file(store, "big", up);
            if (status == TERN_OK) {
                status = tern_store_get_file(store, "big", down, NULL);
            }
            if (status != TERN_OK) {
                print_error("%s at %s: %s\n", g_passing[a], requests[r], tern_detail());
            }
            assert_int_equal(status, TERN_OK);
            store_server_control(&g_server, "{}");
            check_object(store, "big", data, sizeof data);
            must(tern_store_remove(store, "big"));
        }
    }
    int removed; /* a begun upload whose answer was lost is nobody's */
    must(tern_store_remove_uploads(store, "", &removed));
    assert_true(store_server_shows(&g_server, "/_state", "\"uploads\": []"));
    tern_store_close(store);
}

/* What cannot help is not tried again, and says what the store said. */
static void test_refusals(void **state)
{
    (void)state;
    struct tern_store *store = open_kind(&g_kinds[0]);
    store_server_control(&g_server,
                         "{\"rules\": [{\"match\": \"PUT\", \"action\": \"gone\", \"times\": 9}]}");
    assert_int_equal(tern_store_put(store, "k", "x", 1, false), TERN_ERR_IO);
    assert_non_null(strstr(tern_detail(), "403 AccessDenied: as the test asked"));
    assert_non_null(strstr(tern_detail(), "s3://bucket/pre/fix/k"));
    store_server_control(&g_server,
                         "{\"rules\": [{\"match\": \"PUT\", \"action\": \"full\", \"times\": 9}]}");
    assert_int_equal(tern_store_put(store, "k", "x", 1, false), TERN_ERR_NO_SPACE);
    store_server_control(&g_server, "{}");
    tern_store_close(store);
    setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
    must(tern_store_open("s3://bucket/p", NULL, &store));
    assert_int_equal(tern_store_put(store, "k", "x", 1, false), TERN_ERR_IO);
    assert_non_null(strstr(tern_detail(), "SignatureDoesNotMatch"));
    tern_store_close(store);
    unsetenv("AWS_SECRET_ACCESS_KEY");
    must(tern_store_open("s3://bucket/p", NULL, &store));
    assert_int_equal(tern_store_put(store, "k", "x", 1, false), TERN_ERR_CONFIG);
    assert_non_null(strstr(tern_detail(), "only the first is set"));
    tern_store_close(store);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
}

static void test_gives_up(void **state)
{
    (void)state;
    struct tern_store_options options = {.retry_seconds = 0.5, .stall_seconds = 1};
    struct tern_store *store;
    must(tern_store_open("s3://bucket/p", &options, &store));
    store_server_control(
        &g_server, "{\"rules\": [{\"match\": \"PUT\", \"action\": \"503\", \"times\": 1000}]}");
    assert_int_equal(tern_store_put(store, "k", "x", 1, false), TERN_ERR_IO);
    assert_non_null(strstr(tern_detail(), "given up after"));
    assert_non_null(strstr(tern_detail(), "503 SlowDown"));
    tern_store_set_deadline(store, tern_clock_seconds() - 1);
    assert_int_equal(tern_store_put(store, "k", "x", 1, false), TERN_ERR_CANCELLED);
    tern_store_set_deadline(store, 0);
    store_server_control(&g_server, "{}");
    must(tern_store_put(store, "k", "x", 1, false));
    tern_store_cancel(store, true);
    assert_int_equal(tern_store_put(store, "k", "x", 1, false), TERN_ERR_CANCELLED);
    tern_store_cancel(store, false);
    must(tern_store_remove(store, "k"));
    tern_store_close(store);
}

/* A login that expires is fetched anew, and one that the store calls expired at once. */
static void test_renewal(void **state)
{
    (void)state;
    store_server_control(&g_server, "{\"role_seconds\": 10}"); /* always about to expire */
    struct tern_store *store = open_kind(&g_kinds[1]);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    must(tern_store_put(store, "a", "x", 1, false));
    must(tern_store_put(store, "b", "x", 1, false));
    store_server_control(
        &g_server,
        "{\"role_seconds\": 3600, \"rules\": [{\"match\": \"PUT\", \"action\": \"expired\"}]}");
    must(tern_store_put(store, "c", "x", 1, false));
    store_server_control(&g_server, "{}");
    setenv("AWS_ACCESS_KEY_ID", "tern", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    tern_store_close(store);
}

/* ---- where logins come from ---- */

static void set(const char *name, const char *value)
{
    if (value != NULL) {
        setenv(name, value, 1);
    } else {
        unsetenv(name);
    }
}

static void set_keys(bool are_there)
{
    set("AWS_ACCESS_KEY_ID", are_there ? "tern" : NULL);
    set("AWS_SECRET_ACCESS_KEY", are_there ? "secret" : NULL);
}

/* What becomes of a HEAD of nothing with the environment as it is: NOT_FOUND is the good answer. An answer that is worth
 * asking again for is waited for only briefly where it is expected, and long where another is. */
static tern_status try_login(const char *url, tern_status expected)
{
    struct tern_store_options options = {.pause_seconds = 0.01,
                                         .retry_seconds = expected == TERN_ERR_IO ? 0.3 : 30,
                                         .stall_seconds = 30};
    struct tern_store_info info;
    struct tern_store *store;
    TERN_RETURN_IF_ERR(tern_store_open(url, &options, &store));
    tern_status status = tern_store_head(store, "nothing", &info);
    tern_store_close(store);
    return status;
}

static void expect_login(const char *url, tern_status expected, const char *words)
{
    tern_status status = try_login(url, expected);
    if (status != expected || strstr(tern_detail(), words) == NULL) {
        fail_msg("%s: %s (status %d), expected status %d and '%s'", url, tern_detail(), status,
                 expected, words);
    }
}

/* A role for the token of a file, as pods of EKS have it. */
static void test_web_identity(void **state)
{
    (void)state;
    static const char url[] = "s3://bucket/web";
    char path[256];
    struct tern_store *store;
    snprintf(path, sizeof path, "%s", path_of("web"));
    set_keys(false);
    set("AWS_WEB_IDENTITY_TOKEN_FILE", path);
    expect_login(url, TERN_ERR_CONFIG, "AWS_WEB_IDENTITY_TOKEN_FILE: ");
    write_file(path, "\n", 1);
    expect_login(url, TERN_ERR_CONFIG, "is empty");
    write_file(path, "web-7\n", 6);
    expect_login(url, TERN_ERR_CONFIG, "/sts/: 400 InvalidIdentityToken: by the test");
    store_server_control(&g_server, "{\"identity\": 7}");
    expect_login(url, TERN_ERR_NOT_FOUND, "");
    set("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/other");
    expect_login(url, TERN_ERR_CONFIG, "403 AccessDenied");
    set("AWS_ROLE_ARN", NULL);
    expect_login(url, TERN_ERR_CONFIG, "AWS_ROLE_ARN is not");
    set("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/tern");
    static const char *const passing[] = {"503", "500", "cut", "junk"};
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
        char rule[128];
        snprintf(rule, sizeof rule,
                 "{\"rules\": [{\"match\": \"POST /sts/\", \"action\": \"%s\", \"times\": 2}]}",
                 passing[i]);
        store_server_control(&g_server, rule);
        expect_login(url, TERN_ERR_NOT_FOUND, "");
    }
    store_server_control(&g_server, "{\"role_seconds\": 10}"); /* always about to expire */
    must(tern_store_open(url, NULL, &store));
    must(tern_store_put(store, "a", "x", 1, false));
    write_file(path, "web-8", 5); /* the token is renewed, too */
    store_server_control(&g_server, "{\"identity\": 8}");
    must(tern_store_put(store, "b", "x", 1, false));
    store_server_control(&g_server,
                         "{\"reset\": true, \"rules\": [{\"match\": \"/sts/\", \"action\": "
                         "\"503\", \"times\": 1000}]}");
    must(tern_store_put(store, "c", "x", 1, false)); /* the keys still hold */
    must(tern_store_put(store, "d", "x", 1, false));
    struct tern_text log;
    int asked = 0;
    store_server_get(&g_server, "/_log", &log);
    for (const char *at = log.data; (at = strstr(at, "POST /sts/")) != NULL; at++) {
        asked++;
    }
    tern_text_fini(&log);
    assert_int_equal(asked, 1); /* and it is not asked each time */
    store_server_control(&g_server, "{\"reset\": true, \"role_seconds\": 3600, \"identity\": 0}");
    tern_store_close(store);
    set("AWS_WEB_IDENTITY_TOKEN_FILE", NULL);
    set_keys(true);
}

/* A container's own credentials: ECS, and EKS Pod Identity. */
static void test_container(void **state)
{
    (void)state;
    static const char url[] = "s3://bucket/pod";
    static const char *const far[] = {"http://example.com/",
                                      "http://127.0.0.1.example.com/",
                                      "http://127.0.0.1@example.com/",
                                      "http://[::1].example.com/",
                                      "ftp://127.0.0.1/",
                                      "http://169.254.170.22/"};
    char full[128], path[256];
    snprintf(full, sizeof full, "%s/pod/v1", g_server.base);
    snprintf(path, sizeof path, "%s", path_of("pod"));
    set_keys(false);
    set("AWS_CONTAINER_CREDENTIALS_FULL_URI", full);
    set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-0");
    expect_login(url, TERN_ERR_NOT_FOUND, "");
    set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "wrong");
    expect_login(url, TERN_ERR_IO, "the container's credentials: answered with 401");
    set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path); /* comes first */
    expect_login(url, TERN_ERR_CONFIG, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: ");
    write_file(path, "pod-0\n", 6);
    expect_login(url, TERN_ERR_NOT_FOUND, "");
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        set("AWS_CONTAINER_CREDENTIALS_FULL_URI", far[i]);
        expect_login(url, TERN_ERR_CONFIG, "an address of this machine");
    }
    set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/pod/v1"); /* comes first */
    expect_login(url, TERN_ERR_NOT_FOUND, "");
    set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ".example.com/");
    expect_login(url, TERN_ERR_CONFIG, "expected a path");
    set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", NULL);
    set("AWS_CONTAINER_CREDENTIALS_FULL_URI", NULL);
    set("AWS_CONTAINER_AUTHORIZATION_TOKEN", NULL);
    set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", NULL);
    set_keys(true);
}

/* The same on AKS. */
static void test_federated(void **state)
{
    (void)state;
    static const char url[] = "az://box-bearer/p";
    char path[256];
    snprintf(path, sizeof path, "%s", path_of("federated"));
    const char *key = getenv("AZURE_STORAGE_KEY");
    char *kept = tern_strdup("test", key);
    set("AZURE_STORAGE_KEY", NULL);
    set("AZURE_FEDERATED_TOKEN_FILE", path);
    set("AZURE_AUTHORITY_HOST", g_server.base);
    set("AZURE_CLIENT_ID", "client");
    set("AZURE_TENANT_ID", NULL);
    expect_login(url, TERN_ERR_CONFIG, "AZURE_TENANT_ID is not");
    set("AZURE_TENANT_ID", "tenant");
    expect_login(url, TERN_ERR_CONFIG, "AZURE_FEDERATED_TOKEN_FILE: ");
    write_file(path, "web-0\n", 6);
    expect_login(url, TERN_ERR_NOT_FOUND, "");
    write_file(path, "web-1\n", 6);
    expect_login(url, TERN_ERR_IO, "the token of the workload's identity: answered with 401");
    set("AZURE_FEDERATED_TOKEN_FILE", NULL);
    set("AZURE_STORAGE_KEY", kept);
    tern_free(kept);
}

/* No credentials anywhere: said at once, and where they were looked for. */
static void test_no_login(void **state)
{
    (void)state;
    set_keys(false);
    set("AWS_EC2_METADATA_DISABLED", "true");
    expect_login("s3://bucket/none", TERN_ERR_CONFIG,
                 "no credentials: neither AWS_ACCESS_KEY_ID nor");
    set("AWS_EC2_METADATA_DISABLED", NULL);
    set_keys(true);
}

/* A file of the login that is not there is no object that is not there: that would be an empty bucket. */
static void test_missing_login(void **state)
{
    (void)state;
    set("GS_ACCESS_KEY_ID", NULL);
    set("GS_SECRET_ACCESS_KEY", NULL);
    set("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json");
    expect_login("gs://gs-bearer/p", TERN_ERR_CONFIG, "/nonexistent/key.json");
    set("GOOGLE_APPLICATION_CREDENTIALS", NULL);
    set("GS_ACCESS_KEY_ID", "tern");
    set("GS_SECRET_ACCESS_KEY", "secret");
}

/* A store whose certificate nobody vouches for gets nothing, and is not asked again and again. */
static void test_tls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *variable;
    } rows[] = {{"s3://bucket/tls", "SSL_CERT_FILE"},
                {"s3://bucket/tls", "AWS_CA_BUNDLE"},
                {"gs://gs-keys/tls", "SSL_CERT_FILE"},
                {"az://box/tls", "SSL_CERT_FILE"}};
    struct store_server server;
    char cert[256];
    store_server_start_tls(&server, STORE_SERVER, g_folder);
    snprintf(cert, sizeof cert, "%s", path_of("cert.pem"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_login(rows[i].url, TERN_ERR_CONFIG,
                     "certificate is not believed: SSL certificate "
                     "problem: self-signed certificate");
        assert_null(strstr(tern_detail(), "given up after"));
        set(rows[i].variable, cert);
        struct tern_store *store = open_kind(&(struct kind){.url = rows[i].url});
        round_trip(store);
        only_once(store);
        tern_store_close(store);
        set(rows[i].variable, NULL);
    }
    set("AWS_CA_BUNDLE", "/nonexistent.pem");
    expect_login("s3://bucket/tls", TERN_ERR_CONFIG, "AWS_CA_BUNDLE: found '/nonexistent.pem'");
    set("AWS_CA_BUNDLE", NULL);
    set("SSL_CERT_FILE", path_of("openssl.log")); /* no PEM */
    expect_login("s3://bucket/tls", TERN_ERR_CONFIG, "certificate is not believed");
    set("SSL_CERT_FILE", NULL);
    store_server_stop(&server);
    store_server_use(&g_server);
}

/* An upload that was broken off is gone on with: only what is missing is sent. */
static void test_resume(void **state)
{
    (void)state;
    static uint8_t data[BYTES];
    store_fill(data, sizeof data, 3);
    char up[256];
    snprintf(up, sizeof up, "%s", path_of("up"));
    write_file(up, data, sizeof data);
    static const int kinds[] = {0, 2, 4};
    for (int k = 0; k < 3; k++) {
        store_server_control(&g_server, "{\"reset\": true, \"rules\": [{\"match\": "
                                        "\"PUT.*(partNumber|comp=block)\", \"skip\": 6, "
                                        "\"action\": \"gone\", \"times\": 100}]}");
        struct tern_store *store = open_kind(&g_kinds[kinds[k]]);
        assert_int_equal(tern_store_put_file(store, "big", up), TERN_ERR_IO);
        store_server_control(&g_server, "{}");
        data[500] ^= 1; /* the first part is another now */
        write_file(up, data, sizeof data);
        must(tern_store_put_file(store, "big", up));
        check_object(store, "big", data, sizeof data);
        struct tern_text log;
        int sent = 0;
        store_server_get(&g_server, "/_log", &log);
        for (const char *at = log.data; (at = strstr(at, "PUT ")) != NULL; at++) {
            size_t length = strcspn(at, "\n");
            char line[2048];
            snprintf(line, sizeof line, "%.*s", (int)(length < 2000 ? length : 2000), at);
            sent += (strstr(line, "partNumber") != NULL || strstr(line, "blockid=") != NULL) &&
                    strstr(line, " 20") != NULL;
        }
        tern_text_fini(&log);
        /* eleven parts, and the first once more if it was among the six that came through */
        assert_in_range(sent, 11, 12);
        tern_store_close(store);
    }
}

/* ---- limits ---- */

static void test_rate(void **state)
{
    (void)state;
    struct tern_store_options options = {.rate_bytes = 20000};
    struct tern_store *store;
    static uint8_t data[BYTES];
    char up[256];
    snprintf(up, sizeof up, "%s", path_of("up"));
    write_file(up, data, sizeof data);
    must(tern_store_open("s3://bucket/rate", &options, &store));
    double started = tern_clock_seconds();
    must(tern_store_put_file(store, "k", up));
    assert_true(tern_clock_seconds() - started >= 0.4); /* 10,500 bytes less a burst of 1,000 */
    must(tern_store_remove(store, "k"));
    tern_store_close(store);
}

static void *cancel_soon(void *arg)
{
    while (!store_server_shows(&g_server, "/_log", "rate2")) { /* the transfer is under way */
    }
    tern_store_cancel(arg, true);
    return NULL;
}

static void test_cancel(void **state)
{
    (void)state;
    struct tern_store_options options = {.rate_bytes = 100}; /* 105 s */
    struct tern_store *store;
    static uint8_t data[BYTES];
    char up[256];
    pthread_t thread;
    snprintf(up, sizeof up, "%s", path_of("up"));
    write_file(up, data, sizeof data);
    must(tern_store_open("s3://bucket/rate2", &options, &store));
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, store), 0);
    assert_int_equal(tern_store_put_file(store, "k", up), TERN_ERR_CANCELLED);
    pthread_join(thread, NULL);
    tern_store_close(store);
    store_server_control(&g_server, "{\"reset\": true}");
}

/* ---- random schedules of faults ---- */

/* An object is there as it is to be or not at all, whatever the schedule. */
static void test_random_schedules(void **state)
{
    (void)state;
    const struct store_sweep sweep = store_sweep_begin(30);
    static uint8_t data[BYTES];
    char up[256], down[256], json[256];
    snprintf(up, sizeof up, "%s", path_of("up"));
    snprintf(down, sizeof down, "%s", path_of("down"));
    struct tern_store_options options = {
        .parallel = 3, .pause_seconds = 0.002, .retry_seconds = 2, .stall_seconds = 0.3};
    int done = 0;
    for (int seed = sweep.first; seed < sweep.first + sweep.count; seed++) {
        const struct kind *kind = &g_kinds[seed % 3 == 2 ? 4 : seed % 3 == 1 ? 2 : 0];
        size_t bytes = 1 + tern_random_u64((uint64_t)seed, 1, 0) % BYTES;
        struct tern_store *store;
        must(tern_store_open(kind->url, &options, &store));
        store_fill(data, bytes, (uint64_t)seed);
        write_file(up, data, bytes);
        snprintf(json, sizeof json,
                 "{\"reset\": true, \"seed\": %d, \"rate\": 0.%d, \"actions\": [\"500\", \"503\", "
                 "\"cut\", \"lost\", \"half\", \"error200\", \"expired\"%s]}",
                 seed, 10 + seed % 50, seed % 10 == 0 ? ", \"stall\", \"gone\"" : "");
        store_server_control(&g_server, json);
        tern_status up_status = tern_store_put_file(store, "k", up);
        tern_status down_status =
            up_status == TERN_OK ? tern_store_get_file(store, "k", down, NULL) : TERN_ERR_IO;
        store_server_control(&g_server, "{}");
        struct tern_store_info info;
        tern_status there = tern_store_head(store, "k", &info);
        assert_true(there == TERN_OK || there == TERN_ERR_NOT_FOUND);
        assert_true(up_status != TERN_OK || there == TERN_OK);
        if (there == TERN_OK) {
            check_object(store, "k", data, bytes); /* never a part of it */
        }
        if (down_status == TERN_OK) {
            char *back;
            size_t length;
            must(tern_file_read(down, 1 << 20, &back, &length));
            assert_int_equal(length, bytes);
            assert_memory_equal(back, data, bytes);
            tern_free(back);
        }
        done += up_status == TERN_OK;
        int removed;
        must(tern_store_remove_uploads(store, "", &removed));
        assert_true(store_server_shows(&g_server, "/_state", "\"uploads\": []"));
        tern_store_close(store);
        store_sweep_tick(&sweep, seed);
    }
    print_message("%d of %d uploads done\n", done, sweep.count);
    assert_true(done > sweep.count / 4);
}

static int start(void **state)
{
    (void)state;
    snprintf(g_folder, sizeof g_folder, "/tmp/tern-store.XXXXXX");
    if (mkdtemp(g_folder) == NULL) {
        return -1;
    }
    store_server_start(&g_server, STORE_SERVER);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    store_server_stop(&g_server);
    return tern_file_remove_tree(g_folder) == TERN_OK && tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),    cmocka_unit_test(test_bad_urls),
        cmocka_unit_test(test_each_fault),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_gives_up),      cmocka_unit_test(test_renewal),
        cmocka_unit_test(test_web_identity),  cmocka_unit_test(test_container),
        cmocka_unit_test(test_federated),     cmocka_unit_test(test_no_login),
        cmocka_unit_test(test_missing_login), cmocka_unit_test(test_tls),
        cmocka_unit_test(test_resume),        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_random_schedules),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
