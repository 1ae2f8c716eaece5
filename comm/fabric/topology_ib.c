/* topology_ib.c - InfiniBand and RoCE cards from class/infiniband: ports, rates, GIDs. libibverbs would say no more. */
#include "comm/fabric/topology_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GID_TABLE_MAX = 256
};

/* "4: ACTIVE" */
static int read_number(const char *root, const char *port, const char *file)
{
    char line[64];
    if (!tern_sys_line(root, line, sizeof line, "%s/%s", port, file)) {
        return 0;
    }
    long value = strtol(line, NULL, 10);
    return value > 0 && value < 16 ? (int)value : 0;
}

/* "400 Gb/sec (4X NDR)" */
static void read_rate(const char *root, const char *folder, struct tern_topo_port *port)
{
    if (!tern_sys_line(root, port->rate, sizeof port->rate, "%s/rate", folder)) {
        return;
    }
    double rate = strtod(port->rate, NULL);
    port->rate_gbps = rate > 0 && rate < 100000 ? rate : 0;
    const char *lanes = strchr(port->rate, '(');
    long count = lanes != NULL ? strtol(lanes + 1, NULL, 10) : 0;
    port->lanes = count > 0 && count <= 16 ? (int)count : 0;
}

static enum tern_gid_address address_kind(const char *gid)
{
    if (strncmp(gid, "fe80:", 5) == 0) {
        return TERN_GID_LINK_LOCAL;
    }
    return strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) == 0 ? TERN_GID_IPV4 : TERN_GID_IPV6;
}

/* Entries in use: their text is not all zeros. The kernel answers EINVAL for the type of an empty one. */
static void read_gids(struct tern_topo_reader *reader,
                      const char *folder,
                      struct tern_topo_port *port)
{
    char gid[64];
    char type[64];
    if (!tern_sys_list_names(reader->root, &reader->names_below, "%s/gids", folder)) {
        return;
    }
    for (int i = 0; i < reader->names_below.count && port->gid_count < TERN_TOPO_GIDS_MAX; i++) {
        const char *name = reader->names_below.names[i];
        char *end;
        long index = strtol(name, &end, 10);
        if (*end != '\0' || index < 0 || index >= GID_TABLE_MAX ||
            !tern_sys_line(reader->root, gid, sizeof gid, "%s/gids/%s", folder, name) ||
            strspn(gid, "0:") == strlen(gid)) {
            continue;
        }
        struct tern_topo_gid *entry = &port->gids[port->gid_count++];
        entry->index = (int)index;
        entry->address = address_kind(gid);
        if (tern_sys_line(reader->root, type, sizeof type, "%s/gid_attrs/types/%s", folder, name)) {
            entry->is_roce_v2 = strcmp(type, "RoCE v2") == 0 ? TERN_ANSWER_YES : TERN_ANSWER_NO;
        }
        (void)tern_sys_line(reader->root, entry->net, sizeof entry->net, "%s/gid_attrs/ndevs/%s",
                            folder, name);
    }
}

static void add_port(struct tern_topo_reader *reader, struct tern_topo_hca *hca, int number)
{
    char folder[160];
    char layer[32];
    snprintf(folder, sizeof folder, "sys/class/infiniband/%s/ports/%d", hca->name, number);
    struct tern_topo_port *port = &hca->ports[hca->port_count++];
    port->number = number;
    port->state = read_number(reader->root, folder, "state");
    port->phys_state = read_number(reader->root, folder, "phys_state");
    read_rate(reader->root, folder, port);
    if (tern_sys_line(reader->root, layer, sizeof layer, "%s/link_layer", folder)) {
        port->link = strcmp(layer, "InfiniBand") == 0 ? TERN_LINK_INFINIBAND
                     : strcmp(layer, "Ethernet") == 0 ? TERN_LINK_ETHERNET
                                                      : TERN_LINK_UNKNOWN;
    }
    port->link_downed = tern_sys_i64(reader->root, 0, "%s/counters/link_downed", folder);
    read_gids(reader, folder, port);
}

static void add_hca(struct tern_topo_reader *reader, const char *name)
{
    struct tern_topology *topology = reader->topology;
    char link[512];
    struct tern_topo_hca *hca = &topology->hcas[topology->hca_count++];
    snprintf(hca->name, sizeof hca->name, "%.31s", name);
    hca->pci.numa_node = -1;
    if (tern_sys_link(reader->root, link, sizeof link, "sys/class/infiniband/%s/device", name)) {
        const char *address = strrchr(link, '/');
        tern_topo_read_pci_device(reader->root, address != NULL ? address + 1 : link, &hca->pci);
    }
    (void)tern_sys_line(reader->root, hca->firmware, sizeof hca->firmware,
                        "sys/class/infiniband/%s/fw_ver", name);
    for (int number = 1; number <= TERN_TOPO_PORTS_MAX; number++) {
        if (tern_sys_exists(reader->root, "sys/class/infiniband/%s/ports/%d", name, number)) {
            add_port(reader, hca, number);
        }
    }
}

void tern_topo_read_hcas(struct tern_topo_reader *reader)
{
    if (!tern_sys_list_names(reader->root, &reader->names, "sys/class/infiniband")) {
        return;
    }
    for (int i = 0; i < reader->names.count && i < TERN_TOPO_HCAS_MAX; i++) {
        if (strlen(reader->names.names[i]) < TERN_TOPO_NAME_BYTES) {
            add_hca(reader, reader->names.names[i]);
        }
    }
}
