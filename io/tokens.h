/* tokens.h - training text as numbers: memory-mapped token shards, which sample is where, and the batch ahead.
 *
 * Formats: Megatron PREFIX.bin + PREFIX.idx (either name may be given), llm.c .bin (256 int32 header, magic 20240520
 * version 1 = uint16, 20240801-style version with uint32), and .txt / .jsonl ("text"), which tern_tokens_open
 * tokenises once into cache_dir. A source is all shards of one data.train entry, concatenated in name order. */
#ifndef TERN_IO_TOKENS_H
#define TERN_IO_TOKENS_H

#include "io/tokenizer.h"
#include "runtime/base/status.h"

#include <stdint.h>

struct tern_tokens;

struct tern_tokens_options {
    const char *const *patterns; /* one source each: a path or glob */
    int pattern_count;
    const double *weights;                  /* one a source, or NULL: by size */
    const struct tern_tokenizer *tokenizer; /* for .txt and .jsonl; may be NULL */
    const char *cache_dir;                  /* where their shards go */
    int64_t sequence_length;
    int64_t vocab_size; /* ids must be below it: checked when a sample is read; names file and position */
    uint64_t seed;
    bool shuffle; /* false: evaluation, samples in order */
};

TERN_MUST_CHECK tern_status tern_tokens_open(const struct tern_tokens_options *options, struct tern_tokens **out);
void tern_tokens_close(struct tern_tokens *tokens);
int64_t tern_tokens_count(const struct tern_tokens *tokens);         /* tokens in all sources */
int64_t tern_tokens_epoch_samples(const struct tern_tokens *tokens); /* samples in one epoch */
/* Sample k >= 0 of the endless stream (epoch k / epoch_samples): inputs (T) and targets (T), targets[i] the token
 * after inputs[i]; a pure function of (seed, k): no state, any thread, any rank. */
TERN_MUST_CHECK tern_status tern_tokens_sample(const struct tern_tokens *tokens, int64_t k, int32_t *inputs, int32_t *targets);

/* The batch of the next step, made by its own thread while this step runs. Sample numbers of step s (from 0) on this
 * rank: s * global_batch + [first, first + count). */
struct tern_prefetch;
TERN_MUST_CHECK tern_status tern_prefetch_start(const struct tern_tokens *tokens, int64_t global_batch, int64_t first,
                                                int64_t count, int64_t first_step, struct tern_prefetch **out);
/* Blocks until step's batch is there; inputs and targets (count, T) are valid until the next call. Steps ascend by 1. */
TERN_MUST_CHECK tern_status tern_prefetch_take(struct tern_prefetch *prefetch, int64_t step, const int32_t **inputs_out,
                                               const int32_t **targets_out);
void tern_prefetch_stop(struct tern_prefetch *prefetch);

#endif
