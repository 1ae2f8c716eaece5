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
void store_server_stop(struct store_server *server);
/* POST /_control */
void store_server_control(const struct store_server *server, const char *json);
/* GET of an inner page; tern_text_fini. */
void store_server_get(const struct store_server *server, const char *path, struct tern_text *out);
/* Pages hold `what`. */
bool store_server_shows(const struct store_server *server, const char *path, const char *what);
/* bytes that look random, the same for the same seed */
void store_fill(uint8_t *out, size_t bytes, uint64_t seed);

#endif
