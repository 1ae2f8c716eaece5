/* topology_impl.h - the parts that a topology is read in. */
#ifndef TERN_COMM_FABRIC_TOPOLOGY_IMPL_H
#define TERN_COMM_FABRIC_TOPOLOGY_IMPL_H

#include "comm/fabric/sysfile.h"
#include "comm/fabric/topology.h"

/* What all of one reading share. */
struct tern_topo_reader {
    const char *root;
    struct tern_topology *topology;
    struct tern_sys_list names; /* scratch; not across a call that takes the reader */
    struct tern_sys_list names_below;
};

/* A device by its address below bus/pci/devices. */
void tern_topo_read_pci_device(const char *root, const char *address, struct tern_topo_pci *out);
/* GPUs, NVSwitches and bridges of the PCI bus, with what /proc/driver/nvidia says about them. */
void tern_topo_read_pci(struct tern_topo_reader *reader);
/* class/infiniband: cards, ports, GIDs. */
void tern_topo_read_hcas(struct tern_topo_reader *reader);
/* Kernel, driver, modules, limits, interfaces. */
void tern_topo_read_host(struct tern_topo_reader *reader);
/* NVLinks, MIG, pending row remaps by the driver's library, when it is there. */
void tern_topo_read_nvml(const char *path, struct tern_topology *topology);

#endif
