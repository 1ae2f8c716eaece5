/* http_rate.c - one limit on bytes a second for many transfers: a bucket that fills as time goes. */
#include "io/http_client.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#include <pthread.h>

enum {
    WAIT_NS = 20000000 /* between two looks at *cancel */
};

/* What may be sent at once after a pause, in seconds of the rate. */
#define BURST_SECONDS 0.05

struct tern_http_rate {
    pthread_mutex_t lock;
    double bytes_per_second;
    double free_at; /* when all that was promised so far has had its time */
};

tern_status tern_http_rate_create(int64_t bytes_per_second, struct tern_http_rate **out)
{
    if (bytes_per_second <= 0) {
        return tern_fail(TERN_ERR_ARGUMENT, "a rate of %lld bytes a second, expected at least 1",
                         (long long)bytes_per_second);
    }
    struct tern_http_rate *rate = tern_alloc_zero("http rate", 1, sizeof *rate);
    if (rate == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a rate limit");
    }
    pthread_mutex_init(&rate->lock, NULL);
    rate->bytes_per_second = (double)bytes_per_second;
    rate->free_at = tern_clock_seconds();
    *out = rate;
    return TERN_OK;
}

void tern_http_rate_destroy(struct tern_http_rate *rate)
{
    if (rate == NULL) {
        return;
    }
    pthread_mutex_destroy(&rate->lock);
    tern_free(rate);
}

void tern_http_rate_take(struct tern_http_rate *rate, size_t bytes, const atomic_bool *cancel)
{
    pthread_mutex_lock(&rate->lock);
    double now = tern_clock_seconds();
    if (rate->free_at < now - BURST_SECONDS) {
        rate->free_at = now - BURST_SECONDS;
    }
    rate->free_at += (double)bytes / rate->bytes_per_second;
    double until = rate->free_at;
    pthread_mutex_unlock(&rate->lock);
    for (double left = until - now; left > 0; left = until - tern_clock_seconds()) {
        if (cancel != NULL && atomic_load(cancel)) {
            return;
        }
        double slice = left * 1e9 < WAIT_NS ? left * 1e9 : WAIT_NS;
        tern_clock_sleep_ns((int64_t)slice);
    }
}
