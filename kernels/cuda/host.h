/* host.h - the program's services inside the plugin. */
#ifndef TERN_KERNELS_CUDA_HOST_H
#define TERN_KERNELS_CUDA_HOST_H

#include "runtime/base/cuda_plugin.h"

/* Remembers the program's services; before anything else of the plugin. */
void tern_cuda_attach(const struct tern_cuda_host *host);

#endif
