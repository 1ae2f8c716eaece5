/* http_fixture.c - the server on its thread, and the client. */
#include "tests/runtime/serve/http_fixture.h"

#include "runtime/base/clock.h"
#include "runtime/base/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    PATIENCE_SECONDS = 60,
    BODY_MAX = 8 << 20
};

static atomic_llong now_ns;

static int64_t stopped_clock(void)
{
    return atomic_load(&now_ns);
}

void clock_stop(void)
{
    atomic_store(&now_ns, 1000 * INT64_C(1000000000));
    tern_clock_fake(stopped_clock);
}

void clock_go(double seconds)
{
    atomic_fetch_add(&now_ns, (long long)(seconds * 1e9));
}

void clock_restore(void)
{
    tern_clock_fake(NULL);
}

static void *run(void *arg)
{
    struct fixture *fixture = arg;
    tern_status status = tern_http_run(fixture->http);
    return (void *)(intptr_t)status;
}

void fixture_start(struct fixture *fixture, const struct tern_http_options *options)
{
    struct tern_http_options mine = {0};
    if (options != NULL) {
        mine = *options;
    }
    memset(fixture, 0, sizeof *fixture);
    routes_init(&fixture->routes);
    mine.routes = routes_table(&mine.route_count);
    mine.context = &fixture->routes;
    if (tern_http_create(&mine, &fixture->http) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    assert_int_equal(tern_thread_start(&fixture->thread, run, fixture), 0);
    fixture->is_running = true;
}

void fixture_join(struct fixture *fixture)
{
    void *status;
    pthread_join(fixture->thread, &status);
    fixture->is_running = false;
    assert_int_equal((intptr_t)status, TERN_OK);
}

void fixture_stop(struct fixture *fixture)
{
    if (fixture->is_running) {
        tern_http_stop(fixture->http, 0);
        fixture_join(fixture);
    }
    routes_tick(&fixture->routes); /* lets go of streams whose client was cut */
    struct tern_http_stats stats;
    tern_http_stats(fixture->http, &stats);
    assert_int_equal(stats.connections, 0);
    tern_http_destroy(fixture->http);
    assert_int_equal(atomic_load(&fixture->routes.held), 0);
    routes_fini(&fixture->routes);
}

int client_open(const struct fixture *fixture)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)tern_http_port(fixture->http))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    int one = 1;
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail_msg("connect: %s", strerror(errno));
    }
    return fd;
}

bool client_send(int fd, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t sent = send(fd, at, count, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            fail_msg("the server takes nothing for %d s", PATIENCE_SECONDS);
        }
        if (sent <= 0) {
            return false;
        }
        at += sent;
        count -= (size_t)sent;
    }
    return true;
}

void client_print(int fd, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_true(length >= 0 && (size_t)length < sizeof text);
    assert_true(client_send(fd, text, (size_t)length));
}

/* How many of count bytes came before the end. */
static size_t receive(int fd, char *bytes, size_t count)
{
    size_t have = 0;
    while (have < count) {
        ssize_t got = recv(fd, bytes + have, count - have, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            fail_msg("the server says nothing for %d s", PATIENCE_SECONDS);
        }
        if (got <= 0) {
            break;
        }
        have += (size_t)got;
    }
    return have;
}

/* A line up to its LF, both kept; false: the connection ended. */
static bool receive_line(int fd, char *line, size_t room)
{
    size_t length = 0;
    while (length + 1 < room && receive(fd, line + length, 1) == 1) {
        length++;
        if (line[length - 1] == '\n') {
            line[length] = '\0';
            return true;
        }
    }
    line[length] = '\0';
    return false;
}

static bool has_line(const char *head, const char *line)
{
    return strcasestr(head, line) != NULL;
}

static void add_body(int fd, struct answer *answer, size_t count)
{
    size_t got = receive(fd, answer->body + answer->body_bytes, count);
    answer->body_bytes += got;
    answer->is_cut = answer->is_cut || got < count;
}

static void read_chunks(int fd, struct answer *answer)
{
    char line[64];
    for (;;) {
        if (!receive_line(fd, line, sizeof line)) {
            answer->is_cut = true;
            return;
        }
        size_t size = strtoul(line, NULL, 16);
        assert_true(size <= BODY_MAX - answer->body_bytes);
        add_body(fd, answer, size);
        if (answer->is_cut || !receive_line(fd, line, sizeof line)) {
            answer->is_cut = true;
            return;
        }
        assert_string_equal(line, "\r\n");
        if (size == 0) {
            return;
        }
    }
}

static void read_body(int fd, struct answer *answer)
{
    const char *length = strcasestr(answer->head, "\r\ncontent-length: ");
    if (has_line(answer->head, "\r\ntransfer-encoding: chunked\r\n")) {
        read_chunks(fd, answer);
    } else if (length != NULL) {
        size_t size = strtoul(length + 18, NULL, 10);
        assert_true(size <= BODY_MAX);
        add_body(fd, answer, size);
    } else {
        answer->body_bytes = receive(fd, answer->body, BODY_MAX);
    }
}

void client_read(int fd, bool is_head, struct answer *answer)
{
    memset(answer, 0, sizeof *answer);
    size_t length = 0;
    while (length + 256 < sizeof answer->head) {
        if (!receive_line(fd, answer->head + length, sizeof answer->head - length)) {
            answer->is_cut = answer->head[0] != '\0';
            return;
        }
        if (strcmp(answer->head + length, "\r\n") == 0) {
            break;
        }
        length = strlen(answer->head);
    }
    if (sscanf(answer->head, "HTTP/1.1 %d ", &answer->status) != 1) {
        fail_msg("no status line: '%s'", answer->head);
    }
    bool has_body = answer->status >= 200 && answer->status != 204 && !is_head;
    answer->body = calloc(1, has_body ? BODY_MAX + 1 : 1);
    assert_non_null(answer->body);
    if (has_body) {
        read_body(fd, answer);
    }
    if (answer->status >= 200) {
        assert_true(has_line(answer->head, "\r\nx-request-id: "));
        assert_true(has_line(answer->head, "\r\ndate: "));
    }
}

void answer_free(struct answer *answer)
{
    free(answer->body);
    answer->body = NULL;
}

void client_expect(int fd, int status)
{
    struct answer answer;
    client_read(fd, false, &answer);
    if (answer.status != status || answer.is_cut) {
        fail_msg("status %d%s, expected %d: '%s'", answer.status, answer.is_cut ? " (cut)" : "",
                 status, answer.head);
    }
    answer_free(&answer);
}

void client_expect_end(int fd)
{
    char byte;
    assert_int_equal(receive(fd, &byte, 1), 0);
    close(fd);
}

void client_settle(const struct fixture *fixture)
{
    int fd = client_open(fixture);
    client_print(fd, "GET /light HTTP/1.1\r\nHost: a\r\n\r\n");
    client_expect(fd, 200);
    close(fd);
}

void client_expect_cut(int fd)
{
    static char bytes[65536];
    while (receive(fd, bytes, sizeof bytes) == sizeof bytes) {
    }
    close(fd);
}

void client_reset(int fd)
{
    struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

void wait_for(atomic_int *counter, int expected, const char *what)
{
    for (int i = 0; i < PATIENCE_SECONDS * 1000; i++) {
        if (atomic_load(counter) == expected) {
            return;
        }
        poll(NULL, 0, 1);
    }
    fail_msg("%s: %d, expected %d", what, atomic_load(counter), expected);
}
