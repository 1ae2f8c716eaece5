/* prefix.h - which full blocks of keys and values are known by their tokens: a tree of blocks,
 * found by a keyed hash.
 *
 * A block is known by its own 16 tokens and by the block before it, so that its name stands for
 * all tokens from the first on. What the hash finds is compared, tokens and parent both: two
 * texts never share a block by collision. Every registration has a serial number of its own; a
 * block whose parent was forgotten is not found any more. */
#ifndef TERN_RUNTIME_SERVE_PREFIX_H
#define TERN_RUNTIME_SERVE_PREFIX_H

#include "kernels/ops.h" /* TERN_KV_BLOCK: 16 tokens */
#include "runtime/base/status.h"

#include <stdint.h>

struct tern_prefix;

/* seed: secret, of the hash. Owned: destroy. */
TERN_MUST_CHECK tern_status tern_prefix_create(int64_t blocks,
                                               uint64_t seed,
                                               struct tern_prefix **out);
void tern_prefix_destroy(struct tern_prefix *prefix);
/* The block of these tokens behind the block of serial number `parent` (0: they are the first);
 * -1: none. */
int32_t tern_prefix_find(const struct tern_prefix *prefix,
                         uint64_t parent,
                         const int32_t ids[TERN_KV_BLOCK]);
/* Registers a block that is not registered; returns its serial number. Where another block is
 * known by the same tokens it stays the one that is found, and its number is returned. */
uint64_t tern_prefix_add(struct tern_prefix *prefix,
                         int32_t block,
                         uint64_t parent,
                         const int32_t ids[TERN_KV_BLOCK]);
/* Of a registered block; 0 of others. */
uint64_t tern_prefix_serial(const struct tern_prefix *prefix, int32_t block);
/* The block's memory is used for something else from now on. Nothing happens if it is not
 * registered. */
void tern_prefix_forget(struct tern_prefix *prefix, int32_t block);

#endif
