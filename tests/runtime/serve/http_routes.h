/* http_routes.h - a server with a few fixed routes, for tests, fuzzing and bench/http.sh:
 *
 *   GET /light      "ok", on the loop thread          POST /echo    the body back, from a worker
 *   GET /big        1 MiB, on the loop thread         POST /stream  the body as so many events of 16 bytes
 *   GET /flood      a stream that never ends          GET /hold     retained, never answered until the client leaves
 *   GET /drop       let go unanswered                 GET /cut      a stream that is let go unfinished
 *   GET /block      holds its worker until routes_open
 *   GET /rest/...   what "*" stood for                GET /tick     256 B events, one for each call of routes_tick */
#ifndef TERN_TESTS_RUNTIME_SERVE_HTTP_ROUTES_H
#define TERN_TESTS_RUNTIME_SERVE_HTTP_ROUTES_H

#include "runtime/serve/http.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    ROUTES_BIG_BYTES = 1 << 20,
    ROUTES_FLOOD_BYTES = 16 << 10,
    ROUTES_TICKING_MAX = 4096
};

struct routes {
    atomic_int held;     /* /hold and /tick replies that have not been let go */
    atomic_int gone;     /* gone callbacks */
    atomic_int released; /* release callbacks */
    atomic_int floods_cut;
    atomic_int flood_blocks; /* that /flood has written, of ROUTES_FLOOD_BYTES each */
    atomic_int blocked;      /* workers in /block */
    atomic_int handled;      /* calls of /echo */
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_open;
    struct tern_http_reply *ticking[ROUTES_TICKING_MAX];
    int ticking_count;
};

void routes_init(struct routes *routes);
void routes_fini(struct routes *routes);
/* Lets the workers in /block go, and all that come later. */
void routes_open(struct routes *routes);
/* The table, for options.routes; context is the struct routes. */
const struct tern_http_route *routes_table(size_t *count_out);
/* One event to every /tick stream; lets go of those whose client left. Returns how many there are. */
int routes_tick(struct routes *routes);
/* Ends all /tick streams. */
void routes_end(struct routes *routes);

#endif
