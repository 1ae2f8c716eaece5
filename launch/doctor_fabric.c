/* doctor_fabric.c - GPUs, network cards and what joins them: looked at, and as text. */
#include "comm/fabric/expect.h"
#include "launch/doctor.h"
#include "runtime/base/cuda_plugin.h"

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

static void ask_nccl(struct doctor *doctor)
{
    const char *reason;
    const struct tern_cuda_plugin *plugin = tern_cuda_plugin_load(&reason);
    doctor->has_nccl = plugin != NULL && plugin->comm->comm_bytes == sizeof(struct tern_comm);
    if (doctor->has_nccl) {
        plugin->comm->info(&doctor->nccl);
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
        ask_nccl(doctor);
    }
    return TERN_OK;
}

const struct tern_cuda_gpu *doctor_cuda_of(const struct doctor *doctor,
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
    const struct tern_cuda_gpu *cuda = doctor_cuda_of(doctor, gpu);
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

static tern_status print_nccl(const struct doctor *doctor, struct tern_text *out)
{
    const struct tern_nccl_info *nccl = &doctor->nccl;
    if (!doctor->has_nccl) {
        return TERN_OK;
    }
    return nccl->version == 0
               ? tern_text_printf(out, "  NCCL is not used, so one GPU is: %s\n", nccl->reason)
               : tern_text_printf(out, "  NCCL: %d.%d.%d, %s\n", nccl->version / 10000,
                                  nccl->version / 100 % 100, nccl->version % 100, nccl->path);
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
    TERN_RETURN_IF_ERR(tern_text_printf(
        out, "  CUDA: driver %d.%d, runtime %d.%d, built with %s\n",
        doctor->probe.driver_version / 1000, doctor->probe.driver_version % 1000 / 10,
        doctor->probe.runtime_version / 1000, doctor->probe.runtime_version % 1000 / 10,
        tern_cuda_kernels()->build));
    return print_nccl(doctor, out);
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
