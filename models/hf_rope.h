/* hf_rope.h - reading keys of a config.json, and those of rotary positions. Inside models/. */
#ifndef TERN_MODELS_HF_ROPE_H
#define TERN_MODELS_HF_ROPE_H

#include "io/json.h"
#include "models/model.h"

/* There, and not null. */
bool tern_hf_has(const struct tern_json *object, const char *key);
/* TERN_ERR_CONFIG: "key 'x': found y, expected ...". */
tern_status tern_hf_fail(const struct tern_json *object, const char *key, const char *expected);
/* Each leaves *out alone when the key is missing or null, and checks kind and range. */
TERN_MUST_CHECK tern_status tern_hf_i64(const struct tern_json *object,
                                        const char *key,
                                        int64_t low,
                                        int64_t high,
                                        int64_t *out);
TERN_MUST_CHECK tern_status
tern_hf_f32(const struct tern_json *object, const char *key, double low, double high, float *out);
TERN_MUST_CHECK tern_status tern_hf_bool(const struct tern_json *object,
                                         const char *key,
                                         bool *out);
/* rope_theta, rope_scaling, partial_rotary_factor, or rope_parameters with all of that. The sizes
 * (context, head_width) are known. */
TERN_MUST_CHECK tern_status tern_hf_rope_parse(const struct tern_json *root,
                                               struct tern_model_config *config);

#endif
