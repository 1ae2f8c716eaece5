/* doctor_fabric.c - GPUs, network cards and what joins them, as text and JSON. */
#include "comm/fabric/expect.h"
#include "launch/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char **environ;

static bool is_this_machine(const struct doctor *doctor)
{
    return strcmp(doctor->root, "/") == 0;
}

/* ---- looking ---- */

static void ask_cuda(struct doctor *doctor)
{
    const struct tern_cuda_kernels *kernels = tern_cuda_kernels();
    if (kernels == NULL) {
        return;
    }
    kernels->probe(&doctor->probe);
    for (int i = 0; i < doctor->probe.device_count && i < TERN_TOPO_GPUS_MAX; i++) {
        if (kernels->gpu(i, &doctor->cuda_gpus[i]) != TERN_OK) {
            doctor_add_problem(doctor, "CUDA device %d: %s", i, tern_detail());
            return;
        }
        doctor->cuda_gpu_count++;
    }
}

/* Ranks of this host, as the launcher says; 0 not known. */
static int local_ranks(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    long count = text != NULL ? strtol(text, NULL, 10) : 0;
    return count > 0 && count < 4096 ? (int)count : 0;
}

tern_status doctor_look_at_fabric(struct doctor *doctor)
{
    tern_nccl_settings_read(doctor->root, getenv("HOME"), environ, &doctor->settings);
    TERN_RETURN_IF_ERR(tern_topology_read(doctor->root,
                                          is_this_machine(doctor) ? "libnvidia-ml.so.1" : NULL,
                                          &doctor->settings, &doctor->topology));
    const struct tern_judge judge = {
        .topology = &doctor->topology,
        .settings = &doctor->settings,
        .job = {.local_ranks = local_ranks(), .cuda_visible = getenv("CUDA_VISIBLE_DEVICES")},
    };
    tern_topology_judge(&judge, &doctor->findings);
    if (is_this_machine(doctor)) {
        ask_cuda(doctor);
    }
    return TERN_OK;
}

/* The PCI device that CUDA calls `gpu`; NULL when sysfs does not show it. */
static const struct tern_cuda_gpu *cuda_of(const struct doctor *doctor,
                                           const struct tern_topo_gpu *gpu)
{
    for (int i = 0; i < doctor->cuda_gpu_count; i++) {
        if (strcasecmp(doctor->cuda_gpus[i].pci, gpu->pci.address) == 0) {
            return &doctor->cuda_gpus[i];
        }
    }
    return NULL;
}

/* ---- text ---- */

static tern_status print_gpu(const struct doctor *doctor, int index, struct tern_text *out)
{
    const struct tern_topo_gpu *gpu = &doctor->topology.gpus[index];
    const struct tern_cuda_gpu *cuda = cuda_of(doctor, gpu);
    char text[TERN_TEXT_BYTES_BYTES];
    TERN_RETURN_IF_ERR(tern_text_printf(out, "  %-2d %s, %s", index, gpu->model, gpu->pci.address));
    if (cuda != NULL) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ", %s, compute capability %d.%d",
                                            tern_text_bytes(cuda->memory_bytes, text),
                                            cuda->capability / 10, cuda->capability % 10));
    }
    if (gpu->pci.numa_node >= 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ", NUMA node %d", gpu->pci.numa_node));
    }
    if (gpu->pci.width > 0 && gpu->pci.speed > 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(
            out, ", PCIe %d x%d (%.0f GB/s)", tern_pcie_generation(gpu->pci.speed), gpu->pci.width,
            tern_pcie_bytes_per_second(gpu->pci.speed, gpu->pci.width) / 1e9));
    }
    if (gpu->nvlinks > 0) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, ", NVLinks %d of %d", gpu->nvlinks_up, gpu->nvlinks));
    }
    if (gpu->mig_instances > 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ", split by MIG"));
    }
    int nearest = tern_topo_nearest_hca(&doctor->topology, index);
    if (nearest >= 0) {
        const struct tern_topo_hca *hca = &doctor->topology.hcas[nearest];
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, ", nearest card %s (%s)", hca->name,
                             tern_distance_name(tern_topo_distance(&gpu->pci, &hca->pci))));
    }
    return tern_text_printf(out, "\n");
}

/* GPUs that CUDA has and sysfs does not: a container without /sys, or a simulator. */
static tern_status print_cuda_gpus(const struct doctor *doctor, struct tern_text *out)
{
    char text[TERN_TEXT_BYTES_BYTES];
    for (int i = 0; i < doctor->cuda_gpu_count && doctor->topology.gpu_count == 0; i++) {
        const struct tern_cuda_gpu *gpu = &doctor->cuda_gpus[i];
        TERN_RETURN_IF_ERR(tern_text_printf(
            out, "  %-2d %s, %s, %s, compute capability %d.%d\n", i, gpu->name, gpu->pci,
            tern_text_bytes(gpu->memory_bytes, text), gpu->capability / 10, gpu->capability % 10));
    }
    return TERN_OK;
}

static tern_status print_visible(const struct doctor *doctor, struct tern_text *out)
{
    char wrong[TERN_TOPO_NAME_BYTES];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int gpus = doctor->topology.gpu_count;
    if (visible == NULL || gpus == 0) {
        return TERN_OK;
    }
    return tern_text_printf(out, "  CUDA_VISIBLE_DEVICES=%s: %d of %d\n", visible,
                            tern_cuda_visible_count(visible, gpus, wrong), gpus);
}

/* What an all-reduce over the GPUs of this host should reach. */
static tern_status print_expected(const struct tern_topology *t, struct tern_text *out)
{
    struct tern_fabric_shape shape;
    tern_fabric_shape_of(t, &shape);
    struct tern_expected expected = tern_expect_all_reduce(&shape);
    if (t->gpu_count < 2 || expected.bus == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "  all-reduce over %s: about %.0f GB/s expected",
                                        tern_path_name(expected.path), expected.bus / 1e9));
    if (expected.bus_library > expected.bus) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ", %.0f with train.deterministic false",
                                            expected.bus_library / 1e9));
    }
    return tern_text_printf(out, " (%s)\n", expected.source);
}

static tern_status print_gpus(const struct doctor *doctor, struct tern_text *out)
{
    const struct tern_topology *t = &doctor->topology;
    bool has_any = t->gpu_count + doctor->cuda_gpu_count > 0;
    TERN_RETURN_IF_ERR(tern_text_printf(out, "gpus:%s\n", has_any ? "" : " none"));
    for (int i = 0; i < t->gpu_count; i++) {
        TERN_RETURN_IF_ERR(print_gpu(doctor, i, out));
    }
    TERN_RETURN_IF_ERR(print_cuda_gpus(doctor, out));
    if (t->nvswitch_count > 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "  %d NVSwitches\n", t->nvswitch_count));
    }
    TERN_RETURN_IF_ERR(print_visible(doctor, out));
    if (!is_this_machine(doctor)) {
        return TERN_OK;
    }
    const char *reason = tern_cuda_reason();
    if (reason[0] != '\0') {
        return tern_text_printf(out, "  CUDA is not used: %s\n", reason);
    }
    return tern_text_printf(out, "  CUDA: driver %d.%d, runtime %d.%d, built with %s\n",
                            doctor->probe.driver_version / 1000,
                            doctor->probe.driver_version % 1000 / 10,
                            doctor->probe.runtime_version / 1000,
                            doctor->probe.runtime_version % 1000 / 10, tern_cuda_kernels()->build);
}

static tern_status print_hca(const struct tern_topo_hca *hca, struct tern_text *out)
{
    for (int p = 0; p < hca->port_count; p++) {
        const struct tern_topo_port *port = &hca->ports[p];
        TERN_RETURN_IF_ERR(tern_text_printf(out, "  %s port %d: %s, %s, %s", hca->name,
                                            port->number, tern_port_state_name(port->state),
                                            port->rate[0] != '\0' ? port->rate : "rate not known",
                                            tern_link_layer_name(port->link)));
        if (hca->pci.address[0] != '\0') {
            TERN_RETURN_IF_ERR(tern_text_printf(out, ", %s", hca->pci.address));
        }
        if (hca->pci.numa_node >= 0) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, ", NUMA node %d", hca->pci.numa_node));
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "\n"));
    }
    return TERN_OK;
}

static tern_status print_limits(const struct tern_topology *t, struct tern_text *out)
{
    char text[TERN_TEXT_BYTES_BYTES];
    TERN_RETURN_IF_ERR(tern_text_printf(out, "  locked memory: %s\n",
                                        t->memlock_bytes < 0 ? "unlimited"
                                        : t->memlock_bytes == 0
                                            ? "not known"
                                            : tern_text_bytes(t->memlock_bytes, text)));
    if (t->hugepages > 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "  huge pages: %lld, %lld of them free\n",
                                            (long long)t->hugepages, (long long)t->hugepages_free));
    }
    if (t->gpu_count > 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(
            out, "  NVIDIA driver: %s; nvidia_peermem: %s; dmabuf: %s; IOMMU: %s; virtual: %s\n",
            t->driver_version[0] != '\0' ? t->driver_version : "not known",
            tern_answer_name(t->has_peermem), tern_answer_name(t->has_dmabuf),
            tern_answer_name(t->has_iommu), tern_answer_name(t->is_vm)));
    }
    return TERN_OK;
}

tern_status doctor_print_fabric(const struct doctor *doctor, struct tern_text *out)
{
    const struct tern_topology *t = &doctor->topology;
    TERN_RETURN_IF_ERR(print_gpus(doctor, out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "fabric:%s\n",
                                        t->hca_count > 0 ? "" : " no InfiniBand or RoCE card"));
    for (int h = 0; h < t->hca_count; h++) {
        TERN_RETURN_IF_ERR(print_hca(&t->hcas[h], out));
    }
    TERN_RETURN_IF_ERR(print_expected(t, out));
    TERN_RETURN_IF_ERR(print_limits(t, out));
    for (int i = 0; i < doctor->settings.count; i++) {
        const struct tern_nccl_setting *s = &doctor->settings.items[i];
        TERN_RETURN_IF_ERR(tern_text_printf(out, "  %s=%s (%s)\n", s->name, s->value, s->source));
    }
    return TERN_OK;
}

/* ---- JSON ---- */

static const char *json_answer(enum tern_answer answer)
{
    static const char *const words[] = {"null", "false", "true"};
    return words[answer];
}

static tern_status gpu_json(const struct doctor *doctor, int index, struct tern_text *out)
{
    const struct tern_topo_gpu *gpu = &doctor->topology.gpus[index];
    const struct tern_cuda_gpu *cuda = cuda_of(doctor, gpu);
    int nearest = tern_topo_nearest_hca(&doctor->topology, index);
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", index > 0 ? "," : ""));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "index", "%d", index));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "model", gpu->model));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "pci", gpu->pci.address));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "driver", gpu->pci.driver));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "numa_node", "%d", gpu->pci.numa_node));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "pcie_width", "%d", gpu->pci.width));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "pcie_width_max", "%d", gpu->pci.width_max));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "pcie_gts", "%g", gpu->pci.speed));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "pcie_gts_max", "%g", gpu->pci.speed_max));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "nvlinks", "%d", gpu->nvlinks));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "nvlinks_up", "%d", gpu->nvlinks_up));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "mig_instances", "%d", gpu->mig_instances));
    if (cuda != NULL) {
        TERN_RETURN_IF_ERR(
            doctor_json_raw(out, "memory_bytes", "%lld", (long long)cuda->memory_bytes));
        TERN_RETURN_IF_ERR(
            doctor_json_raw(out, "compute_capability", "%.1f", cuda->capability / 10.0));
    }
    if (nearest >= 0) {
        const struct tern_topo_hca *hca = &doctor->topology.hcas[nearest];
        TERN_RETURN_IF_ERR(doctor_json_text(out, "nearest_hca", hca->name));
        TERN_RETURN_IF_ERR(doctor_json_text(
            out, "hca_distance", tern_distance_name(tern_topo_distance(&gpu->pci, &hca->pci))));
    }
    return tern_text_printf(out, "}");
}

static tern_status port_json(const struct tern_topo_port *port, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "number", "%d", port->number));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "state", tern_port_state_name(port->state)));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "physical", tern_phys_state_name(port->phys_state)));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "gbps", "%g", port->rate_gbps));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "rate", port->rate));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "link_layer", tern_link_layer_name(port->link)));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "gids", "["));
    for (int i = 0; i < port->gid_count; i++) {
        static const char *const addresses[] = {"link-local", "ipv4", "ipv6"};
        const struct tern_topo_gid *gid = &port->gids[i];
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "index", "%d", gid->index));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "roce_v2", "%s", json_answer(gid->is_roce_v2)));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "address", addresses[gid->address]));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "interface", gid->net));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    }
    return tern_text_printf(out, "]");
}

static tern_status hca_json(const struct tern_topo_hca *hca, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(doctor_json_text(out, "name", hca->name));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "pci", hca->pci.address));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "firmware", hca->firmware));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "numa_node", "%d", hca->pci.numa_node));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "ports", "["));
    for (int p = 0; p < hca->port_count; p++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", p > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(port_json(&hca->ports[p], out));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    }
    return tern_text_printf(out, "]");
}

static tern_status fabric_json(const struct tern_topology *t, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(doctor_json_text(out, "nvidia_driver", t->driver_version));
    const struct {
        const char *key;
        enum tern_answer answer;
    } answers[] = {{"nvidia_peermem", t->has_peermem},  {"dmabuf", t->has_dmabuf},
                   {"open_driver", t->has_open_driver}, {"iommu", t->has_iommu},
                   {"virtual_machine", t->is_vm},       {"nccl_topology_file", t->has_topo_file}};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        TERN_RETURN_IF_ERR(
            doctor_json_raw(out, answers[i].key, "%s", json_answer(answers[i].answer)));
    }
    int redirecting = 0;
    int unknown = 0;
    for (int b = 0; b < t->bridge_count; b++) {
        redirecting += t->bridges[b].is_redirecting == TERN_ANSWER_YES;
        unknown += t->bridges[b].is_redirecting == TERN_ANSWER_UNKNOWN;
    }
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "pci_bridges", "%d", t->bridge_count));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "acs_redirecting_bridges", "%d", redirecting));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "acs_unknown_bridges", "%d", unknown));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "memlock_bytes", "%lld", (long long)t->memlock_bytes));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "hugepages", "%lld", (long long)t->hugepages));
    TERN_RETURN_IF_ERR(
        doctor_json_raw(out, "hugepages_free", "%lld", (long long)t->hugepages_free));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "transparent_hugepages", t->transparent_hugepages));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "nvswitches", "%d", t->nvswitch_count));
    return doctor_json_raw(out, "numa_nodes", "%d", t->numa_nodes);
}

static tern_status settings_json(const struct tern_nccl_settings *settings, struct tern_text *out)
{
    for (int i = 0; i < settings->count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "name", settings->items[i].name));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "value", settings->items[i].value));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "source", settings->items[i].source));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    }
    return TERN_OK;
}

tern_status doctor_print_fabric_json(const struct doctor *doctor, struct tern_text *out)
{
    const struct tern_topology *t = &doctor->topology;
    TERN_RETURN_IF_ERR(doctor_json_text(out, "cuda_reason", tern_cuda_reason()));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "gpus", "["));
    for (int i = 0; i < t->gpu_count; i++) {
        TERN_RETURN_IF_ERR(gpu_json(doctor, i, out));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "hcas", "["));
    for (int h = 0; h < t->hca_count; h++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", h > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(hca_json(&t->hcas[h], out));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "fabric", "{"));
    TERN_RETURN_IF_ERR(fabric_json(t, out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "nccl_settings", "["));
    TERN_RETURN_IF_ERR(settings_json(&doctor->settings, out));
    return tern_text_printf(out, "]");
}
