/* http_mutate_test.c - the table's cases, mutated at random, against a running server: whatever they are, it answers with a status of
 * its own, waits or closes, goes on serving others, and nothing is left. TERN_HTTP_ROUNDS: how many (default 3000);
 * TERN_HTTP_SEED: where they begin. */
#include "tests/runtime/serve/http_cases.h"
#include "tests/runtime/serve/http_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BYTES_MAX = 4096
};

static struct fixture fixture;

struct mutant {
    char bytes[BYTES_MAX];
    size_t count;
};

static void insert(struct mutant *mutant, size_t at, const char *bytes, size_t count)
{
    if (mutant->count + count <= BYTES_MAX) {
        memmove(mutant->bytes + at + count, mutant->bytes + at, mutant->count - at);
        memcpy(mutant->bytes + at, bytes, count);
        mutant->count += count;
    }
}

static void cut_out(struct mutant *mutant, size_t at, size_t count)
{
    count = count < mutant->count - at ? count : mutant->count - at;
    memmove(mutant->bytes + at, mutant->bytes + at + count, mutant->count - at - count);
    mutant->count -= count;
}

static void mutate(struct mutant *mutant, unsigned *seed)
{
    static const char *const pieces[] = {"\r",
                                         "\n",
                                         "\r\n",
                                         "\r\n\r\n",
                                         " ",
                                         "\t",
                                         ":",
                                         ";",
                                         ",",
                                         "%",
                                         "0",
                                         "f",
                                         "-1",
                                         "\x7f",
                                         "\xff",
                                         "Content-Length: 5\r\n",
                                         "Transfer-Encoding: chunked\r\n",
                                         "Expect: 100-continue\r\n",
                                         "Connection: close\r\n",
                                         "Host: b\r\n",
                                         "HTTP/1.0",
                                         "99999999999999999999",
                                         "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n",
                                         "POST /stream HTTP/1.1\r\n"};
    size_t at = mutant->count > 0 ? (size_t)rand_r(seed) % mutant->count : 0;
    const char *piece = pieces[(size_t)rand_r(seed) % (sizeof pieces / sizeof pieces[0])];
    switch (rand_r(seed) % 5) {
    case 0:
        cut_out(mutant, at, 1 + (size_t)rand_r(seed) % 8);
        break;
    case 1:
        insert(mutant, at, piece, strlen(piece));
        break;
    case 2:
        if (mutant->count > 0) {
            mutant->bytes[at] = (char)rand_r(seed);
        }
        break;
    case 3: /* a part twice */
        if (mutant->count > 0) {
            char copy[64];
            size_t size = 1 + (size_t)rand_r(seed) % sizeof copy;
            size = size < mutant->count - at ? size : mutant->count - at;
            memcpy(copy, mutant->bytes + at, size);
            insert(mutant, (size_t)rand_r(seed) % mutant->count, copy, size);
        }
        break;
    default:
        insert(mutant, at, "", 1);
    }
}

static void make(struct mutant *mutant, unsigned *seed)
{
    size_t count;
    const struct http_case *rows = http_cases(&count);
    mutant->count = 0;
    for (int parts = 1 + rand_r(seed) % 3; parts > 0; parts--) {
        const struct http_case *row = &rows[(size_t)rand_r(seed) % count];
        insert(mutant, mutant->count, row->bytes, row->count < 1024 ? row->count : 1024);
    }
    for (int i = rand_r(seed) % 6; i > 0; i--) {
        mutate(mutant, seed);
    }
}

/* What came back begins with an answer, or is nothing. */
static void check_answers(int fd, const struct mutant *mutant, unsigned seed)
{
    static char back[1 << 16];
    int status = 0;
    ssize_t got = recv(fd, back, sizeof back - 1, MSG_DONTWAIT);
    if (got > 0) {
        back[got] = '\0';
        if (sscanf(back, "HTTP/1.1 %d ", &status) != 1 || status < 100 || status > 505) {
            fail_msg("seed %u: '%.80s' to '%.*s'", seed, back, (int)mutant->count, mutant->bytes);
        }
    }
}

static void one_round(unsigned seed)
{
    static struct mutant mutant;
    unsigned state = seed;
    make(&mutant, &state);
    int fd = client_open(&fixture);
    size_t piece = rand_r(&state) % 3 == 0 ? 1 + (size_t)rand_r(&state) % 50 : BYTES_MAX;
    for (size_t at = 0; at < mutant.count; at += piece) {
        size_t size = mutant.count - at < piece ? mutant.count - at : piece;
        if (!client_send(fd, mutant.bytes + at, size)) {
            break;
        }
    }
    if (rand_r(&state) % 4 == 0) {
        client_settle(&fixture);
        check_answers(fd, &mutant, seed);
    }
    if (rand_r(&state) % 2 == 0) {
        client_reset(fd);
    } else {
        close(fd);
    }
}

static void test_mutants(void **state)
{
    (void)state;
    const char *rounds = getenv("TERN_HTTP_ROUNDS"), *first = getenv("TERN_HTTP_SEED");
    unsigned seed = first != NULL ? (unsigned)strtoul(first, NULL, 10) : 1;
    print_message("seed %u\n", seed);
    fixture_start(&fixture, NULL);
    for (int i = 0; i < (rounds != NULL ? atoi(rounds) : 3000); i++) {
        one_round(seed + (unsigned)i);
        if (i % 16 == 0) {
            routes_tick(&fixture.routes);
        }
    }
    client_settle(&fixture);
    struct tern_http_stats stats;
    do {
        client_settle(&fixture);
        tern_http_stats(fixture.http, &stats);
    } while (stats.connections > 1 || stats.body_bytes > 0); /* the settler's own may be open */
    routes_tick(&fixture.routes);
    wait_for(&fixture.routes.held, 0, "held");
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_mutants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
