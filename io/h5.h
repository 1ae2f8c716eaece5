/* h5.h - HDF5 files as Tern needs them: written in one pass and synced, read by place. The only
 * door to HDF5.
 *
 * All calls into the library are made under one lock, for a few microseconds each; the data itself
 * is moved outside it. Only give files to tern_h5_open that passed a hash check: HDF5 can crash on
 * damaged ones. */
#ifndef TERN_IO_H5_H
#define TERN_IO_H5_H

#include "io/direct.h"
#include "io/hash.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_H5_RANK_MAX = 4
};

/* A dataset: bf16 is stored as uint16 with the attribute dtype = "bfloat16". */
struct tern_h5_shape {
    enum tern_dtype dtype;
    int rank; /* 1 to TERN_H5_RANK_MAX */
    int64_t dims[TERN_H5_RANK_MAX];
    bool has_place; /* attributes global_shape and offset */
    int64_t global_dims[TERN_H5_RANK_MAX];
    int64_t offset[TERN_H5_RANK_MAX];
};

/* ---- writing ---- */

struct tern_h5_writer;
enum tern_h5_mode {
    TERN_H5_BORROW, /* data is read when the file is finished: one stream, hashed on the way */
    TERN_H5_STREAM, /* chunks go to disk as they come; the hash costs reading the file back */
};
struct tern_h5_file {
    int64_t bytes;
    char xxh3[TERN_HASH_HEX_BYTES];
    int64_t copied_bytes; /* held in memory until the end: metadata and small data */
    struct tern_direct_stats stats;
};
/* Makes or empties path. */
TERN_MUST_CHECK tern_status tern_h5_create(const char *path,
                                           enum tern_h5_mode mode,
                                           struct tern_h5_writer **out);
/* STREAM: the space that will be needed, if known. */
TERN_MUST_CHECK tern_status tern_h5_reserve(struct tern_h5_writer *writer, int64_t bytes);
/* One contiguous dataset without filters, groups made as needed. `data` is borrowed until finish or
 * abandon. */
TERN_MUST_CHECK tern_status tern_h5_put(struct tern_h5_writer *writer,
                                        const char *name,
                                        const struct tern_h5_shape *shape,
                                        const void *data);
/* A uint8 dataset; copied. */
TERN_MUST_CHECK tern_status tern_h5_put_bytes(struct tern_h5_writer *writer,
                                              const char *name,
                                              const void *data,
                                              size_t bytes);
/* A chunked dataset under shuffle + zstd: chunks of chunk_rows rows, given in order by
 * tern_h5_chunk, one dataset at a time; BORROW copies them. Edge chunks are full chunks. */
TERN_MUST_CHECK tern_status tern_h5_begin_chunks(struct tern_h5_writer *writer,
                                                 const char *name,
                                                 const struct tern_h5_shape *shape,
                                                 int64_t chunk_rows,
                                                 int level);
TERN_MUST_CHECK tern_status tern_h5_chunk(struct tern_h5_writer *writer,
                                          int64_t chunk,
                                          const void *data,
                                          size_t bytes,
                                          bool is_raw);
TERN_MUST_CHECK tern_status tern_h5_end_chunks(struct tern_h5_writer *writer);
/* A virtual dataset: rows [offset, offset + count) are the whole dataset `name` of that file beside
 * this one. */
struct tern_h5_part {
    const char *file;
    int64_t row_offset, row_count;
};
TERN_MUST_CHECK tern_status tern_h5_put_virtual(struct tern_h5_writer *writer,
                                                const char *name,
                                                const struct tern_h5_shape *shape,
                                                const struct tern_h5_part *parts,
                                                int64_t part_count);
/* Closes, writes and syncs the file. The writer is gone afterwards, whatever the answer. */
TERN_MUST_CHECK tern_status tern_h5_finish(struct tern_h5_writer *writer, struct tern_h5_file *out);
void tern_h5_abandon(struct tern_h5_writer *writer);

/* ---- reading ---- */

struct tern_h5_reader;
TERN_MUST_CHECK tern_status tern_h5_open(const char *path, struct tern_h5_reader **out);
void tern_h5_close(struct tern_h5_reader *reader);
/* TERN_ERR_NOT_FOUND if there is none; checks the layout and every chunk's place and size against
 * the file. */
TERN_MUST_CHECK tern_status tern_h5_stat(struct tern_h5_reader *reader,
                                         const char *name,
                                         struct tern_h5_shape *out);
/* Rows [row_offset, row_offset + row_count) of the last dataset stat'ed or read under that name,
 * into dst. */
TERN_MUST_CHECK tern_status tern_h5_read_rows(struct tern_h5_reader *reader,
                                              const char *name,
                                              int64_t row_offset,
                                              int64_t row_count,
                                              void *dst);
/* A uint8 dataset, tern_alloc'd and NUL-terminated. */
TERN_MUST_CHECK tern_status tern_h5_read_bytes(struct tern_h5_reader *reader,
                                               const char *name,
                                               char **data_out,
                                               size_t *bytes_out);
/* Checks that a virtual dataset is made of exactly these parts. */
TERN_MUST_CHECK tern_status tern_h5_check_virtual(struct tern_h5_reader *reader,
                                                  const char *name,
                                                  const struct tern_h5_shape *shape,
                                                  const struct tern_h5_part *parts,
                                                  int64_t part_count);

#endif
