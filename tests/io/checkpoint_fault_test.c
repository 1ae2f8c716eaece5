/* checkpoint_fault_test.c - whatever fails, is killed, filled up or flipped: the checkpoints before
 * it stay good, and a bad one is never called good. */
#include "io/checkpoint_parts.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/io/checkpoint_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

enum {
    KILLS = 120,
    KEEP = 2,     /* checkpoints that a commit leaves */
    ENTRIES = 32, /* more than any chain of deaths piles up */
    FLIPS = 60,
    SEED = 20260131
};

static char g_run[TERN_PATH_BYTES];
static struct fixture g_old, g_new;

static int setup(void **state)
{
    (void)state;
    setenv("TERN_LOG", "error", 0); /* damage is the business of this test */
    if (tern_log_init() != TERN_OK) {
        return -1;
    }
    fixture_make_folder(g_run);
    fixture_make(&g_old, 1, true);
    fixture_make(&g_new, 2, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_free(&g_old);
    fixture_free(&g_new);
    bool removed = tern_file_remove_tree(g_run) == TERN_OK;
    if (tern_mem_stats().live_blocks != 0) {
        fprintf(stderr, "%lld blocks are still allocated\n",
                (long long)tern_mem_stats().live_blocks);
    }
    return removed && tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

static void expect_ok(tern_status status)
{
    if (status != TERN_OK) {
        fail_msg("%s: %s", tern_status_name(status), tern_detail());
    }
}

static void run_folder(const char *name, char run[TERN_PATH_BYTES])
{
    expect_ok(tern_path_join(run, g_run, name));
    expect_ok(tern_file_remove_tree(run));
    expect_ok(tern_file_make_folder(run));
}

/* The newest good checkpoint: its step; its values are those of the fixture that wrote it. */
static int64_t expect_good(const char *run, int64_t old_step)
{
    char found[TERN_PATH_BYTES];
    int64_t step;
    expect_ok(tern_ckpt_find(run, found, &step));
    fixture_check(step == old_step ? &g_old : &g_new, found, 2);
    return step;
}

/* Every point, every action, several passes: an error or a success, and then what find gives is
 * whole. */
static void test_every_fault(void **state)
{
    (void)state;
    static const char *const points[] = {"file.open",     "file.write",  "file.fsync",
                                         "file.rename",   "ckpt.shard",  "ckpt.view",
                                         "ckpt.manifest", "ckpt.latest", "ckpt.prune"};
    static const char *const actions[] = {"enospc", "eio", "short"};
    char run[TERN_PATH_BYTES];
    int failures = 0;
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        for (int a = 0; a < 3; a++) {
            for (int k = 0; k < 5; k++) {
                static const int passes[] = {1, 2, 4, 7, 11};
                int pass = passes[k];
                char rules[64];
                run_folder("faults", run);
                expect_ok(fixture_write(&g_old, run, 1, 1, TERN_CKPT_NONE, 1, 0, 2));
                expect_ok(fixture_write(&g_old, run, 2, 1, TERN_CKPT_NONE, 1, 0, 2));
                snprintf(rules, sizeof rules, "%s@%d:%s", points[p], pass, actions[a]);
                fixture_arm(rules);
                tern_status status = fixture_write(&g_new, run, 3, 2, TERN_CKPT_NONE, 1, 0, 2);
                fixture_arm(NULL);
                if (status != TERN_OK) {
                    failures++;
                    assert_int_equal(status, a == 0 ? TERN_ERR_NO_SPACE : TERN_ERR_IO);
                    assert_non_null(strstr(tern_detail(), "step 3"));
                }
                /* A commit that failed on the sync after its rename may be there or not; one that
                 * succeeded is. */
                int64_t step = expect_good(run, 2);
                if (status == TERN_OK) {
                    assert_int_equal(step, 3);
                }
                expect_ok(
                    fixture_write(&g_new, run, 4, 2, TERN_CKPT_NONE, 1, 0, 2)); /* and it goes on */
                assert_int_equal(expect_good(run, 2), 4);
            }
        }
    }
    assert_true(failures > 40); /* the points are really passed */
}

/* A restore that fails says so. */
static void test_restore_fault(void **state)
{
    (void)state;
    char run[TERN_PATH_BYTES], folder[TERN_PATH_BYTES];
    struct tern_ckpt_reader *reader;
    run_folder("restore", run);
    expect_ok(fixture_write(&g_old, run, 2, 1, TERN_CKPT_NONE, 1, 0, 2));
    expect_ok(tern_ckpt_folder(run, 2, folder));
    fixture_arm("ckpt.restore:eio");
    assert_int_equal(tern_ckpt_open(folder, &reader), TERN_ERR_IO);
    fixture_arm(NULL);
    fixture_check(&g_old, folder, 1);
}

/* ---- damage ---- */

static void flip(const char *path, int64_t offset, unsigned char mask)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= mask;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

/* One changed byte anywhere in any file: verify says bad, find takes the one before; put back, it
 * is good again. */
static void test_flips(void **state)
{
    (void)state;
    static const char *const files[] = {"rank-0000.h5", "rank-0001.h5", "model.h5",
                                        "MANIFEST.json"};
    char run[TERN_PATH_BYTES], folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    run_folder("flips", run);
    expect_ok(fixture_write(&g_old, run, 1, 2, TERN_CKPT_ZSTD, 1, 1, 2));
    expect_ok(fixture_write(&g_new, run, 2, 2, TERN_CKPT_ZSTD, 1, 1, 2));
    expect_ok(tern_ckpt_folder(run, 2, folder));
    for (uint64_t i = 0; i < FLIPS * 4; i++) {
        int64_t bytes;
        expect_ok(tern_path_join(path, folder, files[i % 4]));
        expect_ok(tern_file_size(path, &bytes));
        int64_t offset =
            (int64_t)(tern_random_u64(SEED, TERN_STREAM_TEST, 2 * i) % (uint64_t)bytes);
        unsigned char mask =
            (unsigned char)(1u << tern_random_u64(SEED, TERN_STREAM_TEST, 2 * i + 1) % 8);
        flip(path, offset, mask);
        if (tern_ckpt_verify(folder) == TERN_OK) {
            fail_msg("%s with byte %lld changed by %u verifies", path, (long long)offset, mask);
        }
        if (i % 8 < 4) {
            assert_int_equal(expect_good(run, 1), 1);
        }
        flip(path, offset, mask);
        expect_ok(tern_ckpt_verify(folder));
    }
    assert_int_equal(expect_good(run, 1), 2);
}

static void test_missing_and_cut_files(void **state)
{
    (void)state;
    static const char *const files[] = {"rank-0000.h5", "rank-0001.h5", "model.h5"};
    char run[TERN_PATH_BYTES], folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    run_folder("missing", run);
    expect_ok(fixture_write(&g_old, run, 1, 2, TERN_CKPT_NONE, 1, 0, 2));
    for (int i = 0; i < 9; i++) {
        expect_ok(fixture_write(&g_new, run, 2, 2, TERN_CKPT_NONE, 1, 0, 2));
        expect_ok(tern_ckpt_folder(run, 2, folder));
        expect_ok(tern_path_join(path, folder, files[i % 3]));
        int64_t bytes;
        expect_ok(tern_file_size(path, &bytes));
        if (i < 3) {
            expect_ok(tern_file_remove(path));
        } else {
            assert_int_equal(truncate(path, i < 6 ? bytes - 1 : 0), 0);
        }
        assert_int_equal(tern_ckpt_verify(folder), TERN_ERR_CORRUPT);
        assert_non_null(strstr(tern_detail(), files[i % 3]));
        assert_int_equal(expect_good(run, 1), 1);
    }
    /* None left: corrupt, not "none". */
    for (int64_t step = 1; step <= 2; step++) {
        expect_ok(tern_ckpt_folder(run, step, folder));
        expect_ok(tern_path_join(path, folder, files[0]));
        expect_ok(tern_file_remove(path));
    }
    assert_int_equal(tern_ckpt_find(run, folder, &(int64_t){0}), TERN_ERR_CORRUPT);
}

/* A reader that opened before a shard was damaged names the tensor that it cannot give. */
static void test_reader_names_tensor(void **state)
{
    (void)state;
    char run[TERN_PATH_BYTES], folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    struct tern_ckpt_reader *reader;
    float rows[31 * 96];
    run_folder("names", run);
    expect_ok(fixture_write(&g_old, run, 1, 2, TERN_CKPT_NONE, 1, 0, 2));
    expect_ok(tern_ckpt_folder(run, 1, folder));
    expect_ok(tern_path_join(path, folder, "rank-0001.h5"));
    expect_ok(tern_ckpt_open(folder, &reader));
    expect_ok(tern_file_remove(path));
    expect_ok(tern_ckpt_read(reader, "model", "wte.weight", 0, 16, rows)); /* all in shard 0 */
    assert_int_equal(tern_ckpt_read(reader, "model", "wte.weight", 0, 31, rows), TERN_ERR_CORRUPT);
    assert_non_null(strstr(tern_detail(), "wte.weight"));
    assert_non_null(strstr(tern_detail(), "rank-0001.h5"));
    tern_ckpt_close(reader);
}

/* Manifests that are wrong inside but carry a right seal, as a bug or a tool would make them; and
 * plain damage. */
static void test_bad_manifests(void **state)
{
    (void)state;
    static const char *const edits[][2] = {
        {"tern-checkpoint", "tern-checkpoinT"},
        {"\"version\":1", "\"version\":2"},
        {"\"ranks\":2", "\"ranks\":3"},
        {"\"ranks\":2", "\"ranks\":0"},
        {"\"ranks\":2", "\"ranks\":-2"},
        {"\"step\":1", "\"step\":-1"},
        {"\"step\":1", "\"step\":\"1\""},
        {"rank-0001.h5", "rank-0002.h5"},
        {"rank-0001.h5", "../../etc/x"},
        {"\"bytes\":", "\"bytes\":-"},
        {"\"files\"", "\"flies\""},
        {"\"tensors\"", "\"sensors\""},
        {"\"f32\"", "\"f33\""},
        {"[31,96]", "[31,-96]"},
        {"[31,96]", "[31,96,1,1,1]"},
        {"[31,96]", "[9223372036854775807,96]"},
        {"[31,96]", "[32,96]"},
        {"[[0,0,16],[1,16,15]]", "[[0,0,16]]"},
        {"[[0,0,16],[1,16,15]]", "[[0,0,16],[1,15,16]]"},
        {"[[0,0,16],[1,16,15]]", "[[0,0,16],[7,16,15]]"},
        {"[[0,0,16],[1,16,15]]", "[[1,0,16],[0,16,15]]"},
        {"[[0,0,16],[1,16,15]]", "[[0,0,31]]"},
        {"h.0.tiny", "wte.weight"},
        {"wte.weight", "wte/weight"},
        {"wte.weight", "wtf.weight"},
        {"{", "["},
    };
    char run[TERN_PATH_BYTES], folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    run_folder("manifests", run);
    expect_ok(fixture_write(&g_old, run, 1, 2, TERN_CKPT_NONE, 1, 0, 2));
    expect_ok(tern_ckpt_folder(run, 1, folder));
    expect_ok(tern_path_join(path, folder, "MANIFEST.json"));
    expect_ok(tern_file_read(path, 1 << 20, &text, &bytes));
    char *copy = tern_alloc("test", bytes + 256);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        const char *at = strstr(text, edits[i][0]);
        assert_non_null(at);
        size_t head = (size_t)(at - text), cut = strlen(edits[i][0]), put = strlen(edits[i][1]);
        memcpy(copy, text, head);
        memcpy(copy + head, edits[i][1], put);
        memcpy(copy + head + put, at + cut, bytes - head - cut);
        size_t length = bytes - cut + put;
        expect_ok(tern_file_replace(path, copy, length)); /* the seal no longer fits */
        assert_int_equal(tern_ckpt_verify(folder), TERN_ERR_CORRUPT);
        char digits[TERN_HASH_HEX_BYTES];
        memset(copy + length - 3 - 32, '0', 32);
        tern_hash_bytes(copy, length, digits);
        memcpy(copy + length - 3 - 32, digits, 32);
        expect_ok(tern_file_replace(path, copy, length)); /* and now it does */
        tern_status status = tern_ckpt_verify(folder);
        if (status == TERN_OK) {
            fail_msg("a manifest with %s in place of %s verifies", edits[i][1], edits[i][0]);
        }
    }
    static const size_t cuts[] = {0, 1, 30, 100};
    for (int i = 0; i < 4; i++) {
        expect_ok(tern_file_replace(path, text, cuts[i]));
        assert_int_equal(tern_ckpt_verify(folder), TERN_ERR_CORRUPT);
    }
    expect_ok(tern_file_replace(path, text, bytes));
    expect_ok(tern_ckpt_verify(folder));
    tern_free(copy);
    tern_free(text);
}

/* ---- full and read-only disks ---- */

static void test_full_disk(void **state)
{
    (void)state;
    char run[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    run_folder("full", run);
    /* A mount of this process only: gone with it, whatever happens. */
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tern-test", run, "tmpfs", 0, "size=3m") != 0) {
        /* EINVAL: the root is that of a chroot, and no mount point, so that mounts would show outside */
        if (errno != EPERM && errno != EACCES && errno != EINVAL) {
            fail_msg("no file system of its own: %s", strerror(errno));
        }
        print_message(
            "skipped: no file system of its own to fill (it takes root, and a root that is a "
            "mount point): %s\n",
            strerror(errno));
        skip();
    }
    struct fixture large;
    fixture_make(&large, 3, false);
    expect_ok(fixture_write(&g_old, run, 1, 2, TERN_CKPT_NONE, 1, 0, 2));
    static const enum tern_ckpt_compression kinds[] = {TERN_CKPT_NONE, TERN_CKPT_ZSTD};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fixture_write(&large, run, 2, 2, kinds[i % 2], 1, i / 2, 2),
                         TERN_ERR_NO_SPACE);
        assert_int_equal(expect_good(run, 1), 1);
        expect_ok(tern_ckpt_folder(run, 2, path));
        expect_ok(tern_ckpt_clean(run));
        assert_false(tern_file_exists(path));
    }
    expect_ok(fixture_write(&g_new, run, 3, 2, TERN_CKPT_NONE, 1, 0, 2)); /* there is room again */
    assert_int_equal(expect_good(run, 1), 3);
    assert_int_equal(mount("tern-test", run, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=3m"), 0);
    assert_int_equal(fixture_write(&g_new, run, 4, 2, TERN_CKPT_NONE, 1, 0, 2), TERN_ERR_IO);
    assert_non_null(strstr(tern_detail(), "Read-only"));
    assert_int_equal(expect_good(run, 1), 3);
    assert_int_equal(umount(run), 0);
    fixture_free(&large);
}

/* ---- killed at any moment ---- */

/* Saves step after step and announces each on the pipe once it is committed; never returns. */
static void save_forever(const char *run, int64_t first, int pipe_fd)
{
    for (int64_t step = first;; step++) {
        const struct fixture *fixture = step % 2 ? &g_new : &g_old;
        int ranks = 1 + (int)(step % 3);
        tern_status status = fixture_write(
            fixture, run, step, ranks, step % 4 < 2 ? TERN_CKPT_NONE : TERN_CKPT_ZSTD, 1, 1, KEEP);
        if (status != TERN_OK || write(pipe_fd, &step, sizeof step) != (ssize_t)sizeof step) {
            _exit(1);
        }
    }
}

static int64_t last_announced(int fd, int64_t before)
{
    int64_t step, last = before;
    while (read(fd, &step, sizeof step) == (ssize_t)sizeof step) {
        last = step;
    }
    return last;
}

/* Half of the kills come at a random time, half at a random pass of a random fault point. */
static void test_kills(void **state)
{
    (void)state;
    static const char *const points[] = {"file.open",   "file.write", "file.fsync",
                                         "file.rename", "ckpt.shard", "ckpt.manifest",
                                         "ckpt.latest", "ckpt.prune"};
    char run[TERN_PATH_BYTES], found[TERN_PATH_BYTES];
    run_folder("kills", run);
    int64_t announced = 0, step = 0;
    int kept = 0; /* committed checkpoints after the kill before */
    for (uint64_t i = 0; i < KILLS; i++) {
        int ends[2];
        uint64_t draw = tern_random_u64(SEED, TERN_STREAM_TEST, 1000 + i);
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(ends[0]);
            if (i % 2 == 0) {
                char rules[64];
                snprintf(rules, sizeof rules, "%s@%d:kill", points[draw % 8],
                         1 + (int)(draw / 8 % 23));
                fixture_arm(rules);
            }
            save_forever(run, step + 1, ends[1]);
        }
        close(ends[1]);
        if (i % 2 == 1) {
            struct timespec pause_time = {0, (long)(draw % 120) * 1000000};
            nanosleep(&pause_time, NULL);
            kill(child, SIGKILL);
        }
        int how;
        waitpid(child, &how, 0);
        assert_true(WIFSIGNALED(how));
        announced = last_announced(ends[0], announced);
        close(ends[0]);
        tern_status status = tern_ckpt_find(run, found, &step);
        if (announced == 0 && status == TERN_ERR_NOT_FOUND) {
            step = 0;
            continue;
        }
        expect_ok(status);
        assert_true(step >= announced); /* announced means durable */
        fixture_check(step % 2 ? &g_new : &g_old, found, 2);
        struct tern_ckpt_entry entries[ENTRIES];
        int count;
        expect_ok(tern_ckpt_clean(run));
        expect_ok(tern_ckpt_list(run, entries, ENTRIES, &count));
        /* A death between a commit and its prune leaves one more than there were, never two. */
        assert_in_range(count, 1, (kept > KEEP ? kept : KEEP) + 1);
        assert_true(count <= ENTRIES);
        kept = count;
        for (int k = 0; k < count; k++) {
            char folder[TERN_PATH_BYTES];
            expect_ok(tern_ckpt_folder(run, entries[k].step, folder));
            expect_ok(tern_ckpt_verify(folder)); /* not one committed checkpoint is bad */
        }
    }
    assert_true(announced > 10);
    /* Whatever the deaths left behind, one save that is not disturbed brings it back to what is kept. */
    fixture_arm(NULL);
    expect_ok(fixture_write(&g_new, run, step + 1, 2, TERN_CKPT_NONE, 1, 1, KEEP));
    int left;
    expect_ok(tern_ckpt_list(run, NULL, 0, &left));
    assert_int_equal(left, KEEP);
    print_message("%d kills, newest announced step %lld\n", KILLS, (long long)announced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fault),   cmocka_unit_test(test_restore_fault),
        cmocka_unit_test(test_flips),         cmocka_unit_test(test_missing_and_cut_files),
        cmocka_unit_test(test_bad_manifests), cmocka_unit_test(test_reader_names_tensor),
        cmocka_unit_test(test_full_disk),     cmocka_unit_test(test_kills),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
