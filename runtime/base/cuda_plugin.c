/* cuda_plugin.c - finds, checks and loads libtern_cuda.so, cheapest question first. */
#include "runtime/base/cuda_plugin.h"

#include "runtime/base/mem.h"
#include "runtime/base/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    REASON_BYTES = TERN_PLUGIN_PATH_BYTES + 256
};

static const struct tern_cuda_plugin *g_plugin;
static char g_reason[REASON_BYTES];

static void host_fail(tern_status status, const char *sentence)
{
    (void)tern_fail(status, "%s", sentence);
}

static void host_log(enum tern_log_level level, const char *sentence)
{
    tern_log(level, "%s", sentence);
}

static const struct tern_cuda_host g_host = {
    .alloc = tern_alloc,
    .free = tern_free,
    .fail = host_fail,
    .detail = tern_detail,
    .log = host_log,
};

/* A plugin that was asked for by name is loaded whatever the driver: it may be a simulator, and if not, it says
 * itself what is missing. */
static bool is_asked_for(void)
{
    const char *given = getenv("TERN_CUDA_PLUGIN");
    return given != NULL && given[0] != '\0';
}

static bool has_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == NULL) {
        snprintf(g_reason, sizeof g_reason,
                 "there is no NVIDIA driver (libcuda.so.1 does not load)");
        return false;
    }
    return true; /* stays open: the CUDA runtime is about to open it too */
}

static void load(void)
{
    char path[TERN_PLUGIN_PATH_BYTES];
    if (!tern_plugin_path("TERN_CUDA_PLUGIN", "libtern_cuda.so", path)) {
        snprintf(g_reason, sizeof g_reason, "there is no plugin %s", path);
        return;
    }
    if (!is_asked_for() && !has_driver()) {
        return;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        snprintf(g_reason, sizeof g_reason, "the plugin does not load: %s", dlerror());
        return;
    }
    const struct tern_cuda_plugin *plugin = dlsym(handle, TERN_CUDA_PLUGIN_SYMBOL);
    if (plugin == NULL || plugin->version != TERN_CUDA_PLUGIN_VERSION ||
        plugin->status_count != TERN_STATUS_COUNT) {
        snprintf(g_reason, sizeof g_reason,
                 "the plugin %s is of another build of tern (%s %u, expected %d)", path,
                 plugin == NULL ? "no symbol " TERN_CUDA_PLUGIN_SYMBOL ", version" : "version",
                 plugin == NULL ? 0 : plugin->version, TERN_CUDA_PLUGIN_VERSION);
        return;
    }
    plugin->attach(&g_host);
    g_plugin = plugin;
}

const struct tern_cuda_plugin *tern_cuda_plugin_load(const char **reason_out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *reason_out = g_reason;
    return g_plugin;
}
