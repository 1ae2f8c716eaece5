/* nvml.c - stands in for the driver's management library: the GPUs of the fake DGX, GPU 2 with a link down, GPU 3 split
 * by MIG, GPU 5 with rows that wait for a reset. */
#include <stdio.h>
#include <string.h>

enum {
    GPUS = 8,
    LINKS = 18,
    NOT_SUPPORTED = 3
};

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char address[32];
};

static int g_gpus[GPUS];

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out);
int nvmlDeviceGetPciInfo_v3(void *gpu, struct pci *out);
int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *is_up);
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *pending);
int nvmlDeviceGetRemappedRows(void *gpu,
                              unsigned *corrected,
                              unsigned *uncorrected,
                              unsigned *is_pending,
                              unsigned *has_failed);

static int index_of(void *gpu)
{
    return (int)((int *)gpu - g_gpus);
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = GPUS;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    *out = &g_gpus[index];
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *gpu, struct pci *out)
{
    static const char *const buses[GPUS] = {"15", "37", "48", "59", "8D", "AD", "BE", "CF"};
    memset(out, 0, sizeof *out);
    snprintf(out->address, sizeof out->address, "00000000:%s:10.0", buses[index_of(gpu)]);
    return 0;
}

int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *is_up)
{
    if (link >= LINKS) {
        return NOT_SUPPORTED;
    }
    *is_up = !(index_of(gpu) == 2 && link == 7);
    return 0;
}

int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *pending)
{
    *now = index_of(gpu) == 3;
    *pending = *now;
    return 0;
}

int nvmlDeviceGetRemappedRows(void *gpu,
                              unsigned *corrected,
                              unsigned *uncorrected,
                              unsigned *is_pending,
                              unsigned *has_failed)
{
    *corrected = 0;
    *uncorrected = 0;
    *is_pending = index_of(gpu) == 5;
    *has_failed = 0;
    return 0;
}
