/* version.c - version, commit, features, backends: quick, so nothing is opened. */
#include "launch/version.h"

#include "kernels/open.h"
#include "launch/version_info.h"

#include <stdio.h>

enum {
    BACKENDS_MAX = 16
};

const char *tern_version_number(void)
{
    return TERN_VERSION_NUMBER;
}

const char *tern_version_commit(void)
{
    return TERN_VERSION_COMMIT;
}

const char *tern_version_build(void)
{
    return TERN_VERSION_BUILD;
}

bool tern_version_mpi_plugin(char path_out[TERN_PLUGIN_PATH_BYTES])
{
    return tern_plugin_path("TERN_MPI_PLUGIN", "libtern_mpi.so", path_out);
}

tern_status tern_version_print(struct tern_text *out)
{
    char plugin[TERN_PLUGIN_PATH_BYTES];
    struct tern_backend_info backends[BACKENDS_MAX];
    TERN_RETURN_IF_ERR(tern_text_printf(out, "tern %s (commit %s, %s%s)\n", tern_version_number(),
                                        tern_version_commit(), tern_version_build(),
                                        TERN_FAULTS ? ", fault points" : ""));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "cpu features: %s\n", tern_cpu_features()));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "backends:\n"));
    int count = tern_backend_list(backends, BACKENDS_MAX);
    for (int i = 0; i < count && i < BACKENDS_MAX; i++) {
        bool can_run = backends[i].reason[0] == '\0';
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "  %-5s %s%s\n", backends[i].name,
                             can_run ? "runs here" : "cannot run here: ", backends[i].reason));
    }
    bool has_plugin = tern_version_mpi_plugin(plugin);
    return tern_text_printf(out, "launchers:\n  mpi   %s%s\n",
                            has_plugin ? "plugin " : "cannot run here: there is no plugin ",
                            plugin);
}
