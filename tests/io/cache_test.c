/* cache_test.c - objects as files: fetched once, again when they were replaced, bounded by age. */
#include "io/cache.h"
#include "runtime/base/mem.h"
#include "tests/io/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static struct store_server g_server;
static char g_folder[64], g_cache[128];

static void must(tern_status status)
{
    if (status != TERN_OK) {
        print_error("%s\n", tern_detail());
    }
    assert_int_equal(status, TERN_OK);
}

static void check_file(const char *path, const char *expected)
{
    char *data;
    size_t bytes;
    must(tern_file_read(path, 1 << 20, &data, &bytes));
    assert_string_equal(data, expected);
    tern_free(data);
}

static int gets(void)
{
    struct tern_text log;
    int count = 0;
    store_server_get(&g_server, "/_log", &log);
    for (const char *at = log.data; (at = strstr(at, "GET /bucket/")) != NULL; at++) {
        count++;
    }
    tern_text_fini(&log);
    return count;
}

static int entries(void)
{
    char **names;
    int count;
    must(tern_file_list(g_cache, &names, &count));
    tern_free(names);
    return count - 1; /* the lock */
}

static void test_object(void **state)
{
    (void)state;
    struct tern_store *store;
    char path[TERN_PATH_BYTES], again[TERN_PATH_BYTES];
    must(tern_store_open("s3://bucket/d", NULL, &store));
    must(tern_store_put(store, "a.txt", "first", 5, false));
    must(tern_cache_fetch("s3://bucket/d/a.txt", path));
    check_file(path, "first");
    assert_string_equal(strrchr(path, '/'), "/a.txt");
    int before = gets();
    must(tern_cache_fetch("s3://bucket/d/a.txt", again));
    assert_string_equal(path, again);
    assert_int_equal(gets(), before); /* only its version was asked for */
    must(tern_store_put(store, "a.txt", "other", 5, false));
    must(tern_cache_fetch("s3://bucket/d/a.txt", again));
    check_file(again, "other");
    check_file(path, "first"); /* the old version's file is what it was */
    assert_int_equal(tern_cache_fetch("s3://bucket/d/none", path), TERN_ERR_NOT_FOUND);
    assert_non_null(strstr(tern_detail(), "s3://bucket/d/none"));
    assert_int_equal(tern_cache_fetch("s3://bucket", path), TERN_ERR_INPUT);
    tern_store_close(store);
}

static void test_folder(void **state)
{
    (void)state;
    struct tern_store *store;
    char path[TERN_PATH_BYTES], file[TERN_PATH_BYTES + 16];
    must(tern_store_open("s3://bucket/m", NULL, &store));
    must(tern_store_put(store, "model/config.json", "{}", 2, false));
    must(tern_store_put(store, "model/deep/x", "x", 1, false));
    must(tern_store_put(store, "model/../../escape", "x", 1, false));
    must(tern_store_put(store, "model2", "no", 2, false));
    must(tern_cache_fetch("s3://bucket/m/model/", path));
    snprintf(file, sizeof file, "%s/config.json", path);
    check_file(file, "{}");
    snprintf(file, sizeof file, "%s/deep/x", path);
    check_file(file, "x");
    snprintf(file, sizeof file, "%s/escape", g_cache);
    assert_false(tern_file_exists(file));
    tern_store_close(store);
}

static void test_bound(void **state)
{
    (void)state;
    struct tern_store *store;
    char path[TERN_PATH_BYTES], a[TERN_PATH_BYTES], key[32], url[64];
    static uint8_t data[1000];
    setenv("TERN_CACHE_BYTES", "3500", 1);
    must(tern_store_open("s3://bucket/b", NULL, &store));
    for (int i = 0; i < 6; i++) {
        snprintf(key, sizeof key, "k%d", i);
        snprintf(url, sizeof url, "s3://bucket/b/k%d", i);
        must(tern_store_put(store, key, data, sizeof data, false));
        must(tern_cache_fetch(url, i == 0 ? a : path));
        must(tern_cache_fetch("s3://bucket/b/k0", path)); /* in use: never the oldest */
    }
    assert_true(tern_file_exists(a));
    assert_int_equal(entries(), 3);
    must(tern_store_put(store, "big", data, 1000, false));
    setenv("TERN_CACHE_BYTES", "999", 1);
    assert_int_equal(tern_cache_fetch("s3://bucket/b/big", path), TERN_ERR_NO_SPACE);
    assert_non_null(strstr(tern_detail(), "TERN_CACHE_BYTES"));
    assert_true(tern_file_exists(a)); /* nothing went for what does not fit anyway */
    setenv("TERN_CACHE_BYTES", "much", 1);
    assert_int_equal(tern_cache_fetch("s3://bucket/b/big", path), TERN_ERR_CONFIG);
    unsetenv("TERN_CACHE_BYTES");
    tern_store_close(store);
}

/* What was broken off leaves no entry. */
static void test_broken(void **state)
{
    (void)state;
    struct tern_store *store;
    char path[TERN_PATH_BYTES];
    must(tern_store_open("s3://bucket/x", NULL, &store));
    must(tern_store_put(store, "y", "content", 7, false));
    int before = entries();
    store_server_control(&g_server,
                         "{\"rules\": [{\"match\": \"GET\", \"action\": \"gone\", \"times\": 9}]}");
    assert_int_equal(tern_cache_fetch("s3://bucket/x/y", path), TERN_ERR_IO);
    store_server_control(&g_server, "{}");
    assert_int_equal(entries(), before);
    must(tern_cache_fetch("s3://bucket/x/y", path));
    check_file(path, "content");
    tern_store_close(store);
}

static int start(void **state)
{
    (void)state;
    snprintf(g_folder, sizeof g_folder, "/tmp/tern-cache.XXXXXX");
    if (mkdtemp(g_folder) == NULL) {
        return -1;
    }
    snprintf(g_cache, sizeof g_cache, "%s/cache", g_folder);
    setenv("TERN_CACHE_DIR", g_cache, 1);
    store_server_start(&g_server, STORE_SERVER);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    store_server_stop(&g_server);
    return tern_file_remove_tree(g_folder) == TERN_OK && tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
