/* keys.h - API keys from a file, compared in a time that says nothing about them. */
#ifndef TERN_RUNTIME_SERVE_KEYS_H
#define TERN_RUNTIME_SERVE_KEYS_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TERN_API_KEYS_MAX = 1024,
    TERN_API_KEY_BYTES_MAX = 256
};

struct tern_api_keys {
    char (*keys)[TERN_API_KEY_BYTES_MAX]; /* (count), filled with zeros */
    int count;                            /* 0: nobody needs one */
};

/* One key a line, blank lines and lines that begin with # left out. TERN_ERR_INPUT names file and line; a file without
 * any key is refused. Owned: fini. */
TERN_MUST_CHECK tern_status tern_api_keys_read(const char *path, struct tern_api_keys *out);
void tern_api_keys_fini(struct tern_api_keys *keys);
/* header: the value of Authorization, NULL for none. Looks at all bytes of all keys. */
bool tern_api_keys_admit(const struct tern_api_keys *keys, const char *header);

#endif
