/* tokenizer_unigram.c - the ids of a word whose scores add up to most (Viterbi over the characters of
 * the word), with sums in double and ties in the order of Hugging Face's Unigram. */
#include "io/tokenizer_encode.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <string.h>

void tern_lattice_fini(struct tern_lattice *lattice)
{
    tern_free(lattice->nodes);
}

static tern_status reserve(struct tern_lattice *lattice, size_t bytes)
{
    if (bytes > INT32_MAX / 4) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "a word of %zu bytes without a break; expected at most %d", bytes,
                         INT32_MAX / 4);
    }
    int64_t count = (int64_t)bytes + 1;
    if (count > lattice->capacity) {
        int64_t capacity = count + count / 2;
        tern_free(lattice->nodes);
        lattice->capacity = 0;
        lattice->nodes = tern_alloc("lattice", (size_t)capacity * sizeof *lattice->nodes);
        if (lattice->nodes == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate a lattice of %" PRId64 " places",
                             capacity);
        }
        lattice->capacity = capacity;
    }
    memset(lattice->nodes, 0, (size_t)count * sizeof *lattice->nodes);
    return TERN_OK;
}

static void offer(struct tern_lattice_node *node, double score, int32_t id, size_t bytes)
{
    if (node->bytes == 0 || score > node->score) {
        *node = (struct tern_lattice_node){score, id, (uint32_t)bytes};
    }
}

/* Fills the nodes that one character's beginning leads to. */
static void step(const struct tern_tokenizer *tokenizer,
                 struct tern_lattice *lattice,
                 const uint8_t *word,
                 size_t bytes,
                 size_t at,
                 size_t length)
{
    const struct tern_trie *trie = &tokenizer->words;
    double so_far = lattice->nodes[at].score;
    bool has_single = false;
    int32_t node = TERN_TRIE_ROOT;
    for (size_t end = at; end < bytes;) {
        node = tern_trie_step(trie, node, word[end++]);
        if (node == TERN_TRIE_NONE) {
            break;
        }
        int32_t id = trie->values[node];
        if (id != TERN_TRIE_NONE) {
            offer(&lattice->nodes[end], tokenizer->scores[id] + so_far, id, end - at);
            has_single = has_single || end - at == length;
        }
    }
    if (!has_single) {
        offer(&lattice->nodes[at + length], tokenizer->unknown_score + so_far,
              tokenizer->unknown_id, length);
    }
}

/* The ids of something the lattice found no token for. */
static void append_unknown(const struct tern_tokenizer *tokenizer,
                           const uint8_t *text,
                           size_t bytes,
                           struct tern_ids *ids)
{
    int32_t whole = bytes <= (size_t)tokenizer->longest_name_bytes
                        ? tern_tokenizer_find(tokenizer, (const char *)text, bytes)
                        : -1;
    if (whole >= 0) { /* characters that are no tokens, side by side one */
        ids->data[ids->count++] = whole;
        return;
    }
    bool falls_back = tokenizer->has_fallback;
    for (size_t i = 0; i < bytes && falls_back; i++) {
        falls_back = tokenizer->byte_ids[text[i]] >= 0;
    }
    for (size_t i = 0; i < bytes && falls_back; i++) {
        ids->data[ids->count++] = tokenizer->byte_ids[text[i]];
    }
    if (!falls_back) {
        ids->data[ids->count++] = tokenizer->unknown_id;
    }
}

/* Turns the way back into a way forth: each node's `bytes` becomes that of the step that begins
 * there. */
static void reverse(struct tern_lattice_node *nodes, size_t bytes)
{
    size_t end = bytes;
    uint32_t taken = nodes[end].bytes;
    int32_t id = nodes[end].id;
    while (end > 0) {
        size_t start = end - taken;
        uint32_t before = nodes[start].bytes;
        int32_t before_id = nodes[start].id;
        nodes[start].bytes = taken;
        nodes[start].id = id;
        taken = before;
        id = before_id;
        end = start;
    }
}

tern_status tern_unigram_append(const struct tern_tokenizer *tokenizer,
                                struct tern_lattice *lattice,
                                const uint8_t *word,
                                size_t bytes,
                                struct tern_ids *ids)
{
    TERN_RETURN_IF_ERR(reserve(lattice, bytes));
    TERN_RETURN_IF_ERR(tern_ids_reserve(ids, (int64_t)bytes));
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        int length = tern_utf8_decode(word + at, bytes - at, &code);
        length = length == 0 ? 1 : length;
        step(tokenizer, lattice, word, bytes, at, (size_t)length);
        at += (size_t)length;
    }
    reverse(lattice->nodes, bytes);
    size_t unknown = 0; /* bytes of unknown characters that came right before, to be fused */
    for (size_t at = 0; at < bytes;) {
        const struct tern_lattice_node *node = &lattice->nodes[at];
        size_t taken = node->bytes;
        if (node->id == tokenizer->unknown_id) {
            unknown += taken;
        } else {
            if (unknown > 0) {
                append_unknown(tokenizer, word + at - unknown, unknown, ids);
                unknown = 0;
            }
            ids->data[ids->count++] = node->id;
        }
        at += taken;
    }
    if (unknown > 0) {
        append_unknown(tokenizer, word + bytes - unknown, unknown, ids);
    }
    return TERN_OK;
}
