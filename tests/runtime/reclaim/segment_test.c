/* segment_test.c - a block is believed only when it is sealed, whole and ours, whatever lies there instead. */
#include "runtime/base/random.h"
#include "runtime/reclaim/segment.h"
#include "tests/runtime/reclaim/memory_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STEP = 12,
    MUTATIONS = 4000
};

static char g_folder[TERN_PATH_BYTES];
static const struct tern_segment_key g_key = {.run = 0x1234abcd,
                                              .launch = "20260131T235959.123Z-4711",
                                              .owner = "/tmp/run"};

/* Sealed, closed; its path and name. */
static void make_block(char path[TERN_PATH_BYTES], char name[TERN_SEGMENT_NAME_BYTES])
{
    struct tern_ckpt_slab slabs[MEMORY_TENSORS];
    struct tern_segment_layout layout;
    struct tern_segment segment;
    memory_layout(&g_key, 1, 3, slabs, &layout);
    tern_segment_name(&g_key, 1, 0, false, name);
    expect_ok(tern_segment_create(name, &layout, &segment));
    memory_fill(1, 3, STEP, (float *)(void *)tern_segment_data(&segment));
    expect_ok(tern_segment_seal(&segment, STEP, "{\"cursor\":{}}"));
    strcpy(path, segment.shm.path);
    tern_segment_close(&segment);
}

static void test_round_trip(void **state)
{
    (void)state;
    char path[TERN_PATH_BYTES], name[TERN_SEGMENT_NAME_BYTES];
    struct tern_segment segment;
    struct memory_seen seen = {.step = STEP};
    make_block(path, name);
    expect_ok(tern_segment_open(name, &segment));
    expect_ok(tern_segment_verify(&segment));
    assert_int_equal(segment.head->step, STEP);
    assert_int_equal(segment.head->rank, 1);
    assert_int_equal(segment.head->ranks, 3);
    assert_string_equal(segment.state, "{\"cursor\":{}}");
    for (int i = 0; i < MEMORY_TENSORS; i++) {
        struct tern_ckpt_slab slab;
        tern_segment_slab_at(&segment, i, &slab);
        expect_ok(memory_sink(&seen, &slab));
    }
    assert_int_equal(seen.elements * 4, memory_data_bytes(1, 3));
    assert_true(tern_segment_is_unchanged(&segment));
    tern_segment_close(&segment);
    expect_ok(tern_file_remove(path));
    assert_int_equal(tern_segment_open(name, &segment), TERN_ERR_CORRUPT);
}

/* While it is written it is nobody's; whoever reads it then finds out. */
static void test_seal(void **state)
{
    (void)state;
    char name[TERN_SEGMENT_NAME_BYTES];
    struct tern_ckpt_slab slabs[MEMORY_TENSORS];
    struct tern_segment_layout layout;
    struct tern_segment segment, reader;
    char long_json[MEMORY_STATE_ROOM + 1];
    memory_layout(&g_key, 0, 2, slabs, &layout);
    tern_segment_name(&g_key, 0, 1, true, name);
    expect_ok(tern_segment_create(name, &layout, &segment));
    assert_int_equal(tern_segment_open(name, &reader), TERN_ERR_CORRUPT);
    assert_contains(tern_detail(), "not sealed");
    expect_ok(tern_segment_seal(&segment, 1, "{}"));
    expect_ok(tern_segment_open(name, &reader));
    tern_segment_unseal(&segment);
    assert_false(tern_segment_is_unchanged(&reader));
    expect_ok(tern_segment_seal(&segment, 2, "{}"));
    assert_false(tern_segment_is_unchanged(&reader));
    tern_segment_close(&reader);
    memset(long_json, 'x', sizeof long_json - 1);
    long_json[sizeof long_json - 1] = '\0';
    assert_int_equal(tern_segment_seal(&segment, 3, long_json), TERN_ERR_ARGUMENT);
    assert_true(tern_shm_is_held(segment.shm.path));
    expect_ok(tern_file_remove(segment.shm.path));
    tern_segment_close(&segment);
}

/* Opens and verifies; a good answer means that nothing that matters was changed. */
static bool is_believed(const char *name)
{
    struct tern_segment segment;
    if (tern_segment_open(name, &segment) != TERN_OK) {
        return false;
    }
    bool is_good = tern_segment_verify(&segment) == TERN_OK;
    tern_segment_close(&segment);
    return is_good;
}

static void put_byte(const char *path, int64_t at, uint8_t value)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &value, 1, at), 1);
    close(fd);
}

static uint8_t get_byte(const char *path, int64_t at)
{
    uint8_t value;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &value, 1, at), 1);
    close(fd);
    return value;
}

static void test_damage(void **state)
{
    (void)state;
    char path[TERN_PATH_BYTES], name[TERN_SEGMENT_NAME_BYTES];
    const uint64_t stream = tern_random_stream_id(TERN_STREAM_TEST, 0);
    int64_t bytes;
    make_block(path, name);
    expect_ok(tern_file_size(path, &bytes));
    for (int i = 0; i < MUTATIONS; i++) {
        /* every other one in the head, where the numbers are */
        int64_t room = i % 2 == 0 ? (int64_t)sizeof(struct tern_segment_head) : bytes;
        int64_t at = (int64_t)(tern_random_u64(7, stream, (uint64_t)i) % (uint64_t)room);
        uint8_t old = get_byte(path, at);
        put_byte(path, at, (uint8_t)(old ^ (1u << (i / 2 % 8))));
        bool is_padding =
            at >= (int64_t)sizeof(struct tern_segment_head) && at < TERN_SEGMENT_HEAD_BYTES;
        if (is_believed(name) && !is_padding) {
            fail_msg("mutation %d: byte %lld was changed and nobody saw it", i, (long long)at);
        }
        put_byte(path, at, old);
    }
    assert_true(is_believed(name));
    for (int64_t size = 0; size < bytes; size += size < 5000 ? 97 : 4096) {
        assert_int_equal(truncate(path, size), 0);
        assert_false(is_believed(name));
    }
    expect_ok(tern_file_remove(path));
}

/* A head that is sealed rightly by somebody who writes what he likes. */
static void test_hostile_head(void **state)
{
    (void)state;
    static const int64_t numbers[] = {-1, 0, 1, 1 << 20, INT64_MAX, INT64_MIN, INT64_MAX / 2};
    static const size_t fields[] = {offsetof(struct tern_segment_head, step),
                                    offsetof(struct tern_segment_head, slab_count),
                                    offsetof(struct tern_segment_head, state_room),
                                    offsetof(struct tern_segment_head, state_bytes),
                                    offsetof(struct tern_segment_head, data_bytes)};
    char path[TERN_PATH_BYTES], name[TERN_SEGMENT_NAME_BYTES];
    make_block(path, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct tern_segment_head head, good;
    assert_int_equal(pread(fd, &good, sizeof good, 0), (ssize_t)sizeof good);
    for (size_t field = 0; field < sizeof fields / sizeof fields[0]; field++) {
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            struct tern_segment segment;
            head = good;
            memcpy((uint8_t *)&head + fields[field], &numbers[i], sizeof numbers[i]);
            head.seal = tern_hash_u64(&head, offsetof(struct tern_segment_head, seal), 0);
            assert_int_equal(pwrite(fd, &head, sizeof head, 0), (ssize_t)sizeof head);
            if (tern_segment_open(name, &segment) == TERN_OK) { /* only what is harmless */
                (void)!tern_segment_verify(&segment);
                assert_true(field == 0 || field == 3 ||
                            (field == 1 && segment.head->slab_count <= MEMORY_TENSORS));
                tern_segment_close(&segment);
            }
        }
    }
    close(fd);
    expect_ok(tern_file_remove(path));
}

/* A table that is hashed rightly, with rows that point elsewhere. */
static void test_hostile_table(void **state)
{
    (void)state;
    const struct tern_segment_slab good = {.group = "model",
                                           .name = "w",
                                           .dtype = TERN_F32,
                                           .rank = 2,
                                           .shape = {4, 8},
                                           .row_offset = 1,
                                           .row_count = 2,
                                           .at = 64};
    expect_ok(tern_segment_check_slabs(&good, 1, 128));
    struct tern_segment_slab rows[10];
    for (int i = 0; i < 10; i++) {
        rows[i] = good;
    }
    rows[0].at = 68;
    rows[1].at = -4;
    rows[2].row_count = 4;
    rows[3].row_offset = -1;
    rows[4].shape[1] = INT64_MAX / 2;
    rows[5].rank = 5;
    rows[6].dtype = 99;
    memset(rows[7].name, 'x', sizeof rows[7].name);
    rows[8].row_count = -1;
    rows[9].at = 66;
    for (int i = 0; i < 10; i++) {
        if (tern_segment_check_slabs(&rows[i], 1, 128) != TERN_ERR_CORRUPT) {
            fail_msg("row %d is believed", i);
        }
    }
}

/* What is not a plain file of this user is not looked at. */
static void test_strangers(void **state)
{
    (void)state;
    char path[TERN_PATH_BYTES], name[TERN_SEGMENT_NAME_BYTES], link_name[TERN_PATH_BYTES];
    struct tern_segment segment;
    make_block(path, name);
    snprintf(link_name, sizeof link_name, "%.4000s/tern-link", g_folder);
    assert_int_equal(symlink(path, link_name), 0);
    assert_int_equal(tern_segment_open("tern-link", &segment), TERN_ERR_CORRUPT);
    assert_int_equal(unlink(link_name), 0);
    assert_int_equal(mkfifo(link_name, 0600), 0);
    assert_int_equal(tern_segment_open("tern-link", &segment), TERN_ERR_CORRUPT);
    assert_int_equal(unlink(link_name), 0);
    expect_ok(tern_file_remove(path));
}

/* What can't be taken is said at once, and leaves nothing. */
static void test_no_room(void **state)
{
    (void)state;
    struct tern_shm shm;
    char path[TERN_PATH_BYTES];
    assert_int_equal(tern_shm_create("tern-huge", (size_t)1 << 62, &shm), TERN_ERR_IO);
    assert_contains(tern_detail(), "tern-huge");
    assert_null(shm.data);
    snprintf(path, sizeof path, "%.4000s/tern-huge", g_folder);
    assert_false(tern_file_exists(path));
}

int main(void)
{
    make_folder(g_folder);
    setenv("TERN_SHM_DIR", g_folder, 1);
    const struct CMUnitTest tests[] = {CHECKED(test_round_trip),    CHECKED(test_seal),
                                       CHECKED(test_damage),        CHECKED(test_hostile_head),
                                       CHECKED(test_hostile_table), CHECKED(test_strangers),
                                       CHECKED(test_no_room)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(g_folder);
    return failed;
}
