/* export.h - a model out of Tern: a Hugging Face folder, a GGUF file, or adapters as peft reads
 * them. */
#ifndef TERN_RUNTIME_EXPORT_EXPORT_H
#define TERN_RUNTIME_EXPORT_EXPORT_H

#include "runtime/base/status.h"

#include <stdint.h>

enum tern_export_format {
    TERN_EXPORT_HF,
    TERN_EXPORT_GGUF,
    TERN_EXPORT_PEFT
};

/* What matrices become; vectors of a GGUF file stay f32. */
enum tern_export_weights {
    TERN_EXPORT_AUTO, /* bf16 or f16 where the model has that, else f32 */
    TERN_EXPORT_F32,
    TERN_EXPORT_BF16,
    TERN_EXPORT_F16,
    TERN_EXPORT_Q8_0,
    TERN_EXPORT_Q4_0,
    TERN_EXPORT_Q4_K_M /* q4_k, and q6_k where it matters most */
};

struct tern_export_options {
    const char *model; /* anything that tern_weights_open takes */
    const char *out;   /* must not exist */
    enum tern_export_format format;
    enum tern_export_weights weights;
    const char *imatrix; /* GGUF file of importances, for block types; NULL: none */
};

struct tern_export_result {
    int64_t tensors, parameters;
    int64_t bytes; /* of weights, written */
    double seconds;
};

/* Written beside `out` under a temporary name, synced, then renamed: `out` is whole or not there.
 * TERN_ERR_UNSUPPORTED names what the format cannot express. result_out may be NULL. */
TERN_MUST_CHECK tern_status tern_export(const struct tern_export_options *options,
                                        struct tern_export_result *result_out);

#endif
