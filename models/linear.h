/* linear.h - the three matrix products of a linear layer, for either storage of its weight. Inside
 * models/. */
#ifndef TERN_MODELS_LINEAR_H
#define TERN_MODELS_LINEAR_H

#include "models/transformer.h"

/* y (n, out) = x (n, in) W + b; with gelu: pre receives x W + b and y its GELU. */
TERN_MUST_CHECK tern_status tern_linear_fwd(struct tern_device *device,
                                            const struct tern_linear *linear,
                                            enum tern_dtype dtype,
                                            struct tern_dptr weights,
                                            int64_t n,
                                            struct tern_dptr x,
                                            struct tern_dptr y,
                                            const struct tern_dptr *gelu_pre);
/* dx (n, in) = dy (n, out) W^T; with gelu: dx = (dy W^T) gelu'(pre), pre (n, in) what went into the GELU before. */
TERN_MUST_CHECK tern_status tern_linear_bwd_input(struct tern_device *device,
                                                  const struct tern_linear *linear,
                                                  enum tern_dtype dtype,
                                                  struct tern_dptr weights,
                                                  int64_t n,
                                                  struct tern_dptr dy,
                                                  struct tern_dptr dx,
                                                  const struct tern_dptr *gelu_pre);
/* dW (+)= x^T dy, db (+)= column sums of dy, in the flat gradient block. */
TERN_MUST_CHECK tern_status tern_linear_bwd_weight(struct tern_device *device,
                                                   const struct tern_linear *linear,
                                                   enum tern_dtype dtype,
                                                   struct tern_dptr grads,
                                                   int64_t n,
                                                   struct tern_dptr x,
                                                   struct tern_dptr dy,
                                                   bool accumulate);

#endif
