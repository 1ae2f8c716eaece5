/* tokenizer_trie.c - a trie whose edges lie in one open hash: a few bytes a node, one probe a step. */
#include "io/tokenizer_trie.h"

#include "runtime/base/mem.h"

#include <inttypes.h>
#include <string.h>

void tern_trie_fini(struct tern_trie *trie)
{
    tern_free(trie->edges);
    tern_free(trie->values);
    *trie = (struct tern_trie){0};
}

static void put_edge(struct tern_trie_edge *edges, uint64_t mask, uint64_t key, int32_t child)
{
    uint64_t slot = key * UINT64_C(0x9e3779b97f4a7c15) >> 32 & mask;
    while (edges[slot].key != TERN_TRIE_FREE) {
        slot = (slot + 1) & mask;
    }
    edges[slot] = (struct tern_trie_edge){key, child};
}

static tern_status grow_edges(struct tern_trie *trie)
{
    uint64_t slots = trie->edges == NULL ? 64 : (trie->edge_mask + 1) * 2;
    struct tern_trie_edge *edges = tern_alloc("trie edges", slots * sizeof *edges);
    if (edges == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRIu64 " edges of a trie", slots);
    }
    memset(edges, 0xff, slots * sizeof *edges);
    for (uint64_t i = 0; trie->edges != NULL && i <= trie->edge_mask; i++) {
        if (trie->edges[i].key != TERN_TRIE_FREE) {
            put_edge(edges, slots - 1, trie->edges[i].key, trie->edges[i].child);
        }
    }
    tern_free(trie->edges);
    trie->edges = edges;
    trie->edge_mask = slots - 1;
    return TERN_OK;
}

static tern_status add_node(struct tern_trie *trie, int32_t *node_out)
{
    if (trie->node_count == trie->node_capacity) {
        int64_t capacity = trie->node_capacity == 0 ? 64 : trie->node_capacity * 2;
        int32_t *values = capacity > INT32_MAX ? NULL
                                               : tern_realloc("trie nodes", trie->values,
                                                              (size_t)capacity * sizeof *values);
        if (values == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " nodes of a trie",
                             capacity);
        }
        trie->values = values;
        trie->node_capacity = capacity;
    }
    *node_out = (int32_t)trie->node_count;
    trie->values[trie->node_count++] = TERN_TRIE_NONE;
    return TERN_OK;
}

/* The node one byte further, made if need be. */
static tern_status step_or_add(struct tern_trie *trie, int32_t *node, uint8_t byte)
{
    int32_t next = tern_trie_step(trie, *node, byte);
    if (next == TERN_TRIE_NONE) {
        TERN_RETURN_IF_ERR(add_node(trie, &next));
        if (*node == TERN_TRIE_ROOT) {
            trie->first[byte] = next;
        } else {
            if ((uint64_t)trie->edge_count * 2 > trie->edge_mask) {
                TERN_RETURN_IF_ERR(grow_edges(trie));
            }
            put_edge(trie->edges, trie->edge_mask, (uint64_t)(uint32_t)*node << 8 | byte, next);
            trie->edge_count++;
        }
    }
    *node = next;
    return TERN_OK;
}

tern_status tern_trie_add(struct tern_trie *trie, const char *text, size_t bytes, int32_t value)
{
    int32_t node = TERN_TRIE_ROOT;
    if (trie->edges == NULL) {
        memset(trie->first, 0xff, sizeof trie->first);
        TERN_RETURN_IF_ERR(grow_edges(trie));
        TERN_RETURN_IF_ERR(add_node(trie, &node));
    }
    node = TERN_TRIE_ROOT;
    for (size_t i = 0; i < bytes; i++) {
        TERN_RETURN_IF_ERR(step_or_add(trie, &node, (uint8_t)text[i]));
    }
    trie->values[node] = value;
    return TERN_OK;
}

int32_t tern_trie_longest(const struct tern_trie *trie,
                          const char *text,
                          size_t bytes,
                          size_t *bytes_out)
{
    int32_t found = TERN_TRIE_NONE;
    int32_t node = TERN_TRIE_ROOT;
    for (size_t i = 0; i < bytes; i++) {
        node = tern_trie_step(trie, node, (uint8_t)text[i]);
        if (node == TERN_TRIE_NONE) {
            break;
        }
        if (trie->values[node] != TERN_TRIE_NONE) {
            found = trie->values[node];
            *bytes_out = i + 1;
        }
    }
    return found;
}
