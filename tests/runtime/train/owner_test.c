/* owner_test.c - one run, one bucket: the first has it, an empty directory joins it, any other is refused. */
#include "io/remote.h"
#include "runtime/reclaim/memory_run.h"
#include "runtime/train/owner.h"
#include "tests/runtime/fixture.h"

static char g_root[TERN_PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    make_folder(g_root);
    setenv("TERN_LOG", "error", 1);
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(g_root);
    return check_no_live_blocks(state);
}

static struct tern_store *open_bucket(const char *name)
{
    char url[TERN_PATH_BYTES + 16];
    struct tern_store *store;
    snprintf(url, sizeof url, "file://%s/%s", g_root, name);
    expect_ok(tern_store_open(url, NULL, &store));
    return store;
}

static const char *make_run(const char *name, char path[TERN_PATH_BYTES])
{
    expect_ok(tern_path_join(path, g_root, name));
    expect_ok(tern_file_make_folder(path));
    return path;
}

/* As a launch with --run-id does it; name NULL: without. */
static tern_status launch_as(struct tern_store *store, const char *run_dir, const char *name)
{
    struct tern_memory_run run;
    const struct tern_memory_name named = {.name = name, .config = 1};
    TERN_RETURN_IF_ERR(tern_owner_adopt(store, run_dir));
    TERN_RETURN_IF_ERR(tern_memory_run_open(run_dir, "launch", &named, &run));
    return tern_owner_claim(store, run_dir);
}

static tern_status launch(struct tern_store *store, const char *run_dir)
{
    return launch_as(store, run_dir, NULL);
}

static void check_same(const char *run_dir, const char *other, bool is_same)
{
    char id[TERN_MEMORY_ID_BYTES], other_id[TERN_MEMORY_ID_BYTES];
    expect_ok(tern_memory_run_id(run_dir, id));
    expect_ok(tern_memory_run_id(other, other_id));
    assert_int_equal(strcmp(id, other_id) == 0, is_same);
}

static void test_owner(void **state)
{
    (void)state;
    char first[TERN_PATH_BYTES], second[TERN_PATH_BYTES], empty[TERN_PATH_BYTES];
    struct tern_store *store = open_bucket("bucket"), *other = open_bucket("other");
    expect_ok(launch(store, make_run("first", first)));
    expect_ok(launch(store, first)); /* and ever again */
    expect_ok(launch(other, make_run("second", second)));
    check_same(first, second, false);
    assert_int_equal(launch(store, second), TERN_ERR_CONFIG);
    assert_non_null(strstr(tern_detail(), "is of another run"));
    assert_int_equal(launch(other, first), TERN_ERR_CONFIG);
    expect_ok(launch(store, make_run("empty", empty))); /* a run on an empty machine */
    check_same(first, empty, true);
    expect_ok(launch(store, first));
    assert_int_equal(launch(other, empty), TERN_ERR_CONFIG);
    tern_store_close(other);
    tern_store_close(store);
}

/* A name that the user gave changes nothing of that. */
static void test_names(void **state)
{
    (void)state;
    char first[TERN_PATH_BYTES], second[TERN_PATH_BYTES], empty[TERN_PATH_BYTES];
    struct tern_store *store = open_bucket("named");
    expect_ok(launch_as(store, make_run("named1", first), "name"));
    expect_ok(launch_as(store, first, "name"));
    expect_ok(launch_as(store, make_run("named2", empty), "name"));
    check_same(first, empty, true);
    tern_store_close(store);
    store = open_bucket("named-too");
    expect_ok(launch_as(store, make_run("named3", second), "name"));
    assert_int_equal(launch_as(store, first, "name"), TERN_ERR_CONFIG);
    tern_store_close(store);
}

/* What is no id, here or there. */
static void test_damage(void **state)
{
    (void)state;
    char run[TERN_PATH_BYTES], empty[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    char id[TERN_MEMORY_ID_BYTES], owner[TERN_REMOTE_ID_BYTES];
    struct tern_store *store = open_bucket("damaged");
    expect_ok(launch(store, make_run("run", run)));
    expect_ok(tern_path_join(path, run, "id"));
    expect_ok(tern_file_replace(path, "nonsense", 8));
    expect_ok(launch(store, run)); /* the bucket knows whose it is */
    expect_ok(tern_memory_run_id(run, id));
    expect_ok(tern_remote_owner(store, owner));
    assert_string_equal(id, owner);
    expect_ok(tern_store_put(store, "id", "nonsense", 8, false));
    assert_int_equal(launch(store, run), TERN_ERR_CORRUPT);
    assert_int_equal(launch(store, make_run("empty2", empty)), TERN_ERR_CORRUPT);
    expect_ok(tern_path_join(path, empty, "id"));
    assert_false(tern_file_exists(path)); /* the next launch may join yet */
    expect_ok(tern_store_remove(store, "id"));
    expect_ok(launch(store, run)); /* of a time without ids */
    expect_ok(launch(store, empty));
    check_same(run, empty, true);
    tern_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_owner, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
