/* tokenizer_trie.h - strings by their first bytes: which of them a text begins with, byte by byte. */
#ifndef TERN_IO_TOKENIZER_TRIE_H
#define TERN_IO_TOKENIZER_TRIE_H

#include "runtime/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct tern_trie_edge {
    uint64_t key; /* node << 8 | byte; TERN_TRIE_FREE: free slot */
    int32_t child;
};

#define TERN_TRIE_FREE UINT64_MAX
enum {
    TERN_TRIE_ROOT = 0,
    TERN_TRIE_NONE = -1,
};

/* Zero to begin with. */
struct tern_trie {
    struct tern_trie_edge *edges; /* hash of all edges below the root's */
    uint64_t edge_mask;
    int64_t edge_count;
    int32_t first[256]; /* the root's edges; valid once something was added */
    int32_t *values;    /* [node_count], TERN_TRIE_NONE: no string ends here */
    int64_t node_count, node_capacity;
};

void tern_trie_fini(struct tern_trie *trie);
/* value >= 0; a string given again gets the new value. bytes > 0. */
TERN_MUST_CHECK tern_status tern_trie_add(struct tern_trie *trie,
                                          const char *text,
                                          size_t bytes,
                                          int32_t value);
/* The node one byte further, TERN_TRIE_NONE if no string goes there. The trie is not empty. */
static inline int32_t tern_trie_step(const struct tern_trie *trie, int32_t node, uint8_t byte)
{
    if (node == TERN_TRIE_ROOT) {
        return trie->first[byte];
    }
    uint64_t key = (uint64_t)(uint32_t)node << 8 | byte;
    uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);
    for (uint64_t slot = mixed >> 32 & trie->edge_mask;; slot = (slot + 1) & trie->edge_mask) {
        const struct tern_trie_edge *edge = &trie->edges[slot];
        if (edge->key == key) {
            return edge->child;
        }
        if (edge->key == TERN_TRIE_FREE) {
            return TERN_TRIE_NONE;
        }
    }
}
/* Value of the longest string that text begins with, TERN_TRIE_NONE if none does. */
int32_t tern_trie_longest(const struct tern_trie *trie,
                          const char *text,
                          size_t bytes,
                          size_t *bytes_out);

#endif
