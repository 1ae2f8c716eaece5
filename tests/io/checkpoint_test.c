/* checkpoint_test.c - any ranks write, any ranks read; layouts, digests, lists, replacement and
 * pruning. */
#include "io/checkpoint_parts.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "tests/io/checkpoint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static char g_run[TERN_PATH_BYTES];
static struct fixture g_fixture;

static int setup(void **state)
{
    (void)state;
    fixture_make_folder(g_run);
    fixture_make(&g_fixture, 7, false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_free(&g_fixture);
    if (tern_file_remove_tree(g_run) != TERN_OK) {
        return -1;
    }
    if (tern_mem_stats().live_blocks != 0) {
        fprintf(stderr, "%lld blocks are still allocated\n",
                (long long)tern_mem_stats().live_blocks);
        return -1;
    }
    return 0;
}

static void expect_ok(tern_status status)
{
    if (status != TERN_OK) {
        fail_msg("%s: %s", tern_status_name(status), tern_detail());
    }
}

static void test_any_split(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 8, 13};
    static const enum tern_ckpt_compression kinds[] = {TERN_CKPT_NONE, TERN_CKPT_ZSTD,
                                                       TERN_CKPT_AUTO};
    char found[TERN_PATH_BYTES];
    int64_t step = 0, found_step;
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        enum tern_ckpt_compression kind = kinds[i % 3];
        expect_ok(
            fixture_write(&g_fixture, g_run, ++step, ranks[i], kind, 1 + (int)i, (int)i % 3, 2));
        expect_ok(tern_ckpt_find(g_run, found, &found_step));
        assert_int_equal(found_step, step);
        for (size_t k = 0; k < sizeof ranks / sizeof ranks[0]; k++) {
            fixture_check(&g_fixture, found, ranks[k]);
        }
    }
}

/* The same tensors: the same digest, however they lie on disk. Another value: another digest. */
static void test_digest(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 8};
    struct tern_ckpt_digest first = {"", "", "", ""}, next;
    char folder[TERN_PATH_BYTES];
    expect_ok(tern_ckpt_folder(g_run, 50, folder));
    for (int i = 0; i < 8; i++) {
        expect_ok(fixture_write(&g_fixture, g_run, 50, ranks[i / 2],
                                i % 2 ? TERN_CKPT_ZSTD : TERN_CKPT_NONE, 1, 1, 2));
        expect_ok(tern_ckpt_digest(folder, i == 0 ? &first : &next));
        if (i > 0) {
            assert_memory_equal(&first, &next, sizeof first);
        }
    }
    assert_int_equal(strlen(first.model), 32);
    assert_string_not_equal(first.exp_avg, first.exp_avg_sq);
    ((float *)g_fixture.tensors[0].data)[5] += 1;
    expect_ok(fixture_write(&g_fixture, g_run, 50, 2, TERN_CKPT_NONE, 1, 1, 2));
    expect_ok(tern_ckpt_digest(folder, &next));
    assert_string_not_equal(first.model, next.model);
    assert_string_equal(first.exp_avg, next.exp_avg);
    assert_string_equal(first.cursor, next.cursor);
}

static void read_shard_bytes(int rank, char **data, size_t *bytes)
{
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES], name[32];
    expect_ok(tern_ckpt_folder(g_run, 60, folder));
    tern_ckpt_shard_name(rank, name);
    expect_ok(tern_path_join(path, folder, name));
    expect_ok(tern_file_read(path, 1 << 30, data, bytes));
}

/* A shard's bytes depend on its content and the level, not on the threads that compress it. */
static void test_deterministic_bytes(void **state)
{
    (void)state;
    char *first, *next;
    size_t first_bytes, next_bytes;
    expect_ok(fixture_write(&g_fixture, g_run, 60, 2, TERN_CKPT_ZSTD, 3, 0, 2));
    read_shard_bytes(1, &first, &first_bytes);
    for (int threads = 1; threads < 6; threads++) {
        expect_ok(fixture_write(&g_fixture, g_run, 60, 2, TERN_CKPT_ZSTD, 3, threads, 2));
        read_shard_bytes(1, &next, &next_bytes);
        assert_int_equal(next_bytes, first_bytes);
        assert_memory_equal(next, first, first_bytes);
        tern_free(next);
    }
    tern_free(first);
}

static void test_reader(void **state)
{
    (void)state;
    char folder[TERN_PATH_BYTES];
    struct tern_ckpt_reader *reader;
    int rank;
    int64_t shape[TERN_CKPT_RANK_MAX];
    enum tern_dtype dtype;
    float values[96];
    expect_ok(fixture_write(&g_fixture, g_run, 70, 3, TERN_CKPT_NONE, 1, 0, 2));
    expect_ok(tern_ckpt_folder(g_run, 70, folder));
    expect_ok(tern_ckpt_open(folder, &reader));
    assert_int_equal(tern_ckpt_step(reader), 70);
    assert_string_equal(tern_ckpt_state_json(reader),
                        "{\"cursor\": {\"step\": 70, \"x\": 0.1},\n \"note\": \"ranks 3\"}");
    int64_t index = 0;
    for (int i = 0; i < g_fixture.count; i++) {
        const struct fixture_tensor *tensor = &g_fixture.tensors[i];
        if (strcmp(tensor->group, "model") == 0) {
            assert_string_equal(tern_ckpt_tensor(reader, "model", index++, &rank, shape, &dtype),
                                tensor->name);
            assert_int_equal(rank, tensor->rank);
            assert_int_equal(dtype, tensor->dtype);
            assert_memory_equal(shape, tensor->shape, sizeof shape);
        }
    }
    assert_null(tern_ckpt_tensor(reader, "model", index, &rank, shape, &dtype));
    assert_null(tern_ckpt_tensor(reader, "nothing", 0, &rank, shape, &dtype));
    assert_int_equal(tern_ckpt_read(reader, "model", "no.such.tensor", 0, 1, values),
                     TERN_ERR_NOT_FOUND);
    assert_non_null(strstr(tern_detail(), "no.such.tensor"));
    assert_int_equal(tern_ckpt_read(reader, "model", "wte.weight", 1501, 1, values),
                     TERN_ERR_ARGUMENT);
    assert_int_equal(tern_ckpt_read(reader, "model", "wte.weight", -1, 1, values),
                     TERN_ERR_ARGUMENT);
    expect_ok(tern_ckpt_read(reader, "model", "wte.weight", 1501, 0, values));
    expect_ok(tern_ckpt_read(reader, "model", "wte.weight", 777, 1, values));
    assert_memory_equal(values, (float *)g_fixture.tensors[0].data + 777 * 96, sizeof values);
    tern_ckpt_close(reader);
}

/* Large raw data is never copied: HDF5 hands the driver the caller's own pointer. */
static void test_raw_is_borrowed(void **state)
{
    (void)state;
    char path[TERN_PATH_BYTES];
    struct tern_h5_writer *writer;
    struct tern_h5_file file;
    struct tern_h5_shape shape = {.dtype = TERN_F32, .rank = 3, .dims = {3001, 2, 200}};
    const struct fixture_tensor *large = &g_fixture.tensors[13];
    assert_string_equal(large->name, "large");
    expect_ok(tern_path_join(path, g_run, "borrow.h5"));
    expect_ok(tern_h5_create(path, TERN_H5_BORROW, &writer));
    expect_ok(tern_h5_put(writer, "/model/large", &shape, large->data));
    expect_ok(tern_h5_finish(writer, &file));
    assert_true(file.bytes >= (int64_t)large->bytes);
    assert_true(file.copied_bytes < 64 << 10);
    char xxh3[TERN_HASH_HEX_BYTES];
    expect_ok(tern_hash_file(path, xxh3));
    assert_string_equal(xxh3, file.xxh3);
}

/* The streamed form, used when compressed chunks do not fit into memory: same values, hash of what
 * is on disk. */
static void test_streamed_file(void **state)
{
    (void)state;
    char path[TERN_PATH_BYTES], xxh3[TERN_HASH_HEX_BYTES];
    struct tern_h5_writer *writer;
    struct tern_h5_reader *reader;
    struct tern_h5_file file;
    struct tern_h5_shape shape = {.dtype = TERN_F32, .rank = 2, .dims = {1200, 500}}, found;
    const struct fixture_tensor *large = &g_fixture.tensors[13];
    expect_ok(tern_path_join(path, g_run, "stream.h5"));
    expect_ok(tern_h5_create(path, TERN_H5_STREAM, &writer));
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "/model/t%d", i);
        expect_ok(tern_h5_begin_chunks(writer, name, &shape, 400, 1));
        for (int chunk = 0; chunk < 3; chunk++) {
            expect_ok(
                tern_h5_chunk(writer, chunk, (char *)large->data + chunk * 800000, 800000, true));
        }
        expect_ok(tern_h5_end_chunks(writer));
        snprintf(name, sizeof name, "/small/t%d", i);
        shape.dims[0] = 1 + i;
        expect_ok(tern_h5_put(writer, name, &shape, large->data));
        shape.dims[0] = 1200;
    }
    expect_ok(tern_h5_finish(writer, &file));
    expect_ok(tern_hash_file(path, xxh3));
    assert_string_equal(xxh3, file.xxh3);
    expect_ok(tern_h5_open(path, &reader));
    char *back = tern_alloc("test", large->bytes);
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "/model/t%d", i);
        expect_ok(tern_h5_stat(reader, name, &found));
        assert_int_equal(found.dims[0], 1200);
        expect_ok(tern_h5_read_rows(reader, name, 3, 1190, back));
        assert_memory_equal(back, (char *)large->data + 3 * 2000, 1190 * 2000);
        snprintf(name, sizeof name, "/small/t%d", i);
        expect_ok(tern_h5_read_rows(reader, name, 0, 1 + i, back));
        assert_memory_equal(back, large->data, (size_t)(1 + i) * 2000);
    }
    tern_free(back);
    tern_h5_close(reader);
}

static void test_list_and_prune(void **state)
{
    (void)state;
    char run[TERN_PATH_BYTES];
    struct tern_ckpt_entry entries[8];
    int count, removed;
    expect_ok(tern_path_join(run, g_run, "prune"));
    expect_ok(tern_ckpt_list(run, entries, 8, &count));
    assert_int_equal(count, 0);
    assert_int_equal(tern_ckpt_find(run, (char[TERN_PATH_BYTES]){0}, &(int64_t){0}),
                     TERN_ERR_NOT_FOUND);
    for (int step = 1; step <= 5; step++) {
        expect_ok(fixture_write(&g_fixture, run, step * 100, 2, TERN_CKPT_NONE, 1, 0, 4));
    }
    expect_ok(tern_ckpt_list(run, entries, 8, &count));
    assert_int_equal(count, 4); /* keep 4 */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(entries[i].step, 200 + i * 100);
        assert_int_equal(entries[i].ranks, 2);
        assert_true(entries[i].is_good && entries[i].bytes > 1 << 20 && entries[i].time[0] == '2');
    }
    expect_ok(tern_ckpt_prune(run, 3, &removed));
    assert_int_equal(removed, 1);
    /* Damage the newest two: the newest good one survives a prune to two. */
    for (int step = 400; step <= 500; step += 100) {
        char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
        expect_ok(tern_ckpt_folder(run, step, folder));
        expect_ok(tern_path_join(path, folder, "rank-0001.h5"));
        assert_int_equal(truncate(path, 1000), 0);
    }
    expect_ok(fixture_write(&g_fixture, run, 600, 1, TERN_CKPT_NONE, 1, 0, 5));
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    expect_ok(tern_ckpt_folder(run, 600, folder));
    expect_ok(tern_path_join(path, folder, "model.h5"));
    expect_ok(tern_file_remove(path));
    expect_ok(tern_ckpt_list(run, entries, 8, &count));
    assert_int_equal(count, 4);
    assert_false(entries[3].is_good);
    assert_non_null(strstr(entries[3].fault, "model.h5' is missing"));
    expect_ok(tern_ckpt_prune(run, 0, &removed)); /* never below 2 */
    assert_int_equal(removed, 1);
    expect_ok(tern_ckpt_list(run, entries, 8, &count));
    assert_int_equal(entries[0].step, 300);
    assert_int_equal(count, 3);
}

static void test_clean(void **state)
{
    (void)state;
    char run[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    static const char *const leftovers[] = {
        "ckpt/step-00000003/rank-0000.h5", "ckpt/step-00000009.new/rank-0000.h5", "ckpt/LATEST.tmp",
        "ckpt/step-00000001/rank-0000.h5.tmp", "ckpt/step-00000001.old/MANIFEST.json"};
    static const char *const others[] = {"ckpt/notes.txt", "ckpt/step-7/x",
                                         "ckpt/step-00000001x/x"};
    expect_ok(tern_path_join(run, g_run, "clean"));
    expect_ok(fixture_write(&g_fixture, run, 1, 2, TERN_CKPT_NONE, 1, 0, 2));
    for (size_t i = 0; i < 8; i++) {
        char folder[TERN_PATH_BYTES];
        expect_ok(tern_path_join(path, run, i < 5 ? leftovers[i] : others[i - 5]));
        strcpy(folder, path);
        *strrchr(folder, '/') = '\0';
        expect_ok(tern_file_make_folder(folder));
        expect_ok(tern_file_replace(path, "x", 1));
    }
    expect_ok(tern_ckpt_clean(run));
    for (size_t i = 0; i < 8; i++) {
        expect_ok(tern_path_join(path, run, i < 5 ? leftovers[i] : others[i - 5]));
        assert_int_equal(tern_file_exists(path), i >= 5);
    }
    expect_ok(tern_ckpt_folder(run, 1, path));
    expect_ok(tern_ckpt_verify(path));
    /* "step-N.old" with nothing in the place of step N: it is put back. */
    char old[TERN_PATH_BYTES];
    snprintf(old, sizeof old, "%.4000s.old", path);
    assert_int_equal(rename(path, old), 0);
    expect_ok(tern_ckpt_clean(run));
    expect_ok(tern_ckpt_verify(path));
    assert_false(tern_file_exists(old));
}

/* What LATEST says, without the line end; "" when there is none. */
static const char *latest_of(const char *run, char out[64])
{
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    expect_ok(tern_path_join(path, run, "ckpt/LATEST"));
    out[0] = '\0';
    if (tern_file_exists(path)) {
        expect_ok(tern_file_read(path, 63, &text, &bytes));
        snprintf(out, 64, "%s", text);
        out[strcspn(out, "\n")] = '\0';
        tern_free(text);
    }
    return out;
}

/* A commit that failed after its manifest: the checkpoint is there, and clean lets LATEST say so. */
static void test_clean_mends_latest(void **state)
{
    (void)state;
    char run[TERN_PATH_BYTES], path[TERN_PATH_BYTES], latest[64];
    expect_ok(tern_path_join(run, g_run, "latest"));
    expect_ok(fixture_write(&g_fixture, run, 1, 1, TERN_CKPT_NONE, 1, 0, 2));
    fixture_arm("ckpt.latest:enospc");
    expect_ok(fixture_write(&g_fixture, run, 2, 1, TERN_CKPT_NONE, 1, 0, 2));
    fixture_arm(NULL);
    assert_string_equal(latest_of(run, latest), "step-00000001");
    expect_ok(tern_ckpt_clean(run));
    assert_string_equal(latest_of(run, latest), "step-00000002");
    expect_ok(tern_path_join(path, run, "ckpt/LATEST"));
    expect_ok(tern_file_remove(path));
    expect_ok(tern_ckpt_clean(run));
    assert_string_equal(latest_of(run, latest), "step-00000002");
    /* and none when there is nothing to name */
    for (int64_t step = 1; step <= 2; step++) {
        expect_ok(tern_ckpt_folder(run, step, path));
        expect_ok(tern_file_remove_tree(path));
    }
    expect_ok(tern_ckpt_clean(run));
    assert_string_equal(latest_of(run, latest), "");
}

/* A step that exists already stays whole until the new one is; fewer ranks leave no old shards
 * behind. */
static void test_same_step_again(void **state)
{
    (void)state;
    char run[TERN_PATH_BYTES], folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    char **names;
    int count;
    expect_ok(tern_path_join(run, g_run, "again"));
    expect_ok(tern_ckpt_folder(run, 5, folder));
    expect_ok(fixture_write(&g_fixture, run, 5, 4, TERN_CKPT_NONE, 1, 0, 2));
    fixture_arm("ckpt.manifest:eio");
    assert_int_equal(fixture_write(&g_fixture, run, 5, 2, TERN_CKPT_NONE, 1, 0, 2), TERN_ERR_IO);
    fixture_arm(NULL);
    expect_ok(tern_ckpt_verify(folder));
    expect_ok(tern_path_join(path, folder, "rank-0003.h5"));
    assert_true(tern_file_exists(path));
    expect_ok(fixture_write(&g_fixture, run, 5, 2, TERN_CKPT_NONE, 1, 0, 2));
    expect_ok(tern_ckpt_verify(folder));
    expect_ok(tern_file_list(folder, &names, &count));
    assert_int_equal(count, 4); /* MANIFEST.json, model.h5, two shards */
    tern_free(names);
    expect_ok(tern_path_join(path, run, "ckpt"));
    expect_ok(tern_file_list(path, &names, &count));
    assert_int_equal(count, 2); /* LATEST, step-00000005 */
    tern_free(names);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    float data[8] = {0};
    struct tern_ckpt_slab good = {"model", "w", TERN_F32, 0, {4, 2}, 0, 4, data};
    good.rank = 2;
    struct tern_ckpt_slab slabs[10];
    for (int i = 0; i < 10; i++) {
        slabs[i] = good;
    }
    slabs[0].name = "a/b";
    slabs[1].name = "";
    slabs[2].name = "100%";
    slabs[3].group = "state";
    slabs[4].rank = 5;
    slabs[5].row_count = 5;
    slabs[6].row_offset = -1;
    slabs[7].global_shape[1] = 0;
    slabs[8].data = NULL;
    slabs[9].dtype = TERN_DTYPE_CKPT_COUNT;
    struct tern_ckpt_file file;
    struct tern_ckpt_write write = {g_run, 1, 0, 1, NULL, 1, "{}", TERN_CKPT_NONE, 1, 0};
    for (int i = 0; i < 10; i++) {
        write.slabs = &slabs[i];
        assert_int_equal(tern_ckpt_write_shard(&write, &file), TERN_ERR_ARGUMENT);
    }
    write.slabs = &good;
    write.state_json = "{";
    assert_int_equal(tern_ckpt_write_shard(&write, &file), TERN_ERR_ARGUMENT);
    write.state_json = "{}";
    write.rank = 1;
    assert_int_equal(tern_ckpt_write_shard(&write, &file), TERN_ERR_ARGUMENT);
    write.rank = 0;
    write.compression = TERN_CKPT_ZSTD;
    write.level = 99;
    assert_int_equal(tern_ckpt_write_shard(&write, &file), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "99"));
}

/* Shards that leave rows out, overlap, or disagree are no checkpoint; the sentence names the
 * tensor. */
static void test_bad_cover(void **state)
{
    (void)state;
    float data[64] = {0};
    char run[TERN_PATH_BYTES];
    expect_ok(tern_path_join(run, g_run, "cover"));
    static const struct {
        int64_t offset, count, rows;
        const char *words;
    } cases[] = {{5, 3, 8, "row 4 is in no shard"},
                 {3, 5, 8, "row 3 is in two shards"},
                 {4, 3, 8, "row 7 of 8 is in no shard"},
                 {4, 4, 9, "another type or shape"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tern_ckpt_slab slab = {"model", "h.7.w", TERN_F32, 2, {8, 2}, 0, 4, data};
        struct tern_ckpt_file files[2];
        struct tern_ckpt_write write = {run, 1, 0, 2, &slab, 1, "{}", TERN_CKPT_NONE, 1, 0};
        expect_ok(tern_ckpt_write_shard(&write, &files[0]));
        slab.row_offset = cases[i].offset;
        slab.row_count = cases[i].count;
        slab.global_shape[0] = cases[i].rows;
        write.rank = 1;
        expect_ok(tern_ckpt_write_shard(&write, &files[1]));
        assert_int_not_equal(tern_ckpt_commit(run, 1, files, 2, "", 2), TERN_OK);
        if (strstr(tern_detail(), "h.7.w") == NULL ||
            strstr(tern_detail(), cases[i].words) == NULL) {
            fail_msg("'%s' does not say '%s'", tern_detail(), cases[i].words);
        }
        assert_int_equal(tern_ckpt_find(run, (char[TERN_PATH_BYTES]){0}, &(int64_t){0}),
                         TERN_ERR_NOT_FOUND);
    }
}

static void test_run_lock(void **state)
{
    (void)state;
    struct tern_lock lock, second;
    expect_ok(tern_ckpt_lock(g_run, &lock));
    assert_int_equal(tern_ckpt_lock(g_run, &second), TERN_ERR_BUSY);
    assert_non_null(strstr(tern_detail(), "pid"));
    tern_lock_drop(&lock);
    expect_ok(tern_ckpt_lock(g_run, &lock));
    tern_lock_drop(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_split),
        cmocka_unit_test(test_reader),
        cmocka_unit_test(test_raw_is_borrowed),
        cmocka_unit_test(test_streamed_file),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_deterministic_bytes),
        cmocka_unit_test(test_list_and_prune),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_clean_mends_latest),
        cmocka_unit_test(test_same_step_again),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_bad_cover),
        cmocka_unit_test(test_run_lock),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
