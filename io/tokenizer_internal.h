/* tokenizer_internal.h - what the tokenizer's files share: the vocabulary in memory and the steps
 * before and after it. */
#ifndef TERN_IO_TOKENIZER_INTERNAL_H
#define TERN_IO_TOKENIZER_INTERNAL_H

#include "io/tokenizer.h"
#include "io/tokenizer_chars.h"
#include "io/tokenizer_nfc.h"
#include "io/tokenizer_split.h"
#include "io/tokenizer_trie.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_VOCAB_MAX = 1 << 24,
    TERN_VOCAB_GAPS = 1 << 16, /* ids may leave that many free, and as many as there are tokens */
    TERN_SPECIAL_BYTES_MAX = 4096, /* longest text of an added token */
    TERN_TOKEN_BYTES_MAX = 1 << 20,
    TERN_STEPS_MAX = 8, /* of a normalizer, of a pre-tokenizer */
};

/* How a word becomes ids. */
enum tern_model_kind {
    TERN_MODEL_BYTES,   /* byte-level BPE: symbols are bytes */
    TERN_MODEL_CHARS,   /* SentencePiece-style BPE: symbols are characters, or bytes if unknown */
    TERN_MODEL_UNIGRAM, /* the best sum of scores */
};

/* ---- before the model (tokenizer_normal.c) ---- */

struct tern_string {
    char *data; /* owned */
    size_t bytes;
};

enum tern_normal_kind {
    TERN_NORMAL_NFC,
    TERN_NORMAL_PREPEND, /* `to` before each stretch that is not empty */
    TERN_NORMAL_REPLACE, /* each `from` by `to` */
};

struct tern_normal_step {
    enum tern_normal_kind kind;
    struct tern_string from, to;
};

enum tern_split_behavior {
    TERN_SPLIT_ISOLATED,
    TERN_SPLIT_WITH_PREVIOUS,
    TERN_SPLIT_WITH_NEXT,
};

enum tern_prepend {
    TERN_PREPEND_FIRST, /* where the text begins */
    TERN_PREPEND_ALWAYS,
    TERN_PREPEND_NEVER,
};

struct tern_split_step {
    enum tern_split_kind kind;
    struct tern_string text;           /* STRING: what to look for; METASPACE: the mark */
    enum tern_split_behavior behavior; /* STRING */
    enum tern_prepend prepend;         /* METASPACE */
    bool splits;                       /* METASPACE: a word begins at each mark */
};

/* ---- vocabulary (tokenizer_vocab.c) ---- */

struct tern_piece {
    uint32_t offset, bytes;    /* what it decodes to; into blob */
    uint32_t name, name_bytes; /* what words are looked up by; into blob */
    bool is_present;
    bool is_special;
    bool is_raw; /* BYTES: its text is not in the byte alphabet, so that no word is called so */
};

struct tern_merge {
    uint64_t key; /* left id << 32 | right id; MERGE_EMPTY: free slot */
    int32_t rank;
    int32_t result;
};

#define TERN_MERGE_EMPTY UINT64_MAX

struct tern_added {
    int32_t id;
    struct tern_string text; /* owned */
    bool is_special;
    bool is_normalized; /* matched in a second pass, in normalized text */
    bool strips_left, strips_right, is_single_word;
};

/* What a decoder does to the beginning of a text. */
enum tern_first_rule {
    TERN_FIRST_PLAIN,
    TERN_FIRST_STRIPS,      /* up to strip_blanks blanks go */
    TERN_FIRST_DROPS_MARKS, /* all marks of the first token go */
};

/* How a token's text becomes the bytes it stands for. */
struct tern_decode_rules {
    bool is_byte_level;
    bool has_bytes; /* "<0x41>" is a byte */
    struct tern_string from[TERN_STEPS_MAX], to[TERN_STEPS_MAX];
    int replace_count;
};

/* Where a text may be cut (tern_tokenizer_cut). */
enum tern_cut_rule {
    TERN_CUT_NEVER,
    TERN_CUT_WHITE, /* before any ASCII white space */
    TERN_CUT_BLANK, /* before a blank */
    TERN_CUT_MARK,  /* before a blank, which becomes a mark, where no merge crosses it */
};

struct tern_tokenizer {
    struct tern_chars chars;
    enum tern_model_kind model;
    struct tern_normal_step normal[TERN_STEPS_MAX];
    int normal_count;
    struct tern_split_step splits[TERN_STEPS_MAX];
    int split_count;
    struct tern_piece *pieces; /* [vocab_size] */
    int64_t vocab_size;
    int64_t piece_capacity;
    int64_t present_count;
    struct tern_text blob; /* bytes of all pieces */
    int32_t *names;        /* hash of pieces by name: id or -1 */
    uint64_t name_mask;
    int longest_name_bytes;
    /* BPE */
    struct tern_merge *merges; /* hash by pair */
    uint64_t merge_mask;
    int64_t merge_count;
    int32_t rank_count; /* ranks are below it */
    /* Instead of merges: any two pieces merge whose texts together are a token with a rank, its own.
     * [vocab_size], -1: none; NULL: there are merges. */
    int32_t *token_ranks;
    bool ignore_merges;
    int32_t byte_ids[256]; /* the bytes' own tokens (CHARS, UNIGRAM: the fallback's); -1: none */
    bool has_fallback;     /* all or some of byte_ids are used for what is unknown */
    bool fuses_unknown;
    int32_t unknown_id;   /* -1: what is unknown is left out */
    bool breaks_at_marks; /* CHARS: no merge crosses from a byte outside joins_mark to a mark */
    bool joins_mark[256];
    /* Unigram */
    double *scores; /* [vocab_size] */
    struct tern_trie words;
    double unknown_score;
    /* Added tokens */
    struct tern_added *added;
    int added_count;
    int longest_added_bytes;
    struct tern_trie added_tries[2]; /* first and second pass: index into added */
    bool added_starts[2][256];       /* bytes that one begins with */
    /* Around it */
    struct tern_decode_rules decode;
    enum tern_first_rule first_rule;
    size_t strip_blanks;
    enum tern_cut_rule cut_rule;
    int32_t *prefix_ids, *suffix_ids; /* what --add-special puts around a text */
    int prefix_count, suffix_count;
    int32_t bos_id, eos_id; /* as the file says; -1: it does not */
    char hash[33];          /* XXH3-128 of the file */
};

extern const char tern_mark[4]; /* U+2581, what SentencePiece writes for a blank */
enum {
    TERN_MARK_BYTES = 3
};

TERN_MUST_CHECK tern_status tern_string_set(struct tern_string *string,
                                            const char *data,
                                            size_t bytes);
/* Appends text with each `from` replaced. */
TERN_MUST_CHECK tern_status tern_replace_append(const char *text,
                                                size_t bytes,
                                                const struct tern_string *from,
                                                const struct tern_string *to,
                                                struct tern_text *out);
/* Room for normalizing, kept between calls. Zero to begin with. */
struct tern_normalizer {
    struct tern_text texts[2];
    struct tern_nfc nfc;
};
void tern_normalizer_fini(struct tern_normalizer *normalizer);
/* The normalized text: `text` itself if nothing changes, else the normalizer's until its next use.
 * continues: it is the middle of a stretch, so that nothing is put before it. */
TERN_MUST_CHECK tern_status tern_normalize(const struct tern_tokenizer *tokenizer,
                                           struct tern_normalizer *normalizer,
                                           bool continues,
                                           const char **text,
                                           size_t *bytes);

/* Reads the JSON text into an empty tokenizer (tokenizer_json.c). */
TERN_MUST_CHECK tern_status tern_tokenizer_parse(struct tern_tokenizer *tokenizer,
                                                 const char *name,
                                                 const char *text,
                                                 size_t bytes);
/* Takes bos_token and eos_token from the tokenizer_config.json beside, if there is one
 * (tokenizer_config.c). */
TERN_MUST_CHECK tern_status tern_tokenizer_read_config(struct tern_tokenizer *tokenizer,
                                                       const char *json_path);
/* A whole tokenizer from a JSON text, as tern_tokenizer_open makes of a file without others beside it. */
TERN_MUST_CHECK tern_status tern_tokenizer_open_text(const char *name,
                                                     const char *text,
                                                     size_t bytes,
                                                     struct tern_tokenizer **out);
/* The same from a GGUF file (tokenizer_gguf.c). */
TERN_MUST_CHECK tern_status tern_tokenizer_parse_gguf(struct tern_tokenizer *tokenizer,
                                                      const char *path);
/* Frees what an (all zero or filled) tokenizer owns. */
void tern_tokenizer_fini(struct tern_tokenizer *tokenizer);
/* Makes room for ids below `count`. */
TERN_MUST_CHECK tern_status tern_tokenizer_reserve(struct tern_tokenizer *tokenizer, int64_t count);
/* Adds a piece that is called what it decodes to (bytes copied). */
TERN_MUST_CHECK tern_status tern_tokenizer_add_piece(struct tern_tokenizer *tokenizer,
                                                     int32_t id,
                                                     const char *bytes,
                                                     size_t count);
/* Adds a token by its text in the file: name and bytes follow from the model's kind and the rules of
 * decoding. */
TERN_MUST_CHECK tern_status tern_tokenizer_add_token(struct tern_tokenizer *tokenizer,
                                                     int32_t id,
                                                     const char *text,
                                                     size_t bytes);
/* Changes only what a token decodes to, to what another text would. */
TERN_MUST_CHECK tern_status tern_tokenizer_set_decoded(struct tern_tokenizer *tokenizer,
                                                       int32_t id,
                                                       const char *text,
                                                       size_t bytes);
/* Id of a token by its text in the file, -1 if there is none. */
int32_t tern_tokenizer_find_text(const struct tern_tokenizer *tokenizer,
                                 const char *text,
                                 size_t bytes);
/* Makes the index of pieces by name, with room for `capacity` of them. */
TERN_MUST_CHECK tern_status tern_tokenizer_index_names(struct tern_tokenizer *tokenizer,
                                                       int64_t capacity);
/* Adds one more piece to the index; at most `capacity` in all. */
void tern_tokenizer_add_name(struct tern_tokenizer *tokenizer, int32_t id);
int32_t tern_tokenizer_find(const struct tern_tokenizer *tokenizer,
                            const char *bytes,
                            size_t count);
/* The token that is called as two are called together, -1 if there is none. */
int32_t tern_tokenizer_join(const struct tern_tokenizer *tokenizer, int32_t left, int32_t right);
/* Room for `count` merges; then one at a time: a pair given again gets the last rank. */
TERN_MUST_CHECK tern_status tern_tokenizer_reserve_merges(struct tern_tokenizer *tokenizer,
                                                          int64_t count);
void tern_tokenizer_add_merge(struct tern_tokenizer *tokenizer,
                              int32_t left,
                              int32_t right,
                              int32_t rank,
                              int32_t result);
struct tern_pair {
    int32_t rank; /* TERN_PAIR_NONE: the pair does not merge */
    int32_t result;
};
enum {
    TERN_PAIR_NONE = INT32_MAX
};
struct tern_pair tern_tokenizer_pair(const struct tern_tokenizer *tokenizer,
                                     int32_t left,
                                     int32_t right);
/* Fills byte_ids: of the 256 bytes' own tokens (BYTES), of "<0x00>" and so on (else). */
void tern_tokenizer_find_bytes(struct tern_tokenizer *tokenizer);
/* The first printable ASCII character or newline without a token of its own, which every byte-level
 * vocabulary has (bytes that the learner never saw may lack one); -1 if there is none. */
int tern_tokenizer_missing_byte(const struct tern_tokenizer *tokenizer);
/* Once pieces, merges and added tokens are whole: what matching, cutting and looking up need. */
TERN_MUST_CHECK tern_status tern_tokenizer_finish(struct tern_tokenizer *tokenizer);

/* ---- added tokens (tokenizer_added.c) ---- */

/* Fills the tries, texts of the second pass normalized; those decode normalized too. */
TERN_MUST_CHECK tern_status tern_added_index(struct tern_tokenizer *tokenizer);
/* One stretch between added tokens, or one of them. */
struct tern_added_match {
    size_t start, end;
    const struct tern_added *added; /* NULL: a stretch of text */
};
/* Goes through a text pass by pass. */
struct tern_added_scan {
    const struct tern_tokenizer *tokenizer;
    const char *text;
    size_t bytes;
    int pass; /* 0: as written, 1: normalized */
    bool parse_special;
    size_t at, done;              /* searched up to; given out up to */
    size_t blank_from, blank_end; /* a run of white space that was measured */
    struct tern_added_match held; /* found, after the stretch before it */
    bool has_held;
};
/* False at the end. */
bool tern_added_next(struct tern_added_scan *scan, struct tern_added_match *out);
/* Some added token touches text[at]: begins before it and ends at it or behind. */
bool tern_added_straddles(const struct tern_tokenizer *tokenizer,
                          const char *text,
                          size_t bytes,
                          size_t at);

static inline uint64_t tern_word_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

uint64_t tern_word_hash(const char *bytes, size_t count);

#endif
