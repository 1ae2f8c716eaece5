/* http_client_test.c - answers as they should be, and everything that a hostile or dying server can send instead. */
#include "io/file.h"
#include "io/http_client.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "tests/io/store_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static struct store_server g_server;

static const char *url_of(const char *path)
{
    static char url[256];
    snprintf(url, sizeof url, "%s%s", g_server.base, path);
    return url;
}

static tern_status get(struct tern_http_call call,
                       const char *path,
                       struct tern_http_answer *answer)
{
    call.url = url_of(path);
    return tern_http_get(&call, answer);
}

static void test_plain(void **state)
{
    (void)state;
    struct tern_http_client *client;
    struct tern_http_answer answer;
    char value[8];
    assert_int_equal(tern_http_open(&client), TERN_OK);
    struct tern_http_call call = {.url = url_of("/_http/plain")};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tern_http_ask(client, &call, &answer), TERN_OK);
        assert_int_equal(answer.status, 200);
        assert_string_equal(answer.body.data, "plain");
        assert_string_equal(tern_http_header(&answer, "x-thing", value, sizeof value), "one");
        assert_string_equal(tern_http_header(&answer, "etag", value, sizeof value), "\"e\"");
        assert_string_equal(tern_http_header(&answer, "x-thing", value, 3), "on");
        assert_null(tern_http_header(&answer, "x-thin", value, sizeof value));
        tern_http_answer_fini(&answer);
    }
    call.method = "HEAD";
    assert_int_equal(tern_http_ask(client, &call, &answer), TERN_OK);
    assert_null(answer.body.data);
    tern_http_answer_fini(&answer);
    tern_http_close(client);
    assert_int_equal(get((struct tern_http_call){0}, "/_http/redirect", &answer), TERN_OK);
    assert_int_equal(answer.status, 302); /* never followed */
    tern_http_answer_fini(&answer);
}

static void test_hostile(void **state)
{
    (void)state;
    struct tern_http_answer answer;
    struct tern_http_call call = {.total_seconds = 20, .stall_seconds = 1};
    assert_int_equal(get(call, "/_http/huge", &answer), TERN_ERR_INPUT);
    assert_non_null(strstr(tern_detail(), "longer than 1048576 bytes"));
    tern_http_answer_fini(&answer);
    assert_int_equal(get(call, "/_http/headers", &answer), TERN_ERR_INPUT);
    tern_http_answer_fini(&answer);
    assert_int_equal(get(call, "/_http/short", &answer), TERN_ERR_IO);
    assert_true(answer.is_cut);
    tern_http_answer_fini(&answer);
    tern_status status = get(call, "/_http/junk", &answer);
    assert_true(status == TERN_ERR_INPUT || status == TERN_ERR_IO);
    tern_http_answer_fini(&answer);
    assert_int_equal(get(call, "/_http/silent", &answer), TERN_ERR_IO); /* the stall limit */
    tern_http_answer_fini(&answer);
    call = (struct tern_http_call){.total_seconds = 0.5};
    assert_int_equal(get(call, "/_http/drip", &answer), TERN_ERR_IO); /* the limit of the whole */
    tern_http_answer_fini(&answer);
    call = (struct tern_http_call){.url = "http://127.0.0.1:1/", .connect_seconds = 1};
    assert_int_equal(tern_http_get(&call, &answer), TERN_ERR_IO);
    assert_false(answer.is_cut);
    assert_non_null(strstr(tern_detail(), "http://127.0.0.1:1"));
    tern_http_answer_fini(&answer);
}

static void test_refused_calls(void **state)
{
    (void)state;
    struct tern_http_answer answer;
    static const char *const urls[] = {"",          "ftp://a/b",   "file:///etc/passwd",
                                       "127.0.0.1", "http://a b/", "http://a/\r\nX: y",
                                       "gopher://a"};
    static const char *const headers[] = {"no colon", "A: b\r\nC: d", "A: \x01"};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct tern_http_call call = {.url = urls[i]};
        assert_int_equal(tern_http_get(&call, &answer), TERN_ERR_ARGUMENT);
        tern_http_answer_fini(&answer);
    }
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct tern_http_call call = {.headers = &headers[i], .header_count = 1};
        assert_int_equal(get(call, "/_http/plain", &answer), TERN_ERR_ARGUMENT);
        tern_http_answer_fini(&answer);
    }
}

static void expect_certificate(const char *url, const char *ca_file, const char *words)
{
    struct tern_http_answer answer;
    struct tern_http_call call = {.url = url, .ca_file = ca_file};
    tern_status status = tern_http_get(&call, &answer);
    if (status != (words != NULL ? TERN_ERR_CONFIG : TERN_OK) ||
        (words != NULL && strstr(tern_detail(), words) == NULL)) {
        fail_msg("%s: %s (status %d), expected '%s'", url, tern_detail(), status,
                 words != NULL ? words : "200");
    }
    assert_int_equal(answer.status, words != NULL ? 0 : 200); /* nothing was said to a stranger */
    tern_http_answer_fini(&answer);
}

/* A certificate is believed for the authority that was named and the host that it is for. */
static void test_certificates(void **state)
{
    (void)state;
    char folder[] = "/tmp/tern-http.XXXXXX", cert[64], url[128], other[128];
    struct store_server server;
    assert_non_null(mkdtemp(folder));
    store_server_start_tls(&server, STORE_SERVER, folder);
    snprintf(cert, sizeof cert, "%s/cert.pem", folder);
    snprintf(url, sizeof url, "%s/_http/plain", server.base);
    snprintf(other, sizeof other, "https://localhost%s/_http/plain", strrchr(server.base, ':'));
    expect_certificate(url, NULL, "self-signed certificate");
    expect_certificate(url, cert, NULL);
    expect_certificate(other, cert, "localhost"); /* it is for 127.0.0.1 */
    expect_certificate(url, "/nonexistent.pem", "/nonexistent.pem");
    setenv("SSL_CERT_FILE", cert, 1);
    expect_certificate(url, NULL, NULL);
    setenv("SSL_CERT_FILE", "", 1); /* as if it was not there */
    expect_certificate(url, NULL, "self-signed certificate");
    unsetenv("SSL_CERT_FILE");
    snprintf(other, sizeof other, "https%s/_http/plain", strchr(g_server.base, ':'));
    struct tern_http_answer answer;
    struct tern_http_call call = {.url = other};
    assert_int_equal(tern_http_get(&call, &answer), TERN_ERR_IO); /* no TLS there */
    tern_http_answer_fini(&answer);
    store_server_stop(&server);
    assert_int_equal(tern_file_remove_tree(folder), TERN_OK);
}

static tern_status take(void *context, const void *bytes, size_t count)
{
    (void)bytes;
    *(size_t *)context += count;
    return *(size_t *)context > 1 << 20 ? tern_fail(TERN_ERR_NO_SPACE, "enough") : TERN_OK;
}

static void test_sink(void **state)
{
    (void)state;
    struct tern_http_answer answer;
    size_t taken = 0;
    struct tern_http_call call = {.sink = take, .sink_context = &taken};
    assert_int_equal(get(call, "/_http/huge", &answer), TERN_ERR_NO_SPACE);
    assert_non_null(strstr(tern_detail(), "enough"));
    assert_null(answer.body.data);
    tern_http_answer_fini(&answer);
}

static void *set_true(void *arg)
{
    tern_clock_sleep_ns(10000000);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

static void test_cancel(void **state)
{
    (void)state;
    struct tern_http_answer answer;
    atomic_bool cancel = false;
    pthread_t thread;
    struct tern_http_call call = {.cancel = &cancel, .total_seconds = 1000};
    assert_int_equal(pthread_create(&thread, NULL, set_true, &cancel), 0);
    assert_int_equal(get(call, "/_http/silent", &answer), TERN_ERR_CANCELLED);
    pthread_join(thread, NULL);
    tern_http_answer_fini(&answer);
}

static int start(void **state)
{
    (void)state;
    store_server_start(&g_server, STORE_SERVER);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    store_server_stop(&g_server);
    return tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),         cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_refused_calls), cmocka_unit_test(test_sink),
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_certificates),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
