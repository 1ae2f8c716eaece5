/* grammar_vocab.c - the tokens' bytes as a tree in preorder. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_impl.h"

#include <stdlib.h>
#include <string.h>

static const char tag[] = "grammar vocabulary";

/* A token on its way to be sorted: most are told apart by their first bytes. */
struct entry {
    uint64_t first; /* 8 bytes, the first highest */
    const char *bytes;
    uint32_t count;
    int32_t id;
};

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    uint32_t shorter = x->count < y->count ? x->count : y->count;
    int order = memcmp(x->bytes, y->bytes, shorter);
    return order != 0            ? order
           : x->count < y->count ? -1
           : x->count > y->count ? 1
                                 : (x->id > y->id) - (x->id < y->id);
}

static bool is_end(const struct tern_grammar_vocab *vocab, int32_t id)
{
    for (int i = 0; i < vocab->end_count; i++) {
        if (vocab->end_ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* Copies the tokens' bytes and lists them; what is never allowed has none. */
static tern_status collect(struct tern_grammar_vocab *vocab,
                           const struct tern_tokenizer *tokenizer,
                           struct entry *entries)
{
    size_t at = 0, total = 0;
    int64_t known = tern_tokenizer_vocab_size(tokenizer);
    known = known < vocab->vocab_size ? known : vocab->vocab_size;
    for (int64_t id = 0; id < known; id++) {
        size_t bytes;
        tern_tokenizer_piece(tokenizer, (int32_t)id, &bytes);
        total += bytes <= TERN_VOCAB_TOKEN_BYTES_MAX ? bytes : 0;
    }
    vocab->bytes = total < UINT32_MAX ? tern_alloc(tag, total + 1) : NULL;
    if (vocab->bytes == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for %zu bytes of tokens", total);
    }
    for (int64_t id = 0; id < vocab->vocab_size; id++) {
        size_t bytes = 0;
        const char *piece =
            id < known ? tern_tokenizer_piece(tokenizer, (int32_t)id, &bytes) : NULL;
        vocab->offsets[id] = (uint32_t)at;
        if (piece == NULL || bytes == 0 || bytes > TERN_VOCAB_TOKEN_BYTES_MAX ||
            tern_tokenizer_is_special(tokenizer, (int32_t)id) || is_end(vocab, (int32_t)id)) {
            continue;
        }
        memcpy(vocab->bytes + at, piece, bytes);
        struct entry *entry = &entries[vocab->token_count++];
        *entry =
            (struct entry){.bytes = vocab->bytes + at, .count = (uint32_t)bytes, .id = (int32_t)id};
        for (size_t i = 0; i < 8; i++) {
            entry->first = entry->first << 8 | (i < bytes ? (unsigned char)piece[i] : 0);
        }
        at += bytes;
        vocab->token_bytes_max =
            bytes > vocab->token_bytes_max ? (uint32_t)bytes : vocab->token_bytes_max;
    }
    vocab->offsets[vocab->vocab_size] = (uint32_t)at;
    return TERN_OK;
}

static uint32_t shared(const struct entry *a, const struct entry *b)
{
    uint32_t n = 0;
    while (n < a->count && n < b->count && a->bytes[n] == b->bytes[n]) {
        n++;
    }
    return n;
}

static tern_status build_nodes(struct tern_grammar_vocab *vocab, const struct entry *entries)
{
    size_t count = 1;
    for (size_t i = 0; i < vocab->token_count; i++) {
        count += entries[i].count - (i > 0 ? shared(&entries[i - 1], &entries[i]) : 0);
    }
    vocab->nodes = tern_alloc(tag, (count + 1) * sizeof *vocab->nodes);
    uint32_t *path = tern_alloc(tag, (vocab->token_bytes_max + 1) * sizeof *path);
    if (vocab->nodes == NULL || path == NULL || count >= UINT32_MAX) {
        tern_free(path);
        return tern_fail(TERN_ERR_MEMORY, "no memory for a tree of %zu tokens", vocab->token_count);
    }
    uint32_t depth = 0; /* path[0 .. depth] are open */
    path[0] = 0;
    vocab->nodes[0] = (struct tern_vocab_node){.token = 0};
    vocab->node_count = 1;
    for (size_t i = 0; i < vocab->token_count; i++) {
        uint32_t same = i > 0 ? shared(&entries[i - 1], &entries[i]) : 0;
        for (; depth > same; depth--) {
            vocab->nodes[path[depth]].end = (uint32_t)vocab->node_count;
        }
        for (; depth < entries[i].count; depth++) {
            path[depth + 1] = (uint32_t)vocab->node_count;
            vocab->nodes[vocab->node_count++] =
                (struct tern_vocab_node){.token = (uint32_t)i,
                                         .depth = (uint16_t)(depth + 1),
                                         .byte = (uint8_t)entries[i].bytes[depth]};
        }
        vocab->tokens[i] = entries[i].id;
    }
    for (uint32_t d = 0; d <= depth; d++) {
        vocab->nodes[path[d]].end = (uint32_t)vocab->node_count;
    }
    vocab->nodes[vocab->node_count] =
        (struct tern_vocab_node){.token = (uint32_t)vocab->token_count};
    tern_free(path);
    return TERN_OK;
}

/* UTF-8, byte by byte: how many bytes of a character are missing, with what the next may be for the leads whose second
 * byte is restricted. */
enum {
    UTF8_WHOLE = 0, /* 1, 2, 3: so many are missing */
    UTF8_E0 = 4,
    UTF8_ED,
    UTF8_F0,
    UTF8_F4,
    UTF8_WRONG,
};

static uint8_t utf8_step(uint8_t state, uint8_t byte)
{
    if (state == UTF8_WHOLE) {
        return byte < 0x80                   ? UTF8_WHOLE
               : byte >= 0xC2 && byte < 0xE0 ? 1
               : byte == 0xE0                ? UTF8_E0
               : byte == 0xED                ? UTF8_ED
               : byte > 0xE0 && byte < 0xF0  ? 2
               : byte == 0xF0                ? UTF8_F0
               : byte == 0xF4                ? UTF8_F4
               : byte > 0xF0 && byte < 0xF4  ? 3
                                             : UTF8_WRONG;
    }
    uint8_t lo = state == UTF8_E0 ? 0xA0 : state == UTF8_F0 ? 0x90 : 0x80;
    uint8_t hi = state == UTF8_ED ? 0x9F : state == UTF8_F4 ? 0x8F : 0xBF;
    if (state == UTF8_WRONG || byte < lo || byte > hi) {
        return UTF8_WRONG;
    }
    return state == UTF8_E0 || state == UTF8_ED ? 1 : state >= UTF8_F0 ? 2 : (uint8_t)(state - 1);
}

/* Fills in `chars`. A node's way from the root tells where characters begin; every ASCII byte is one. */
static tern_status measure_text(struct tern_grammar_vocab *vocab)
{
    uint8_t *states = tern_alloc_zero(tag, vocab->node_count, 1);
    uint32_t *path = tern_alloc_zero(tag, vocab->token_bytes_max + 1, sizeof *path);
    uint32_t *parents = tern_alloc_zero(tag, vocab->node_count, sizeof *parents);
    if (states == NULL || path == NULL || parents == NULL) {
        tern_free(states);
        tern_free(path);
        tern_free(parents);
        return tern_fail(TERN_ERR_MEMORY, "no memory for a tree of tokens");
    }
    for (size_t i = 1; i < vocab->node_count; i++) {
        struct tern_vocab_node *node = &vocab->nodes[i];
        parents[i] = path[node->depth - 1];
        path[node->depth] = (uint32_t)i;
        states[i] = utf8_step(states[parents[i]], node->byte);
    }
    for (size_t i = vocab->node_count; i-- > 1;) {
        const struct tern_vocab_node *node = &vocab->nodes[i];
        struct tern_vocab_node *parent = &vocab->nodes[parents[i]];
        bool is_text = states[i] != UTF8_WRONG && node->byte >= 0x20 && node->byte != '"' &&
                       node->byte != '\\' && node->chars != TERN_VOCAB_NO_TEXT;
        uint32_t chars = node->chars + (states[parents[i]] == UTF8_WHOLE ? 1U : 0U);
        if (!is_text || parent->chars == TERN_VOCAB_NO_TEXT) {
            parent->chars = TERN_VOCAB_NO_TEXT;
        } else if (chars > parent->chars) {
            parent->chars = (uint16_t)chars;
        }
    }
    /* inside of a character it says nothing */
    for (size_t i = 0; i < vocab->node_count; i++) {
        vocab->nodes[i].chars =
            states[i] == UTF8_WHOLE ? vocab->nodes[i].chars : TERN_VOCAB_NO_TEXT;
    }
    tern_free(states);
    tern_free(path);
    tern_free(parents);
    return TERN_OK;
}

static tern_status build(struct tern_grammar_vocab *vocab, const struct tern_tokenizer *tokenizer)
{
    size_t ids = (size_t)vocab->vocab_size;
    struct entry *entries = tern_alloc(tag, (ids + 1) * sizeof *entries);
    vocab->tokens = tern_alloc(tag, (ids + 1) * sizeof *vocab->tokens);
    vocab->offsets = tern_alloc(tag, (ids + 1) * sizeof *vocab->offsets);
    tern_status status = TERN_OK;
    if (entries == NULL || vocab->tokens == NULL || vocab->offsets == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "no memory for %zu tokens", ids);
        goto out;
    }
    TERN_GOTO_IF_ERR(status, collect(vocab, tokenizer, entries), out);
    if (vocab->token_count > 0) {
        qsort(entries, vocab->token_count, sizeof *entries, compare);
    }
    TERN_GOTO_IF_ERR(status, build_nodes(vocab, entries), out);
    status = measure_text(vocab);
out:
    tern_free(entries);
    return status;
}

tern_status tern_grammar_vocab_create(const struct tern_tokenizer *tokenizer,
                                      int64_t vocab_size,
                                      const int32_t *end_ids,
                                      int end_count,
                                      struct tern_grammar_vocab **out)
{
    struct tern_grammar_vocab *vocab = tern_alloc_zero(tag, 1, sizeof *vocab);
    *out = NULL;
    if (vocab_size < 1 || vocab_size > INT32_MAX) {
        tern_free(vocab);
        return tern_fail(TERN_ERR_ARGUMENT, "a vocabulary of %lld ids", (long long)vocab_size);
    }
    if (vocab == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a vocabulary");
    }
    atomic_init(&vocab->references, 1);
    vocab->vocab_size = vocab_size;
    vocab->end_ids = tern_alloc(tag, (size_t)(end_count + 1) * sizeof *vocab->end_ids);
    tern_status status = TERN_OK;
    if (vocab->end_ids == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "no memory for a vocabulary");
    }
    for (int i = 0; i < end_count && status == TERN_OK; i++) {
        if (end_ids[i] >= 0 && end_ids[i] < vocab_size) {
            vocab->end_ids[vocab->end_count++] = end_ids[i];
        }
    }
    if (status == TERN_OK) {
        status = build(vocab, tokenizer);
    }
    if (status != TERN_OK) {
        tern_grammar_vocab_release(vocab);
        return status;
    }
    *out = vocab;
    return TERN_OK;
}

struct tern_grammar_vocab *tern_grammar_vocab_retain(struct tern_grammar_vocab *vocab)
{
    atomic_fetch_add(&vocab->references, 1);
    return vocab;
}

void tern_grammar_vocab_release(struct tern_grammar_vocab *vocab)
{
    if (vocab == NULL || atomic_fetch_sub(&vocab->references, 1) != 1) {
        return;
    }
    tern_free(vocab->end_ids);
    tern_free(vocab->nodes);
    tern_free(vocab->tokens);
    tern_free(vocab->bytes);
    tern_free(vocab->offsets);
    tern_free(vocab);
}
