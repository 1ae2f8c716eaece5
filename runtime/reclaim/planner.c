/* planner.c - measurements of what a clean end costs, kept from launch to launch. */
#include "runtime/reclaim/planner.h"

#include "io/file.h"
#include "io/json.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FILE_BYTES_MAX = 4 << 10
};

static const double g_margin = 1.25;     /* of each measured time */
static const double g_slack_seconds = 1; /* for what nobody measured: the launch record, the exit */
static const double g_change = 0.5;      /* of a figure, until it is written again */
static const double g_seconds_max = 1e6; /* more is no measurement */

static const char *const g_names[TERN_PLANNER_KINDS] = {"step", "commit", "upload"};

void tern_planner_note(struct tern_planner *planner,
                       enum tern_planner_kind kind,
                       double seconds,
                       int64_t bytes)
{
    struct tern_planner_series *series = &planner->series[kind];
    if (!(seconds >= 0 && seconds < g_seconds_max)) {
        return;
    }
    int place = (int)(series->count++ % TERN_PLANNER_LAST);
    series->seconds[place] = seconds;
    series->bytes[place] = bytes;
    int filled = series->count < TERN_PLANNER_LAST ? (int)series->count : TERN_PLANNER_LAST;
    double worst = 0;
    for (int i = 0; i < filled; i++) {
        worst = series->seconds[i] > worst ? series->seconds[i] : worst;
    }
    series->worst = worst;
}

double tern_planner_worst(const struct tern_planner *planner, enum tern_planner_kind kind)
{
    return planner->series[kind].worst;
}

double tern_planner_need_seconds(const struct tern_planner *planner)
{
    double sum = 2 * tern_planner_worst(planner, TERN_PLANNER_STEP) +
                 tern_planner_worst(planner, TERN_PLANNER_COMMIT) +
                 tern_planner_worst(planner, TERN_PLANNER_UPLOAD);
    double own = g_margin * sum + g_slack_seconds;
    return own > planner->heard ? own : planner->heard;
}

void tern_planner_hear(struct tern_planner *planner, double need_seconds)
{
    planner->heard = need_seconds;
}

static int64_t newest_bytes(const struct tern_planner *planner, enum tern_planner_kind kind)
{
    const struct tern_planner_series *series = &planner->series[kind];
    return series->count > 0 ? series->bytes[(series->count - 1) % TERN_PLANNER_LAST] : 0;
}

/* Of a checkpoint: as the newest of that kind had, else as one on disk had, else those of the
 * state, uncompressed. */
static int64_t bytes_of(const struct tern_planner *planner,
                        enum tern_planner_kind kind,
                        int64_t state_bytes)
{
    int64_t same = newest_bytes(planner, kind);
    int64_t on_disk = newest_bytes(planner, TERN_PLANNER_COMMIT);
    return same > 0 ? same : on_disk > 0 ? on_disk : state_bytes;
}

/* Seconds that an upload takes at least: measured, or by the limit that is set. */
static double upload_seconds(const struct tern_planner *planner,
                             const struct tern_planner_case *what,
                             int64_t bytes)
{
    double measured = tern_planner_worst(planner, TERN_PLANNER_UPLOAD);
    double limited = what->remote_rate > 0 ? (double)bytes / what->remote_rate : 0;
    return measured > limited ? measured : limited;
}

bool tern_planner_is_short(const struct tern_planner *planner,
                           const struct tern_planner_case *what,
                           char text[TERN_PLANNER_TEXT_BYTES])
{
    char size[TERN_TEXT_BYTES_BYTES];
    int64_t bytes = bytes_of(planner, TERN_PLANNER_COMMIT, what->state_bytes);
    int64_t upload_bytes = bytes_of(planner, TERN_PLANNER_UPLOAD, what->state_bytes);
    double steps = 2 * tern_planner_worst(planner, TERN_PLANNER_STEP);
    double commit = tern_planner_worst(planner, TERN_PLANNER_COMMIT);
    double upload = what->has_remote ? upload_seconds(planner, what, upload_bytes) : 0;
    double local = g_margin * (steps + commit) + g_slack_seconds;
    tern_text_bytes(bytes, size);
    if (local > what->given_seconds) {
        snprintf(text, TERN_PLANNER_TEXT_BYTES,
                 "a notice of '%s' leaves %.0f s, and a checkpoint on disk takes up to %.1f s (two "
                 "steps of %.2f s, %s in %.1f s): the run would go back to its newest snapshot or "
                 "checkpoint; save more often or to a faster disk",
                 what->source, what->given_seconds, local, steps / 2, size, commit);
        return true;
    }
    if (local + g_margin * upload > what->given_seconds) {
        tern_text_bytes(upload_bytes, size);
        snprintf(text, TERN_PLANNER_TEXT_BYTES,
                 "a notice of '%s' leaves %.0f s, and a checkpoint in the bucket takes up to %.1f "
                 "s (%.1f s to disk, then %s in %.1f s): what is in the bucket would be older; "
                 "raise checkpoint.remote_rate, save more often, or use more machines",
                 what->source, what->given_seconds, local + g_margin * upload, local, size, upload);
        return true;
    }
    return false;
}

/* ---- the file ---- */

static void take_kept(struct tern_planner *planner, const struct tern_json *root)
{
    for (int kind = 0; kind < TERN_PLANNER_KINDS; kind++) {
        const struct tern_json *entry = tern_json_get(root, g_names[kind]);
        double seconds;
        int64_t bytes;
        if (tern_json_f64(tern_json_get(entry, "seconds"), &seconds) &&
            tern_json_i64(tern_json_get(entry, "bytes"), &bytes) && seconds > 0 && bytes >= 0) {
            tern_planner_note(planner, (enum tern_planner_kind)kind, seconds, bytes);
            planner->kept[kind] = tern_planner_worst(planner, (enum tern_planner_kind)kind);
        }
    }
}

void tern_planner_load(struct tern_planner *planner, const char *run_dir)
{
    char path[TERN_PATH_BYTES];
    char *text = NULL;
    size_t bytes;
    struct tern_json *json = NULL;
    if (tern_path_join(path, run_dir, "planner.json") == TERN_OK &&
        tern_file_read(path, FILE_BYTES_MAX, &text, &bytes) == TERN_OK &&
        tern_json_parse(path, text, bytes, &json) == TERN_OK) {
        take_kept(planner, (const struct tern_json *)json);
    }
    tern_json_close(json);
    tern_free(text);
}

static bool has_changed(const struct tern_planner *planner)
{
    for (int kind = 0; kind < TERN_PLANNER_KINDS; kind++) {
        double worst = tern_planner_worst(planner, (enum tern_planner_kind)kind);
        if (fabs(worst - planner->kept[kind]) > g_change * planner->kept[kind]) {
            return true;
        }
    }
    return false;
}

tern_status tern_planner_keep(struct tern_planner *planner, const char *run_dir)
{
    char path[TERN_PATH_BYTES];
    char text[FILE_BYTES_MAX];
    int used = 0;
    if (!has_changed(planner)) {
        return TERN_OK;
    }
    for (int kind = 0; kind < TERN_PLANNER_KINDS; kind++) {
        const struct tern_planner_series *series = &planner->series[kind];
        planner->kept[kind] = series->worst;
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "%s\"%s\":{\"seconds\":%.6f,\"bytes\":%lld}", kind == 0 ? "{" : ",",
                         g_names[kind], planner->kept[kind],
                         (long long)newest_bytes(planner, (enum tern_planner_kind)kind));
    }
    used += snprintf(text + used, sizeof text - (size_t)used, "}\n");
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "planner.json"));
    return tern_file_replace(path, text, (size_t)used);
}
