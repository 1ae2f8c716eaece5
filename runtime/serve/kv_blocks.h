/* kv_blocks.h - the blocks of the key/value cache: who holds which, which are free, and which free
 * ones are still known by their tokens.
 *
 * A block is held by any number of sequences. One that nobody holds is free: it is taken again
 * before any that the prefix tree still knows, and of those the one whose release lies farthest
 * back goes first. Nothing here touches the memory of the blocks. */
#ifndef TERN_RUNTIME_SERVE_KV_BLOCKS_H
#define TERN_RUNTIME_SERVE_KV_BLOCKS_H

#include "runtime/serve/prefix.h"

#include <stdbool.h>

struct tern_kv_blocks;

/* Owned: destroy. */
TERN_MUST_CHECK tern_status tern_kv_blocks_create(int64_t count,
                                                  uint64_t seed,
                                                  struct tern_kv_blocks **out);
void tern_kv_blocks_destroy(struct tern_kv_blocks *pool);
int64_t tern_kv_blocks_count(const struct tern_kv_blocks *pool);
int64_t tern_kv_blocks_free(const struct tern_kv_blocks *pool); /* held by nobody */
int64_t tern_kv_blocks_cached(
    const struct tern_kv_blocks *pool); /* of those: known by their tokens */
int32_t tern_kv_blocks_refs(const struct tern_kv_blocks *pool, int32_t block);

/* What one sequence holds: block i has tokens [16 i, 16 (i + 1)). */
struct tern_kv_table {
    int32_t *blocks;
    int64_t count, capacity;
    int64_t known;   /* leading blocks that went through the prefix tree */
    uint64_t serial; /* of the last of those, 0: none */
};

/* tokens: the longest sequence. Owned: fini, empty. */
TERN_MUST_CHECK tern_status tern_kv_table_init(struct tern_kv_table *table, int64_t tokens);
void tern_kv_table_fini(struct tern_kv_table *table);
/* How many leading tokens of ids the tree knows, in whole blocks, at most `most` tokens. */
int64_t tern_kv_table_probe(const struct tern_kv_blocks *pool, const int32_t *ids, int64_t most);
/* Lets an empty table hold those blocks; returns as probe does. */
int64_t tern_kv_table_match(struct tern_kv_table *table,
                            struct tern_kv_blocks *pool,
                            const int32_t *ids,
                            int64_t most);
/* A block that others hold too and that will be written: to be copied. At most one a table, the
 * one that the tokens which are shared end in. */
struct tern_kv_copy {
    int32_t from, to; /* -1: none */
};
/* Makes room for tokens [from, tokens), which will be written. False: no block is free; what was
 * taken until then is kept, so that it can be asked again. The copy is the caller's to make,
 * also after false. */
bool tern_kv_table_reserve(struct tern_kv_table *table,
                           struct tern_kv_blocks *pool,
                           int64_t from,
                           int64_t tokens,
                           struct tern_kv_copy *copy_out);
/* Blocks that reserve would have to take. */
int64_t tern_kv_table_missing(const struct tern_kv_table *table, int64_t tokens);
/* The first `tokens` of ids are written: whole blocks can be found by them from now on. */
void tern_kv_table_commit(struct tern_kv_table *table,
                          struct tern_kv_blocks *pool,
                          const int32_t *ids,
                          int64_t tokens);
/* Lets an empty table hold what `from` holds of its first `tokens` tokens, which are written. */
void tern_kv_table_fork(struct tern_kv_table *table,
                        struct tern_kv_blocks *pool,
                        const struct tern_kv_table *from,
                        int64_t tokens);
/* Gives back all blocks behind the first `tokens` tokens. */
void tern_kv_table_truncate(struct tern_kv_table *table,
                            struct tern_kv_blocks *pool,
                            int64_t tokens);

#endif
