/* http_test.c - what a well-meaning client sees: answers, streams, pipelining, ids, pings, and a server that stops. */
#include "tests/runtime/serve/http_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fixture fixture;

static const char get_light[] = "GET /light HTTP/1.1\r\nHost: a\r\n\r\n";

static void put(int fd, const char *text)
{
    assert_true(client_send(fd, text, strlen(text)));
}

/* The value of a header of an answer, in a static buffer; "" if there is none. */
static const char *header(const struct answer *answer, const char *name)
{
    static char value[256];
    char line[64];
    snprintf(line, sizeof line, "\r\n%s: ", name);
    const char *at = strcasestr(answer->head, line);
    value[0] = '\0';
    if (at != NULL) {
        sscanf(at + strlen(line), "%255[^\r]", value);
    }
    return value;
}

static void test_ids(void **state)
{
    (void)state;
    static const char *const refused[] = {"", "a b", "a\"b", "caf\xC3\xA9", "<script>"};
    struct answer answer;
    char first[256];
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /light HTTP/1.1\r\nHost: a\r\nX-Request-Id: My-id.7:x_y\r\n\r\n");
    client_read(fd, false, &answer);
    assert_string_equal(header(&answer, "x-request-id"), "My-id.7:x_y");
    answer_free(&answer);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        client_print(fd, "GET /light HTTP/1.1\r\nHost: a\r\nX-Request-Id: %s\r\n\r\n", refused[i]);
        client_read(fd, false, &answer);
        assert_int_equal(strncmp(header(&answer, "x-request-id"), "req-", 4), 0);
        assert_int_equal(strlen(header(&answer, "x-request-id")), 20);
        answer_free(&answer);
    }
    put(fd, get_light);
    client_read(fd, false, &answer);
    strcpy(first, header(&answer, "x-request-id"));
    answer_free(&answer);
    client_print(fd, "GET /light HTTP/1.1\r\nHost: a\r\nX-Request-Id: %0129d\r\n\r\n", 1);
    client_read(fd, false, &answer);
    assert_string_not_equal(header(&answer, "x-request-id"), first);
    assert_int_equal(strlen(header(&answer, "x-request-id")), 20);
    answer_free(&answer);
    close(fd);
    fixture_stop(&fixture);
}

static void test_routes(void **state)
{
    (void)state;
    struct answer answer;
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /rest/a%2Fb/%E2%82%AC?q=%20 HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(fd, false, &answer);
    assert_string_equal(answer.body, "a/b/\xE2\x82\xAC");
    answer_free(&answer);
    put(fd, "POST /echo?a=%20b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na\nb");
    client_read(fd, false, &answer);
    assert_string_equal(answer.body, "a\nb");
    assert_string_equal(header(&answer, "x-query"), "a=%20b");
    answer_free(&answer);
    put(fd, "HEAD /big HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(fd, true, &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(header(&answer, "Content-Length"), "1048576");
    answer_free(&answer);
    put(fd, "DELETE /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(fd, false, &answer);
    assert_int_equal(answer.status, 405);
    assert_string_equal(header(&answer, "Allow"), "GET, HEAD, POST, OPTIONS");
    answer_free(&answer);
    put(fd, "OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(fd, false, &answer);
    assert_int_equal(answer.status, 204);
    assert_string_equal(header(&answer, "Allow"), "POST, OPTIONS");
    answer_free(&answer);
    close(fd);
    fixture_stop(&fixture);
}

/* Handlers that let their reply go. */
static void test_dropped(void **state)
{
    (void)state;
    struct answer answer;
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /drop HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(fd, false, &answer);
    assert_int_equal(answer.status, 500);
    assert_string_equal(header(&answer, "x-lost"), "");
    answer_free(&answer);
    put(fd, "GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(fd, false, &answer);
    /* the loop may see the drop before it has sent the head: then it is a 500, too */
    assert_true((answer.status == 200 && answer.is_cut) || answer.status == 500);
    answer_free(&answer);
    close(fd);
    fixture_stop(&fixture);
}

/* A body of 4 MiB goes, in chunks or not; one byte more does not. */
static void test_long_bodies(void **state)
{
    (void)state;
    enum {
        MOST = 4 << 20
    };
    struct answer answer;
    char *body = malloc(MOST);
    for (int i = 0; i < MOST; i++) {
        body[i] = (char)('a' + i % 23);
    }
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    client_print(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", MOST);
    assert_true(client_send(fd, body, MOST));
    client_read(fd, false, &answer);
    assert_int_equal(answer.body_bytes, MOST);
    assert_memory_equal(answer.body, body, MOST);
    answer_free(&answer);
    put(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int at = 0; at < MOST; at += MOST / 64) {
        client_print(fd, "%x\r\n", MOST / 64);
        assert_true(client_send(fd, body + at, MOST / 64));
        put(fd, "\r\n");
    }
    put(fd, "0\r\n\r\n");
    client_read(fd, false, &answer);
    assert_int_equal(answer.body_bytes, MOST);
    assert_memory_equal(answer.body, body, MOST);
    answer_free(&answer);
    put(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 64; i++) {
        client_print(fd, "%x\r\n", MOST / 64);
        assert_true(client_send(fd, body, MOST / 64));
        put(fd, "\r\n");
    }
    put(fd, "1\r\nx\r\n");
    client_expect(fd, 413);
    client_expect_end(fd);
    free(body);
    fixture_stop(&fixture);
}

/* A client that sends all of a body that was refused by its length still gets the answer: no reset overtakes it. */
static void test_refused_body(void **state)
{
    (void)state;
    enum {
        SIZE = 5 << 20
    };
    char *body = calloc(1, SIZE);
    fixture_start(&fixture, NULL);
    for (int i = 0; i < 4; i++) {
        int fd = client_open(&fixture);
        client_print(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", SIZE);
        assert_true(client_send(fd, body, SIZE));
        client_expect(fd, 413);
        client_expect_end(fd);
    }
    free(body);
    fixture_stop(&fixture);
}

static void test_expect(void **state)
{
    (void)state;
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    client_expect(fd, 100);
    put(fd, "hi");
    client_expect(fd, 200);
    put(fd,
        "POST /nowhere HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    client_expect(fd, 404);
    client_expect_end(fd);
    fixture_stop(&fixture);
}

static void test_streams(void **state)
{
    (void)state;
    struct answer answer;
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "POST /stream HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n0123456789abcdefghij");
    client_read(fd, false, &answer);
    assert_string_equal(answer.body, "data: 0123456789abcdef\n\ndata: ghij\n\n");
    assert_string_equal(header(&answer, "Transfer-Encoding"), "chunked");
    answer_free(&answer);
    put(fd, get_light);
    client_expect(fd, 200);
    put(fd, "POST /stream HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nabcd");
    client_read(fd, false, &answer);
    assert_string_equal(answer.body, "data: abcd\n\n");
    assert_string_equal(header(&answer, "Transfer-Encoding"), "");
    assert_string_equal(header(&answer, "Connection"), "close");
    answer_free(&answer);
    close(fd);
    fixture_stop(&fixture);
}

/* What is sent behind a stream is neither read nor lost until the stream has ended. */
static void test_pipelined_behind_a_stream(void **state)
{
    (void)state;
    struct answer answer;
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /tick HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.held, 1, "streams");
    for (int i = 0; i < 100; i++) {
        put(fd, get_light);
    }
    while (routes_tick(&fixture.routes) == 0) {
    }
    routes_tick(&fixture.routes);
    routes_end(&fixture.routes);
    client_read(fd, false, &answer);
    assert_int_equal(answer.body_bytes, 512);
    answer_free(&answer);
    for (int i = 0; i < 100; i++) {
        client_expect(fd, 200);
    }
    close(fd);
    fixture_stop(&fixture);
    assert_int_equal(atomic_load(&fixture.routes.gone), 0);
}

static void receive_text(int fd, const char *expected)
{
    char got[256] = "";
    size_t length = strlen(expected);
    assert_int_equal(recv(fd, got, length, MSG_WAITALL), length);
    assert_string_equal(got, expected);
}

static void test_ping(void **state)
{
    (void)state;
    clock_stop();
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /tick HTTP/1.1\r\nHost: a\r\n\r\n");
    char byte, last[5] = "....";
    while (strcmp(last, "\r\n\r\n") != 0) { /* the head */
        assert_int_equal(recv(fd, &byte, 1, 0), 1);
        memmove(last, last + 1, 3);
        last[3] = byte;
    }
    client_settle(&fixture); /* the 15 s have begun */
    clock_go(16);
    receive_text(fd, "8\r\n: ping\n\n\r\n");
    client_settle(&fixture);
    clock_go(16);
    receive_text(fd, "8\r\n: ping\n\n\r\n");
    routes_end(&fixture.routes);
    receive_text(fd, "0\r\n\r\n");
    close(fd);
    fixture_stop(&fixture);
    clock_restore();
}

/* ---- stopping ---- */

static void test_graceful_stop(void **state)
{
    (void)state;
    struct answer answer;
    fixture_start(&fixture, NULL);
    int stream = client_open(&fixture), idle = client_open(&fixture), half = client_open(&fixture);
    put(stream, "GET /tick HTTP/1.1\r\nHost: a\r\n\r\n");
    put(half, "GET /light HTTP/1.1\r\nHost:"); /* read before what comes after it is answered */
    put(idle, get_light);
    client_expect(idle, 200);
    wait_for(&fixture.routes.held, 1, "streams");
    tern_http_stop(fixture.http, 1000);
    client_expect_end(idle);
    while (routes_tick(&fixture.routes) == 0) {
    }
    put(half, " a\r\n\r\n");
    client_read(half, false, &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(header(&answer, "Connection"), "close");
    answer_free(&answer);
    client_expect_end(half);
    routes_end(&fixture.routes);
    client_read(stream, false, &answer);
    assert_int_equal(answer.body_bytes, 256);
    assert_false(answer.is_cut);
    answer_free(&answer);
    client_expect_end(stream);
    fixture_join(&fixture);
    fixture_stop(&fixture);
}

static void test_stop_deadline(void **state)
{
    (void)state;
    clock_stop();
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.held, 1, "held");
    tern_http_stop(fixture.http, 1000);
    tern_http_stop(fixture.http, 5);
    tern_http_stop(fixture.http, 2000); /* not longer */
    clock_go(6);
    client_expect_end(fd);
    fixture_join(&fixture);
    assert_int_equal(atomic_load(&fixture.routes.gone), 1);
    fixture_stop(&fixture);
    clock_restore();
}

static void test_cut_stop(void **state)
{
    (void)state;
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.held, 1, "held");
    tern_http_stop(fixture.http, 1000);
    tern_http_stop(fixture.http, 0);
    client_expect_end(fd);
    fixture_join(&fixture);
    fixture_stop(&fixture);
}

/* ---- what cannot be created ---- */

static tern_status own_error(void *context, int status, const char *message, struct tern_text *out)
{
    (void)context;
    return tern_text_printf(out, "<%d|%s>", status, message);
}

static void test_error_body(void **state)
{
    (void)state;
    struct answer answer;
    fixture_start(&fixture, &(struct tern_http_options){.error_body = own_error});
    int fd = client_open(&fixture);
    put(fd, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(fd, false, &answer);
    assert_string_equal(answer.body, "<404|there is nothing at this path>");
    answer_free(&answer);
    put(fd, "GET /drop HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(fd, false, &answer);
    assert_string_equal(answer.body, "<500|the request was not answered>");
    answer_free(&answer);
    close(fd);
    fixture_stop(&fixture);
}

static void assert_refused(const struct tern_http_options *options, const char *const *words)
{
    struct tern_http *http;
    assert_int_not_equal(tern_http_create(options, &http), TERN_OK);
    assert_null(http);
    for (; *words != NULL; words++) {
        assert_contains(tern_detail(), *words);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    fixture_start(&fixture, NULL);
    char port[16];
    snprintf(port, sizeof port, "%d", tern_http_port(fixture.http));
    assert_refused(&(struct tern_http_options){.port = tern_http_port(fixture.http)},
                   (const char *const[]){"127.0.0.1", port, "in use", NULL});
    assert_refused(&(struct tern_http_options){.host = "no.such.host.invalid"},
                   (const char *const[]){"no.such.host.invalid", NULL});
    assert_refused(&(struct tern_http_options){.host = "203.0.113.7"},
                   (const char *const[]){"203.0.113.7", NULL});
    assert_refused(&(struct tern_http_options){.cert_file = "/nowhere"},
                   (const char *const[]){"both", NULL});
    assert_refused(&(struct tern_http_options){.cert_file = "/nowhere.pem", .key_file = "/k"},
                   (const char *const[]){"/nowhere.pem", "certificate", NULL});
    fixture_stop(&fixture);
}

/* A name is served on all its addresses, under one port. */
static void test_localhost(void **state)
{
    (void)state;
    fixture_start(&fixture, &(struct tern_http_options){.host = "localhost"});
    int fd = client_open(&fixture);
    put(fd, get_light);
    client_expect(fd, 200);
    close(fd);
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_ids),           CHECKED(test_routes),
        CHECKED(test_dropped),       CHECKED(test_long_bodies),
        CHECKED(test_refused_body),  CHECKED(test_expect),
        CHECKED(test_streams),       CHECKED(test_pipelined_behind_a_stream),
        CHECKED(test_ping),          CHECKED(test_graceful_stop),
        CHECKED(test_stop_deadline), CHECKED(test_cut_stop),
        CHECKED(test_error_body),    CHECKED(test_refusals),
        CHECKED(test_localhost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
