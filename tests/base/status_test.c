/* status_test.c - exit codes, blast radius, the sentence and who owns it; dtypes; log lines. */
#include "runtime/base/dtype.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/base/check.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_exit_codes(void **state)
{
    (void)state;
    const struct {
        tern_status status;
        int exit_code;
        enum tern_blast blast;
    } rows[] = {
        {TERN_OK, 0, TERN_BLAST_NONE},
        {TERN_ERR_USAGE, 2, TERN_BLAST_CALL},
        {TERN_ERR_CONFIG, 2, TERN_BLAST_CALL},
        {TERN_ERR_INPUT, 2, TERN_BLAST_CALL},
        {TERN_ERR_IO, 1, TERN_BLAST_CALL},
        {TERN_ERR_DEVICE, 1, TERN_BLAST_DEVICE},
        {TERN_ERR_PEER_LOST, 34, TERN_BLAST_GROUP},
        {TERN_ERR_TIMEOUT, 34, TERN_BLAST_GROUP},
        {TERN_ERR_NONFINITE, 1, TERN_BLAST_JOB},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(tern_status_exit_code(rows[i].status), rows[i].exit_code);
        assert_int_equal(tern_status_blast(rows[i].status), rows[i].blast);
    }
    for (int s = 0; s < TERN_STATUS_COUNT; s++) {
        assert_true(strlen(tern_status_name((tern_status)s)) > 1);
    }
    assert_string_equal(tern_status_name((tern_status)999), "unknown");
    assert_int_equal(tern_status_exit_code((tern_status)999), 1);
}

static void test_sentences(void **state)
{
    (void)state;
    assert_int_equal(tern_fail(TERN_ERR_INPUT, "found %d", 7), TERN_ERR_INPUT);
    assert_string_equal(tern_detail(), "found 7");
    assert_int_equal(tern_fail_prefix(TERN_ERR_INPUT, "line %d", 3), TERN_ERR_INPUT);
    assert_string_equal(tern_detail(), "line 3: found 7");
    /* its own old sentence as an argument */
    (void)tern_fail(TERN_ERR_IO, "<%s>", tern_detail());
    assert_string_equal(tern_detail(), "<line 3: found 7>");
    assert_int_equal(tern_fail_errno(TERN_ERR_IO, ENOSPC, "w"), TERN_ERR_NO_SPACE);
    assert_int_equal(tern_fail_errno(TERN_ERR_IO, EDQUOT, "w"), TERN_ERR_NO_SPACE);
    assert_int_equal(tern_fail_errno(TERN_ERR_IO, ENOENT, "x.yaml"), TERN_ERR_NOT_FOUND);
    assert_string_equal(tern_detail(), "x.yaml: No such file or directory");
    assert_int_equal(tern_fail_errno(TERN_ERR_IO, EACCES, "x"), TERN_ERR_IO);
}

static void test_long_sentence_is_cut(void **state)
{
    (void)state;
    static char text[3 * TERN_DETAIL_BYTES];
    memset(text, 'x', sizeof text - 1);
    (void)tern_fail(TERN_ERR_INPUT, "%s", text);
    assert_int_equal(strlen(tern_detail()), TERN_DETAIL_BYTES - 1);
    (void)tern_fail(TERN_ERR_INPUT, "short");
    assert_string_equal(tern_detail(), "short");
}

static void *fail_elsewhere(void *arg)
{
    (void)tern_fail(TERN_ERR_IO, "worker");
    snprintf(arg, 16, "%s", tern_detail());
    return NULL;
}

static void test_sentence_is_per_thread(void **state)
{
    (void)state;
    char copy[16] = "";
    pthread_t thread;
    (void)tern_fail(TERN_ERR_IO, "waiter");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, copy), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(copy, "worker");
    assert_string_equal(tern_detail(), "waiter");
    tern_detail_set(copy);
    assert_string_equal(tern_detail(), "worker");
}

static void test_dtypes(void **state)
{
    (void)state;
    assert_int_equal(tern_dtype_bytes(TERN_BF16), 2);
    assert_int_equal(tern_dtype_bytes(TERN_F64), 8);
    assert_string_equal(tern_dtype_name(TERN_U16), "u16");
    assert_true(tern_dtype_epsilon(TERN_BF16) == 1.0 / 128);
    for (int d = 0; d < TERN_DTYPE_COUNT; d++) {
        assert_true(tern_dtype_bytes((enum tern_dtype)d) > 0);
        assert_non_null(tern_dtype_name((enum tern_dtype)d));
        assert_true(tern_dtype_block_elements((enum tern_dtype)d) > 0);
        for (int e = 0; e < d; e++) {
            assert_string_not_equal(tern_dtype_name((enum tern_dtype)d),
                                    tern_dtype_name((enum tern_dtype)e));
        }
    }
}

static void test_rows_are_whole_blocks(void **state)
{
    (void)state;
    size_t bytes;
    assert_true(tern_dtype_row_bytes(TERN_F16, 5, &bytes));
    assert_int_equal(bytes, 10);
    assert_true(tern_dtype_row_bytes(TERN_Q4_K, 512, &bytes));
    assert_int_equal(bytes, 288);
    assert_true(tern_dtype_row_bytes(TERN_Q8_0, 0, &bytes));
    assert_int_equal(bytes, 0);
    assert_false(tern_dtype_row_bytes(TERN_Q4_K, 32, &bytes));
    assert_false(tern_dtype_row_bytes(TERN_Q8_0, 33, &bytes));
    assert_false(tern_dtype_row_bytes(TERN_F32, -1, &bytes));
    assert_false(tern_dtype_row_bytes(TERN_F64, INT64_MAX, &bytes));
    assert_true(tern_dtype_row_bytes(TERN_F16, INT64_MAX, &bytes));
}

/* Every f16 by its definition, and back; between two neighbours the nearer, ties to the even one. */
static void test_f16_is_exact_and_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 0x7c00; x++) {
        int exponent = (int)(x >> 10), fraction = (int)(x & 0x3ff);
        float want = ldexpf((float)(exponent > 0 ? fraction + 1024 : fraction),
                            (exponent > 0 ? exponent : 1) - 25);
        float got = tern_f16_to_f32((tern_f16)x);
        if (got != want || tern_f16_to_f32((tern_f16)(x | 0x8000)) != -want) {
            fail_msg("f16 0x%04x is %g, expected %g", x, (double)got, (double)want);
        }
        assert_int_equal(tern_f32_to_f16(want), x);
        assert_int_equal(tern_f32_to_f16(-want), x | 0x8000);
        float next = x == 0x7bff ? 65536.0f : tern_f16_to_f32((tern_f16)(x + 1));
        float middle = (want + next) / 2; /* exact */
        assert_int_equal(tern_f32_to_f16(middle), x + (x & 1));
        assert_int_equal(tern_f32_to_f16(nextafterf(middle, 0)), x);
        assert_int_equal(tern_f32_to_f16(nextafterf(middle, INFINITY)), x + 1);
    }
    assert_int_equal(tern_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(tern_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(tern_f32_to_f16(0x1p-149f), 0);
    assert_true(isinf(tern_f16_to_f32(0x7c00)) && tern_f16_to_f32(0xfc00) == -INFINITY);
    for (uint32_t x = 0x7c01; x <= 0x7fff; x++) {
        assert_true(isnan(tern_f16_to_f32((tern_f16)x)));
        assert_true(isnan(tern_f16_to_f32(tern_f32_to_f16(tern_f16_to_f32((tern_f16)x)))));
    }
    assert_true(isnan(tern_f16_to_f32(tern_f32_to_f16(tern_bits_to_f32(0x7f800001u)))));
}

/* Every bf16 survives the way through f32; every f32 between two goes to the nearer, ties to the
 * even one. */
static void test_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = tern_bf16_to_f32((tern_bf16)bits);
        tern_bf16 back = tern_f32_to_bf16(value);
        if (isnan(value)) {
            assert_true(isnan(tern_bf16_to_f32(back)));
            continue;
        }
        assert_int_equal(back, bits);
        uint32_t next = bits + 1;
        if (!isfinite(value) || !isfinite(tern_bf16_to_f32((tern_bf16)next))) {
            continue;
        }
        const struct {
            uint32_t low;
            uint32_t expected;
        } parts[] = {{0x0001, bits},
                     {0x7fff, bits},
                     {0x8000, bits + (bits & 1)},
                     {0x8001, next},
                     {0xffff, next}};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            uint32_t wide = bits << 16 | parts[i].low;
            float between;
            memcpy(&between, &wide, sizeof between);
            assert_int_equal(tern_f32_to_bf16(between), parts[i].expected);
        }
    }
    assert_true(isinf(tern_bf16_to_f32(tern_f32_to_bf16(3.4028235e38F))));
}

/* Runs `body` in a child and returns what it wrote to stderr. */
static void stderr_of(void (*body)(void), char *out, size_t capacity)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(ends[0], out + used, capacity - 1 - used)) > 0) {
        used += (size_t)got;
    }
    out[used] = '\0';
    close(ends[0]);
    int code;
    waitpid(child, &code, 0);
    assert_int_equal(code, 0);
}

static void log_some(void)
{
    setenv("TERN_LOG", "warn", 1);
    if (tern_log_init() != TERN_OK) {
        _exit(3);
    }
    tern_log_info("hidden");
    tern_log_warn("seen %d", 1);
    tern_log_bar("a bar is not drawn into a pipe");
    tern_log_set_rank(2, 4);
    tern_log_error("bad");
    tern_log_line("plain");
}

static void test_log_lines(void **state)
{
    (void)state;
    char text[1024];
    stderr_of(log_some, text, sizeof text);
    assert_string_equal(text, "tern: warning: seen 1\ntern: error: [rank 2] bad\nplain\n");
}

static void log_long(void)
{
    static char text[100000];
    memset(text, 'y', sizeof text - 1);
    tern_log_info("%s", text);
}

static void test_log_line_is_bounded(void **state)
{
    (void)state;
    char text[8192];
    stderr_of(log_long, text, sizeof text);
    size_t length = strlen(text);
    assert_true(length > 1000 && length < 4096);
    assert_int_equal(text[length - 1], '\n');
}

static void test_log_level_is_checked(void **state)
{
    (void)state;
    setenv("TERN_LOG", "verbose", 1);
    assert_int_equal(tern_log_init(), TERN_ERR_USAGE);
    assert_contains(tern_detail(), "found 'verbose', expected error, warn, info or debug");
    setenv("TERN_LOG", "", 1);
    assert_int_equal(tern_log_init(), TERN_OK);
    assert_false(tern_log_enabled(TERN_LOG_DEBUG));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_exit_codes),
        CHECKED(test_sentences),
        CHECKED(test_long_sentence_is_cut),
        CHECKED(test_sentence_is_per_thread),
        CHECKED(test_dtypes),
        CHECKED(test_rows_are_whole_blocks),
        CHECKED(test_f16_is_exact_and_rounds_to_nearest_even),
        CHECKED(test_bf16_rounds_to_nearest_even),
        CHECKED(test_log_lines),
        CHECKED(test_log_line_is_bounded),
        CHECKED(test_log_level_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
