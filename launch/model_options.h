/* model_options.h - options of every command that computes with a MODEL. */
#ifndef TERN_LAUNCH_MODEL_OPTIONS_H
#define TERN_LAUNCH_MODEL_OPTIONS_H

#include "launch/options.h"
#include "runtime/base/dtype.h"

/* --weights. mode: an enum tern_placed_mode, with the default that the help names. */
struct tern_option tern_option_weights(int *mode);
/* --kv-dtype. choice: what tern_option_kv_dtype_of takes; 0, the default, is bf16. */
struct tern_option tern_option_kv_dtype(int *choice);
enum tern_dtype tern_option_kv_dtype_of(int choice);

/* A MODEL (the first positional) that is a URL becomes the path of its copy in the cache, io/cache.h; others stay. */
TERN_MUST_CHECK tern_status tern_model_fetch(struct tern_positionals *positionals);

#endif
