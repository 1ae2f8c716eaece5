/* generate.c - prefill, then one token at a time. */
#include "runtime/generate/generate.h"

#include "models/sequence.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#include <math.h>
#include <string.h>

enum {
    PREFILL_CHUNK = 256,
    SCORE_CHUNK = 64,
    EVAL_CHUNK = 512
};

struct generator {
    struct tern_loaded *loaded;
    const struct tern_generate_request *request;
    struct tern_generate_result *result;
    struct tern_sequence *infer;
    struct tern_sampler *sampler;
    struct tern_stream stream;
    struct tern_text out;
    int32_t *ids;
    float *logits;
};

static tern_status flush(struct generator *g)
{
    if (g->out.length == 0) {
        return TERN_OK;
    }
    tern_status status = g->request->emit(g->request->emit_context, g->out.data, g->out.length);
    g->out.length = 0;
    return status;
}

static tern_status encode_prompt(struct generator *g)
{
    int64_t count;
    int64_t context = g->loaded->model.config.context;
    enum tern_loaded_text kind = g->request->is_rendered ? TERN_TEXT_RENDERED : TERN_TEXT_PROMPT;
    TERN_RETURN_IF_ERR(tern_loaded_encode(g->loaded, g->request->prompt, g->request->prompt_bytes,
                                          kind, &g->ids, &count));
    g->result->prompt_tokens = count;
    if (count == 0) {
        return tern_fail(TERN_ERR_USAGE, "the prompt is empty: expected at least one token");
    }
    if (count >= context) {
        return tern_fail(
            TERN_ERR_INPUT,
            "the prompt has %lld tokens, expected at most %lld: the model's context is %lld "
            "and the answer needs one",
            (long long)count, (long long)(context - 1), (long long)context);
    }
    return TERN_OK;
}

static tern_status prefill(struct generator *g)
{
    int64_t count = g->result->prompt_tokens;
    double started = tern_clock_seconds();
    tern_sequence_expect(g->infer, count);
    for (int64_t at = 0; at < count; at += PREFILL_CHUNK) {
        int64_t n = count - at < PREFILL_CHUNK ? count - at : PREFILL_CHUNK;
        TERN_RETURN_IF_ERR(tern_sequence_append(g->infer, g->ids + at, n, false,
                                                at + n == count ? g->logits : NULL));
    }
    g->result->prefill_seconds = tern_clock_seconds() - started;
    return TERN_OK;
}

static tern_status decode(struct generator *g)
{
    const struct tern_generate_request *request = g->request;
    int64_t room = g->loaded->model.config.context - g->result->prompt_tokens;
    int64_t limit = request->max_tokens < room ? request->max_tokens : room;
    double started = tern_clock_seconds();
    g->result->finish_reason = "length";
    while (g->result->tokens < limit) {
        int32_t id =
            tern_sampler_pick(g->sampler, g->logits, &request->sampling, g->result->tokens);
        g->result->tokens++;
        if (id == request->end_id || tern_loaded_is_end(g->loaded, id)) {
            g->result->finish_reason = "stop";
            break;
        }
        size_t bytes;
        const char *piece = tern_tokenizer_piece(g->loaded->tokenizer, id, &bytes);
        if (piece != NULL) { /* a padded vocabulary has ids without text */
            TERN_RETURN_IF_ERR(tern_stream_push(&g->stream, piece, bytes, &g->out));
        }
        TERN_RETURN_IF_ERR(flush(g));
        if (g->stream.is_stopped) {
            g->result->finish_reason = "stop";
            break;
        }
        if (g->result->tokens < limit) {
            TERN_RETURN_IF_ERR(tern_sequence_append(g->infer, &id, 1, false, g->logits));
        }
    }
    TERN_RETURN_IF_ERR(tern_stream_finish(&g->stream, &g->out));
    g->result->decode_seconds = tern_clock_seconds() - started;
    return flush(g);
}

static tern_status open_generator(struct generator *g)
{
    const struct tern_model *model = &g->loaded->model;
    for (int i = 0; i < g->request->stop_count; i++) {
        g->stream.stops[g->stream.stop_count++] = g->request->stops[i];
    }
    TERN_RETURN_IF_ERR(encode_prompt(g));
    int64_t positions = g->result->prompt_tokens + g->request->max_tokens;
    positions = positions < model->config.context ? positions : model->config.context;
    struct tern_sequence_options options = {
        .positions = positions,
        .chunk =
            g->result->prompt_tokens < PREFILL_CHUNK ? g->result->prompt_tokens : PREFILL_CHUNK,
    };
    TERN_RETURN_IF_ERR(
        tern_sequence_create(model, g->loaded->device, &g->loaded->placed, &options, &g->infer));
    TERN_RETURN_IF_ERR(tern_sampler_create(model->config.vocab_size, &g->sampler));
    g->logits = tern_alloc("generate", (size_t)model->config.vocab_size * sizeof *g->logits);
    return g->logits != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "cannot allocate logits");
}

tern_status tern_generate(struct tern_loaded *loaded,
                          const struct tern_generate_request *request,
                          struct tern_generate_result *result)
{
    *result = (struct tern_generate_result){0};
    struct generator g = {.loaded = loaded, .request = request, .result = result};
    tern_stream_init(&g.stream);
    tern_text_init(&g.out);
    tern_status status;
    TERN_GOTO_IF_ERR(status, open_generator(&g), out);
    TERN_GOTO_IF_ERR(status, prefill(&g), out);
    status = decode(&g);
out:
    tern_sequence_destroy(g.infer);
    tern_sampler_destroy(g.sampler);
    tern_stream_fini(&g.stream);
    tern_text_fini(&g.out);
    tern_free(g.ids);
    tern_free(g.logits);
    return status;
}

double tern_log_sum_exp(const float *logits, int64_t n)
{
    double best = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        best = logits[i] > best ? logits[i] : best;
    }
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(logits[i] - best);
    }
    return best + log(sum);
}

tern_status tern_score(struct tern_loaded *loaded,
                       const int32_t *ids,
                       int64_t count,
                       tern_score_row row,
                       void *context)
{
    int64_t v = loaded->model.config.vocab_size;
    int64_t chunk = count < SCORE_CHUNK ? count : SCORE_CHUNK;
    struct tern_sequence *infer = NULL;
    struct tern_sequence_options options = {.positions = count, .chunk = chunk};
    if (count < 1 || count > loaded->model.config.context) {
        return tern_fail(TERN_ERR_INPUT,
                         "the text has %lld tokens, expected 1 to %lld (the model's context)",
                         (long long)count, (long long)loaded->model.config.context);
    }
    float *logits = tern_alloc("score", (size_t)(chunk * v) * sizeof *logits);
    if (logits == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate logits");
    }
    tern_status status;
    TERN_GOTO_IF_ERR(
        status,
        tern_sequence_create(&loaded->model, loaded->device, &loaded->placed, &options, &infer),
        out);
    tern_sequence_expect(infer, count);
    for (int64_t at = 0; at < count; at += chunk) {
        int64_t n = count - at < chunk ? count - at : chunk;
        TERN_GOTO_IF_ERR(status, tern_sequence_append(infer, ids + at, n, true, logits), out);
        for (int64_t i = 0; i < n; i++) {
            TERN_GOTO_IF_ERR(status, row(context, at + i, logits + i * v), out);
        }
    }
out:
    tern_sequence_destroy(infer);
    tern_free(logits);
    return status;
}

/* A window of n inputs; targets of -1 count nothing. */
static tern_status evaluate_window(struct tern_sequence *infer,
                                   const int32_t *ids,
                                   const int32_t *targets,
                                   int64_t n,
                                   struct tern_eval_result *result)
{
    float nll[EVAL_CHUNK];
    tern_sequence_rewind(infer, 0);
    tern_sequence_expect(infer, n);
    for (int64_t at = 0; at < n; at += EVAL_CHUNK) {
        int64_t some = n - at < EVAL_CHUNK ? n - at : EVAL_CHUNK;
        TERN_RETURN_IF_ERR(tern_sequence_nll(infer, ids + at, targets + at, some, nll));
        for (int64_t i = 0; i < some; i++) {
            result->nll += nll[i];
            result->tokens += targets[at + i] >= 0;
        }
    }
    return TERN_OK;
}

static tern_status check_ids(const struct tern_loaded *loaded, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= loaded->model.config.vocab_size) {
            return tern_fail(TERN_ERR_INPUT,
                             "token %lld is %d, expected below the model's vocabulary of %lld",
                             (long long)i, ids[i], (long long)loaded->model.config.vocab_size);
        }
    }
    return TERN_OK;
}

/* Windows one after the other: each begins with the prefix, if there is one, and goes on where the
 * last one ended. window: inputs of one; both buffers hold as many and one more. */
static tern_status evaluate_all(struct tern_sequence *infer,
                                const struct tern_eval_text *text,
                                int64_t window,
                                int32_t *ids,
                                int32_t *targets,
                                struct tern_eval_result *result)
{
    int64_t before = text->prefix_count;
    int64_t at = before > 0 ? 0 : 1; /* of the token predicted next */
    while (at < text->count) {
        int64_t left = text->count - at;
        int64_t inputs = left + (before > 0 ? before - 1 : 0);
        inputs = inputs < window ? inputs : window;
        for (int64_t i = 0; i < inputs + 1; i++) { /* the last one is a target only */
            int64_t from = before > 0 ? at + i - before : at + i - 1;
            ids[i] = i < before ? text->prefix[i] : text->ids[from];
        }
        for (int64_t i = 0; i < inputs; i++) {
            targets[i] = i + 1 < before ? -1 : ids[i + 1];
        }
        TERN_RETURN_IF_ERR(evaluate_window(infer, ids, targets, inputs, result));
        at += inputs - (before > 0 ? before - 1 : 0);
    }
    return TERN_OK;
}

tern_status tern_evaluate(struct tern_loaded *loaded,
                          const struct tern_eval_text *text,
                          struct tern_eval_result *result)
{
    *result = (struct tern_eval_result){0};
    TERN_RETURN_IF_ERR(check_ids(loaded, text->ids, text->count));
    TERN_RETURN_IF_ERR(check_ids(loaded, text->prefix, text->prefix_count));
    int64_t whole = text->count - 1 + text->prefix_count;
    int64_t window = text->context < whole ? text->context : whole;
    if (text->count < 2 || window <= text->prefix_count) {
        return tern_fail(TERN_ERR_INPUT,
                         "the text has %lld tokens, a window %lld, expected at least 2 beside the "
                         "%d that each window begins with",
                         (long long)text->count, (long long)window, text->prefix_count);
    }
    struct tern_sequence_options options = {.positions = window,
                                            .chunk = window < EVAL_CHUNK ? window : EVAL_CHUNK};
    struct tern_sequence *infer = NULL;
    int32_t *ids = tern_alloc("eval", 2 * (size_t)(window + 1) * sizeof *ids);
    if (ids == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a window");
    }
    tern_status status =
        tern_sequence_create(&loaded->model, loaded->device, &loaded->placed, &options, &infer);
    if (status == TERN_OK) {
        status = evaluate_all(infer, text, window, ids, ids + window + 1, result);
    }
    tern_sequence_destroy(infer);
    tern_free(ids);
    return status;
}
