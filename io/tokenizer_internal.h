/* tokenizer_internal.h - what the tokenizer's files share: the vocabulary in memory, character
 * classes, splitting. */
#ifndef TERN_IO_TOKENIZER_INTERNAL_H
#define TERN_IO_TOKENIZER_INTERNAL_H

#include "io/tokenizer.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- characters (tokenizer_unicode.c, tokenizer_split.c) ---- */

enum tern_class {
    TERN_CLASS_OTHER,
    TERN_CLASS_LETTER,
    TERN_CLASS_NUMBER,
    TERN_CLASS_SPACE
};

struct tern_class_range {
    uint32_t first, last;
    uint8_t kind; /* enum tern_class */
};
extern const struct tern_class_range tern_class_ranges[]; /* ascending; what is in none is OTHER */
extern const int tern_class_range_count;

enum {
    TERN_CODE_POINTS = 0x110000,
    TERN_CLASS_MAP_BYTES = TERN_CODE_POINTS / 4, /* two bits a code point */
    TERN_VOCAB_MAX = 1 << 24,
    TERN_SPECIAL_BYTES_MAX = 4096, /* longest text of an added token */
};

/* Splitting rules: GPT-2's pattern, and digits alone before it (SmolLM2). */
struct tern_splitter {
    uint8_t *map; /* owned, TERN_CLASS_MAP_BYTES */
    bool split_digits;
    bool digits_alone; /* each by itself */
};

TERN_MUST_CHECK tern_status tern_splitter_init(struct tern_splitter *splitter);
void tern_splitter_fini(struct tern_splitter *splitter);
/* Class and length (1 to 4 bytes) of the first character; an invalid byte is one OTHER of length
 * 1. bytes > 0. */
enum tern_class tern_split_class(const struct tern_splitter *splitter,
                                 const uint8_t *text,
                                 size_t bytes,
                                 int *length_out);
/* Length of the first word of text[0, bytes), a stretch without added tokens. bytes > 0. Linear
 * over all calls: to stop where digits begin it looks ahead once a stretch, and *stretch_end (0
 * at first) keeps the place. */
size_t tern_split_next(const struct tern_splitter *splitter,
                       const uint8_t *text,
                       size_t bytes,
                       size_t at,
                       size_t *stretch_end);
/* The GPT-2 byte alphabet: code point that stands for a byte, and back (-1: none). */
uint32_t tern_byte_to_code(uint8_t byte);
int tern_code_to_byte(uint32_t code);
/* One UTF-8 character: its length, or 0 if it is invalid or cut off. */
int tern_utf8_decode(const uint8_t *text, size_t bytes, uint32_t *code_out);
int tern_utf8_encode(uint32_t code, char out[4]);

/* ---- vocabulary (tokenizer.c) ---- */

struct tern_piece {
    uint32_t offset; /* into blob */
    uint32_t bytes;
    bool is_present;
    bool is_special;
};

struct tern_merge {
    uint64_t key; /* left id << 32 | right id; MERGE_EMPTY: free slot */
    int32_t rank;
    int32_t result;
};

#define TERN_MERGE_EMPTY UINT64_MAX

struct tern_added {
    int32_t id;
    uint32_t bytes;
    const char *text; /* into blob once the tokenizer is whole */
    bool is_special;
    bool is_normalized; /* matched in a second pass, after the others */
};

struct tern_tokenizer {
    struct tern_splitter splitter;
    struct tern_piece *pieces; /* [vocab_size] */
    int64_t vocab_size;
    int64_t piece_capacity;
    struct tern_text blob; /* bytes of all pieces */
    int32_t *names;        /* hash of pieces by bytes: id or -1 */
    uint64_t name_mask;
    struct tern_merge *merges; /* hash by pair */
    uint64_t merge_mask;
    int64_t merge_count;
    int32_t byte_ids[256];
    struct tern_added *added;
    int added_count;
    int longest_added_bytes;
    int added_first
        [257]; /* added[] of first byte b: [added_first[b], added_first[b + 1]), longest first */
    bool ignore_merges;
    int32_t *prefix_ids, *suffix_ids; /* what --add-special puts around a text */
    int prefix_count, suffix_count;
    char hash[33]; /* XXH3-128 of the file */
};

/* Reads the JSON text into an empty tokenizer (tokenizer_json.c). */
TERN_MUST_CHECK tern_status tern_tokenizer_parse(struct tern_tokenizer *tokenizer,
                                                 const char *name,
                                                 const char *text,
                                                 size_t bytes);
/* Frees what an (all zero or filled) tokenizer owns. */
void tern_tokenizer_fini(struct tern_tokenizer *tokenizer);
/* Makes room for ids below `count`; adds a piece (bytes copied). */
TERN_MUST_CHECK tern_status tern_tokenizer_reserve(struct tern_tokenizer *tokenizer, int64_t count);
TERN_MUST_CHECK tern_status tern_tokenizer_add_piece(struct tern_tokenizer *tokenizer,
                                                     int32_t id,
                                                     const char *bytes,
                                                     size_t count);
/* Makes the index of pieces by bytes, with room for `capacity` of them. */
TERN_MUST_CHECK tern_status tern_tokenizer_index_names(struct tern_tokenizer *tokenizer,
                                                       int64_t capacity);
/* Adds one more piece to the index; at most `capacity` in all. */
void tern_tokenizer_add_name(struct tern_tokenizer *tokenizer, int32_t id);
/* Sorts added[] for matching, once the blob is whole. */
void tern_tokenizer_index_added(struct tern_tokenizer *tokenizer);
int32_t tern_tokenizer_find(const struct tern_tokenizer *tokenizer,
                            const char *bytes,
                            size_t count);
/* NULL if the pair does not merge. */
const struct tern_merge *tern_tokenizer_merge(const struct tern_tokenizer *tokenizer,
                                              int32_t left,
                                              int32_t right);
/* The added token that begins at text[at], longest first, among those of one pass; NULL if none. */
const struct tern_added *tern_tokenizer_match_added(const struct tern_tokenizer *tokenizer,
                                                    const char *text,
                                                    size_t bytes,
                                                    size_t at,
                                                    bool is_normalized,
                                                    bool parse_special);

static inline uint64_t tern_word_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

uint64_t tern_word_hash(const char *bytes, size_t count);

#endif
