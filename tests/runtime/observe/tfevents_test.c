/* tfevents_test.c - checksums with known answers, records that a reader of the format finds whole, a disk that fills. */
#include "runtime/base/clock.h"
#include "runtime/observe/tfevents.h"
#include "tests/runtime/fixture.h"

static char g_root[TERN_PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    make_folder(g_root);
    return 0;
}

static int tear_down(void **state)
{
    arm(NULL);
    remove_folder(g_root);
    return check_no_live_blocks(state);
}

/* RFC 3720, B.4, and the check value of the CRC catalogue. */
static void test_crc(void **state)
{
    (void)state;
    unsigned char bytes[32];
    assert_int_equal(tern_crc32c("123456789", 9), 0xe3069283);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(tern_crc32c(bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(tern_crc32c(bytes, sizeof bytes), 0x62a8ab43);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (unsigned char)i;
    }
    assert_int_equal(tern_crc32c(bytes, sizeof bytes), 0x46dd794e);
    assert_int_equal(tern_crc32c("", 0), 0);
}

/* ---- a reader ---- */

struct found {
    int files, records, events;
    int64_t last_step, session_step;
    float last_loss;
};

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

static uint64_t varint(const unsigned char **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            return value;
        }
    }
}

/* The value of the first scalar of a Summary, whose tag must be train/loss. */
static float first_scalar(const unsigned char *at)
{
    static const char tag[] = "train/loss";
    assert_int_equal(*at++, 0x0a);
    (void)varint(&at);
    assert_int_equal(*at++, 0x0a);
    assert_int_equal(varint(&at), sizeof tag - 1);
    assert_memory_equal(at, tag, sizeof tag - 1);
    at += sizeof tag - 1;
    assert_int_equal(*at++, 0x15);
    uint32_t bits = (uint32_t)little(at, 4);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void read_event(const unsigned char *at, const unsigned char *end, struct found *found)
{
    int64_t step = 0;
    found->records++;
    while (at < end) {
        uint64_t key = varint(&at);
        switch (key) {
        case 1 << 3 | 1:
            at += 8;
            break;
        case 2 << 3:
            step = (int64_t)varint(&at);
            break;
        case 3 << 3 | 2:
            assert_int_equal(varint(&at), 13);
            assert_memory_equal(at, "brain.Event:2", 13);
            at += 13;
            break;
        case 5 << 3 | 2: {
            uint64_t bytes = varint(&at);
            found->last_loss = first_scalar(at);
            found->last_step = step;
            found->events++;
            at += bytes;
            break;
        }
        case 7 << 3 | 2:
            found->session_step = step;
            at += varint(&at);
            break;
        default:
            fail_msg("field %llu", (unsigned long long)key);
        }
    }
    assert_ptr_equal(at, end);
}

/* All records of a file until its end or, where may_be_torn, a piece of one. */
static void read_records(const char *path, bool may_be_torn, struct found *found)
{
    char *text;
    size_t bytes;
    expect_ok(tern_file_read(path, 1 << 26, &text, &bytes));
    const unsigned char *at = (const unsigned char *)text;
    size_t left = bytes;
    while (left >= 16) {
        uint64_t length = little(at, 8);
        assert_int_equal(little(at + 8, 4), tern_crc32c_masked(at, 8));
        if (length + 16 > left) {
            break;
        }
        assert_int_equal(little(at + 12 + length, 4), tern_crc32c_masked(at + 12, length));
        read_event(at + 12, at + 12 + length, found);
        at += length + 16;
        left -= length + 16;
    }
    if (left != 0 && !may_be_torn) {
        fail_msg("%zu bytes behind the last record of %s", left, path);
    }
    tern_free(text);
}

static struct found read_all(bool may_be_torn)
{
    char **names;
    int count;
    struct found found = {.session_step = -1};
    expect_ok(tern_file_list(g_root, &names, &count));
    for (int i = 0; i < count; i++) {
        char path[TERN_PATH_BYTES];
        assert_int_equal(strncmp(names[i], "events.out.tfevents.", 20), 0);
        expect_ok(tern_path_join(path, g_root, names[i]));
        read_records(path, may_be_torn, &found);
        found.files++;
    }
    tern_free(names);
    return found;
}

static void add(struct tern_tfevents *events, int64_t step, double loss)
{
    const struct tern_tfevents_scalar scalars[] = {
        {"train/loss", loss}, {"speed/tokens_per_second", 1e9}, {"train/grad_norm", 0.5}};
    tern_tfevents_add(events, step, scalars, 3);
}

static void test_events(void **state)
{
    (void)state;
    struct tern_tfevents *events;
    expect_ok(tern_tfevents_open(g_root, 41, &events));
    tern_mem_freeze(true);
    for (int64_t step = 42; step <= 3000; step++) {
        add(events, step, 1.0 / (double)step);
    }
    add(NULL, 1, 1);
    tern_mem_freeze(false);
    tern_tfevents_close(events);
    tern_tfevents_close(NULL);
    assert_int_equal(tern_mem_stats().frozen_violations, 0);
    struct found found = read_all(false);
    assert_int_equal(found.files, 1);
    assert_int_equal(found.events, 2959);
    assert_int_equal(found.records, 2961);
    assert_int_equal(found.last_step, 3000);
    assert_int_equal(found.session_step,
                     42); /* what is from there on, of an earlier launch, is void */
    assert_true(found.last_loss == (float)(1.0 / 3000));
}

/* After a write that went wrong in the middle: whole records in another file, and every file readable up to its end. */
static void test_full_disk(void **state)
{
    (void)state;
    struct tern_tfevents *events;
    expect_ok(tern_tfevents_open(g_root, 0, &events));
    arm("observe.append@2:short,observe.append@3:enospc");
    for (int64_t step = 1; step <= 5000; step++) {
        add(events, step, (double)step);
    }
    tern_tfevents_close(events);
    arm(NULL);
    struct found found = read_all(true);
    assert_int_equal(found.files, 2);
    assert_int_equal(found.last_step, 5000);
    assert_true(found.events > 3000);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_crc),
        IN_FOLDER(test_events),
        IN_FOLDER(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
