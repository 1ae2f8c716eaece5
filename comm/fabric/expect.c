/* expect.c - the table of expected figures. Nothing in it was measured with Tern. */
#include "comm/fabric/expect.h"

#include <stdio.h>
#include <string.h>

#define GB 1e9

/* Share of the line rate to plan with: one 400 Gb/s port gives 46 to 48 of 50 GB/s (NVIDIA in nccl-tests issue 290),
 * eight give 320 to 365 of 400 between 4 and 248 hosts (nccl issue 1221, nccl-tests issue 283, ml-engineering). */
static const double g_line_share = 0.8;

/* Bus bandwidth between GPUs of one host over NVSwitch. */
static const struct {
    const char *model;
    int gpus;
    double library; /* NVLS, GB/s; 0: not there */
    double ring;    /* GB/s */
    const char *source;
} g_nvswitch[] = {
    {"H100", 8, 480, 370, "NVIDIA dgxc-benchmarking, nccl; ring: nccl-tests issue 212"},
    {"H200", 8, 482, 367, "ml-engineering, network; nccl-tests issue 272 has 475"},
    {"H200", 7, 460, 367, "ml-engineering, network"},
    {"H200", 6, 436, 367, "ml-engineering, network"},
    {"H200", 5, 414, 367, "ml-engineering, network"},
    {"H200", 4, 363, 363, "ml-engineering, network"},
    {"B200", 8, 838, 682, "ml-engineering, network; nccl issue 1807 has 830"},
    {"A100", 8, 0, 235, "ml-engineering, network; Azure's health check asks for 228"},
};

/* Time of NCCL's own all-reduce on 8 x H100 by message size (dgxc-benchmarking, nccl, full log); above 1 MiB worked out
 * from its bus bandwidths of 237, 362, 422 and 466 GB/s. */
static const struct {
    double bytes, seconds;
} g_h100_curve[] = {
    {8, 15e-6},         {65536, 19e-6},        {1048576, 27e-6},       {16777216, 124e-6},
    {67108864, 325e-6}, {268435456, 1.113e-3}, {1073741824, 4.032e-3},
};
enum {
    CURVE_POINTS = sizeof g_h100_curve / sizeof g_h100_curve[0]
};

const char *tern_path_name(enum tern_path path)
{
    static const char *const names[] = {"host memory", "NVSwitch", "NVLink", "PCIe", "RDMA", "TCP"};
    return names[path];
}

static struct tern_expected over_nvswitch(const struct tern_fabric_shape *shape)
{
    struct tern_expected expected = {.path = TERN_PATH_NVSWITCH,
                                     .source = "no figure for this GPU"};
    for (size_t i = 0; i < sizeof g_nvswitch / sizeof g_nvswitch[0]; i++) {
        if (strstr(shape->gpu_model, g_nvswitch[i].model) == NULL) {
            continue;
        }
        bool is_exact = g_nvswitch[i].gpus == shape->ranks;
        /* a ring's bus bandwidth does not depend on how many it joins, NVLS's does */
        if (is_exact || expected.bus == 0) {
            expected.bus = g_nvswitch[i].ring * GB;
            expected.bus_library = is_exact ? g_nvswitch[i].library * GB : 0;
            expected.source = g_nvswitch[i].source;
        }
    }
    return expected;
}

static struct tern_expected inside_host(const struct tern_fabric_shape *shape)
{
    if (!shape->is_gpu) {
        return (struct tern_expected){.path = TERN_PATH_HOST_MEMORY,
                                      .source = "it depends on the host's memory and cores"};
    }
    if (shape->has_nvswitch) {
        return over_nvswitch(shape);
    }
    if (shape->has_nvlink) {
        return (struct tern_expected){.path = TERN_PATH_NVLINK,
                                      .source = "it depends on which GPUs are bridged"};
    }
    return (struct tern_expected){.path = TERN_PATH_PCIE,
                                  .bus = g_line_share * shape->pcie_bytes_per_second,
                                  .source =
                                      shape->pcie_bytes_per_second > 0
                                          ? "80 % of the PCIe link, when peers reach each other"
                                          : "the links are not known"};
}

struct tern_expected tern_expect_all_reduce(const struct tern_fabric_shape *shape)
{
    struct tern_expected inside = inside_host(shape);
    if (shape->hosts <= 1) {
        return inside;
    }
    bool is_rdma = shape->rdma_gbps > 0;
    double line = (is_rdma ? shape->rdma_gbps : shape->net_gbps) * 1e9 / 8;
    struct tern_expected between = {
        .path = is_rdma ? TERN_PATH_RDMA : TERN_PATH_TCP,
        .bus = g_line_share * line,
        .source = is_rdma ? "80 % of the host's active InfiniBand or RoCE ports"
                          : "80 % of the fastest interface",
    };
    /* the ring is as fast as its slowest part */
    return inside.bus > 0 && inside.bus < between.bus ? inside : between;
}

double tern_expect_seconds(const struct tern_fabric_shape *shape, int64_t bytes)
{
    if (!shape->is_gpu || shape->hosts > 1 || !shape->has_nvswitch || shape->ranks != 8 ||
        strstr(shape->gpu_model, "H100") == NULL || bytes < 8) {
        return 0;
    }
    int i = 1;
    while (i < CURVE_POINTS - 1 && g_h100_curve[i].bytes < (double)bytes) {
        i++;
    }
    /* a straight line between two points, and beyond the last */
    double share = ((double)bytes - g_h100_curve[i - 1].bytes) /
                   (g_h100_curve[i].bytes - g_h100_curve[i - 1].bytes);
    return g_h100_curve[i - 1].seconds +
           share * (g_h100_curve[i].seconds - g_h100_curve[i - 1].seconds);
}

void tern_fabric_shape_of(const struct tern_topology *topology, struct tern_fabric_shape *out)
{
    memset(out, 0, sizeof *out);
    out->ranks = topology->gpu_count;
    out->hosts = 1;
    out->is_gpu = topology->gpu_count > 0;
    out->has_nvswitch = topology->nvswitch_count > 0;
    out->has_nvlink = out->has_nvswitch;
    for (int i = 0; i < topology->gpu_count; i++) {
        const struct tern_topo_gpu *gpu = &topology->gpus[i];
        double rate = tern_pcie_bytes_per_second(gpu->pci.speed_max, gpu->pci.width);
        out->has_nvlink = out->has_nvlink || gpu->nvlinks_up > 0;
        if (out->pcie_bytes_per_second == 0 || rate < out->pcie_bytes_per_second) {
            out->pcie_bytes_per_second = rate;
        }
    }
    if (topology->gpu_count > 0) {
        snprintf(out->gpu_model, sizeof out->gpu_model, "%s", topology->gpus[0].model);
    }
    out->rdma_gbps = tern_topo_active_gbps(topology);
    for (int i = 0; i < topology->net_count; i++) {
        const struct tern_topo_net *net = &topology->nets[i];
        double gbps = (double)net->speed_mbps / 1000;
        if (net->is_up == TERN_ANSWER_YES && !net->is_virtual && gbps > out->net_gbps) {
            out->net_gbps = gbps;
        }
    }
}
