/* dates.c - RFC 3339 and RFC 1123, read with care. */
#include "runtime/reclaim/dates.h"

#include "runtime/base/clock.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Exactly `digits` decimal digits, moving on; false when there are fewer. */
static bool take_number(const char **text, int digits, int *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        if (!isdigit((unsigned char)**text)) {
            return false;
        }
        *out = 10 * *out + (*(*text)++ - '0');
    }
    return true;
}

static bool take(const char **text, char expected)
{
    if (**text != expected) {
        return false;
    }
    (*text)++;
    return true;
}

/* A calendar moment in UTC; false when no calendar has it. */
static bool to_unix(int year, int month, int day, int hour, int minute, int second, double *out)
{
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
        second > 60) {
        return false;
    }
    struct tm moment = {
        .tm_year = year - 1900,
        .tm_mon = month - 1,
        .tm_mday = day,
        .tm_hour = hour,
        .tm_min = minute,
        .tm_sec = second,
    };
    time_t seconds = timegm(&moment);
    *out = (double)seconds;
    return moment.tm_mday == day || second == 60; /* 31 February moved on */
}

/* "Z", "+02:00" or "-0530"; seconds east of Greenwich. */
static bool take_zone(const char **text, double *east_out)
{
    int hours, minutes;
    *east_out = 0;
    if (take(text, 'Z') || take(text, 'z')) {
        return true;
    }
    double sign = **text == '-' ? -1 : 1;
    if (!take(text, '+') && !take(text, '-')) {
        return false;
    }
    if (!take_number(text, 2, &hours)) {
        return false;
    }
    (void)take(text, ':');
    if (!take_number(text, 2, &minutes) || hours > 23 || minutes > 59) {
        return false;
    }
    *east_out = sign * (hours * 3600 + minutes * 60);
    return true;
}

static bool parse_rfc3339(const char *text, double *out)
{
    int year, month, day, hour, minute, second;
    double east;
    if (!take_number(&text, 4, &year) || !take(&text, '-') || !take_number(&text, 2, &month) ||
        !take(&text, '-') || !take_number(&text, 2, &day) ||
        !(take(&text, 'T') || take(&text, 't') || take(&text, ' ')) ||
        !take_number(&text, 2, &hour) || !take(&text, ':') || !take_number(&text, 2, &minute) ||
        !take(&text, ':') || !take_number(&text, 2, &second)) {
        return false;
    }
    if (take(&text, '.')) { /* a fraction of a second is none of our business */
        while (isdigit((unsigned char)*text)) {
            text++;
        }
    }
    if (!take_zone(&text, &east) || *text != '\0' ||
        !to_unix(year, month, day, hour, minute, second, out)) {
        return false;
    }
    *out -= east;
    return true;
}

static bool take_month(const char **text, int *out)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (int i = 0; i < 12; i++) {
        if (strncmp(*text, names + (ptrdiff_t)3 * i, 3) == 0) {
            *text += 3;
            *out = i + 1;
            return true;
        }
    }
    return false;
}

static bool parse_rfc1123(const char *text, double *out)
{
    int year, month, day, hour, minute, second;
    const char *comma = strchr(text, ',');
    if (comma != NULL) { /* whatever day of the week they say it is */
        text = comma + 1;
    }
    while (*text == ' ') {
        text++;
    }
    int digits = isdigit((unsigned char)text[0]) && isdigit((unsigned char)text[1]) ? 2 : 1;
    return take_number(&text, digits, &day) && take(&text, ' ') && take_month(&text, &month) &&
           take(&text, ' ') && take_number(&text, 4, &year) && take(&text, ' ') &&
           take_number(&text, 2, &hour) && take(&text, ':') && take_number(&text, 2, &minute) &&
           take(&text, ':') && take_number(&text, 2, &second) && take(&text, ' ') &&
           (strcmp(text, "GMT") == 0 || strcmp(text, "UTC") == 0) &&
           to_unix(year, month, day, hour, minute, second, out);
}

bool tern_date_parse(const char *text, double *unix_out)
{
    return text != NULL && (parse_rfc3339(text, unix_out) || parse_rfc1123(text, unix_out));
}

double tern_date_to_clock(double unix_seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double wall = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    double moment = tern_clock_seconds() + (unix_seconds - wall);
    return moment > 0 ? moment : 0;
}
