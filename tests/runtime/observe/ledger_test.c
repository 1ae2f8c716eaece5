/* ledger_test.c - rows and files, whole or damaged; the state machine under a clock of the test's. */
#include "runtime/base/random.h"
#include "runtime/observe/ledger_print.h"
#include "tests/runtime/observe/ledger_fixture.h"

static void write_file(const char *text)
{
    expect_ok(tern_file_replace(ledger_path(), text, strlen(text)));
}

static void append_rows(const struct tern_ledger_row *rows, int count)
{
    char text[TERN_LEDGER_ROW_BYTES];
    if (!tern_file_exists(ledger_path())) {
        write_file(tern_ledger_header());
    }
    for (int i = 0; i < count; i++) {
        size_t length = tern_ledger_row_print(&rows[i], text);
        assert_true(length < TERN_LEDGER_ROW_BYTES);
        expect_ok(tern_file_append(ledger_path(), text, length));
    }
}

/* Seconds [from, to), all of one kind. */
static struct tern_ledger_row row(const char *launch,
                                  double from,
                                  double to,
                                  enum tern_ledger_kind kind,
                                  int64_t first,
                                  int64_t last)
{
    struct tern_ledger_row r = {.state = TERN_LEDGER_RUNNING,
                                .from_us = 1000000000 + (int64_t)(from * 1e6),
                                .to_us = 1000000000 + (int64_t)(to * 1e6),
                                .machines = 2,
                                .ranks = 4,
                                .price = 3.6,
                                .currency = "USD",
                                .first_step = first,
                                .last_step = last,
                                .tokens = last >= 0 ? last * 100 : 0};
    snprintf(r.launch, sizeof r.launch, "%s", launch);
    r.us[kind] = r.to_us - r.from_us;
    return r;
}

/* ---- rows ---- */

static void test_row_round_trip(void **state)
{
    (void)state;
    char text[TERN_LEDGER_ROW_BYTES];
    struct tern_ledger_row r =
        row("20260131T235959.123Z-4711", 0, 2.5, TERN_LEDGER_PRODUCTIVE, 7, 9);
    struct tern_ledger_row back;
    r.us[TERN_LEDGER_DATA_WAIT] = 400000;
    r.us[TERN_LEDGER_PRODUCTIVE] -= 400000;
    r.unfinished_us = 1;
    size_t length = tern_ledger_row_print(&r, text);
    assert_int_equal(text[length - 1], '\n');
    assert_true(tern_ledger_row_parse(text, length - 1, &back));
    assert_string_equal(back.launch, r.launch);
    assert_string_equal(back.currency, "USD");
    assert_int_equal(back.from_us, r.from_us);
    assert_int_equal(back.to_us, r.to_us);
    assert_memory_equal(back.us, r.us, sizeof r.us);
    assert_int_equal(back.unfinished_us, 1);
    assert_int_equal(back.first_step, 7);
    assert_int_equal(back.last_step, 9);
    assert_int_equal(back.tokens, 900);
    assert_near(back.price, 3.6, 0);
    /* negative times, no price, no steps */
    r = row("a", 1, 1, TERN_LEDGER_START, -1, -1);
    r.us[TERN_LEDGER_PRODUCTIVE] = -1500000;
    r.us[TERN_LEDGER_HANG_DETECTION] = 1500000;
    r.price = -1;
    length = tern_ledger_row_print(&r, text);
    assert_true(tern_ledger_row_parse(text, length - 1, &back));
    assert_memory_equal(back.us, r.us, sizeof r.us);
    assert_int_equal(back.first_step, -1);
    assert_true(back.price < 0);
}

/* Every beginning of a row, and every row with a byte changed to something that breaks it, is refused or still sums up. */
static void test_row_damaged(void **state)
{
    (void)state;
    char text[TERN_LEDGER_ROW_BYTES];
    struct tern_ledger_row r = row("launch-1", 3, 5.25, TERN_LEDGER_DRAIN, 1, 2);
    struct tern_ledger_row back;
    size_t length = tern_ledger_row_print(&r, text) - 1;
    for (size_t cut = 0; cut < length; cut++) {
        bool is_row = tern_ledger_row_parse(text, cut, &back);
        if (is_row) {
            fail_msg("the first %zu of %zu bytes pass for a row: %.*s", cut, length, (int)cut,
                     text);
        }
    }
    static const char bytes[] = {'\0', ',', '-', '.', '9', 'x', '\n', '\377'};
    for (size_t at = 0; at < length; at++) {
        for (size_t b = 0; b < sizeof bytes; b++) {
            char was = text[at];
            text[at] = bytes[b];
            if (tern_ledger_row_parse(text, length, &back)) {
                int64_t sum = 0;
                for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
                    sum += back.us[k];
                }
                assert_int_equal(sum, back.to_us - back.from_us);
                assert_true(back.machines > 0 && back.to_us >= back.from_us);
            }
            text[at] = was;
        }
    }
}

/* ---- files ---- */

static void test_no_ledger(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    assert_int_equal(tern_ledger_read(ledger_path(), -1, &account), TERN_ERR_NOT_FOUND);
    tern_ledger_account_fini(&account);
    char text[600];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    write_file(text);
    assert_int_equal(tern_ledger_read(ledger_path(), -1, &account), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "ledger.csv");
    tern_ledger_account_fini(&account);
    write_file("");
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_int_equal(account.launch_count, 0);
    assert_near(tern_ledger_ratio(&account), 0, 0);
    assert_true(tern_ledger_per_million(&account) < 0);
    tern_ledger_account_fini(&account);
}

static void test_torn_last_line(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    char text[TERN_LEDGER_ROW_BYTES];
    struct tern_ledger_row rows[] = {row("a", 0, 10, TERN_LEDGER_PRODUCTIVE, 0, 10),
                                     row("a", 10, 20, TERN_LEDGER_PRODUCTIVE, 10, 20)};
    size_t length = tern_ledger_row_print(&rows[1], text);
    for (size_t cut = 1; cut < length; cut++) {
        write_file(tern_ledger_header());
        append_rows(rows, 1);
        expect_ok(tern_file_append(ledger_path(), text, cut));
        assert_true(tern_file_is_torn(ledger_path()));
        expect_ok(tern_ledger_read(ledger_path(), -1, &account));
        assert_int_equal(account.bad_lines, 1);
        assert_near(account.total_seconds, 20, 1e-9);
        assert_int_equal(account.last_step, 10);
        tern_ledger_account_fini(&account);
    }
}

/* Rows that were thought not to have been written, and were. */
static void test_row_written_twice(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    struct tern_ledger_row rows[] = {row("a", 0, 10, TERN_LEDGER_PRODUCTIVE, 0, 10),
                                     row("a", 10, 20, TERN_LEDGER_PRODUCTIVE, 10, 20),
                                     row("a", 20, 30, TERN_LEDGER_PRODUCTIVE, 20, 30)};
    append_rows(rows, 2);
    append_rows(rows, 3);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_near(account.total_seconds, 60, 1e-9);
    assert_int_equal(account.tokens, 3000);
    tern_ledger_account_fini(&account);
}

static void test_lost_steps(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    struct tern_ledger_row rows[] = {
        row("a", 0, 5, TERN_LEDGER_START, -1, -1),
        row("a", 5, 15, TERN_LEDGER_PRODUCTIVE, 0, 10),
        row("a", 15, 25, TERN_LEDGER_PRODUCTIVE, 10, 20),
        row("a", 25, 26, TERN_LEDGER_PRODUCTIVE, 20, 20), /* of a step that was never done */
        row("b", 36, 38, TERN_LEDGER_START, -1, -1),
        row("b", 38, 48, TERN_LEDGER_PRODUCTIVE, 15, 25),
    };
    rows[3].unfinished_us = 1000000;
    append_rows(rows, 6);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_int_equal(account.launch_count, 2);
    assert_near(account.seconds[TERN_LEDGER_LOST_STEPS], 2 * 6, 1e-9); /* 15 to 20, and 1 s */
    assert_near(account.seconds[TERN_LEDGER_PRODUCTIVE], 2 * 25, 1e-9);
    assert_near(account.seconds[TERN_LEDGER_START], 2 * 7, 1e-9);
    assert_near(account.seconds[TERN_LEDGER_RESTART], 2 * 10, 1e-9);
    assert_near(account.total_seconds, 2 * 48, 1e-9);
    assert_int_equal(account.tokens, 2500);
    assert_int_equal(account.last_step, 25);
    assert_true(account.has_cost);
    assert_near(account.total_cost, 2 * 48 / 3600.0 * 3.6, 1e-9);
    assert_near(tern_ledger_per_million(&account), account.total_cost / 0.0025, 1e-6);
    tern_ledger_account_fini(&account);
    /* as a launch sees it that goes on from step 12, which only "a" can have saved */
    expect_ok(tern_ledger_read(ledger_path(), 12, &account));
    assert_near(account.seconds[TERN_LEDGER_PRODUCTIVE], 2 * 12, 1e-9);
    assert_near(account.seconds[TERN_LEDGER_LOST_STEPS], 2 * 19, 1e-9);
    assert_int_equal(account.tokens, 1200);
    tern_ledger_account_fini(&account);
}

/* A launch that resumed from an old checkpoint and came to nothing takes nothing from the one before it. */
static void test_detour(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    struct tern_ledger_row rows[] = {
        row("a", 0, 100, TERN_LEDGER_PRODUCTIVE, 0, 100),
        row("b", 100, 105, TERN_LEDGER_PRODUCTIVE, 50, 55),
        row("c", 105, 115, TERN_LEDGER_PRODUCTIVE, 100, 110),
    };
    append_rows(rows, 3);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_near(account.seconds[TERN_LEDGER_PRODUCTIVE], 2 * 110, 1e-9);
    assert_near(account.seconds[TERN_LEDGER_LOST_STEPS], 2 * 5, 1e-9);
    assert_int_equal(account.tokens, 11000);
    tern_ledger_account_fini(&account);
}

/* Nobody wants machines after the end, or when a person stopped the run. */
static void test_gaps(void **state)
{
    (void)state;
    static const struct {
        enum tern_ledger_state state;
        double restart;
    } cases[] = {{TERN_LEDGER_FINISHED, 0},   {TERN_LEDGER_STOPPED, 0},
                 {TERN_LEDGER_RUNNING, 50},   {TERN_LEDGER_RECLAIMED, 50},
                 {TERN_LEDGER_PEER_LOST, 50}, {TERN_LEDGER_FAILED, 50}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tern_ledger_account account;
        struct tern_ledger_row rows[] = {row("a", 0, 10, TERN_LEDGER_PRODUCTIVE, 0, 10),
                                         row("b", 60, 70, TERN_LEDGER_PRODUCTIVE, 10, 20)};
        rows[0].state = cases[i].state;
        write_file(tern_ledger_header());
        append_rows(rows, 2);
        expect_ok(tern_ledger_read(ledger_path(), -1, &account));
        assert_near(account.seconds[TERN_LEDGER_RESTART], 2 * cases[i].restart, 1e-9);
        tern_ledger_account_fini(&account);
    }
}

static void test_currencies(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    struct tern_ledger_row rows[] = {row("a", 0, 10, TERN_LEDGER_PRODUCTIVE, 0, 10),
                                     row("b", 10, 20, TERN_LEDGER_PRODUCTIVE, 10, 20)};
    strcpy(rows[1].currency, "EUR");
    append_rows(rows, 2);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_false(account.has_cost);
    tern_ledger_account_fini(&account);
    rows[1].price = -1;
    strcpy(rows[1].currency, "USD");
    write_file(tern_ledger_header());
    append_rows(rows, 2);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_false(account.has_cost);
    tern_ledger_account_fini(&account);
}

/* Sums beyond 64 bits are cut off, not wrapped. */
static void test_absurd_rows(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    struct tern_ledger_row rows[64];
    for (int i = 0; i < 64; i++) {
        rows[i] = row("a", 0, 0, TERN_LEDGER_PRODUCTIVE, 0, 10);
        rows[i].us[TERN_LEDGER_PRODUCTIVE] = 99999999999000000;
        rows[i].us[TERN_LEDGER_START] = -99999999999000000;
        rows[i].tokens = 1000000000000000000;
    }
    append_rows(rows, 64);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_true(account.bad_lines > 0);
    tern_ledger_account_fini(&account);
}

static uint64_t draw(uint64_t n, uint64_t below)
{
    return tern_random_u64(5, tern_random_stream_id(TERN_STREAM_TEST, 8), n) % below;
}

/* Whatever happened to a file: its account has finite numbers that add up, and nothing is read beside it. */
static void test_damaged_files(void **state)
{
    (void)state;
    enum {
        ROUNDS = 20000,
        ROOM = 64
    };
    struct tern_ledger_row rows[12];
    for (int i = 0; i < 12; i++) {
        rows[i] = row(i < 4   ? "a"
                      : i < 8 ? "b"
                              : "c",
                      i * 10, i * 10 + 9, i % 4 == 0 ? TERN_LEDGER_LOAD : TERN_LEDGER_PRODUCTIVE,
                      i % 4 == 0 ? -1 : i * 5, i % 4 == 0 ? -1 : i * 5 + 7);
    }
    append_rows(rows, 12);
    char *whole;
    size_t bytes;
    expect_ok(tern_file_read(ledger_path(), 1 << 20, &whole, &bytes));
    static const char alphabet[] = "0123456789-.,\nabcrunig_\"\377";
    uint64_t n = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char *text = tern_alloc("test", bytes);
        memcpy(text, whole, bytes);
        for (uint64_t changes = 1 + draw(n++, 4); changes > 0; changes--) {
            size_t length = draw(n++, ROOM);
            size_t from = draw(n++, bytes - length);
            size_t to = draw(n++, bytes - length);
            if (draw(n++, 2) == 0) {
                memmove(text + to, text + from, length); /* a piece of another place */
            } else {
                text[to] = alphabet[draw(n++, sizeof alphabet - 1)];
            }
        }
        struct tern_ledger_account account;
        expect_ok(tern_file_remove(ledger_path()));
        expect_ok(tern_file_append(ledger_path(), text, bytes - draw(n++, ROOM)));
        if (tern_ledger_read(ledger_path(), draw(n++, 2) == 0 ? -1 : (int64_t)draw(n++, 80),
                             &account) == TERN_OK) {
            double sum = 0, size = 1;
            for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
                sum += account.seconds[k];
                size += fabs(account.seconds[k]);
            }
            assert_true(isfinite(account.total_cost) && isfinite(tern_ledger_ratio(&account)));
            assert_near(sum, account.total_seconds, 1e-9 * size);
        }
        tern_ledger_account_fini(&account);
        tern_free(text);
    }
    tern_free(whole);
}

/* ---- the state machine ---- */

static void take_steps(struct tern_ledger *ledger, int64_t first, int64_t end, double each)
{
    for (int64_t step = first + 1; step <= end; step++) {
        tern_ledger_enter(ledger, TERN_LEDGER_DATA_WAIT);
        advance(0.01);
        tern_ledger_enter(ledger, TERN_LEDGER_PRODUCTIVE);
        advance(each);
        tern_ledger_step(ledger, step, step * 1000);
    }
}

static void test_a_launch(void **state)
{
    (void)state;
    struct tern_ledger ledger;
    struct tern_ledger_account account, sum;
    start_at(&ledger, "a", 3);
    tern_ledger_enter(&ledger, TERN_LEDGER_LOAD);
    advance(4);
    tern_ledger_resume(&ledger, 0, 0);
    take_steps(&ledger, 0, 10, 0.5);
    assert_int_equal(tern_ledger_enter(&ledger, TERN_LEDGER_CHECKPOINT_STALL),
                     TERN_LEDGER_PRODUCTIVE);
    advance(0.25);
    tern_ledger_enter(&ledger, TERN_LEDGER_DRAIN);
    advance(2);
    tern_ledger_enter(&ledger, TERN_LEDGER_IDLE_AFTER_NOTICE);
    advance(0.125);
    tern_ledger_sum(&ledger, &sum);
    tern_ledger_close(&ledger, TERN_LEDGER_RECLAIMED);
    tern_ledger_fini(&ledger);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
        assert_near(account.seconds[k], sum.seconds[k], 1e-6);
    }
    assert_near(account.seconds[TERN_LEDGER_START], 3 * 1, 1e-6);
    assert_near(account.seconds[TERN_LEDGER_LOAD], 3 * 4, 1e-6);
    assert_near(account.seconds[TERN_LEDGER_DATA_WAIT], 3 * 0.1, 1e-4);
    assert_near(account.seconds[TERN_LEDGER_PRODUCTIVE], 3 * 5, 1e-6);
    assert_near(account.seconds[TERN_LEDGER_CHECKPOINT_STALL], 3 * 0.25, 1e-6);
    assert_near(account.seconds[TERN_LEDGER_DRAIN], 3 * 2, 1e-6);
    assert_near(account.seconds[TERN_LEDGER_IDLE_AFTER_NOTICE], 3 * 0.125, 1e-6);
    assert_int_equal(account.tokens, 10000);
    assert_int_equal(account.launches[0].state, TERN_LEDGER_RECLAIMED);
    assert_near(account.total_cost, account.total_seconds / 3600 * 1.5, 1e-9);
    tern_ledger_account_fini(&account);
}

/* The time of a step that never ended is the hang's, also what was written before anybody knew. */
static void test_hang(void **state)
{
    (void)state;
    struct tern_ledger ledger;
    struct tern_ledger_account account;
    start_at(&ledger, "a", 1);
    tern_ledger_resume(&ledger, 0, 0);
    take_steps(&ledger, 0, 10, 1);
    for (int i = 0; i < 20; i++) {
        advance(1);
        tern_ledger_flush(&ledger);
    }
    tern_ledger_blame(&ledger, TERN_LEDGER_HANG_DETECTION);
    advance(0.5);
    tern_ledger_close(&ledger, TERN_LEDGER_PEER_LOST);
    tern_ledger_close(&ledger, TERN_LEDGER_FAILED); /* too late: it has been said */
    tern_ledger_fini(&ledger);
    expect_ok(tern_ledger_read(ledger_path(), 10, &account));
    assert_near(account.seconds[TERN_LEDGER_PRODUCTIVE], 10, 1e-6);
    assert_near(account.seconds[TERN_LEDGER_HANG_DETECTION], 20.5, 1e-6);
    assert_near(account.seconds[TERN_LEDGER_LOST_STEPS], 0, 1e-6);
    assert_int_equal(account.launches[0].state, TERN_LEDGER_PEER_LOST);
    tern_ledger_account_fini(&account);
}

/* A rank that outlives rank 0 accounts for the time since rank 0's last row. */
static void test_bury(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    struct tern_ledger_row r = row("a", 0, 10, TERN_LEDGER_PRODUCTIVE, 0, 10);
    struct tern_ledger_options options = {.run_dir = g_root,
                                          .launch = "b",
                                          .machines = 2,
                                          .ranks = 4,
                                          .price = 3.6,
                                          .currency = "USD"};
    append_rows(&r, 1);
    tern_ledger_bury(&options); /* another launch's */
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_int_equal(account.launches[0].state, TERN_LEDGER_RUNNING);
    tern_ledger_account_fini(&account);
    options.launch = "a";
    tern_ledger_bury(&options);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_int_equal(account.launches[0].state, TERN_LEDGER_PEER_LOST);
    assert_true(account.seconds[TERN_LEDGER_HANG_DETECTION] > 0);
    tern_ledger_account_fini(&account);
}

/* A ledger on a full disk keeps its rows and writes them later; a torn line costs nothing. */
static void test_full_disk(void **state)
{
    (void)state;
    struct tern_ledger ledger;
    struct tern_ledger_account account;
    double columns[TERN_LEDGER_KIND_COUNT];
    start_at(&ledger, "a", 1);
    tern_ledger_resume(&ledger, 0, 0);
    int64_t step = 0;
    static const char *const faults[] = {"observe.append@1:enospc",
                                         "observe.append@1:short,observe.append@2:eio", NULL};
    for (int round = 0; round < 60; round++) {
        take_steps(&ledger, step, step + 2, 0.5);
        step += 2;
        arm(faults[round / 20]);
        tern_ledger_flush(&ledger);
    }
    arm(NULL);
    tern_ledger_close(&ledger, TERN_LEDGER_FINISHED);
    tern_ledger_fini(&ledger);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    assert_near(account.total_seconds, 1 + 120 * 0.51, 1e-3);
    assert_near(account.seconds[TERN_LEDGER_PRODUCTIVE], 60, 1e-3);
    assert_int_equal(account.tokens, 120000);
    assert_int_equal(account.bad_lines, 0);
    assert_near(account.seconds[TERN_LEDGER_RESTART], 0, 1e-6);
    sum_columns(columns);
    for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
        assert_near(columns[k], account.seconds[k], 1e-3);
    }
    tern_ledger_account_fini(&account);
}

/* ---- print ---- */

static void test_print(void **state)
{
    (void)state;
    struct tern_ledger_account account;
    struct tern_text text;
    struct tern_ledger_row rows[] = {row("a", 0, 90, TERN_LEDGER_PRODUCTIVE, 0, 10),
                                     row("a", 90, 100, TERN_LEDGER_DRAIN, 10, 10)};
    append_rows(rows, 2);
    expect_ok(tern_ledger_read(ledger_path(), -1, &account));
    tern_text_init(&text);
    expect_ok(tern_ledger_print_line(&account, &text));
    assert_contains(text.data, "in 1 launch, effective training time 90.0 %");
    assert_contains(text.data, "wasted: drain 10.0 %");
    assert_contains(text.data, "0.20 USD");
    tern_text_fini(&text);
    tern_text_init(&text);
    const struct tern_ledger_focus focus = {.run = "a \"run\", here", .pricing = "Dynamic"};
    expect_ok(tern_ledger_print_focus(&account, &focus, &text));
    assert_contains(text.data, "\"a \"\"run\"\", here\"");
    assert_contains(text.data, "BilledCost,EffectiveCost,");
    assert_contains(text.data, "\"Dynamic\"");
    tern_text_fini(&text);
    tern_ledger_account_fini(&account);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_row_round_trip),
        IN_FOLDER(test_row_damaged),
        IN_FOLDER(test_no_ledger),
        IN_FOLDER(test_torn_last_line),
        IN_FOLDER(test_row_written_twice),
        IN_FOLDER(test_lost_steps),
        IN_FOLDER(test_detour),
        IN_FOLDER(test_gaps),
        IN_FOLDER(test_currencies),
        IN_FOLDER(test_absurd_rows),
        IN_FOLDER(test_damaged_files),
        IN_FOLDER(test_a_launch),
        IN_FOLDER(test_hang),
        IN_FOLDER(test_bury),
        IN_FOLDER(test_full_disk),

        IN_FOLDER(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
