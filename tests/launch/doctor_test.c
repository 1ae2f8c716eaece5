/* doctor_test.c - `tern doctor --root` on fake machines: text, JSON, exit codes. */
#include "io/json.h"
#include "tests/base/check.h"
#include "tests/launch/process.h"

#include <stdio.h>
#include <string.h>

static struct outcome g_outcome;
static struct tern_json *g_document;

static void run_doctor(const char *kind, const char *env, bool is_json)
{
    char root[512];
    snprintf(root, sizeof root, "--root=%s/%s", TEST_MACHINES, kind);
    run_program(TERN_BINARY, (const char *const[]){"doctor", root, is_json ? "--json" : NULL, NULL},
                env, NULL, &g_outcome);
    assert_int_equal(g_outcome.exit_code, 0);
    assert_string_equal(g_outcome.err, "");
}

static void open_json(const char *kind, const char *env)
{
    run_doctor(kind, env, true);
    if (tern_json_parse(kind, g_outcome.out, strlen(g_outcome.out), &g_document) != TERN_OK) {
        fail_msg("%s\n%s", tern_detail(), g_outcome.out);
    }
}

static void close_json(void)
{
    tern_json_close(g_document);
    g_document = NULL;
}

static const char *text_of(const struct tern_json *object, const char *key)
{
    const char *text = tern_json_string(tern_json_get(object, key), NULL);
    if (text == NULL) {
        fail_msg("no text under '%s'", key);
    }
    return text;
}

static int64_t number_of(const struct tern_json *object, const char *key)
{
    int64_t value;
    if (!tern_json_i64(tern_json_get(object, key), &value)) {
        fail_msg("no whole number under '%s'", key);
    }
    return value;
}

static void test_sound_machine(void **state)
{
    (void)state;
    open_json("dgx-h100", NULL);
    assert_int_equal(tern_json_count(tern_json_get(g_document, "findings")), 0);
    const struct tern_json *gpus = tern_json_get(g_document, "gpus");
    assert_int_equal(tern_json_count(gpus), 8);
    const struct tern_json *gpu = tern_json_item(gpus, 4);
    assert_string_equal(text_of(gpu, "pci"), "0000:8d:10.0");
    assert_string_equal(text_of(gpu, "model"), "NVIDIA H100 80GB HBM3");
    assert_string_equal(text_of(gpu, "nearest_hca"), "mlx5_4");
    assert_string_equal(text_of(gpu, "hca_distance"), "same switch");
    assert_int_equal(number_of(gpu, "numa_node"), 1);
    assert_int_equal(number_of(gpu, "pcie_width"), 16);
    const struct tern_json *hca = tern_json_item(tern_json_get(g_document, "hcas"), 7);
    const struct tern_json *port = tern_json_item(tern_json_get(hca, "ports"), 0);
    assert_string_equal(text_of(hca, "name"), "mlx5_7");
    assert_string_equal(text_of(port, "state"), "ACTIVE");
    assert_int_equal(number_of(port, "gbps"), 400);
    const struct tern_json *fabric = tern_json_get(g_document, "fabric");
    assert_int_equal(number_of(fabric, "memlock_bytes"), -1);
    assert_int_equal(number_of(fabric, "acs_redirecting_bridges"), 0);
    assert_true(tern_json_bool(tern_json_get(fabric, "nvidia_peermem"), false));
    assert_int_equal(number_of(g_document, "memory_bytes"), 2113412000LL * 1024);
    close_json();
    run_doctor("dgx-h100", NULL, false);
    assert_contains(g_outcome.out, "\ngpus:\n  0  NVIDIA H100 80GB HBM3, 0000:15:10.0");
    assert_contains(g_outcome.out, "\nfabric:\n  mlx5_0 port 1: ACTIVE, 400 Gb/sec (4X NDR)");
}

static void test_findings_are_printed(void **state)
{
    (void)state;
    open_json("dgx-h100-down", NULL);
    const struct tern_json *findings = tern_json_get(g_document, "findings");
    assert_int_equal(tern_json_count(findings), 2);
    const struct tern_json *down = tern_json_item(findings, 0);
    assert_string_equal(text_of(down, "id"), "ib-port-down");
    assert_string_equal(text_of(down, "severity"), "slow");
    assert_contains(text_of(down, "where"), "mlx5_4 port 1");
    /* and as sentences, for who reads problems alone */
    assert_contains(g_outcome.out, "\"problems\":[");
    assert_contains(g_outcome.out, "mlx5_7 port 1: found 4 of 8 ports are not up");
    close_json();
    run_doctor("dgx-h100-down", NULL, false);
    assert_contains(g_outcome.out, "\nproblems:\n");
    assert_contains(g_outcome.out, "  - slow: mlx5_4 port 1, mlx5_5 port 1");
    assert_contains(g_outcome.out, "\n      found     4 of 8 ports are not up");
    assert_contains(g_outcome.out, "\n      to do     ");
}

static void test_settings_are_judged(void **state)
{
    (void)state;
    open_json("roce", "NCCL_IB_GID_INDEX=0");
    const struct tern_json *findings = tern_json_get(g_document, "findings");
    assert_int_equal(tern_json_count(findings), 1);
    assert_string_equal(text_of(tern_json_item(findings, 0), "id"), "nccl-gid-index");
    assert_string_equal(text_of(tern_json_item(findings, 0), "severity"), "broken");
    const struct tern_json *setting = tern_json_item(tern_json_get(g_document, "nccl_settings"), 0);
    assert_string_equal(text_of(setting, "name"), "NCCL_IB_GID_INDEX");
    assert_string_equal(text_of(setting, "value"), "0");
    close_json();
    open_json("dgx-h100", "CUDA_VISIBLE_DEVICES=0,1,8");
    findings = tern_json_get(g_document, "findings");
    assert_int_equal(tern_json_count(findings), 1);
    assert_string_equal(text_of(tern_json_item(findings, 0), "id"), "cuda-visible");
    close_json();
}

static void test_machines_that_show_little(void **state)
{
    (void)state;
    static const char *const kinds[] = {"laptop", "broken"};
    for (int i = 0; i < 2; i++) {
        open_json(kinds[i], NULL);
        assert_int_equal(tern_json_count(tern_json_get(g_document, "findings")), 0);
        assert_int_equal(tern_json_count(tern_json_get(g_document, "gpus")), 0);
        close_json();
    }
    run_doctor("laptop", NULL, false);
    assert_contains(g_outcome.out, "\ngpus: none\n");
    assert_contains(g_outcome.out, "\nfabric: no InfiniBand or RoCE card\n");
}

/* Of this machine, where it is known whether CUDA runs. */
static void test_cuda_reason(void **state)
{
    (void)state;
    run_program(TERN_BINARY, (const char *const[]){"doctor", NULL},
                "TERN_CUDA_PLUGIN=/no/such/plugin.so", NULL, &g_outcome);
    assert_int_equal(g_outcome.exit_code, 0);
    assert_contains(g_outcome.out, "CUDA is not used: there is no plugin /no/such/plugin.so");
}

static void test_simulated_gpus(void **state)
{
    (void)state;
    run_program(TERN_BINARY, (const char *const[]){"doctor", NULL},
                "TERN_CUDA_PLUGIN=" TEST_CUDA_SIM, NULL, &g_outcome);
    assert_int_equal(g_outcome.exit_code, 0);
    assert_contains(g_outcome.out, "  0  simulated GPU, 0000:01:00.0, ");
    assert_contains(g_outcome.out, "\n  CUDA: driver ");
    assert_contains(g_outcome.out, "\n  NCCL: 2.");
    run_program("env",
                (const char *const[]){"TERN_CUDA_PLUGIN=" TEST_CUDA_SIM,
                                      "TERN_NCCL_LIBRARY=/no/such/nccl.so", TERN_BINARY, "doctor",
                                      NULL},
                NULL, NULL, &g_outcome);
    assert_int_equal(g_outcome.exit_code, 0);
    assert_contains(g_outcome.out, "\n  NCCL is not used, so one GPU is: ");
    assert_contains(g_outcome.out, "/no/such/nccl.so");
}

static void test_root_must_be_a_folder(void **state)
{
    (void)state;
    run_program(TERN_BINARY, (const char *const[]){"doctor", "--root", "/no/such/root", NULL}, NULL,
                NULL, &g_outcome);
    assert_int_equal(g_outcome.exit_code, 2);
    assert_string_equal(last_line(g_outcome.err),
                        "tern: error: --root: found '/no/such/root', expected a folder");
}

#if TEST_HAS_MPI
/* Open MPI unloads its components at the end, and with them the names that lsan.supp goes by. */
#    define LEAKS_UNCHECKED "-x", "ASAN_OPTIONS=detect_leaks=0"

static void run_peers(const char *ranks, const char *json, const char *env)
{
    run_program(TEST_MPIEXEC,
                (const char *const[]){"-n", ranks, "--oversubscribe", "--bind-to", "none",
                                      LEAKS_UNCHECKED, TERN_BINARY, "doctor", "--peer-check",
                                      "--max-bytes", "2K", json, NULL},
                env, NULL, &g_outcome);
}

static double rate_of(const struct tern_json *object, const char *key)
{
    double value;
    if (!tern_json_f64(tern_json_get(object, key), &value)) {
        fail_msg("no number under '%s'", key);
    }
    return value;
}

static void test_peer_check(void **state)
{
    (void)state;
    run_peers("2", "--json", "TERN_BACKEND=cpu");
    if (g_outcome.exit_code != 0 ||
        tern_json_parse("peers", g_outcome.out, strlen(g_outcome.out), &g_document) != TERN_OK) {
        fail_msg("exit code %d: %s\n%s%s", g_outcome.exit_code, tern_detail(), g_outcome.out,
                 g_outcome.err);
    }
    assert_int_equal(number_of(g_document, "ranks"), 2);
    assert_string_equal(text_of(g_document, "carrier"), "mpi");
    const struct tern_json *sizes = tern_json_get(g_document, "all_reduce");
    static const int64_t bytes[] = {8, 64, 512, 2048};
    assert_int_equal(tern_json_count(sizes), 4);
    for (int i = 0; i < 4; i++) {
        const struct tern_json *size = tern_json_item(sizes, i);
        assert_int_equal(number_of(size, "bytes"), bytes[i]);
        assert_true(number_of(size, "iterations") >= 3);
        assert_true(rate_of(size, "seconds") > 0);
        /* with two ranks the bus carries what the algorithm does */
        assert_true(rate_of(size, "bus_bytes_per_second") > 0);
        assert_true(rate_of(size, "bus_bytes_per_second") ==
                    rate_of(size, "algorithm_bytes_per_second"));
    }
    assert_string_equal(text_of(tern_json_get(g_document, "expected"), "path"), "host memory");
    const struct tern_json *pairs = tern_json_get(g_document, "pairs");
    assert_int_equal(tern_json_count(pairs), 1);
    assert_true(rate_of(tern_json_item(pairs, 0), "latency_seconds") > 0);
    const struct tern_json *hosts = tern_json_get(g_document, "hosts");
    assert_int_equal(tern_json_count(hosts), 1);
    assert_int_equal(tern_json_count(tern_json_get(tern_json_item(hosts, 0), "ranks")), 2);
    close_json();
    run_peers("3", NULL, "TERN_BACKEND=cpu");
    assert_int_equal(g_outcome.exit_code, 0);
    assert_contains(g_outcome.out, "peer check: 3 ranks on 1 host, backend cpu, carried by mpi\n");
    assert_contains(g_outcome.out, "\n  inside a host: 3, latency ");
}

static void test_peer_check_refuses(void **state)
{
    (void)state;
    run_peers("1", NULL, NULL);
    assert_int_equal(g_outcome.exit_code, 2);
    assert_contains(g_outcome.err, "--peer-check: found one rank, expected two or more");
    /* said once, by all ranks together */
    run_peers("2", NULL, "TERN_CUDA_PLUGIN=/no/such/plugin.so");
    assert_int_equal(g_outcome.exit_code, 0); /* auto: the CPU will do */
    run_program("env",
                (const char *const[]){"TERN_BACKEND=cuda", "TERN_CUDA_PLUGIN=/no/such/plugin.so",
                                      TEST_MPIEXEC, "-n", "2", "--oversubscribe", LEAKS_UNCHECKED,
                                      TERN_BINARY, "doctor", "--peer-check", NULL},
                NULL, NULL, &g_outcome);
    assert_int_equal(g_outcome.exit_code, 2);
    const char *first = strstr(g_outcome.err, "there is no plugin /no/such/plugin.so");
    assert_non_null(first);
    assert_null(strstr(first + 1, "there is no plugin"));
}

/* GPU memory, NCCL: here the simulated ones. */
static void test_peer_check_between_gpus(void **state)
{
    (void)state;
    run_program("env",
                (const char *const[]){"TERN_BACKEND=cuda", "TERN_CUDA_PLUGIN=" TEST_CUDA_SIM,
                                      TEST_MPIEXEC, "-n", "2", "--oversubscribe", "--bind-to",
                                      "none", LEAKS_UNCHECKED, TERN_BINARY, "doctor",
                                      "--peer-check", "--max-bytes", "512", "--json", NULL},
                NULL, NULL, &g_outcome);
    if (g_outcome.exit_code != 0 ||
        tern_json_parse("peers", g_outcome.out, strlen(g_outcome.out), &g_document) != TERN_OK) {
        fail_msg("exit code %d: %s\n%s%s", g_outcome.exit_code, tern_detail(), g_outcome.out,
                 g_outcome.err);
    }
    assert_string_equal(text_of(g_document, "backend"), "cuda");
    assert_string_equal(text_of(g_document, "carrier"), "nccl");
    assert_int_equal(tern_json_count(tern_json_get(g_document, "all_reduce")), 3);
    assert_int_equal(tern_json_count(tern_json_get(g_document, "pairs")), 1);
    close_json();
}

#    if TERN_FAULTS
/* One rank dies in the middle: nobody waits for it. */
static void test_peer_check_survives_a_death(void **state)
{
    (void)state;
    run_peers("2", NULL, "TERN_FAULT=comm.send@40#1:kill");
    assert_int_not_equal(g_outcome.exit_code, 0);
    assert_true(g_outcome.exit_code < 1000); /* not the test's own time limit */
    assert_contains(g_outcome.err, "signal 9 (Killed)");
    assert_string_equal(g_outcome.out, "");
}
#    endif
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_sound_machine),
        CHECKED(test_findings_are_printed),
        CHECKED(test_settings_are_judged),
        CHECKED(test_machines_that_show_little),
        CHECKED(test_cuda_reason),
        CHECKED(test_simulated_gpus),
        CHECKED(test_root_must_be_a_folder),
#if TEST_HAS_MPI
        CHECKED(test_peer_check),
        CHECKED(test_peer_check_refuses),
        CHECKED(test_peer_check_between_gpus),
#    if TERN_FAULTS
        CHECKED(test_peer_check_survives_a_death),
#    endif
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
