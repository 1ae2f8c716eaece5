/* judge_paths.c - the way from a GPU to its network card: who may read GPU memory, what is between, what redirects. */
#include "comm/fabric/judge.h"

#include <string.h>

/* What nccl issue 489 measured between hosts with ACS on and off. */
#define ACS_GB_ON  33
#define ACS_GB_OFF 93

static bool has_fabric(const struct tern_topology *t)
{
    return t->gpu_count > 0 && tern_topo_active_gbps(t) > 0;
}

static void judge_peer_memory(const struct tern_judge *judge, struct tern_findings *findings)
{
    const struct tern_topology *t = judge->topology;
    const char *setting = tern_nccl_setting(judge->settings, "NCCL_DMABUF_ENABLE");
    bool is_dmabuf_off = setting != NULL && strcmp(setting, "0") == 0;
    bool has_dmabuf = t->has_dmabuf == TERN_ANSWER_YES && !is_dmabuf_off;
    bool is_known = t->has_dmabuf == TERN_ANSWER_NO || is_dmabuf_off;
    if (!has_fabric(t) || t->has_peermem != TERN_ANSWER_NO || has_dmabuf || !is_known) {
        return;
    }
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_SLOW, "no-gpudirect", "GPUDirect RDMA");
    tern_finding_say(f->found, "no nvidia_peermem, and no dmabuf (%s)",
                     is_dmabuf_off && t->has_dmabuf != TERN_ANSWER_NO ? "NCCL_DMABUF_ENABLE=0"
                     : t->has_open_driver == TERN_ANSWER_NO
                         ? "the driver is not the open kernel module"
                         : "the kernel is older than 5.12");
    tern_finding_say(f->expected, "one of the two");
    tern_finding_say(f->effect,
                     "every byte between hosts goes through host memory: half the rate or "
                     "less, and the slowest host sets it for all");
    tern_finding_say(
        f->advice, "%s",
        is_dmabuf_off && t->has_dmabuf != TERN_ANSWER_NO
            ? "unset NCCL_DMABUF_ENABLE, or 'modprobe nvidia_peermem'"
            : "'modprobe nvidia_peermem' (after the OFED drivers), or install the open "
              "driver on Linux 5.12 or newer");
}

static bool is_above(const struct tern_topo_bridge *bridge, const char *path)
{
    size_t length = strlen(bridge->path);
    return length > 0 && strncmp(path, bridge->path, length) == 0 && path[length] == '/';
}

/* On the way between two devices, below the bridge where they meet: what redirects there sends them over the CPU. */
static bool is_between(const struct tern_topo_bridge *bridge, const char *a, const char *b)
{
    return is_above(bridge, a) != is_above(bridge, b);
}

static bool is_pair_redirected(const struct tern_topology *t,
                               const struct tern_topo_bridge *bridge,
                               const struct tern_topo_pci *gpu)
{
    for (int h = 0; h < t->hca_count; h++) {
        enum tern_distance distance = tern_topo_distance(gpu, &t->hcas[h].pci);
        if ((distance == TERN_DISTANCE_SWITCH || distance == TERN_DISTANCE_SWITCHES) &&
            is_between(bridge, gpu->path, t->hcas[h].pci.path)) {
            return true;
        }
    }
    /* between GPUs PCIe matters only where no NVLink does */
    for (int g = 0; g < t->gpu_count && t->nvswitch_count == 0; g++) {
        enum tern_distance distance = tern_topo_distance(gpu, &t->gpus[g].pci);
        if (gpu != &t->gpus[g].pci && t->gpus[g].nvlinks_up == 0 &&
            (distance == TERN_DISTANCE_SWITCH || distance == TERN_DISTANCE_SWITCHES) &&
            is_between(bridge, gpu->path, t->gpus[g].pci.path)) {
            return true;
        }
    }
    return false;
}

static void judge_acs(const struct tern_topology *t, struct tern_findings *findings)
{
    struct tern_names names = {0};
    const char *first = NULL;
    for (int b = 0; b < t->bridge_count; b++) {
        bool is_in_the_way = false;
        for (int g = 0; g < t->gpu_count && !is_in_the_way; g++) {
            is_in_the_way = t->bridges[b].is_redirecting == TERN_ANSWER_YES &&
                            is_pair_redirected(t, &t->bridges[b], &t->gpus[g].pci);
        }
        if (is_in_the_way) {
            tern_names_add(&names, "%s", t->bridges[b].address);
            first = first == NULL ? t->bridges[b].address : first;
        }
    }
    if (first == NULL) {
        return;
    }
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_SLOW, "acs-on", "PCI bridges %s", names.text);
    tern_finding_say(f->found,
                     "access control services (ACS) redirect traffic between devices on %d "
                     "bridges",
                     names.count);
    tern_finding_say(f->expected, "off below the switches that GPUs share with network cards");
    tern_finding_say(f->effect,
                     "what should turn around in the switch goes up to the CPU: %d GB/s "
                     "instead of %d between hosts in one report; it may also fail",
                     ACS_GB_ON, ACS_GB_OFF);
    if (t->is_vm == TERN_ANSWER_YES) {
        tern_finding_say(f->advice, "a virtual machine needs ACS: ask the provider for address "
                                    "translation services (ATS) on the network cards, or for bare "
                                    "metal");
    } else {
        tern_finding_say(f->advice,
                         "as root 'setpci -s %s ECAP_ACS+6.w=0' for each, after every "
                         "boot, or switch it off in the BIOS",
                         first);
    }
}

static void judge_iommu(const struct tern_topology *t, struct tern_findings *findings)
{
    struct tern_names names = {0};
    for (int g = 0; g < t->gpu_count; g++) {
        if (t->gpus[g].pci.is_translated == TERN_ANSWER_YES) {
            tern_names_add(&names, "GPU %d", g);
        }
    }
    for (int h = 0; h < t->hca_count; h++) {
        if (t->hcas[h].pci.is_translated == TERN_ANSWER_YES) {
            tern_names_add(&names, "%s", t->hcas[h].name);
        }
    }
    if (names.count == 0 || !has_fabric(t)) {
        return;
    }
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_SLOW, "iommu-translates", "%s", names.text);
    tern_finding_say(f->found, "the IOMMU translates the addresses of these devices");
    tern_finding_say(f->expected, "pass-through");
    tern_finding_say(f->effect, "GPUDirect is slower, or fails");
    tern_finding_say(f->advice, "boot with iommu=pt, or switch the IOMMU off in the BIOS");
}

/* A virtual machine that shows a flat PCI bus: NCCL can't see which card is near. Returns whether it is one. */
static bool judge_flat(const struct tern_topology *t, struct tern_findings *findings)
{
    if (t->is_vm != TERN_ANSWER_YES || t->gpu_count < 2 || !has_fabric(t)) {
        return false;
    }
    for (int g = 0; g < t->gpu_count; g++) {
        for (int h = 0; h < t->hca_count; h++) {
            enum tern_distance distance = tern_topo_distance(&t->gpus[g].pci, &t->hcas[h].pci);
            if (distance == TERN_DISTANCE_SWITCH || distance == TERN_DISTANCE_SWITCHES) {
                return false;
            }
        }
    }
    if (t->has_topo_file != TERN_ANSWER_NO) {
        return true;
    }
    struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_SLOW, "vm-hides-topology",
                                               "this virtual machine");
    tern_finding_say(f->found, "no GPU shares a PCI switch with a network card");
    tern_finding_say(f->expected, "the real tree, or a file that describes it");
    tern_finding_say(f->effect, "NCCL pairs GPUs and cards at random and leaves GPUDirect off");
    tern_finding_say(f->advice,
                     "set NCCL_TOPO_FILE to the provider's file (Azure: ndv5-topo.xml for "
                     "H100, ndv4-topo.xml for A100)");
    return true;
}

static void judge_distance(const struct tern_topology *t, struct tern_findings *findings)
{
    struct tern_names names = {0};
    enum tern_distance worst = TERN_DISTANCE_UNKNOWN;
    for (int g = 0; g < t->gpu_count; g++) {
        int nearest = tern_topo_nearest_hca(t, g);
        enum tern_distance distance =
            nearest < 0 ? TERN_DISTANCE_UNKNOWN
                        : tern_topo_distance(&t->gpus[g].pci, &t->hcas[nearest].pci);
        if (distance >= TERN_DISTANCE_ROOT) {
            tern_names_add(&names, "GPU %d", g);
            worst = distance > worst ? distance : worst;
        }
    }
    if (names.count == 0) {
        return;
    }
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_SLOW, "gpu-far-from-hca", "%s", names.text);
    tern_finding_say(f->found, "the nearest network card with an active port: %s",
                     tern_distance_name(worst));
    tern_finding_say(f->expected, "%s", tern_distance_name(TERN_DISTANCE_SWITCH));
    tern_finding_say(f->effect,
                     "traffic to other hosts goes through the CPU%s; NCCL uses GPUDirect "
                     "only below one PCI switch unless told otherwise",
                     worst == TERN_DISTANCE_CROSS ? ", and over the link between CPUs" : "");
    tern_finding_say(f->advice, "bring up the cards beside these GPUs, or move a card to their "
                                "switch");
}

static void judge_numa(const struct tern_topology *t, struct tern_findings *findings)
{
    struct tern_names names = {0};
    for (int g = 0; g < t->gpu_count; g++) {
        if (t->gpus[g].pci.numa_node < 0 && t->numa_nodes > 1) {
            tern_names_add(&names, "GPU %d", g);
        }
    }
    if (names.count == 0) {
        return;
    }
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_NOTE, "gpu-numa-unknown", "%s", names.text);
    tern_finding_say(f->found, "the kernel does not say which of %d NUMA nodes they are on",
                     t->numa_nodes);
    tern_finding_say(f->expected, "a node for each");
    tern_finding_say(f->effect, "ranks can't be bound beside their GPU");
    tern_finding_say(f->advice, "update the BIOS; in a virtual machine ask the provider");
}

void tern_judge_paths(const struct tern_judge *judge, struct tern_findings *findings)
{
    judge_peer_memory(judge, findings);
    judge_acs(judge->topology, findings);
    judge_iommu(judge->topology, findings);
    if (!judge_flat(judge->topology, findings)) {
        judge_distance(judge->topology, findings);
    }
    judge_numa(judge->topology, findings);
}
