/* cache.h - what lies in an object store, as files on this machine.
 *
 *   TERN_CACHE_DIR/<hash>/NAME...    one entry an object, or a prefix with all below it; the hash is
 *                                    of the URL and of the versions of what is there, so that an
 *                                    object that was replaced is another entry
 *
 * TERN_CACHE_DIR defaults to tern/ in XDG_CACHE_HOME or ~/.cache; TERN_CACHE_BYTES (100G) bounds it:
 * what was not used for longest goes first. Files that are open when their entry goes stay readable.
 * Processes of one machine share it: one fetches, the others wait. */
#ifndef TERN_IO_CACHE_H
#define TERN_IO_CACHE_H

#include "io/file.h"
#include "runtime/base/status.h"

/* The file of an object, or the folder of all objects below "URL/". TERN_ERR_NOT_FOUND names the
 * URL; TERN_ERR_NO_SPACE: it is larger than the cache may be. Any thread. */
TERN_MUST_CHECK tern_status tern_cache_fetch(const char *url, char path_out[TERN_PATH_BYTES]);

#endif
