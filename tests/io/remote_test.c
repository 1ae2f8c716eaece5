/* remote_test.c - checkpoints in a store: what is there is whole, whatever happens on the way. */
#include "io/checkpoint_parts.h"
#include "io/file.h"
#include "io/remote.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/io/checkpoint_fixture.h"
#include "tests/io/store_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static struct store_server g_server;
static char g_folder[64];
static char g_run[128];
static struct fixture g_fixture;

enum {
    RANKS = 2,
    STEPS = 4 /* 10, 20, 30, 40 */
};

static void must(tern_status status)
{
    if (status != TERN_OK) {
        print_error("%s\n", tern_detail());
    }
    assert_int_equal(status, TERN_OK);
}

static void read_manifest(int64_t step,
                          char folder[TERN_PATH_BYTES],
                          struct tern_ckpt_manifest *out)
{
    must(tern_ckpt_folder(g_run, step, folder));
    must(tern_ckpt_manifest_read(folder, out));
}

/* As the ranks and rank 0 do it. */
static tern_status upload(struct tern_store *store, int64_t step)
{
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    struct tern_ckpt_manifest manifest;
    int64_t bytes;
    read_manifest(step, folder, &manifest);
    tern_status status = TERN_OK;
    for (int i = 0; i < manifest.ranks && status == TERN_OK; i++) {
        must(tern_path_join(path, folder, manifest.files[i].name));
        status = tern_remote_push(store, step, path, &manifest.files[i], NULL);
    }
    tern_ckpt_manifest_fini(&manifest);
    return status == TERN_OK ? tern_remote_commit(store, step, folder, &bytes) : status;
}

static struct tern_store *open_store(double retry_seconds)
{
    struct tern_store_options options = {.pause_seconds = 0.002,
                                         .retry_seconds = retry_seconds,
                                         .stall_seconds = 1,
                                         .part_bytes = 64 << 10};
    struct tern_store *store;
    setenv("TERN_STORE_PART_BYTES", "65536", 1);
    must(tern_store_open("s3://bucket/run", &options, &store));
    return store;
}

static void reset(void)
{
    store_server_control(&g_server, "{\"reset\": true}");
}

/* Nothing in the bucket but whole checkpoints. */
static void check_tidy(struct tern_store *store, int checkpoints)
{
    struct tern_ckpt_entry entries[STEPS];
    int count;
    must(tern_remote_list(store, entries, STEPS, &count));
    assert_int_equal(count, checkpoints);
    for (int i = 0; i < count; i++) {
        assert_true(entries[i].is_good);
        assert_int_equal(entries[i].ranks, RANKS);
        must(tern_remote_verify(store, entries[i].step));
    }
    struct tern_text page;
    int objects = 0;
    store_server_get(&g_server, "/_state", &page);
    for (const char *at = page.data; (at = strstr(at, "run/step-")) != NULL; at++) {
        objects++;
    }
    assert_non_null(strstr(page.data, "\"uploads\": []"));
    tern_text_fini(&page);
    assert_int_equal(objects, checkpoints * (RANKS + 2));
}

static void check_pull(struct tern_store *store, int64_t step)
{
    char run[128], folder[TERN_PATH_BYTES];
    int64_t bytes;
    snprintf(run, sizeof run, "%s/pulled", g_folder);
    must(tern_remote_pull(store, step, run, &bytes));
    must(tern_ckpt_folder(run, step, folder));
    must(tern_ckpt_verify(folder));
    struct tern_ckpt_digest here, there;
    must(tern_ckpt_digest(folder, &there));
    must(tern_ckpt_folder(g_run, step, folder));
    must(tern_ckpt_digest(folder, &here));
    assert_memory_equal(&here, &there, sizeof here);
    must(tern_file_remove_tree(run));
}

static void test_round_trip(void **state)
{
    (void)state;
    struct tern_store *store = open_store(10);
    int64_t step;
    int removed;
    reset();
    assert_int_equal(tern_remote_find(store, &step), TERN_ERR_NOT_FOUND);
    for (int64_t at = 10; at <= 40; at += 10) {
        must(upload(store, at));
        must(upload(store, at)); /* again is free */
        must(tern_remote_find(store, &step));
        assert_int_equal(step, at);
    }
    check_tidy(store, 4);
    check_pull(store, 20);
    must(tern_remote_prune(store, 2, &removed));
    assert_int_equal(removed, 2);
    check_tidy(store, 2);
    must(tern_remote_clean(store, INT64_MAX, &removed));
    assert_int_equal(removed, 0);
    check_pull(store, 40);
    tern_store_close(store);
}

/* A shard that is missing or short makes a checkpoint that is passed over, not one that is pulled. */
static void test_damage(void **state)
{
    (void)state;
    struct tern_store *store = open_store(10);
    char key[TERN_STORE_KEY_BYTES], json[512], folder[TERN_PATH_BYTES];
    struct tern_ckpt_manifest manifest;
    int64_t step, bytes;
    int removed;
    reset();
    must(upload(store, 10));
    must(upload(store, 20));
    must(upload(store, 30));
    read_manifest(30, folder, &manifest);
    snprintf(key, sizeof key, "step-00000030/%s.%s", manifest.files[1].name,
             manifest.files[1].xxh3);
    must(tern_store_remove(store, key));
    tern_ckpt_manifest_fini(&manifest);
    read_manifest(20, folder, &manifest);
    snprintf(json, sizeof json, "{\"damage\": {\"bucket/run/step-00000020/%s.%s\": \"flip\"}}",
             manifest.files[0].name, manifest.files[0].xxh3);
    tern_ckpt_manifest_fini(&manifest);
    store_server_control(&g_server, json);
    must(tern_remote_find(store, &step)); /* sizes are right: only reading it tells */
    assert_int_equal(step, 20);
    assert_int_equal(tern_remote_verify(store, 20), TERN_ERR_CORRUPT);
    char run[128];
    snprintf(run, sizeof run, "%s/pulled", g_folder);
    assert_int_equal(tern_remote_pull(store, 20, run, &bytes), TERN_ERR_CORRUPT);
    must(tern_ckpt_folder(run, 20, folder));
    assert_false(tern_ckpt_is_committed(folder));
    must(tern_file_remove_tree(run));
    snprintf(json, sizeof json,
             "{\"damage\": {\"bucket/run/step-00000020/MANIFEST.json\": \"cut\"}}");
    store_server_control(&g_server, json);
    must(tern_remote_find(store, &step));
    assert_int_equal(step, 10);
    must(tern_remote_prune(store, 1, &removed)); /* never the newest good one */
    must(tern_remote_find(store, &step));
    assert_int_equal(step, 10);
    tern_store_close(store);
}

/* A step that another launch has committed with other bytes stays as it is. */
static void test_two_launches(void **state)
{
    (void)state;
    struct tern_store *store = open_store(10);
    char other[160], folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    struct tern_ckpt_manifest manifest;
    int64_t bytes;
    int removed;
    reset();
    must(upload(store, 10));
    snprintf(other, sizeof other, "%s/other", g_folder);
    must(fixture_write(&g_fixture, other, 10, RANKS + 1, TERN_CKPT_NONE, 0, 1, 2));
    must(tern_ckpt_folder(other, 10, folder));
    must(tern_ckpt_manifest_read(folder, &manifest));
    for (int i = 0; i < manifest.ranks; i++) {
        must(tern_path_join(path, folder, manifest.files[i].name));
        must(tern_remote_push(store, 10, path, &manifest.files[i], NULL));
    }
    tern_ckpt_manifest_fini(&manifest);
    assert_int_equal(tern_remote_commit(store, 10, folder, &bytes), TERN_ERR_BUSY);
    check_pull(store, 10);
    must(tern_remote_clean(store, INT64_MAX, &removed));
    assert_true(removed >= 1); /* what the loser sent */
    check_tidy(store, 1);
    must(tern_file_remove_tree(other));
    tern_store_close(store);
}

/* The first run that comes has the store. */
static void test_owner(void **state)
{
    (void)state;
    static const char first[] = "0123456789abcdef", second[] = "fedcba9876543210";
    static const char *const no_ids[] = {"", "0123456789abcdef", "0123456789abcdeF\n",
                                         "0123456789abcdef0\n", "0123456789abcde\n\n"};
    struct tern_store *store = open_store(10);
    char owner[TERN_REMOTE_ID_BYTES];
    int64_t step;
    int removed;
    reset();
    assert_int_equal(tern_remote_owner(store, owner), TERN_ERR_NOT_FOUND);
    must(upload(store, 10)); /* of a time without ids */
    store_server_control(&g_server,
                         "{\"rules\": [{\"match\": \"PUT .*/id\", \"action\": \"lost\"}]}");
    must(tern_remote_claim(store, first, owner));
    assert_string_equal(owner, first);
    must(tern_remote_claim(store, second, owner));
    assert_string_equal(owner, first);
    must(tern_remote_claim(store, first, owner));
    assert_string_equal(owner, first);
    must(tern_remote_clean(store, INT64_MAX, &removed)); /* the id is no leftover, nor a step */
    assert_int_equal(removed, 0);
    must(tern_remote_find(store, &step));
    must(tern_remote_owner(store, owner));
    assert_string_equal(owner, first);
    for (size_t i = 0; i < sizeof no_ids / sizeof no_ids[0]; i++) {
        must(tern_store_put(store, "id", no_ids[i], strlen(no_ids[i]), false));
        assert_int_equal(tern_remote_owner(store, owner), TERN_ERR_CORRUPT);
        assert_int_equal(tern_remote_claim(store, second, owner), TERN_ERR_CORRUPT);
    }
    assert_non_null(strstr(tern_detail(), "s3://bucket/run/id: expected the 16 hexadecimal"));
    tern_store_close(store);
}

struct claimant {
    struct tern_store *store;
    char id[TERN_REMOTE_ID_BYTES], owner[TERN_REMOTE_ID_BYTES];
    tern_status status;
};

static void *claim(void *arg)
{
    struct claimant *claimant = arg;
    claimant->status = tern_remote_claim(claimant->store, claimant->id, claimant->owner);
    return NULL;
}

/* Of runs that come at the same time one has it, and all know which. */
static void test_claims_at_once(void **state)
{
    (void)state;
    enum {
        CLAIMANTS = 6
    };
    struct claimant claimants[CLAIMANTS];
    pthread_t threads[CLAIMANTS];
    reset();
    for (int i = 0; i < CLAIMANTS; i++) {
        claimants[i].store = open_store(10);
        snprintf(claimants[i].id, sizeof claimants[i].id, "%016x", i);
    }
    for (int i = 0; i < CLAIMANTS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, claim, &claimants[i]), 0);
    }
    int winners = 0;
    for (int i = 0; i < CLAIMANTS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(claimants[i].status, TERN_OK);
        winners += strcmp(claimants[i].id, claimants[i].owner) == 0;
        assert_string_equal(claimants[i].owner, claimants[0].owner);
    }
    assert_int_equal(winners, 1);
    for (int i = 0; i < CLAIMANTS; i++) {
        tern_store_close(claimants[i].store);
    }
}

/* Any schedule of faults: what exists is whole, what was announced stays, and the next launch leaves
 * nothing behind. */
static void test_random_schedules(void **state)
{
    (void)state;
    const struct store_sweep sweep = store_sweep_begin(20);
    int done = 0;
    for (int seed = sweep.first; seed < sweep.first + sweep.count; seed++) {
        struct tern_store *store = open_store(0.2), *calm = open_store(60);
        char json[256];
        bool is_announced[STEPS + 1] = {false};
        int removed;
        reset();
        snprintf(
            json, sizeof json,
            "{\"seed\": %d, \"rate\": 0.%02d, \"actions\": [\"500\", \"503\", \"cut\", \"lost\", "
            "\"half\", \"error200\", \"expired\", \"gone\"%s]}",
            seed, 5 + seed % 40, seed % 20 == 0 ? ", \"stall\"" : "");
        store_server_control(&g_server, json);
        for (int i = 1; i <= STEPS; i++) {
            is_announced[i] = upload(store, 10 * i) == TERN_OK;
            if (seed % 3 == 0) {
                (void)!tern_remote_clean(store, 10 * i, &removed);
            }
        }
        store_server_control(&g_server, "{}");
        struct tern_ckpt_entry entries[STEPS];
        int there;
        must(tern_remote_list(calm, entries, STEPS, &there));
        for (int i = 0; i < there; i++) {
            assert_true(entries[i].is_good);
            is_announced[entries[i].step / 10] = false;
            done++;
        }
        for (int i = 1; i <= STEPS; i++) {
            if (is_announced[i]) {
                fail_msg("seed %d: step %d was announced and is not there", seed, 10 * i);
            }
        }
        must(tern_remote_clean(calm, INT64_MAX, &removed));
        check_tidy(calm, there);
        tern_store_close(calm);
        tern_store_close(store);
        store_sweep_tick(&sweep, seed);
    }
    print_message("%d of %d uploads done\n", done, sweep.count * STEPS);
    assert_true(done > sweep.count);
}

static int start(void **state)
{
    (void)state;
    snprintf(g_folder, sizeof g_folder, "/tmp/tern-remote.XXXXXX");
    if (mkdtemp(g_folder) == NULL) {
        return -1;
    }
    snprintf(g_run, sizeof g_run, "%s/run", g_folder);
    fixture_make(&g_fixture, 7, true);
    for (int64_t step = 10; step <= 10 * STEPS; step += 10) {
        if (fixture_write(&g_fixture, g_run, step, RANKS, TERN_CKPT_ZSTD, 1, 1, STEPS) != TERN_OK) {
            return -1;
        }
    }
    store_server_start(&g_server, STORE_SERVER);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    store_server_stop(&g_server);
    fixture_free(&g_fixture);
    return tern_file_remove_tree(g_folder) == TERN_OK && tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_damage),
        cmocka_unit_test(test_two_launches),   cmocka_unit_test(test_owner),
        cmocka_unit_test(test_claims_at_once), cmocka_unit_test(test_random_schedules),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
