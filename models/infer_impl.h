/* infer_impl.h - what the parts of the inference pass share. Inside models/. */
#ifndef TERN_MODELS_INFER_IMPL_H
#define TERN_MODELS_INFER_IMPL_H

#include "models/infer.h"

/* y (n, out) = x (n, in) W + b, W where and as it lies. */
struct tern_matrix {
    struct tern_dptr weight, bias; /* bias null: none; of the model's dtype */
    enum tern_dtype dtype;
    enum tern_packed packed; /* not NONE: dtype and ld say nothing */
    int64_t in, out, ld;     /* elements from one stored row to the next */
    bool is_out_in;
};
/* What a product with it is computed in, x being of `dtype`. */
static inline enum tern_dtype tern_matrix_compute(const struct tern_matrix *matrix,
                                                  enum tern_dtype dtype)
{
    return tern_packed_is_codes(matrix->packed) ? TERN_I8 : dtype;
}

enum {
    TERN_PARTS_MAX = 3
};
/* Matrices that read the same input and write side by side: q, k, v, or gate and up; as few as
 * memory allows, neighbours being one. */
struct tern_matrices {
    struct tern_matrix parts[TERN_PARTS_MAX];
    int count;
};

struct tern_expert {
    struct tern_matrices up;
    struct tern_matrix down;
};

struct tern_infer_layer {
    struct tern_dptr norm1, norm1_bias, norm2, norm2_bias; /* null: none */
    struct tern_dptr post1, post2, q_norm, k_norm;
    struct tern_matrices qkv, up;
    struct tern_matrix out, down;
    struct tern_matrix router;
    struct tern_expert *experts; /* (experts) */
    int64_t window;
    bool is_local; /* rotary positions of windowed layers */
};

/* Numbers of one run, i32, side by side in one block: N rows, S parts, L rows whose logits are asked for. */
struct tern_infer_numbers {
    int64_t rows, parts, longest, table_row, wanted_rows;
    int64_t last_rows; /* that leave the last layer: N, or L */
    /* (N), (N), (N), (L), (S + 1), (S + 1), (S), (S, table_row): where each begins in the block */
    int64_t ids, positions, slots, wanted, row_starts, wanted_starts, lengths, tables, count;
};

struct tern_infer {
    const struct tern_model *model;
    struct tern_device *device;
    const struct tern_placed *weights;
    struct tern_infer_options options;
    struct tern_infer_layer *layers;
    struct tern_expert *experts; /* of all layers */
    struct tern_dptr final_norm, final_norm_bias, positions;
    struct tern_matrix head;
    const struct tern_placed_tensor *embedding;
    size_t block_bytes; /* of one layer */

    int64_t length;                 /* of a sequence, that rotary positions go by */
    int64_t ready_first, ready_end; /* positions that the rotary tables hold */
    struct tern_infer_numbers run;  /* the last one */
    int32_t *numbers_host;
    float *logits_host,
        *hidden_host; /* of a device that the host does not see; pinned, when needed */

    struct tern_dptr memory;
    struct tern_dptr numbers;        /* i32, as run says */
    struct tern_dptr pools;          /* a pool a layer */
    struct tern_dptr x, x2;          /* (rows, C) the stream */
    struct tern_dptr branch;         /* (rows, C) */
    struct tern_dptr norm;           /* (rows, C) */
    struct tern_dptr qkv;            /* (rows, (H + 2 K) D) */
    struct tern_dptr att;            /* (rows, H D) */
    struct tern_dptr up, act;        /* (rows, F or 2F), (rows, F) */
    struct tern_dptr last_qkv; /* (logit_rows, (H + 2 K) D): of qkv, in the last layer */
    struct tern_dptr picked;         /* (logit_rows, C): of norm */
    struct tern_dptr logits;         /* f32 (logit_rows, V) */
    struct tern_dptr hidden;         /* f32 (rows, C); null: norm is f32 */
    struct tern_dptr cos[2], sin[2]; /* f32 (context, R/2): of all, of windowed layers */
    /* Experts: P = rows * experts_used pairs of token and expert. */
    struct tern_dptr router_logits;                    /* (rows, E) */
    struct tern_dptr chosen, shares, pairs, pair_rows; /* (P) */
    struct tern_dptr starts;                           /* i32 (E + 1) */
    struct tern_dptr gathered, expert_out;             /* (P, C) */
    struct tern_dptr expert_up, expert_act;            /* (P, 2X), (P, X) */
    int32_t *starts_host;                              /* (E + 1) */
};

/* The layers' matrices and vectors, from where the weights lie. */
TERN_MUST_CHECK tern_status tern_infer_layers_init(struct tern_infer *infer);
void tern_infer_layers_fini(struct tern_infer *infer);
/* d (n, out), rows ldd apart, = x (n, in) times the matrix; gelu: through it, *pre keeps what went
 * in. */
TERN_MUST_CHECK tern_status tern_infer_multiply(struct tern_infer *infer,
                                                const struct tern_matrix *matrix,
                                                int64_t n,
                                                struct tern_dptr x,
                                                struct tern_dptr d,
                                                int64_t ldd,
                                                const struct tern_dptr *gelu_pre);
/* Each part beside the one before. */
TERN_MUST_CHECK tern_status tern_infer_multiply_all(struct tern_infer *infer,
                                                    const struct tern_matrices *matrices,
                                                    int64_t n,
                                                    struct tern_dptr x,
                                                    struct tern_dptr d,
                                                    int64_t ldd);
/* infer->x, the run's embeddings, through all layers: infer->norm is the final norm of last_rows rows. */
TERN_MUST_CHECK tern_status tern_infer_run_layers(struct tern_infer *infer);
/* out = the rows of x (N, width) whose logits are asked for. */
TERN_MUST_CHECK tern_status tern_infer_pick(struct tern_infer *infer,
                                            struct tern_dptr x,
                                            int64_t width,
                                            struct tern_dptr out);
/* infer->norm (n, C) to infer->branch (n, C), by the experts of a layer. */
TERN_MUST_CHECK tern_status tern_infer_experts(struct tern_infer *infer,
                                               const struct tern_infer_layer *layer,
                                               int64_t n);

/* infer_run.c: checks and numbers the parts, and takes them through the layers. */
TERN_MUST_CHECK tern_status tern_infer_forward(struct tern_infer *infer,
                                               const struct tern_infer_part *parts,
                                               int64_t count);
/* Logits of `rows` rows of x, up to logit_rows, to infer->logits; capped: through the model's cap, if it has one. */
TERN_MUST_CHECK tern_status tern_infer_head(struct tern_infer *infer,
                                            struct tern_dptr x,
                                            int64_t rows,
                                            bool capped);
/* Rotary positions go by sequences of this length from now on. */
void tern_infer_follow(struct tern_infer *infer, int64_t length);
static inline struct tern_dptr tern_infer_number(const struct tern_infer *infer, int64_t at)
{
    return tern_dptr_at(infer->numbers, at, TERN_I32);
}

#endif
