/* linear.h - the three matrix products of a linear layer, for either storage of its weight, with its
 * adapters if it has some. Inside models/. */
#ifndef TERN_MODELS_LINEAR_H
#define TERN_MODELS_LINEAR_H

#include "models/lora.h"

/* What all linear layers of a pass have in common. */
struct tern_linear_run {
    struct tern_device *device;
    enum tern_dtype dtype; /* of weights and activations */
    int64_t n;             /* rows of x and y */
    /* Of a model with adapters (lora.h): it is frozen, and grads below are those of adapters. */
    bool is_frozen;
    struct tern_dptr adapters;  /* dtype, their flat block */
    struct tern_dptr low, dlow; /* dtype (n, parts * rank): scale x A^T, and scale dy B, which
                                   bwd_input leaves for the bwd_weight that follows it */
    struct tern_dptr wide;      /* dtype (n, the widest of in and out) */
};

/* y (n, out) = x (n, in) W + b; with gelu: pre receives x W + b and y its GELU. */
TERN_MUST_CHECK tern_status tern_linear_fwd(const struct tern_linear_run *run,
                                            const struct tern_linear *linear,
                                            struct tern_dptr weights,
                                            struct tern_dptr x,
                                            struct tern_dptr y,
                                            const struct tern_dptr *gelu_pre);
/* dx (n, in) = dy (n, out) W^T; with gelu: dx = (dy W^T) gelu'(pre), pre (n, in) what went into the GELU before. */
TERN_MUST_CHECK tern_status tern_linear_bwd_input(const struct tern_linear_run *run,
                                                  const struct tern_linear *linear,
                                                  struct tern_dptr weights,
                                                  struct tern_dptr dy,
                                                  struct tern_dptr dx,
                                                  const struct tern_dptr *gelu_pre);
/* dW (+)= x^T dy, db (+)= column sums of dy, in the flat gradient block; of a frozen layer those of
 * its adapters, right after its bwd_input. */
TERN_MUST_CHECK tern_status tern_linear_bwd_weight(const struct tern_linear_run *run,
                                                   const struct tern_linear *linear,
                                                   struct tern_dptr grads,
                                                   struct tern_dptr x,
                                                   struct tern_dptr dy,
                                                   bool accumulate);

/* ---- what adapters add to each (linear_lora.c); linear->lora is there ---- */

/* y += scale (x A^T) B^T */
TERN_MUST_CHECK tern_status tern_linear_lora_fwd(const struct tern_linear_run *run,
                                                 const struct tern_linear *linear,
                                                 struct tern_dptr x,
                                                 struct tern_dptr y);
/* dx += scale (dy B) A */
TERN_MUST_CHECK tern_status tern_linear_lora_bwd_input(const struct tern_linear_run *run,
                                                       const struct tern_linear *linear,
                                                       struct tern_dptr dy,
                                                       struct tern_dptr dx);
/* dA (+)= (scale dy B)^T x, dB (+)= dy^T (scale x A^T) */
TERN_MUST_CHECK tern_status tern_linear_lora_bwd_weight(const struct tern_linear_run *run,
                                                        const struct tern_linear *linear,
                                                        struct tern_dptr grads,
                                                        struct tern_dptr x,
                                                        struct tern_dptr dy,
                                                        bool accumulate);

#endif
