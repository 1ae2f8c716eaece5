/* dates.h - the dates that metadata services write, and what they are on our clock. */
#ifndef TERN_RUNTIME_RECLAIM_DATES_H
#define TERN_RUNTIME_RECLAIM_DATES_H

#include <stdbool.h>

/* "2020-04-24T17:11:44Z", with a fraction or an offset (+02:00) too; "Mon, 19 Sep 2016 18:29:47 GMT"
 * and the same without the day's name; UTC. False when it is neither, or no date that can be:
 * years 1970 to 9999. *unix_out: seconds since 1970. */
bool tern_date_parse(const char *text, double *unix_out);
/* That moment on the monotonic clock (runtime/base/clock.h): negative moments become 0. */
double tern_date_to_clock(double unix_seconds);

#endif
