/* plan_test.c - the memory bill, what control groups leave, and the share of the cores. */
#include "runtime/plan/bill.h"
#include "runtime/plan/compute.h"
#include "tests/runtime/fixture.h"

#include <sched.h>

#define GIB (INT64_C(1) << 30)

static void test_bill(void **state)
{
    (void)state;
    struct tern_bill bill = {0};
    assert_int_equal(tern_bill_total(&bill), 0);
    tern_bill_add(&bill, "weights", 30 * GIB);
    tern_bill_add(&bill, "moments", 18 * GIB);
    assert_int_equal(tern_bill_total(&bill), 48 * GIB);
    expect_ok(tern_bill_check(&bill, 1, 50 * GIB));
    expect_ok(tern_bill_check(&bill, 2, 100 * GIB));
    expect_ok(tern_bill_check(&bill, 1, INT64_MAX));
    assert_int_equal(tern_bill_check(&bill, 1, 49 * GIB), TERN_ERR_CONFIG); /* the margin */
    assert_int_equal(tern_bill_check(&bill, 3, 100 * GIB), TERN_ERR_CONFIG);
    assert_contains(tern_detail(), "144 GiB");
    assert_contains(tern_detail(), "3 ranks");
    assert_contains(tern_detail(), "train.micro_batch");
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[TERN_PATH_BYTES];
    char parent[TERN_PATH_BYTES];
    expect_ok(tern_path_join(path, folder, name));
    strcpy(parent, path);
    *strrchr(parent, '/') = '\0';
    expect_ok(tern_file_make_folder(parent));
    expect_ok(tern_file_replace(path, text, strlen(text)));
}

static void test_available(void **state)
{
    (void)state;
    char root[TERN_PATH_BYTES];
    char proc[TERN_PATH_BYTES];
    char groups[TERN_PATH_BYTES];
    make_folder(root);
    expect_ok(tern_path_join(proc, root, "proc"));
    expect_ok(tern_path_join(groups, root, "groups"));
    assert_true(tern_memory_available_under(proc, groups) == INT64_MAX); /* nothing says anything */
    put(proc, "meminfo", "MemTotal: 999 kB\nMemFree: 5 kB\nMemAvailable:    8000 kB\n");
    assert_int_equal(tern_memory_available_under(proc, groups), 8000 * 1024);
    /* a container: the root is the limit; half of what it holds is file cache */
    put(groups, "memory.max", "4000000\n");
    put(groups, "memory.current", "3000000\n");
    assert_int_equal(tern_memory_available_under(proc, groups), 1000000);
    put(groups, "memory.stat", "anon 1\nactive_file 500000\nfile 7\ninactive_file 1000000\n");
    assert_int_equal(tern_memory_available_under(proc, groups), 2500000);
    /* a batch job: its own group and the one above */
    put(proc, "self/cgroup", "0::/job/step\n");
    put(groups, "job/step/memory.max", "max\n");
    put(groups, "job/step/memory.current", "100\n");
    assert_int_equal(tern_memory_available_under(proc, groups), 2500000);
    put(groups, "job/memory.max", "900000\n");
    put(groups, "job/memory.current", "200000\n");
    assert_int_equal(tern_memory_available_under(proc, groups), 700000);
    put(groups, "job/step/memory.max", "50\n"); /* over its limit already */
    assert_int_equal(tern_memory_available_under(proc, groups), 0);
    put(groups, "job/step/memory.max", "max\n");
    /* the first version of control groups */
    put(groups, "memory/memory.limit_in_bytes", "300000\n");
    put(groups, "memory/memory.usage_in_bytes", "200000\n");
    put(groups, "memory/memory.stat", "total_inactive_file 50000\n");
    assert_int_equal(tern_memory_available_under(proc, groups), 150000);
    remove_folder(root);
    assert_true(tern_memory_available_bytes() > 0);
}

static void test_quota(void **state)
{
    (void)state;
    assert_int_equal(tern_compute_quota("max 100000", 8), 8);
    assert_int_equal(tern_compute_quota("", 8), 8);
    assert_int_equal(tern_compute_quota("250000 100000", 8), 2);
    assert_int_equal(tern_compute_quota("50000 100000", 8), 1);
    assert_int_equal(tern_compute_quota("6400000 100000", 8), 8);
    assert_int_equal(tern_compute_quota("1e30 1", 8), 8);
    assert_int_equal(tern_compute_quota("100000 0", 8), 8);
}

/* Ranks of one process share its cores; bound to different ones they share nothing. */
struct seats {
    int cores; /* of the process, quota included */
    bool is_bound;
    int bound[2];
};

static tern_status sit(struct tern_comm *comm, void *arg)
{
    const struct seats *seats = arg;
    struct tern_compute compute;
    if (seats->is_bound) {
        cpu_set_t mask;
        CPU_ZERO(&mask);
        CPU_SET(seats->bound[comm->rank % 2], &mask);
        MUST(sched_setaffinity(0, sizeof mask, &mask) == 0, "cannot bind");
    }
    TERN_RETURN_IF_ERR(tern_compute_choose(comm, &compute));
    int sharers = seats->is_bound ? 1 : comm->size;
    int expected = compute.cores / sharers > 1 ? compute.cores / sharers : 1;
    MUST(compute.cores == (seats->is_bound ? 1 : seats->cores), "rank %d: %d cores", comm->rank,
         compute.cores);
    MUST(compute.sharers == sharers && compute.threads == expected,
         "rank %d of %d: found %d sharers, %d threads, expected %d, %d", comm->rank, comm->size,
         compute.sharers, compute.threads, sharers, expected);
    return TERN_OK;
}

static void test_share(void **state)
{
    (void)state;
    struct tern_compute alone;
    unsetenv("TERN_THREADS");
    unsetenv("TERN_BACKEND");
    expect_ok(tern_compute_choose(NULL, &alone));
    assert_string_equal(alone.backend, "auto");
    struct seats seats = {.cores = alone.cores};
    assert_int_equal(alone.threads, alone.cores);
    assert_int_equal(alone.sharers, 1);
    for (int ranks = 1; ranks <= 4; ranks++) {
        run_ranks(ranks, sit, &seats);
    }
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    if (CPU_COUNT(&mask) >= 2) {
        int found = 0;
        for (int core = 0; core < CPU_SETSIZE && found < 2; core++) {
            if (CPU_ISSET(core, &mask)) {
                seats.bound[found++] = core;
            }
        }
        seats.is_bound = true;
        run_ranks(2, sit, &seats);
    }
    setenv("TERN_THREADS", "3", 1);
    setenv("TERN_BACKEND", "ref", 1);
    expect_ok(tern_compute_choose(NULL, &alone));
    assert_int_equal(alone.threads, 3);
    assert_string_equal(alone.backend, "ref");
    static const char *const wrong[] = {"0", "-1", "1025", "two", "1.5"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("TERN_THREADS", wrong[i], 1);
        assert_int_equal(tern_compute_choose(NULL, &alone), TERN_ERR_USAGE);
        assert_contains(tern_detail(), wrong[i]);
    }
    unsetenv("TERN_THREADS");
    unsetenv("TERN_BACKEND");
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_bill), CHECKED(test_available),
                                       CHECKED(test_quota), CHECKED(test_share)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
