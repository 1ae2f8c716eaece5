/* peers_test.c - who meets whom, who is blamed for what, and a measurement over threads. */
#include "comm/inproc/inproc.h"
#include "kernels/open.h"
#include "runtime/observe/peers.h"
#include "tests/base/check.h"

#include <stdio.h>
#include <string.h>

enum {
    RANKS_MAX = 24
};

#define GB 1e9

static struct tern_findings g_findings;
static struct tern_peers_host g_hosts[RANKS_MAX];
static double g_latency[RANKS_MAX * RANKS_MAX];
static double g_bandwidth[RANKS_MAX * RANKS_MAX];
static struct tern_peers g_peers;

/* ---- who meets whom ---- */

static void test_every_pair_meets_once(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 41; ranks++) {
        int met[41][41] = {{0}};
        for (int round = 0; round < tern_peers_rounds(ranks); round++) {
            int pairs = 0;
            for (int rank = 0; rank < ranks; rank++) {
                int partner = tern_peers_partner(ranks, round, rank);
                if (partner < 0) {
                    continue;
                }
                if (partner == rank || partner >= ranks ||
                    tern_peers_partner(ranks, round, partner) != rank) {
                    fail_msg("%d ranks, round %d: %d meets %d, who meets %d", ranks, round, rank,
                             partner, tern_peers_partner(ranks, round, partner));
                }
                met[rank][partner]++;
                pairs++;
            }
            assert_int_equal(pairs / 2, ranks <= TERN_PEERS_ALONE_MAX ? 1 : ranks / 2);
        }
        for (int a = 0; a < ranks; a++) {
            for (int b = 0; b < ranks; b++) {
                if (met[a][b] != (a != b)) {
                    fail_msg("%d ranks: %d and %d met %d times", ranks, a, b, met[a][b]);
                }
            }
        }
    }
}

/* ---- who is blamed ---- */

/* Ranks in blocks of `each` on hosts a, b, c, ...; 100 GB/s inside a host, 40 between. */
static void make_job(int ranks, int each)
{
    memset(g_hosts, 0, sizeof g_hosts);
    for (int a = 0; a < ranks; a++) {
        snprintf(g_hosts[a].name, sizeof g_hosts[a].name, "%c", 'a' + a / each);
        g_hosts[a].memlock_bytes = -1;
        g_hosts[a].active_ports = 8;
        for (int b = 0; b < ranks; b++) {
            g_latency[a * ranks + b] = a == b ? 0 : 2e-6;
            g_bandwidth[a * ranks + b] = a == b ? 0 : a / each == b / each ? 100 * GB : 40 * GB;
        }
    }
    g_peers = (struct tern_peers){.ranks = ranks,
                                  .sizes = {{.bytes = 1 << 30, .iterations = 3, .seconds = 0.01}},
                                  .size_count = 1,
                                  .pair_bytes = 8 << 20,
                                  .latency = g_latency,
                                  .bandwidth = g_bandwidth};
}

static void slow_pair(int a, int b, double share)
{
    g_bandwidth[a * g_peers.ranks + b] *= share;
    g_bandwidth[b * g_peers.ranks + a] *= share;
}

static void judge_as(const struct tern_fabric_shape *shape)
{
    memset(&g_findings, 0, sizeof g_findings);
    const struct tern_peers_view view = {
        .peers = &g_peers, .hosts = g_hosts, .shape = *shape, .slow_share = 0.9};
    tern_peers_judge(&view, &g_findings);
}

static void judge(void)
{
    judge_as(&(struct tern_fabric_shape){.ranks = g_peers.ranks, .hosts = 1});
}

static void expect_finding(int index, const char *id, const char *where)
{
    if (index >= g_findings.count || strcmp(g_findings.items[index].id, id) != 0 ||
        strcmp(g_findings.items[index].where, where) != 0) {
        for (int i = 0; i < g_findings.count; i++) {
            print_error("found %s: %s: %s\n", g_findings.items[i].id, g_findings.items[i].where,
                        g_findings.items[i].found);
        }
        fail_msg("finding %d: expected %s: %s", index, id, where);
    }
}

static void test_even_jobs_have_no_finding(void **state)
{
    (void)state;
    static const int jobs[][2] = {{2, 2}, {2, 1}, {3, 3}, {4, 2}, {8, 8}, {16, 8}, {24, 4}};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        make_job(jobs[i][0], jobs[i][1]);
        slow_pair(0, 1, 0.95); /* within what varies */
        judge();
        assert_int_equal(g_findings.count, 0);
    }
}

static void test_a_slow_host_is_named(void **state)
{
    (void)state;
    make_job(16, 4);
    for (int a = 8; a < 12; a++) {
        for (int b = 0; b < 16; b++) {
            if (b / 4 != 2) {
                slow_pair(a, b, 0.5);
            }
        }
    }
    judge();
    assert_int_equal(g_findings.count, 1);
    expect_finding(0, "slow-host", "host c");
    assert_string_equal(g_findings.items[0].found,
                        "20.00 GB/s to and from others, in 48 of 48 pairs");
    assert_string_equal(g_findings.items[0].expected, "40.00 GB/s, as between the others");
    /* three hosts of one rank: two of three pairs are slow */
    make_job(3, 1);
    slow_pair(1, 0, 0.25);
    slow_pair(1, 2, 0.25);
    judge();
    assert_int_equal(g_findings.count, 1);
    expect_finding(0, "slow-host", "host b");
}

static void test_a_slow_rank_is_named(void **state)
{
    (void)state;
    for (int ranks = 3; ranks <= 8; ranks++) {
        make_job(ranks, ranks);
        for (int b = 0; b < ranks - 1; b++) {
            slow_pair(ranks - 1, b, 0.5);
        }
        judge();
        char where[64];
        snprintf(where, sizeof where, "rank %d on host a", ranks - 1);
        assert_int_equal(g_findings.count, 1);
        expect_finding(0, "slow-rank", where);
    }
    /* the card of one GPU of two hosts: slow to the other host alone */
    make_job(16, 8);
    for (int b = 8; b < 16; b++) {
        slow_pair(5, b, 0.3);
    }
    judge();
    assert_int_equal(g_findings.count, 1);
    expect_finding(0, "slow-rank", "rank 5 on host a");
    assert_string_equal(g_findings.items[0].found,
                        "12.00 GB/s to and from others, in 8 of 15 pairs");
}

static void test_slow_pairs_are_named(void **state)
{
    (void)state;
    make_job(8, 8);
    slow_pair(2, 6, 0.5);
    slow_pair(3, 7, 0.4);
    judge();
    assert_int_equal(g_findings.count, 1);
    expect_finding(0, "slow-pair", "between ranks 2-6, 3-7");
    assert_string_equal(g_findings.items[0].found, "40.00 GB/s, the slowest of 2");
    g_peers.pair_bytes = 4096; /* says nothing about bandwidth */
    judge();
    assert_int_equal(g_findings.count, 0);
    g_peers.pair_bytes = 8 << 20;
    /* a slow rank and, apart from it, a slow pair */
    for (int b = 1; b < 8; b++) {
        slow_pair(0, b, 0.5);
    }
    judge();
    assert_int_equal(g_findings.count, 2);
    expect_finding(0, "slow-rank", "rank 0 on host a");
    expect_finding(1, "slow-pair", "between ranks 2-6, 3-7");
}

static void test_the_whole_is_compared(void **state)
{
    (void)state;
    struct tern_fabric_shape shape = {.ranks = 8,
                                      .hosts = 1,
                                      .is_gpu = true,
                                      .gpu_model = "NVIDIA H100 80GB HBM3",
                                      .has_nvlink = true,
                                      .has_nvswitch = true};
    make_job(8, 8);
    g_peers.sizes[0].bytes = (int64_t)1 << 30;
    g_peers.sizes[0].seconds = 0.005; /* 376 GB/s on the bus */
    judge_as(&shape);
    assert_int_equal(g_findings.count, 0);
    g_peers.sizes[0].seconds = 0.010;
    judge_as(&shape);
    assert_int_equal(g_findings.count, 1);
    expect_finding(0, "all-reduce-slow", "all-reduce over 8 ranks on 1 host");
    assert_string_equal(g_findings.items[0].found, "187.9 GB/s bus bandwidth at 1.0 GiB");
    assert_contains(g_findings.items[0].expected, "about 370 GB/s over NVSwitch");
    assert_contains(g_findings.items[0].effect, "2.0 times as long");
    g_peers.sizes[0].bytes = 1 << 20; /* too small to reach it */
    judge_as(&shape);
    assert_int_equal(g_findings.count, 0);
}

static void test_a_host_unlike_the_others_is_named(void **state)
{
    (void)state;
    make_job(6, 2);
    for (int r = 0; r < 6; r++) {
        g_hosts[r].has_peermem = r / 2 == 1 ? TERN_ANSWER_NO : TERN_ANSWER_YES;
        g_hosts[r].active_ports = r / 2 == 2 ? 4 : 8;
        g_hosts[r].memlock_bytes = r / 2 == 0 ? 65536 : -1;
    }
    judge();
    assert_int_equal(g_findings.count, 3);
    expect_finding(0, "host-ports", "host c");
    expect_finding(1, "host-gpudirect", "host b");
    expect_finding(2, "host-memlock", "host a");
    assert_string_equal(g_findings.items[0].found, "4 active ports, 0 Gb/s");
    assert_string_equal(g_findings.items[2].expected,
                        "unlimited locked memory, as on the other hosts");
}

/* ---- measuring ---- */

struct measured {
    int64_t bytes_max, memory_bytes;
    int sizes[RANKS_MAX];
    int64_t largest;
    int failures;
};

static tern_status measure_main(struct tern_comm *comm, void *arg)
{
    struct measured *measured = arg;
    struct tern_device *device;
    struct tern_peers peers;
    TERN_RETURN_IF_ERR(tern_device_open("ref", 1, &device));
    const struct tern_peers_group group = {comm, comm, device, device};
    const struct tern_peers_options options = {
        .bytes_max = measured->bytes_max,
        /* one rank has less than the others */
        .memory_bytes = comm->rank == 1 ? measured->memory_bytes : (int64_t)1 << 30,
        .pair_bytes = 4096,
    };
    tern_status status = tern_peers_measure(&group, &options, &peers);
    if (status == TERN_OK) {
        int bad = 0;
        for (int i = 0; i < peers.size_count; i++) {
            bad += peers.sizes[i].seconds <= 0 || peers.sizes[i].iterations < 3;
        }
        for (int a = 0; a < comm->size; a++) {
            for (int b = 0; b < comm->size; b++) {
                double latency = peers.latency[a * comm->size + b];
                double bandwidth = peers.bandwidth[a * comm->size + b];
                bad += (latency > 0) != (a != b) || (bandwidth > 0) != (a != b) ||
                       bandwidth != peers.bandwidth[b * comm->size + a];
            }
        }
        measured->sizes[comm->rank] = bad == 0 ? peers.size_count : -1;
        if (comm->rank == 0) {
            measured->largest = peers.sizes[peers.size_count - 1].bytes;
        }
        tern_peers_fini(&peers);
    }
    tern_device_close(device);
    return status;
}

static void test_measuring(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        int64_t bytes_max, memory_bytes, largest;
        int sizes;
    } cases[] = {
        {2, 100000, 1 << 30, 100000, 6}, /* 8, 64, 512, 4096, 32768, 100000 */
        {3, 4096, 1 << 30, 4096, 4},     {5, 10, 1 << 30, 8, 1},
        {4, 1 << 20, 9000, 4096, 4},     {8, 512, 1 << 30, 512, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct tern_inproc_options options = {.ranks = cases[i].ranks, .seed = i};
        struct measured measured = {.bytes_max = cases[i].bytes_max,
                                    .memory_bytes = cases[i].memory_bytes};
        tern_status status = tern_inproc_run(&options, measure_main, &measured, NULL);
        if (status != TERN_OK) {
            fail_msg("case %zu: %s", i, tern_detail());
        }
        for (int r = 0; r < cases[i].ranks; r++) {
            assert_int_equal(measured.sizes[r], cases[i].sizes);
        }
        assert_int_equal(measured.largest, cases[i].largest);
    }
}

/* A rank without memory for anything ends it for all, with a sentence. */
static void test_no_memory(void **state)
{
    (void)state;
    const struct tern_inproc_options options = {.ranks = 2};
    struct measured measured = {.bytes_max = 4096, .memory_bytes = 4};
    assert_int_equal(tern_inproc_run(&options, measure_main, &measured, NULL), TERN_ERR_MEMORY);
    assert_contains(tern_detail(), "a rank has no memory to measure with");
}

static void test_bandwidths(void **state)
{
    (void)state;
    const struct tern_peers_size size = {.bytes = 1000, .seconds = 0.5};
    assert_true(tern_peers_algorithm_bandwidth(&size) == 2000);
    assert_true(tern_peers_bus_bandwidth(&size, 2) == 2000);
    assert_true(tern_peers_bus_bandwidth(&size, 8) == 3500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_every_pair_meets_once),
        CHECKED(test_even_jobs_have_no_finding),
        CHECKED(test_a_slow_host_is_named),
        CHECKED(test_a_slow_rank_is_named),
        CHECKED(test_slow_pairs_are_named),
        CHECKED(test_the_whole_is_compared),
        CHECKED(test_a_host_unlike_the_others_is_named),
        CHECKED(test_measuring),
        CHECKED(test_no_memory),
        CHECKED(test_bandwidths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
