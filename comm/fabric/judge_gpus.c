/* judge_gpus.c - GPUs: driver, PCIe links, NVLinks, MIG, and which of them the ranks see. */
#include "comm/fabric/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void judge_driver(const struct tern_topology *t, struct tern_findings *findings)
{
    struct tern_names lost = {0};
    const char *bound = "";
    for (int i = 0; i < t->gpu_count; i++) {
        if (t->has_driver == TERN_ANSWER_NO || t->gpus[i].is_driven == TERN_ANSWER_NO) {
            tern_names_add(&lost, "GPU %d (%s)", i, t->gpus[i].pci.address);
            bound = t->gpus[i].pci.driver;
        }
    }
    if (lost.count == 0) {
        return;
    }
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_BROKEN, "gpu-no-driver", "%s", lost.text);
    bool is_other = bound[0] != '\0' && strcmp(bound, "nvidia") != 0;
    if (t->has_driver == TERN_ANSWER_NO) {
        tern_finding_say(f->found, "no NVIDIA driver is loaded%s%s", is_other ? "; bound to " : "",
                         is_other ? bound : "");
        tern_finding_say(f->expected, "the module nvidia");
        tern_finding_say(f->effect, "CUDA finds no GPU");
        tern_finding_say(f->advice, "install the driver (Debian: nvidia-driver) and run 'modprobe "
                                    "nvidia'; in a container start it with --gpus all");
        return;
    }
    tern_finding_say(f->found, "the driver knows %d of %d GPUs%s%s", t->gpu_count - lost.count,
                     t->gpu_count, is_other ? "; the last is bound to " : "",
                     is_other ? bound : "");
    tern_finding_say(f->expected, "all of them");
    tern_finding_say(f->effect, "ranks that count on these GPUs do not start");
    tern_finding_say(f->advice,
                     "see 'dmesg | grep -i xid' (79: fallen off the bus): reboot, or give "
                     "the machine back");
}

static void judge_link(const struct tern_topo_gpu *gpu, int index, struct tern_findings *findings)
{
    const struct tern_topo_pci *pci = &gpu->pci;
    int width = pci->width_max;
    double speed = pci->speed_max;
    if (pci->width > 0 && pci->width < width) {
        bool is_slot = pci->slot_width_max == pci->width;
        struct tern_finding *f =
            tern_findings_add(findings, is_slot ? TERN_SEVERITY_NOTE : TERN_SEVERITY_SLOW,
                              "gpu-pcie-width", "GPU %d (%s)", index, pci->address);
        tern_finding_say(f->found, "PCIe x%d%s", pci->width,
                         is_slot ? ", all that its slot has" : "");
        tern_finding_say(f->expected, "x%d", width);
        tern_finding_say(
            f->effect, "copies to and from the host at %d/%d of the rate (%.0f GB/s)", pci->width,
            width, tern_pcie_bytes_per_second(speed > 0 ? speed : pci->speed, pci->width) / 1e9);
        tern_finding_say(f->advice,
                         is_slot ? "a wider slot, if there is one"
                                 : "reseat the card or its riser; give a rented machine back");
    }
    double slot =
        pci->slot_speed_max > 0 && pci->slot_speed_max < speed ? pci->slot_speed_max : speed;
    if (pci->speed > 0 && pci->speed < slot) {
        struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_NOTE, "gpu-pcie-speed",
                                                   "GPU %d (%s)", index, pci->address);
        tern_finding_say(f->found, "PCIe %d (%.1f GT/s)", tern_pcie_generation(pci->speed),
                         pci->speed);
        tern_finding_say(f->expected, "PCIe %d (%.1f GT/s)", tern_pcie_generation(slot), slot);
        tern_finding_say(f->effect, "if it stays so under load, copies run at %.0f %%",
                         100 * pci->speed / slot);
        tern_finding_say(f->advice,
                         "an idle GPU lowers its link to save power: look again while it "
                         "works");
    }
}

static void judge_nvlinks(const struct tern_topology *t, struct tern_findings *findings)
{
    int best = 0;
    struct tern_names short_of = {0};
    for (int i = 0; i < t->gpu_count; i++) {
        int wanted = t->nvswitch_count > 0 ? t->gpus[i].nvlinks : t->gpus[i].nvlinks_up;
        best = wanted > best ? wanted : best;
    }
    for (int i = 0; t->is_nvml && i < t->gpu_count; i++) {
        if (t->gpus[i].nvlinks_up < best) {
            tern_names_add(&short_of, "GPU %d (%d up)", i, t->gpus[i].nvlinks_up);
        }
    }
    if (short_of.count == 0) {
        return;
    }
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_SLOW, "nvlink-down", "%s", short_of.text);
    tern_finding_say(f->found, "%d of %d GPUs have fewer NVLinks up than they should",
                     short_of.count, t->gpu_count);
    tern_finding_say(f->expected, "%d links each", best);
    tern_finding_say(f->effect, "every all-reduce of the host waits for the GPU with fewest links");
    tern_finding_say(f->advice,
                     "start nvidia-fabricmanager in the driver's version, then reset the "
                     "GPUs; if links stay down, give the machine back");
}

static void judge_health(const struct tern_topology *t, struct tern_findings *findings)
{
    struct tern_names split = {0};
    struct tern_names rows = {0};
    for (int i = 0; i < t->gpu_count; i++) {
        if (t->gpus[i].mig_instances > 0) {
            tern_names_add(&split, "GPU %d", i);
        }
        if (t->gpus[i].is_remap_pending == TERN_ANSWER_YES) {
            tern_names_add(&rows, "GPU %d", i);
        }
    }
    if (rows.count > 0) {
        struct tern_finding *f =
            tern_findings_add(findings, TERN_SEVERITY_BROKEN, "gpu-memory-rows", "%s", rows.text);
        tern_finding_say(f->found, "memory rows with errors wait to be replaced");
        tern_finding_say(f->expected, "none");
        tern_finding_say(f->effect,
                         "a run ends with an uncorrectable memory error sooner or later");
        tern_finding_say(f->advice, "'nvidia-smi --gpu-reset', or give the machine back");
    }
    if (split.count > 0) {
        struct tern_finding *f =
            tern_findings_add(findings, TERN_SEVERITY_NOTE, "gpu-mig", "%s", split.text);
        tern_finding_say(f->found, "split into MIG instances");
        tern_finding_say(f->expected, "whole GPUs for training on several");
        tern_finding_say(f->effect, "a process sees one instance, and NCCL does not join two "
                                    "instances of one GPU: one rank a GPU at most");
        tern_finding_say(f->advice, "train one rank with CUDA_VISIBLE_DEVICES=MIG-..., or "
                                    "'nvidia-smi -mig 0' as root");
    }
}

int tern_cuda_visible_count(const char *cuda_visible, int gpus, char *wrong_out)
{
    bool is_taken[TERN_TOPO_GPUS_MAX] = {false};
    int count = 0;
    wrong_out[0] = '\0';
    if (cuda_visible == NULL) {
        return gpus;
    }
    for (const char *entry = cuda_visible; *entry != '\0';) {
        size_t length = strcspn(entry, ",");
        char *end;
        long index = strtol(entry, &end, 10);
        bool is_id = strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0;
        bool is_index = end == entry + length && length > 0 && index >= 0 && index < gpus;
        if (is_index && is_taken[index]) {
            snprintf(wrong_out, TERN_TOPO_NAME_BYTES, "%.*s", (int)length, entry);
            return 0; /* a GPU named twice: CUDA shows none */
        }
        if (!is_id && !is_index) {
            snprintf(wrong_out, TERN_TOPO_NAME_BYTES, "%.*s", (int)length, entry);
            return count;
        }
        if (is_index) {
            is_taken[index] = true;
        }
        count++;
        entry += length;
        entry += *entry == ',';
    }
    return count;
}

static void judge_visible(const struct tern_judge *judge, struct tern_findings *findings)
{
    char wrong[TERN_TOPO_NAME_BYTES];
    int gpus = judge->topology->gpu_count;
    int ranks = judge->job.local_ranks;
    const char *text = judge->job.cuda_visible;
    int visible = tern_cuda_visible_count(text, gpus, wrong);
    if (gpus == 0) {
        return;
    }
    if (text != NULL && (visible == 0 || wrong[0] != '\0')) {
        struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_BROKEN, "cuda-visible",
                                                   "CUDA_VISIBLE_DEVICES=%s", text);
        if (wrong[0] != '\0') {
            tern_finding_say(f->found, "'%s', where CUDA stops reading", wrong);
        } else {
            tern_finding_say(f->found, "no entry");
        }
        tern_finding_say(f->expected, "numbers from 0 to %d, each once, or GPU-... ids", gpus - 1);
        tern_finding_say(f->effect, "%d of %d GPUs are seen", visible, gpus);
        tern_finding_say(f->advice, "correct it, or unset it to see all");
    }
    /* one visible GPU for each of several ranks: the launcher gave each its own */
    if (visible > 1 && ranks > visible) {
        struct tern_finding *f =
            tern_findings_add(findings, TERN_SEVERITY_BROKEN, "more-ranks-than-gpus", "this host");
        tern_finding_say(f->found, "%d ranks and %d visible GPUs", ranks, visible);
        tern_finding_say(f->expected, "one rank a GPU");
        tern_finding_say(f->effect, "backend cuda refuses to start");
        tern_finding_say(f->advice, "mpirun --map-by ppr:%d:node", visible);
    } else if (ranks > 1 && ranks < visible) {
        struct tern_finding *f =
            tern_findings_add(findings, TERN_SEVERITY_NOTE, "idle-gpus", "this host");
        tern_finding_say(f->found, "%d ranks and %d visible GPUs", ranks, visible);
        tern_finding_say(f->expected, "one rank a GPU");
        tern_finding_say(f->effect, "%d GPUs are paid for and idle", visible - ranks);
        tern_finding_say(f->advice, "mpirun --map-by ppr:%d:node", visible);
    }
}

void tern_judge_gpus(const struct tern_judge *judge, struct tern_findings *findings)
{
    const struct tern_topology *t = judge->topology;
    judge_driver(t, findings);
    for (int i = 0; i < t->gpu_count; i++) {
        judge_link(&t->gpus[i], i, findings);
    }
    judge_nvlinks(t, findings);
    judge_health(t, findings);
    judge_visible(judge, findings);
}
