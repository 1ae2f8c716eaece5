/* zst.h - byte shuffle + zstd: whether it pays, chunks in parallel, and back.
 *
 * A compressed chunk is the byte planes of its elements (all bytes 0, all bytes 1, ...) in exactly
 * one zstd frame that states its content size: what HDF5's shuffle followed by filter 32015 stores.
 */
#ifndef TERN_IO_ZST_H
#define TERN_IO_ZST_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size after / size before that level 1 will about reach, from the entropy of 4,096 strided samples
 * of each byte plane; within 0.02 on weights. Only repeats escape it (it is too high then).
 * Elements of 1 to 8 bytes. */
double tern_zst_estimate(const void *data, size_t bytes, size_t element_bytes);

/* bytes must be a multiple of element_bytes for the planes; a rest is copied as it is (HDF5 does
 * the same). */
void tern_zst_shuffle(const void *src, size_t bytes, size_t element_bytes, void *dst);
void tern_zst_unshuffle(const void *src, size_t bytes, size_t element_bytes, void *dst);

/* One frame to exactly `bytes` bytes; TERN_ERR_CORRUPT otherwise. */
TERN_MUST_CHECK tern_status tern_zst_decompress(const void *src,
                                                size_t src_bytes,
                                                void *dst,
                                                size_t bytes);
/* The content size that a frame states; 0 when it states none or is no frame. */
size_t tern_zst_content_bytes(const void *src, size_t src_bytes);
/* One frame; *bytes_out. capacity at least tern_zst_bound(bytes). */
size_t tern_zst_bound(size_t bytes);
TERN_MUST_CHECK tern_status tern_zst_compress(const void *src,
                                              size_t bytes,
                                              int level,
                                              void *dst,
                                              size_t capacity,
                                              size_t *bytes_out);
/* TERN_ERR_ARGUMENT names the range. */
TERN_MUST_CHECK tern_status tern_zst_check_level(int level);

/* Threads that compress the chunks of one array after another. One caller at a time. */
struct tern_zst_pool;
struct tern_zst_array {
    const void *data; /* chunk i is [i * chunk_bytes, ...); the last one is padded with zeros */
    size_t bytes;
    size_t chunk_bytes;
    size_t element_bytes;
};
/* Called in chunk order on the caller's thread: the chunk as it is to be stored; is_raw: neither
 * shuffled nor compressed, chunk_bytes long, because it did not shrink. Not TERN_OK: stop. */
typedef tern_status (
    *tern_zst_sink)(void *context, int64_t chunk, const void *data, size_t bytes, bool is_raw);

/* threads 0: the caller compresses. chunk_bytes_max bounds every array's. */
TERN_MUST_CHECK tern_status tern_zst_pool_create(int threads,
                                                 int level,
                                                 size_t chunk_bytes_max,
                                                 struct tern_zst_pool **out);
void tern_zst_pool_destroy(struct tern_zst_pool *pool);
/* The bytes that sink sees depend on the data and the level alone, not on the threads. */
TERN_MUST_CHECK tern_status tern_zst_pool_run(struct tern_zst_pool *pool,
                                              const struct tern_zst_array *array,
                                              tern_zst_sink sink,
                                              void *context);

#endif
