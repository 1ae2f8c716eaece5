/* job.c - a request as it was submitted: checked, copied, and the memory of its sequences. */
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/serve/engine_impl.h"

#include <math.h>
#include <string.h>

enum {
    GROW_TOKENS = 64
};

static tern_status check_ids(const char *what, const int32_t *ids, int64_t count, int64_t vocab)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= vocab) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s %lld is token %d, expected 0 to %lld: the model's vocabulary",
                             what, (long long)i, ids[i], (long long)(vocab - 1));
        }
    }
    return TERN_OK;
}

static tern_status check_prompt(const struct tern_engine *engine,
                                const struct tern_engine_request *request)
{
    int64_t context = engine->options.context;
    bool has_text = !request->is_embedding && request->max_tokens != 0;
    int64_t most = has_text ? context - 1 : context;
    if (request->count < 1) {
        return tern_fail(TERN_ERR_INPUT, "the prompt is empty: expected at least one token");
    }
    if (request->count > most) {
        return tern_fail(TERN_ERR_INPUT,
                         "the prompt has %lld tokens, expected at most %lld: the context is %lld%s",
                         (long long)request->count, (long long)most, (long long)context,
                         has_text ? " and the answer needs one" : "");
    }
    return check_ids("prompt token", request->ids, request->count, engine->pass.vocab);
}

static tern_status check_range(const char *name, double value, double least, double most)
{
    return value >= least && value <= most /* not of NaN */
               ? TERN_OK
               : tern_fail(TERN_ERR_INPUT, "%s is %g, expected %g to %g", name, value, least, most);
}

static tern_status check_sampling(const struct tern_sampling *sampling)
{
    TERN_RETURN_IF_ERR(check_range("temperature", sampling->temperature, 0, 1e6));
    TERN_RETURN_IF_ERR(check_range("top_p", sampling->top_p, 0, 1));
    TERN_RETURN_IF_ERR(check_range("min_p", sampling->min_p, 0, 1));
    TERN_RETURN_IF_ERR(check_range("top_k", (double)sampling->top_k, 0, 1e12));
    TERN_RETURN_IF_ERR(check_range("repetition penalty", sampling->repetition, 0, 1e6));
    TERN_RETURN_IF_ERR(check_range("presence penalty", sampling->presence, -1e6, 1e6));
    return check_range("frequency penalty", sampling->frequency, -1e6, 1e6);
}

static tern_status check_lists(const struct tern_engine *engine,
                               const struct tern_engine_request *request)
{
    TERN_RETURN_IF_ERR(
        check_range("number of biases", (double)request->bias_count, 0, TERN_ENGINE_BIAS_MAX));
    TERN_RETURN_IF_ERR(
        check_range("number of stop strings", request->stop_count, 0, TERN_STOPS_MAX));
    TERN_RETURN_IF_ERR(
        check_range("number of stop ids", request->stop_id_count, 0, TERN_ENGINE_STOP_IDS_MAX));
    for (int64_t i = 0; i < request->bias_count; i++) {
        TERN_RETURN_IF_ERR(check_ids("bias of", &request->bias[i].id, 1, engine->pass.vocab));
        TERN_RETURN_IF_ERR(check_range("bias", request->bias[i].value, -1e6, 1e6));
    }
    for (int i = 0; i < request->stop_count; i++) {
        if (request->stops[i][0] == '\0') {
            return tern_fail(TERN_ERR_INPUT, "stop string %d is empty", i);
        }
    }
    return check_ids("stop id", request->stop_ids, request->stop_id_count, engine->pass.vocab);
}

static tern_status check_request(const struct tern_engine *engine,
                                 const struct tern_engine_request *request)
{
    TERN_CHECK(request->deliver != NULL && request->release != NULL);
    TERN_RETURN_IF_ERR(check_prompt(engine, request));
    TERN_RETURN_IF_ERR(check_sampling(&request->sampling));
    TERN_RETURN_IF_ERR(check_lists(engine, request));
    TERN_RETURN_IF_ERR(check_range("max_tokens", (double)request->max_tokens, -1, 1e15));
    TERN_RETURN_IF_ERR(check_range("min_tokens", (double)request->min_tokens, 0, 1e15));
    TERN_RETURN_IF_ERR(check_range("n", request->n, 0, TERN_ENGINE_CHOICES_MAX));
    TERN_RETURN_IF_ERR(check_range("logprobs", request->logprobs, -1, TERN_ENGINE_TOPS_MAX));
    TERN_RETURN_IF_ERR(
        check_range("prompt logprobs", request->prompt_logprobs, -1, TERN_ENGINE_TOPS_MAX));
    return check_range("deadline", request->deadline_seconds, 0, 1e9);
}

static void *copy(const void *data, size_t bytes, bool *has_failed)
{
    if (bytes == 0) {
        return NULL;
    }
    void *block = tern_alloc("request", bytes);
    if (block == NULL) {
        *has_failed = true;
        return NULL;
    }
    memcpy(block, data, bytes);
    return block;
}

static void copy_lists(struct tern_job *job, const struct tern_engine_request *from, bool *failed)
{
    struct tern_engine_request *to = &job->request;
    to->ids = copy(from->ids, (size_t)from->count * sizeof *from->ids, failed);
    to->bias = copy(from->bias, (size_t)from->bias_count * sizeof *from->bias, failed);
    to->stop_ids = NULL; /* they are among job->end_ids */
    to->stop_count = 0;
    char **stops = NULL;
    if (from->stop_count > 0) {
        stops = tern_alloc_zero("request", (size_t)from->stop_count, sizeof *stops);
        *failed |= stops == NULL;
    }
    to->stops = (const char *const *)stops;
    for (int i = 0; i < from->stop_count && stops != NULL; i++) {
        stops[i] = copy(from->stops[i], strlen(from->stops[i]) + 1, failed);
        to->stop_count++;
    }
}

static void copy_ends(const struct tern_engine *engine,
                      struct tern_job *job,
                      const struct tern_engine_request *from,
                      bool *failed)
{
    int own = from->ignore_end ? 0 : engine->pass.end_count;
    int count = own + from->stop_id_count;
    if (count == 0) {
        return;
    }
    job->end_ids = tern_alloc("request", (size_t)count * sizeof *job->end_ids);
    if (job->end_ids == NULL) {
        *failed = true;
        return;
    }
    for (int i = 0; i < count; i++) {
        job->end_ids[i] = i < own ? engine->pass.end_ids[i] : from->stop_ids[i - own];
    }
    job->end_count = count;
}

tern_status tern_job_create(struct tern_engine *engine,
                            const struct tern_engine_request *request,
                            struct tern_job **out)
{
    TERN_RETURN_IF_ERR(check_request(engine, request));
    struct tern_job *job = tern_alloc_zero("request", 1, sizeof *job);
    if (job == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a request");
    }
    bool has_failed = false;
    job->request = *request;
    job->request.grammar = request->grammar != NULL ? tern_grammar_retain(request->grammar) : NULL;
    copy_lists(job, request, &has_failed);
    copy_ends(engine, job, request, &has_failed);
    int64_t room = engine->options.context - request->count;
    if (request->max_tokens < 0 || request->max_tokens > room) {
        job->request.max_tokens = room;
    }
    job->n = request->is_embedding || request->n == 0 ? 1 : request->n;
    job->open = job->n;
    job->choices = tern_alloc_zero("request", (size_t)job->n, sizeof *job->choices);
    if (request->is_embedding) {
        job->pooled = tern_alloc_zero("request", (size_t)engine->pass.width, sizeof *job->pooled);
        has_failed |= job->pooled == NULL;
    }
    if (has_failed || job->choices == NULL) {
        tern_job_destroy(job);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a request of %lld tokens",
                         (long long)request->count);
    }
    for (int i = 0; i < job->n; i++) {
        job->choices[i] = (struct tern_choice){.job = job, .index = i};
    }
    job->submitted_ns = tern_clock_ns();
    job->deadline_ns = request->deadline_seconds > 0
                           ? job->submitted_ns + (int64_t)(request->deadline_seconds * 1e9)
                           : INT64_MAX;
    *out = job;
    return TERN_OK;
}

static void close_choice(struct tern_choice *choice)
{
    if (choice->table.blocks != NULL) {
        tern_kv_table_fini(&choice->table);
    }
    tern_free(choice->ids);
    tern_stream_fini(&choice->stream);
    tern_grammar_state_destroy(choice->grammar);
}

void tern_job_destroy(struct tern_job *job)
{
    for (int i = 0; i < job->n && job->choices != NULL; i++) {
        close_choice(&job->choices[i]);
    }
    for (int i = 0; i < job->request.stop_count; i++) {
        tern_free((void *)job->request.stops[i]);
    }
    if (job->request.grammar != NULL) {
        tern_grammar_release(job->request.grammar);
    }
    tern_free((void *)job->request.stops);
    tern_free((void *)job->request.ids);
    tern_free((void *)job->request.bias);
    tern_free(job->end_ids);
    tern_free(job->pooled);
    tern_free(job->choices);
    tern_free(job);
}

tern_status tern_choice_grow(struct tern_choice *choice, int64_t more)
{
    if (choice->count + more <= choice->capacity) {
        return TERN_OK;
    }
    int64_t capacity = 2 * choice->capacity + more;
    int32_t *ids = tern_realloc("sequence", choice->ids, (size_t)capacity * sizeof *choice->ids);
    if (ids == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld tokens", (long long)capacity);
    }
    choice->ids = ids;
    choice->capacity = capacity;
    return TERN_OK;
}

tern_status tern_choice_open(struct tern_engine *engine, struct tern_choice *choice)
{
    const struct tern_engine_request *request = &choice->job->request;
    if (choice->is_open) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_choice_grow(choice, request->count + GROW_TOKENS));
    memcpy(choice->ids, request->ids, (size_t)request->count * sizeof *choice->ids);
    choice->count = request->count;
    TERN_RETURN_IF_ERR(tern_kv_table_init(&choice->table, engine->options.context));
    tern_stream_init(&choice->stream);
    for (int i = 0; i < request->stop_count; i++) {
        choice->stream.stops[i] = request->stops[i];
    }
    choice->sampling = request->sampling;
    choice->sampling.choice = (uint32_t)choice->index;
    if (request->grammar != NULL) {
        TERN_RETURN_IF_ERR(tern_grammar_state_create(request->grammar, &choice->grammar));
    }
    choice->is_open = true;
    return TERN_OK;
}

bool tern_choice_is_older(const struct tern_choice *a, const struct tern_choice *b)
{
    return a->job->number != b->job->number ? a->job->number < b->job->number : a->index < b->index;
}
