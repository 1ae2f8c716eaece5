/* tokenizer_encode.h - what an encoder is made of: the word cache, the merger of pairs, the lattice of
 * unigram. */
#ifndef TERN_IO_TOKENIZER_ENCODE_H
#define TERN_IO_TOKENIZER_ENCODE_H

#include "io/tokenizer_internal.h"

enum {
    TERN_SHORT_WORD_BYTES = 40,
    TERN_CACHED_WORD_BYTES = 40, /* longer ones are not remembered */
};

/* Room for `extra` more ids. */
TERN_MUST_CHECK tern_status tern_ids_reserve(struct tern_ids *ids, int64_t extra);

/* ---- words seen before (tokenizer_cache.c) ---- */

struct tern_cached_word {
    uint64_t hash;
    uint32_t text;  /* into texts */
    uint32_t ids;   /* into ids */
    uint16_t bytes; /* 0: free */
    uint16_t count;
};

struct tern_word_cache {
    struct tern_cached_word *slots;
    int64_t slot_count, used_count;
    struct tern_text texts;
    struct tern_ids ids;
};

TERN_MUST_CHECK tern_status tern_word_cache_init(struct tern_word_cache *cache);
void tern_word_cache_fini(struct tern_word_cache *cache);
/* The ids of a word, borrowed until the next add; NULL if it is not there. */
const int32_t *tern_word_cache_find(const struct tern_word_cache *cache,
                                    uint64_t hash,
                                    const char *word,
                                    size_t bytes,
                                    int *count_out);
TERN_MUST_CHECK tern_status tern_word_cache_add(struct tern_word_cache *cache,
                                                uint64_t hash,
                                                const char *word,
                                                size_t bytes,
                                                const int32_t *ids,
                                                int count);

/* ---- byte pairs (tokenizer_bpe.c) ---- */

struct tern_symbol {
    int32_t id; /* NONE: merged into the one before */
    int32_t previous, next;
};

struct tern_place {
    int32_t at, next;
};

/* Only the tokenizer is set to begin with. */
struct tern_merger {
    const struct tern_tokenizer *tokenizer;
    /* Long words only, made at the first: */
    struct tern_symbol *symbols;
    struct tern_place *places;
    int32_t *run; /* places of the rank in work */
    int64_t long_capacity;
    int32_t *first_place; /* [rank_count], NONE: no place */
    int32_t *ranks;       /* heap of ranks with places, [rank_count] */
    int32_t rank_count;
    int32_t free_place;
    int64_t put_back; /* places taken out and put back, in this word */
};

void tern_merger_fini(struct tern_merger *merger);
/* Appends the ids of one word. */
TERN_MUST_CHECK tern_status tern_bpe_append(struct tern_merger *merger,
                                            const uint8_t *word,
                                            size_t bytes,
                                            struct tern_ids *ids);

/* ---- unigram (tokenizer_unigram.c) ---- */

struct tern_lattice_node { /* the best way to get to a place in a word */
    double score;
    int32_t id;
    uint32_t bytes; /* of the last step; 0: no way yet */
};

struct tern_lattice {
    struct tern_lattice_node *nodes;
    int64_t capacity;
};

void tern_lattice_fini(struct tern_lattice *lattice);
TERN_MUST_CHECK tern_status tern_unigram_append(const struct tern_tokenizer *tokenizer,
                                                struct tern_lattice *lattice,
                                                const uint8_t *word,
                                                size_t bytes,
                                                struct tern_ids *ids);

/* ---- all of it (tokenizer_encode.c) ---- */

struct tern_encoder {
    const struct tern_tokenizer *tokenizer;
    struct tern_word_cache cache;
    struct tern_merger merger;
    struct tern_lattice lattice;
    struct tern_normalizer normalizer;
    struct tern_text spaced; /* a stretch with marks for blanks, or with a blank put first */
    bool continues;          /* the next append goes on with a text */
};

#endif
