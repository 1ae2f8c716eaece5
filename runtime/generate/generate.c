/* generate.c - prefill, then one token at a time. */
#include "runtime/generate/generate.h"

#include "models/infer.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#include <math.h>
#include <string.h>

enum {
    PREFILL_CHUNK = 256,
    SCORE_CHUNK = 64
};

struct generator {
    struct tern_loaded *loaded;
    const struct tern_generate_request *request;
    struct tern_generate_result *result;
    struct tern_infer *infer;
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
    TERN_RETURN_IF_ERR(tern_loaded_encode(g->loaded, g->request->prompt, g->request->prompt_bytes,
                                          true, &g->ids, &count));
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
    for (int64_t at = 0; at < count; at += PREFILL_CHUNK) {
        int64_t n = count - at < PREFILL_CHUNK ? count - at : PREFILL_CHUNK;
        TERN_RETURN_IF_ERR(
            tern_infer_append(g->infer, g->ids + at, n, false, at + n == count ? g->logits : NULL));
    }
    g->result->prefill_seconds = tern_clock_seconds() - started;
    return TERN_OK;
}

static tern_status decode(struct generator *g)
{
    const struct tern_generate_request *request = g->request;
    int64_t room = g->loaded->model.config.context - g->result->prompt_tokens;
    int64_t limit = request->max_tokens < room ? request->max_tokens : room;
    int32_t eos = tern_tokenizer_eos(g->loaded->tokenizer);
    double started = tern_clock_seconds();
    g->result->finish_reason = "length";
    while (g->result->tokens < limit) {
        int32_t id =
            tern_sampler_pick(g->sampler, g->logits, &request->sampling, g->result->tokens);
        g->result->tokens++;
        if (id == eos) {
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
            TERN_RETURN_IF_ERR(tern_infer_append(g->infer, &id, 1, false, g->logits));
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
    struct tern_infer_options options = {
        .positions = positions,
        .chunk =
            g->result->prompt_tokens < PREFILL_CHUNK ? g->result->prompt_tokens : PREFILL_CHUNK,
    };
    TERN_RETURN_IF_ERR(
        tern_infer_create(model, g->loaded->device, g->loaded->weights, &options, &g->infer));
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
    tern_infer_destroy(g.infer);
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
    struct tern_infer *infer = NULL;
    struct tern_infer_options options = {.positions = count, .chunk = chunk};
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
        tern_infer_create(&loaded->model, loaded->device, loaded->weights, &options, &infer), out);
    for (int64_t at = 0; at < count; at += chunk) {
        int64_t n = count - at < chunk ? count - at : chunk;
        TERN_GOTO_IF_ERR(status, tern_infer_append(infer, ids + at, n, true, logits), out);
        for (int64_t i = 0; i < n; i++) {
            TERN_GOTO_IF_ERR(status, row(context, at + i, logits + i * v), out);
        }
    }
out:
    tern_infer_destroy(infer);
    tern_free(logits);
    return status;
}

/* What tern_evaluate holds on the device. */
struct evaluator {
    struct tern_loaded *loaded;
    struct tern_pass *pass;
    struct tern_dptr ids, targets, nll;
    int32_t *host; /* inputs (context), targets (context) */
    float *host_nll;
    int64_t context;
};

static tern_status open_evaluator(struct evaluator *e)
{
    struct tern_device *device = e->loaded->device;
    const struct tern_device_table *table = device->ops->device;
    struct tern_pass_options options = {.batch = 1, .sequence = e->context};
    struct tern_op_limits limits = tern_pass_limits(&e->loaded->model, &options);
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_device_prepare(device, &limits, &bytes));
    TERN_RETURN_IF_ERR(tern_pass_create(&e->loaded->model, device, &options, &e->pass));
    TERN_RETURN_IF_ERR(table->alloc(device, "eval", (size_t)e->context * 4, &e->ids));
    TERN_RETURN_IF_ERR(table->alloc(device, "eval", (size_t)e->context * 4, &e->targets));
    TERN_RETURN_IF_ERR(table->alloc(device, "eval", (size_t)e->context * 4, &e->nll));
    e->host = tern_alloc_zero("eval", 2 * (size_t)e->context, sizeof *e->host);
    e->host_nll = tern_alloc_zero("eval", (size_t)e->context, sizeof *e->host_nll);
    return e->host != NULL && e->host_nll != NULL
               ? TERN_OK
               : tern_fail(TERN_ERR_MEMORY, "cannot allocate a window");
}

static void close_evaluator(struct evaluator *e)
{
    const struct tern_device_table *table = e->loaded->device->ops->device;
    table->free(e->loaded->device, e->ids);
    table->free(e->loaded->device, e->targets);
    table->free(e->loaded->device, e->nll);
    tern_pass_destroy(e->pass);
    tern_free(e->host);
    tern_free(e->host_nll);
}

/* Window of n inputs from ids on; ids[n] is the last target. */
static tern_status evaluate_window(struct evaluator *e,
                                   const int32_t *ids,
                                   int64_t n,
                                   struct tern_eval_result *result)
{
    struct tern_device *device = e->loaded->device;
    const struct tern_device_table *table = device->ops->device;
    int32_t *targets = e->host + e->context;
    for (int64_t i = 0; i < e->context; i++) {
        e->host[i] = i < n ? ids[i] : 0;
        targets[i] = i < n ? ids[i + 1] : -1;
    }
    TERN_RETURN_IF_ERR(table->upload(device, e->ids, e->host, (size_t)e->context * 4));
    TERN_RETURN_IF_ERR(table->upload(device, e->targets, targets, (size_t)e->context * 4));
    TERN_RETURN_IF_ERR(tern_pass_eval(e->pass, e->loaded->weights, e->ids, e->targets, e->nll));
    TERN_RETURN_IF_ERR(table->download(device, e->host_nll, e->nll, (size_t)e->context * 4));
    for (int64_t i = 0; i < n; i++) {
        result->nll += e->host_nll[i];
    }
    result->tokens += n;
    return TERN_OK;
}

tern_status tern_evaluate(struct tern_loaded *loaded,
                          const int32_t *ids,
                          int64_t count,
                          int64_t context,
                          struct tern_eval_result *result)
{
    *result = (struct tern_eval_result){0};
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= loaded->model.config.vocab_size) {
            return tern_fail(TERN_ERR_INPUT,
                             "token %lld is %d, expected below the model's vocabulary of %lld",
                             (long long)i, ids[i], (long long)loaded->model.config.vocab_size);
        }
    }
    if (count < 2) {
        return tern_fail(TERN_ERR_INPUT, "the text has %lld tokens, expected at least 2",
                         (long long)count);
    }
    struct evaluator e = {.loaded = loaded, .context = context < count - 1 ? context : count - 1};
    tern_status status;
    TERN_GOTO_IF_ERR(status, open_evaluator(&e), out);
    for (int64_t at = 0; at + 1 < count; at += e.context) {
        int64_t n = count - 1 - at < e.context ? count - 1 - at : e.context;
        TERN_GOTO_IF_ERR(status, evaluate_window(&e, ids + at, n, result), out);
    }
out:
    close_evaluator(&e);
    return status;
}
