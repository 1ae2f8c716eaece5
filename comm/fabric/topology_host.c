/* topology_host.c - kernel, NVIDIA driver, modules, limits and interfaces of a host. */
#include "comm/fabric/topology_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_BYTES = 16384
};

static enum tern_answer yes_if(bool is_true)
{
    return is_true ? TERN_ANSWER_YES : TERN_ANSWER_NO;
}

static void read_kernel(const char *root, struct tern_topology *t)
{
    (void)tern_sys_line(root, t->host, sizeof t->host, "proc/sys/kernel/hostname");
    if (!tern_sys_line(root, t->kernel, sizeof t->kernel, "proc/sys/kernel/osrelease") ||
        sscanf(t->kernel, "%d.%d", &t->kernel_major, &t->kernel_minor) != 2) {
        t->kernel_major = 0;
        t->kernel_minor = 0;
    }
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build ..." */
static void read_driver(const char *root, struct tern_topology *t)
{
    char line[256];
    bool has_modules = tern_sys_exists(root, "sys/module");
    bool has_version = tern_sys_line(root, line, sizeof line, "proc/driver/nvidia/version");
    if (tern_sys_exists(root, "sys/module/nvidia") || has_version) {
        t->has_driver = TERN_ANSWER_YES;
    } else if (has_modules) {
        t->has_driver = TERN_ANSWER_NO;
    }
    (void)tern_sys_line(root, t->driver_version, sizeof t->driver_version,
                        "sys/module/nvidia/version");
    if (has_version && strstr(line, "Kernel Module") != NULL) {
        t->has_open_driver = yes_if(strstr(line, "Open Kernel Module") != NULL);
    }
}

/* Who lets a network card read GPU memory: a module of NVIDIA's, or the kernel's dmabuf, which needs Linux 5.12, the
 * open driver and CUDA 11.7 (NVIDIA's GPUDirect RDMA documentation). */
static void read_peer_memory(struct tern_topo_reader *reader)
{
    const char *root = reader->root;
    struct tern_topology *t = reader->topology;
    if (tern_sys_exists(root, "sys/module/nvidia_peermem") ||
        tern_sys_exists(root, "sys/module/nv_peer_mem") ||
        (tern_sys_list_names(root, &reader->names, "sys/kernel/mm/memory_peers") &&
         reader->names.count > 0)) {
        t->has_peermem = TERN_ANSWER_YES;
    } else if (tern_sys_exists(root, "sys/module")) {
        t->has_peermem = TERN_ANSWER_NO;
    }
    bool is_old = t->kernel_major < 5 || (t->kernel_major == 5 && t->kernel_minor < 12);
    if (t->kernel_major > 0 && is_old) {
        t->has_dmabuf = TERN_ANSWER_NO;
    } else if (t->kernel_major > 0) {
        t->has_dmabuf = t->has_open_driver;
    }
}

/* The CPU says whether it is lent: "hypervisor" among its flags. */
static void read_virtual(struct tern_topo_reader *reader)
{
    char text[TEXT_BYTES];
    char flags[TEXT_BYTES];
    struct tern_topology *t = reader->topology;
    if (tern_sys_text(reader->root, text, sizeof text, "proc/cpuinfo") &&
        tern_sys_value(text, "flags", flags, sizeof flags)) {
        t->is_vm = yes_if(strstr(flags, " hypervisor") != NULL);
    }
    if (tern_sys_list_names(reader->root, &reader->names, "sys/class/iommu")) {
        t->has_iommu = yes_if(reader->names.count > 0);
    }
}

/* "MemTotal:  2113412 kB" and the pool of huge pages. */
static void read_memory(const char *root, struct tern_topology *t)
{
    char text[TEXT_BYTES];
    char value[64];
    if (!tern_sys_text(root, text, sizeof text, "proc/meminfo")) {
        return;
    }
    const struct {
        const char *key;
        int64_t *out;
        int64_t unit;
    } keys[] = {{"MemTotal", &t->memory_bytes, 1024},
                {"HugePages_Total", &t->hugepages, 1},
                {"HugePages_Free", &t->hugepages_free, 1},
                {"Hugepagesize", &t->hugepage_bytes, 1024}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (tern_sys_value(text, keys[i].key, value, sizeof value)) {
            long long number = strtoll(value, NULL, 10);
            *keys[i].out = number > 0 && number < INT64_MAX / 1024 ? number * keys[i].unit : 0;
        }
    }
    /* "always [madvise] never" */
    if (tern_sys_line(root, value, sizeof value, "sys/kernel/mm/transparent_hugepage/enabled")) {
        const char *chosen = strchr(value, '[');
        if (chosen != NULL) {
            snprintf(t->transparent_hugepages, sizeof t->transparent_hugepages, "%.*s",
                     (int)strcspn(chosen + 1, "]"), chosen + 1);
        }
    }
}

/* "Max locked memory         8388608              8388608              bytes": the soft limit. */
static void read_limits(const char *root, struct tern_topology *t)
{
    static const char key[] = "Max locked memory";
    char text[TEXT_BYTES];
    const char *line =
        tern_sys_text(root, text, sizeof text, "proc/self/limits") ? strstr(text, key) : NULL;
    if (line == NULL) {
        return;
    }
    const char *value = line + sizeof key - 1;
    value += strspn(value, " ");
    if (strncmp(value, "unlimited", 9) == 0) {
        t->memlock_bytes = -1;
    } else if (*value >= '0' && *value <= '9') {
        t->memlock_bytes = strtoll(value, NULL, 10);
    }
}

static void read_nets(struct tern_topo_reader *reader)
{
    char state[32];
    const char *root = reader->root;
    struct tern_topology *t = reader->topology;
    if (!tern_sys_list_names(root, &reader->names, "sys/class/net")) {
        return;
    }
    for (int i = 0; i < reader->names.count && t->net_count < TERN_TOPO_NETS_MAX; i++) {
        const char *name = reader->names.names[i];
        if (strlen(name) >= TERN_TOPO_NAME_BYTES) {
            continue;
        }
        struct tern_topo_net *net = &t->nets[t->net_count++];
        snprintf(net->name, sizeof net->name, "%.31s", name);
        if (tern_sys_line(root, state, sizeof state, "sys/class/net/%s/operstate", name)) {
            /* lo and some virtual ones are "unknown" and work */
            net->is_up = yes_if(strcmp(state, "up") == 0 || strcmp(state, "unknown") == 0);
        }
        int64_t speed = tern_sys_i64(root, 0, "sys/class/net/%s/speed", name);
        net->speed_mbps = speed > 0 && speed < 10000000 ? speed : 0;
        net->is_virtual = !tern_sys_exists(root, "sys/class/net/%s/device", name);
    }
}

static void count_numa_nodes(struct tern_topo_reader *reader)
{
    if (tern_sys_list_names(reader->root, &reader->names, "sys/devices/system/node")) {
        for (int i = 0; i < reader->names.count; i++) {
            const char *name = reader->names.names[i];
            reader->topology->numa_nodes +=
                strncmp(name, "node", 4) == 0 && name[4] >= '0' && name[4] <= '9';
        }
    }
}

void tern_topo_read_host(struct tern_topo_reader *reader)
{
    read_kernel(reader->root, reader->topology);
    read_driver(reader->root, reader->topology);
    read_peer_memory(reader);
    read_virtual(reader);
    read_memory(reader->root, reader->topology);
    read_limits(reader->root, reader->topology);
    read_nets(reader);
    count_numa_nodes(reader);
}
