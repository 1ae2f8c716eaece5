/* infer.h - the forward pass for inference: new tokens of many sequences at once, whose keys and values lie in blocks
 * that the caller hands out. models/sequence.h is the same pass for one sequence that needs no blocks.
 *
 * What a token's logits are depends on its own sequence alone: not on who else is in the run, how the sequence was cut
 * into runs, which blocks it lies in, or the thread count, wherever the products keep that promise too (packed weights,
 * kernels/ops.h). */
#ifndef TERN_MODELS_INFER_H
#define TERN_MODELS_INFER_H

#include "models/placed.h"
#include "models/transformer.h"

struct tern_infer;

struct tern_infer_options {
    int64_t blocks;           /* of TERN_KV_BLOCK tokens each, numbered from 0 */
    int64_t rows;             /* most new tokens in one run */
    int64_t sequences;        /* most parts in one run */
    int64_t context;          /* longest sequence, up to the model's */
    int64_t logit_rows;       /* most rows of one run whose logits are asked for */
    enum tern_dtype kv_dtype; /* f32, bf16 or i8 */
};

/* New tokens of one sequence. The last layer computes only the rows that are asked for, of no part more than `logits`,
 * unless a part asks for hidden ones. */
struct tern_infer_part {
    const int32_t *ids; /* (count) */
    int64_t count;      /* 1 or more */
    int64_t position;   /* of the first of them: the tokens before are in the blocks */
    const int32_t
        *blocks; /* block i holds positions [16 i, 16 i + 16); up to that of the last new token */
    int64_t logits; /* the last so many rows are asked for, 0 to count */
    bool hidden;    /* tern_infer_hidden will be called */
};

/* Bytes that one block takes, in all layers; 0: the device has no such blocks. */
size_t tern_infer_block_bytes(const struct tern_model *model,
                              struct tern_device *device,
                              enum tern_dtype kv_dtype);
/* All device memory, blocks included. */
size_t tern_infer_bytes(const struct tern_model *model,
                        struct tern_device *device,
                        const struct tern_infer_options *options);
/* Model and weights stay as they are until destroy. Rotary positions that depend on the length go by options.context. */
TERN_MUST_CHECK tern_status tern_infer_create(const struct tern_model *model,
                                              struct tern_device *device,
                                              const struct tern_placed *weights,
                                              const struct tern_infer_options *options,
                                              struct tern_infer **out);
void tern_infer_destroy(struct tern_infer *infer);
/* Runs all parts, each of a sequence of its own. *logits_out (may be NULL): f32 host memory (rows asked for, V), in the
 * order of the parts, until the next run. Wrong counts, positions, ids or block numbers: TERN_ERR_ARGUMENT, and nothing
 * was changed; after any other error the new tokens' keys and values are not to be trusted. */
TERN_MUST_CHECK tern_status tern_infer_run(struct tern_infer *infer,
                                           const struct tern_infer_part *parts,
                                           int64_t count,
                                           const float **logits_out);
/* The final norm of all rows of the last run, of which a part asked for it, in the order of the parts: f32 host memory (rows, C), until the next run. */
TERN_MUST_CHECK tern_status tern_infer_hidden(struct tern_infer *infer, const float **hidden_out);
/* Block `to` becomes what block `from` is, in all layers. */
TERN_MUST_CHECK tern_status tern_infer_copy_block(struct tern_infer *infer,
                                                  int32_t from,
                                                  int32_t to);

#endif
