/* plugin.c - the environment, or else beside the executable. */
#include "runtime/base/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tern_plugin_path(const char *variable, const char *file, char path_out[TERN_PLUGIN_PATH_BYTES])
{
    const char *given = getenv(variable);
    if (given != NULL && given[0] != '\0') {
        snprintf(path_out, TERN_PLUGIN_PATH_BYTES, "%s", given);
        return access(path_out, R_OK) == 0;
    }
    ssize_t length =
        readlink("/proc/self/exe", path_out, TERN_PLUGIN_PATH_BYTES - strlen(file) - 1);
    path_out[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path_out, '/');
    strcpy(slash != NULL ? slash + 1 : path_out, file);
    return access(path_out, R_OK) == 0;
}
