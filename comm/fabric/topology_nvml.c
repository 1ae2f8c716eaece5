/* topology_nvml.c - what only the driver's management library knows: NVLinks, MIG, rows that wait for a reset.
 *
 * Called by a table filled from the library by name, so that nothing of it is needed to build or to run. The few
 * signatures are those of its documentation (NVML API reference); the functions have kept them since driver 450. */
#include "comm/fabric/topology_impl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    NVML_OK = 0,
    NVML_LINKS_MAX = 18 /* of one GPU: H100, B200 */
};

typedef void *nvml_gpu;

/* nvmlPciInfo_t: the address twice, as text, with the numbers between. */
struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char address[32]; /* "00000000:18:00.0" */
};

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*at)(unsigned, nvml_gpu *);
    int (*pci)(nvml_gpu, struct nvml_pci *);
    int (*link_state)(nvml_gpu, unsigned link, unsigned *is_up);
    int (*mig_mode)(nvml_gpu, unsigned *now, unsigned *pending);
    int (*remapped)(nvml_gpu, unsigned *, unsigned *, unsigned *is_pending, unsigned *has_failed);
};

static bool fill(void *library, struct nvml *out)
{
    const struct {
        void *slot;
        const char *name;
        bool is_needed;
    } symbols[] = {
        {&out->init, "nvmlInit_v2", true},
        {&out->shutdown, "nvmlShutdown", true},
        {&out->count, "nvmlDeviceGetCount_v2", true},
        {&out->at, "nvmlDeviceGetHandleByIndex_v2", true},
        {&out->pci, "nvmlDeviceGetPciInfo_v3", true},
        {&out->link_state, "nvmlDeviceGetNvLinkState", false},
        {&out->mig_mode, "nvmlDeviceGetMigMode", false},
        {&out->remapped, "nvmlDeviceGetRemappedRows", false},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL && symbols[i].is_needed) {
            return false;
        }
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    return true;
}

/* The library writes the domain with eight digits, the kernel with four. */
static struct tern_topo_gpu *find_gpu(struct tern_topology *t, const char *address)
{
    size_t length = strlen(address);
    for (int i = 0; i < t->gpu_count; i++) {
        const char *known = t->gpus[i].pci.address;
        size_t known_length = strlen(known);
        if (known_length <= length && strcasecmp(address + length - known_length, known) == 0) {
            return &t->gpus[i];
        }
    }
    return NULL;
}

static void read_gpu(const struct nvml *nvml, nvml_gpu handle, struct tern_topo_gpu *gpu)
{
    unsigned is_up;
    for (unsigned link = 0; nvml->link_state != NULL && link < NVML_LINKS_MAX; link++) {
        if (nvml->link_state(handle, link, &is_up) == NVML_OK) {
            gpu->nvlinks++;
            gpu->nvlinks_up += is_up != 0;
        }
    }
    unsigned now = 0;
    unsigned pending;
    if (nvml->mig_mode != NULL && nvml->mig_mode(handle, &now, &pending) == NVML_OK && now != 0 &&
        gpu->mig_instances == 0) {
        gpu->mig_instances = 1; /* split, into how many is not seen from here */
    }
    unsigned counts[2];
    unsigned is_pending;
    unsigned has_failed;
    if (nvml->remapped != NULL &&
        nvml->remapped(handle, &counts[0], &counts[1], &is_pending, &has_failed) == NVML_OK) {
        gpu->is_remap_pending =
            is_pending != 0 || has_failed != 0 ? TERN_ANSWER_YES : TERN_ANSWER_NO;
    }
}

void tern_topo_read_nvml(const char *path, struct tern_topology *topology)
{
    struct nvml nvml;
    unsigned count = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return;
    }
    if (!fill(library, &nvml) || nvml.init() != NVML_OK) {
        dlclose(library);
        return;
    }
    topology->is_nvml = nvml.count(&count) == NVML_OK;
    for (unsigned i = 0; topology->is_nvml && i < count && i < TERN_TOPO_GPUS_MAX; i++) {
        nvml_gpu handle;
        struct nvml_pci pci = {0};
        if (nvml.at(i, &handle) == NVML_OK && nvml.pci(handle, &pci) == NVML_OK) {
            pci.address[sizeof pci.address - 1] = '\0';
            struct tern_topo_gpu *gpu = find_gpu(topology, pci.address);
            if (gpu != NULL) {
                read_gpu(&nvml, handle, gpu);
            }
        }
    }
    nvml.shutdown();
    dlclose(library);
}
