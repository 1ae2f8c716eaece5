/* stored.h - whether the tensors in a checkpoint are those of a model. */
#ifndef TERN_MODELS_STORED_H
#define TERN_MODELS_STORED_H

#include "io/checkpoint.h"
#include "models/params.h"

/* Every parameter is in `group` ("model", "optimizer/exp_avg", ...) as f32 in its own shape, and
 * nothing else is: what tern_ckpt_read then gives fits where the table says. TERN_ERR_CONFIG names
 * the tensor. */
TERN_MUST_CHECK tern_status tern_stored_check(const struct tern_params *params,
                                              const struct tern_ckpt_reader *reader,
                                              const char *group);

#endif
