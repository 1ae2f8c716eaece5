/* step_log.c - log.jsonl, the step line and the bar. */
#include "runtime/observe/step_log.h"

#include "io/json.h"
#include "runtime/base/check.h"
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
    TEXT_BYTES_MAX = 300, /* escaped: six times that at most */
    BAR_WIDTH = 30
};

tern_status tern_step_log_open(struct tern_step_log *log,
                               const char *run_dir,
                               int64_t first_step,
                               int64_t steps)
{
    *log = (struct tern_step_log){
        .steps = steps, .first_step = first_step, .started = tern_clock_seconds()};
    TERN_RETURN_IF_ERR(tern_path_join(log->path, run_dir, "log.jsonl"));
    log->is_torn = tern_file_is_torn(log->path);
    return TERN_OK;
}

/* line[0] is a line end that stays away unless the last line has none. A record that cannot be
 * written is lost, and said once: the run is worth more than its log. */
static void append(struct tern_step_log *log, const char *line, size_t length)
{
    size_t skip = log->is_torn ? 0 : 1;
    if (tern_file_append(log->path, line + skip, length - skip) == TERN_OK) {
        if (log->lost > 0) {
            tern_log_info("%s can be written again; records missing: %lld", log->path,
                          (long long)log->lost);
        }
        log->is_torn = false;
        log->lost = 0;
        return;
    }
    if (log->lost++ == 0) {
        tern_log_warn("%s: records are lost until it can be written again, training goes on",
                      tern_detail());
    }
    log->is_torn = tern_file_is_torn(log->path);
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

const char *tern_step_log_number(double value, char out[TERN_STEP_LOG_NUMBER_BYTES])
{
    if (isfinite(value)) {
        snprintf(out, TERN_STEP_LOG_NUMBER_BYTES, "%.9g", value);
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

void tern_step_log_step(struct tern_step_log *log, const struct tern_step_record *r)
{
    char line[LINE_BYTES];
    char time_text[TERN_RFC3339_BYTES];
    char n[9][TERN_STEP_LOG_NUMBER_BYTES];
    int length = snprintf(
        line, sizeof line,
        "\n{\"kind\":\"step\",\"time\":\"%s\",\"step\":%lld,\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,"
        "\"tokens\":%lld,\"tokens_per_second\":%s,\"step_seconds\":%s,\"data_seconds\":%s,"
        "\"comm_seconds\":%s,\"checkpoint_stall_seconds\":%s,\"mfu\":%s,\"rss_bytes\":%lld%s}\n",
        tern_clock_rfc3339(time_text), (long long)r->step, tern_step_log_number(r->loss, n[0]),
        tern_step_log_number(r->grad_norm, n[1]), tern_step_log_number(r->lr, n[2]),
        (long long)r->tokens, tern_step_log_number((double)r->tokens / r->step_seconds, n[3]),
        tern_step_log_number(r->step_seconds, n[4]), tern_step_log_number(r->data_seconds, n[5]),
        tern_step_log_number(r->comm_seconds, n[6]),
        tern_step_log_number(r->checkpoint_stall_seconds, n[7]),
        tern_step_log_number(r->mfu < 0 ? NAN : r->mfu, n[8]), (long long)tern_rss_bytes(),
        r->is_skipped ? ",\"skipped\":true" : "");
    print_step(log, r);
    append(log, line, (size_t)length);
}

void tern_step_log_event(struct tern_step_log *log, const char *kind, const char *fields, ...)
{
    char line[LINE_BYTES];
    char time_text[TERN_RFC3339_BYTES];
    int used = snprintf(line, sizeof line, "\n{\"kind\":\"%s\",\"time\":\"%s\",", kind,
                        tern_clock_rfc3339(time_text));
    va_list args;
    va_start(args, fields);
    int body = vsnprintf(line + used, sizeof line - (size_t)used - 2, fields, args);
    va_end(args);
    used += body;
    TERN_CHECK(used <= (int)sizeof line - 3); /* fields are bounded by whoever gives them */
    line[used++] = '}';
    line[used++] = '\n';
    append(log, line, (size_t)used);
}

void tern_step_log_text(struct tern_step_log *log,
                        const char *kind,
                        int64_t step,
                        const char *key,
                        const char *text)
{
    struct tern_text quoted;
    tern_text_init(&quoted);
    if (tern_json_quote(&quoted, text, strnlen(text, TEXT_BYTES_MAX)) == TERN_OK) {
        tern_step_log_event(log, kind, "\"step\":%lld,\"%s\":%s", (long long)step, key,
                            quoted.data);
    }
    tern_text_fini(&quoted);
}
