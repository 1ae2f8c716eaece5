/* tcp_test.c - ranks that meet without a launcher: all primitives over TCP, every way to find each other, and all that can go
 * wrong before and after. */
#include "comm/tcp/tcp.h"
#include "runtime/base/clock.h"
#include "tests/comm/cmocka_all.h"
#include "tests/comm/spawn.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct spawn_rank g_ranks[SPAWN_RANKS_MAX];

static void expect_good(const struct spawn_job *job)
{
    int files = 0;
    bool is_good = spawn_run(job, g_ranks, &files) && files == 0;
    for (int r = 0; r < job->ranks; r++) {
        is_good = is_good && g_ranks[r].exit_code == 0;
    }
    if (!is_good) {
        spawn_print(job, g_ranks);
        fail_msg("%d ranks, %s: see above (%d files left)", job->ranks, job->check, files);
    }
}

static void expect_word(const struct spawn_job *job, int rank, const char *word)
{
    if (strstr(g_ranks[rank].output, word) == NULL) {
        spawn_print(job, g_ranks);
        fail_msg("rank %d: expected '%s'", rank, word);
    }
}

static void test_checks(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct spawn_job job = {
            TEST_RANKS, "primitives", sizes[i], {"TERN_COMM_TIMEOUT=60", NULL}, 120};
        expect_good(&job);
        job.check = "lanes";
        expect_good(&job);
    }
    struct spawn_job whole = {TEST_RANKS, "whole", 2, {"TERN_COMM_TIMEOUT=60", NULL}, 120};
    expect_good(&whole);
}

/* By the address of rank 0 instead of a file. */
static void test_master(void **state)
{
    (void)state;
    char port[64];
    snprintf(port, sizeof port, "MASTER_PORT=%d", 20000 + getpid() % 10000);
    struct spawn_job job = {TEST_RANKS,
                            "primitives",
                            3,
                            {"TERN_RENDEZVOUS=", "MASTER_ADDR=localhost", port, NULL},
                            120};
    expect_good(&job);
}

/* An old file: of a dead launch, whose port may be somebody else's now; garbage; and one of a launch that still lives. */
static void test_stale_file(void **state)
{
    (void)state;
    char path[] = "/tmp/tern-rendezvous.XXXXXX";
    char entry[128];
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "garbage", 7), 7);
    close(fd);
    snprintf(entry, sizeof entry, "TERN_RENDEZVOUS=%s", path);
    struct spawn_job job = {TEST_RANKS, "lanes", 3, {entry, NULL}, 60};
    expect_good(&job);
    assert_int_not_equal(access(path, F_OK), 0); /* rank 0 took it away */

    /* a launch of three whose rank 2 never comes; it is killed, and its file stays */
    struct spawn_job half = {
        TEST_RANKS, "lanes", 2, {entry, "WORLD_SIZE=3", "TERN_COMM_TIMEOUT=3", NULL}, 30};
    int files;
    assert_true(spawn_run(&half, g_ranks, &files));
    assert_int_equal(g_ranks[0].exit_code, 2);
    expect_word(&half, 0, "1 of 3 ranks, the first of them rank 2, have not called within");
    assert_int_equal(access(path, F_OK), 0);
    expect_good(&job);
    unlink(path);
}

static void test_refusals(void **state)
{
    (void)state;
    int files;
    struct spawn_job twins = {
        TEST_RANKS, "lanes", 3, {"#2 RANK=1", "TERN_COMM_TIMEOUT=4", NULL}, 30};
    assert_true(spawn_run(&twins, g_ranks, &files));
    expect_word(&twins, 0, "two processes say that they are rank 1");
    struct spawn_job sizes = {
        TEST_RANKS, "lanes", 2, {"#1 WORLD_SIZE=3", "TERN_COMM_TIMEOUT=2", NULL}, 30};
    assert_true(spawn_run(&sizes, g_ranks, &files));
    expect_word(&sizes, 0, "have not called within"); /* another world's file is not read */
    expect_word(&sizes, 1, "do all ranks see the same folder?");
}

/* One rank is killed, or stops, in the middle: the others end with 34 and say on whom. */
static void test_deaths(void **state)
{
    (void)state;
    static const char *const faults[] = {"TERN_FAULT=comm.send@60#1:kill",
                                         "TERN_FAULT=comm.send@60#1:stop"};
    for (int i = 0; i < 2; i++) {
        struct spawn_job job = {
            TEST_RANKS, "failure", 3, {faults[i], "TERN_COMM_TIMEOUT=2", NULL}, 30};
        int files;
        if (!spawn_run(&job, g_ranks, &files) || g_ranks[0].exit_code != 34 ||
            g_ranks[2].exit_code != 34) {
            spawn_print(&job, g_ranks);
            fail_msg("%s: expected exit code 34", faults[i]);
        }
        bool is_named = strstr(g_ranks[0].output, "rank 1") != NULL ||
                        strstr(g_ranks[2].output, "rank 1") != NULL;
        assert_true(is_named);
    }
}

static const char *const *g_environment;

static const char *fake_getenv(const char *name)
{
    size_t length = strlen(name);
    for (const char *const *entry = g_environment; *entry != NULL; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
            return *entry + length + 1;
        }
    }
    return NULL;
}

struct find {
    const char *what;
    const char *environment[10];
    bool is_srun;
    int rank, size; /* size 0: nothing is said; -1: refused */
    const char *host;
    int port; /* 0: any */
    const char *words;
};

static const struct find g_finds[] = {
    {"nothing", {NULL}, false, 0, 0, "", 0, NULL},
    {"an address that is always there",
     {"MASTER_ADDR=a", "MASTER_PORT=1", NULL},
     false,
     0,
     0,
     "",
     0,
     NULL},
    {"torchrun",
     {"MASTER_ADDR=a", "MASTER_PORT=29500", "RANK=1", "WORLD_SIZE=2", NULL},
     false,
     1,
     2,
     "a",
     29500,
     NULL},
    {"torchrun with its own store",
     {"MASTER_ADDR=a", "MASTER_PORT=29500", "RANK=1", "WORLD_SIZE=2",
      "TORCHELASTIC_USE_AGENT_STORE=True", NULL},
     false,
     1,
     2,
     "a",
     29501,
     NULL},
    {"srun",
     {"SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=4",
      "SLURM_NTASKS=8", "SLURM_STEP_NODELIST=gpu[007-010,12]", NULL},
     true,
     3,
     4,
     "gpu007",
     0,
     NULL},
    {"srun with an address",
     {"SLURM_PROCID=0", "SLURM_NTASKS=8", "MASTER_ADDR=b", "MASTER_PORT=5", NULL},
     true,
     0,
     8,
     "b",
     5,
     NULL},
    {"a file under mpirun",
     {"TERN_RENDEZVOUS=/f", "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=3", "SLURM_PROCID=0",
      "SLURM_NTASKS=1", NULL},
     false,
     2,
     3,
     "",
     0,
     NULL},
    {"no port",
     {"MASTER_ADDR=a", "RANK=0", "WORLD_SIZE=2", NULL},
     false,
     0,
     -1,
     "",
     0,
     "environment MASTER_PORT: found ''"},
    {"a rank too high",
     {"MASTER_ADDR=a", "MASTER_PORT=5", "RANK=2", "WORLD_SIZE=2", NULL},
     false,
     0,
     -1,
     "",
     0,
     "found RANK=2 and WORLD_SIZE=2"},
    {"no number",
     {"MASTER_ADDR=a", "MASTER_PORT=5", "RANK=one", "WORLD_SIZE=2", NULL},
     false,
     0,
     -1,
     "",
     0,
     "environment RANK: found 'one'"},
    {"srun without hosts",
     {"SLURM_PROCID=0", "SLURM_NTASKS=2", NULL},
     true,
     0,
     -1,
     "",
     0,
     "without SLURM_STEP_NODELIST"},
};

static void test_find(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_finds / sizeof g_finds[0]; i++) {
        const struct find *f = &g_finds[i];
        struct tern_tcp_meeting m;
        bool is_set;
        g_environment = f->environment;
        print_message("%s\n", f->what);
        tern_status status = tern_tcp_find(fake_getenv, f->is_srun, &m, &is_set);
        assert_int_equal(status, f->size < 0 ? TERN_ERR_CONFIG : TERN_OK);
        if (f->size < 0) {
            assert_non_null(strstr(tern_detail(), f->words));
            continue;
        }
        assert_int_equal(is_set, f->size > 0);
        assert_int_equal(m.rank, f->rank);
        assert_int_equal(m.size, f->size);
        assert_string_equal(m.host, f->host);
        assert_true(f->port == 0 || m.port == f->port);
    }
}

static void test_first_host(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a", "a"},
        {"a,b", "a"},
        {"gpu[007-010,12],x", "gpu007"},
        {"r[1-2]n[3,5]", "r1n3"},
        {"gpu[4]-ib,x", "gpu4-ib"},
        {"", ""},
        {"gpu[4", "gpu4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char host[TERN_TCP_HOST_BYTES];
        tern_tcp_first_host(cases[i][0], host);
        assert_string_equal(host, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),       cmocka_unit_test(test_first_host),
        cmocka_unit_test(test_checks),     cmocka_unit_test(test_master),
        cmocka_unit_test(test_stale_file), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deaths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
