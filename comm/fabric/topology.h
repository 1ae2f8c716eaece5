/* topology.h - one host as plain data: GPUs, network cards, the PCI bridges between them, and what the kernel allows.
 * Read from sysfs and procfs below a root (a test gives a tree of its own), or written by hand.
 *
 * Everything is optional. Zero, "" and TERN_ANSWER_UNKNOWN mean "not known" (NUMA node: -1), and judging (judge.h)
 * says nothing about what is not known. */
#ifndef TERN_COMM_FABRIC_TOPOLOGY_H
#define TERN_COMM_FABRIC_TOPOLOGY_H

#include "comm/fabric/nccl_settings.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum tern_answer {
    TERN_ANSWER_UNKNOWN,
    TERN_ANSWER_NO,
    TERN_ANSWER_YES
};

enum {
    TERN_TOPO_GPUS_MAX = 32,
    TERN_TOPO_HCAS_MAX = 48,
    TERN_TOPO_PORTS_MAX = 2,
    TERN_TOPO_GIDS_MAX = 32, /* entries in use; tables have 256 places */
    TERN_TOPO_BRIDGES_MAX = 256,
    TERN_TOPO_NETS_MAX = 64,
    TERN_TOPO_NAME_BYTES = 32,
    TERN_TOPO_PATH_BYTES = 256
};

struct tern_topo_pci {
    char address[TERN_TOPO_NAME_BYTES]; /* "0000:18:00.0" */
    char path[TERN_TOPO_PATH_BYTES]; /* from the root complex down: "pci0000:15/0000:15:01.0/..." */
    char driver[TERN_TOPO_NAME_BYTES]; /* that is bound to it */
    uint32_t vendor, device, class_code;
    int numa_node;                           /* -1 not known, or none */
    int width, width_max;                    /* lanes; max: of the device */
    int slot_width_max;                      /* of the bridge above */
    double speed, speed_max, slot_speed_max; /* GT/s a lane: 16 is PCIe 4, 32 is PCIe 5 */
    enum tern_answer is_translated;          /* its DMA goes through the IOMMU's tables */
};

struct tern_topo_gpu {
    struct tern_topo_pci pci;
    char model[64];                    /* "NVIDIA H100 80GB HBM3" */
    enum tern_answer is_driven;        /* the NVIDIA driver lists it */
    int mig_instances;                 /* 0: not split */
    int nvlinks, nvlinks_up;           /* of this GPU; nvlinks 0: none, or not known */
    enum tern_answer is_remap_pending; /* bad memory rows wait for a reset */
};

/* The numbers of the kernel: port state 1 DOWN .. 4 ACTIVE, physical state 2 Polling, 3 Disabled, 5 LinkUp. */
enum {
    TERN_PORT_DOWN = 1,
    TERN_PORT_INIT = 2,
    TERN_PORT_ARMED = 3,
    TERN_PORT_ACTIVE = 4,
    TERN_PHYS_POLLING = 2,
    TERN_PHYS_DISABLED = 3,
    TERN_PHYS_LINK_UP = 5
};

enum tern_link_layer {
    TERN_LINK_UNKNOWN,
    TERN_LINK_INFINIBAND,
    TERN_LINK_ETHERNET /* RoCE */
};

enum tern_gid_address {
    TERN_GID_LINK_LOCAL, /* fe80::: does not leave its segment */
    TERN_GID_IPV4,       /* ::ffff:a.b.c.d */
    TERN_GID_IPV6        /* any other; on InfiniBand the port's own */
};

struct tern_topo_gid {
    int index;
    enum tern_answer is_roce_v2; /* no: RoCE v1, or InfiniBand */
    enum tern_gid_address address;
    char net[TERN_TOPO_NAME_BYTES]; /* interface that it belongs to */
};

struct tern_topo_port {
    int number;
    int state, phys_state;
    double rate_gbps; /* gigabits per second */
    int lanes;        /* "4X": 4 */
    char rate[48];    /* "400 Gb/sec (4X NDR)" */
    enum tern_link_layer link;
    struct tern_topo_gid gids[TERN_TOPO_GIDS_MAX];
    int gid_count;
    int64_t link_downed; /* since the driver was loaded */
};

struct tern_topo_hca {
    char name[TERN_TOPO_NAME_BYTES]; /* "mlx5_0" */
    char firmware[48];
    struct tern_topo_pci pci;
    struct tern_topo_port ports[TERN_TOPO_PORTS_MAX];
    int port_count;
};

/* A PCI bridge: a root port, or a port of a switch. */
struct tern_topo_bridge {
    char address[TERN_TOPO_NAME_BYTES];
    char path[TERN_TOPO_PATH_BYTES];
    enum tern_answer is_redirecting; /* ACS sends traffic between devices below it up to the CPU */
};

struct tern_topo_net {
    char name[TERN_TOPO_NAME_BYTES];
    enum tern_answer is_up;
    int64_t speed_mbps;
    bool is_virtual; /* no device behind it: lo, docker0, veth */
};

struct tern_topology {
    char host[64];
    char kernel[96];
    int kernel_major, kernel_minor;
    char driver_version[48];          /* of the NVIDIA kernel module */
    enum tern_answer has_driver;      /* it is loaded */
    enum tern_answer has_open_driver; /* its open flavour, which can export memory as dmabuf */
    enum tern_answer has_peermem;     /* nvidia_peermem, or its ancestor nv_peer_mem */
    enum tern_answer has_dmabuf;
    enum tern_answer is_vm;
    enum tern_answer has_iommu;
    enum tern_answer has_topo_file; /* what NCCL_TOPO_FILE, or NCCL's default place, names */
    int numa_nodes;
    int64_t memory_bytes;
    int64_t memlock_bytes; /* soft limit; -1 none */
    int64_t hugepages, hugepages_free, hugepage_bytes;
    char transparent_hugepages[TERN_TOPO_NAME_BYTES]; /* always, madvise, never */
    struct tern_topo_gpu gpus[TERN_TOPO_GPUS_MAX];
    struct tern_topo_hca hcas[TERN_TOPO_HCAS_MAX];
    struct tern_topo_bridge bridges[TERN_TOPO_BRIDGES_MAX];
    struct tern_topo_net nets[TERN_TOPO_NETS_MAX];
    int gpu_count, hca_count, bridge_count, net_count, nvswitch_count;
    bool is_nvml; /* NVLinks and MIG were asked of the driver's library */
};

/* Reads what is below `root` ("/" for this machine). nvml: path of NVIDIA's management library, to be loaded when it is
 * there; NULL: not asked. Settings say where NCCL's topology file would be. TERN_ERR_MEMORY only. */
TERN_MUST_CHECK tern_status tern_topology_read(const char *root,
                                               const char *nvml,
                                               const struct tern_nccl_settings *settings,
                                               struct tern_topology *out);

/* How far two PCI devices are from each other, nearest first; in brackets the words of nvidia-smi. */
enum tern_distance {
    TERN_DISTANCE_UNKNOWN,
    TERN_DISTANCE_SWITCH,   /* one switch between them (PIX) */
    TERN_DISTANCE_SWITCHES, /* several, below one root port (PXB) */
    TERN_DISTANCE_ROOT,     /* through the CPU's root complex (PHB) */
    TERN_DISTANCE_NODE,     /* between root complexes of one NUMA node (NODE) */
    TERN_DISTANCE_CROSS     /* over the link between CPUs (SYS) */
};
enum tern_distance tern_topo_distance(const struct tern_topo_pci *a, const struct tern_topo_pci *b);
const char *tern_distance_name(enum tern_distance distance); /* "same switch" */

const char *tern_answer_name(enum tern_answer answer); /* "no", "yes", "not known" */
const char *tern_port_state_name(int state);           /* "ACTIVE" */
const char *tern_phys_state_name(int phys_state);      /* "LinkUp" */
const char *tern_link_layer_name(enum tern_link_layer link);
/* Bytes per second that a PCIe link carries one way after its encoding; 0 not known. */
double tern_pcie_bytes_per_second(double speed, int width);
/* 3 for 8 GT/s, 4 for 16, ...; 0 not known. */
int tern_pcie_generation(double speed);

bool tern_topo_port_is_active(const struct tern_topo_port *port);
/* Rate of all active ports in gigabits per second. */
double tern_topo_active_gbps(const struct tern_topology *topology);
/* The nearest card with an active port (of those as near: the one that fewest GPUs before this one took), -1 none. */
int tern_topo_nearest_hca(const struct tern_topology *topology, int gpu);

#endif
