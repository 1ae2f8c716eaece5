/* fake_pass.h - a model that is a hash of the tokens before, kept in blocks as keys and values
 * are: a block that is not what the engine thinks gives other logits, or fails the run. */
#ifndef TERN_TESTS_RUNTIME_SERVE_FAKE_PASS_H
#define TERN_TESTS_RUNTIME_SERVE_FAKE_PASS_H

#include "runtime/base/random.h"
#include "runtime/serve/pass.h"
#include "tests/runtime/fixture.h"

enum {
    FAKE_VOCAB = 97,
    FAKE_WIDTH = 6,
    FAKE_END = 3, /* the token that ends a text */
    FAKE_ROWS_MAX = 1024
};

struct fake {
    int64_t blocks;
    int32_t *ids;  /* (blocks, 16) */
    int32_t *at;   /* (blocks, 16): position, -1: nothing */
    float *logits; /* (FAKE_ROWS_MAX, FAKE_VOCAB) */
    float *hidden; /* (FAKE_ROWS_MAX, FAKE_WIDTH) */
    int64_t runs, copies;
    /* Called before each run, on the engine thread; may say how the run ends. */
    tern_status (*before)(struct fake *fake, const struct tern_infer_part *parts, int64_t count);
    void *context;
};

/* What the model says after all tokens and a last one, which counts most: texts go round, which
 * guessing likes. */
static inline void fake_logits(uint64_t all, int32_t last, float *out)
{
    for (int i = 0; i < FAKE_VOCAB; i++) {
        double common = tern_random_uniform(11, (uint64_t)last, (uint64_t)i);
        double own = tern_random_uniform(12, all, (uint64_t)i);
        out[i] = (float)(6 * common + 0.3 * own - (i == FAKE_END ? 1.5 : 0));
    }
}

static inline uint64_t fake_hash(uint64_t before, int32_t id)
{
    return tern_random_u64(before, TERN_STREAM_TEST, (uint64_t)id);
}

static inline tern_status fake_part(struct fake *fake,
                                    const struct tern_infer_part *part,
                                    int64_t row,
                                    float *logits)
{
    uint64_t hash = 0;
    for (int64_t p = 0; p < part->position + part->count; p++) {
        int64_t slot = part->blocks[p / TERN_KV_BLOCK] * (int64_t)TERN_KV_BLOCK + p % TERN_KV_BLOCK;
        int64_t new = p - part->position;
        MUST(slot >= 0 && slot < fake->blocks * TERN_KV_BLOCK, "slot %lld", (long long)slot);
        if (new >= 0) {
            fake->ids[slot] = part->ids[new];
            fake->at[slot] = (int32_t)p;
        }
        MUST(fake->at[slot] == p, "position %lld of a sequence lies where %d is", (long long)p,
             fake->at[slot]);
        hash = fake_hash(hash, fake->ids[slot]);
        if (new >= 0) {
            for (int i = 0; i < FAKE_WIDTH; i++) {
                fake->hidden[(row + new) * FAKE_WIDTH + i] =
                    (float)tern_random_uniform(13, hash, (uint64_t)i) - 0.3F;
            }
        }
        int64_t from_last = part->count - 1 - new;
        if (new >= 0 && from_last < part->logits) {
            fake_logits(hash, fake->ids[slot],
                        logits + (part->logits - 1 - from_last) * FAKE_VOCAB);
        }
    }
    return TERN_OK;
}

static inline tern_status fake_run(void *context,
                                   const struct tern_infer_part *parts,
                                   int64_t count,
                                   const float **logits_out)
{
    struct fake *fake = context;
    int64_t row = 0;
    int64_t logit_row = 0;
    fake->runs++;
    if (fake->before != NULL) {
        TERN_RETURN_IF_ERR(fake->before(fake, parts, count));
    }
    for (int64_t i = 0; i < count; i++) {
        MUST(parts[i].count >= 1 && parts[i].logits <= parts[i].count, "a part's counts");
        MUST(row + parts[i].count <= FAKE_ROWS_MAX, "too many rows");
        TERN_RETURN_IF_ERR(fake_part(fake, &parts[i], row, fake->logits + logit_row * FAKE_VOCAB));
        row += parts[i].count;
        logit_row += parts[i].logits;
    }
    *logits_out = fake->logits;
    return TERN_OK;
}

static inline tern_status fake_hidden(void *context, const float **hidden_out)
{
    *hidden_out = ((struct fake *)context)->hidden;
    return TERN_OK;
}

static inline tern_status fake_copy_block(void *context, int32_t from, int32_t to)
{
    struct fake *fake = context;
    size_t bytes = TERN_KV_BLOCK * sizeof(int32_t);
    memcpy(fake->ids + to * TERN_KV_BLOCK, fake->ids + from * TERN_KV_BLOCK, bytes);
    memcpy(fake->at + to * TERN_KV_BLOCK, fake->at + from * TERN_KV_BLOCK, bytes);
    fake->copies++;
    return TERN_OK;
}

/* Token i is a letter, or two; some are halves of a character. */
static inline const char *fake_piece(void *context,
                                     int32_t id,
                                     size_t *bytes_out,
                                     bool *is_special_out)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    (void)context;
    *is_special_out = id == FAKE_END || id == FAKE_END + 1;
    *bytes_out = id % 3 == 0 ? 2 : 1;
    if (id == 50 || id == 51) {
        return id == 50 ? "\xc3" : "\xa9\xc3";
    }
    return id == 52 ? NULL : letters + id % 26;
}

static inline void fake_fini(struct fake *fake)
{
    tern_free(fake->ids);
    tern_free(fake->at);
    tern_free(fake->logits);
    tern_free(fake->hidden);
}

/* An engine over a fake of `blocks` blocks; the fake outlives it. */
static inline struct tern_engine *fake_engine(struct fake *fake,
                                              const struct tern_engine_options *options,
                                              int64_t blocks)
{
    static const int32_t ends[] = {FAKE_END};
    size_t slots = (size_t)blocks * TERN_KV_BLOCK;
    fake->blocks = blocks;
    fake->ids = tern_alloc_zero("fake", slots, sizeof *fake->ids);
    fake->at = tern_alloc("fake", slots * sizeof *fake->at);
    fake->logits = tern_alloc("fake", sizeof(float) * FAKE_ROWS_MAX * FAKE_VOCAB);
    fake->hidden = tern_alloc("fake", sizeof(float) * FAKE_ROWS_MAX * FAKE_WIDTH);
    memset(fake->at, 0xff, slots * sizeof *fake->at);
    struct tern_engine_pass pass = {
        .context = fake,
        .vocab = FAKE_VOCAB,
        .width = FAKE_WIDTH,
        .end_ids = ends,
        .end_count = 1,
        .piece = fake_piece,
        .run = fake_run,
        .hidden = fake_hidden,
        .copy_block = fake_copy_block,
    };
    struct tern_engine *engine;
    expect_ok(tern_engine_create_over(&pass, options, blocks, &engine));
    return engine;
}

#endif
