/* layout.h - the content of a file before it is written: small pieces copied, large ones borrowed.
 *
 * HDF5 lays a file out by writing here at any address, in any order; the file is then written from
 * front to back in one go. So the disk sees one sequential stream, its hash is known without
 * reading it back, and HDF5 never meets an error of the disk. */
#ifndef TERN_IO_LAYOUT_H
#define TERN_IO_LAYOUT_H

#include "io/direct.h"
#include "runtime/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct tern_layout;
TERN_MUST_CHECK tern_status tern_layout_create(struct tern_layout **out);
void tern_layout_destroy(struct tern_layout *layout);
/* Copies. Must not touch a borrowed or written range. */
TERN_MUST_CHECK tern_status tern_layout_copy(struct tern_layout *layout,
                                             int64_t offset,
                                             const void *data,
                                             size_t bytes);
/* Refers to data, which must outlive the layout. data NULL: the range is on disk already (see
 * save). */
TERN_MUST_CHECK tern_status tern_layout_borrow(struct tern_layout *layout,
                                               int64_t offset,
                                               const void *data,
                                               size_t bytes);
/* What is there now; zeros where nothing was written. */
TERN_MUST_CHECK tern_status tern_layout_read(const struct tern_layout *layout,
                                             int64_t offset,
                                             void *dst,
                                             size_t bytes);
int64_t tern_layout_copied_bytes(const struct tern_layout *layout);
/* Appends [0, end) to the file; or, if ranges are on disk already, patches the rest into it. */
void tern_layout_save(struct tern_layout *layout, struct tern_direct *direct, int64_t end);

#endif
