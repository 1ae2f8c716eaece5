/* cuda_backend.c - which GPU is a rank's own, and why there may be none. */
#include "kernels/cuda_backend.h"

#include "runtime/base/cuda_plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const struct tern_cuda_kernels *g_kernels;
static struct tern_cuda_probe g_probe;
static const char *g_reason = "";

static void find(void)
{
    const struct tern_cuda_plugin *plugin = tern_cuda_plugin_load(&g_reason);
    if (plugin == NULL) {
        return;
    }
    if (plugin->kernels->ops_bytes != sizeof(struct tern_ops)) {
        g_reason = "the plugin is of another build of tern (its op table differs)";
        return;
    }
    plugin->kernels->probe(&g_probe);
    g_reason = g_probe.reason;
    g_kernels = g_reason[0] == '\0' ? plugin->kernels : NULL;
}

const char *tern_cuda_reason(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return g_reason;
}

const struct tern_cuda_kernels *tern_cuda_kernels(void)
{
    return tern_cuda_reason()[0] == '\0' ? g_kernels : NULL;
}

tern_status tern_cuda_open(int local_rank, int local_size, struct tern_device **out)
{
    const struct tern_cuda_kernels *kernels = tern_cuda_kernels();
    if (kernels == NULL) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "backend cuda cannot run here: %s", g_reason);
    }
    /* One visible GPU for each of several local ranks: the launcher gave each its own. */
    bool is_own = g_probe.device_count == 1;
    if (!is_own && local_size > g_probe.device_count) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return tern_fail(TERN_ERR_CONFIG,
                         "%d ranks on this host, but %d GPUs%s%s: start one rank a GPU", local_size,
                         g_probe.device_count, visible != NULL ? " in CUDA_VISIBLE_DEVICES=" : "",
                         visible != NULL ? visible : "");
    }
    return kernels->open(is_own ? 0 : local_rank, out);
}
