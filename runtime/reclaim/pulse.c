/* pulse.c - the rules by which a rank is named. */
#include "runtime/reclaim/pulse.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LATE_TIMES = 5,           /* the usual time of a step */
    LATE_NS_MIN = 1000000000, /* before a slow step is worth a word */
    NAMED_MAX = 8,            /* ranks listed in a sentence */
    LEARN_STEPS = 20,         /* before a rank is called slow, of the run and in a row */
    AGAIN_STEPS = 1000,       /* before it is called slow again */
    FORGET_STEPS = 16         /* a mean's memory */
};
static const int64_t SETTLE_NS_MAX = 5000000000;
/* Beyond the first a rank is slow, below the second it is so no more. */
static const double SLOW_FACTOR = 1.5, GOOD_FACTOR = 1.2;

static const char *const g_phases[TERN_PHASE_COUNT] = {
    [TERN_PHASE_START] = "starting",
    [TERN_PHASE_DATA] = "waiting for its batch",
    [TERN_PHASE_COMPUTE] = "forward and backward",
    [TERN_PHASE_REDUCE] = "waiting for the other ranks",
    [TERN_PHASE_CHECKPOINT] = "checkpoint",
    [TERN_PHASE_EVALUATE] = "evaluation",
    [TERN_PHASE_DRAIN] = "last checkpoint",
};

struct group {
    const struct tern_pulse_view *views;
    int size;
    int64_t limit_ns, usual_ns;
    int64_t step; /* the earliest that a rank is in */
    int waiter;   /* whose step takes longest; -1: nobody is in a step */
};

typedef bool (*is_meant)(const struct group *group, int rank);

const char *tern_phase_name(enum tern_phase phase)
{
    return phase >= 0 && phase < TERN_PHASE_COUNT ? g_phases[phase] : "unknown";
}

static void append(char *text, const char *format, ...) TERN_PRINTF(2, 3);

static void append(char *text, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, TERN_PULSE_SENTENCE_BYTES - used, format, args);
    va_end(args);
}

/* ---- who ---- */

static bool is_there(const struct group *g, int rank)
{
    return g->views[rank].is_watched && !g->views[rank].pulse.has_left;
}

static bool is_gone(const struct group *g, int rank)
{
    return is_there(g, rank) && g->views[rank].lost_ns >= 0;
}

static bool is_silent(const struct group *g, int rank)
{
    return is_there(g, rank) && !is_gone(g, rank) && g->views[rank].silent_ns > g->limit_ns / 2;
}

/* In the earliest step, and not waiting for others. */
static bool is_behind(const struct group *g, int rank)
{
    const struct tern_pulse *pulse = &g->views[rank].pulse;
    return is_there(g, rank) && pulse->step == g->step && pulse->phase != TERN_PHASE_REDUCE;
}

static bool is_in_earliest(const struct group *g, int rank)
{
    return is_there(g, rank) && g->views[rank].pulse.step == g->step;
}

static int count_of(const struct group *g, is_meant meant)
{
    int count = 0;
    for (int r = 0; r < g->size; r++) {
        count += meant(g, r);
    }
    return count;
}

static int first_of(const struct group *g, is_meant meant)
{
    int r = 0;
    while (r < g->size && !meant(g, r)) {
        r++;
    }
    return r < g->size ? r : -1;
}

/* "rank 3 (host a) is", "ranks 2, 3 (the first on host a) are". */
static void append_named(const struct group *g, is_meant meant, char *text)
{
    int count = count_of(g, meant);
    int listed = 0;
    append(text, count == 1 ? "rank " : "ranks ");
    for (int r = 0; r < g->size && listed <= NAMED_MAX; r++) {
        if (meant(g, r)) {
            append(text, "%s", listed > 0 ? ", " : "");
            append(text, listed < NAMED_MAX ? "%d" : "...", r);
            listed++;
        }
    }
    append(text, count == 1 ? " (host %s) is" : " (the first on host %s) are",
           g->views[first_of(g, meant)].host);
}

/* Where it is; of one that is gone or silent: where it was when it was last heard. */
static void append_place(const struct group *g, int rank, char *text)
{
    const struct tern_pulse *pulse = &g->views[rank].pulse;
    append(text, is_gone(g, rank) || is_silent(g, rank) ? "; last heard" : ";");
    append(text,
           " in step %" PRId64 ", %s for %.1f s, exchange %" PRId64 " (%" PRId64 " bytes so far)",
           pulse->step, tern_phase_name((enum tern_phase)pulse->phase),
           (double)pulse->phase_ns * 1e-9, pulse->exchanges, pulse->bytes);
    if (g->waiter >= 0 && g->waiter != rank) {
        append(text, "; rank %d is in step %" PRId64 ", %s, for %.1f s", g->waiter,
               g->views[g->waiter].pulse.step,
               tern_phase_name((enum tern_phase)g->views[g->waiter].pulse.phase),
               (double)g->views[g->waiter].pulse.step_ns * 1e-9);
    }
}

/* ---- what ---- */

static void look(struct group *g)
{
    g->step = INT64_MAX;
    g->waiter = -1;
    for (int r = 0; r < g->size; r++) {
        const struct tern_pulse *pulse = &g->views[r].pulse;
        if (!is_there(g, r) || is_gone(g, r) || is_silent(g, r)) {
            continue;
        }
        g->step = pulse->step < g->step ? pulse->step : g->step;
        int64_t longest = g->waiter >= 0 ? g->views[g->waiter].pulse.step_ns : 0;
        g->waiter = pulse->step_ns > longest ? r : g->waiter;
    }
}

static bool find_gone(const struct group *g, struct tern_pulse_verdict *v)
{
    int64_t settle = g->limit_ns / 4 < SETTLE_NS_MAX ? g->limit_ns / 4 : SETTLE_NS_MAX;
    int64_t longest = -1;
    for (int r = 0; r < g->size; r++) {
        int64_t since = is_gone(g, r) ? g->views[r].lost_ns : -1;
        longest = since > longest ? since : longest;
    }
    if (longest < settle) {
        return false;
    }
    v->status = TERN_ERR_PEER_LOST;
    append_named(g, is_gone, v->sentence);
    append(v->sentence, " gone: the connection broke");
    append_place(g, first_of(g, is_gone), v->sentence);
    return true;
}

static bool find_silent(const struct group *g, struct tern_pulse_verdict *v)
{
    int64_t longest = 0;
    for (int r = 0; r < g->size; r++) {
        int64_t since = is_silent(g, r) ? g->views[r].silent_ns : 0;
        longest = since > longest ? since : longest;
    }
    if (longest < g->limit_ns) {
        return false;
    }
    v->status = TERN_ERR_TIMEOUT;
    append_named(g, is_silent, v->sentence);
    append(v->sentence, " stopped or cut off: nothing was heard for %.1f s",
           (double)longest * 1e-9);
    append_place(g, first_of(g, is_silent), v->sentence);
    return true;
}

/* Who holds up a step that takes too long. */
static void say_late(const struct group *g, char *text)
{
    double seconds = (double)g->views[g->waiter].pulse.step_ns * 1e-9;
    double usual = (double)g->usual_ns * 1e-9;
    is_meant meant = count_of(g, is_behind) > 0 ? is_behind : is_in_earliest;
    int behind = count_of(g, meant);
    int there = count_of(g, is_there);
    append(text, "step %" PRId64 " takes %.1f s, usually %.3g s: ", g->views[g->waiter].pulse.step,
           seconds, usual);
    if (meant == is_in_earliest && behind == there) {
        append(text, "all ranks wait for each other, and it does not end: the network is stuck");
    } else if (behind == there) {
        append(text, "all ranks are late");
    } else {
        append_named(g, meant, text);
        append(text, " late");
    }
    append_place(g, first_of(g, meant), text);
}

static bool find_late(const struct group *g, struct tern_pulse_verdict *v)
{
    int64_t longest = g->waiter >= 0 ? g->views[g->waiter].pulse.step_ns : 0;
    bool is_long = g->usual_ns > 0 && longest >= g->limit_ns && longest / LATE_TIMES >= g->usual_ns;
    if (!is_long || count_of(g, is_silent) > 0) { /* who is silent is about to be named for that */
        return false;
    }
    v->status = TERN_ERR_TIMEOUT;
    say_late(g, v->sentence);
    return true;
}

bool tern_pulse_judge(const struct tern_pulse_view *views,
                      int size,
                      int64_t limit_ns,
                      int64_t usual_ns,
                      struct tern_pulse_verdict *out)
{
    struct group g = {.views = views, .size = size, .limit_ns = limit_ns, .usual_ns = usual_ns};
    memset(out, 0, sizeof *out);
    look(&g);
    if (!find_gone(&g, out) && !find_silent(&g, out) && !find_late(&g, out)) {
        return false;
    }
    append(out->sentence, " (limit %.1f s: reclaim.hang_seconds)", (double)limit_ns * 1e-9);
    return true;
}

bool tern_pulse_is_late(const struct tern_pulse_view *views,
                        int size,
                        int64_t usual_ns,
                        char sentence[TERN_PULSE_SENTENCE_BYTES])
{
    struct group g = {.views = views, .size = size, .limit_ns = INT64_MAX, .usual_ns = usual_ns};
    look(&g);
    sentence[0] = '\0';
    int64_t longest = g.waiter >= 0 ? views[g.waiter].pulse.step_ns : 0;
    if (usual_ns <= 0 || longest < LATE_NS_MIN || longest / LATE_TIMES < usual_ns) {
        return false;
    }
    say_late(&g, sentence);
    return true;
}

/* ---- stragglers ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of an even number the lower of the two: of two ranks one can be slow. */
static double median(struct tern_stragglers *s)
{
    memcpy(s->sorted, s->means, (size_t)s->size * sizeof *s->sorted);
    qsort(s->sorted, (size_t)s->size, sizeof *s->sorted, compare);
    return s->sorted[(s->size - 1) / 2];
}

static bool learn(struct tern_stragglers *s, const double *seconds)
{
    for (int r = 0; r < s->size; r++) {
        if (!(seconds[r] > 0) || !isfinite(seconds[r])) {
            return false;
        }
    }
    s->steps++;
    double weight = 1.0 / (double)(s->steps < FORGET_STEPS ? s->steps : FORGET_STEPS);
    for (int r = 0; r < s->size; r++) {
        s->means[r] += weight * (seconds[r] - s->means[r]);
    }
    return s->steps >= LEARN_STEPS;
}

int tern_stragglers_add(struct tern_stragglers *s,
                        const double *seconds,
                        double *factor_out,
                        bool *is_over_out)
{
    *is_over_out = false;
    if (s->size < 2 || !learn(s, seconds)) {
        return -1;
    }
    double middle = median(s);
    int named = -1;
    for (int r = 0; r < s->size; r++) {
        double factor = s->means[r] / middle;
        bool was_named = s->slow_steps[r] >= LEARN_STEPS;
        bool is_slow = factor >= SLOW_FACTOR || (was_named && factor >= GOOD_FACTOR);
        s->slow_steps[r] = is_slow ? s->slow_steps[r] + 1 : 0;
        bool is_due = s->slow_steps[r] == LEARN_STEPS ||
                      (s->slow_steps[r] > 0 && s->slow_steps[r] % AGAIN_STEPS == 0);
        if (named >= 0) {
            s->slow_steps[r] -= is_due; /* one a step: this one with the next */
        } else if (is_due || (was_named && !is_slow)) {
            named = r;
            *factor_out = factor;
            *is_over_out = !is_slow;
        }
    }
    return named;
}
