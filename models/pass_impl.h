/* pass_impl.h - inside models/: what the files of the training pass share: its memory, its norms, its forward part. */
#ifndef TERN_MODELS_PASS_IMPL_H
#define TERN_MODELS_PASS_IMPL_H

#include "models/linear.h"

/* What a norm keeps of its rows, f32 (N, heads); mean null for rms. */
struct tern_pass_stats {
    struct tern_dptr mean, rstd;
};

/* What a layer leaves for its backward pass. Under recomputation several layers share the same
 * memory. */
struct tern_pass_saved {
    struct tern_dptr x1;    /* (N, C) residual stream at the first norm */
    struct tern_dptr norm1; /* (N, C) */
    struct tern_pass_stats stats1;
    struct tern_dptr qkv; /* (N, (H + 2K) D), normed and rotated */
    struct tern_dptr q_raw,
        k_raw; /* (N, H D), (N, K D): before their norms; of models that have those */
    struct tern_pass_stats q_stats, k_stats;
    struct tern_dptr att; /* (N, H D) */
    struct tern_dptr lse; /* f32 (B, H, T) */
    struct tern_dptr x2;  /* (N, C) residual stream at the second norm */
    struct tern_dptr norm2;
    struct tern_pass_stats stats2;
    struct tern_dptr up;  /* (N, F) before GELU, or (N, 2F) gate and up */
    struct tern_dptr act; /* (N, F) */
    struct tern_dptr out1,
        out2; /* (N, C): sublayers before their norms; of models that have those */
    struct tern_pass_stats post1, post2;
};

struct tern_pass {
    const struct tern_model *model;
    struct tern_device *device;
    struct tern_pass_options options;
    struct tern_dptr starts; /* i32 (N) of packed documents, or null */
    struct tern_dptr memory;
    int64_t n;
    int64_t chunk_rows; /* rows of logits at a time */
    struct tern_pass_saved *layers;
    struct tern_dptr branch; /* (N, C) output of a sublayer before it joins the stream */
    struct tern_dptr x_final, norm_final;
    struct tern_pass_stats stats_final;
    struct tern_dptr logits;         /* f32 (chunk_rows, V) */
    struct tern_dptr dlogits;        /* dtype (chunk_rows, V); in f32 the logits themselves */
    struct tern_dptr cos[2], sin[2]; /* f32 (T, R/2); of windowed layers the second */
    struct tern_dptr dstream, dnorm; /* (N, C) */
    struct tern_dptr dbranch;        /* (N, C), where sublayers end in a norm */
    struct tern_dptr dact, dup, dqkv, datt;
    struct tern_linear_run run;
    /* Of a model with adapters: */
    struct tern_dptr frozen; /* dtype, the model's flat block */
    struct tern_dptr unused; /* f32 (2, max(C, D)): where the gradients of a frozen norm go */
};

/* A norm of the model over (N, C). */
struct tern_pass_norm {
    int64_t weight, bias; /* in the flat block; bias -1: none */
    struct tern_pass_stats stats;
};

static inline struct tern_dptr tern_pass_weight(const struct tern_pass *pass,
                                                struct tern_dptr weights,
                                                int64_t offset)
{
    return offset >= 0 ? tern_dptr_at(weights, offset, pass->model->dtype) : (struct tern_dptr){0};
}

/* Elements from one row of logits to the next. */
int64_t tern_pass_logits_stride(const struct tern_model *model);
/* Which of the two tables of rotary positions a layer turns by. */
int tern_pass_rope_table(const struct tern_model *model, int layer);

/* ---- forward (pass_forward.c) ---- */

/* What a caller gives as weights is what is trained. Returns the model's. */
struct tern_dptr tern_pass_take_weights(struct tern_pass *pass, struct tern_dptr weights);
/* sum = x + residual (residual null: x as it is); out = norm(sum). */
TERN_MUST_CHECK tern_status tern_pass_norm_fwd(struct tern_pass *pass,
                                               struct tern_dptr weights,
                                               const struct tern_pass_norm *norm,
                                               struct tern_dptr x,
                                               struct tern_dptr residual,
                                               struct tern_dptr sum,
                                               struct tern_dptr out);
/* q and k heads of rows (N, (H + 2K) D), in place. */
TERN_MUST_CHECK tern_status tern_pass_rope(struct tern_pass *pass,
                                           struct tern_dptr qkv,
                                           int layer,
                                           bool backward);
struct tern_attention_args tern_pass_attention_args(const struct tern_pass *pass, int layer);
/* From norm1 to att; from att to act; from act to the branch that joins the stream. */
TERN_MUST_CHECK tern_status tern_pass_attend(struct tern_pass *pass,
                                             struct tern_dptr weights,
                                             int layer);
TERN_MUST_CHECK tern_status tern_pass_feed(struct tern_pass *pass,
                                           struct tern_dptr weights,
                                           int layer);
TERN_MUST_CHECK tern_status tern_pass_close_layer(struct tern_pass *pass,
                                                  struct tern_dptr weights,
                                                  int layer);
/* Bucket of a layer's weights that are trained; -1: it has none. */
int tern_pass_layer_bucket(const struct tern_pass *pass, int layer);
/* All layers, and the final norm. */
TERN_MUST_CHECK tern_status tern_pass_forward(struct tern_pass *pass,
                                              struct tern_dptr weights,
                                              struct tern_dptr ids,
                                              const struct tern_pass_hooks *hooks);
/* logits (rows, V), ld apart, = norm_final[first .. first + rows) head^T, not capped */
TERN_MUST_CHECK tern_status tern_pass_head(struct tern_pass *pass,
                                           struct tern_dptr weights,
                                           int64_t first,
                                           int64_t rows,
                                           int64_t ld);
/* Loss of such logits; backward: their gradient in dlogits. */
TERN_MUST_CHECK tern_status tern_pass_loss(struct tern_pass *pass,
                                           struct tern_dptr targets,
                                           struct tern_dptr nll,
                                           int64_t first,
                                           int64_t rows,
                                           bool backward);

#endif
