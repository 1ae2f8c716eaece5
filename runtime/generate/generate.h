/* generate.h - text from a model, and what a model thinks of a text. */
#ifndef TERN_RUNTIME_GENERATE_GENERATE_H
#define TERN_RUNTIME_GENERATE_GENERATE_H

#include "runtime/generate/loaded.h"
#include "runtime/generate/sampler.h"
#include "runtime/generate/stream.h"

struct tern_generate_request {
    const char *prompt;
    size_t prompt_bytes;
    bool is_rendered; /* by a chat template: all special tokens are in the prompt */
    int32_t end_id;   /* one more token that ends the text; -1: none */
    int64_t max_tokens;
    struct tern_sampling sampling;
    const char *const *stops; /* at most TERN_STOPS_MAX, none empty */
    int stop_count;
    /* Called with text as soon as it is sure; whole UTF-8 characters. */
    tern_status (*emit)(void *context, const char *text, size_t bytes);
    void *emit_context;
};

struct tern_generate_result {
    int64_t prompt_tokens, tokens;
    const char *finish_reason; /* "stop" (end token or stop string) or "length" */
    double prefill_seconds, decode_seconds;
};

TERN_MUST_CHECK tern_status tern_generate(struct tern_loaded *loaded,
                                          const struct tern_generate_request *request,
                                          struct tern_generate_result *result);

/* A token sequence in windows of `context` inputs, each predicted from those before it in its
 * window. With a prefix (the BOS that a model is used to) each window begins with it, and every
 * token of the text is predicted; without one the first of the text is not. */
struct tern_eval_text {
    const int32_t *ids;
    int64_t count;
    const int32_t *prefix;
    int prefix_count;
    int64_t context;
};
struct tern_eval_result {
    double nll;     /* sum */
    int64_t tokens; /* predicted */
};
TERN_MUST_CHECK tern_status tern_evaluate(struct tern_loaded *loaded,
                                          const struct tern_eval_text *text,
                                          struct tern_eval_result *result);

/* One row a position of the sequence: called in order; logits (V) of the *next* token after it. */
typedef tern_status (*tern_score_row)(void *context, int64_t position, const float *logits);
TERN_MUST_CHECK tern_status tern_score(struct tern_loaded *loaded,
                                       const int32_t *ids,
                                       int64_t count,
                                       tern_score_row row,
                                       void *context);
/* log of the sum of exponentials of logits (n), in double. */
double tern_log_sum_exp(const float *logits, int64_t n);

#endif
