/* expect.h - what an all-reduce reaches on a fabric that is as it should be: published figures, by kind of link. */
#ifndef TERN_COMM_FABRIC_EXPECT_H
#define TERN_COMM_FABRIC_EXPECT_H

#include "comm/fabric/topology.h"

enum tern_path {
    TERN_PATH_HOST_MEMORY, /* ranks of one host, data in host memory */
    TERN_PATH_NVSWITCH,
    TERN_PATH_NVLINK, /* direct links, no switch */
    TERN_PATH_PCIE,
    TERN_PATH_RDMA, /* InfiniBand or RoCE */
    TERN_PATH_TCP
};

/* What decides the figure. */
struct tern_fabric_shape {
    int ranks, hosts;
    bool is_gpu;        /* the data is in GPU memory */
    char gpu_model[64]; /* of one of them */
    bool has_nvlink, has_nvswitch;
    double pcie_bytes_per_second; /* of a GPU's slot, one way; 0 not known */
    double rdma_gbps;             /* active ports of a host, all together; 0 none */
    double net_gbps;              /* fastest interface that is up; 0 not known */
};

/* Bytes per second of bus bandwidth: algorithm bandwidth x 2 (n - 1) / n, which is what the slowest link carries. */
struct tern_expected {
    enum tern_path path;
    double bus;         /* by send and receive, or a ring; 0: no figure is known */
    double bus_library; /* the best of NCCL's own algorithms (NVLS); 0: none better */
    const char *source; /* static */
};

/* Pure. */
struct tern_expected tern_expect_all_reduce(const struct tern_fabric_shape *shape);
/* Seconds that NCCL's own all-reduce takes for one message size, by the curve of 8 x H100; 0: not known. */
double tern_expect_seconds(const struct tern_fabric_shape *shape, int64_t bytes);
const char *tern_path_name(enum tern_path path); /* "NVSwitch" */
/* Of one host with one rank a GPU; more hosts, or data in host memory, are the caller's to fill in. */
void tern_fabric_shape_of(const struct tern_topology *topology, struct tern_fabric_shape *out);

#endif
