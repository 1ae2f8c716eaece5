/* http_fixture.h - a server with the fixed routes on a thread of its own, and a blocking client. */
#ifndef TERN_TESTS_RUNTIME_SERVE_HTTP_FIXTURE_H
#define TERN_TESTS_RUNTIME_SERVE_HTTP_FIXTURE_H

#include "tests/base/check.h"
#include "tests/runtime/serve/http_routes.h"

struct fixture {
    struct routes routes;
    struct tern_http *http;
    pthread_t thread;
    bool is_running;
};

/* options may be NULL; routes and context are filled in. */
void fixture_start(struct fixture *fixture, const struct tern_http_options *options);
/* Stops with a deadline of 0, checks that every held reply was let go and that no memory is left. */
void fixture_stop(struct fixture *fixture);
/* Waits for run to return, after tern_http_stop. */
void fixture_join(struct fixture *fixture);

/* A connection to the server; every wait of it ends after 60 s, as a failure. */
int client_open(const struct fixture *fixture);
/* False: the server has closed. */
bool client_send(int fd, const void *bytes, size_t count);
void client_print(int fd, const char *format, ...) TERN_PRINTF(2, 3);

/* From now on the server's clock stands; clock_go moves it on. Before fixture_start. */
void clock_stop(void);
void clock_go(double seconds);
/* The real clock again; after fixture_stop. */
void clock_restore(void);

struct answer {
    int status; /* 0: the server closed without one */
    char head[2048];
    char *body; /* NUL-terminated, chunks joined; free */
    size_t body_bytes;
    bool is_cut; /* the connection ended within it */
};
/* Reads one answer; answers to HEAD have no body. The caller frees with answer_free. */
void client_read(int fd, bool is_head, struct answer *answer);
void answer_free(struct answer *answer);
/* As client_read, checks the status and frees. */
void client_expect(int fd, int status);
/* The server closes, and nothing more comes. */
void client_expect_end(int fd);
/* The server sends a reset or its end, after maybe something. */
void client_expect_cut(int fd);
/* Closes with a reset. */
void client_reset(int fd);
/* An answer to someone else: the loop has been through all that was sent to it before, and all that it was doing. */
void client_settle(const struct fixture *fixture);
/* Waits until *counter is what is expected; a failure after 60 s. */
void wait_for(atomic_int *counter, int expected, const char *what);

#endif
