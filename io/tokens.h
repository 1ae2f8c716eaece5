/* tokens.h - training text as numbers: memory-mapped token shards, which sample is where, and
 * the batch ahead.
 *
 * Formats: Megatron PREFIX.bin + PREFIX.idx (either name may be given), llm.c .bin (256 int32
 * header, magic 20240520 version 1 = uint16, 20240801 version 7 = uint32), and .txt / .jsonl
 * ("text"), which tern_tokens_open tokenises once into cache_dir. A source is all shards of one
 * data.train entry, concatenated in name order.
 *
 * A window is T + 1 tokens at tokens [w T, w T + T] of a source: the inputs of its windows do
 * not overlap, every token but the source's first is a target at most once, and the tokens that
 * fill no window (fewer than T) are left out.
 *
 * Which window sample k is, without a table: with no weights, an epoch is a keyed permutation of
 * all windows of all sources, another one each epoch. With weights, samples come in blocks of B,
 * and of each block source i has exactly q_i: B is the smallest number for which all q_i =
 * round(B weight_i / sum) sum to B and are within 1e-4 of their share, else 65536 with the
 * largest remainders rounded up. Slot s = permutation of B, keyed by the block, of k mod B; the
 * source is the one with Q_i <= s < Q_i + q_i, Q_i the sum of those before; its j-th sample, j =
 * (k / B) q_i + s - Q_i, is window j mod n_i of its own pass j / n_i, under a permutation keyed
 * by source and pass. So each source runs through its own epochs. */
#ifndef TERN_IO_TOKENS_H
#define TERN_IO_TOKENS_H

#include "io/tokenizer.h"
#include "runtime/base/status.h"

#include <stdint.h>

struct tern_tokens;

struct tern_tokens_options {
    const char *const *patterns; /* one source each: a path or glob */
    int pattern_count;
    const double *weights;                  /* one a source, >= 0, of any sum; or NULL: by size */
    const struct tern_tokenizer *tokenizer; /* for .txt and .jsonl; may be NULL */
    const char *cache_dir;                  /* where their shards go */
    int64_t sequence_length;
    int64_t vocab_size; /* ids must be below it: checked when a sample is read */
    uint64_t seed;
    bool shuffle;   /* false: evaluation, samples in order */
    bool is_packed; /* patterns are prefixes of documents to pack (packs.h); a window is a pack */
};

TERN_MUST_CHECK tern_status tern_tokens_open(const struct tern_tokens_options *options,
                                             struct tern_tokens **out);
/* Whether a pattern names anything, without opening it. */
TERN_MUST_CHECK tern_status tern_tokens_find(const char *pattern);
void tern_tokens_close(struct tern_tokens *tokens);
int64_t tern_tokens_sequence_length(const struct tern_tokens *tokens);
int64_t tern_tokens_count(const struct tern_tokens *tokens);         /* tokens in all sources */
int64_t tern_tokens_epoch_samples(const struct tern_tokens *tokens); /* windows in all sources */
/* For the record of a run: XXH3-128 (hex) over each shard's name, dtype, token count and the
 * first and last 64 KiB of its ids, in order of the sources. Equal digests: the same data,
 * wherever the files lie. */
enum {
    TERN_TOKENS_DIGEST_BYTES = 33
};
void tern_tokens_digest(const struct tern_tokens *tokens, char out[TERN_TOKENS_DIGEST_BYTES]);
/* Of all sources together; zero when they are not packed. */
struct tern_packs_summary;
void tern_tokens_packed(const struct tern_tokens *tokens, struct tern_packs_summary *out);
/* Sample k >= 0 of the endless stream (epoch k / epoch_samples): inputs i32 (T) and targets i32
 * (T), targets[i] the token after inputs[i]; a pure function of (seed, k): no state, any thread,
 * any rank. When packed, targets that do not count are -1, and starts i32 (T) says where the
 * document of each input begins; else starts is not written and may be NULL. */
TERN_MUST_CHECK tern_status tern_tokens_sample(const struct tern_tokens *tokens,
                                               int64_t k,
                                               int32_t *inputs,
                                               int32_t *targets,
                                               int32_t *starts);
bool tern_tokens_is_packed(const struct tern_tokens *tokens);

/* The batch of the next step, made by its own thread while this step runs. Sample numbers of
 * step s (from 0) on this rank: s * global_batch + [first, first + count). */
struct tern_prefetch;
TERN_MUST_CHECK tern_status tern_prefetch_start(const struct tern_tokens *tokens,
                                                int64_t global_batch,
                                                int64_t first,
                                                int64_t count,
                                                int64_t first_step,
                                                struct tern_prefetch **out);
/* Blocks until step's batch is there; inputs, targets and, when packed, starts (else NULL), (count,
 * T) each, are valid until the next call. Steps ascend by 1. */
TERN_MUST_CHECK tern_status tern_prefetch_take(struct tern_prefetch *prefetch,
                                               int64_t step,
                                               const int32_t **inputs_out,
                                               const int32_t **targets_out,
                                               const int32_t **starts_out);
void tern_prefetch_stop(struct tern_prefetch *prefetch);

#endif
