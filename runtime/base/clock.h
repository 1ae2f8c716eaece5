/* clock.h - time: a monotonic clock that tests can replace, and wall time for records. */
#ifndef TERN_RUNTIME_BASE_CLOCK_H
#define TERN_RUNTIME_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic nanoseconds; from tern_clock_fake's function when one is set. */
int64_t tern_clock_ns(void);
double tern_clock_seconds(void);
/* Tests only: replaces the monotonic clock; NULL restores it. */
void tern_clock_fake(int64_t (*now_ns)(void));
/* Sleeps at least `ns`; returns early on a signal. */
void tern_clock_sleep_ns(int64_t ns);

enum {
    TERN_RFC3339_BYTES = 32
};
/* Wall time now, UTC, milliseconds: "2026-01-31T12:00:00.123Z". Returns out. */
const char *tern_clock_rfc3339(char out[TERN_RFC3339_BYTES]);

#endif
