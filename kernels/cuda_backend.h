/* cuda_backend.h - the plugin as one of the backends. */
#ifndef TERN_KERNELS_CUDA_BACKEND_H
#define TERN_KERNELS_CUDA_BACKEND_H

#include "kernels/cuda/plugin.h"

/* Why the plugin can't be used here, "" if it can. */
const char *tern_cuda_reason(void);
/* The plugin's table, or NULL: see tern_cuda_reason. */
const struct tern_cuda_kernels *tern_cuda_kernels(void);
/* Opens this rank's GPU: the local_rank-th of those that CUDA_VISIBLE_DEVICES leaves; the only one, when each rank was
 * given its own. More ranks than GPUs on a host are refused. */
TERN_MUST_CHECK tern_status tern_cuda_open(int local_rank,
                                           int local_size,
                                           struct tern_device **out);

#endif
