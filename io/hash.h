/* hash.h - XXH3-128 of bytes, streams and files, as 32 lower-case hexadecimal digits (what xxh128sum prints). */
#ifndef TERN_IO_HASH_H
#define TERN_IO_HASH_H

#include "runtime/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TERN_HASH_HEX_BYTES = 33
};

struct tern_xxh3;
TERN_MUST_CHECK tern_status tern_xxh3_create(struct tern_xxh3 **out);
void tern_xxh3_destroy(struct tern_xxh3 *hash);
void tern_xxh3_reset(struct tern_xxh3 *hash);
void tern_xxh3_update(struct tern_xxh3 *hash, const void *data, size_t bytes);
/* Of everything since the creation or reset; more may follow. */
void tern_xxh3_hex(const struct tern_xxh3 *hash, char out[TERN_HASH_HEX_BYTES]);

void tern_xxh3_bytes(const void *data, size_t bytes, char out[TERN_HASH_HEX_BYTES]);
/* Of a whole file, read around the page cache where it is large. */
TERN_MUST_CHECK tern_status tern_xxh3_file(const char *path, char out[TERN_HASH_HEX_BYTES]);

#endif
