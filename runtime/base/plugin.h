/* plugin.h - where the shared objects are that tern loads at run time. */
#ifndef TERN_RUNTIME_BASE_PLUGIN_H
#define TERN_RUNTIME_BASE_PLUGIN_H

#include <stdbool.h>

enum {
    TERN_PLUGIN_PATH_BYTES = 4096
};

/* The path in the environment variable, else `file` in the folder of the executable. True if it can be read. */
bool tern_plugin_path(const char *variable,
                      const char *file,
                      char path_out[TERN_PLUGIN_PATH_BYTES]);

#endif
