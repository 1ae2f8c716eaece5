/* store_fixture.h - starts tests/io/store_server.py and talks to its inner side. */
#ifndef TESTS_IO_STORE_FIXTURE_H
#define TESTS_IO_STORE_FIXTURE_H

#include "io/store.h"
#include "runtime/base/text.h"

#include <sys/types.h>

struct store_server {
    pid_t pid;
    int hold; /* its stdin: closed, it ends */
    char base[64];
};

/* The server of this process, with the environment set up for it. */
void store_server_start(struct store_server *server, const char *script);
/* One that speaks TLS, with a certificate of its own for 127.0.0.1 in folder/cert.pem; the environment
 * is set up for it, but nothing says that the certificate is to be believed. */
void store_server_start_tls(struct store_server *server, const char *script, const char *folder);
void store_server_stop(struct store_server *server);
/* The environment is set up for this one again. */
void store_server_use(const struct store_server *server);
/* POST /_control */
void store_server_control(const struct store_server *server, const char *json);
/* GET of an inner page; tern_text_fini. */
void store_server_get(const struct store_server *server, const char *path, struct tern_text *out);
/* Pages hold `what`. */
bool store_server_shows(const struct store_server *server, const char *path, const char *what);
/* A sweep over seeds: SWEEP_COUNT of them (or `count`) from SWEEP_FIRST (or 0) on. */
struct store_sweep {
    int first, count;
    double started;
};
struct store_sweep store_sweep_begin(int count);
/* One seed is done. A long sweep says now and then how far it is. */
void store_sweep_tick(const struct store_sweep *sweep, int seed);
/* bytes that look random, the same for the same seed */
void store_fill(uint8_t *out, size_t bytes, uint64_t seed);

#endif
