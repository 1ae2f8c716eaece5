/* open.c - backends by name, and what this machine offers them. */
#include "kernels/open.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cuda_backend.h"
#include "kernels/ref/ref.h"
#include "runtime/base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#    include <cpuid.h>
#endif

/* One row a backend, the one that "auto" prefers first. */
struct backend {
    const char *name;
    tern_status (*open)(const struct tern_device_seat *seat, struct tern_device **out);
    const char *(*reason)(void);
};

static tern_status open_ref(const struct tern_device_seat *seat, struct tern_device **out)
{
    (void)seat; /* plain loops: always one thread */
    return tern_ref_open(out);
}

static tern_status open_cpu(const struct tern_device_seat *seat, struct tern_device **out)
{
    return tern_cpu_open(seat->threads, out);
}

static tern_status open_cuda(const struct tern_device_seat *seat, struct tern_device **out)
{
    return tern_cuda_open(seat->local_rank, seat->local_size, out);
}

static const char *ready(void)
{
    return "";
}

static const struct backend g_backends[] = {
    {"cuda", open_cuda, tern_cuda_reason},
    {"cpu", open_cpu, tern_cpu_reason},
    {"ref", open_ref, ready},
};

enum {
    BACKEND_COUNT = sizeof g_backends / sizeof g_backends[0]
};

static tern_status unknown_name(const char *name)
{
    const char *names[BACKEND_COUNT + 1] = {"auto"};
    for (int i = 0; i < BACKEND_COUNT; i++) {
        names[i + 1] = g_backends[i].name;
    }
    return tern_fail(
        TERN_ERR_USAGE,
        "there is no backend '%s'; expected auto, ref, cpu or cuda (did you mean '%s'?)", name,
        tern_text_nearest(name, names, BACKEND_COUNT + 1));
}

static const struct backend *find(const char *name)
{
    for (int i = 0; i < BACKEND_COUNT; i++) {
        const struct backend *backend = &g_backends[i];
        /* The reference is right but too slow to be anybody's default. */
        bool is_meant = strcmp(name, "auto") == 0
                            ? backend->reason()[0] == '\0' && backend->open != open_ref
                            : strcmp(name, backend->name) == 0;
        if (is_meant) {
            return backend;
        }
    }
    return NULL;
}

tern_status tern_device_open(const char *name, int threads, struct tern_device **out)
{
    return tern_device_open_at(
        name, &(struct tern_device_seat){.threads = threads, .local_size = 1}, out);
}

tern_status tern_device_open_at(const char *name,
                                const struct tern_device_seat *seat,
                                struct tern_device **out)
{
    int threads = seat->threads;
    if (name == NULL || out == NULL) {
        return tern_fail(TERN_ERR_ARGUMENT, "device_open: %s is NULL",
                         name == NULL ? "the name" : "out");
    }
    *out = NULL;
    if (threads < 0) {
        return tern_fail(TERN_ERR_USAGE, "threads is %d, expected 0 (one a core) or more", threads);
    }
    const struct backend *backend = find(name);
    if (backend == NULL && strcmp(name, "auto") == 0) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "no backend can run here; TERN_BACKEND=ref works everywhere, slowly");
    }
    if (backend == NULL) {
        return unknown_name(name);
    }
    const char *reason = backend->reason();
    if (reason[0] != '\0') {
        return tern_fail(TERN_ERR_UNSUPPORTED, "backend %s cannot run here: %s", name, reason);
    }
    return backend->open(seat, out);
}

bool tern_device_borrow(struct tern_device *device, const void *host, struct tern_dptr *out)
{
    struct tern_dptr p = {(uint64_t)(uintptr_t)host};
    if (device->ops->device->host_view(device, p) != host) {
        return false;
    }
    *out = p;
    return true;
}

void tern_device_close(struct tern_device *device)
{
    if (device != NULL) {
        device->ops->device->close(device);
    }
}

int tern_backend_list(struct tern_backend_info *out, int capacity)
{
    for (int i = 0; i < BACKEND_COUNT && i < capacity; i++) {
        out[i].name = g_backends[i].name;
        snprintf(out[i].reason, sizeof out[i].reason, "%s", g_backends[i].reason());
    }
    return BACKEND_COUNT;
}

static bool is_cpu(const struct tern_device *device)
{
    return strcmp(device->ops->device->name, "cpu") == 0;
}

/* The GPU that a device is on; false when it is on none. */
static bool gpu_of(const struct tern_device *device, struct tern_cuda_gpu *out)
{
    const struct tern_cuda_kernels *kernels = tern_cuda_kernels();
    return kernels != NULL && strcmp(device->ops->device->name, "cuda") == 0 &&
           kernels->gpu(kernels->ordinal(device), out) == TERN_OK;
}

const char *tern_device_isa(const struct tern_device *device)
{
    if (is_cpu(device)) {
        return tern_cpu_level_name(((const struct tern_cpu_device *)device)->level);
    }
    struct tern_cuda_gpu gpu;
    if (gpu_of(device, &gpu)) {
        return gpu.capability >= 100  ? "sm_100"
               : gpu.capability >= 90 ? "sm_90"
                                      : "sm_80"; /* what the kernels were compiled for */
    }
    return "generic";
}

int tern_device_threads(const struct tern_device *device)
{
    if (is_cpu(device)) {
        return ((const struct tern_cpu_device *)device)->threads;
    }
    (void)device;
    return 1;
}

double tern_device_peak_flops(struct tern_device *device, enum tern_dtype compute)
{
    if (is_cpu(device)) {
        return tern_cpu_peak_flops(device, compute);
    }
    struct tern_cuda_gpu gpu;
    if (gpu_of(device, &gpu)) {
        return compute == TERN_BF16 ? gpu.peak_bf16_flops : gpu.peak_f32_flops;
    }
    return 0;
}

double tern_device_read_rate(struct tern_device *device)
{
    return is_cpu(device) ? tern_cpu_read_rate(device) : 0;
}

#if defined(__x86_64__)
enum cpuid_register {
    EAX,
    EBX,
    ECX,
    EDX
};

/* Bits that Tern's kernels, or somebody who reads a bug report, may want to know of. */
static const struct feature {
    const char *name;
    unsigned leaf, subleaf;
    enum cpuid_register where;
    unsigned bit;
} g_features[] = {
    {"avx", 1, 0, ECX, 28},        {"fma", 1, 0, ECX, 12},      {"f16c", 1, 0, ECX, 29},
    {"avx2", 7, 0, EBX, 5},        {"avx512f", 7, 0, EBX, 16},  {"avx512dq", 7, 0, EBX, 17},
    {"avx512bw", 7, 0, EBX, 30},   {"avx512vl", 7, 0, EBX, 31}, {"avx512_vnni", 7, 0, ECX, 11},
    {"avx512_bf16", 7, 1, EAX, 5}, {"avx_vnni", 7, 1, EAX, 4},  {"avx512_fp16", 7, 0, EDX, 23},
    {"amx_tile", 7, 0, EDX, 24},   {"amx_int8", 7, 0, EDX, 25}, {"amx_bf16", 7, 0, EDX, 22},
};

static bool has_feature(const struct feature *feature)
{
    unsigned r[4] = {0};
    return __get_cpuid_count(feature->leaf, feature->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
           (r[feature->where] >> feature->bit & 1u) != 0;
}
#endif

static char g_features_text[256];

static void find_features(void)
{
#if defined(__x86_64__)
    size_t length = 0;
    for (size_t i = 0; i < sizeof g_features / sizeof g_features[0]; i++) {
        if (has_feature(&g_features[i]) && length < sizeof g_features_text) {
            length += (size_t)snprintf(g_features_text + length, sizeof g_features_text - length,
                                       "%s%s", length == 0 ? "" : " ", g_features[i].name);
        }
    }
#else
    snprintf(g_features_text, sizeof g_features_text, "none known on this architecture");
#endif
}

const char *tern_cpu_features(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_features);
    return g_features_text;
}
