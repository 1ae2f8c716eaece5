/* watch.c - the thread, what stands by its sources, and when to act on it. */
#include "runtime/reclaim/watch.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/cloud.h"
#include "runtime/reclaim/dates.h"
#include "runtime/reclaim/source.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SOURCES_MAX = 4,
    SEEN_MAX = 64,    /* events that were told about; the oldest are forgotten */
    PATIENCE = 3,     /* failures in a row before they are worth a line */
    BACKOFF_MAX = 8,  /* times the period between polls of a service that fails */
    IDLE_SECONDS = 5, /* at most between two looks at what stands: the planner's need may grow */
};

static const double g_least_seconds = 5; /* that a notice is given to reach a step's boundary */

static const struct tern_source_ops *const g_sources[SOURCES_MAX] = {
    &tern_source_aws, &tern_source_azure, &tern_source_gcp, &tern_source_slurm};

/* One source that is watched. */
struct watched {
    const struct tern_source_ops *ops;
    void *self;
    double next; /* clock seconds of the next poll */
    int failures;
    bool is_told; /* that it fails */
    struct tern_standing standing;
};

struct seen {
    enum tern_notice kind;
    char id[TERN_NOTICE_ID_BYTES];
};

struct tern_watch {
    struct watched sources[SOURCES_MAX];
    int source_count;
    struct tern_standing fixed; /* reclaim.end_time */
    struct seen seen[SEEN_MAX];
    int64_t seen_count;
    struct tern_metadata *metadata;
    const struct tern_planner *planner;
    double poll_seconds;
    void (*noticed)(void *context);
    void (*late)(void *context, const char *sentence); /* NULL: not, or not any more */
    void *context;
    double late_at; /* clock seconds; INFINITY while no deadline has been acted on */
    enum tern_notice late_kind;
    atomic_bool is_heard;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t stopping;
    atomic_bool is_stopping;
};

struct tern_notice_info *tern_standing_add(struct tern_standing *events,
                                           enum tern_notice kind,
                                           double deadline,
                                           const char *id,
                                           const char *text)
{
    if (events->count == TERN_STANDING_MAX) {
        return NULL;
    }
    struct tern_notice_info *info = &events->items[events->count++];
    info->kind = kind;
    info->deadline = deadline;
    tern_metadata_show(info->id, sizeof info->id, id);
    tern_metadata_show(info->text, sizeof info->text, text);
    return info;
}

/* ---- which sources ---- */

static bool is_named(const struct tern_watch_options *options, const char *name)
{
    for (int i = 0; i < options->name_count; i++) {
        if (strcmp(options->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Named, or what auto finds here. */
static bool is_wanted(const struct tern_watch_options *options, const struct tern_source_ops *ops)
{
    if (is_named(options, ops->name)) {
        return true;
    }
    if (!is_named(options, "auto")) {
        return false;
    }
    const char *job = getenv("SLURM_JOB_ID");
    return ops == &tern_source_slurm
               ? job != NULL && job[0] != '\0'
               : strcmp(tern_cloud_name(tern_cloud_detect(options->root)), ops->name) == 0;
}

double tern_watch_given_seconds(const struct tern_watch_options *options,
                                double deadline_seconds,
                                const char **source_out)
{
    double least = is_named(options, "signal") ? deadline_seconds : 0;
    *source_out = least > 0 ? "signal" : "";
    for (int i = 0; i < SOURCES_MAX; i++) {
        double given = g_sources[i]->given_seconds;
        if (given > 0 && is_wanted(options, g_sources[i]) && (least <= 0 || given < least)) {
            least = given;
            *source_out = g_sources[i]->name;
        }
    }
    return least;
}

/* ---- what stands ---- */

static bool is_seen(const struct tern_watch *watch, const struct tern_notice_info *info)
{
    int64_t count = watch->seen_count < SEEN_MAX ? watch->seen_count : SEEN_MAX;
    for (int64_t i = 0; i < count; i++) {
        if (watch->seen[i].kind == info->kind && strcmp(watch->seen[i].id, info->id) == 0) {
            return true;
        }
    }
    return false;
}

static void mark_seen(struct tern_watch *watch, const struct tern_notice_info *info)
{
    struct seen *place = &watch->seen[watch->seen_count++ % SEEN_MAX];
    place->kind = info->kind;
    memcpy(place->id, info->id, sizeof place->id);
}

/* Clock seconds from which on it is acted on. */
static double time_to_act(const struct tern_watch *watch, const struct tern_notice_info *info)
{
    double lead = tern_notice_lead_seconds(info->kind);
    double need = watch->planner != NULL ? tern_planner_need_seconds(watch->planner) : 0;
    if (info->deadline < 0 || isinf(lead)) {
        return 0;
    }
    return info->deadline - (need > lead ? need : lead);
}

static void tell(const struct tern_notice_info *info, double act)
{
    double now = tern_clock_seconds();
    char when[64] = "";
    if (info->deadline >= 0) {
        double left = info->deadline - now;
        snprintf(when, sizeof when, ", in %.0f s", left > 0 ? left : 0);
    }
    tern_log_info("notice: %s (%s)%s: %s", tern_notice_name(info->kind), info->text, when,
                  tern_notice_is_advice(info->kind) ? "a checkpoint is made, the run goes on"
                  : act > now                       ? "the run ends in time before it"
                                                    : "the run ends");
}

/* It is acted on from now on: when to give up on the step under way. */
static void begin_end(struct tern_watch *watch, const struct tern_notice_info *info)
{
    double at = fmax(info->deadline, tern_clock_seconds() + g_least_seconds);
    tern_notice_post(info);
    if (watch->noticed != NULL) {
        watch->noticed(watch->context);
    }
    if (info->deadline >= 0 && at < watch->late_at) {
        watch->late_at = at;
        watch->late_kind = info->kind;
    }
}

/* Returns when it is to be called again, clock seconds. */
static double consider_late(struct tern_watch *watch)
{
    char sentence[256];
    if (watch->late == NULL || atomic_load(&watch->is_heard)) {
        return INFINITY;
    }
    if (tern_clock_seconds() < watch->late_at) {
        return watch->late_at;
    }
    snprintf(sentence, sizeof sentence,
             "%s: the time is over before the step under way has ended; the newest snapshot or "
             "checkpoint is what is left",
             tern_notice_name(watch->late_kind));
    watch->late(watch->context, sentence);
    watch->late = NULL;
    return INFINITY;
}

/* Tells about what is new and does what is due. Returns when the next is, clock seconds. */
static double consider(struct tern_watch *watch, const struct tern_standing *events)
{
    double next = INFINITY;
    for (int i = 0; i < events->count; i++) {
        const struct tern_notice_info *info = &events->items[i];
        double act = time_to_act(watch, info);
        bool is_new = !is_seen(watch, info);
        if (is_new) {
            mark_seen(watch, info);
            tell(info, act);
        }
        if (tern_notice_is_advice(info->kind)) {
            if (is_new) {
                tern_notice_ask_save();
            }
        } else if (tern_clock_seconds() >= act) {
            begin_end(watch, info);
        } else {
            next = act < next ? act : next;
        }
    }
    return next;
}

/* ---- polling ---- */

static void note_failure(struct watched *source)
{
    source->failures++;
    if (source->failures >= PATIENCE && !source->is_told) {
        source->is_told = true;
        tern_log_warn("notices of '%s' cannot be read: %.300s; it is asked again and again, and "
                      "until it answers no notice comes from there",
                      source->ops->name, tern_detail());
    }
}

static void note_answer(struct watched *source)
{
    if (source->is_told) {
        tern_log_info("notices of '%s' can be read again", source->ops->name);
    }
    source->failures = 0;
    source->is_told = false;
}

/* wait: how long the source may hold on for news. */
static void poll_source(struct tern_watch *watch, struct watched *source, double wait)
{
    struct tern_standing found = {.count = 0};
    tern_status status = source->ops->poll(source->self, wait, &found);
    if (status == TERN_ERR_CANCELLED) {
        return;
    }
    if (status == TERN_OK) {
        source->standing = found;
    }
    if (status == TERN_OK || status == TERN_ERR_AGAIN) {
        note_answer(source);
    } else {
        note_failure(source);
    }
    double period = watch->poll_seconds > 0 ? watch->poll_seconds : source->ops->period_seconds;
    int times = 1;
    for (int i = PATIENCE; i < source->failures && times < BACKOFF_MAX; i++) {
        times *= 2;
    }
    source->next = tern_clock_seconds() + period * times;
}

/* Does what is due; clock seconds when the next is. */
static double consider_all(struct tern_watch *watch)
{
    double next = consider(watch, &watch->fixed);
    for (int i = 0; i < watch->source_count; i++) {
        next = fmin(next, consider(watch, &watch->sources[i].standing));
    }
    return fmin(next, consider_late(watch));
}

/* Does and polls what is due; returns the seconds until something is again. A source that is alone
 * may wait for news until then. */
static double turn(struct tern_watch *watch)
{
    double wait = consider_all(watch) - tern_clock_seconds();
    for (int i = 0; i < watch->source_count; i++) {
        struct watched *source = &watch->sources[i];
        if (tern_clock_seconds() >= source->next) {
            poll_source(watch, source, watch->source_count == 1 && wait > 0 ? wait : 0);
        }
    }
    double next = consider_all(watch);
    for (int i = 0; i < watch->source_count; i++) {
        next = fmin(next, watch->sources[i].next);
    }
    double left = next - tern_clock_seconds();
    return left < 0 ? 0 : left < IDLE_SECONDS ? left : IDLE_SECONDS;
}

/* Sleeps, or returns early because it is to stop. */
static void rest(struct tern_watch *watch, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = (int64_t)until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&watch->lock);
    while (!atomic_load(&watch->is_stopping) &&
           pthread_cond_timedwait(&watch->stopping, &watch->lock, &until) == 0) {
    }
    pthread_mutex_unlock(&watch->lock);
}

static void *run(void *arg)
{
    struct tern_watch *watch = arg;
    pthread_setname_np(pthread_self(), "tern-watch");
    while (!atomic_load(&watch->is_stopping)) {
        rest(watch, turn(watch));
    }
    return NULL;
}

/* ---- its life ---- */

static tern_status open_sources(struct tern_watch *watch, const struct tern_watch_options *options)
{
    for (int i = 0; i < SOURCES_MAX; i++) {
        const struct tern_source_ops *ops = g_sources[i];
        bool is_mine = ops->is_of_job ? options->is_first : options->is_host_first;
        if (!is_mine || !is_wanted(options, ops)) {
            continue;
        }
        if (watch->metadata == NULL) {
            TERN_RETURN_IF_ERR(
                tern_metadata_open(options->metadata_url, &watch->is_stopping, &watch->metadata));
        }
        struct watched *source = &watch->sources[watch->source_count];
        TERN_RETURN_IF_ERR(ops->open(watch->metadata, &source->self));
        source->ops = ops;
        watch->source_count++;
        tern_log_debug("notices of '%s' are watched for", ops->name);
    }
    if (options->end_unix > 0 && options->is_first) {
        char text[TERN_NOTICE_TEXT_BYTES];
        snprintf(text, sizeof text, "reclaim.end_time, %.0f (unix time)", options->end_unix);
        tern_standing_add(&watch->fixed, TERN_NOTICE_END_TIME,
                          tern_date_to_clock(options->end_unix), "end_time", text);
    }
    return TERN_OK;
}

static tern_status start_thread(struct tern_watch *watch)
{
    sigset_t all, old;
    /* signals are for the training thread: here they would only cut sleeps short */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&watch->thread, NULL, run, watch);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_MEMORY, error, "cannot start the thread for notices");
    }
    watch->has_thread = true;
    return TERN_OK;
}

tern_status tern_watch_start(const struct tern_watch_options *options, struct tern_watch **out)
{
    pthread_condattr_t monotonic;
    tern_status status = TERN_OK;
    *out = NULL;
    struct tern_watch *watch = tern_alloc_zero("reclaim", 1, sizeof *watch);
    if (watch == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a watcher");
    }
    watch->planner = options->planner;
    watch->poll_seconds = options->poll_seconds;
    watch->noticed = options->noticed;
    watch->late = options->late;
    watch->context = options->context;
    watch->late_at = INFINITY;
    atomic_init(&watch->is_heard, false);
    atomic_init(&watch->is_stopping, false);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->stopping, &monotonic);
    pthread_condattr_destroy(&monotonic);
    TERN_GOTO_IF_ERR(status, open_sources(watch, options), out);
    if (watch->source_count > 0 || watch->fixed.count > 0) {
        TERN_GOTO_IF_ERR(status, start_thread(watch), out);
        *out = watch;
        return TERN_OK;
    }
out:
    tern_watch_stop(watch);
    return status;
}

static void end_thread(struct tern_watch *watch)
{
    if (watch->has_thread) {
        pthread_mutex_lock(&watch->lock);
        atomic_store(&watch->is_stopping, true);
        pthread_cond_broadcast(&watch->stopping);
        pthread_mutex_unlock(&watch->lock);
        pthread_join(watch->thread, NULL);
        watch->has_thread = false;
    }
}

void tern_watch_stop(struct tern_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    end_thread(watch);
    for (int i = 0; i < watch->source_count; i++) {
        watch->sources[i].ops->close(watch->sources[i].self);
    }
    tern_metadata_close(watch->metadata);
    pthread_cond_destroy(&watch->stopping);
    pthread_mutex_destroy(&watch->lock);
    tern_free(watch);
}

void tern_watch_hear(struct tern_watch *watch)
{
    if (watch != NULL) {
        atomic_store(&watch->is_heard, true);
    }
}

void tern_watch_approve(struct tern_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    end_thread(watch); /* from here on the sources are this thread's */
    atomic_store(&watch->is_stopping, false);
    for (int i = 0; i < watch->source_count; i++) {
        struct watched *source = &watch->sources[i];
        for (int k = 0; source->ops->approve != NULL && k < source->standing.count; k++) {
            const struct tern_notice_info *info = &source->standing.items[k];
            if (tern_notice_is_advice(info->kind)) {
                continue;
            }
            if (source->ops->approve(source->self, info) == TERN_OK) {
                tern_log_info("%s: told that it may begin", tern_notice_name(info->kind));
            } else {
                tern_log_debug("%s: not told that it may begin: %s", tern_notice_name(info->kind),
                               tern_detail());
            }
        }
        source->standing.count = 0; /* once */
    }
}
