/* grammar_mask.c - which tokens may come next.
 *
 * A mask is made of entries, one for each level of the stack that a token can reach: the entry of the top set lists the
 * tokens that stay in its rule or what it calls, and the tree's nodes where others leave it; that of the set below goes on
 * from those nodes, and so on, until none leaves. Entries are kept, so a mask is mostly a few ors. Plain text in a string
 * is taken by whole subtrees. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_impl.h"

#include <string.h>

static const char tag[] = "grammar masks";

static size_t word_count(const struct tern_grammar *grammar)
{
    return ((size_t)grammar->vocab->vocab_size + 31) / 32;
}

void tern_masks_clear(struct tern_grammar *grammar)
{
    for (size_t i = 1; i < grammar->entry_count; i++) {
        tern_free(grammar->entries[i].bits);
        tern_free(grammar->entries[i].ids);
        tern_free(grammar->entries[i].leaves);
    }
    memset(grammar->entry_buckets, 0, sizeof grammar->entry_buckets);
    grammar->entry_count = 1;
    grammar->entry_bytes = 0;
}

/* The tokens [first, end) of the sorted list may come: as ids while they are few, else as bits. */
static void take_tokens(struct tern_grammar *grammar, uint32_t first, uint32_t end)
{
    const int32_t *tokens = grammar->vocab->tokens;
    for (uint32_t i = first; i < end; i++) {
        if (grammar->id_count < grammar->id_max) {
            grammar->ids[grammar->id_count] = tokens[i];
        }
        grammar->id_count++;
        grammar->bits[tokens[i] >> 5] |= 1U << (tokens[i] & 31);
    }
}

static void leave(struct tern_grammar *grammar, uint32_t node, uint32_t ended)
{
    if (!tern_grammar_grow((void **)&grammar->leaves, &grammar->leave_capacity,
                           grammar->leave_count, sizeof *grammar->leaves)) {
        grammar->dfa.is_failed = true;
        return;
    }
    grammar->leaves[grammar->leave_count++] = (struct tern_leave){node, ended};
}

/* One byte from a configuration; false when the way ends: dead, or out of the bottom (then `leave` knows it). */
static bool step(struct tern_grammar *grammar,
                 const struct tern_config *from,
                 uint32_t at,
                 struct tern_config *to)
{
    const struct tern_vocab_node *node = &grammar->vocab->nodes[at];
    uint32_t move = tern_dfa_move(&grammar->dfa, from->set, node->byte);
    *to = *from;
    switch (move & 3) {
    case TERN_MOVE_NEXT:
        to->set = move >> 2;
        break;
    case TERN_MOVE_CALL:
        to->set = move >> 2;
        to->caller = node->depth;
        to->caller_set = from->set;
        to->caller_next = from->caller;
        break;
    default:
        if (from->caller == 0) {
            leave(grammar, at, move >> 2);
            return false;
        }
        /* the configuration that called stands in the path one byte before the call's */
        const struct tern_config *call = &grammar->path[from->caller];
        to->set = tern_dfa_goto(&grammar->dfa, call->caller_set, move >> 2);
        to->caller = call->caller_next;
        break;
    }
    return to->set != 0;
}

/* All tokens below a node whose bytes lead to `set`. */
static void walk(struct tern_grammar *grammar, uint32_t root, uint32_t set)
{
    const struct tern_vocab_node *nodes = grammar->vocab->nodes;
    struct tern_config *path = grammar->path;
    uint32_t end = nodes[root].end, at = root + 1;
    path[nodes[root].depth] = (struct tern_config){.set = set};
    if (nodes[root].chars != TERN_VOCAB_NO_TEXT &&
        tern_dfa_takes_text(&grammar->dfa, set, nodes[root].chars)) {
        take_tokens(grammar, nodes[at].token, nodes[end].token);
        return;
    }
    while (at < end && !grammar->dfa.is_failed) {
        const struct tern_vocab_node *node = &nodes[at];
        struct tern_config *here = &path[node->depth];
        if (!step(grammar, &path[node->depth - 1], at, here)) {
            at = node->end;
            continue;
        }
        if (node->chars != TERN_VOCAB_NO_TEXT && node->end > at + 1 &&
            tern_dfa_takes_text(&grammar->dfa, here->set, node->chars)) {
            take_tokens(grammar, node->token, nodes[node->end].token);
            at = node->end;
        } else {
            take_tokens(grammar, node->token, nodes[at + 1].token);
            at++;
        }
    }
}

/* Keeps what a walk has found as the content of an entry. */
static bool keep(struct tern_grammar *grammar, struct tern_mask_entry *entry)
{
    size_t words = word_count(grammar);
    bool is_listed = grammar->id_count <= grammar->id_max;
    size_t bytes = is_listed ? grammar->id_count * sizeof(int32_t) : words * sizeof(uint32_t);
    size_t leave_bytes = grammar->leave_count * sizeof *entry->leaves;
    void *content = tern_alloc(tag, bytes);
    entry->leaves = leave_bytes > 0 ? tern_alloc(tag, leave_bytes) : NULL;
    if (content == NULL || (leave_bytes > 0 && entry->leaves == NULL)) {
        tern_free(content);
        tern_free(entry->leaves);
        entry->leaves = NULL;
        return false;
    }
    memcpy(content, is_listed ? (const void *)grammar->ids : (const void *)grammar->bits, bytes);
    if (leave_bytes > 0) {
        memcpy(entry->leaves, grammar->leaves, leave_bytes);
    }
    entry->ids = is_listed ? content : NULL;
    entry->bits = is_listed ? NULL : content;
    entry->id_count = (uint32_t)grammar->id_count;
    entry->leave_count = (uint32_t)grammar->leave_count;
    grammar->entry_bytes += bytes + leave_bytes + sizeof *entry;
    return true;
}

static void make_entry(struct tern_grammar *grammar, uint32_t parent, uint32_t set)
{
    const struct tern_vocab_node *nodes = grammar->vocab->nodes;
    memset(grammar->bits, 0, word_count(grammar) * sizeof *grammar->bits);
    grammar->id_count = grammar->leave_count = 0;
    if (parent == 0) {
        walk(grammar, 0, set);
        return;
    }
    for (uint32_t i = 0; i < grammar->entries[parent].leave_count; i++) {
        struct tern_leave from = grammar->entries[parent].leaves[i];
        uint32_t behind = tern_dfa_goto(&grammar->dfa, set, from.ended);
        if (behind != 0) {
            take_tokens(grammar, nodes[from.node].token, nodes[from.node + 1].token);
            walk(grammar, from.node, behind);
        }
    }
}

/* The number of the entry of a set below a parent; 0 when memory or work is exhausted. */
static uint32_t entry_of(struct tern_grammar *grammar, uint32_t parent, uint32_t set)
{
    set = tern_dfa_alike(&grammar->dfa, set, grammar->vocab->token_bytes_max);
    uint64_t hash = (parent | (uint64_t)set << 32) * 0x9E3779B97F4A7C15ULL;
    uint32_t *bucket = &grammar->entry_buckets[(hash >> 20) % TERN_MASKS_BUCKETS];
    for (uint32_t i = *bucket; i != 0; i = grammar->entries[i].next) {
        if (grammar->entries[i].parent == parent && grammar->entries[i].set == set) {
            return i;
        }
    }
    if (!tern_grammar_grow((void **)&grammar->entries, &grammar->entry_capacity,
                           grammar->entry_count, sizeof *grammar->entries)) {
        return 0;
    }
    make_entry(grammar, parent, set);
    struct tern_mask_entry *entry = &grammar->entries[grammar->entry_count];
    *entry = (struct tern_mask_entry){.parent = parent, .set = set, .next = *bucket};
    if (grammar->dfa.is_failed || !keep(grammar, entry)) {
        return 0;
    }
    *bucket = (uint32_t)grammar->entry_count;
    return (uint32_t)grammar->entry_count++;
}

static void add_entry(const struct tern_grammar *grammar, uint32_t number, uint32_t *bits)
{
    const struct tern_mask_entry *entry = &grammar->entries[number];
    size_t words = word_count(grammar);
    for (size_t i = 0; entry->bits != NULL && i < words; i++) {
        bits[i] |= entry->bits[i];
    }
    for (size_t i = 0; entry->bits == NULL && i < entry->id_count; i++) {
        bits[entry->ids[i] >> 5] |= 1U << (entry->ids[i] & 31);
    }
}

tern_status tern_masks_make(struct tern_grammar *grammar,
                            const struct tern_grammar_state *state,
                            uint32_t *bits)
{
    struct tern_dfa *dfa = &grammar->dfa;
    uint32_t entry = 0;
    memset(bits, 0, word_count(grammar) * sizeof *bits);
    dfa->work_max = dfa->work + TERN_DFA_WORK_MAX;
    for (size_t i = state->depth; i-- > 0;) {
        entry = entry_of(grammar, entry, state->stack[i]);
        if (entry == 0) {
            bool is_costly = dfa->work > dfa->work_max;
            dfa->is_failed = false;
            dfa->work_max = INT64_MAX;
            return is_costly ? tern_fail(TERN_ERR_INPUT,
                                         ": the grammar needs more than %d steps for one token",
                                         TERN_DFA_WORK_MAX)
                             : tern_fail(TERN_ERR_MEMORY, "no memory for a grammar's mask");
        }
        add_entry(grammar, entry, bits);
        if (grammar->entries[entry].leave_count == 0) {
            break;
        }
    }
    dfa->work_max = INT64_MAX;
    if (grammar->entry_bytes > TERN_MASKS_BYTES_MAX) {
        tern_masks_clear(grammar);
    }
    return TERN_OK;
}
