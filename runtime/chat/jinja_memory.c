/* jinja_memory.c - blocks that are freed all at once, under a limit. */
#include "runtime/base/mem.h"
#include "runtime/chat/jinja_internal.h"

#include <string.h>

enum {
    CHUNK_BYTES = 64 << 10,
    ALIGN = 8
};

struct jinja_chunk {
    struct jinja_chunk *next;
    char data[];
};

void tern_jinja_pool_fini(struct jinja_pool *pool)
{
    while (pool->chunks != NULL) {
        struct jinja_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        tern_free(chunk);
    }
    *pool = (struct jinja_pool){.limit_bytes = pool->limit_bytes};
}

/* A chunk with room for `bytes`; what is left of the one before is lost. */
static bool add_chunk(struct jinja_pool *pool, size_t bytes)
{
    size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    if (room > pool->limit_bytes || pool->used_bytes > pool->limit_bytes - room) {
        return false;
    }
    struct jinja_chunk *chunk = tern_alloc("chat template", sizeof *chunk + room);
    if (chunk == NULL) {
        return false;
    }
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    pool->used_bytes += room;
    pool->next = chunk->data;
    pool->end = chunk->data + room;
    return true;
}

static bool reserve(struct jinja_pool *pool, size_t bytes)
{
    return (size_t)(pool->end - pool->next) >= bytes || add_chunk(pool, bytes);
}

void *tern_jinja_pool_alloc(struct jinja_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGN) {
        return NULL;
    }
    size_t rounded = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!reserve(pool, rounded)) {
        return NULL;
    }
    void *block = pool->next;
    pool->next += rounded;
    memset(block, 0, rounded);
    return block;
}

char *tern_jinja_pool_extend(struct jinja_pool *pool, const char *data, size_t bytes, size_t more)
{
    if (more > SIZE_MAX / 4 || bytes > SIZE_MAX / 4) {
        return NULL;
    }
    if (bytes > 0 && data + bytes == pool->next && (size_t)(pool->end - pool->next) >= more) {
        pool->next += more;
        return pool->next - more - bytes;
    }
    /* twice as much in a new chunk, so that a text which goes on growing is copied seldom */
    size_t room = bytes + more > CHUNK_BYTES / 4 ? 2 * (bytes + more) : bytes + more;
    if (!reserve(pool, room) && !reserve(pool, bytes + more)) {
        return NULL;
    }
    char *to = pool->next;
    pool->next += bytes + more;
    if (bytes > 0) {
        memcpy(to, data, bytes);
    }
    return to;
}
