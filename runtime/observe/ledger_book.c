/* ledger_book.c - the account of a whole ledger.csv.
 *
 * A file is read twice. The first pass finds the launches: where each began and ended, in time and in steps. From the newest
 * one backwards follows how far each one's steps were used: up to where the next one resumed, if it came that far at all. The
 * second pass gives each row's productive time to the steps that were used and to those that were lost. */
#include "runtime/observe/ledger_book.h"

#include "io/file.h"
#include "runtime/base/mem.h"

#include <math.h>
#include <string.h>

/* What a file may add up to, far beyond any run and within 64 bits: rows beyond it are none. */
static const double SUM_MAX = 4e18;

struct reader {
    const struct tern_map *map;
    size_t at;
    char launch[TERN_LEDGER_LAUNCH_BYTES]; /* of the last row that was given out */
    int64_t end_us;                        /* and its end */
    int64_t bad_lines;
    double us_seen; /* the size of all that was given out */
};

/* Whether the sums stay within their 64 bits. */
static bool fits(struct reader *reader, const struct tern_ledger_row *row)
{
    double us = reader->us_seen;
    for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
        us += fabs((double)row->us[k]);
    }
    us += fabs((double)row->unfinished_us);
    if (us > SUM_MAX) {
        return false;
    }
    reader->us_seen = us;
    return true;
}

/* The next whole row that counts. */
static bool read_line(struct reader *reader, struct tern_ledger_row *out)
{
    while (reader->at < reader->map->bytes) {
        const char *line = (const char *)reader->map->data + reader->at;
        size_t left = reader->map->bytes - reader->at;
        const char *end = memchr(line, '\n', left);
        size_t length = end != NULL ? (size_t)(end - line) : left;
        size_t header = strlen(tern_ledger_header());
        bool is_header =
            end != NULL && length + 1 == header && memcmp(line, tern_ledger_header(), header) == 0;
        reader->at += length + 1;
        bool is_row = end != NULL && tern_ledger_row_parse(line, length, out) && fits(reader, out);
        if (is_row && out->state != TERN_LEDGER_REDONE) {
            return true;
        }
        reader->bad_lines += !is_row && !is_header && length > 0;
    }
    return false;
}

/* A row of a launch that begins before the last one's end was written twice, since the first time seemed to fail. */
static bool next_row(struct reader *reader, struct tern_ledger_row *out)
{
    while (read_line(reader, out)) {
        bool is_again = strcmp(out->launch, reader->launch) == 0 && out->from_us < reader->end_us;
        if (!is_again) {
            memcpy(reader->launch, out->launch, sizeof reader->launch);
            reader->end_us = out->to_us;
            return true;
        }
        reader->bad_lines++;
    }
    return false;
}

static bool is_wanted(enum tern_ledger_state state)
{
    return state != TERN_LEDGER_FINISHED && state != TERN_LEDGER_STOPPED;
}

static tern_status begin_launch(struct tern_ledger_account *book,
                                const struct tern_ledger_row *row,
                                int *capacity)
{
    if (book->launch_count == *capacity) {
        *capacity = 2 * *capacity + 16;
        struct tern_ledger_launch *more =
            tern_realloc("ledger", book->launches, (size_t)*capacity * sizeof *book->launches);
        if (more == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory for %d launches of a ledger", *capacity);
        }
        book->launches = more;
    }
    struct tern_ledger_launch *launch = &book->launches[book->launch_count++];
    *launch = (struct tern_ledger_launch){.state = row->state,
                                          .from_us = -1,
                                          .machines = row->machines,
                                          .ranks = row->ranks,
                                          .price = row->price,
                                          .first_step = -1,
                                          .last_step = -1};
    memcpy(launch->launch, row->launch, sizeof launch->launch);
    memcpy(launch->currency, row->currency, sizeof launch->currency);
    return TERN_OK;
}

/* Before the steps of a row. Where they begin, a launch writes a row of no length; without it all steps are taken for alike. */
static int64_t tokens_at_first(const struct tern_ledger_row *row)
{
    double share = row->last_step > 0 ? (double)row->first_step / (double)row->last_step : 1;
    return row->first_step == row->last_step ? row->tokens : (int64_t)((double)row->tokens * share);
}

/* First pass: what a row says of its launch. before: the launch before, or NULL. */
static void meet_row(struct tern_ledger_account *book,
                     const struct tern_ledger_row *row,
                     enum tern_ledger_state state_before)
{
    struct tern_ledger_launch *launch = &book->launches[book->launch_count - 1];
    bool is_first = launch->from_us < 0;
    int64_t gap = book->end_us > 0 ? row->from_us - book->end_us : 0;
    if (gap > 0 && (!is_first || is_wanted(state_before))) {
        launch->gap_us += gap;
    }
    if (row->us[TERN_LEDGER_RESTART] == row->to_us - row->from_us && is_first) {
        launch->gap_us += row->us[TERN_LEDGER_RESTART];
    } else {
        launch->from_us = is_first ? row->from_us : launch->from_us;
        for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
            launch->us[k] += row->us[k];
        }
    }
    launch->state = row->state;
    launch->to_us = row->to_us;
    book->end_us = row->to_us > book->end_us ? row->to_us : book->end_us;
    if (row->first_step >= 0) {
        if (launch->first_step < 0) {
            launch->first_step = row->first_step;
            launch->first_tokens = tokens_at_first(row);
        }
        launch->last_step = row->last_step;
        launch->last_tokens = row->tokens;
    }
}

static tern_status find_launches(struct reader *reader, struct tern_ledger_account *book)
{
    struct tern_ledger_row row;
    int capacity = 0;
    enum tern_ledger_state before = TERN_LEDGER_FINISHED;
    while (next_row(reader, &row)) {
        struct tern_ledger_launch *last =
            book->launch_count > 0 ? &book->launches[book->launch_count - 1] : NULL;
        if (last == NULL || strcmp(last->launch, row.launch) != 0) {
            before = last != NULL ? last->state : before;
            TERN_RETURN_IF_ERR(begin_launch(book, &row, &capacity));
        }
        meet_row(book, &row, before);
    }
    return TERN_OK;
}

/* Which of the launches before `end` made the state of a step: the newest that came so far; where none did, by its rows, the
 * one that came farthest, since the last second before a kill is in no row. -1: none. */
static int find_source(const struct tern_ledger_account *book, int end, int64_t step)
{
    int best = -1;
    for (int i = end - 1; i >= 0; i--) {
        const struct tern_ledger_launch *launch = &book->launches[i];
        if (launch->first_step < 0 || launch->first_step > step) {
            continue;
        }
        if (launch->last_step >= step) {
            return i;
        }
        best = best < 0 || launch->last_step > book->launches[best].last_step ? i : best;
    }
    return best;
}

/* At a step that a launch came to. */
static int64_t tokens_at(const struct tern_ledger_launch *launch, int64_t step)
{
    int64_t steps = launch->last_step - launch->first_step;
    if (step >= launch->last_step || steps == 0) {
        return launch->last_tokens;
    }
    double share = (double)(step - launch->first_step) / (double)steps;
    return launch->first_tokens +
           (int64_t)((double)(launch->last_tokens - launch->first_tokens) * share);
}

/* limits (launch_count): up to which step each launch's work was used; -1: nothing of it. From the newest back to the first: each
 * one's source. */
static void find_limits(struct tern_ledger_account *book, int64_t resume_step, int64_t *limits)
{
    int64_t used = resume_step >= 0 ? resume_step : INT64_MAX;
    const struct tern_ledger_launch *next = NULL;
    int at = book->launch_count - 1;
    for (int i = 0; i < book->launch_count; i++) {
        limits[i] = -1;
    }
    while (used == INT64_MAX && at >= 0 && book->launches[at].first_step < 0) {
        at--;
    }
    at = used == INT64_MAX ? at : find_source(book, at + 1, used);
    while (at >= 0) {
        struct tern_ledger_launch *launch = &book->launches[at];
        int64_t end_tokens = next != NULL ? next->first_tokens : tokens_at(launch, used);
        launch->tokens = end_tokens - launch->first_tokens;
        limits[at] = used;
        used = launch->first_step;
        next = launch;
        at = find_source(book, at, used);
    }
}

/* The part of a row's productive time that was used. */
static int64_t kept_us(const struct tern_ledger_row *row, int64_t limit)
{
    int64_t head = row->us[TERN_LEDGER_PRODUCTIVE] - row->unfinished_us;
    int64_t kept = limit > row->last_step ? row->unfinished_us : 0;
    if (limit >= row->last_step) {
        return kept + head;
    }
    if (limit <= row->first_step) {
        return kept;
    }
    double share = (double)(limit - row->first_step) / (double)(row->last_step - row->first_step);
    return kept + (int64_t)((double)head * share);
}

/* Second pass: lost steps. */
static void share_out(struct reader *reader,
                      struct tern_ledger_account *book,
                      const int64_t *limits)
{
    struct tern_ledger_row row;
    int at = -1;
    while (next_row(reader, &row)) {
        if (at < 0 || strcmp(book->launches[at].launch, row.launch) != 0) {
            at++;
        }
        if (row.first_step >= 0) {
            int64_t lost = row.us[TERN_LEDGER_PRODUCTIVE] - kept_us(&row, limits[at]);
            book->launches[at].us[TERN_LEDGER_PRODUCTIVE] -= lost;
            book->launches[at].us[TERN_LEDGER_LOST_STEPS] += lost;
        }
    }
}

void tern_ledger_account_add(struct tern_ledger_account *book,
                             const struct tern_ledger_launch *launch)
{
    bool is_first = book->total_seconds == 0;
    double price = launch->price >= 0 ? launch->price : 0;
    book->has_cost =
        launch->price >= 0 &&
        (is_first || (book->has_cost && strcmp(launch->currency, book->currency) == 0));
    memcpy(book->currency, launch->currency, sizeof book->currency);
    book->tokens += launch->tokens;
    book->last_step = launch->last_step >= 0 ? launch->last_step : book->last_step;
    for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
        double seconds = (double)launch->us[k] * 1e-6 * launch->machines;
        book->seconds[k] += seconds;
        book->total_seconds += seconds;
        book->cost[k] += seconds / 3600 * price;
        book->total_cost += seconds / 3600 * price;
    }
}

static void add_up(struct tern_ledger_account *book)
{
    for (int i = 0; i < book->launch_count; i++) {
        struct tern_ledger_launch *launch = &book->launches[i];
        launch->from_us = launch->from_us < 0 ? launch->to_us : launch->from_us;
        launch->us[TERN_LEDGER_RESTART] += launch->gap_us;
        tern_ledger_account_add(book, launch);
    }
}

static tern_status read_map(const struct tern_map *map,
                            int64_t resume_step,
                            struct tern_ledger_account *out)
{
    struct reader first = {.map = map};
    struct reader second = {.map = map};
    TERN_RETURN_IF_ERR(find_launches(&first, out));
    out->bad_lines = first.bad_lines;
    int64_t *limits = tern_alloc("ledger", ((size_t)out->launch_count + 1) * sizeof *limits);
    if (limits == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for %d launches", out->launch_count);
    }
    find_limits(out, resume_step, limits);
    share_out(&second, out, limits);
    tern_free(limits);
    add_up(out);
    return TERN_OK;
}

tern_status tern_ledger_read(const char *path, int64_t resume_step, struct tern_ledger_account *out)
{
    *out = (struct tern_ledger_account){.last_step = -1};
    struct tern_map map;
    TERN_RETURN_IF_ERR(tern_map_open(path, &map));
    size_t header = strlen(tern_ledger_header());
    tern_status status = TERN_OK;
    if (map.bytes >= header && memcmp(map.data, tern_ledger_header(), header) != 0) {
        status =
            tern_fail(TERN_ERR_INPUT, "%s: its first line is not that of a ledger ('%.40s...')",
                      path, tern_ledger_header());
    }
    status = status == TERN_OK ? read_map(&map, resume_step, out) : status;
    tern_map_close(&map);
    return status;
}

void tern_ledger_account_fini(struct tern_ledger_account *account)
{
    tern_free(account->launches);
    *account = (struct tern_ledger_account){.last_step = -1};
}

double tern_ledger_ratio(const struct tern_ledger_account *account)
{
    return account->total_seconds > 0
               ? account->seconds[TERN_LEDGER_PRODUCTIVE] / account->total_seconds
               : 0;
}

double tern_ledger_per_million(const struct tern_ledger_account *account)
{
    return account->has_cost && account->tokens > 0
               ? account->total_cost / ((double)account->tokens * 1e-6)
               : -1;
}
