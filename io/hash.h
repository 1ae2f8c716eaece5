/* hash.h - XXH3-128 of bytes, streams and files, as 32 lower-case hexadecimal digits (what
 * xxh128sum prints). */
#ifndef TERN_IO_HASH_H
#define TERN_IO_HASH_H

#include "runtime/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TERN_HASH_HEX_BYTES = 33
};

struct tern_hash;
TERN_MUST_CHECK tern_status tern_hash_create(struct tern_hash **out);
void tern_hash_destroy(struct tern_hash *hash);
void tern_hash_reset(struct tern_hash *hash);
void tern_hash_update(struct tern_hash *hash, const void *data, size_t bytes);
/* Of everything since the creation or reset; more may follow. */
void tern_hash_hex(const struct tern_hash *hash, char out[TERN_HASH_HEX_BYTES]);

/* XXH3-64 under a seed, for tables in memory: who does not know the seed cannot aim at one slot. */
uint64_t tern_hash_u64(const void *data, size_t bytes, uint64_t seed);
void tern_hash_bytes(const void *data, size_t bytes, char out[TERN_HASH_HEX_BYTES]);
/* Of a whole file, read around the page cache where it is large. */
TERN_MUST_CHECK tern_status tern_hash_file(const char *path, char out[TERN_HASH_HEX_BYTES]);

#endif
