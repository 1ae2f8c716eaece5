/* plugin.c - the only symbol of libtern_cuda.so: what is here, and the op table. */
#include "kernels/cuda/plugin.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host.h"
#include "runtime/base/cuda_plugin.h"

#include <stdio.h>
#include <string.h>

enum {
    CAPABILITY_MIN = 80 /* bf16 tensor cores, cp.async */
};

const struct tern_ops tern_cuda_ops = {
    .device = &tern_cuda_device_table,
    .prepare = tern_cuda_prepare,
    .embed_fwd = tern_cuda_embed_fwd,
    .embed_bwd = tern_cuda_embed_bwd,
    .norm_fwd = tern_cuda_norm_fwd,
    .norm_bwd = tern_cuda_norm_bwd,
    .gemm = tern_cuda_gemm,
    .bias_bwd = tern_cuda_bias_bwd,
    .gemm_bias_bwd = tern_cuda_gemm_bias_bwd,
    .attention_fwd = tern_cuda_attention_fwd,
    .attention_bwd = tern_cuda_attention_bwd,
    .kv_block_bytes = tern_cuda_kv_block_bytes,
    .kv_write = tern_cuda_kv_write,
    .paged_attention = tern_cuda_paged_attention,
    .rope = tern_cuda_rope,
    .act_fwd = tern_cuda_act_fwd,
    .act_bwd = tern_cuda_act_bwd,
    .glu_fwd = tern_cuda_glu_fwd,
    .glu_bwd = tern_cuda_glu_bwd,
    .add = tern_cuda_add,
    .cross_entropy = tern_cuda_cross_entropy,
    .adamw = tern_cuda_adamw,
    .sumsq = tern_cuda_sumsq,
    .clip = tern_cuda_clip,
    .cast = tern_cuda_cast,
    .softcap = tern_cuda_softcap,
    .moe_route = tern_cuda_moe_route,
    .moe_combine = tern_cuda_moe_combine,
    .lacks = TERN_LACKS_STORED | TERN_LACKS_PACKED,
    .rounds_weights = true,
};

/* Dense peaks of the data sheets, FLOP/s, by name: the clocks that cudaGetDeviceProperties once gave are gone. */
static const struct {
    const char *name; /* part of the GPU's */
    double bf16, f32, bytes_per_second;
} g_sheets[] = {
    {"GB200", 2500e12, 80e12, 8.0e12},       {"B200", 2250e12, 75e12, 8.0e12},
    {"H200", 989e12, 67e12, 4.8e12},         {"H100 PCIe", 756e12, 51e12, 2.0e12},
    {"H100 NVL", 835e12, 60e12, 3.9e12},     {"H100", 989e12, 67e12, 3.35e12},
    {"H800", 989e12, 67e12, 3.35e12},        {"A100-SXM4-80GB", 312e12, 19.5e12, 2.04e12},
    {"A100 80GB", 312e12, 19.5e12, 1.94e12}, {"A100", 312e12, 19.5e12, 1.56e12},
    {"L40S", 362e12, 91.6e12, 0.864e12},     {"L40", 181e12, 90.5e12, 0.864e12},
    {"L4", 121e12, 30.3e12, 0.3e12},         {"A10G", 70e12, 35e12, 0.6e12},
    {"A10", 125e12, 31.2e12, 0.6e12},        {"RTX 4090", 165e12, 82.6e12, 1.01e12},
    {"RTX 3090", 71e12, 35.6e12, 0.936e12},
};

static void say(struct tern_cuda_probe *probe, const char *format, ...) TERN_PRINTF(2, 3);

static void say(struct tern_cuda_probe *probe, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(probe->reason, sizeof probe->reason, format, args);
    va_end(args);
}

static int capability_of(int ordinal)
{
    int major = 0;
    int minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal) != cudaSuccess) {
        return 0;
    }
    return 10 * major + minor;
}

static void probe(struct tern_cuda_probe *out)
{
    *out = (struct tern_cuda_probe){0};
    cudaRuntimeGetVersion(&out->runtime_version);
    if (cudaDriverGetVersion(&out->driver_version) != cudaSuccess || out->driver_version == 0) {
        out->driver_version = 0;
        say(out, "there is no NVIDIA driver");
        return;
    }
    /* minor versions of one major work together */
    if (out->driver_version / 1000 < out->runtime_version / 1000) {
        say(out, "the driver is too old: it offers CUDA %d.%d, this plugin needs %d.0",
            out->driver_version / 1000, out->driver_version % 1000 / 10,
            out->runtime_version / 1000);
        return;
    }
    cudaError_t error = cudaGetDeviceCount(&out->device_count);
    (void)cudaGetLastError();
    if (error != cudaSuccess || out->device_count == 0) {
        out->device_count = 0;
        say(out, "there is no GPU (%s)",
            error == cudaSuccess ? "CUDA_VISIBLE_DEVICES leaves none" : cudaGetErrorString(error));
        return;
    }
    for (int i = 0; i < out->device_count; i++) {
        int capability = capability_of(i);
        if (capability < CAPABILITY_MIN) {
            say(out, "GPU %d has compute capability %d.%d, expected 8.0 or higher", i,
                capability / 10, capability % 10);
            return;
        }
    }
}

static tern_status gpu(int ordinal, struct tern_cuda_gpu *out)
{
    struct cudaDeviceProp properties;
    *out = (struct tern_cuda_gpu){0};
    TERN_RETURN_IF_ERR(
        tern_cuda_status(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties"));
    snprintf(out->name, sizeof out->name, "%s", properties.name);
    snprintf(out->pci, sizeof out->pci, "%04x:%02x:%02x.0", (unsigned)properties.pciDomainID,
             (unsigned)properties.pciBusID, (unsigned)properties.pciDeviceID);
    out->capability = 10 * properties.major + properties.minor;
    out->multiprocessors = properties.multiProcessorCount;
    out->memory_bytes = (int64_t)properties.totalGlobalMem;
    for (size_t i = 0; i < sizeof g_sheets / sizeof g_sheets[0]; i++) {
        if (strstr(out->name, g_sheets[i].name) != NULL) {
            out->peak_bf16_flops = g_sheets[i].bf16;
            out->peak_f32_flops = g_sheets[i].f32;
            out->bytes_per_second = g_sheets[i].bytes_per_second;
            break;
        }
    }
    return TERN_OK;
}

static const struct tern_cuda_kernels g_kernels = {
    .ops_bytes = sizeof(struct tern_ops),
    .build = TERN_CUDA_BUILD,
    .probe = probe,
    .gpu = gpu,
    .open = tern_cuda_device_open,
    .ordinal = tern_cuda_device_ordinal,
};

/* comm/nccl/plugin.c; kernels/ and comm/ know nothing of each other, only this file's symbol brings them together. */
extern const struct tern_cuda_comm tern_nccl_comm;

extern const struct tern_cuda_plugin tern_cuda_plugin;
__attribute__((visibility("default"))) const struct tern_cuda_plugin tern_cuda_plugin = {
    .version = TERN_CUDA_PLUGIN_VERSION,
    .status_count = TERN_STATUS_COUNT,
    .attach = tern_cuda_attach,
    .kernels = &g_kernels,
    .comm = &tern_nccl_comm,
};
