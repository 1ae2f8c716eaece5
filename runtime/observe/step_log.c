/* step_log.c - log.jsonl, the step line and the bar. */
#include "runtime/observe/step_log.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    LINE_BYTES = 2048,
    BAR_WIDTH = 30
};

tern_status tern_step_log_open(struct tern_step_log *log,
                               const char *run_dir,
                               int64_t first_step,
                               int64_t steps)
{
    *log = (struct tern_step_log){
        .steps = steps, .first_step = first_step, .started = tern_clock_seconds()};
    return tern_path_join(log->path, run_dir, "log.jsonl");
}

int64_t tern_rss_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        long total;
        if (fscanf(file, "%ld %ld", &total, &pages) != 2) {
            pages = 0;
        }
        fclose(file);
    }
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

int64_t tern_rss_peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}

/* A number as JSON: 9 significant digits round-trip fp32; what JSON has no word for is null. */
static const char *number(double value, char out[32])
{
    if (isfinite(value)) {
        snprintf(out, 32, "%.9g", value);
    } else {
        strcpy(out, "null");
    }
    return out;
}

static void print_bar(const struct tern_step_log *log, int64_t done, double eta)
{
    char bar[BAR_WIDTH + 1];
    char left[TERN_TEXT_BYTES_BYTES];
    int full = log->steps > 0 ? (int)(done * BAR_WIDTH / log->steps) : 0;
    for (int i = 0; i < BAR_WIDTH; i++) {
        bar[i] = i < full ? '#' : '.';
    }
    bar[BAR_WIDTH] = '\0';
    tern_log_bar("[%s] %3.0f%%  eta %s", bar,
                 log->steps > 0 ? 100.0 * (double)done / (double)log->steps : 0,
                 tern_text_duration(eta, left));
}

static void print_step(struct tern_step_log *log, const struct tern_step_record *r)
{
    double now = tern_clock_seconds();
    int64_t done_here = r->step - log->first_step;
    double eta = done_here > 0
                     ? (now - log->started) / (double)done_here * (double)(log->steps - r->step)
                     : NAN;
    bool is_edge = done_here <= 1 || r->step == log->steps;
    if (!is_edge && now - log->last_printed < 0.1) {
        return;
    }
    log->last_printed = now;
    char mfu[16] = "  n/a";
    char left[TERN_TEXT_BYTES_BYTES];
    if (r->mfu >= 0) {
        snprintf(mfu, sizeof mfu, "%.1f%%", 100 * r->mfu);
    }
    if (tern_log_enabled(TERN_LOG_INFO)) {
        tern_log_line(
            "step %6lld/%lld  loss %.4f  grad_norm %.3f  lr %.3e  tok/s %.0f  mfu %s  eta %s%s",
            (long long)r->step, (long long)log->steps, r->loss, r->grad_norm, r->lr,
            (double)r->tokens / r->step_seconds, mfu, tern_text_duration(eta, left),
            r->is_skipped ? "  SKIPPED: not finite" : "");
        print_bar(log, r->step, eta);
    }
}

tern_status tern_step_log_step(struct tern_step_log *log, const struct tern_step_record *r)
{
    char line[LINE_BYTES];
    char time_text[TERN_RFC3339_BYTES];
    char n[10][32];
    int length = snprintf(
        line, sizeof line,
        "{\"kind\":\"step\",\"time\":\"%s\",\"step\":%lld,\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,"
        "\"tokens\":%lld,\"tokens_per_second\":%s,\"step_seconds\":%s,\"data_seconds\":%s,"
        "\"comm_seconds\":%s,\"checkpoint_stall_seconds\":%s,\"mfu\":%s,\"rss_bytes\":%lld%s}\n",
        tern_clock_rfc3339(time_text), (long long)r->step, number(r->loss, n[0]),
        number(r->grad_norm, n[1]), number(r->lr, n[2]), (long long)r->tokens,
        number((double)r->tokens / r->step_seconds, n[3]), number(r->step_seconds, n[4]),
        number(r->data_seconds, n[5]), number(r->comm_seconds, n[6]),
        number(r->checkpoint_stall_seconds, n[7]), number(r->mfu < 0 ? NAN : r->mfu, n[8]),
        (long long)tern_rss_bytes(), r->is_skipped ? ",\"skipped\":true" : "");
    print_step(log, r);
    return tern_file_append(log->path, line, (size_t)length);
}

tern_status tern_step_log_event(struct tern_step_log *log,
                                const char *kind,
                                const char *fields,
                                ...)
{
    char line[LINE_BYTES];
    char time_text[TERN_RFC3339_BYTES];
    int used = snprintf(line, sizeof line, "{\"kind\":\"%s\",\"time\":\"%s\"%s", kind,
                        tern_clock_rfc3339(time_text), fields[0] != '\0' ? "," : "");
    va_list args;
    va_start(args, fields);
    int body = vsnprintf(line + used, sizeof line - (size_t)used - 2, fields, args);
    va_end(args);
    used += body;
    if (used > (int)sizeof line - 3) {
        return tern_fail(TERN_ERR_ARGUMENT, "a log record of kind %s is longer than %d bytes", kind,
                         LINE_BYTES);
    }
    line[used++] = '}';
    line[used++] = '\n';
    return tern_file_append(log->path, line, (size_t)used);
}
