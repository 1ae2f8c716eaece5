/* packs.h - documents that are learned in part, packed whole into sequences.
 *
 * On disk: a Megatron pair PREFIX.bin and PREFIX.idx (tokens_file.h), a document a conversation, and PREFIX.loss:
 * "TERNLOSS", u64 tokens (little-endian), then a byte a token, 1 when it is to be predicted, else 0.
 *
 * A document of n tokens takes n - 1 places of a sequence: all its tokens but the last as inputs, all but the first as
 * their targets; what exceeds the sequence is cut off. Documents are packed longest first, each into the sequence with
 * the least room that has enough (the first made among equals): the same packs wherever it is done. A document without
 * a token to predict is left out. */
#ifndef TERN_IO_PACKS_H
#define TERN_IO_PACKS_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct tern_packs;

/* Opens PREFIX (or PREFIX.bin or .idx) for sequences of sequence_length tokens. TERN_ERR_INPUT: files that do not fit
 * together, or nothing in them to learn. Owned: close. */
TERN_MUST_CHECK tern_status tern_packs_open(const char *prefix,
                                            int64_t sequence_length,
                                            struct tern_packs **out);
void tern_packs_close(struct tern_packs *packs);
/* Whether PREFIX.loss is there. */
bool tern_packs_exist(const char *prefix);
int64_t tern_packs_count(const struct tern_packs *packs);  /* sequences */
int64_t tern_packs_tokens(const struct tern_packs *packs); /* in the files */
struct tern_packs_summary {
    int64_t documents;
    int64_t cut;     /* longer than a sequence */
    int64_t dropped; /* without a token to predict, in the part that is kept */
    int64_t places;  /* inputs in all packs; the rest of them is padding */
    int64_t learned; /* targets that count */
};
void tern_packs_summary(const struct tern_packs *packs, struct tern_packs_summary *out);
/* 64 hex digits over tokens, borders and marks: two hashes (hash.h) and a NUL. */
enum {
    TERN_PACKS_DIGEST_BYTES = 65
};
void tern_packs_digest(const struct tern_packs *packs, char out[TERN_PACKS_DIGEST_BYTES]);

/* Sequence `index`: inputs, targets (-1: not to be predicted) and starts, i32 (sequence_length) each; starts[i] is where
 * the document of place i begins. Padding is a document of token 0 without targets. Ids must be below vocab_size. Any
 * thread. */
TERN_MUST_CHECK tern_status tern_packs_read(const struct tern_packs *packs,
                                            int64_t index,
                                            int64_t vocab_size,
                                            int32_t *inputs,
                                            int32_t *targets,
                                            int32_t *starts);

/* Writes PREFIX.loss, durably: marks (tokens), 0 or 1. */
TERN_MUST_CHECK tern_status tern_packs_write_marks(const char *prefix,
                                                   const uint8_t *marks,
                                                   int64_t tokens);

#endif
