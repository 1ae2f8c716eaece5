/* plugin.c - comm's part of the plugin's table. */
#include "comm/nccl/plugin.h"

#include "comm/nccl/nccl_impl.h"

static void info(struct tern_nccl_info *out)
{
    const struct tern_nccl_library *library;
    (void)!tern_nccl_library_load(&library); /* why not is in the reason */
    *out = library->info;
}

extern const struct tern_cuda_comm tern_nccl_comm;
const struct tern_cuda_comm tern_nccl_comm = {
    .comm_bytes = sizeof(struct tern_comm),
    .open = tern_nccl_comm_open,
    .info = info,
};
