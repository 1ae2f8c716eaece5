/* kv_blocks.c - reference counts and one list of free blocks, ordered by who goes first. */
#include "runtime/serve/kv_blocks.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <string.h>

struct block {
    int32_t refs;
    int32_t before, after; /* in the free list, when refs is 0 */
};

struct tern_kv_blocks {
    struct block *blocks; /* (count + 1): the last one is the list's head and tail */
    int64_t count, free, cached;
    struct tern_prefix *prefix;
};

static void link_before(struct tern_kv_blocks *pool, int32_t block, int32_t after)
{
    struct block *blocks = pool->blocks;
    int32_t before = blocks[after].before;
    blocks[block].before = before;
    blocks[block].after = after;
    blocks[before].after = block;
    blocks[after].before = block;
}

static void unlink_block(struct tern_kv_blocks *pool, int32_t block)
{
    struct block *blocks = pool->blocks;
    blocks[blocks[block].before].after = blocks[block].after;
    blocks[blocks[block].after].before = blocks[block].before;
}

tern_status tern_kv_blocks_create(int64_t count, uint64_t seed, struct tern_kv_blocks **out)
{
    TERN_CHECK(count >= 1 && count < INT32_MAX);
    struct tern_kv_blocks *pool = tern_alloc_zero("kv blocks", 1, sizeof *pool);
    if (pool != NULL) {
        pool->blocks = tern_alloc_zero("kv blocks", (size_t)count + 1, sizeof *pool->blocks);
    }
    if (pool == NULL || pool->blocks == NULL) {
        tern_kv_blocks_destroy(pool);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a list of %lld blocks",
                         (long long)count);
    }
    tern_status status = tern_prefix_create(count, seed, &pool->prefix);
    if (status != TERN_OK) {
        tern_kv_blocks_destroy(pool);
        return status;
    }
    pool->count = pool->free = count;
    int32_t end = (int32_t)count;
    pool->blocks[end] = (struct block){.before = end, .after = end};
    for (int32_t i = 0; i < end; i++) {
        link_before(pool, i, end);
    }
    *out = pool;
    return TERN_OK;
}

void tern_kv_blocks_destroy(struct tern_kv_blocks *pool)
{
    if (pool != NULL) {
        tern_prefix_destroy(pool->prefix);
        tern_free(pool->blocks);
        tern_free(pool);
    }
}

int64_t tern_kv_blocks_count(const struct tern_kv_blocks *pool)
{
    return pool->count;
}

int64_t tern_kv_blocks_free(const struct tern_kv_blocks *pool)
{
    return pool->free;
}

int64_t tern_kv_blocks_cached(const struct tern_kv_blocks *pool)
{
    return pool->cached;
}

int32_t tern_kv_blocks_refs(const struct tern_kv_blocks *pool, int32_t block)
{
    return pool->blocks[block].refs;
}

/* The first of the free list, forgotten; -1: none. */
static int32_t take(struct tern_kv_blocks *pool)
{
    int32_t block = pool->blocks[pool->count].after;
    if (block == pool->count) {
        return -1;
    }
    unlink_block(pool, block);
    pool->free--;
    pool->cached -= tern_prefix_serial(pool->prefix, block) != 0;
    tern_prefix_forget(pool->prefix, block);
    pool->blocks[block].refs = 1;
    return block;
}

static void hold(struct tern_kv_blocks *pool, int32_t block)
{
    if (pool->blocks[block].refs++ == 0) {
        unlink_block(pool, block);
        pool->free--;
        pool->cached--; /* only what the tree knows is held again */
    }
}

static void let_go(struct tern_kv_blocks *pool, int32_t block)
{
    TERN_CHECK(pool->blocks[block].refs > 0);
    if (--pool->blocks[block].refs > 0) {
        return;
    }
    bool is_known = tern_prefix_serial(pool->prefix, block) != 0;
    int32_t end = (int32_t)pool->count;
    link_before(pool, block, is_known ? end : pool->blocks[end].after);
    pool->free++;
    pool->cached += is_known;
}

tern_status tern_kv_table_init(struct tern_kv_table *table, int64_t tokens)
{
    int64_t capacity = (tokens + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    *table = (struct tern_kv_table){.capacity = capacity};
    table->blocks = tern_alloc("kv table", (size_t)capacity * sizeof *table->blocks);
    return table->blocks != NULL
               ? TERN_OK
               : tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of %lld blocks",
                           (long long)capacity);
}

void tern_kv_table_fini(struct tern_kv_table *table)
{
    TERN_CHECK(table->count == 0);
    tern_free(table->blocks);
    *table = (struct tern_kv_table){0};
}

int64_t tern_kv_table_probe(const struct tern_kv_blocks *pool, const int32_t *ids, int64_t most)
{
    uint64_t serial = 0;
    int64_t at = 0;
    for (; at + TERN_KV_BLOCK <= most; at += TERN_KV_BLOCK) {
        int32_t block = tern_prefix_find(pool->prefix, serial, ids + at);
        if (block < 0) {
            break;
        }
        serial = tern_prefix_serial(pool->prefix, block);
    }
    return at;
}

int64_t tern_kv_table_match(struct tern_kv_table *table,
                            struct tern_kv_blocks *pool,
                            const int32_t *ids,
                            int64_t most)
{
    TERN_CHECK(table->count == 0 && table->known == 0);
    int64_t at = 0;
    for (; at + TERN_KV_BLOCK <= most; at += TERN_KV_BLOCK) {
        int32_t block = tern_prefix_find(pool->prefix, table->serial, ids + at);
        if (block < 0) {
            break;
        }
        hold(pool, block);
        table->blocks[table->count++] = block;
        table->serial = tern_prefix_serial(pool->prefix, block);
    }
    table->known = table->count;
    return at;
}

int64_t tern_kv_table_missing(const struct tern_kv_table *table, int64_t tokens)
{
    int64_t blocks = (tokens + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    return blocks > table->count ? blocks - table->count : 0;
}

bool tern_kv_table_reserve(struct tern_kv_table *table,
                           struct tern_kv_blocks *pool,
                           int64_t from,
                           int64_t tokens,
                           struct tern_kv_copy *copy_out)
{
    *copy_out = (struct tern_kv_copy){-1, -1};
    int64_t first = from / TERN_KV_BLOCK;
    TERN_CHECK(tokens <= table->capacity * TERN_KV_BLOCK && first >= table->known);
    if (first < table->count && pool->blocks[table->blocks[first]].refs > 1) {
        int32_t to = take(pool);
        if (to < 0) {
            return false;
        }
        *copy_out = (struct tern_kv_copy){table->blocks[first], to};
        let_go(pool, table->blocks[first]);
        table->blocks[first] = to;
    }
    while (table->count * TERN_KV_BLOCK < tokens) {
        int32_t block = take(pool);
        if (block < 0) {
            return false;
        }
        table->blocks[table->count++] = block;
    }
    return true;
}

void tern_kv_table_commit(struct tern_kv_table *table,
                          struct tern_kv_blocks *pool,
                          const int32_t *ids,
                          int64_t tokens)
{
    while ((table->known + 1) * TERN_KV_BLOCK <= tokens) {
        int32_t block = table->blocks[table->known];
        uint64_t serial = tern_prefix_serial(pool->prefix, block); /* 0 unless it is shared */
        table->serial = serial != 0 ? serial
                                    : tern_prefix_add(pool->prefix, block, table->serial,
                                                      ids + table->known * TERN_KV_BLOCK);
        table->known++;
    }
}

void tern_kv_table_fork(struct tern_kv_table *table,
                        struct tern_kv_blocks *pool,
                        const struct tern_kv_table *from,
                        int64_t tokens)
{
    int64_t count = (tokens + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    TERN_CHECK(table->count == 0 && count <= from->count && count >= from->known);
    for (int64_t i = 0; i < count; i++) {
        hold(pool, from->blocks[i]);
        table->blocks[i] = from->blocks[i];
    }
    table->count = count;
    table->known = from->known;
    table->serial = from->serial;
}

void tern_kv_table_truncate(struct tern_kv_table *table,
                            struct tern_kv_blocks *pool,
                            int64_t tokens)
{
    int64_t kept = (tokens + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    while (table->count > kept) { /* the last one first: it is the least likely to be found again */
        let_go(pool, table->blocks[--table->count]);
    }
    if (table->known > kept) {
        TERN_CHECK(kept == 0);
        table->known = 0;
        table->serial = 0;
    }
}
