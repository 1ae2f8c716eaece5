/* device.c - queues on a GPU: streams, memory, copies, graphs. */
#include "kernels/cuda/cuda.h"
#include "runtime/base/mem.h"

#include <string.h>

/* Every host thread has a current GPU of its own. */
static tern_status use(const struct tern_cuda_device *cuda)
{
    return tern_cuda_status(cudaSetDevice(cuda->ordinal), "cudaSetDevice");
}

static void *at(struct tern_dptr p)
{
    return (void *)(uintptr_t)p.addr; /* NOLINT(performance-no-int-to-ptr) */
}

/* ---- memory ---- */

static tern_status cuda_alloc(struct tern_device *device,
                              const char *tag,
                              size_t bytes,
                              struct tern_dptr *out)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    void *block = NULL;
    TERN_RETURN_IF_ERR(use(cuda));
    cudaError_t error = cudaMalloc(&block, bytes > 0 ? bytes : TERN_CUDA_ALIGN);
    if (error != cudaSuccess) {
        return tern_fail_prefix(tern_cuda_status(error, "cudaMalloc"), "%zu bytes of %s", bytes,
                                tag);
    }
    out->addr = (uint64_t)(uintptr_t)block;
    /* on this queue and awaited: whichever queue uses the block first finds it cleared */
    tern_status status =
        tern_cuda_status(cudaMemsetAsync(block, 0, bytes, cuda->stream), "cudaMemsetAsync");
    return status == TERN_OK
               ? tern_cuda_status(cudaStreamSynchronize(cuda->stream), "clearing memory")
               : status;
}

static void cuda_free(struct tern_device *device, struct tern_dptr p)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    if (p.addr != 0 && cudaSetDevice(cuda->ordinal) == cudaSuccess) {
        cudaFree(at(p));
    }
}

static tern_status cuda_memory(struct tern_device *device, int64_t *free_out, int64_t *total_out)
{
    size_t left = 0;
    size_t total = 0;
    TERN_RETURN_IF_ERR(use(tern_cuda_device_of(device)));
    TERN_RETURN_IF_ERR(tern_cuda_status(cudaMemGetInfo(&left, &total), "cudaMemGetInfo"));
    *free_out = (int64_t)left;
    *total_out = (int64_t)total;
    return TERN_OK;
}

static void *cuda_pin(struct tern_device *device, const char *tag, size_t bytes)
{
    void *block = NULL;
    if (use(tern_cuda_device_of(device)) != TERN_OK ||
        tern_cuda_status(cudaHostAlloc(&block, bytes, cudaHostAllocDefault), tag) != TERN_OK) {
        return NULL;
    }
    memset(block, 0, bytes);
    return block;
}

static void cuda_unpin(struct tern_device *device, void *block)
{
    if (block != NULL && use(tern_cuda_device_of(device)) == TERN_OK) {
        cudaFreeHost(block);
    }
}

/* ---- copies ---- */

static tern_status cuda_upload_begin(struct tern_device *device,
                                     struct tern_dptr dst,
                                     const void *src,
                                     size_t bytes)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    return tern_cuda_status(
        cudaMemcpyAsync(at(dst), src, bytes, cudaMemcpyHostToDevice, cuda->stream), "upload");
}

static tern_status cuda_download_begin(struct tern_device *device,
                                       void *dst,
                                       struct tern_dptr src,
                                       size_t bytes)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    return tern_cuda_status(
        cudaMemcpyAsync(dst, at(src), bytes, cudaMemcpyDeviceToHost, cuda->stream), "download");
}

static tern_status wait_for(struct tern_cuda_device *cuda, cudaEvent_t event)
{
    return tern_cuda_status(cudaEventSynchronize(event), cuda->name);
}

/* The first upload of a queue takes its blocks: most queues never upload. */
static tern_status open_slot(struct tern_cuda_slot *slot)
{
    TERN_RETURN_IF_ERR(
        tern_cuda_status(cudaHostAlloc(&slot->block, TERN_CUDA_SLOT_BYTES, cudaHostAllocDefault),
                         "pinned memory for uploads"));
    unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    return tern_cuda_status(cudaEventCreateWithFlags(&slot->is_free, flags), "cudaEventCreate");
}

/* The next block that uploads pass through, when the copy that last used it is done. */
static tern_status take_slot(struct tern_cuda_device *cuda, struct tern_cuda_slot **out)
{
    struct tern_cuda_slot *slot = &cuda->slots[cuda->next_slot];
    cuda->next_slot = (cuda->next_slot + 1) % TERN_CUDA_SLOTS;
    *out = slot;
    return slot->block == NULL ? open_slot(slot) : wait_for(cuda, slot->is_free);
}

/* Pinned memory makes the copy asynchronous; a pageable source would stop the host until the stream has come that far. */
static tern_status cuda_upload(struct tern_device *device,
                               struct tern_dptr dst,
                               const void *src,
                               size_t bytes)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    pthread_mutex_lock(&cuda->slots_lock);
    tern_status status = TERN_OK;
    for (size_t done = 0; done < bytes && status == TERN_OK;) {
        size_t piece = bytes - done < TERN_CUDA_SLOT_BYTES ? bytes - done : TERN_CUDA_SLOT_BYTES;
        struct tern_cuda_slot *slot;
        status = take_slot(cuda, &slot);
        if (status == TERN_OK) {
            memcpy(slot->block, (const char *)src + done, piece);
            status = tern_cuda_status(cudaMemcpyAsync((char *)at(dst) + done, slot->block, piece,
                                                      cudaMemcpyHostToDevice, cuda->stream),
                                      "upload");
        }
        if (status == TERN_OK) {
            status = tern_cuda_status(cudaEventRecord(slot->is_free, cuda->stream), "upload");
        }
        done += piece;
    }
    pthread_mutex_unlock(&cuda->slots_lock);
    return status;
}

static tern_status cuda_download(struct tern_device *device,
                                 void *dst,
                                 struct tern_dptr src,
                                 size_t bytes)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    TERN_RETURN_IF_ERR(tern_cuda_status(
        cudaMemcpyAsync(dst, at(src), bytes, cudaMemcpyDeviceToHost, cuda->stream), "download"));
    TERN_RETURN_IF_ERR(tern_cuda_status(cudaEventRecord(cuda->sleeper, cuda->stream), "download"));
    return wait_for(cuda, cuda->sleeper);
}

static tern_status cuda_copy(struct tern_device *device,
                             struct tern_dptr dst,
                             struct tern_dptr src,
                             size_t bytes)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    if (bytes == 0 || dst.addr == src.addr) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(use(cuda));
    return tern_cuda_status(
        cudaMemcpyAsync(at(dst), at(src), bytes, cudaMemcpyDeviceToDevice, cuda->stream), "copy");
}

static tern_status cuda_zero(struct tern_device *device, struct tern_dptr dst, size_t bytes)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    return tern_cuda_status(cudaMemsetAsync(at(dst), 0, bytes, cuda->stream), "zero");
}

/* ---- order ---- */

static tern_status cuda_after(struct tern_device *device, struct tern_device *earlier)
{
    struct tern_cuda_device *later = tern_cuda_device_of(device);
    struct tern_cuda_device *first = tern_cuda_device_of(earlier);
    TERN_RETURN_IF_ERR(use(later));
    TERN_RETURN_IF_ERR(tern_cuda_status(cudaEventRecord(first->edge, first->stream), "after"));
    return tern_cuda_status(cudaStreamWaitEvent(later->stream, first->edge, 0), "after");
}

static tern_status cuda_sync(struct tern_device *device)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    TERN_RETURN_IF_ERR(tern_cuda_status(cudaEventRecord(cuda->sleeper, cuda->stream), cuda->name));
    return wait_for(cuda, cuda->sleeper);
}

static void *cuda_host_view(struct tern_device *device, struct tern_dptr p)
{
    (void)device;
    (void)p;
    return NULL;
}

static void *cuda_native(struct tern_device *device)
{
    return tern_cuda_device_of(device)->stream;
}

/* ---- graphs ---- */

static tern_status cuda_record_begin(struct tern_device *device)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    TERN_RETURN_IF_ERR(tern_cuda_status(
        cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), "record"));
    cuda->is_recording = true;
    return TERN_OK;
}

static tern_status cuda_record_end(struct tern_device *device, void **graph_out)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    *graph_out = NULL;
    cuda->is_recording = false;
    TERN_RETURN_IF_ERR(tern_cuda_status(cudaStreamEndCapture(cuda->stream, &graph), "record"));
    cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    TERN_RETURN_IF_ERR(tern_cuda_status(error, "record"));
    *graph_out = exec;
    return TERN_OK;
}

static tern_status cuda_replay(struct tern_device *device, void *graph)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    return tern_cuda_status(cudaGraphLaunch(graph, cuda->stream), "replay");
}

static void cuda_forget(struct tern_device *device, void *graph)
{
    if (graph != NULL && use(tern_cuda_device_of(device)) == TERN_OK) {
        cudaGraphExecDestroy(graph);
    }
}

/* ---- open and close ---- */

static void cuda_close(struct tern_device *device)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    if (cuda == NULL) {
        return;
    }
    if (use(cuda) == TERN_OK) {
        if (cuda->stream != NULL) {
            cudaStreamSynchronize(cuda->stream);
        }
        tern_cuda_blas_close(cuda->blas);
        cudaFree(cuda->workspace);
        for (int i = 0; i < TERN_CUDA_SLOTS; i++) {
            if (cuda->slots[i].is_free != NULL) {
                cudaEventDestroy(cuda->slots[i].is_free);
            }
            cudaFreeHost(cuda->slots[i].block);
        }
        if (cuda->edge != NULL) {
            cudaEventDestroy(cuda->edge);
        }
        if (cuda->sleeper != NULL) {
            cudaEventDestroy(cuda->sleeper);
        }
        if (cuda->stream != NULL) {
            cudaStreamDestroy(cuda->stream);
        }
    }
    pthread_mutex_destroy(&cuda->slots_lock);
    tern_free(cuda);
}

static tern_status open_queue(int ordinal, const char *name, struct tern_device **out)
{
    struct tern_cuda_device *cuda = tern_alloc_zero("cuda device", 1, sizeof *cuda);
    if (cuda == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cuda: no memory for the device");
    }
    cuda->base.ops = &tern_cuda_ops;
    cuda->ordinal = ordinal;
    cuda->name = name;
    pthread_mutex_init(&cuda->slots_lock, NULL);
    int major = 0;
    int minor = 0;
    tern_status status;
    TERN_GOTO_IF_ERR(status, use(cuda), fail);
    const struct {
        enum cudaDeviceAttr attribute;
        int *value;
    } attributes[] = {
        {cudaDevAttrComputeCapabilityMajor, &major},
        {cudaDevAttrComputeCapabilityMinor, &minor},
        {cudaDevAttrMultiProcessorCount, &cuda->multiprocessors},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, &cuda->shared_bytes_max},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        TERN_GOTO_IF_ERR(status,
                         tern_cuda_status(cudaDeviceGetAttribute(attributes[i].value,
                                                                 attributes[i].attribute, ordinal),
                                          "cudaDeviceGetAttribute"),
                         fail);
    }
    cuda->capability = 10 * major + minor;
    TERN_GOTO_IF_ERR(
        status,
        tern_cuda_status(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                         "cudaStreamCreate"),
        fail);
    TERN_GOTO_IF_ERR(status,
                     tern_cuda_status(cudaEventCreateWithFlags(&cuda->edge, cudaEventDisableTiming),
                                      "cudaEventCreate"),
                     fail);
    TERN_GOTO_IF_ERR(
        status,
        tern_cuda_status(cudaEventCreateWithFlags(&cuda->sleeper,
                                                  cudaEventDisableTiming | cudaEventBlockingSync),
                         "cudaEventCreate"),
        fail);
    *out = &cuda->base;
    return TERN_OK;
fail:
    cuda_close(&cuda->base);
    return status;
}

static tern_status cuda_queue(struct tern_device *device,
                              const char *name,
                              struct tern_device **out)
{
    return open_queue(tern_cuda_device_of(device)->ordinal, name, out);
}

tern_status tern_cuda_device_open(int ordinal, struct tern_device **out)
{
    *out = NULL;
    return open_queue(ordinal, "compute", out);
}

int tern_cuda_device_ordinal(const struct tern_device *device)
{
    return ((const struct tern_cuda_device *)device)->ordinal;
}

static size_t max_bytes(size_t a, size_t b)
{
    return a > b ? a : b;
}

tern_status tern_cuda_prepare(struct tern_device *device,
                              const struct tern_op_limits *limits,
                              size_t *bytes_out)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    TERN_RETURN_IF_ERR(use(cuda));
    if (cuda->blas == NULL) {
        TERN_RETURN_IF_ERR(tern_cuda_blas_open(cuda, &cuda->blas));
    }
    size_t bytes = tern_cuda_norm_workspace(cuda, limits);
    bytes = max_bytes(bytes, tern_cuda_embed_workspace(cuda, limits));
    bytes = max_bytes(bytes, tern_cuda_reduce_workspace(cuda, limits));
    bytes = max_bytes(bytes, tern_cuda_attention_workspace(cuda, limits));
    bytes = max_bytes(bytes, tern_cuda_blas_workspace(cuda, limits));
    if (bytes > cuda->workspace_bytes) {
        /* ops under way may still use the old one */
        TERN_RETURN_IF_ERR(tern_cuda_status(cudaStreamSynchronize(cuda->stream), "prepare"));
        cudaFree(cuda->workspace);
        cuda->workspace = NULL;
        cuda->workspace_bytes = 0;
        TERN_RETURN_IF_ERR(
            tern_cuda_status(cudaMalloc(&cuda->workspace, bytes), "kernel workspace"));
        cuda->workspace_bytes = bytes;
    }
    cuda->limits = *limits;
    if (bytes_out != NULL) {
        *bytes_out = cuda->workspace_bytes;
    }
    return TERN_OK;
}

const struct tern_device_table tern_cuda_device_table = {
    .name = "cuda",
    .close = cuda_close,
    .queue = cuda_queue,
    .after = cuda_after,
    .memory = cuda_memory,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .upload = cuda_upload,
    .download = cuda_download,
    .upload_begin = cuda_upload_begin,
    .download_begin = cuda_download_begin,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .sync = cuda_sync,
    .host_view = cuda_host_view,
    .native = cuda_native,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .replay = cuda_replay,
    .forget = cuda_forget,
};
