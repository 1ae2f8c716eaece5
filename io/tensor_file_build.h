/* tensor_file_build.h - how the readers of formats fill a tensor file. Internal to io/. */
#ifndef TERN_IO_TENSOR_FILE_BUILD_H
#define TERN_IO_TENSOR_FILE_BUILD_H

#include "io/file.h"
#include "io/tensor_file.h"

/* An empty one; the caller closes it on every error. */
TERN_MUST_CHECK tern_status tern_tensor_file_create(const char *path,
                                                    struct tern_tensor_file **out);
/* Maps one more file, owned by `file` from now on, as is *path_out, a copy of `path`. */
TERN_MUST_CHECK tern_status tern_tensor_file_map(struct tern_tensor_file *file,
                                                 const char *path,
                                                 struct tern_map *map_out,
                                                 const char **path_out);
/* Computes elements and bytes from dtype, rank and shape; false on overflow, on a negative
 * dimension, and when rows are no whole blocks. */
bool tern_stored_tensor_size(struct tern_stored_tensor *tensor);
/* "[2, 3]" */
enum {
    TERN_STORED_SHAPE_BYTES = 96
};
const char *tern_stored_shape_text(const struct tern_stored_tensor *tensor,
                                   char out[TERN_STORED_SHAPE_BYTES]);
/* Adds a tensor, all of whose fields but `name` are set and checked. `name` is copied; what cannot
 * be a name is TERN_ERR_INPUT, described as found at byte `name_offset` of tensor->file. */
TERN_MUST_CHECK tern_status tern_tensor_file_add(struct tern_tensor_file *file,
                                                 const struct tern_stored_tensor *tensor,
                                                 const char *name,
                                                 size_t name_bytes,
                                                 uint64_t name_offset);
/* Tensor `index` while it is not finished. */
struct tern_stored_tensor *tern_tensor_file_edit(struct tern_tensor_file *file, int64_t index);
/* Sets the names, refuses two equal ones; tern_tensor_file_find works from then on. */
TERN_MUST_CHECK tern_status tern_tensor_file_finish(struct tern_tensor_file *file);

#endif
