/* fabric_test.c - what is read from fake machines, and what is judged of machines written by hand. */
#include "comm/fabric/expect.h"
#include "comm/fabric/judge.h"
#include "tests/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tern_topology g_topology;
static struct tern_nccl_settings g_settings;
static struct tern_findings g_findings;

/* ---- helpers ---- */

static char *g_no_settings[] = {NULL};

static void read_machine(const char *kind, const char *nvml, char *const *environment)
{
    char root[512];
    snprintf(root, sizeof root, "%s/%s", TEST_MACHINES, kind);
    tern_nccl_settings_read(root, NULL, environment, &g_settings);
    assert_int_equal(tern_topology_read(root, nvml, &g_settings, &g_topology), TERN_OK);
}

static void judge_with(struct tern_judge_job job)
{
    const struct tern_judge judge = {.topology = &g_topology, .settings = &g_settings, .job = job};
    memset(&g_findings, 0, sizeof g_findings);
    tern_topology_judge(&judge, &g_findings);
}

static void judge(void)
{
    judge_with((struct tern_judge_job){0});
}

static const struct tern_finding *find(const char *id)
{
    for (int i = 0; i < g_findings.count; i++) {
        if (strcmp(g_findings.items[i].id, id) == 0) {
            return &g_findings.items[i];
        }
    }
    for (int i = 0; i < g_findings.count; i++) {
        print_message("found instead: %s: %s\n", g_findings.items[i].id, g_findings.items[i].where);
    }
    fail_msg("no finding '%s'", id);
    return NULL;
}

static const struct {
    const char *id;
    enum tern_severity severity;
} g_severities[] = {
    {"acs-on", TERN_SEVERITY_SLOW},
    {"cuda-visible", TERN_SEVERITY_BROKEN},
    {"gpu-far-from-hca", TERN_SEVERITY_SLOW},
    {"gpu-memory-rows", TERN_SEVERITY_BROKEN},
    {"gpu-mig", TERN_SEVERITY_NOTE},
    {"gpu-no-driver", TERN_SEVERITY_BROKEN},
    {"gpu-numa-unknown", TERN_SEVERITY_NOTE},
    {"gpu-pcie-speed", TERN_SEVERITY_NOTE},
    {"hca-slot-narrow", TERN_SEVERITY_SLOW},
    {"hugepages-unused", TERN_SEVERITY_NOTE},
    {"ib-port-down", TERN_SEVERITY_SLOW},
    {"ib-port-flaps", TERN_SEVERITY_NOTE},
    {"ib-rate-low", TERN_SEVERITY_SLOW},
    {"idle-gpus", TERN_SEVERITY_NOTE},
    {"iommu-translates", TERN_SEVERITY_SLOW},
    {"memlock-low", TERN_SEVERITY_BROKEN},
    {"more-ranks-than-gpus", TERN_SEVERITY_BROKEN},
    {"nccl-algo-bits", TERN_SEVERITY_NOTE},
    {"nccl-blocking", TERN_SEVERITY_BROKEN},
    {"nccl-gdr-level", TERN_SEVERITY_SLOW},
    {"nccl-gid-index", TERN_SEVERITY_BROKEN},
    {"nccl-hca-left", TERN_SEVERITY_SLOW},
    {"nccl-hca-prefix", TERN_SEVERITY_SLOW},
    {"nccl-ib-disabled", TERN_SEVERITY_SLOW},
    {"nccl-no-algorithm", TERN_SEVERITY_BROKEN},
    {"nccl-no-hca", TERN_SEVERITY_BROKEN},
    {"nccl-no-interface", TERN_SEVERITY_BROKEN},
    {"nccl-no-topo-file", TERN_SEVERITY_BROKEN},
    {"nccl-nvls-off", TERN_SEVERITY_SLOW},
    {"nccl-p2p-off", TERN_SEVERITY_SLOW},
    {"nccl-proto-forced", TERN_SEVERITY_BROKEN},
    {"nccl-proto-slow", TERN_SEVERITY_SLOW},
    {"nccl-shm-off", TERN_SEVERITY_SLOW},
    {"no-gpudirect", TERN_SEVERITY_SLOW},
    {"nvlink-down", TERN_SEVERITY_SLOW},
    {"roce-no-address", TERN_SEVERITY_BROKEN},
    {"vm-hides-topology", TERN_SEVERITY_SLOW},
};

/* These and no others, in any order. */
static void expect_only(const char *const *ids)
{
    int count = 0;
    for (; ids[count] != NULL; count++) {
        (void)find(ids[count]);
    }
    if (g_findings.count != count) {
        for (int i = 0; i < g_findings.count; i++) {
            print_message("%s: %s: %s\n", g_findings.items[i].id, g_findings.items[i].where,
                          g_findings.items[i].found);
        }
        fail_msg("%d findings, expected %d", g_findings.count, count);
    }
    for (int i = 0; i < g_findings.count; i++) {
        const struct tern_finding *f = &g_findings.items[i];
        const char *const parts[] = {f->where, f->found, f->expected, f->effect, f->advice};
        for (size_t k = 0; k < sizeof g_severities / sizeof g_severities[0]; k++) {
            if (strcmp(f->id, g_severities[k].id) == 0 && f->severity != g_severities[k].severity) {
                fail_msg("%s is '%s', expected '%s'", f->id, tern_severity_name(f->severity),
                         tern_severity_name(g_severities[k].severity));
            }
        }
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            if (parts[p][0] == '\0' || strlen(parts[p]) == TERN_FINDING_BYTES - 1) {
                fail_msg("%s: part %zu is empty or cut: '%s'", f->id, p, parts[p]);
            }
        }
    }
}

#define EXPECT_ONLY(...) expect_only((const char *const[]){__VA_ARGS__, NULL})
#define EXPECT_NONE()    expect_only((const char *const[]){NULL})

/* The DGX with these settings, judged. */
static void judge_dgx_with(const char *setting)
{
    char text[TERN_NCCL_VALUE_BYTES];
    snprintf(text, sizeof text, "%s", setting);
    char *environment[] = {text, NULL};
    read_machine("dgx-h100", NULL, environment);
    judge();
}

/* ---- reading ---- */

static void test_dgx_is_read(void **state)
{
    (void)state;
    read_machine("dgx-h100", NULL, g_no_settings);
    const struct tern_topology *t = &g_topology;
    assert_int_equal(t->gpu_count, 8);
    assert_int_equal(t->hca_count, 8);
    assert_int_equal(t->nvswitch_count, 4);
    assert_int_equal(t->numa_nodes, 2);
    assert_int_equal(t->memlock_bytes, -1);
    assert_int_equal(t->has_peermem, TERN_ANSWER_YES);
    assert_int_equal(t->has_dmabuf, TERN_ANSWER_NO); /* not the open driver */
    assert_int_equal(t->is_vm, TERN_ANSWER_NO);
    assert_string_equal(t->driver_version, "550.54.15");
    assert_string_equal(t->gpus[0].model, "NVIDIA H100 80GB HBM3");
    assert_string_equal(t->gpus[0].pci.address, "0000:15:10.0");
    assert_string_equal(t->gpus[4].pci.address, "0000:8d:10.0");
    assert_string_equal(t->gpus[0].pci.driver, "nvidia");
    assert_int_equal(t->gpus[4].pci.numa_node, 1);
    assert_int_equal(t->gpus[0].pci.width, 16);
    assert_int_equal(tern_pcie_generation(t->gpus[0].pci.speed), 5);
    assert_int_equal(t->gpus[0].pci.slot_width_max, 16);
    assert_int_equal(tern_pcie_generation(t->gpus[0].pci.slot_speed_max), 5);
    assert_string_equal(t->transparent_hugepages, "madvise");
    assert_int_equal(t->net_count, 11);
    assert_true(t->nets[0].is_virtual); /* docker0 */
    assert_int_equal(t->nets[1].speed_mbps, 10000);
    assert_false(t->nets[1].is_virtual); /* eno3 */
    assert_string_equal(t->hcas[7].name, "mlx5_7");
    const struct tern_topo_port *port = &t->hcas[7].ports[0];
    assert_int_equal(t->hcas[7].port_count, 1);
    assert_int_equal(port->state, TERN_PORT_ACTIVE);
    assert_int_equal(port->phys_state, TERN_PHYS_LINK_UP);
    assert_int_equal((int)port->rate_gbps, 400);
    assert_int_equal(port->lanes, 4);
    assert_int_equal(port->link, TERN_LINK_INFINIBAND);
    assert_int_equal(port->gid_count, 1);
    assert_int_equal(t->bridges[0].is_redirecting, TERN_ANSWER_NO);
}

static void test_nearest_cards(void **state)
{
    (void)state;
    read_machine("dgx-h100", NULL, g_no_settings);
    for (int g = 0; g < 8; g++) {
        assert_int_equal(tern_topo_nearest_hca(&g_topology, g), g);
        assert_int_equal(tern_topo_distance(&g_topology.gpus[g].pci, &g_topology.hcas[g].pci),
                         TERN_DISTANCE_SWITCH);
    }
    assert_int_equal(tern_topo_distance(&g_topology.gpus[0].pci, &g_topology.hcas[1].pci),
                     TERN_DISTANCE_NODE);
    assert_int_equal(tern_topo_distance(&g_topology.gpus[0].pci, &g_topology.hcas[7].pci),
                     TERN_DISTANCE_CROSS);
    /* four cards left: each takes one GPU of its own and one of the others */
    read_machine("dgx-h100-down", NULL, g_no_settings);
    int taken[8] = {0};
    for (int g = 0; g < 8; g++) {
        taken[tern_topo_nearest_hca(&g_topology, g)]++;
    }
    for (int h = 0; h < 8; h++) {
        assert_int_equal(taken[h], h < 4 ? 2 : 0);
    }
}

static void test_distances(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int node_a, node_b;
        enum tern_distance distance;
    } cases[] = {
        {"pci0:00/r/s/d1/x", "pci0:00/r/s/d2/y", 0, 0, TERN_DISTANCE_SWITCH},
        {"pci0:00/r/x.0", "pci0:00/r/x.1", 0, 0, TERN_DISTANCE_SWITCH},
        {"pci0:00/r/s/d1/x", "pci0:00/r/s/d2/t/e/y", 0, 0, TERN_DISTANCE_SWITCHES},
        {"pci0:00/r/x", "pci0:00/q/y", 0, 0, TERN_DISTANCE_ROOT},
        {"pci0:00/x", "pci0:00/y", -1, -1, TERN_DISTANCE_ROOT},
        {"pci0:00/r/x", "pci0:40/q/y", 0, 0, TERN_DISTANCE_NODE},
        {"pci0:00/r/x", "pci0:40/q/y", 0, 1, TERN_DISTANCE_CROSS},
        {"pci0:00/r/x", "pci0:40/q/y", 0, -1, TERN_DISTANCE_UNKNOWN},
        {"", "", 0, 1, TERN_DISTANCE_CROSS},
        {"", "pci0:40/q/y", -1, 1, TERN_DISTANCE_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tern_topo_pci a = {.address = "a", .numa_node = cases[i].node_a};
        struct tern_topo_pci b = {.address = "b", .numa_node = cases[i].node_b};
        snprintf(a.path, sizeof a.path, "%s", cases[i].a);
        snprintf(b.path, sizeof b.path, "%s", cases[i].b);
        if (tern_topo_distance(&a, &b) != cases[i].distance ||
            tern_topo_distance(&b, &a) != cases[i].distance) {
            fail_msg("case %zu: found '%s', expected '%s'", i,
                     tern_distance_name(tern_topo_distance(&a, &b)),
                     tern_distance_name(cases[i].distance));
        }
    }
}

static void test_broken_files_are_not_known(void **state)
{
    (void)state;
    read_machine("broken", NULL, g_no_settings);
    judge();
    for (int h = 0; h < g_topology.hca_count; h++) {
        assert_true(strlen(g_topology.hcas[h].name) < TERN_TOPO_NAME_BYTES);
    }
    EXPECT_NONE();
    /* nothing at all */
    tern_nccl_settings_read("/nowhere", "/nowhere", NULL, &g_settings);
    assert_int_equal(tern_topology_read("/nowhere", "/nowhere.so", &g_settings, &g_topology),
                     TERN_OK);
    judge();
    EXPECT_NONE();
}

static void put(const char *file, const char *text)
{
    char command[512];
    snprintf(command, sizeof command,
             "mkdir -p \"$(dirname fabric_tree/%s)\" && echo '%s' >fabric_tree/%s", file, text,
             file);
    assert_int_equal(system(command), 0);
}

/* dmabuf needs Linux 5.12 and the open driver. */
static void test_dmabuf(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *driver;
        enum tern_answer answer;
    } cases[] = {
        {"5.12.0", "Open Kernel Module", TERN_ANSWER_YES},
        {"5.11.22-1", "Open Kernel Module", TERN_ANSWER_NO},
        {"4.18.0-553.el8", "Open Kernel Module", TERN_ANSWER_NO},
        {"6.1.0-18-amd64", "Open Kernel Module", TERN_ANSWER_YES},
        {"6.1.0-18-amd64", "x86_64 Kernel Module", TERN_ANSWER_NO},
        {"6.1.0-18-amd64", "something else", TERN_ANSWER_UNKNOWN},
        {"what", "Open Kernel Module", TERN_ANSWER_UNKNOWN},
    };
    memset(&g_settings, 0, sizeof g_settings);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("proc/sys/kernel/osrelease", cases[i].kernel);
        put("proc/driver/nvidia/version", cases[i].driver);
        assert_int_equal(tern_topology_read("fabric_tree", NULL, &g_settings, &g_topology),
                         TERN_OK);
        assert_int_equal(g_topology.has_dmabuf, cases[i].answer);
        assert_int_equal(g_topology.has_driver, TERN_ANSWER_YES);
        assert_int_equal(g_topology.has_peermem, TERN_ANSWER_UNKNOWN); /* no /sys/module */
    }
    put("sys/kernel/mm/memory_peers/nv_mem/version", "1.0");
    assert_int_equal(tern_topology_read("fabric_tree", NULL, &g_settings, &g_topology), TERN_OK);
    assert_int_equal(g_topology.has_peermem, TERN_ANSWER_YES);
    assert_int_equal(system("rm -rf fabric_tree"), 0);
}

static void test_this_machine_is_read(void **state)
{
    (void)state;
    tern_nccl_settings_read("/", NULL, NULL, &g_settings);
    assert_int_equal(tern_topology_read("/", NULL, &g_settings, &g_topology), TERN_OK);
    assert_true(g_topology.kernel_major >= 3);
    assert_true(g_topology.memory_bytes > 0);
    assert_true(g_topology.memlock_bytes != 0);
}

/* ---- fake machines, judged ---- */

static void test_sound_machines_have_no_finding(void **state)
{
    (void)state;
    static const char *const kinds[] = {"dgx-h100", "roce", "laptop"};
    for (int i = 0; i < 3; i++) {
        read_machine(kinds[i], NULL, g_no_settings);
        judge_with((struct tern_judge_job){.local_ranks = g_topology.gpu_count});
        EXPECT_NONE();
    }
}

static void test_ports_down(void **state)
{
    (void)state;
    read_machine("dgx-h100-down", NULL, g_no_settings);
    judge();
    EXPECT_ONLY("ib-port-down", "gpu-far-from-hca");
    const struct tern_finding *f = find("ib-port-down");
    assert_int_equal(f->severity, TERN_SEVERITY_SLOW);
    assert_string_equal(f->where, "mlx5_4 port 1, mlx5_5 port 1, mlx5_6 port 1, mlx5_7 port 1");
    assert_contains(f->found, "4 of 8 ports are not up");
    assert_contains(f->found, "DOWN, physical link Disabled");
    assert_contains(f->effect, "200 GB/s at most instead of 400");
    assert_string_equal(find("gpu-far-from-hca")->where, "GPU 4, GPU 5, GPU 6, GPU 7");
}

static void test_virtual_machine(void **state)
{
    (void)state;
    read_machine("vm-acs", NULL, g_no_settings);
    judge();
    EXPECT_ONLY("acs-on", "no-gpudirect", "memlock-low");
    assert_contains(find("acs-on")->where, "0000:02:00.0, 0000:02:01.0");
    assert_contains(find("acs-on")->advice, "a virtual machine needs ACS");
    assert_contains(find("no-gpudirect")->found, "not the open kernel module");
    assert_int_equal(find("memlock-low")->severity, TERN_SEVERITY_BROKEN);
    assert_string_equal(find("memlock-low")->found, "8.0 MiB");
    /* the same tree on bare metal: it can be switched off */
    g_topology.is_vm = TERN_ANSWER_NO;
    judge();
    assert_contains(find("acs-on")->advice, "setpci -s 0000:02:00.0 ECAP_ACS+6.w=0");
    /* a flat tree */
    g_topology.is_vm = TERN_ANSWER_YES;
    for (int i = 0; i < 2; i++) {
        snprintf(g_topology.gpus[i].pci.path, TERN_TOPO_PATH_BYTES, "pci0000:00/g%d", i);
        snprintf(g_topology.hcas[i].pci.path, TERN_TOPO_PATH_BYTES, "pci0000:00/h%d", i);
    }
    judge();
    assert_contains(find("vm-hides-topology")->advice, "NCCL_TOPO_FILE");
    g_topology.has_topo_file = TERN_ANSWER_YES;
    judge();
    EXPECT_ONLY("no-gpudirect", "memlock-low");
}

static void test_wrong_gid(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *found;
    } cases[] = {{"NCCL_IB_GID_INDEX=0", "entry 0 is RoCE v1"},
                 {"NCCL_IB_GID_INDEX=1", "entry 1 is a link-local address"},
                 {"NCCL_IB_GID_INDEX=2", "entry 2 is empty"}};
    for (int i = 0; i < 3; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i].setting);
        read_machine("roce", NULL, (char *[]){text, NULL});
        judge();
        EXPECT_ONLY("nccl-gid-index");
        const struct tern_finding *f = find("nccl-gid-index");
        assert_int_equal(f->severity, TERN_SEVERITY_BROKEN);
        assert_contains(f->found, cases[i].found);
        assert_contains(f->found, "mlx5_0 port 1, mlx5_1 port 1, mlx5_2 port 1, mlx5_3 port 1");
        assert_string_equal(f->expected, "entry 3, RoCE v2 with an IPv4 address");
    }
    char good[] = "NCCL_IB_GID_INDEX=3";
    read_machine("roce", NULL, (char *[]){good, NULL});
    judge();
    EXPECT_NONE();
    /* IPv6 alone will do, IPv4 is better */
    char zero[] = "NCCL_IB_GID_INDEX=0";
    read_machine("roce", NULL, (char *[]){zero, NULL});
    struct tern_topo_port *port = &g_topology.hcas[0].ports[0];
    port->gids[1].address = TERN_GID_IPV6;
    judge();
    assert_string_equal(find("nccl-gid-index")->expected, "entry 3, RoCE v2 with an IPv4 address");
    port->gids[2].address = TERN_GID_LINK_LOCAL;
    judge();
    assert_string_equal(find("nccl-gid-index")->expected,
                        "entry 1, RoCE v2 with a routable address");
    /* an interface without an address: only entries 0 and 1 are there */
    read_machine("roce", NULL, g_no_settings);
    g_topology.hcas[1].ports[0].gid_count = 2;
    judge();
    EXPECT_ONLY("roce-no-address");
    assert_contains(find("roce-no-address")->advice, "interface ens1");
    /* on InfiniBand the index is no matter */
    judge_dgx_with("NCCL_IB_GID_INDEX=3");
    EXPECT_NONE();
}

static void test_driver_library(void **state)
{
    (void)state;
    read_machine("dgx-h100", TEST_NVML, g_no_settings);
    assert_true(g_topology.is_nvml);
    assert_int_equal(g_topology.gpus[0].nvlinks, 18);
    judge();
    EXPECT_ONLY("nvlink-down", "gpu-mig", "gpu-memory-rows");
    assert_string_equal(find("nvlink-down")->where, "GPU 2 (17 up)");
    assert_string_equal(find("gpu-mig")->where, "GPU 3");
    assert_string_equal(find("gpu-memory-rows")->where, "GPU 5");
    /* a library that is something else */
    read_machine("dgx-h100", "libm.so.6", g_no_settings);
    assert_false(g_topology.is_nvml);
    judge();
    EXPECT_NONE();
}

/* ---- one thing changed on a sound machine ---- */

static void test_cards(void **state)
{
    (void)state;
    read_machine("dgx-h100", NULL, g_no_settings);
    struct tern_topo_hca *hca = &g_topology.hcas[3];
    snprintf(hca->ports[0].rate, sizeof hca->ports[0].rate, "200 Gb/sec (4X HDR)");
    hca->ports[0].rate_gbps = 200;
    judge();
    EXPECT_ONLY("ib-rate-low");
    assert_string_equal(find("ib-rate-low")->where, "mlx5_3 port 1");
    assert_contains(find("ib-rate-low")->effect, "25 GB/s, not 50");
    hca->ports[0].rate_gbps = 400;
    hca->pci.width = 4;
    judge();
    EXPECT_ONLY("hca-slot-narrow");
    assert_contains(find("hca-slot-narrow")->found, "126 Gb/s, below ports of 400 Gb/s");
    hca->pci.width = 16;
    hca->ports[0].link_downed = 37;
    judge();
    EXPECT_ONLY("ib-port-flaps");
    hca->ports[0].link_downed = 0;
    /* INIT with the link up: no subnet manager */
    hca->ports[0].state = TERN_PORT_INIT;
    judge();
    EXPECT_ONLY("ib-port-down", "gpu-far-from-hca");
    assert_contains(find("ib-port-down")->advice, "subnet manager");
    /* the other function of the same card is up: a port without a cable */
    g_topology.gpu_count = 0;
    snprintf(hca->pci.address, sizeof hca->pci.address, "0000:37:11.1");
    judge();
    EXPECT_NONE();
}

static void test_gpus(void **state)
{
    (void)state;
    read_machine("dgx-h100", NULL, g_no_settings);
    struct tern_topo_gpu *gpu = &g_topology.gpus[6];
    gpu->pci.width = 8;
    judge();
    EXPECT_ONLY("gpu-pcie-width");
    assert_int_equal(find("gpu-pcie-width")->severity, TERN_SEVERITY_SLOW);
    assert_contains(find("gpu-pcie-width")->effect, "8/16 of the rate (32 GB/s)");
    gpu->pci.slot_width_max = 8;
    judge();
    assert_int_equal(find("gpu-pcie-width")->severity, TERN_SEVERITY_NOTE);
    gpu->pci.width = 16;
    gpu->pci.speed = 2.5;
    judge();
    EXPECT_ONLY("gpu-pcie-speed");
    assert_contains(find("gpu-pcie-speed")->found, "PCIe 1 (2.5 GT/s)");
    assert_contains(find("gpu-pcie-speed")->effect, "copies run at 8 %");
    gpu->pci.speed = 16;
    gpu->pci.slot_speed_max = 16; /* all that the slot can do */
    judge();
    EXPECT_NONE();
    gpu->pci.speed = 32;
    gpu->is_driven = TERN_ANSWER_NO;
    judge();
    EXPECT_ONLY("gpu-no-driver");
    assert_contains(find("gpu-no-driver")->found, "knows 7 of 8 GPUs");
    gpu->is_driven = TERN_ANSWER_YES;
    g_topology.has_driver = TERN_ANSWER_NO;
    for (int i = 0; i < 8; i++) {
        snprintf(g_topology.gpus[i].pci.driver, TERN_TOPO_NAME_BYTES, "nouveau");
    }
    judge();
    EXPECT_ONLY("gpu-no-driver");
    assert_contains(find("gpu-no-driver")->found, "bound to nouveau");
    g_topology.has_driver = TERN_ANSWER_YES;
    gpu->pci.numa_node = -1;
    judge();
    EXPECT_ONLY("gpu-numa-unknown");
    gpu->pci.numa_node = 1;
    gpu->pci.is_translated = TERN_ANSWER_YES;
    judge();
    EXPECT_ONLY("iommu-translates");
}

static void test_host_limits(void **state)
{
    (void)state;
    read_machine("dgx-h100", NULL, g_no_settings);
    g_topology.hugepages = 500000;
    g_topology.hugepages_free = 499000;
    judge();
    EXPECT_ONLY("hugepages-unused");
    g_topology.hugepages_free = 10;
    g_topology.memlock_bytes = 65536;
    judge();
    EXPECT_ONLY("memlock-low");
    g_topology.memlock_bytes = 0; /* not known */
    g_topology.has_peermem = TERN_ANSWER_NO;
    g_topology.has_dmabuf = TERN_ANSWER_UNKNOWN;
    judge();
    EXPECT_NONE();
    g_topology.has_dmabuf = TERN_ANSWER_YES;
    judge();
    EXPECT_NONE();
}

static void test_visible_devices(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int gpus, visible;
        const char *wrong;
    } cases[] = {
        {NULL, 8, 8, ""},   {"", 8, 0, ""},         {"0", 8, 1, ""},
        {"3,1", 8, 2, ""},  {"0,8,1", 8, 1, "8"},   {"0,-1,2", 8, 1, "-1"},
        {"1,1", 8, 0, "1"}, {"none", 8, 0, "none"}, {"GPU-7f2a,MIG-31", 8, 2, ""},
        {"0,,1", 8, 1, ""}, {"0, 1", 2, 2, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wrong[TERN_TOPO_NAME_BYTES];
        int visible = tern_cuda_visible_count(cases[i].text, cases[i].gpus, wrong);
        if (visible != cases[i].visible || strcmp(wrong, cases[i].wrong) != 0) {
            fail_msg("'%s': found %d and '%s', expected %d and '%s'", cases[i].text, visible, wrong,
                     cases[i].visible, cases[i].wrong);
        }
    }
    read_machine("dgx-h100", NULL, g_no_settings);
    judge_with((struct tern_judge_job){.cuda_visible = "0,9"});
    EXPECT_ONLY("cuda-visible");
    assert_contains(find("cuda-visible")->effect, "1 of 8 GPUs are seen");
    judge_with((struct tern_judge_job){.local_ranks = 9});
    EXPECT_ONLY("more-ranks-than-gpus");
    judge_with((struct tern_judge_job){.local_ranks = 4});
    EXPECT_ONLY("idle-gpus");
    assert_contains(find("idle-gpus")->effect, "4 GPUs are paid for and idle");
    /* the launcher gave each rank one of its own */
    judge_with((struct tern_judge_job){.local_ranks = 8, .cuda_visible = "3"});
    EXPECT_NONE();
}

/* ---- settings ---- */

static void test_settings_that_contradict(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *id, *part; /* id NULL: no finding */
    } cases[] = {
        {"NCCL_IB_DISABLE=1", "nccl-ib-disabled", "instead of 400"},
        {"NCCL_IB_DISABLE=0", NULL, NULL},
        {"NCCL_NET=socket", "nccl-ib-disabled", "unset NCCL_NET"},
        {"NCCL_SOCKET_IFNAME=eth", "nccl-no-interface", "none of this host's interfaces"},
        {"NCCL_SOCKET_IFNAME=docker0", "nccl-no-interface", "docker0 only, which is down"},
        {"NCCL_SOCKET_IFNAME==eno", "nccl-no-interface", "none"},
        {"NCCL_SOCKET_IFNAME==eno3", NULL, NULL},
        {"NCCL_SOCKET_IFNAME=eno", NULL, NULL},
        {"NCCL_SOCKET_IFNAME=^lo,docker", NULL, NULL},
        {"NCCL_SOCKET_IFNAME=^lo,docker,eno,ibs", "nccl-no-interface", "none"},
        {"NCCL_IB_HCA=mlx4", "nccl-no-hca", "falls back to TCP"},
        {"NCCL_IB_HCA=mlx5", NULL, NULL},
        {"NCCL_IB_HCA=mlx5_0:2", "nccl-no-hca", "active ports"},
        {"NCCL_IB_HCA==mlx5_0:1,mlx5_1:1", "nccl-hca-left", "2 of 8 ports"},
        {"NCCL_IB_HCA=^mlx5_7", "nccl-hca-left", "mlx5_7"},
        {"NCCL_P2P_DISABLE=1", "nccl-p2p-off", "instead of about 370"},
        {"NCCL_P2P_LEVEL=LOC", "nccl-p2p-off", "NVLink"},
        {"NCCL_P2P_LEVEL=NVL", NULL, NULL},
        {"NCCL_SHM_DISABLE=1", NULL, NULL}, /* there is NVLink */
        {"NCCL_NET_GDR_LEVEL=LOC", "nccl-gdr-level", "GPU 0, GPU 1"},
        {"NCCL_NET_GDR_LEVEL=0", "nccl-gdr-level", "same switch"},
        {"NCCL_NET_GDR_LEVEL=PIX", NULL, NULL},
        {"NCCL_NET_GDR_LEVEL=9", NULL, NULL},
        {"NCCL_DMABUF_ENABLE=0", NULL, NULL}, /* there is nvidia_peermem */
        {"NCCL_NVLS_ENABLE=0", "nccl-nvls-off", "370 GB/s instead of 480"},
        {"NCCL_ALGO=Ring", "nccl-nvls-off", "train.deterministic"},
        {"NCCL_ALGO=^NVLS", "nccl-nvls-off", "train.deterministic"},
        {"NCCL_ALGO=^Tree", NULL, NULL},
        {"NCCL_ALGO=NVLS,Ring", "nccl-algo-bits", "differs from host to host"},
        {"NCCL_PROTO=Simple", NULL, NULL},
        {"NCCL_PROTO=LL", "nccl-proto-slow", "half the bandwidth"},
        {"NCCL_PROTO=ll128", "nccl-proto-forced", "damaged in silence"},
        {"NCCL_PROTO=^LL128", NULL, NULL},
        {"NCCL_TOPO_FILE=/no/such.xml", "nccl-no-topo-file", "no such file"},
        {"NCCL_COMM_BLOCKING=1", "nccl-blocking", "unset it"},
        {"NCCL_DEBUG=INFO", NULL, NULL},
        {"NCCL_IB_HCA=", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("%s\n", cases[i].setting);
        judge_dgx_with(cases[i].setting);
        if (cases[i].id == NULL) {
            EXPECT_NONE();
            continue;
        }
        EXPECT_ONLY(cases[i].id);
        const struct tern_finding *f = find(cases[i].id);
        assert_contains(f->where, cases[i].setting);
        assert_contains(f->where, "(environment)");
        char all[5 * TERN_FINDING_BYTES];
        snprintf(all, sizeof all, "%s %s %s %s", f->found, f->expected, f->effect, f->advice);
        assert_contains(all, cases[i].part);
    }
}

static void test_settings_of_other_machines(void **state)
{
    (void)state;
    char algo[] = "NCCL_ALGO=nvls";
    read_machine("roce", NULL, (char *[]){algo, NULL});
    judge();
    EXPECT_ONLY("nccl-no-algorithm");
    char shared[] = "NCCL_SHM_DISABLE=1";
    read_machine("roce", NULL, (char *[]){shared, NULL});
    judge();
    EXPECT_ONLY("nccl-shm-off");
    char dmabuf[] = "NCCL_DMABUF_ENABLE=0";
    read_machine("roce", NULL, (char *[]){dmabuf, NULL});
    judge();
    EXPECT_ONLY("no-gpudirect");
    assert_contains(find("no-gpudirect")->advice, "unset NCCL_DMABUF_ENABLE");
    /* mlx5_1 means mlx5_10 and mlx5_11 too */
    char prefix[] = "NCCL_IB_HCA=mlx5_1";
    read_machine("dgx-h100", NULL, (char *[]){prefix, NULL});
    snprintf(g_topology.hcas[6].name, TERN_TOPO_NAME_BYTES, "mlx5_10");
    snprintf(g_topology.hcas[7].name, TERN_TOPO_NAME_BYTES, "mlx5_11");
    judge();
    EXPECT_ONLY("nccl-hca-prefix");
    assert_contains(find("nccl-hca-prefix")->found, "mlx5_10, mlx5_11");
    /* all of it means nothing on a laptop */
    char many[][40] = {"NCCL_P2P_DISABLE=1", "NCCL_ALGO=Ring", "NCCL_IB_HCA=mlx5_9",
                       "NCCL_PROTO=LL"};
    read_machine("laptop", NULL, (char *[]){many[0], many[1], many[2], many[3], NULL});
    judge();
    EXPECT_NONE();
}

static void test_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *name;
        int port;
        bool takes;
    } cases[] = {
        {"mlx5", "mlx5_3", 1, true},         {"mlx5_1", "mlx5_10", 1, true},
        {"=mlx5_1", "mlx5_10", 1, false},    {"=mlx5_1", "mlx5_1", 1, true},
        {"mlx5_1:2", "mlx5_1", 1, false},    {"mlx5_1:2", "mlx5_1", 2, true},
        {"mlx5_1:2", "mlx5_1", 0, true},     {"^mlx5_1", "mlx5_1", 1, false},
        {"^mlx5_1", "mlx5_2", 1, true},      {"^=mlx5_1", "mlx5_10", 1, true},
        {"a,b,,mlx5_2", "mlx5_2", 1, true},  {"", "mlx5_2", 1, true},
        {"=mlx5_0::0:0", "mlx5_0", 2, true}, {"mlx5_00", "mlx5_0", 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (tern_nccl_list_takes(cases[i].list, cases[i].name, cases[i].port) != cases[i].takes) {
            fail_msg("'%s' and %s port %d: expected %s", cases[i].list, cases[i].name,
                     cases[i].port, cases[i].takes ? "taken" : "left");
        }
    }
}

/* Environment before the user's file before the system's. */
static void test_sources_of_settings(void **state)
{
    (void)state;
    static const char setup[] =
        "rm -rf fabric_settings && mkdir -p fabric_settings/etc fabric_settings/home/a &&"
        "printf '# comment\\nNCCL_A=etc\\nNCCL_B=etc\\nNCCL_C==etc\\nPATH=/no\\nNCCL_X\\n'"
        " >fabric_settings/etc/nccl.conf &&"
        "printf 'NCCL_B=user\\nNCCL_A=user\\n' >fabric_settings/home/a/.nccl.conf &&"
        "printf 'NCCL_A=own\\n' >fabric_settings/own.conf";
    assert_int_equal(system(setup), 0);
    char a[] = "NCCL_A=environment";
    char other[] = "OTHER=1";
    tern_nccl_settings_read("fabric_settings", "/home/a", (char *[]){other, a, NULL}, &g_settings);
    assert_int_equal(g_settings.count, 3);
    assert_string_equal(tern_nccl_setting(&g_settings, "NCCL_A"), "environment");
    assert_string_equal(tern_nccl_setting(&g_settings, "NCCL_B"), "user");
    assert_string_equal(tern_nccl_setting(&g_settings, "NCCL_C"), "=etc");
    assert_string_equal(tern_nccl_setting_find(&g_settings, "NCCL_B")->source, "~/.nccl.conf");
    assert_null(tern_nccl_setting(&g_settings, "NCCL_X"));
    char file[] = "NCCL_CONF_FILE=/own.conf";
    tern_nccl_settings_read("fabric_settings", "/home/a", (char *[]){file, NULL}, &g_settings);
    assert_string_equal(tern_nccl_setting(&g_settings, "NCCL_A"), "own");
    assert_string_equal(tern_nccl_setting(&g_settings, "NCCL_B"), "etc");
    assert_int_equal(system("rm -rf fabric_settings"), 0);
}

/* ---- expected figures ---- */

static void test_expected_figures(void **state)
{
    (void)state;
    struct tern_fabric_shape shape;
    read_machine("dgx-h100", NULL, g_no_settings);
    tern_fabric_shape_of(&g_topology, &shape);
    shape.is_gpu = true;
    struct tern_expected expected = tern_expect_all_reduce(&shape);
    assert_int_equal(expected.path, TERN_PATH_NVSWITCH);
    assert_int_equal((int)(expected.bus_library / 1e9), 480);
    assert_int_equal((int)(expected.bus / 1e9), 370);
    assert_int_equal((int)(tern_expect_seconds(&shape, (int64_t)1 << 30) * 1e6 + 0.5), 4032);
    assert_int_equal((int)(tern_expect_seconds(&shape, 8) * 1e6 + 0.5), 15);
    assert_int_equal((int)(tern_expect_seconds(&shape, (1 << 20) + (15 << 19)) * 1e6 + 0.5),
                     75); /* half way */
    assert_int_equal((int)(tern_expect_seconds(&shape, (int64_t)2 << 30) * 1e6 + 0.5), 7924);
    shape.ranks = 4; /* no figure of NVLS for four */
    expected = tern_expect_all_reduce(&shape);
    assert_int_equal((int)(expected.bus / 1e9), 370);
    assert_int_equal((int)expected.bus_library, 0);
    assert_true(tern_expect_seconds(&shape, 1 << 20) == 0);
    shape.ranks = 16;
    shape.hosts = 2;
    expected = tern_expect_all_reduce(&shape);
    assert_int_equal(expected.path, TERN_PATH_RDMA);
    assert_int_equal((int)(expected.bus / 1e9), 320);
    shape.rdma_gbps = 0;
    expected = tern_expect_all_reduce(&shape);
    assert_int_equal(expected.path, TERN_PATH_TCP);
    assert_int_equal((int)(expected.bus / 1e6),
                     40000); /* IP over 400 Gb/s InfiniBand is the fastest interface */
    read_machine("roce", NULL, g_no_settings);
    tern_fabric_shape_of(&g_topology, &shape);
    shape.is_gpu = true;
    expected = tern_expect_all_reduce(&shape);
    assert_int_equal(expected.path, TERN_PATH_PCIE);
    assert_int_equal((int)(expected.bus / 1e9), 50);
    shape.is_gpu = false;
    expected = tern_expect_all_reduce(&shape);
    assert_int_equal(expected.path, TERN_PATH_HOST_MEMORY);
    assert_int_equal((int)expected.bus, 0);
}

/* A list that is full says so and does not write past its end. */
static void test_many_findings(void **state)
{
    (void)state;
    memset(&g_findings, 0, sizeof g_findings);
    for (int i = 0; i < TERN_FINDINGS_MAX + 5; i++) {
        (void)tern_findings_add(&g_findings, TERN_SEVERITY_NOTE, "id", "%d", i);
    }
    assert_int_equal(g_findings.count, TERN_FINDINGS_MAX);
    assert_int_equal(g_findings.left_out, 5);
    struct tern_names names = {0};
    for (int i = 0; i < 100; i++) {
        tern_names_add(&names, "mlx5_%d port 1", i);
    }
    assert_int_equal(names.count, 100);
    assert_contains(names.text, "mlx5_0 port 1, mlx5_1 port 1");
    assert_string_equal(names.text + strlen(names.text) - 2, "..");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_dgx_is_read),
        CHECKED(test_nearest_cards),
        CHECKED(test_distances),
        CHECKED(test_broken_files_are_not_known),
        CHECKED(test_dmabuf),
        CHECKED(test_this_machine_is_read),
        CHECKED(test_sound_machines_have_no_finding),
        CHECKED(test_ports_down),
        CHECKED(test_virtual_machine),
        CHECKED(test_wrong_gid),
        CHECKED(test_driver_library),
        CHECKED(test_cards),
        CHECKED(test_gpus),
        CHECKED(test_host_limits),
        CHECKED(test_visible_devices),
        CHECKED(test_settings_that_contradict),
        CHECKED(test_settings_of_other_machines),
        CHECKED(test_lists),
        CHECKED(test_sources_of_settings),
        CHECKED(test_expected_figures),
        CHECKED(test_many_findings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
