/* ledger.c - switching between kinds of time, cutting rows, and the thread that appends them. */
#include "runtime/observe/ledger.h"

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"
#include "runtime/base/thread.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    WRITE_SECONDS = 1,      /* between two appends, at least */
    CUT_US_MIN = 500 * 1000 /* between two rows that are asked for: more rows would say no more */
};

/* ---- time ---- */

static int64_t now_us(const struct tern_ledger *ledger)
{
    return ledger->began_us + (tern_clock_ns() - ledger->began_ns) / 1000;
}

static void give(struct tern_ledger *ledger, enum tern_ledger_kind kind, int64_t us)
{
    ledger->open.us[kind] += us;
    ledger->total.us[kind] += us;
}

/* All time up to now belongs to the kind that is. */
static void count(struct tern_ledger *ledger)
{
    int64_t now = now_us(ledger);
    int64_t us = now > ledger->counted_us ? now - ledger->counted_us : 0;
    give(ledger, ledger->kind, us);
    if (ledger->kind == TERN_LEDGER_PRODUCTIVE) {
        ledger->unfinished_us += us;
        ledger->open.unfinished_us += us;
    }
    ledger->counted_us += us;
    ledger->open.to_us = ledger->counted_us;
    ledger->total.to_us = ledger->counted_us;
}

/* Ends the open row if there is room for it; else it goes on. */
static void cut(struct tern_ledger *ledger)
{
    struct tern_ledger_row *open = &ledger->open;
    if (open->to_us == open->from_us || ledger->row_count == TERN_LEDGER_ROWS_MAX) {
        return;
    }
    ledger->rows[ledger->row_count++] = *open;
    open->from_us = open->to_us;
    open->first_step = open->last_step;
    open->unfinished_us = 0;
    memset(open->us, 0, sizeof open->us);
    ledger->cut_us = open->from_us;
}

/* ---- writing ---- */

/* Appends whole rows; false: later, perhaps. A line that an earlier try left half written is ended first. */
static bool append(struct tern_ledger *ledger, const struct tern_ledger_row *rows, int row_count)
{
    char text[TERN_LEDGER_ROWS_MAX * TERN_LEDGER_ROW_BYTES + 2 * TERN_LEDGER_ROW_BYTES];
    size_t length = 0;
    if (!tern_file_exists(ledger->path)) {
        length = strlen(tern_ledger_header());
        memcpy(text, tern_ledger_header(), length);
    } else if (ledger->is_torn) {
        text[length++] = '\n';
    }
    for (int i = 0; i < row_count; i++) {
        length += tern_ledger_row_print(&rows[i], text + length);
    }
    bool is_good =
        tern_file_append_whole(ledger->path, text, length, TERN_FAULT_OBSERVE_APPEND) == TERN_OK;
    if (!is_good && !ledger->is_lost) {
        tern_log_warn("%s: the ledger waits until it can be written again, training goes on",
                      tern_detail());
    } else if (is_good && ledger->is_lost) {
        tern_log_info("%s can be written again", ledger->path);
    }
    ledger->is_lost = !is_good;
    ledger->is_torn = !is_good && tern_file_is_torn(ledger->path);
    return is_good;
}

/* Appends the rows that were cut. Only rows behind them are added meanwhile. */
static void write_rows(struct tern_ledger *ledger)
{
    struct tern_ledger_row rows[TERN_LEDGER_ROWS_MAX];
    pthread_mutex_lock(&ledger->file_lock);
    pthread_mutex_lock(&ledger->lock);
    int row_count = ledger->row_count;
    memcpy(rows, ledger->rows, (size_t)row_count * sizeof rows[0]);
    pthread_mutex_unlock(&ledger->lock);
    if (row_count > 0 && append(ledger, rows, row_count)) {
        pthread_mutex_lock(&ledger->lock);
        ledger->row_count -= row_count;
        memmove(ledger->rows, ledger->rows + row_count, (size_t)ledger->row_count * sizeof rows[0]);
        pthread_mutex_unlock(&ledger->lock);
    }
    pthread_mutex_unlock(&ledger->file_lock);
}

void tern_ledger_flush(struct tern_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    count(ledger);
    cut(ledger);
    pthread_mutex_unlock(&ledger->lock);
    write_rows(ledger);
}

static void *ledger_main(void *arg)
{
    struct tern_ledger *ledger = arg;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&ledger->lock);
    while (!ledger->is_closing) {
        next.tv_sec += WRITE_SECONDS;
        int error = 0;
        while (!ledger->is_closing && !ledger->is_hurried && error == 0) {
            error = pthread_cond_timedwait(&ledger->wake, &ledger->lock, &next);
        }
        clock_gettime(CLOCK_MONOTONIC, &next);
        ledger->is_hurried = false;
        pthread_mutex_unlock(&ledger->lock);
        tern_ledger_flush(ledger);
        pthread_mutex_lock(&ledger->lock);
    }
    pthread_mutex_unlock(&ledger->lock);
    return NULL;
}

/* ---- open ---- */

static int64_t wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void tern_ledger_start(struct tern_ledger *ledger)
{
    *ledger = (struct tern_ledger){.kind = TERN_LEDGER_START};
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&ledger->lock, NULL);
    pthread_mutex_init(&ledger->file_lock, NULL);
    pthread_mutex_init(&ledger->close_lock, NULL);
    pthread_cond_init(&ledger->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    ledger->began_us = wall_us();
    ledger->began_ns = tern_clock_ns();
    ledger->counted_us = ledger->began_us;
    ledger->cut_us = ledger->began_us;
    ledger->open = (struct tern_ledger_row){.state = TERN_LEDGER_RUNNING,
                                            .from_us = ledger->began_us,
                                            .to_us = ledger->began_us,
                                            .machines = 1,
                                            .ranks = 1,
                                            .price = -1,
                                            .first_step = -1,
                                            .last_step = -1};
    ledger->total = ledger->open;
    ledger->before.last_step = -1;
    ledger->is_started = true;
}

/* The row between the launch before and this one, if its time counts. */
static bool make_restart(const struct tern_ledger *ledger, struct tern_ledger_row *out)
{
    const struct tern_ledger_account *before = &ledger->before;
    if (before->launch_count == 0 || before->end_us >= ledger->began_us) {
        return false;
    }
    enum tern_ledger_state state = before->launches[before->launch_count - 1].state;
    *out = ledger->open;
    out->from_us = before->end_us;
    out->to_us = ledger->began_us;
    memset(out->us, 0, sizeof out->us);
    out->us[TERN_LEDGER_RESTART] = out->to_us - out->from_us;
    return state != TERN_LEDGER_FINISHED && state != TERN_LEDGER_STOPPED;
}

/* A file without a whole first line has no rows either. */
static tern_status drop_stub(const char *path)
{
    int64_t bytes = 0;
    if (!tern_file_exists(path)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_file_size(path, &bytes));
    return bytes < (int64_t)strlen(tern_ledger_header()) ? tern_file_remove(path) : TERN_OK;
}

tern_status tern_ledger_open(struct tern_ledger *ledger, const struct tern_ledger_options *options)
{
    TERN_CHECK(ledger->is_started && !ledger->has_thread);
    struct tern_ledger_row *rows[] = {&ledger->open, &ledger->total};
    for (int i = 0; i < 2; i++) {
        snprintf(rows[i]->launch, sizeof rows[i]->launch, "%s", options->launch);
        snprintf(rows[i]->currency, sizeof rows[i]->currency, "%s", options->currency);
        rows[i]->machines = options->machines;
        rows[i]->ranks = options->ranks;
        rows[i]->price = options->price;
    }
    TERN_RETURN_IF_ERR(tern_path_join(ledger->path, options->run_dir, "ledger.csv"));
    TERN_RETURN_IF_ERR(drop_stub(ledger->path));
    if (tern_file_exists(ledger->path)) {
        TERN_RETURN_IF_ERR(tern_ledger_read(ledger->path, -1, &ledger->before));
    }
    ledger->is_torn = tern_file_is_torn(ledger->path);
    struct tern_ledger_row restart;
    if (make_restart(ledger, &restart)) {
        ledger->total.us[TERN_LEDGER_RESTART] += restart.us[TERN_LEDGER_RESTART];
        ledger->rows[ledger->row_count++] = restart;
    }
    tern_ledger_flush(ledger);
    int error = tern_thread_start(&ledger->thread, ledger_main, ledger);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_MEMORY, error, "cannot start the ledger's thread");
    }
    ledger->has_thread = true;
    return TERN_OK;
}

/* ---- what the training thread says ---- */

enum tern_ledger_kind tern_ledger_enter(struct tern_ledger *ledger, enum tern_ledger_kind kind)
{
    pthread_mutex_lock(&ledger->lock);
    enum tern_ledger_kind before = ledger->kind;
    count(ledger);
    ledger->kind = kind;
    pthread_mutex_unlock(&ledger->lock);
    return before;
}

void tern_ledger_step(struct tern_ledger *ledger, int64_t step, int64_t tokens)
{
    pthread_mutex_lock(&ledger->lock);
    count(ledger);
    ledger->open.last_step = step;
    ledger->open.tokens = tokens;
    ledger->open.unfinished_us = 0;
    ledger->total.last_step = step;
    ledger->total.tokens = tokens;
    ledger->unfinished_us = 0;
    pthread_mutex_unlock(&ledger->lock);
}

void tern_ledger_cut(struct tern_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    count(ledger);
    if (ledger->counted_us - ledger->cut_us >= CUT_US_MIN) {
        cut(ledger);
    }
    pthread_mutex_unlock(&ledger->lock);
}

void tern_ledger_hurry(struct tern_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    if (ledger->row_count > 0) {
        ledger->is_hurried = true;
        pthread_cond_broadcast(&ledger->wake);
    }
    pthread_mutex_unlock(&ledger->lock);
}

void tern_ledger_blame(struct tern_ledger *ledger, enum tern_ledger_kind kind)
{
    pthread_mutex_lock(&ledger->lock);
    count(ledger);
    give(ledger, TERN_LEDGER_PRODUCTIVE, -ledger->unfinished_us);
    give(ledger, kind, ledger->unfinished_us);
    ledger->open.unfinished_us -= ledger->unfinished_us;
    ledger->unfinished_us = 0;
    ledger->kind = kind;
    pthread_mutex_unlock(&ledger->lock);
}

/* Rows that take away from earlier launches what is done again from now on: one a launch. */
static int make_corrections(const struct tern_ledger_account *old,
                            const struct tern_ledger_account *new,
                            int64_t at_us,
                            int first,
                            struct tern_ledger_row rows[TERN_LEDGER_ROWS_MAX],
                            int *next_out)
{
    int used = 0;
    int i = first;
    for (; i < old->launch_count && used < TERN_LEDGER_ROWS_MAX; i++) {
        const struct tern_ledger_launch *was = &old->launches[i];
        const struct tern_ledger_launch *is = &new->launches[i];
        int64_t us = is->us[TERN_LEDGER_LOST_STEPS] - was->us[TERN_LEDGER_LOST_STEPS];
        if (us == 0) {
            continue;
        }
        struct tern_ledger_row *row = &rows[used++];
        *row = (struct tern_ledger_row){.state = TERN_LEDGER_REDONE,
                                        .from_us = at_us,
                                        .to_us = at_us,
                                        .machines = was->machines,
                                        .ranks = was->ranks,
                                        .price = was->price,
                                        .first_step = -1,
                                        .last_step = -1};
        memcpy(row->launch, was->launch, sizeof row->launch);
        memcpy(row->currency, was->currency, sizeof row->currency);
        row->us[TERN_LEDGER_PRODUCTIVE] = -us;
        row->us[TERN_LEDGER_LOST_STEPS] = us;
    }
    *next_out = i;
    return used;
}

/* As the file stands after the corrections of all earlier resumes, and after this one. */
static void write_corrections(struct tern_ledger *ledger,
                              const struct tern_ledger_account *old,
                              int64_t at_us)
{
    struct tern_ledger_row rows[TERN_LEDGER_ROWS_MAX];
    int next = 0;
    while (next < old->launch_count) {
        int used = make_corrections(old, &ledger->before, at_us, next, rows, &next);
        pthread_mutex_lock(&ledger->file_lock);
        bool is_good = used == 0 || append(ledger, rows, used);
        pthread_mutex_unlock(&ledger->file_lock);
        if (!is_good) { /* readers find the same by themselves */
            return;
        }
    }
}

/* The launches before this one, which has rows already: it is counted by itself. */
static void leave_out_own(const struct tern_ledger *ledger, struct tern_ledger_account *account)
{
    struct tern_ledger_account rest = {.launches = account->launches, .last_step = -1};
    for (int i = 0; i < account->launch_count; i++) {
        if (strcmp(account->launches[i].launch, ledger->open.launch) != 0) {
            rest.launches[rest.launch_count++] = account->launches[i];
            tern_ledger_account_add(&rest, &account->launches[i]);
        }
    }
    *account = rest;
}

static void find_lost_steps(struct tern_ledger *ledger, int64_t step)
{
    struct tern_ledger_account old = ledger->before;
    struct tern_ledger_account new = {.last_step = -1};
    if (tern_ledger_read(ledger->path, step, &new) != TERN_OK) {
        tern_log_warn("%s: what is done again is not in the ledger's sums", tern_detail());
        tern_ledger_account_fini(&new);
        return;
    }
    leave_out_own(ledger, &new);
    pthread_mutex_lock(&ledger->lock);
    ledger->before = new;
    pthread_mutex_unlock(&ledger->lock);
    if (old.launch_count == new.launch_count) {
        write_corrections(ledger, &old, ledger->open.to_us);
    }
    tern_ledger_account_fini(&old);
}

void tern_ledger_resume(struct tern_ledger *ledger, int64_t step, int64_t tokens)
{
    if (ledger->has_thread) {
        find_lost_steps(ledger, step);
    }
    pthread_mutex_lock(&ledger->lock);
    count(ledger);
    cut(ledger);
    struct tern_ledger_row *rows[] = {&ledger->open, &ledger->total};
    for (int i = 0; i < 2; i++) {
        rows[i]->first_step = step;
        rows[i]->last_step = step;
        rows[i]->tokens = tokens;
    }
    ledger->first_tokens = tokens;
    if (ledger->row_count < TERN_LEDGER_ROWS_MAX) { /* of no length: where the launch begins */
        ledger->rows[ledger->row_count++] = ledger->open;
    }
    pthread_mutex_unlock(&ledger->lock);
    if (ledger->has_thread) {
        write_rows(ledger);
    }
}

void tern_ledger_sum(struct tern_ledger *ledger, struct tern_ledger_account *out)
{
    pthread_mutex_lock(&ledger->lock);
    count(ledger);
    const struct tern_ledger_row *total = &ledger->total;
    struct tern_ledger_launch own = {.machines = total->machines,
                                     .price = total->price,
                                     .last_step = total->last_step,
                                     .tokens = total->tokens - ledger->first_tokens};
    memcpy(own.currency, total->currency, sizeof own.currency);
    memcpy(own.us, total->us, sizeof own.us);
    *out = ledger->before;
    out->launches = NULL;
    out->launch_count++;
    out->end_us = total->to_us;
    tern_ledger_account_add(out, &own);
    pthread_mutex_unlock(&ledger->lock);
}

/* ---- the end ---- */

static void stop_thread(struct tern_ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->is_closing = true;
    pthread_cond_broadcast(&ledger->wake);
    pthread_mutex_unlock(&ledger->lock);
    pthread_join(ledger->thread, NULL);
}

void tern_ledger_close(struct tern_ledger *ledger, enum tern_ledger_state state)
{
    if (!ledger->is_started) {
        return;
    }
    pthread_mutex_lock(&ledger->close_lock);
    if (ledger->has_thread) {
        stop_thread(ledger);
        ledger->has_thread = false;
        write_rows(ledger);
        pthread_mutex_lock(&ledger->lock);
        count(ledger);
        ledger->open.state = state;
        if (ledger->row_count < TERN_LEDGER_ROWS_MAX) {
            ledger->rows[ledger->row_count++] = ledger->open;
        }
        pthread_mutex_unlock(&ledger->lock);
        write_rows(ledger);
    }
    pthread_mutex_unlock(&ledger->close_lock);
}

void tern_ledger_bury(const struct tern_ledger_options *options)
{
    char path[TERN_PATH_BYTES];
    char text[TERN_LEDGER_ROW_BYTES];
    struct tern_ledger_account account = {0};
    int64_t now = wall_us();
    if (tern_path_join(path, options->run_dir, "ledger.csv") == TERN_OK &&
        tern_ledger_read(path, -1, &account) == TERN_OK && account.launch_count > 0 &&
        account.end_us < now && !tern_file_is_torn(path)) {
        const struct tern_ledger_launch *own = &account.launches[account.launch_count - 1];
        struct tern_ledger_row row = {.state = TERN_LEDGER_PEER_LOST,
                                      .from_us = account.end_us,
                                      .to_us = now,
                                      .machines = options->machines,
                                      .ranks = options->ranks,
                                      .price = options->price,
                                      .first_step = own->last_step,
                                      .last_step = own->last_step,
                                      .tokens = own->last_tokens};
        row.us[TERN_LEDGER_HANG_DETECTION] = now - account.end_us;
        memcpy(row.launch, own->launch, sizeof row.launch);
        memcpy(row.currency, own->currency, sizeof row.currency);
        size_t length = tern_ledger_row_print(&row, text);
        if (strcmp(own->launch, options->launch) == 0 &&
            tern_file_append_whole(path, text, length, TERN_FAULT_OBSERVE_APPEND) != TERN_OK) {
            tern_log_debug("%s",
                           tern_detail()); /* the next launch finds the time unaccounted for */
        }
    }
    tern_ledger_account_fini(&account);
}

void tern_ledger_fini(struct tern_ledger *ledger)
{
    if (!ledger->is_started) {
        return;
    }
    tern_ledger_close(ledger, TERN_LEDGER_FAILED);
    tern_ledger_account_fini(&ledger->before);
    pthread_cond_destroy(&ledger->wake);
    pthread_mutex_destroy(&ledger->close_lock);
    pthread_mutex_destroy(&ledger->file_lock);
    pthread_mutex_destroy(&ledger->lock);
    ledger->is_started = false;
}
