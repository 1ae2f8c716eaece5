/* judge.c - the rules by which a rank is named. */
#include "comm/nccl/judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SETTLE_MS_MAX = 2000,
    NAMED_MAX = 8 /* runs of ranks listed in a sentence */
};

static const char *const g_names[TERN_COLLECTIVE_COUNT] = {
    [TERN_COLLECTIVE_NONE] = "nothing",      [TERN_COLLECTIVE_OPEN] = "opening",
    [TERN_COLLECTIVE_EXCHANGE] = "exchange", [TERN_COLLECTIVE_GATHER] = "gather",
    [TERN_COLLECTIVE_REDUCE] = "reduce",
};

struct case_file {
    const struct tern_view *views;
    int size;
    int64_t limit_ns;
    /* Who is in the collective of the earliest operation, for longest: what holds it up holds up the later ones too. -1:
     * nobody is in one. */
    int waiter;
};

int64_t tern_judge_settle_ns(int64_t limit_ns)
{
    int64_t most = (int64_t)SETTLE_MS_MAX * 1000000;
    return limit_ns / 8 < most ? limit_ns / 8 : most;
}

/* What is kept back of the limit for the verdict to be made and to arrive. */
static int64_t patience_ns(const struct case_file *c)
{
    return c->limit_ns - c->limit_ns / 8;
}

static void append(char *text, size_t bytes, const char *format, ...) TERN_PRINTF(3, 4);

static void append(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

typedef bool (*tern_property)(const struct case_file *c, int rank);

static bool is_there(const struct case_file *c, int rank)
{
    return !c->views[rank].has_left;
}

static bool is_lost(const struct case_file *c, int rank)
{
    return is_there(c, rank) && c->views[rank].lost_ns >= 0;
}

static bool is_silent(const struct case_file *c, int rank)
{
    return is_there(c, rank) && !is_lost(c, rank) && c->views[rank].silent_ns > c->limit_ns / 3;
}

static uint64_t awaited(const struct case_file *c)
{
    return c->views[c->waiter].place.entered;
}

static bool has_entered(const struct case_file *c, int rank)
{
    const struct tern_place *p = &c->views[rank].place;
    return awaited(c) == 0 ? p->opened || p->kind == TERN_COLLECTIVE_OPEN
                           : p->entered >= awaited(c);
}

static bool is_behind(const struct case_file *c, int rank)
{
    return is_there(c, rank) && !has_entered(c, rank);
}

/* What is known of those who are lost or silent is what they said last: they may have entered it after that. */
static bool is_seen_behind(const struct case_file *c, int rank)
{
    return is_behind(c, rank) && !is_lost(c, rank) && !is_silent(c, rank);
}

static bool is_last_heard_behind(const struct case_file *c, int rank)
{
    return is_behind(c, rank) && !is_seen_behind(c, rank);
}

/* In the same operation as the one who waits, but in no collective of it: its program has not gone on. */
static bool is_idle(const struct case_file *c, int rank)
{
    const struct tern_place *p = &c->views[rank].place;
    return is_there(c, rank) && p->entered == awaited(c) && awaited(c) > 0 &&
           p->kind == TERN_COLLECTIVE_NONE;
}

static bool has_error(const struct case_file *c, int rank)
{
    return is_there(c, rank) && c->views[rank].error_ns >= 0;
}

static int first_of(const struct case_file *c, tern_property property)
{
    for (int r = 0; r < c->size; r++) {
        if (property(c, r)) {
            return r;
        }
    }
    return -1;
}

static int count_of(const struct case_file *c, tern_property property)
{
    int count = 0;
    for (int r = 0; r < c->size; r++) {
        count += property(c, r);
    }
    return count;
}

/* "rank 3", "ranks 0, 2-5, 7". */
static void append_ranks(const struct case_file *c,
                         tern_property property,
                         char *text,
                         size_t bytes)
{
    append(text, bytes, count_of(c, property) == 1 ? "rank " : "ranks ");
    int runs = 0;
    for (int r = 0; r < c->size; r++) {
        if (!property(c, r)) {
            continue;
        }
        int last = r;
        while (last + 1 < c->size && property(c, last + 1)) {
            last++;
        }
        if (runs == NAMED_MAX) {
            append(text, bytes, ", ...");
            return;
        }
        append(text, bytes, "%s%d", runs > 0 ? ", " : "", r);
        if (last > r) {
            append(text, bytes, "-%d", last);
        }
        runs++;
        r = last;
    }
}

/* "rank 3 (host a) is", "ranks 2-3 (the first on host a) are". */
static void append_named(const struct case_file *c,
                         tern_property property,
                         char *text,
                         size_t bytes)
{
    int first = first_of(c, property);
    bool is_one = count_of(c, property) == 1;
    append_ranks(c, property, text, bytes);
    append(text, bytes, " (%shost %s) %s", is_one ? "" : "the first on ", c->views[first].host,
           is_one ? "is" : "are");
}

/* Which collective it is about, and who is in it. */
static void append_collective(const struct case_file *c, char *text, size_t bytes)
{
    if (c->waiter < 0) {
        uint64_t most = 0;
        for (int r = 0; r < c->size; r++) {
            uint64_t entered = c->views[r].place.entered;
            most = entered > most ? entered : most;
        }
        append(text, bytes,
               "; nobody waits in a collective, the last one entered was of operation "
               "%llu",
               (unsigned long long)most);
        return;
    }
    const struct tern_place *p = &c->views[c->waiter].place;
    append(text, bytes, "; operation %llu, %s", (unsigned long long)p->entered, g_names[p->kind]);
    if (p->kind != TERN_COLLECTIVE_OPEN) {
        append(text, bytes, " %u of rank %d (%llu bytes", p->step, c->waiter,
               (unsigned long long)p->bytes);
        append(text, bytes, p->peer >= 0 ? " with rank %d)" : ")", p->peer);
    }
    append(text, bytes, ", was entered by ");
    append_ranks(c, has_entered, text, bytes);
    if (count_of(c, is_seen_behind) > 0) {
        append(text, bytes, ", not by ");
        append_ranks(c, is_seen_behind, text, bytes);
    }
    if (count_of(c, is_last_heard_behind) > 0) {
        append(text, bytes, ", not yet by ");
        append_ranks(c, is_last_heard_behind, text, bytes);
        append(text, bytes, " when last heard");
    }
    append(text, bytes, "; rank %d waits for %.1f s", c->waiter, (double)p->waited_ns * 1e-9);
}

/* After a death or an error: is it clear what the others are waiting for? They may still be on their way to it, or in nothing
 * at all; that is waited for a while. */
static bool has_settled(const struct case_file *c, int64_t since_ns)
{
    int64_t settle = tern_judge_settle_ns(c->limit_ns);
    bool is_clear = c->waiter >= 0 && c->views[c->waiter].place.waited_ns >= settle / 2;
    return since_ns >= settle && (is_clear || since_ns >= c->limit_ns / 2);
}

static bool find_lost(const struct case_file *c, struct tern_verdict *v)
{
    int64_t longest = -1;
    for (int r = 0; r < c->size; r++) {
        int64_t since = is_lost(c, r) ? c->views[r].lost_ns : -1;
        longest = since > longest ? since : longest;
    }
    if (!has_settled(c, longest)) {
        return false;
    }
    v->status = TERN_ERR_PEER_LOST;
    append_named(c, is_lost, v->sentence, sizeof v->sentence);
    append(v->sentence, sizeof v->sentence, " gone: the connection broke");
    return true;
}

static bool find_error(const struct case_file *c, struct tern_verdict *v)
{
    int first = -1;
    for (int r = 0; r < c->size; r++) {
        bool is_earlier = first < 0 || c->views[r].error_ns > c->views[first].error_ns;
        first = has_error(c, r) && is_earlier ? r : first;
    }
    if (first < 0 || first_of(c, is_lost) >= 0 || !has_settled(c, c->views[first].error_ns)) {
        return false;
    }
    v->status = TERN_ERR_PEER_LOST;
    append(v->sentence, sizeof v->sentence, "rank %d (host %s) reports: %s", first,
           c->views[first].host, c->views[first].error);
    return true;
}

static bool find_silent(const struct case_file *c, struct tern_verdict *v)
{
    int64_t longest = 0;
    for (int r = 0; r < c->size; r++) {
        int64_t since = is_silent(c, r) ? c->views[r].silent_ns : 0;
        longest = since > longest ? since : longest;
    }
    bool is_awaited = c->waiter >= 0 && c->views[c->waiter].place.waited_ns >= patience_ns(c);
    if (longest == 0 || (longest < patience_ns(c) && !is_awaited)) {
        return false;
    }
    v->status = TERN_ERR_TIMEOUT;
    append_named(c, is_silent, v->sentence, sizeof v->sentence);
    append(v->sentence, sizeof v->sentence, " stopped or cut off: nothing was heard for %.1f s",
           (double)longest * 1e-9);
    return true;
}

static bool find_late(const struct case_file *c, struct tern_verdict *v)
{
    if (c->waiter < 0 || c->views[c->waiter].place.waited_ns < patience_ns(c)) {
        return false;
    }
    v->status = TERN_ERR_TIMEOUT;
    char *text = v->sentence;
    size_t bytes = sizeof v->sentence;
    if (first_of(c, is_behind) >= 0) {
        int first = first_of(c, is_behind);
        bool is_host = awaited(c) == 0 || c->views[first].place.enqueued < awaited(c);
        append_named(c, is_behind, text, bytes);
        append(text, bytes, " late: %s",
               is_host ? "the program has not come to the operation"
                       : "the GPU is still at earlier work");
    } else if (first_of(c, is_idle) >= 0) {
        append_named(c, is_idle, text, bytes);
        append(text, bytes, " late: the program has not gone on inside the operation");
    } else {
        append(text, bytes,
               "all ranks are in it and it does not end: the network or NCCL is stuck "
               "(NCCL_DEBUG=INFO shows what it uses)");
    }
    return true;
}

static int find_waiter(const struct case_file *c)
{
    int waiter = -1;
    for (int r = 0; r < c->size; r++) {
        const struct tern_place *p = &c->views[r].place;
        if (!is_there(c, r) || is_lost(c, r) || is_silent(c, r) ||
            p->kind == TERN_COLLECTIVE_NONE) {
            continue;
        }
        const struct tern_place *best = waiter < 0 ? NULL : &c->views[waiter].place;
        if (best == NULL || p->entered < best->entered ||
            (p->entered == best->entered && p->waited_ns > best->waited_ns)) {
            waiter = r;
        }
    }
    return waiter;
}

bool tern_judge(const struct tern_view *views,
                int size,
                int64_t limit_ns,
                struct tern_verdict *verdict_out)
{
    struct case_file c = {.views = views, .size = size, .limit_ns = limit_ns};
    c.waiter = find_waiter(&c);
    memset(verdict_out, 0, sizeof *verdict_out);
    if (!find_lost(&c, verdict_out) && !find_error(&c, verdict_out) &&
        !find_silent(&c, verdict_out) && !find_late(&c, verdict_out)) {
        return false;
    }
    append_collective(&c, verdict_out->sentence, sizeof verdict_out->sentence);
    append(verdict_out->sentence, sizeof verdict_out->sentence,
           " (limit %.1f s: TERN_COMM_TIMEOUT)", (double)limit_ns * 1e-9);
    return true;
}
