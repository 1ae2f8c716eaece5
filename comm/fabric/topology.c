/* topology.c - reads a host part by part; distances, and words for numbers. */
#include "comm/fabric/topology.h"

#include "comm/fabric/topology_impl.h"
#include "runtime/base/mem.h"

#include <string.h>

/* Where NCCL looks without NCCL_TOPO_FILE (its documentation, "NCCL_TOPO_FILE"). */
static const char g_topo_file[] = "/var/run/nvidia-topologyd/virtualTopology.xml";

static enum tern_answer find_topo_file(const char *root, const struct tern_nccl_settings *settings)
{
    const char *file = tern_nccl_setting(settings, "NCCL_TOPO_FILE");
    bool is_there = tern_sys_exists(root, "%s", file != NULL ? file : g_topo_file);
    return is_there ? TERN_ANSWER_YES : TERN_ANSWER_NO;
}

tern_status tern_topology_read(const char *root,
                               const char *nvml,
                               const struct tern_nccl_settings *settings,
                               struct tern_topology *out)
{
    struct tern_topo_reader *reader = tern_alloc("topology", sizeof *reader);
    if (reader == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes to read the topology",
                         sizeof *reader);
    }
    memset(out, 0, sizeof *out);
    reader->root = root;
    reader->topology = out;
    tern_topo_read_host(reader);
    tern_topo_read_pci(reader);
    tern_topo_read_hcas(reader);
    if (nvml != NULL) {
        tern_topo_read_nvml(nvml, out);
    }
    out->has_topo_file = find_topo_file(root, settings);
    tern_free(reader);
    return TERN_OK;
}

/* ---- distance ---- */

/* Parts that two paths share from the root complex down, and how many each has below. */
static int shared_parts(const char *a, const char *b, int *below_a, int *below_b)
{
    int shared = 0;
    while (*a != '\0' && *b != '\0') {
        size_t length = strcspn(a, "/");
        if (length != strcspn(b, "/") || strncmp(a, b, length) != 0) {
            break;
        }
        shared++;
        a += length;
        b += length;
        a += *a == '/';
        b += *b == '/';
    }
    const char *rests[] = {a, b};
    int *counts[] = {below_a, below_b};
    for (int i = 0; i < 2; i++) {
        *counts[i] = rests[i][0] != '\0';
        for (const char *c = rests[i]; *c != '\0'; c++) {
            *counts[i] += *c == '/';
        }
    }
    return shared;
}

enum tern_distance tern_topo_distance(const struct tern_topo_pci *a, const struct tern_topo_pci *b)
{
    int below_a = 0;
    int below_b = 0;
    int shared = a->path[0] != '\0' && b->path[0] != '\0'
                     ? shared_parts(a->path, b->path, &below_a, &below_b)
                     : 0;
    if (shared >= 2) { /* the root complex and a root port at least */
        /* from the bridge that both hang on: a port of the same switch, then the device */
        return below_a <= 2 && below_b <= 2 ? TERN_DISTANCE_SWITCH : TERN_DISTANCE_SWITCHES;
    }
    if (shared == 1) {
        return TERN_DISTANCE_ROOT;
    }
    if (a->numa_node < 0 || b->numa_node < 0 || a->address[0] == '\0' || b->address[0] == '\0') {
        return TERN_DISTANCE_UNKNOWN;
    }
    return a->numa_node == b->numa_node ? TERN_DISTANCE_NODE : TERN_DISTANCE_CROSS;
}

static bool has_active_port(const struct tern_topo_hca *hca)
{
    for (int i = 0; i < hca->port_count; i++) {
        if (tern_topo_port_is_active(&hca->ports[i])) {
            return true;
        }
    }
    return false;
}

int tern_topo_nearest_hca(const struct tern_topology *topology, int gpu)
{
    int taken[TERN_TOPO_HCAS_MAX] = {0};
    int best = -1;
    for (int g = 0; g <= gpu; g++) {
        enum tern_distance least = TERN_DISTANCE_CROSS;
        best = -1;
        for (int h = 0; h < topology->hca_count; h++) {
            enum tern_distance distance =
                tern_topo_distance(&topology->gpus[g].pci, &topology->hcas[h].pci);
            distance = distance == TERN_DISTANCE_UNKNOWN ? TERN_DISTANCE_CROSS : distance;
            if (has_active_port(&topology->hcas[h]) &&
                (best < 0 || distance < least || (distance == least && taken[h] < taken[best]))) {
                best = h;
                least = distance;
            }
        }
        if (best >= 0) {
            taken[best]++;
        }
    }
    return best;
}

/* ---- words and numbers ---- */

const char *tern_distance_name(enum tern_distance distance)
{
    static const char *const names[] = {
        "not known",         "same switch",    "several switches",
        "same root complex", "same NUMA node", "across CPUs",
    };
    return names[distance];
}

const char *tern_answer_name(enum tern_answer answer)
{
    static const char *const names[] = {"not known", "no", "yes"};
    return names[answer];
}

const char *tern_port_state_name(int state)
{
    static const char *const names[] = {"not known", "DOWN",   "INIT",
                                        "ARMED",     "ACTIVE", "ACTIVE_DEFER"};
    return state > 0 && state < 6 ? names[state] : names[0];
}

const char *tern_phys_state_name(int phys_state)
{
    static const char *const names[] = {
        "not known",         "Sleep",  "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
        "LinkErrorRecovery", "PhyTest"};
    return phys_state > 0 && phys_state < 8 ? names[phys_state] : names[0];
}

const char *tern_link_layer_name(enum tern_link_layer link)
{
    static const char *const names[] = {"not known", "InfiniBand", "Ethernet"};
    return names[link];
}

double tern_pcie_bytes_per_second(double speed, int width)
{
    /* 8b/10b up to PCIe 2, 128b/130b from PCIe 3 on */
    double share = speed > 5.5 ? 128.0 / 130.0 : 0.8;
    return speed * 1e9 / 8 * share * width;
}

int tern_pcie_generation(double speed)
{
    static const double speeds[] = {2.5, 5, 8, 16, 32, 64};
    for (int i = 0; i < 6; i++) {
        if (speed > 0 && speed <= speeds[i] + 0.1) {
            return i + 1;
        }
    }
    return 0;
}

bool tern_topo_port_is_active(const struct tern_topo_port *port)
{
    return port->state == TERN_PORT_ACTIVE;
}

double tern_topo_active_gbps(const struct tern_topology *topology)
{
    double sum = 0;
    for (int h = 0; h < topology->hca_count; h++) {
        for (int p = 0; p < topology->hcas[h].port_count; p++) {
            const struct tern_topo_port *port = &topology->hcas[h].ports[p];
            sum += tern_topo_port_is_active(port) ? port->rate_gbps : 0;
        }
    }
    return sum;
}
