/* file_test.c - durable replacement, listings, locks and the errors of io/file.h. */
#include "io/file.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static char g_folder[TERN_PATH_BYTES];

static const char *at(const char *name)
{
    static char path[4][TERN_PATH_BYTES];
    static int turn;
    char *out = path[turn++ % 4];
    assert_int_equal(tern_path_join(out, g_folder, name), TERN_OK);
    return out;
}

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(g_folder, sizeof g_folder, "%s/tern-file-XXXXXX", base != NULL ? base : "/tmp");
    return mkdtemp(g_folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    tern_fault_armed = 0;
    bool removed = tern_file_remove_tree(g_folder) == TERN_OK && !tern_file_exists(g_folder);
    return removed && tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

static void arm(const char *rules)
{
    setenv("TERN_FAULT", rules, 1);
    assert_int_equal(tern_fault_init(), TERN_OK);
}

static void expect_content(const char *path, const char *expected)
{
    char *data;
    size_t bytes;
    assert_int_equal(tern_file_read(path, 1 << 20, &data, &bytes), TERN_OK);
    assert_string_equal(data, expected);
    assert_int_equal(bytes, strlen(expected));
    tern_free(data);
}

static void test_join(void **state)
{
    (void)state;
    char out[TERN_PATH_BYTES];
    static const char *const cases[][3] = {{"a", "b", "a/b"},
                                           {"a/", "b", "a/b"},
                                           {"/", "b", "/b"},
                                           {"", "b", "b"},
                                           {"a//", "b/c", "a/b/c"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tern_path_join(out, cases[i][0], cases[i][1]), TERN_OK);
        assert_string_equal(out, cases[i][2]);
    }
    char longest[TERN_PATH_BYTES];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(tern_path_join(out, longest, "b"), TERN_ERR_ARGUMENT);
}

static void test_read_write(void **state)
{
    (void)state;
    assert_int_equal(tern_file_make_folder(at("x/y/z")), TERN_OK);
    assert_int_equal(tern_file_make_folder(at("x/y/z/")), TERN_OK);
    const char *path = at("x/y/z/f");
    assert_int_equal(tern_file_replace(path, "hello", 5), TERN_OK);
    expect_content(path, "hello");
    assert_int_equal(tern_file_append(path, " world", 6), TERN_OK);
    expect_content(path, "hello world");
    int64_t bytes;
    assert_int_equal(tern_file_size(path, &bytes), TERN_OK);
    assert_int_equal(bytes, 11);
    char *data;
    size_t length;
    assert_int_equal(tern_file_read(path, 10, &data, &length), TERN_ERR_INPUT);
    assert_int_equal(tern_file_read(at("x"), 10, &data, &length), TERN_ERR_INPUT);
    assert_int_equal(tern_file_read(at("none"), 10, &data, &length), TERN_ERR_NOT_FOUND);
    assert_non_null(strstr(tern_detail(), "none"));
    assert_int_equal(tern_file_make_folder(at("x/y/z/f/g")), TERN_ERR_IO);
    assert_non_null(strstr(tern_detail(), "is not a folder"));
    assert_int_equal(tern_file_replace(at("x/empty"), "", 0), TERN_OK);
    expect_content(at("x/empty"), "");
    /* a file whose size is not known before: read to its end */
    assert_int_equal(tern_file_read("/proc/self/status", 1 << 20, &data, &length), TERN_OK);
    assert_true(length > 100);
    tern_free(data);
}

static void test_large_read(void **state)
{
    (void)state;
    size_t bytes = (3u << 20) + 17;
    char *data = tern_alloc("test", bytes);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (char)(i * 7 + i / 251);
    }
    assert_int_equal(tern_file_replace(at("large"), data, bytes), TERN_OK);
    char *back;
    size_t length;
    assert_int_equal(tern_file_read(at("large"), (int64_t)bytes, &back, &length), TERN_OK);
    assert_int_equal(length, bytes);
    assert_memory_equal(back, data, bytes);
    struct tern_map map;
    assert_int_equal(tern_map_open(at("large"), &map), TERN_OK);
    assert_int_equal(map.bytes, bytes);
    assert_memory_equal(map.data, data, bytes);
    tern_map_close(&map);
    assert_int_equal(tern_map_open(at("none"), &map), TERN_ERR_NOT_FOUND);
    assert_int_equal(tern_map_open(g_folder, &map), TERN_ERR_INPUT);
    tern_free(back);
    tern_free(data);
}

/* Whatever fails while a file is replaced: the old content stays, no temporary is left. */
static void test_replace_faults(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "file.open:enospc",   "file.open:eio",   "file.write:enospc",
        "file.write:eio",     "file.fsync:eio",  "file.fsync:enospc",
        "file.rename:enospc", "file.rename:eio", "file.write:short,file.write@2:eio"};
    char path[TERN_PATH_BYTES];
    strcpy(path, at("kept"));
    assert_int_equal(tern_file_replace(path, "old", 3), TERN_OK);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        arm(faults[i]);
        tern_status expected =
            strstr(faults[i], "enospc") != NULL ? TERN_ERR_NO_SPACE : TERN_ERR_IO;
        assert_int_equal(tern_file_replace(path, "new content", 11), expected);
        assert_non_null(strstr(tern_detail(), "kept"));
        expect_content(path, "old");
        assert_false(tern_file_exists(at("kept.tmp")));
    }
    arm("file.write:short");
    assert_int_equal(tern_file_replace(path, "new content", 11), TERN_OK);
    expect_content(path, "new content");
}

static void test_list_and_glob(void **state)
{
    (void)state;
    assert_int_equal(tern_file_make_folder(at("list/sub")), TERN_OK);
    static const char *const names[] = {"b.txt", "a.txt", "c.bin"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "list/%s", names[i]);
        assert_int_equal(tern_file_replace(at(name), "", 0), TERN_OK);
    }
    char **found;
    int count;
    assert_int_equal(tern_file_list(at("list"), &found, &count), TERN_OK);
    assert_int_equal(count, 4);
    assert_string_equal(found[0], "a.txt");
    assert_string_equal(found[3], "sub");
    assert_null(found[4]);
    tern_free(found);
    assert_int_equal(tern_file_list(at("list/sub"), &found, &count), TERN_OK);
    assert_int_equal(count, 0);
    assert_null(found[0]);
    tern_free(found);
    assert_int_equal(tern_file_list(at("none"), &found, &count), TERN_ERR_NOT_FOUND);
    assert_int_equal(tern_file_glob(at("list/*.txt"), &found, &count), TERN_OK);
    assert_int_equal(count, 2);
    assert_non_null(strstr(found[0], "a.txt"));
    tern_free(found);
    assert_int_equal(tern_file_glob(at("list/*.zip"), &found, &count), TERN_ERR_NOT_FOUND);
}

static void test_remove(void **state)
{
    (void)state;
    assert_int_equal(tern_file_make_folder(at("tree/a/b")), TERN_OK);
    assert_int_equal(tern_file_replace(at("outside"), "kept", 4), TERN_OK);
    assert_int_equal(symlink(at("outside"), at("tree/a/link")), 0);
    assert_int_equal(symlink(g_folder, at("tree/a/b/up")), 0);
    assert_int_equal(tern_file_remove_tree(at("tree")), TERN_OK);
    assert_false(tern_file_exists(at("tree")));
    expect_content(at("outside"), "kept"); /* links are removed, not followed */
    assert_int_equal(tern_file_remove_tree(at("tree")), TERN_OK);
    assert_int_equal(tern_file_remove(at("outside")), TERN_OK);
    assert_int_equal(tern_file_remove(at("outside")), TERN_OK);
}

static void test_lock(void **state)
{
    (void)state;
    struct tern_lock lock, second;
    assert_int_equal(tern_lock_take(at("lock"), &lock), TERN_OK);
    assert_int_equal(tern_lock_take(at("lock"), &second), TERN_ERR_BUSY);
    char expected[64];
    snprintf(expected, sizeof expected, "pid %ld on host", (long)getpid());
    assert_non_null(strstr(tern_detail(), expected));
    tern_lock_drop(&lock);
    /* held by a process that is killed: free again */
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        char told = tern_lock_take(at("lock"), &lock) == TERN_OK ? 'y' : 'n';
        (void)!write(ready[1], &told, 1);
        for (;;) {
            pause();
        }
    }
    char told = 'n';
    assert_int_equal(read(ready[0], &told, 1), 1);
    assert_int_equal(told, 'y');
    assert_int_equal(tern_lock_take(at("lock"), &second), TERN_ERR_BUSY);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(tern_lock_take(at("lock"), &second), TERN_OK);
    tern_lock_drop(&second);
    tern_lock_drop(&second);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),       cmocka_unit_test(test_read_write),
        cmocka_unit_test(test_large_read), cmocka_unit_test(test_replace_faults),
        cmocka_unit_test(test_remove),     cmocka_unit_test(test_list_and_glob),
        cmocka_unit_test(test_lock),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
