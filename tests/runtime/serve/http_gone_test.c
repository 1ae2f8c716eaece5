/* http_gone_test.c - clients that leave, in every phase and in every way: seen at once, and nothing is left of them. */
#include "tests/runtime/serve/http_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fixture fixture;

enum leaving {
    BY_FIN,
    BY_RESET,
    BY_HALF_CLOSE,
    LEAVINGS
};

/* Half-closed: the descriptor stays open, and the server's end must come. */
static void leave(int fd, enum leaving how)
{
    if (how == BY_FIN) {
        close(fd);
    } else if (how == BY_RESET) {
        client_reset(fd);
    } else {
        shutdown(fd, SHUT_WR);
        client_expect_cut(fd);
    }
}

static void wait_for_connections(int64_t expected)
{
    struct tern_http_stats stats;
    for (int i = 0; i < 60000; i++) {
        tern_http_stats(fixture.http, &stats);
        if (stats.connections == expected) {
            return;
        }
        usleep(1000);
    }
    fail_msg("%lld connections are open, expected %lld", (long long)stats.connections,
             (long long)expected);
}

static void put(int fd, const char *text)
{
    assert_true(client_send(fd, text, strlen(text)));
}

/* Before there is a request, or in the midst of one: the connection goes, and no handler is called. */
static void test_before_a_handler(void **state)
{
    (void)state;
    static const char *const sent[] = {
        "",
        "GE",
        "GET /light HTTP/1.1\r\nHost: a\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA:",
        "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhello",
    };
    fixture_start(&fixture, NULL);
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        for (int how = 0; how < LEAVINGS; how++) {
            int fd = client_open(&fixture);
            put(fd, sent[i]);
            wait_for_connections(1);
            leave(fd, how);
            wait_for_connections(0);
        }
    }
    struct tern_http_stats stats;
    tern_http_stats(fixture.http, &stats);
    assert_int_equal(stats.body_bytes, 0);
    assert_int_equal(stats.gone_total, 0);
    assert_int_equal(atomic_load(&fixture.routes.handled), 0);
    fixture_stop(&fixture);
}

/* With the request in some thread's hands: told once, at once, and let go. With bytes behind the request, too, which
 * the server has not read. */
static void test_while_answered(void **state)
{
    (void)state;
    static const char *const behind[] = {"", "GET /light HTTP/1.1\r\nHost: a\r\n\r\n", "garbage"};
    static const char *const paths[] = {"/hold", "/tick"};
    fixture_start(&fixture, NULL);
    int expected = 0;
    for (int path = 0; path < 2; path++) {
        for (size_t i = 0; i < 3; i++) {
            for (int how = 0; how < LEAVINGS; how++) {
                int fd = client_open(&fixture);
                client_print(fd, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n%s", paths[path], behind[i]);
                wait_for(&fixture.routes.held, 1, "held");
                leave(fd, how);
                wait_for(&fixture.routes.gone, ++expected, "gone");
                routes_tick(&fixture.routes); /* the stream's writer hears of it now */
                wait_for(&fixture.routes.held, 0, "held");
            }
        }
    }
    assert_int_equal(atomic_load(&fixture.routes.released), expected);
    fixture_stop(&fixture);
}

/* Between two events of a stream that runs. */
static void test_in_a_stream(void **state)
{
    (void)state;
    fixture_start(&fixture, NULL);
    for (int how = 0; how < LEAVINGS; how++) {
        int fd = client_open(&fixture);
        char bytes[300];
        put(fd, "GET /tick HTTP/1.1\r\nHost: a\r\n\r\n");
        while (routes_tick(&fixture.routes) == 0) {
        }
        assert_int_equal(recv(fd, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
        leave(fd, how);
        wait_for(&fixture.routes.gone, how + 1, "gone");
        assert_int_equal(routes_tick(&fixture.routes), 0);
        wait_for(&fixture.routes.held, 0, "held");
    }
    fixture_stop(&fixture);
}

/* Queued for a worker: its handler is never called. */
static void test_in_the_queue(void **state)
{
    (void)state;
    fixture_start(&fixture, &(struct tern_http_options){.workers = 1});
    int blocked = client_open(&fixture);
    put(blocked, "GET /block HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.blocked, 1, "blocked");
    for (int how = 0; how < LEAVINGS; how++) {
        struct tern_http_stats stats;
        int fd = client_open(&fixture);
        put(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        do {
            tern_http_stats(fixture.http, &stats);
        } while (stats.requests_total != how + 2);
        leave(fd, how);
        wait_for_connections(1);
    }
    routes_open(&fixture.routes);
    client_expect(blocked, 200);
    put(blocked, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    client_expect(blocked, 200);
    assert_int_equal(atomic_load(&fixture.routes.handled), 1);
    close(blocked);
    fixture_stop(&fixture);
}

/* While a worker runs the handler: its answer goes nowhere. */
static void test_in_the_handler(void **state)
{
    (void)state;
    fixture_start(&fixture, NULL);
    int fd = client_open(&fixture);
    put(fd, "GET /block HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.blocked, 1, "blocked");
    close(fd);
    wait_for_connections(0);
    routes_open(&fixture.routes);
    wait_for(&fixture.routes.blocked, 0, "blocked");
    fixture_stop(&fixture);
}

/* With most of a long answer still to be sent. */
static void test_while_sent(void **state)
{
    (void)state;
    fixture_start(&fixture, NULL);
    for (int how = 0; how < LEAVINGS; how++) {
        int fd = client_open(&fixture);
        char bytes[1000];
        for (int i = 0; i < 8; i++) {
            put(fd, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        assert_int_equal(recv(fd, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
        leave(fd, how);
        wait_for_connections(0);
    }
    fixture_stop(&fixture);
}

/* A request, cut off at a random byte or left at a random moment; seeded. */
static void test_random(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "GET /light HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: "
        "40\r\n\r\n0123456789012345678901234567890123456789",
        "POST /stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
        "chunked\r\n\r\n20\r\n01234567890123456789012345678901\r\n0\r\n\r\n",
        "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /tick HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /big HTTP/1.1\r\nHost: a\r\n\r\nGET /big HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /drop HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    const char *rounds = getenv("TERN_HTTP_ROUNDS");
    unsigned seed = 7;
    fixture_start(&fixture, NULL);
    print_message("seed %u\n", seed);
    for (int i = 0; i < (rounds != NULL ? atoi(rounds) : 2000); i++) {
        const char *request = requests[rand_r(&seed) % (sizeof requests / sizeof requests[0])];
        size_t length = strlen(request);
        size_t cut = rand_r(&seed) % 2 == 0 ? length : (size_t)rand_r(&seed) % length;
        int fd = client_open(&fixture);
        char bytes[512];
        client_send(fd, request, cut);
        if (rand_r(&seed) % 4 == 0) {
            (void)!recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        }
        if (rand_r(&seed) % 8 == 0) {
            routes_tick(&fixture.routes);
        }
        leave(fd, (enum leaving)(rand_r(&seed) % 2));
    }
    wait_for_connections(0);
    routes_tick(&fixture.routes);
    wait_for(&fixture.routes.held, 0, "held");
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_before_a_handler), CHECKED(test_while_answered), CHECKED(test_in_a_stream),
        CHECKED(test_in_the_queue),     CHECKED(test_in_the_handler), CHECKED(test_while_sent),
        CHECKED(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
