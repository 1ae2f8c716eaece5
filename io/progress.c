/* progress.c - a bar, or a line every few seconds. */
#include "io/progress.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <string.h>

enum {
    BAR_CELLS = 30
};

static const double bar_seconds = 0.1;
static const double line_seconds = 5;

void tern_progress_start(struct tern_progress *progress,
                         const char *what,
                         int64_t total,
                         bool is_bytes)
{
    double now = tern_clock_seconds();
    *progress = (struct tern_progress){what, total, is_bytes, now, now};
}

static const char *amount(const struct tern_progress *progress,
                          int64_t value,
                          char out[TERN_TEXT_BYTES_BYTES])
{
    return progress->is_bytes ? tern_text_bytes(value, out) : tern_text_commas(value, out);
}

void tern_progress_update(struct tern_progress *progress, int64_t done)
{
    double now = tern_clock_seconds();
    bool is_terminal = tern_log_is_terminal();
    if (now - progress->shown_seconds < (is_terminal ? bar_seconds : line_seconds)) {
        return;
    }
    progress->shown_seconds = now;
    double elapsed = now - progress->start_seconds;
    double rate = elapsed > 0 ? (double)done / elapsed : 0;
    char so_far[TERN_TEXT_BYTES_BYTES], speed[TERN_TEXT_BYTES_BYTES];
    char whole[TERN_TEXT_BYTES_BYTES], left[TERN_TEXT_BYTES_BYTES];
    amount(progress, done, so_far);
    amount(progress, (int64_t)rate, speed);
    char line[256];
    if (progress->total <= 0) {
        snprintf(line, sizeof line, "%s  %s  %s/s", progress->what, so_far, speed);
    } else {
        double share = (double)done / (double)progress->total;
        double eta = rate > 0 ? (double)(progress->total - done) / rate : 0;
        char bar[BAR_CELLS + 1];
        int filled = share > 1 ? BAR_CELLS : (int)(share * BAR_CELLS);
        memset(bar, '.', BAR_CELLS);
        memset(bar, '#', (size_t)filled);
        bar[BAR_CELLS] = '\0';
        snprintf(line, sizeof line, "%s  %s%s%s%3.0f%%  %s of %s  %s/s  eta %s", progress->what,
                 is_terminal ? "[" : "", is_terminal ? bar : "", is_terminal ? "] " : "",
                 share * 100, so_far, amount(progress, progress->total, whole), speed,
                 tern_text_duration(eta, left));
    }
    if (is_terminal) {
        tern_log_bar("%s", line);
    } else {
        tern_log_info("%s", line);
    }
}
