/* infer_impl.h - what the parts of the inference pass share. Inside models/. */
#ifndef TERN_MODELS_INFER_IMPL_H
#define TERN_MODELS_INFER_IMPL_H

#include "models/sequence.h"

/* y (n, out) = x (n, in) W + b, W where and as it lies. */
struct tern_matrix {
    struct tern_dptr weight, bias; /* bias null: none; of the model's dtype */
    enum tern_dtype dtype;
    int64_t in, out, ld; /* elements from one stored row to the next */
    bool is_out_in;
};

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
    struct tern_matrix q;
    struct tern_matrices kv, up;
    struct tern_matrix out, down;
    struct tern_matrix router;
    struct tern_expert *experts; /* (experts) */
    int64_t window;
    bool is_local; /* rotary positions of windowed layers */
};

struct tern_sequence {
    const struct tern_model *model;
    struct tern_device *device;
    const struct tern_placed *weights;
    struct tern_sequence_options options;
    struct tern_infer_layer *layers;
    struct tern_expert *experts; /* of all layers */
    struct tern_dptr final_norm, final_norm_bias, positions;
    struct tern_matrix head;
    const struct tern_placed_tensor *embedding;

    int64_t position;
    int64_t expected;  /* length that the sequence will have at least */
    int64_t length;    /* that the rotary positions in the cache were made for */
    int32_t *ids_host; /* (positions), where positions may have to be made anew; else NULL */

    struct tern_dptr memory;
    struct tern_dptr ids;            /* i32 (chunk) */
    struct tern_dptr cache;          /* (L, positions, 2 K D): keys, then values in a row */
    struct tern_dptr x, x2;          /* (chunk, C) the stream */
    struct tern_dptr branch;         /* (chunk, C) */
    struct tern_dptr norm;           /* (chunk, C) */
    struct tern_dptr q, att;         /* (chunk, H D) */
    struct tern_dptr up, act;        /* (chunk, F or 2F), (chunk, F) */
    struct tern_dptr logits;         /* f32 (logit_rows, V) */
    struct tern_dptr targets, nll;   /* i32, f32 (logit_rows) */
    struct tern_dptr cos[2], sin[2]; /* f32 (positions or chunk, R/2): of all, of windowed layers */
    /* Experts: P = chunk * experts_used pairs of token and expert. */
    struct tern_dptr router_logits;               /* (chunk, E) */
    struct tern_dptr chosen, shares, pairs, rows; /* (P) */
    struct tern_dptr starts;                      /* i32 (E + 1) */
    struct tern_dptr gathered, expert_out;        /* (P, C) */
    struct tern_dptr expert_up, expert_act;       /* (P, 2X), (P, X) */
    int32_t *starts_host;                         /* (E + 1) */
    int64_t logit_rows;
};

/* The layers' matrices and vectors, from where the weights lie. */
TERN_MUST_CHECK tern_status tern_infer_layers_init(struct tern_sequence *infer);
void tern_infer_layers_fini(struct tern_sequence *infer);
/* d (n, out), rows ldd apart, = x (n, in) times the matrix; gelu: through it, *pre keeps what went
 * in. */
TERN_MUST_CHECK tern_status tern_infer_multiply(struct tern_sequence *infer,
                                                const struct tern_matrix *matrix,
                                                int64_t n,
                                                struct tern_dptr x,
                                                struct tern_dptr d,
                                                int64_t ldd,
                                                const struct tern_dptr *gelu_pre);
/* Each part beside the one before. */
TERN_MUST_CHECK tern_status tern_infer_multiply_all(struct tern_sequence *infer,
                                                    const struct tern_matrices *matrices,
                                                    int64_t n,
                                                    struct tern_dptr x,
                                                    struct tern_dptr d,
                                                    int64_t ldd);
/* The stream of n tokens in infer->x through all layers: infer->norm is the final norm of it. */
TERN_MUST_CHECK tern_status tern_infer_run_layers(struct tern_sequence *infer, int64_t n);
/* infer->norm (n, C) to infer->branch (n, C), by the experts of a layer. */
TERN_MUST_CHECK tern_status tern_infer_experts(struct tern_sequence *infer,
                                               const struct tern_infer_layer *layer,
                                               int64_t n);

#endif
