/* tensor_file.h - the tensors of an opened model file, whatever its format: names, types, shapes, and where
 * the bytes lie. Nothing is copied: data points into the mapped file and is paged in as it is read.
 *
 * Opened by io/safetensors.h and io/gguf.h, which check everything that is said here before they return, so
 * that a reader of `data` can trust shape, dtype and bytes.
 *
 * A file that somebody else shortens while it is mapped ends the process (SIGBUS), as with any mapped
 * file: replace model files by renaming a new one over the old, never by writing into them. */
#ifndef TERN_IO_TENSOR_FILE_H
#define TERN_IO_TENSOR_FILE_H

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TERN_STORED_RANK_MAX = 4,
    TERN_STORED_NAME_BYTES = 256,        /* with the NUL */
    TERN_STORED_TENSORS_MAX = 128 * 1024 /* of one model */
};

struct tern_stored_tensor {
    const char *name;
    enum tern_dtype dtype;
    int rank; /* 0: one element */
    /* Row-major, outermost first, 1 beyond the rank: GGUF's dimensions are turned round to this. Blocks
     * of block types lie along the last one. */
    int64_t shape[TERN_STORED_RANK_MAX];
    int64_t elements;
    /* Mapped and read-only. Aligned to 32 bytes in a GGUF file of the default alignment, possibly to
     * nothing at all in a safetensors file. */
    const void *data;
    size_t bytes;
    const char *file; /* the path, for messages */
    uint64_t offset;  /* of data in it */
};

struct tern_tensor_file;

int64_t tern_tensor_file_count(const struct tern_tensor_file *file);
/* In the order of the file (of the files, sorted by name, for shards). */
const struct tern_stored_tensor *tern_tensor_file_at(const struct tern_tensor_file *file,
                                                     int64_t index);
/* NULL if there is none. */
const struct tern_stored_tensor *tern_tensor_file_find(const struct tern_tensor_file *file,
                                                       const char *name);
/* Sizes of all files together. */
uint64_t tern_tensor_file_bytes(const struct tern_tensor_file *file);
/* The path it was opened by. */
const char *tern_tensor_file_path(const struct tern_tensor_file *file);
/* NULL is fine. Tensors and their data are gone afterwards. */
void tern_tensor_file_close(struct tern_tensor_file *file);

#endif
