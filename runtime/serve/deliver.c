/* deliver.c - what requests hear on their way, and how they end. */
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/serve/engine_impl.h"
#include "runtime/serve/logprobs.h"

#include <math.h>

static void send(struct tern_job *job, const struct tern_engine_event *event)
{
    job->request.deliver(job->request.context, event);
}

/* Nothing follows: the request's owner is let go, its handle and memory at the step's end. */
static void release(struct tern_engine *engine, struct tern_job *job)
{
    *(job->before != NULL ? &job->before->next : &engine->jobs) = job->next;
    *(job->next != NULL ? &job->next->before : &engine->last_job) = job->before;
    engine->unstarted -= !job->is_started;
    job->request.release(job->request.context);
    job->next = engine->retired;
    engine->retired = job;
}

static double seconds_since(int64_t ns)
{
    return (double)(tern_clock_ns() - ns) * 1e-9;
}

/* How fast requests are begun while others wait: what a queue's length means in seconds. */
static void measure_starts(struct tern_engine *engine)
{
    const double weight = 1.0 / 32;
    int64_t now = tern_clock_ns();
    if (engine->last_start_ns != 0) {
        double gap = (double)(now - engine->last_start_ns) * 1e-9;
        engine->start_gap += engine->start_gap == 0 ? gap : weight * (gap - engine->start_gap);
    }
    engine->last_start_ns = engine->unstarted > 0 ? now : 0;
}

void tern_deliver_start(struct tern_engine *engine, struct tern_job *job)
{
    job->is_started = true;
    engine->started_jobs++;
    engine->unstarted--;
    measure_starts(engine);
    engine->totals.prompt_tokens += (uint64_t)job->request.count;
    tern_engine_observe(&engine->totals.queue, seconds_since(job->submitted_ns));
    tern_engine_observe(&engine->totals.request_prompt_tokens, (double)job->request.count);
    send(job, &(struct tern_engine_event){.kind = TERN_ENGINE_START,
                                          .prompt_tokens = job->request.count,
                                          .cached_tokens = job->cached_tokens});
}

void tern_deliver_prompt(struct tern_engine *engine,
                         struct tern_job *job,
                         int64_t first,
                         const float *logits,
                         int64_t rows)
{
    const struct tern_engine_request *request = &job->request;
    if (job->told == 0) {
        send(job, &(struct tern_engine_event){
                      .kind = TERN_ENGINE_PROMPT, .id = request->ids[0], .logprob = NAN});
        job->told = 1;
    }
    for (int64_t row = 0; row < rows; row++) {
        int64_t token = first + row + 1; /* what the row speaks of */
        if (token != job->told || token >= request->count) {
            continue; /* told before it was preempted; or no part of the prompt */
        }
        struct tern_logprobs found;
        tern_logprobs_of(engine->sampler, logits + row * engine->pass.vocab, engine->pass.vocab,
                         request->ids[token], request->prompt_logprobs, &found);
        send(job, &(struct tern_engine_event){.kind = TERN_ENGINE_PROMPT,
                                              .id = request->ids[token],
                                              .logprob = found.logprob,
                                              .tops = found.tops,
                                              .top_count = found.top_count});
        job->told++;
    }
}

/* When tokens come, for the histograms. */
static void take_time(struct tern_engine *engine, struct tern_choice *choice)
{
    int64_t now = tern_clock_ns();
    if (choice->first_ns == 0) {
        choice->first_ns = now;
        tern_engine_observe(&engine->totals.ttft, (double)(now - choice->job->submitted_ns) * 1e-9);
        tern_engine_observe(&engine->totals.prefill, (double)(now - choice->started_ns) * 1e-9);
    } else {
        tern_engine_observe(&engine->totals.inter_token, (double)(now - choice->last_ns) * 1e-9);
    }
    choice->last_ns = now;
    engine->totals.generation_tokens++;
}

static bool is_end(const struct tern_job *job, int32_t id)
{
    for (int i = 0; i < job->end_count; i++) {
        if (job->end_ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* The text that a token decides, into engine->out. */
static tern_status push_text(struct tern_engine *engine, struct tern_choice *choice, int32_t id)
{
    const struct tern_engine_request *request = &choice->job->request;
    size_t bytes;
    bool is_special;
    const char *piece = engine->pass.piece(engine->pass.context, id, &bytes, &is_special);
    engine->out.length = 0;
    if (piece == NULL || (is_special && request->skip_special)) {
        return TERN_OK;
    }
    bool may_stop = choice->count - request->count >= request->min_tokens;
    choice->stream.stop_count = may_stop ? request->stop_count : 0;
    return tern_stream_push(&choice->stream, piece, bytes, &engine->out);
}

tern_status tern_deliver_token(struct tern_engine *engine,
                               struct tern_choice *choice,
                               const float *logits)
{
    struct tern_job *job = choice->job;
    const struct tern_engine_request *request = &job->request;
    int32_t id = choice->ids[choice->count - 1];
    take_time(engine, choice);
    if (is_end(job, id)) {
        tern_deliver_finish(engine, choice, TERN_ENGINE_END_STOP);
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(push_text(engine, choice, id));
    struct tern_logprobs found = {.logprob = NAN};
    if (request->logprobs >= 0) {
        tern_logprobs_of(engine->sampler, logits, engine->pass.vocab, id, request->logprobs,
                         &found);
    }
    send(job, &(struct tern_engine_event){.kind = TERN_ENGINE_TOKEN,
                                          .choice = choice->index,
                                          .id = id,
                                          .text = engine->out.data,
                                          .text_bytes = engine->out.length,
                                          .logprob = found.logprob,
                                          .tops = found.tops,
                                          .top_count = found.top_count,
                                          .completion_tokens = choice->count - request->count});
    if (choice->stream.is_stopped) {
        tern_deliver_finish(engine, choice, TERN_ENGINE_END_STOP);
    } else if (choice->count - request->count == request->max_tokens) {
        tern_deliver_finish(engine, choice, TERN_ENGINE_END_LENGTH);
    }
    return TERN_OK;
}

void tern_deliver_finish(struct tern_engine *engine,
                         struct tern_choice *choice,
                         enum tern_engine_end end)
{
    struct tern_job *job = choice->job;
    engine->out.length = 0;
    tern_status status = tern_stream_finish(&choice->stream, &engine->out);
    if (status != TERN_OK) {
        tern_deliver_fail(engine, job, TERN_ENGINE_END_ERROR, status, tern_detail());
        return;
    }
    int64_t tokens = choice->is_open ? choice->count - job->request.count : 0;
    tern_schedule_leave(engine, choice);
    engine->totals.finished[end]++;
    tern_engine_observe(&engine->totals.e2e, seconds_since(job->submitted_ns));
    tern_engine_observe(&engine->totals.request_generation_tokens, (double)tokens);
    if (choice->first_ns != 0) {
        tern_engine_observe(&engine->totals.decode, seconds_since(choice->first_ns));
    }
    send(job, &(struct tern_engine_event){.kind = TERN_ENGINE_FINISH,
                                          .choice = choice->index,
                                          .text = engine->out.data,
                                          .text_bytes = engine->out.length,
                                          .finish_reason = tern_engine_end_name(end),
                                          .prompt_tokens = job->request.count,
                                          .cached_tokens = job->cached_tokens,
                                          .completion_tokens = tokens});
    if (--job->open == 0) {
        release(engine, job);
    }
}

void tern_deliver_embedding(struct tern_engine *engine, struct tern_job *job)
{
    int64_t width = engine->pass.width;
    double square = 0;
    for (int64_t i = 0; i < width; i++) {
        square += job->pooled[i] * job->pooled[i];
    }
    double scale = square > 0 ? 1 / sqrt(square) : 0; /* the count divides out */
    for (int64_t i = 0; i < width; i++) {
        engine->embedding[i] = (float)(job->pooled[i] * scale);
    }
    tern_schedule_leave(engine, &job->choices[0]);
    engine->totals.finished[TERN_ENGINE_END_EMBEDDING]++;
    tern_engine_observe(&engine->totals.e2e, seconds_since(job->submitted_ns));
    send(job, &(struct tern_engine_event){.kind = TERN_ENGINE_EMBEDDING,
                                          .embedding = engine->embedding,
                                          .width = width,
                                          .prompt_tokens = job->request.count});
    job->open = 0;
    release(engine, job);
}

void tern_deliver_fail(struct tern_engine *engine,
                       struct tern_job *job,
                       enum tern_engine_end end,
                       tern_status status,
                       const char *message)
{
    for (int i = 0; i < job->n; i++) {
        if (job->choices[i].state != TERN_CHOICE_DONE) {
            tern_schedule_leave(engine, &job->choices[i]);
        }
    }
    engine->totals.finished[end] += (uint64_t)job->open;
    job->open = 0;
    if (end != TERN_ENGINE_END_ABORT) {
        send(job, &(struct tern_engine_event){
                      .kind = TERN_ENGINE_FAIL, .status = status, .message = message});
    }
    release(engine, job);
}
