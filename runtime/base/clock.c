/* clock.c - monotonic and wall time. */
#include "runtime/base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t (*g_fake)(void);

int64_t tern_clock_ns(void)
{
    if (g_fake != NULL) {
        return g_fake();
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double tern_clock_seconds(void)
{
    return (double)tern_clock_ns() * 1e-9;
}

void tern_clock_fake(int64_t (*now_ns)(void))
{
    g_fake = now_ns;
}

void tern_clock_sleep_ns(int64_t ns)
{
    struct timespec span = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&span, NULL);
}

const char *tern_clock_rfc3339(char out[TERN_RFC3339_BYTES])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char seconds[24];
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, TERN_RFC3339_BYTES, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
    return out;
}
