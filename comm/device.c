/* device.c - the communicator between GPUs, from the CUDA plugin. */
#include "comm/engine.h"
#include "comm/nccl/plugin.h"
#include "runtime/base/cuda_plugin.h"

tern_status tern_comm_open_device(struct tern_comm *host,
                                  struct tern_device *compute,
                                  struct tern_device *queue,
                                  struct tern_comm **out)
{
    const char *reason;
    const struct tern_cuda_plugin *plugin = tern_cuda_plugin_load(&reason);
    if (plugin == NULL) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "no communicator between GPUs: %s", reason);
    }
    if (plugin->comm->comm_bytes != sizeof(struct tern_comm)) {
        return tern_fail(
            TERN_ERR_CONFIG,
            "no communicator between GPUs: the CUDA plugin is of another build of tern");
    }
    const struct tern_nccl_options options = {
        .host = host,
        .compute = compute,
        .queue = queue,
        .enter = tern_comm_enter,
    };
    return plugin->comm->open(&options, out);
}
