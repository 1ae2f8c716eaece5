/* source.h - reads at any place of a file; large ones go around the page cache (O_DIRECT) where
 * that is allowed, since a page-cache page that a virtual machine has not used lately costs more
 * than the disk does. One thread a source. */
#ifndef TERN_IO_SOURCE_H
#define TERN_IO_SOURCE_H

#include "runtime/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct tern_source;
TERN_MUST_CHECK tern_status tern_source_open(const char *path, struct tern_source **out);
void tern_source_close(struct tern_source *source);
int64_t tern_source_bytes(const struct tern_source *source); /* size when it was opened */
/* Exactly `bytes` bytes; TERN_ERR_CORRUPT if the file ends before. */
TERN_MUST_CHECK tern_status tern_source_read(struct tern_source *source,
                                             int64_t offset,
                                             void *dst,
                                             size_t bytes);
/* The next piece of the file from offset, at most 4 MiB, in a buffer of the source: valid until the
 * next call. */
TERN_MUST_CHECK tern_status tern_source_borrow(struct tern_source *source,
                                               int64_t offset,
                                               const void **data_out,
                                               size_t *bytes_out);

#endif
