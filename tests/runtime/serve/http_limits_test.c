/* http_limits_test.c - deadlines on a clock that the test moves, and limits on what clients can make the server hold. */
#include "tests/runtime/serve/http_fixture.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fixture fixture;

static void put(int fd, const char *text)
{
    assert_true(client_send(fd, text, strlen(text)));
}

static const char get_light[] = "GET /light HTTP/1.1\r\nHost: a\r\n\r\n";

static void settle(void)
{
    client_settle(&fixture);
}

static void start_stopped(const struct tern_http_options *options)
{
    clock_stop();
    fixture_start(&fixture, options);
}

static void stop_restored(void)
{
    fixture_stop(&fixture);
    clock_restore();
}

/* Bytes that trickle do not move the deadline. */
static void test_slow_head(void **state)
{
    (void)state;
    start_stopped(NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /light HTTP/1.1\r\n");
    settle();
    clock_go(6);
    put(fd, "Host: a\r\n");
    settle();
    clock_go(3.7);
    put(fd, "X-A: a\r\n");
    settle();
    clock_go(0.5);
    client_expect(fd, 408);
    client_expect_end(fd);
    stop_restored();
}

static void test_slow_body(void **state)
{
    (void)state;
    start_stopped(NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /light HTTP/1.1\r\n");
    settle();
    clock_go(9);
    put(fd, "Host: a\r\nContent-Length: 10\r\n\r\nabc"); /* 20 s from here */
    settle();
    clock_go(12);
    put(fd, "def");
    settle();
    clock_go(7.7);
    put(fd, "g");
    settle();
    clock_go(0.5);
    client_expect(fd, 408);
    client_expect_end(fd);
    stop_restored();
}

static void test_idle(void **state)
{
    (void)state;
    start_stopped(NULL);
    int fresh = client_open(&fixture), used = client_open(&fixture);
    settle();
    clock_go(20);
    put(used, get_light);
    client_expect(used, 200);
    settle(); /* the answer may be read before its time is noted */
    clock_go(11);
    client_expect_end(fresh);
    put(used, get_light); /* its own 30 s began with the answer */
    client_expect(used, 200);
    settle();
    clock_go(31);
    client_expect_end(used);
    stop_restored();
}

/* None while a request waits for its answer. */
static void test_no_deadline_while_busy(void **state)
{
    (void)state;
    start_stopped(NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /block HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.blocked, 1, "blocked");
    for (int i = 0; i < 3; i++) {
        clock_go(1000);
        settle();
    }
    routes_open(&fixture.routes);
    client_expect(fd, 200);
    close(fd);
    stop_restored();
}

/* A client that reads nothing of a long answer. */
static void test_stalled_reader(void **state)
{
    (void)state;
    struct tern_http_stats stats;
    start_stopped(NULL);
    int fd = client_open(&fixture);
    for (int i = 0; i < 16; i++) { /* 16 MiB: more than the kernel holds */
        put(fd, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    settle();
    do {
        settle();
        clock_go(21);
        tern_http_stats(fixture.http, &stats);
    } while (stats.connections > 0);
    client_expect_cut(fd);
    stop_restored();
}

/* The answer's last bytes are not waited for as long as the client takes one now and then. */
static void test_trickling_reader(void **state)
{
    (void)state;
    struct tern_http_stats stats;
    char byte;
    start_stopped(NULL);
    int fd = client_open(&fixture);
    for (int i = 0; i < 16; i++) {
        put(fd, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    settle();
    int turns = 0;
    do {
        settle();
        clock_go(10);
        (void)!recv(fd, &byte, 1, MSG_DONTWAIT);
        tern_http_stats(fixture.http, &stats);
        turns++;
    } while (stats.connections > 0);
    print_message("closed after %d turns of 10 s\n", turns);
    client_expect_cut(fd);
    stop_restored();
}

/* A stream whose client reads nothing, with a backlog below its limit. */
static void test_stalled_stream(void **state)
{
    (void)state;
    start_stopped(&(struct tern_http_options){.backlog_bytes_max = 64 << 20});
    int fd = client_open(&fixture);
    put(fd, "GET /tick HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.held, 1, "held");
    for (int i = 0; i < 80000; i++) { /* 20 MiB: more than the kernel holds */
        routes_tick(&fixture.routes);
    }
    settle();
    clock_go(21);
    wait_for(&fixture.routes.gone, 1, "gone");
    routes_tick(&fixture.routes);
    wait_for(&fixture.routes.held, 0, "held");
    client_expect_cut(fd);
    stop_restored();
}

/* A stream that is not read is cut at its limit, and its writer told. */
static void test_backlog(void **state)
{
    (void)state;
    fixture_start(&fixture, &(struct tern_http_options){.backlog_bytes_max = 64 << 10});
    int fd = client_open(&fixture);
    put(fd, "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.floods_cut, 1, "floods");
    /* what was written lies in the backlog and in the kernel, which holds 10 MiB at most here */
    assert_true(atomic_load(&fixture.routes.flood_blocks) < (24 << 20) / ROUTES_FLOOD_BYTES);
    client_expect_cut(fd);
    settle();
    fixture_stop(&fixture);
}

static void test_connections(void **state)
{
    (void)state;
    enum {
        MOST = 8
    };
    int fds[MOST];
    struct tern_http_stats stats;
    fixture_start(&fixture, &(struct tern_http_options){.connections_max = MOST});
    for (int i = 0; i < MOST; i++) {
        fds[i] = client_open(&fixture);
        put(fds[i], get_light);
        client_expect(fds[i], 200);
    }
    int one_more = client_open(&fixture);
    char answer[64] = "";
    assert_true(recv(one_more, answer, 12, MSG_WAITALL) == 12);
    assert_string_equal(answer, "HTTP/1.1 503");
    client_expect_cut(one_more);
    put(fds[0], get_light);
    client_expect(fds[0], 200);
    close(fds[0]);
    do {
        tern_http_stats(fixture.http, &stats);
    } while (stats.connections == MOST);
    settle();
    assert_int_equal(stats.connections_refused, 1);
    for (int i = 1; i < MOST; i++) {
        close(fds[i]);
    }
    fixture_stop(&fixture);
}

/* No descriptor is left: the client is turned away instead of waiting, and the loop does not spin. */
static void test_no_descriptors(void **state)
{
    (void)state;
    struct rlimit before, now;
    char answer[64] = "";
    fixture_start(&fixture, NULL);
    settle();
    int highest = client_open(&fixture); /* takes a descriptor here and one in the server */
    put(highest, get_light);
    client_expect(highest, 200);
    int probe = dup(highest);
    close(probe);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)probe + 1; /* room for the client's end alone */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    int fd = client_open(&fixture);
    assert_true(recv(fd, answer, 12, MSG_WAITALL) == 12);
    assert_string_equal(answer, "HTTP/1.1 503");
    client_expect_cut(fd);
    put(highest, get_light);
    client_expect(highest, 200);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    settle();
    close(highest);
    fixture_stop(&fixture);
}

/* All bodies together have a bound, too. */
static void test_bodies(void **state)
{
    (void)state;
    enum {
        SIZE = 300000
    };
    char *body = calloc(1, SIZE);
    memset(body, 'b', SIZE);
    fixture_start(&fixture, &(struct tern_http_options){.bodies_bytes_max = 1 << 20});
    int first = client_open(&fixture), second = client_open(&fixture);
    client_print(first, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", SIZE);
    assert_true(client_send(first, body, SIZE - 1));
    settle();
    client_print(second, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", SIZE * 2);
    client_send(second, body, SIZE);
    client_send(second, body, SIZE);
    client_expect(second, 503);
    client_expect_end(second);
    assert_true(client_send(first, body, 1));
    client_expect(first, 200);
    close(first);
    struct tern_http_stats stats;
    do {
        tern_http_stats(fixture.http, &stats);
    } while (stats.body_bytes != 0);
    free(body);
    fixture_stop(&fixture);
}

/* Hundreds of clients that send a byte now and then, and one that is served all the time. */
static void test_tricklers(void **state)
{
    (void)state;
    enum {
        COUNT = 400
    };
    static int fds[COUNT];
    fixture_start(&fixture, NULL);
    int served = client_open(&fixture);
    for (int i = 0; i < COUNT; i++) {
        fds[i] = client_open(&fixture);
    }
    for (size_t at = 0; at < sizeof get_light - 1; at++) {
        for (int i = 0; i < COUNT; i++) {
            assert_true(client_send(fds[i], get_light + at, 1));
        }
        put(served, get_light);
        client_expect(served, 200);
    }
    for (int i = 0; i < COUNT; i++) {
        client_expect(fds[i], 200);
        close(fds[i]);
    }
    close(served);
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_slow_head),      CHECKED(test_slow_body),
        CHECKED(test_idle),           CHECKED(test_no_deadline_while_busy),
        CHECKED(test_stalled_reader), CHECKED(test_trickling_reader),
        CHECKED(test_stalled_stream), CHECKED(test_backlog),
        CHECKED(test_connections),    CHECKED(test_no_descriptors),
        CHECKED(test_bodies),         CHECKED(test_tricklers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
