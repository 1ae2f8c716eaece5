/* mem_test.c - counted blocks, the freeze, and arenas. */
#include "runtime/base/arena.h"
#include "runtime/base/mem.h"
#include "tests/base/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_counts(void **state)
{
    (void)state;
    struct tern_mem_stats before = tern_mem_stats();
    char *block = tern_alloc("test", 1000);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 64, 0);
    char *empty = tern_alloc("test", 0);
    assert_non_null(empty);
    struct tern_mem_stats during = tern_mem_stats();
    assert_int_equal(during.live_blocks - before.live_blocks, 2);
    assert_int_equal(during.live_bytes - before.live_bytes, 1000);
    assert_true(during.peak_bytes >= during.live_bytes);
    tern_free(block);
    tern_free(empty);
    tern_free(NULL);
    struct tern_mem_stats after = tern_mem_stats();
    assert_int_equal(after.live_blocks, before.live_blocks);
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_int_equal(after.total_blocks - before.total_blocks, 2);
}

static void test_overflow_is_refused(void **state)
{
    (void)state;
    volatile size_t huge = SIZE_MAX; /* hidden from the compiler's own warning */
    assert_null(tern_alloc("test", huge));
    assert_null(tern_alloc("test", huge - 64));
    assert_null(tern_alloc_zero("test", huge / 2, 3));
}

static void test_realloc_keeps(void **state)
{
    (void)state;
    char *text = tern_strdup("test", "twelve bytes");
    text = tern_realloc("test", text, 4096);
    assert_string_equal(text, "twelve bytes");
    volatile size_t huge = SIZE_MAX;
    assert_null(tern_realloc("test", text, huge));
    assert_string_equal(text, "twelve bytes");
    text = tern_realloc("test", text, 6);
    assert_memory_equal(text, "twelve", 6);
    tern_free(text);
    int64_t *zeros = tern_alloc_zero("test", 100, sizeof *zeros);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(zeros[i], 0);
    }
    tern_free(zeros);
}

static void test_freeze_counts(void **state)
{
    (void)state;
    int64_t before = tern_mem_stats().frozen_violations;
    tern_mem_freeze(true);
    tern_free(tern_alloc("test", 8));
    tern_mem_freeze(false);
    tern_free(tern_alloc("test", 8));
    assert_int_equal(tern_mem_stats().frozen_violations - before, 1);
}

static void test_freeze_can_abort(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("TERN_MEM_FREEZE", "abort", 1);
        signal(SIGABRT, SIG_DFL); /* cmocka catches it otherwise */
        if (freopen("/dev/null", "w", stderr) == NULL) {
            _exit(9);
        }
        tern_mem_freeze(true);
        tern_free(tern_alloc("test", 8));
        _exit(0);
    }
    int code;
    waitpid(child, &code, 0);
    assert_true(WIFSIGNALED(code) && WTERMSIG(code) == SIGABRT);
}

static void test_arena(void **state)
{
    (void)state;
    struct tern_arena arena;
    assert_int_equal(tern_arena_init(&arena, "test arena", 1024), TERN_OK);
    char *a = tern_arena_alloc(&arena, 1);
    char *b = tern_arena_alloc(&arena, 100);
    assert_int_equal(b - a, 64);
    assert_int_equal((uintptr_t)b % 64, 0);
    size_t mark = tern_arena_mark(&arena);
    char *c = tern_arena_alloc(&arena, 1024 - mark);
    assert_non_null(c);
    memset(c, 1, 1024 - mark);
    assert_null(tern_arena_alloc(&arena, 1));
    assert_null(tern_arena_alloc(&arena, SIZE_MAX));
    tern_arena_reset(&arena, mark);
    assert_ptr_equal(tern_arena_alloc(&arena, 5), c);
    assert_int_equal(arena.peak_bytes, 1024);
    tern_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_counts),        CHECKED(test_overflow_is_refused), CHECKED(test_realloc_keeps),
        CHECKED(test_freeze_counts), CHECKED(test_freeze_can_abort),    CHECKED(test_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
