/* hash.c - XXH3-128; the only includer of xxhash.h. */
#include "io/hash.h"

#include "io/source.h"
#include "runtime/base/mem.h"

#include <stdio.h>

/* clang-format off: the macro makes the state's size known */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
/* clang-format on */

struct tern_hash {
    XXH3_state_t state; /* 64-byte aligned, as tern_alloc's blocks are */
};

static void hex_of(XXH128_hash_t value, char out[TERN_HASH_HEX_BYTES])
{
    snprintf(out, TERN_HASH_HEX_BYTES, "%016llx%016llx", (unsigned long long)value.high64,
             (unsigned long long)value.low64);
}

tern_status tern_hash_create(struct tern_hash **out)
{
    struct tern_hash *hash = tern_alloc("hash", sizeof *hash);
    if (hash == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a hash state");
    }
    XXH3_INITSTATE(&hash->state);
    tern_hash_reset(hash);
    *out = hash;
    return TERN_OK;
}

void tern_hash_destroy(struct tern_hash *hash)
{
    tern_free(hash);
}

void tern_hash_reset(struct tern_hash *hash)
{
    XXH3_128bits_reset(&hash->state);
}

void tern_hash_update(struct tern_hash *hash, const void *data, size_t bytes)
{
    if (bytes > 0) {
        XXH3_128bits_update(&hash->state, data, bytes);
    }
}

void tern_hash_hex(const struct tern_hash *hash, char out[TERN_HASH_HEX_BYTES])
{
    hex_of(XXH3_128bits_digest(&hash->state), out);
}

uint64_t tern_hash_u64(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

void tern_hash_bytes(const void *data, size_t bytes, char out[TERN_HASH_HEX_BYTES])
{
    hex_of(XXH3_128bits(data, bytes), out);
}

tern_status tern_hash_file(const char *path, char out[TERN_HASH_HEX_BYTES])
{
    struct tern_source *source;
    TERN_RETURN_IF_ERR(tern_source_open(path, &source));
    struct tern_hash *hash = NULL;
    tern_status status = tern_hash_create(&hash);
    int64_t end = tern_source_bytes(source);
    for (int64_t at = 0; at < end && status == TERN_OK;) {
        const void *data;
        size_t bytes;
        status = tern_source_borrow(source, at, &data, &bytes);
        if (status == TERN_OK) {
            tern_hash_update(hash, data, bytes);
            at += (int64_t)bytes;
        }
    }
    if (status == TERN_OK) {
        tern_hash_hex(hash, out);
    }
    tern_hash_destroy(hash);
    tern_source_close(source);
    return status;
}
