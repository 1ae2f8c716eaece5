/* pass.h - what the engine needs of a model: one pass over parts of many sequences. Tests put
 * something smaller in its place. */
#ifndef TERN_RUNTIME_SERVE_PASS_H
#define TERN_RUNTIME_SERVE_PASS_H

#include "models/infer.h"
#include "runtime/serve/engine.h"

struct tern_engine_pass {
    void *context;
    int64_t vocab, width;
    const int32_t *end_ids; /* tokens that end a text */
    int end_count;
    /* Bytes of an id in the middle of a text; NULL: it has none. */
    const char *(*piece)(void *context, int32_t id, size_t *bytes_out, bool *is_special_out);
    /* As tern_infer_run, tern_infer_hidden and tern_infer_copy_block. */
    tern_status (*run)(void *context,
                       const struct tern_infer_part *parts,
                       int64_t count,
                       const float **logits_out);
    tern_status (*hidden)(void *context, const float **hidden_out);
    tern_status (*copy_block)(void *context, int32_t from, int32_t to);
    void (*destroy)(void *context); /* NULL: nothing to do */
};

enum {
    TERN_ENGINE_EXTRA_ROWS =
        16 /* logits a step beside one a sequence: of guesses, and of prompts that are scored */
};

/* Defaults filled in, and values checked; context_max: the model's. */
TERN_MUST_CHECK tern_status tern_engine_fill(struct tern_engine_options *options,
                                             int64_t context_max);
/* An engine over any pass, with `blocks` blocks; options are filled. Takes the pass over, also
 * when it fails. */
TERN_MUST_CHECK tern_status tern_engine_create_over(const struct tern_engine_pass *pass,
                                                    const struct tern_engine_options *options,
                                                    int64_t blocks,
                                                    struct tern_engine **out);

#endif
