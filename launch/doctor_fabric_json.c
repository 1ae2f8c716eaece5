/* doctor_fabric_json.c - GPUs, network cards and what joins them, as members of the JSON object. */
#include "launch/doctor.h"

static const char *json_answer(enum tern_answer answer)
{
    static const char *const words[] = {"null", "false", "true"};
    return words[answer];
}

static tern_status gpu_json(const struct doctor *doctor, int index, struct tern_text *out)
{
    const struct tern_topo_gpu *gpu = &doctor->topology.gpus[index];
    const struct tern_cuda_gpu *cuda = doctor_cuda_of(doctor, gpu);
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

static tern_status nccl_json(const struct doctor *doctor, struct tern_text *out)
{
    const struct tern_nccl_info *nccl = &doctor->nccl;
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "nccl_version", "%d", nccl->version));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "nccl_path", nccl->path));
    return doctor_json_text(out, "nccl_reason", nccl->reason);
}

tern_status doctor_print_fabric_json(const struct doctor *doctor, struct tern_text *out)
{
    const struct tern_topology *t = &doctor->topology;
    TERN_RETURN_IF_ERR(doctor_json_text(out, "cuda_reason", tern_cuda_reason()));
    TERN_RETURN_IF_ERR(nccl_json(doctor, out));
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
