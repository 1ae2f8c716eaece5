/* http_serve.c - the HTTP server alone, with fixed answers: what bench/http.sh measures and what curl can be pointed at.
 *
 *   http_serve [PORT [TICKS_PER_SECOND [CERT KEY]]]    prints its port, then serves until SIGTERM */
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "tests/runtime/serve/http_routes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static struct routes routes;
static struct tern_http *http;
static atomic_bool is_over;

static void on_signal(int number)
{
    (void)number;
    tern_http_stop(http, 5);
}

/* An engine's part: so many events a second to every stream. */
static void *produce(void *arg)
{
    double per_second = *(const double *)arg;
    while (!atomic_load(&is_over)) {
        tern_clock_sleep_ns((int64_t)(1e9 / per_second));
        routes_tick(&routes);
    }
    routes_end(&routes);
    return NULL;
}

int main(int argc, char **argv)
{
    struct tern_http_options options = {.port = argc > 1 ? atoi(argv[1]) : 0, .context = &routes};
    double per_second = argc > 2 ? atof(argv[2]) : 20;
    options.cert_file = argc > 4 ? argv[3] : NULL;
    options.key_file = argc > 4 ? argv[4] : NULL;
    options.routes = routes_table(&options.route_count);
    routes_init(&routes);
    pthread_t producer;
    if (tern_http_create(&options, &http) != TERN_OK ||
        tern_thread_start(&producer, produce, &per_second) != 0) {
        tern_log_error("%s", tern_detail());
        return TERN_EXIT_FAILED;
    }
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    printf("%d\n", tern_http_port(http));
    fflush(stdout);
    tern_status status = tern_http_run(http);
    atomic_store(&is_over, true);
    pthread_join(producer, NULL);
    tern_http_destroy(http);
    routes_fini(&routes);
    return tern_status_exit_code(status);
}
