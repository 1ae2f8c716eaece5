/* ledger_book.c - rows of ledger.csv as text, and the account of a whole file.
 *
 * A file is read twice. The first pass finds the launches: where each began and ended, in time and in steps. From the newest
 * one backwards follows how far each one's steps were used: up to where the next one resumed, if it came that far at all. The
 * second pass gives each row's productive time to the steps that were used and to those that were lost. */
#include "runtime/observe/ledger_book.h"

#include "io/file.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FIELDS_BEFORE = 11, /* columns before those of kinds */
    FIELDS = FIELDS_BEFORE + TERN_LEDGER_KIND_COUNT + 1,
    FIELD_BYTES_MAX = 64,
    SECONDS_DIGITS_MAX = 11
};
/* What a file may add up to, far beyond any run and within 64 bits: rows beyond it are none. */
static const double SUM_MAX = 4e18;
static const int64_t TOKENS_MAX = 1000000000000000000;

static const char *const g_kinds[TERN_LEDGER_KIND_COUNT] = {
    [TERN_LEDGER_PRODUCTIVE] = "productive",
    [TERN_LEDGER_START] = "start",
    [TERN_LEDGER_COMPILE] = "compile",
    [TERN_LEDGER_LOAD] = "load",
    [TERN_LEDGER_DATA_WAIT] = "data_wait",
    [TERN_LEDGER_CHECKPOINT_STALL] = "checkpoint_stall",
    [TERN_LEDGER_LOST_STEPS] = "lost_steps",
    [TERN_LEDGER_DRAIN] = "drain",
    [TERN_LEDGER_IDLE_AFTER_NOTICE] = "idle_after_notice",
    [TERN_LEDGER_HANG_DETECTION] = "hang_detection",
    [TERN_LEDGER_RESTART] = "restart",
};
static const char *const g_states[TERN_LEDGER_STATE_COUNT] = {
    [TERN_LEDGER_RUNNING] = "running",     [TERN_LEDGER_FINISHED] = "finished",
    [TERN_LEDGER_RECLAIMED] = "reclaimed", [TERN_LEDGER_STOPPED] = "stopped",
    [TERN_LEDGER_PEER_LOST] = "peer_lost", [TERN_LEDGER_FAILED] = "failed",
    [TERN_LEDGER_REDONE] = "redone",
};

const char *tern_ledger_kind_name(enum tern_ledger_kind kind)
{
    return g_kinds[kind];
}

const char *tern_ledger_state_name(enum tern_ledger_state state)
{
    return g_states[state];
}

const char *tern_ledger_header(void)
{
    return "launch,state,from,to,machines,ranks,price_per_hour,currency,first_step,last_step,"
           "tokens,productive,start,compile,load,data_wait,checkpoint_stall,lost_steps,drain,"
           "idle_after_notice,hang_detection,restart,unfinished\n";
}

/* ---- a row ---- */

/* Microseconds as seconds with six digits. */
static int print_us(char *out, size_t bytes, int64_t us)
{
    uint64_t size = us < 0 ? 0 - (uint64_t)us : (uint64_t)us;
    return snprintf(out, bytes, "%s%" PRIu64 ".%06" PRIu64, us < 0 ? "-" : "", size / 1000000,
                    size % 1000000);
}

static int print_step(char *out, size_t bytes, int64_t step)
{
    return step < 0 ? snprintf(out, bytes, ",") : snprintf(out, bytes, "%" PRId64 ",", step);
}

size_t tern_ledger_row_print(const struct tern_ledger_row *row, char out[TERN_LEDGER_ROW_BYTES])
{
    const size_t bytes = TERN_LEDGER_ROW_BYTES;
    size_t n = (size_t)snprintf(out, bytes, "%s,%s,", row->launch, g_states[row->state]);
    n += (size_t)print_us(out + n, bytes - n, row->from_us);
    out[n++] = ',';
    n += (size_t)print_us(out + n, bytes - n, row->to_us);
    n += (size_t)snprintf(out + n, bytes - n, ",%d,%d,", row->machines, row->ranks);
    if (row->price >= 0) {
        n += (size_t)snprintf(out + n, bytes - n, "%.9g", row->price);
    }
    n += (size_t)snprintf(out + n, bytes - n, ",%s,", row->currency);
    n += (size_t)print_step(out + n, bytes - n, row->first_step);
    n += (size_t)print_step(out + n, bytes - n, row->last_step);
    n += (size_t)snprintf(out + n, bytes - n, "%" PRId64 ",", row->tokens);
    for (int k = 0; k <= TERN_LEDGER_KIND_COUNT; k++) {
        bool is_kind = k < TERN_LEDGER_KIND_COUNT;
        n += (size_t)print_us(out + n, bytes - n, is_kind ? row->us[k] : row->unfinished_us);
        out[n++] = is_kind ? ',' : '\n';
    }
    return n;
}

/* Decimal seconds to microseconds; false on anything else. */
static bool parse_us(const char *text, int64_t *out)
{
    bool is_negative = *text == '-';
    text += is_negative;
    int digits = 0;
    int64_t value = 0;
    for (; isdigit((unsigned char)*text); text++, digits++) {
        if (digits == SECONDS_DIGITS_MAX) {
            return false;
        }
        value = value * 10 + (*text - '0');
    }
    if (digits == 0 || *text != '.') {
        return false;
    }
    text++;
    for (int i = 0; i < 6; i++, text++) {
        if (!isdigit((unsigned char)*text)) {
            return false;
        }
        value = value * 10 + (*text - '0');
    }
    *out = is_negative ? -value : value;
    return *text == '\0';
}

/* "" is -1: not known. */
static bool parse_step(const char *text, int64_t *out)
{
    *out = -1;
    return *text == '\0' || (tern_text_to_i64(text, out) && *out >= 0);
}

static bool parse_word(const char *text, char *out, size_t bytes)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && strchr("._-", text[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length < bytes && memcpy(out, text, length + 1) != NULL;
}

static bool parse_count(const char *text, int *out)
{
    int64_t value;
    bool is_good = tern_text_to_i64(text, &value) && value > 0 && value <= INT32_MAX;
    *out = is_good ? (int)value : 0;
    return is_good;
}

/* Splits at commas; false unless there are exactly FIELDS, none too long. */
static bool split(const char *line, size_t length, char fields[FIELDS][FIELD_BYTES_MAX])
{
    const char *end = line + length;
    for (int i = 0; i < FIELDS; i++) {
        const char *comma = i + 1 < FIELDS ? memchr(line, ',', (size_t)(end - line)) : end;
        if (comma == NULL || comma - line >= FIELD_BYTES_MAX) {
            return false;
        }
        memcpy(fields[i], line, (size_t)(comma - line));
        fields[i][comma - line] = '\0';
        line = comma + 1;
    }
    return strchr(fields[FIELDS - 1], ',') == NULL;
}

static bool parse_state(const char *text, enum tern_ledger_state *out)
{
    for (int i = 0; i < TERN_LEDGER_STATE_COUNT; i++) {
        if (strcmp(text, g_states[i]) == 0) {
            *out = (enum tern_ledger_state)i;
            return true;
        }
    }
    return false;
}

bool tern_ledger_row_parse(const char *line, size_t length, struct tern_ledger_row *out)
{
    char fields[FIELDS][FIELD_BYTES_MAX];
    struct tern_ledger_row row = {.price = -1};
    if (memchr(line, '\0', length) != NULL || !split(line, length, fields)) {
        return false;
    }
    bool has_price = fields[6][0] != '\0';
    bool is_good =
        parse_word(fields[0], row.launch, sizeof row.launch) &&
        parse_state(fields[1], &row.state) && parse_us(fields[2], &row.from_us) &&
        parse_us(fields[3], &row.to_us) && parse_count(fields[4], &row.machines) &&
        parse_count(fields[5], &row.ranks) &&
        (!has_price ||
         (tern_text_to_f64(fields[6], &row.price) && row.price >= 0 && isfinite(row.price))) &&
        parse_word(fields[7], row.currency, sizeof row.currency) &&
        parse_step(fields[8], &row.first_step) && parse_step(fields[9], &row.last_step) &&
        tern_text_to_i64(fields[10], &row.tokens) && row.tokens >= 0 && row.tokens <= TOKENS_MAX;
    int64_t sum = 0;
    for (int k = 0; is_good && k < TERN_LEDGER_KIND_COUNT; k++) {
        is_good = parse_us(fields[FIELDS_BEFORE + k], &row.us[k]);
        sum += row.us[k];
    }
    is_good = is_good && parse_us(fields[FIELDS - 1], &row.unfinished_us) && row.from_us >= 0 &&
              row.to_us >= row.from_us && sum == row.to_us - row.from_us &&
              row.last_step >= row.first_step && (row.first_step >= 0) == (row.last_step >= 0);
    *out = row;
    return is_good;
}

/* ---- a file ---- */

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
