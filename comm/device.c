/* device.c - the communicator between GPUs, from the CUDA plugin. */
#include "comm/boot.h"
#include "comm/engine.h"
#include "comm/nccl/plugin.h"
#include "runtime/base/cuda_plugin.h"
#include "runtime/base/fault.h"

#include <stdlib.h>

/* A GPU that waits costs as much as one that works. */
static const double TIMEOUT_SECONDS_DEFAULT = 30;

static const char *real_getenv(const char *name)
{
    return getenv(name);
}

static void pass_fault(void)
{
    (void)tern_fault_pass(TERN_FAULT_COMM_COLLECTIVE);
}

tern_status tern_comm_open_device(struct tern_comm *host,
                                  struct tern_device *compute,
                                  struct tern_device *queue,
                                  const struct tern_device_table *table,
                                  const struct tern_comm_farewell *farewell,
                                  struct tern_comm **out)
{
    *out = NULL;
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
    struct tern_nccl_options options = {
        .host = host,
        .compute = compute,
        .queue = queue,
        .table = table,
        .enter = tern_comm_enter,
        .all_gather = tern_comm_all_gather,
        .fault = pass_fault,
        .farewell = *farewell,
    };
    TERN_RETURN_IF_ERR(tern_comm_limit(real_getenv, TIMEOUT_SECONDS_DEFAULT, &options.limit_ns));
    return plugin->comm->open(&options, out);
}
