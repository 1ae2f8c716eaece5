/* version.h - which build this is, and what it can run on this machine. */
#ifndef TERN_LAUNCH_VERSION_H
#define TERN_LAUNCH_VERSION_H

#include "runtime/base/plugin.h"
#include "runtime/base/text.h"

const char *tern_version_number(void);
const char *tern_version_commit(void); /* 12 digits, "-dirty" behind if files differed; "unknown" */
const char *tern_version_build(void);  /* CMake's build type */
/* What `tern --version` prints. Starts no thread, opens no device, loads no plugin. */
TERN_MUST_CHECK tern_status tern_version_print(struct tern_text *out);
/* Where the MPI plugin is looked for: TERN_MPI_PLUGIN, else beside the binary. True if there is
 * a file. */
bool tern_version_mpi_plugin(char path_out[TERN_PLUGIN_PATH_BYTES]);

#endif
