/* plugin.c - finds and checks libtern_mpi.so. */
#include "runtime/base/plugin.h"

#include "comm/boot.h"
#include "runtime/base/text.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const size_t PIECE_BYTES_MAX = (size_t)256 << 20;

size_t tern_mpi_piece_bytes(void)
{
    const char *text = getenv("TERN_COMM_PIECE_BYTES");
    int64_t bytes;
    if (text == NULL || !tern_text_to_bytes(text, &bytes) || bytes < 1 ||
        (size_t)bytes > PIECE_BYTES_MAX) {
        return PIECE_BYTES_MAX;
    }
    return (size_t)bytes;
}

static tern_status fail_open(const struct tern_launcher *launcher,
                             const char *path,
                             const char *reason)
{
    if (access(path, F_OK) != 0) {
        return tern_fail(TERN_ERR_CONFIG,
                         "%s started %d ranks, but the MPI plugin %s is not there: build with "
                         "-DTERN_MPI=ON (Debian: apt install libopenmpi-dev openmpi-bin), or set "
                         "TERN_MPI_PLUGIN to where it is",
                         launcher->name, launcher->ranks, path);
    }
    return tern_fail(
        TERN_ERR_CONFIG,
        "%s started %d ranks, but the MPI plugin %s does not load: %s; install the MPI "
        "library that it was built with (Debian: apt install libopenmpi3)",
        launcher->name, launcher->ranks, path, reason);
}

tern_status tern_mpi_plugin_load(const struct tern_launcher *launcher,
                                 const struct tern_mpi_plugin **out)
{
    char path[TERN_PLUGIN_PATH_BYTES];
    tern_plugin_path("TERN_MPI_PLUGIN", "libtern_mpi.so", path);
    /* Global: Open MPI's own plugins take symbols from libmpi without linking it. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL) {
        return fail_open(launcher, path, dlerror());
    }
    const struct tern_mpi_plugin *plugin = dlsym(handle, TERN_MPI_PLUGIN_SYMBOL);
    if (plugin == NULL || plugin->version != TERN_TRANSPORT_VERSION ||
        plugin->transport_bytes != sizeof(struct tern_transport)) {
        return tern_fail(
            TERN_ERR_CONFIG,
            "the MPI plugin %s is of another build of tern (%s %u, expected %d): install "
            "both from the same build",
            path, plugin == NULL ? "no symbol " TERN_MPI_PLUGIN_SYMBOL ", version" : "version",
            plugin == NULL ? 0 : plugin->version, TERN_TRANSPORT_VERSION);
    }
    *out = plugin;
    return TERN_OK;
}
