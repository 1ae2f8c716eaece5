/* library.h - what writing and reading share of HDF5: the lock, our driver, error sentences, types.
 * The only includer of hdf5.h. */
#ifndef TERN_IO_H5_LIBRARY_H
#define TERN_IO_H5_LIBRARY_H

#include "io/direct.h"
#include "io/h5.h"
#include "io/layout.h"
#include "io/source.h"

#include <hdf5.h>

enum {
    TERN_H5_FILTER_ZSTD = 32015
}; /* registered with The HDF Group; hdf5plugin brings it */

/* Where a file being written goes. */
struct tern_h5_target {
    struct tern_layout *layout;
    struct tern_direct *direct; /* chunk data goes there at once, or NULL: borrowed until the end */
    const uint8_t *lent; /* the data of the call in progress: what the driver need not copy */
    size_t lent_bytes;
    tern_status status; /* first failure of the driver; then it drops what it is given */
    char detail[TERN_DETAIL_BYTES];
    int64_t end; /* of the file, as HDF5 sees it */
};

/* Every use of the library is between these two. */
TERN_MUST_CHECK tern_status tern_h5_enter(void);
void tern_h5_leave(void);
/* A sentence with HDF5's own innermost message. */
tern_status tern_h5_fail(tern_status status, const char *path, const char *doing, const char *name);
/* File access properties that reach our driver: exactly one of target and source. Negative on
 * failure. */
hid_t tern_h5_access(struct tern_h5_target *target, struct tern_source *source);
/* The file type of a dtype; not to be closed. */
hid_t tern_h5_type(enum tern_dtype dtype);
int64_t tern_h5_bytes_of_rows(const struct tern_h5_shape *shape, int64_t rows);

#endif
